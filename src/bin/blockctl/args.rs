//! The grammar of the command line.

use crate::cache::args::Cache;
use blockd::client::Place;
use blockd::reset::request::{Assurance, Marker, Method, Verify};
use blockd::units::{parse_size, Bytes};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit status: 0 done, 1 failed or wrong usage, 2 not supported by this device.
Sizes: bytes, or with K, M, G, T (KiB …, powers of 1024) or KB, MB, GB, TB (powers of 1000).";

/// Block device jobs: factory reset, images, diagnostics.
#[derive(Debug, Parser)]
#[command(name = "blockctl", version = blockd::VERSION, after_help = EXIT_CODES)]
pub struct Cli {
    /// Where the service is: binder, unix:PATH, or local (the same code in this process)
    #[arg(long, global = true, default_value = "binder", value_name = "PLACE")]
    pub connect: Place,
    /// Seconds to wait for the service to be there
    #[arg(long, global = true, default_value_t = 0, value_name = "SECONDS")]
    pub wait: u64,
    /// With --connect local: the folder that keeps the last reset's report
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// With --connect local: the folder that APEXes are mounted below (default: /apex)
    #[arg(long, global = true, value_name = "DIR")]
    pub apex_root: Option<PathBuf>,
    /// Print one line of JSON on stdout, errors too
    #[arg(long, global = true)]
    pub json: bool,
    /// How progress is shown on stderr; auto = a bar on a terminal, nothing elsewhere
    #[arg(long, global = true, value_enum, default_value = "auto")]
    pub progress: Progress,
    /// Say less
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// What to work on.
    #[command(subcommand)]
    pub noun: Noun,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// A bar on a terminal, nothing elsewhere.
    Auto,
    /// A bar.
    Bar,
    /// JSON lines.
    Json,
    /// Nothing.
    None,
}

/// What to work on.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Erase partitions so that nothing comes back
    #[command(subcommand)]
    Reset(Reset),
    /// Block devices of APEX payloads and other images
    #[command(subcommand)]
    Image(Image),
    /// APEX files
    #[command(subcommand)]
    Apex(Apex),
    /// What is known of an eMMC
    #[command(subcommand)]
    Card(Card),
    /// Volatile caches: what they cost, what they lose
    #[command(subcommand)]
    Cache(Cache),
    /// What this kernel, card and build allow
    #[command(
        after_help = "Examples:\n  blockctl doctor\n  blockctl --connect local --json doctor"
    )]
    Doctor,
}

/// Verbs of `reset`.
#[derive(Debug, Subcommand)]
pub enum Reset {
    /// Show what `run` would do; touches nothing
    #[command(
        after_help = "Examples:\n  blockctl reset plan userdata\n  blockctl reset plan --method secure-trim userdata metadata"
    )]
    Plan(ResetArguments),
    /// Erase, verify and report
    #[command(
        after_help = "Examples:\n  blockctl reset run userdata\n  blockctl reset run --html certificate.html userdata\n  blockctl --json reset run --yes --marker none userdata\n  blockctl reset run --dry-run --min-assurance purge userdata"
    )]
    Run {
        /// The same as for `plan`.
        #[command(flatten)]
        arguments: ResetArguments,
        /// Show the plan and stop
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Write the report as a page to be filed, too: an HTML file that is not there yet, or -
        #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
        html: Option<PathBuf>,
    },
    /// Show where the current or last reset stands
    Status,
    /// Stop a running reset between two commands
    Cancel,
    /// Show the report of the last reset that destroyed anything
    #[command(
        after_help = "Examples:\n  blockctl reset report\n  blockctl reset report --html certificate.html"
    )]
    Report {
        /// Write it as a page to be filed, too: an HTML file that is not there yet, or -
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Remove the restart marker, after formatting
    Finish {
        /// Where the marker lies: misc, or a file
        #[arg(long, default_value = "misc", value_name = "misc|FILE")]
        marker: String,
        /// Token of the report
        token: String,
    },
}

/// What to erase, and how.
#[derive(Args, Debug)]
pub struct ResetArguments {
    /// Kernel name of the disk, e.g. mmcblk0 (default: where the partitions are)
    #[arg(long, value_name = "DISK")]
    pub disk: Option<String>,
    /// First byte inside the partition, a multiple of 512
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub offset: Bytes,
    /// Bytes to erase, a multiple of 512 (default: to the end)
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    pub length: Option<Bytes>,
    /// auto, secure-erase, secure-trim, erase, trim, overwrite
    #[arg(short, long, value_parser = method, default_value = "auto")]
    pub method: Method,
    /// purge or clear: below it nothing is touched
    #[arg(long, value_parser = assurance, default_value = "none", value_name = "LEVEL")]
    pub min_assurance: Assurance,
    /// Largest range of one command sequence; 0 = one for all
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub max_chunk: Bytes,
    /// samples or full
    #[arg(long, value_parser = verify, default_value = "samples")]
    pub verify: Verify,
    /// Where the restart marker lies: misc, a file, or none
    #[arg(long, default_value = "misc", value_name = "misc|FILE|none")]
    pub marker: String,
    /// No system update waits for its merge (where misc cannot tell)
    #[arg(long)]
    pub merges_done: bool,
    /// Send what the kernel's lists of faulty cards forbid; the card may not survive it
    #[arg(long)]
    pub ignore_quirks: bool,
    /// GPT names, e.g. userdata
    #[arg(required = true, value_name = "NAME")]
    pub partitions: Vec<String>,
}

