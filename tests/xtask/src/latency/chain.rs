//! One card, cut again and again: each boot checks the cut before and writes until the next.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use emmc::server::Server;
use serde_json::Value;

use super::card::{self, Kind, Watch};
use super::plan::Cut;
use super::truth::{times, truth, Verdict};
use crate::powercut::Dice;
use crate::vm::cpio::Content;
use crate::vm::initramfs::Tree;
use crate::vm::machine::{Event, Machine};
use crate::vm::setup::Equipment;
use crate::vm::Mode;

/// The node that tells that the kernel has read the partition table.
const NODE: &str = "/dev/block/by-name/userdata";
/// The console is read so long after the card has lost its power: lines that were on their way.
const CONSOLE: Duration = Duration::from_millis(1500);
/// QEMU, killed, has let go of the card after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// How one cut ended.
#[derive(Debug)]
pub struct Finding {
    /// What was cut.
    pub cut: Cut,
    /// Acknowledgements that were captured.
    pub acknowledged: u64,
    /// What the medium says.
    pub truth: Verdict,
    /// What `check` says.
    pub told: Verdict,
    /// `check`'s exit status.
    pub exit: i64,
}

impl Finding {
    /// The verdict, the loss, the age and the exit status are right.
    pub fn right(&self) -> bool {
        let exit = i64::from(self.truth.name != "nothing lost");
        self.told == self.truth && self.exit == exit
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let show = |v: &Verdict| format!("{} (lost {:?}, age {:?} ns)", v.name, v.lost, v.age);
        let mut text = format!(
            "{}, {:?}, kept {:?}, {} acknowledged: {}",
            self.cut.kind.name(),
            self.cut.place,
            self.cut.kept,
            self.acknowledged,
            show(&self.truth)
        );
        if !self.right() {
            text += &format!("; check said {}, exit {}", show(&self.told), self.exit);
        }
        text
    }
}

/// The guest's root, the same for every boot.
pub fn tree(equipment: &Equipment) -> Result<Tree> {
    Tree::lean(equipment, Mode::Recovery, &[])
}

/// A card and its guests.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// What boots it.
    pub equipment: &'a Equipment,
    /// Its root.
    pub tree: &'a Tree,
    /// Tells the runs apart.
    pub name: &'a str,
    /// `check` is not told of the last acknowledgement, which the suite must find.
    pub forgetful: bool,
}

/// What a boot brought.
struct Boot {
    printed: Vec<String>,
    checked: Option<Value>,
    cut: bool,
}

/// A cut whose verdict is still to come.
struct Open {
    cut: Cut,
    truth: Verdict,
    lines: Vec<String>,
}

impl Chain<'_> {
    /// All cuts of one card; `told` hears of each.
    pub fn run(
        &self,
        kind: Kind,
        cuts: &[(usize, Cut)],
        seed: u64,
        told: &dyn Fn(usize, &Finding),
    ) -> Result<Vec<Finding>> {
        let directory = tempfile::Builder::new().prefix("blockd-card-").tempdir()?;
        let server = Server::start(kind.card()?, &directory.path().join("card"))?;
        let mut findings = Vec::new();
        let mut before = Vec::new();
        let mut open: Option<(usize, Open)> = None;
        for (n, cut) in cuts {
            let watch = Watch::new(cut.place, cut.kept, Dice(seed.wrapping_add(*n as u64)))?;
            let sent = watch.sent();
            server.with_card(|card| card.fail_by(Box::new(watch)));
            let way = match kind {
                Kind::Flushed => "flush",
                _ => "write",
            };
            let boot = self.boot(&server, way, open.as_ref().map(|(_, open)| open));
            let boot = boot.with_context(|| format!("cut {n}"))?;
            ensure!(boot.cut, "cut {n}: the power did not fail");
            if let Some((n, open)) = open.take() {
                findings.push(finding(open, boot.checked.as_ref())?);
                findings.iter().last().into_iter().for_each(|f| told(n, f));
            }
            ensure!(
                server.wait_disconnected(PATIENCE),
                "QEMU is dead and holds the card still"
            );
            let medium = server.with_card(|card| {
                card.mains_back();
                card::medium(card)
            })?;
            let sent = sent.lock().unwrap_or_else(|e| e.into_inner()).clone();
            let times = times(&boot.printed).with_context(|| format!("cut {n}"))?;
            let truth = truth(&medium, &sent, &before, &times)?;
            before.push(sent);
            let lines = boot.printed;
            let cut = *cut;
            open = Some((*n, Open { cut, truth, lines }));
        }
        if let Some((n, open)) = open {
            let boot = self.boot(&server, "none", Some(&open))?;
            findings.push(finding(open, boot.checked.as_ref())?);
            findings.iter().last().into_iter().for_each(|f| told(n, f));
        }
        server.stop();
        Ok(findings)
    }

    fn boot(&self, server: &Server, way: &str, open: Option<&Open>) -> Result<Boot> {
        let mut tree = self.tree.clone();
        if let Some(open) = open {
            let told = open.lines.len() - usize::from(self.forgetful);
            let text: String = open.lines[..told]
                .iter()
                .map(|line| format!("{line}\n"))
                .collect();
            tree.add("acks", 0o644, Content::File(text.into_bytes()));
        }
        let socket = server.socket();
        let mut machine = Machine::recovery(self.equipment, "latency", self.name, tree, socket)?;
        machine.parameters.extend([
            format!("blockd.wait={NODE}"),
            format!("blockd.latency={way}"),
        ]);
        let printed = RefCell::new(Vec::new());
        let checked = RefCell::new(None);
        let dark: Cell<Option<Instant>> = Cell::new(None);
        let cut = || {
            if !server.with_card(|card| card.mains_failed()) {
                return false;
            }
            let since = dark.get().unwrap_or_else(Instant::now);
            dark.set(Some(since));
            since.elapsed() >= CONSOLE
        };
        let outcome = machine.run_unless(&cut, |event| {
            if let Event::Line(line) = event {
                if let Some(text) = line["printed"].as_str() {
                    printed.borrow_mut().push(text.to_owned());
                }
                if line["checked"].is_object() {
                    *checked.borrow_mut() = Some(line["checked"].clone());
                }
            }
            Ok(())
        })?;
        Ok(Boot {
            printed: printed.into_inner(),
            checked: checked.into_inner(),
            cut: outcome.is_none(),
        })
    }
}

fn finding(open: Open, checked: Option<&Value>) -> Result<Finding> {
    let answer = checked.context("the check has not answered")?;
    Ok(Finding {
        acknowledged: open.lines.len() as u64,
        told: Verdict::told(answer)?,
        exit: answer["exit"].as_i64().context("no exit status")?,
        cut: open.cut,
        truth: open.truth,
    })
}
