//! A plan in words.

use super::{Act, Choice, Chunk, MarkerPlan, Plan, TargetPlan};
use crate::device::Command;
use crate::reset::ends::ends;
use crate::reset::marker::Found;
use crate::reset::request::{Marker, Verify};
use crate::reset::step::Step;

impl Plan {
    /// The steps in words, as `--dry-run` prints them.
    pub fn steps(&self) -> Vec<String> {
        let names: Vec<&str> = self
            .targets
            .iter()
            .map(|t| t.partition.name.as_str())
            .collect();
        let names = names.join(", ");
        let canaries: usize = self.targets.iter().map(|t| t.samples.len()).sum();
        let mut steps = vec![
            format!("{}: open {names} exclusively", Step::Claim),
            format!("{}: read the facts again and compare", Step::Recheck),
            format!(
                "{}: write out and drop the caches of {names} and {}",
                Step::Flush,
                self.disk
            ),
        ];
        steps.extend(self.marker.step());
        steps.push(format!("{}: write {canaries} canaries", Step::Canaries));
        for (step, acts) in [
            (
                Step::Edges,
                TargetPlan::edge_acts as fn(&TargetPlan) -> &[Act],
            ),
            (Step::Erase, TargetPlan::middle_acts),
        ] {
            for target in &self.targets {
                let name = &target.partition.name;
                let line = |act| format!("{step}: {name}: {}", self.act(act));
                let (first, omitted, last) = ends(acts(target));
                steps.extend(first.iter().map(line));
                if omitted > 0 {
                    steps.push(format!("{step}: {name}: {omitted} more of that kind"));
                }
                steps.extend(last.iter().map(line));
            }
        }
        if let Some(sanitize) = &self.sanitize {
            steps.push(format!(
                "{}: CMD6 {:#010x}, SANITIZE_START (at most {} s)",
                Step::Sanitize,
                sanitize.command.argument,
                sanitize.limit.as_secs()
            ));
        }
        if self.rca.is_some() {
            steps.push(format!("{}: flush the card's cache", Step::CardCache));
        }
        steps.push(format!("{}: drop the caches again", Step::DropCaches));
        steps.push(format!(
            "{}: read {} back directly, the edges and the neighbouring sectors too",
            Step::Verify,
            match self.verify {
                Verify::Samples => "every canary's place",
                Verify::Full => "every sector",
            }
        ));
        steps
    }

    fn act(&self, act: &Act) -> String {
        let bytes = act.range().length.to_bytes();
        match act {
            Act::Commands(chunk) => {
                format!("{} by one MMC_IOC_MULTI_CMD: {}", bytes, chunk.words())
            }
            Act::Discard { secure: true, .. } => {
                format!("{bytes} by BLKSECDISCARD, in commands of the kernel's choice")
            }
            Act::Discard { secure: false, .. } => {
                format!("{bytes} by BLKDISCARD, in commands of the kernel's choice")
            }
            Act::Overwrite(_) => {
                format!("overwrite {bytes}, pattern then {:#04x}", self.erased_value)
            }
        }
    }
}

impl TargetPlan {
    fn edge_acts(&self) -> &[Act] {
        &self.edges
    }

    fn middle_acts(&self) -> &[Act] {
        &self.middle
    }
}

impl Chunk {
    fn words(&self) -> String {
        let commands: Vec<String> = self.commands.iter().map(Command::to_string).collect();
        format!(
            "{} (at most {} s)",
            commands.join(", "),
            self.limit.as_secs()
        )
    }
}

impl MarkerPlan {
    fn step(&self) -> Option<String> {
        let place = match self.place {
            Marker::None => return None,
            Marker::Misc => format!("misc ({})", self.node),
            Marker::File => "the marker file".to_owned(),
        };
        Some(match &self.found {
            Some(Found::ForeignWipe { .. }) => format!(
                "{}: keep recovery's own --wipe_data in {place}",
                Step::Marker
            ),
            _ => format!(
                "{}: write attempt {} into {place} and read it back",
                Step::Marker,
                self.attempt
            ),
        })
    }
}

/// What the reader of a plan must know.
pub(super) fn add_notes(
    notes: &mut Vec<String>,
    choice: &Choice,
    marker: &MarkerPlan,
    has_edges: bool,
    is_emmc: bool,
) {
    match (&marker.place, &marker.found) {
        (Marker::None, _) => notes.push(
            "no restart marker: a reset that is cut by a power loss is not resumed".to_owned(),
        ),
        (_, Some(Found::Ours { .. })) => notes.push(format!(
            "an earlier attempt was cut; this is attempt {}",
            marker.attempt
        )),
        (_, Some(Found::ForeignWipe { .. })) => notes.push(
            "recovery was told to wipe already; attempts are not counted, and recovery clears its \
             message itself"
                .to_owned(),
        ),
        _ => {}
    }
    if is_emmc {
        notes.push(
            "purge and clear are the words of NIST SP 800-88 for what the card claims; its inside \
             cannot be seen"
                .to_owned(),
        );
        if !choice.sanitize {
            notes.push(
                "the card has no sanitize: pages unmapped by earlier discards are not reached"
                    .to_owned(),
            );
        }
    }
    if has_edges && choice.edges == super::Way::Overwrite {
        notes.push(
            "the ragged edges are overwritten twice; older copies inside the card are not reached \
             by that"
                .to_owned(),
        );
    }
}
