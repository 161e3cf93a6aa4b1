//! A report as one page that a person can file: the erase certificate.
//!
//! One HTML file without scripts and without anything to fetch. It is made of the report alone, so
//! that the same report gives the same page.

mod html;
pub mod place;
mod style;
mod words;

use blockd::aidl::MmcCommand::MmcCommand;
use blockd::aidl::ResetPlan::ResetPlan;
use blockd::aidl::ResetReport::ResetReport;
use blockd::aidl::ResetTarget::ResetTarget;
use blockd::aidl::TargetReport::TargetReport;
use blockd::reset::request::{Logical, Marker, Verify};
use html::Html;
use std::time::Duration;

/// What a person adds with a pen.
const BY_HAND: [&str; 5] = [
    "Device model",
    "Device serial number",
    "Operator",
    "Place and date",
    "Signature",
];

/// The page.
pub fn page(report: &ResetReport) -> String {
    let title = if is_verified(report) {
        "Erase certificate"
    } else {
        "Erase report: not verified"
    };
    let full_title = format!("{title}, {}, run {}", report.plan.disk, report.token);
    Html::page(&full_title, style::STYLE, |html| {
        html.within("header", "", |html| {
            html.element("h1", "", title);
            html.element("p", "mono", &format!("Run {}", report.token));
        });
        verdict(html, report);
        identity(html, report);
        partitions(html, report);
        worth(html, report);
        verification(html, report);
        commands(html, report);
        times(html, report);
        by_hand(html);
        html.within("footer", "small", |html| {
            html.text(&format!(
                "Erased by blockd {}; page made by blockctl {} from report format {}. It says what \
                 was done to the partitions named above, and nothing about any other.",
                report.softwareVersion,
                blockd::VERSION,
                report.formatVersion
            ));
        });
    })
}

fn is_verified(report: &ResetReport) -> bool {
    report.logical.0 == Logical::Verified as i32
}

fn names(plan: &ResetPlan) -> String {
    let names: Vec<&str> = plan.targets.iter().map(|t| t.partition.as_str()).collect();
    names.join(", ")
}

fn or_unknown(text: &str) -> String {
    let text = if text.is_empty() { "unknown" } else { text };
    text.to_owned()
}

