//! The grammar of `cache`.

use blockd::cache::latency::acks::parse_seconds;
use blockd::cache::raw::Wanted;
use blockd::units::{parse_size, Bytes};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Verbs of `cache`.
#[derive(Debug, Subcommand)]
pub enum Cache {
    /// Tell whether what an fsync acknowledged survives a power cut, and why
    #[command(
        after_help = "Examples:\n  blockctl cache info\n  blockctl --connect local --json cache info mmcblk0\n\nVerdicts: safe, safe but slow, data at risk, cannot tell. The exit status does not tell them apart."
    )]
    Info {
        /// Kernel name (default: the only eMMC)
        #[arg(value_name = "DISK")]
        disk: Option<String>,
    },
    /// Measure what FUA and flushes cost, on a scratch file or a partition
    #[command(
        after_help = "Examples:\n  blockctl cache fua /data/local/tmp\n  blockctl --json cache fua --size 256M --runs 5 /data\n  blockctl cache fua --partition cache --yes\n\nThe scratch file has no name and is gone at every end. A partition is overwritten: it must be one\nthat `reset` may erase, and is measured by this process (root), whatever --connect says.\nThe kernel and the card keep their settings: there is no switch for FUA in mainline kernels."
    )]
    Fua(Fua),
    /// What a power cut loses: how old acknowledged writes are that a volatile cache drops
    #[command(subcommand)]
    Latency(Latency),
}

/// Verbs of `cache latency`.
#[derive(Debug, Subcommand)]
pub enum Latency {
    /// Overwrite a partition until the power fails; print each acknowledged record
    #[command(
        after_help = "Examples:\n  adb shell blockctl cache latency write --yes cache > acks      (then cut the power)\n  blockctl cache latency write --yes --flush --records 1000 cache\n\nThe lines must be kept off the device: after the cut `check` compares with them.\nEverything on the partition is lost. No service is asked."
    )]
    Write(LatencyWrite),
    /// After the cut: compare what is there with what was acknowledged
    #[command(
        after_help = "Examples:\n  blockctl cache latency check --acks acks cache\n  blockctl cache latency check --last-seq 1234 --last-time 12.345678901 cache\n\nExit status: 0 nothing lost, 1 lost, torn or stale, 2 cannot tell."
    )]
    Check(LatencyCheck),
}

/// What to write, and how.
#[derive(Args, Debug)]
pub struct LatencyWrite {
    /// Bytes that are overwritten beside the record (default: 26/32 of the card's cache, or 26 MiB)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub hot_size: Option<Bytes>,
    /// Writes of 4 KiB there between two records
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub hot_writes: u32,
    /// Flush each record before it is acknowledged
    #[arg(long)]
    pub flush: bool,
    /// End after so many records (default: never)
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Milliseconds between two records
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub pause: u64,
    /// How the partition is guarded.
    #[command(flatten)]
    pub guards: Guards,
    /// GPT name
    #[arg(value_name = "NAME")]
    pub partition: String,
}

/// Where to look, and what is known.
#[derive(Args, Debug)]
pub struct LatencyCheck {
    /// The captured lines of `write`; - = standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["last_seq", "last_time"])]
    pub acks: Option<PathBuf>,
    /// The last acknowledged record
    #[arg(long, value_name = "N")]
    pub last_seq: Option<u64>,
    /// Its time, as printed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "last_seq")]
    pub last_time: Option<Duration>,
    /// Kernel name of the disk (default: where the partition is)
    #[arg(long, value_name = "DISK")]
    pub disk: Option<String>,
    /// GPT name
    #[arg(value_name = "NAME")]
    pub partition: String,
}

/// What to measure.
#[derive(Args, Debug)]
pub struct Fua {
    /// Bytes that are written and read
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub size: Bytes,
    /// Runs of each pattern and path
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    pub runs: u32,
    /// Block of the random patterns
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    pub block_size: Bytes,
    /// Block of the sequential patterns
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512K")]
    pub seq_block_size: Bytes,
    /// Operations of a random run (default: 1000, or as many as there are blocks)
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub operations: u32,
    /// Seconds that one operation may take before the device counts as stuck
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub limit: u64,
    /// Overwrite this partition instead of a scratch file
    #[arg(short, long, value_name = "NAME", conflicts_with = "place")]
    pub partition: Option<String>,
    /// How the partition is guarded.
    #[command(flatten)]
    pub guards: Guards,
    /// Folder for the scratch file, or a file in it that is not there yet (default: here)
    #[arg(value_name = "PLACE")]
    pub place: Option<PathBuf>,
}

/// What must be said before a partition is overwritten.
#[derive(Args, Debug)]
pub struct Guards {
    /// Kernel name of the disk, e.g. mmcblk0 (default: where the partition is)
    #[arg(long, value_name = "DISK")]
    pub disk: Option<String>,
    /// No system update waits for its merge (where misc cannot tell)
    #[arg(long)]
    pub merges_done: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

impl Guards {
    /// The partition `name` with these guards.
    pub fn wanted(&self, name: &str) -> Wanted {
        Wanted {
            partition: name.to_owned(),
            disk: self.disk.clone(),
            merges_done: self.merges_done,
        }
    }
}