impl ResetArguments {
    /// The marker that was asked for; anything but the two words is a file.
    pub fn marker(&self) -> Marker {
        Marker::from_name(&self.marker)
            .filter(|marker| *marker != Marker::File)
            .unwrap_or(Marker::File)
    }
}

macro_rules! by_name {
    ($function:ident, $type:ty) => {
        fn $function(text: &str) -> Result<$type, String> {
            <$type>::from_name(text).ok_or_else(|| {
                let names: Vec<&str> = <$type>::ALL.iter().map(|v| v.name()).collect();
                format!("use one of {}", names.join(", "))
            })
        }
    };
}

by_name!(method, Method);
by_name!(assurance, Assurance);
by_name!(verify, Verify);

/// Verbs of `image`.
#[derive(Debug, Subcommand)]
pub enum Image {
    /// Attach files to loop devices, block size set before the file is bound; print the nodes
    #[command(
        after_help = "Examples:\n  blockctl image attach foo.apex bar.apex\n  blockctl image attach --offset 4096 --block-size 4096 disk.img\n  blockctl image attach --hold foo.apex   (until it is interrupted)"
    )]
    Attach {
        /// Logical block size in bytes: 512, 1024, 2048 or 4096
        #[arg(short, long, default_value_t = 4096, value_name = "N")]
        block_size: u32,
        /// First byte of the window (default: the payload of the APEX)
        #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
        offset: Option<Bytes>,
        /// Bytes of the window (default: to its end)
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        sizelimit: Option<Bytes>,
        /// Read-ahead (default: the kernel's)
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        read_ahead: Option<Bytes>,
        /// Allow writes; needs an offset
        #[arg(long)]
        read_write: bool,
        /// Let the devices go when this command ends; it ends with end of input or a signal
        #[arg(long)]
        hold: bool,
        /// Files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Detach devices that blockd has made
    Detach {
        /// Nodes, e.g. /dev/block/loop7, loop7 or 7
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// List the devices that blockd has made
    List {
        /// Those of others too
        #[arg(short, long)]
        all: bool,
    },
}

/// Verbs of `apex`.
#[derive(Debug, Subcommand)]
pub enum Apex {
    /// Show what is in APEX files and verify their signatures; needs no service
    #[command(
        after_help = "Examples:\n  blockctl apex info foo.apex\n  blockctl apex info --key com.example.foo.avbpubkey foo.apex\n  blockctl --json apex info *.apex"
    )]
    Info {
        /// The trusted key, as an AVB blob (`avbtool extract_public_key`, or an apex_pubkey);
        /// without it the signer is shown, not judged
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Verify APEX files and mount them, each at its name; print where
    #[command(
        after_help = "Examples:\n  blockctl apex activate --key com.example.foo.avbpubkey foo.apex\n  blockctl --connect local apex activate --apex-root /run/apex foo.apex\n  blockctl apex activate --hash-trees /data/apex/hashtree foo.apex"
    )]
    Activate {
        /// The trusted key, as an AVB blob; without it the key in the file is taken, with a warning
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Folder for hash trees that are built where a file does not bring its own
        #[arg(long, value_name = "DIR")]
        hash_trees: Option<PathBuf>,
        /// Do not check what is read later on
        #[arg(long)]
        no_verity: bool,
        /// Files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Unmount APEXes that blockd has activated, and remove their devices
    Deactivate {
        /// Package names, e.g. com.example.foo
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// List the APEXes that blockd has activated
    List,
}

/// Verbs of `card`.
#[derive(Debug, Subcommand)]
pub enum Card {
    /// Show what is known of a card: identity, health, and every field of its EXT_CSD register
    #[command(
        after_help = "Examples:\n  blockctl card info\n  blockctl --connect local card info mmcblk0\n  blockctl card info --raw > card.txt\n  blockctl card info --from card.txt        (on any machine, without the card)"
    )]
    Info {
        /// The 512 bytes of the register alone, in hexadecimal
        #[arg(long)]
        raw: bool,
        /// A saved register instead of a card: 512 bytes, or hexadecimal text as of --raw or debugfs
        #[arg(long, value_name = "FILE", conflicts_with = "disk")]
        from: Option<PathBuf>,
        /// Kernel name (default: the only eMMC)
        #[arg(value_name = "DISK")]
        disk: Option<String>,
    },
}