/// `64 MiB (67108864 bytes)`.
fn bytes(number: i64) -> String {
    crate::reset::bytes(number)
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

fn micros(number: i64) -> Duration {
    Duration::from_micros(u64::try_from(number).unwrap_or(0))
}

fn verdict(html: &mut Html, report: &ResetReport) {
    let (class, result) = if is_verified(report) {
        ("verdict", "erased and read back as erased")
    } else {
        (
            "verdict failed",
            "not verified: it must be taken for neither kept nor erased",
        )
    };
    html.within("div", class, |html| {
        html.within("p", "", |html| {
            html.element("strong", "", &names(&report.plan));
            html.text(&format!(" on {}: {result}.", report.plan.disk));
        });
        html.within("p", "", |html| {
            html.text("Worth: ");
            html.element("strong", "", &words::assurance(report.assurance.0).0);
            html.text(". Claimed by the device: ");
            html.element("strong", "", &words::physical(report.physical.0).0);
            html.text(". These words are explained below.");
        });
        if report.formatNeeded {
            html.element(
                "p",
                "",
                "Erased, not formatted: it holds no file system now.",
            );
        }
    });
    if !report.warnings.is_empty() {
        html.element("h2", "", "Warnings");
        html.list(report.warnings.iter().map(String::as_str));
    }
}

fn identity(html: &mut Html, report: &ResetReport) {
    let plan = &report.plan;
    let marker = match Marker::from_number(plan.marker.0) {
        Some(Marker::Misc) => "in misc, until formatting is done".to_owned(),
        Some(Marker::File) => "in a file of the caller's, until formatting is done".to_owned(),
        Some(Marker::None) => "none was asked for".to_owned(),
        None => format!("unknown ({})", plan.marker.0),
    };
    html.element("h2", "", "Device and run");
    html.facts(
        "",
        [
            ("Card name (CID PNM)", or_unknown(&plan.cardName)),
            ("Card register CID", or_unknown(&plan.cid)),
            ("Disk", plan.disk.clone()),
            ("Started", words::date(report.startedUnixMillis)),
            (
                "Duration",
                seconds(micros(report.elapsedMillis.saturating_mul(1000))),
            ),
            ("Attempt", plan.attempt.to_string()),
            ("Method", words::method(plan.method.0)),
            (
                "Sanitize after it",
                if plan.sanitize { "yes" } else { "no" }.to_owned(),
            ),
            ("Erase group", bytes(plan.eraseGroupBytes)),
            ("Erased bytes read", format!("{:#04x}", plan.erasedValue)),
            ("Restart marker", marker),
        ],
    );
}

fn partitions(html: &mut Html, report: &ResetReport) {
    html.element("h2", "", "Partitions");
    html.table(
        &[
            ("Partition", ""),
            ("Node", ""),
            ("First byte", "number"),
            ("Last byte", "number"),
            ("Erased by commands", "number"),
            ("Overwritten", "number"),
            ("Time", "number"),
        ],
        report.targets.iter().enumerate().map(|(i, target)| {
            let planned = report.plan.targets.get(i);
            let length = planned.map_or(0, |p| p.lengthBytes);
            let last = target.startBytes.saturating_add(length).saturating_sub(1);
            [
                target.partition.clone(),
                planned.map_or_else(String::new, |p| p.node.clone()),
                target.startBytes.to_string(),
                last.to_string(),
                target.erasedBytes.to_string(),
                target.overwrittenBytes.to_string(),
                seconds(micros(target.eraseMicros)),
            ]
        }),
    );
    html.element(
        "p",
        "small",
        "All numbers in bytes; first and last byte from the start of the disk.",
    );
    for (planned, target) in report.plan.targets.iter().zip(&report.targets) {
        html.element("p", "", &edges(planned, target));
    }
}

/// The ragged ends of a partition in words.
fn edges(planned: &ResetTarget, target: &TargetReport) -> String {
    let name = &planned.partition;
    if planned.headBytes <= 0 && planned.tailBytes <= 0 {
        return format!("{name} has no ragged edges.");
    }
    let how = match target.overwrittenBytes {
        0 => "erased by commands of their own, without touching the neighbours",
        _ => "overwritten twice, with a pattern and then with the erased value",
    };
    format!(
        "{name} shares erase groups with its neighbours: the ragged edges ({} at its start, {} at \
         its end) were {how}.",
        bytes(planned.headBytes),
        bytes(planned.tailBytes)
    )
}

fn worth(html: &mut Html, report: &ResetReport) {
    html.element("h2", "", "What it is worth");
    let rows = [
        ("Read back", words::logical(report.logical.0)),
        ("Claimed by the device", words::physical(report.physical.0)),
        ("Worth", words::assurance(report.assurance.0)),
    ];
    html.facts(
        "",
        rows.map(|(name, (word, sentence))| (name, format!("{word}. {sentence}"))),
    );
    html.element(
        "p",
        "small",
        "All of it together: the partition, or the part of one, that is worth least decides.",
    );
    if !report.plan.notes.is_empty() {
        html.element("h3", "", "Know that");
        html.list(report.plan.notes.iter().map(String::as_str));
    }
}

fn verification(html: &mut Html, report: &ResetReport) {
    html.element("h2", "", "What was read back");
    html.table(
        &[
            ("Partition", ""),
            ("Canaries written", "number"),
            ("left", "number"),
            ("Samples read", "number"),
            ("wrong", "number"),
            ("Neighbouring sectors", "number"),
            ("changed", "number"),
        ],
        report.targets.iter().map(|target| {
            let counts = [
                target.canaries,
                target.canariesFound,
                target.samples,
                target.samplesWrong,
                target.neighbours,
                target.neighboursChanged,
            ];
            let counts = counts.iter().map(i32::to_string);
            let cells: Vec<String> = std::iter::once(target.partition.clone())
                .chain(counts)
                .collect();
            cells
        }),
    );
    html.element(
        "p",
        "small",
        "Canaries were written at the sampled positions before the erase: one that is left shows a \
         place that was not erased. Everything was read past all caches.",
    );
    if report.plan.verify.0 == Verify::Full as i32 {
        html.element("p", "", "Every sector of the range was read back.");
        return;
    }
    for target in &report.targets {
        let found = words::detection(target.detectionProbability);
        html.element("p", "", &format!("{}: {found}.", target.partition));
    }
}

fn commands(html: &mut Html, report: &ResetReport) {
    html.element("h2", "", "Commands sent to the card");
    for target in &report.targets {
        html.element("h3", "", &target.partition);
        command_table(html, &target.commands);
        if target.omittedCommands > 0 {
            let text = format!(
                "The first and the last {} are shown; {} more of the same kind were sent between them.",
                target.commands.len() / 2,
                target.omittedCommands
            );
            html.element("p", "", &text);
        }
    }
    if report.plan.sanitize {
        html.element("h3", "", "Sanitize");
        command_table(html, &report.sanitizeCommands);
    }
    html.element(
        "p",
        "small",
        "Answers are R1 words with the names of JEDEC JESD84. Those of CMD6 and CMD38 are what the \
         kernel left of them: since Linux 5.15.138 the bits of all its status polls together, whose \
         state means nothing.",
    );
}

fn command_table(html: &mut Html, commands: &[MmcCommand]) {
    if commands.is_empty() {
        html.element(
            "p",
            "",
            "None: the disk took reads, writes and discards alone.",
        );
        return;
    }
    html.table(
        &[
            ("Command", ""),
            ("Argument", "mono"),
            ("Meaning", ""),
            ("Answer", "mono"),
            ("Bits set", ""),
        ],
        commands.iter().map(|command| {
            let (name, meaning) = words::command(command);
            let (word, bits) = words::response(command);
            let argument = format!("{:#010x}", command.argument);
            [name, argument, meaning, word, bits]
        }),
    );
}

fn times(html: &mut Html, report: &ResetReport) {
    html.element("h2", "", "Time per step");
    html.within("section", "narrow", |html| {
        html.table(
            &[("Step", ""), ("Duration", "number")],
            report
                .steps
                .iter()
                .map(|step| [step.step.clone(), seconds(micros(step.micros))]),
        );
    });
}

fn by_hand(html: &mut Html) {
    html.within("section", "sign", |html| {
        html.element("h2", "", "To be filled in by hand");
        html.facts("", BY_HAND.map(|name| (name, String::new())));
    });
}
