//! A plan in words.

use super::Plan;
use crate::reset::request::Verify;
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
        let edges: u64 = self
            .targets
            .iter()
            .flat_map(|t| t.parts.edges())
            .map(|e| e.length.to_bytes().0)
            .sum();
        let mut steps = vec![
            format!("{}: open {names} exclusively", Step::Claim),
            format!("{}: read the facts again and compare", Step::Recheck),
            format!(
                "{}: write out and drop the caches of {names} and {}",
                Step::Flush,
                self.disk
            ),
            format!("{}: write {canaries} canaries", Step::Canaries),
        ];
        if edges != 0 {
            steps.push(format!(
                "{}: overwrite {edges} bytes at ragged edges, pattern then {:#04x}",
                Step::Edges,
                self.erased_value
            ));
        }
        for target in &self.targets {
            for chunk in &target.chunks {
                let [first, last, erase] = &chunk.commands;
                steps.push(format!(
                    "{}: {} by one MMC_IOC_MULTI_CMD: CMD35 {:#010x}, CMD36 {:#010x}, CMD38 \
                     {:#010x} ({}, at most {} s)",
                    Step::Erase,
                    target.partition.name,
                    first.argument,
                    last.argument,
                    erase.argument,
                    chunk.range.length.to_bytes(),
                    chunk.limit.as_secs()
                ));
            }
        }
        steps.push(format!("{}: flush the card's cache", Step::CardCache));
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
}
