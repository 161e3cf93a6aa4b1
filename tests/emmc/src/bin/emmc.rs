//! Serves an eMMC card to QEMU's `vfio-user-pci` until SIGINT or SIGTERM.
//! SIGUSR1 cuts the card's power, SIGUSR2 prints a JSON report on stdout.
use clap::{Parser, ValueEnum};
use emmc::card::{Card, Cid, Config, Csd, ExtCsd, Fault, Fields, Lies, Timing};
use emmc::report::Report;
use emmc::sdhci::Sdhci;
use emmc::server::Server;
use emmc::store::{FileStore, MemStore, NamedRange, Pattern, Store, SECTOR};
use nix::sys::signal::{SigSet, Signal};
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

/// eMMC card for QEMU's vfio-user-pci.
#[derive(Parser)]
struct Arguments {
    /// Socket to create.
    #[arg(long)]
    socket: PathBuf,
    /// Capacity in bytes, with K, M or G; replaces SEC_COUNT.
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Medium in this (sparse) file; created if missing.
    #[arg(long, conflicts_with = "pattern")]
    image: Option<PathBuf>,
    /// Medium in RAM, full of the pattern of this seed. Without either: in RAM, blank.
    #[arg(long)]
    pattern: Option<u64>,
    /// EXT_CSD from this file of 512 bytes.
    #[arg(long, conflicts_with = "fields")]
    ext_csd: Option<PathBuf>,
    /// EXT_CSD fields as JSON, for instance {"erased_mem_cont":1}.
    #[arg(long, value_parser = json::<Fields>)]
    fields: Option<Fields>,
    /// CID fields as JSON, for instance {"manfid":21,"name":"MAG4FA"}.
    #[arg(long, value_parser = json::<Cid>)]
    cid: Option<Cid>,
    /// CSD fields as JSON.
    #[arg(long, value_parser = json::<Csd>)]
    csd: Option<Csd>,
    /// Delays.
    #[arg(long, value_enum, default_value = "zero")]
    timing: Preset,
    /// Delays as JSON in microseconds, instead of --timing.
    #[arg(long, value_parser = json::<Timing>)]
    timing_us: Option<Timing>,
    /// A fault as JSON: {"command":38,"nth":1,"effect":{"response":524288}}.
    #[arg(long, value_parser = json::<Fault>)]
    fault: Vec<Fault>,
    /// Broken variant as JSON: {"skip_every":7}.
    #[arg(long, value_parser = json::<Lies>)]
    lies: Option<Lies>,
    /// The controller never times a busy card out.
    #[arg(long)]
    no_hardware_timeout: bool,
    /// A range for the scan, NAME:START:SECTORS.
    #[arg(long, value_parser = range)]
    range: Vec<NamedRange>,
    /// Print the command log with the report.
    #[arg(long)]
    entries: bool,
    /// Log on stderr; twice: every command.
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    /// No delays.
    Zero,
    /// 22 GiB of secure erase take 20 minutes in groups, 1.4 s at once.
    Seed,
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let n: u64 = digits.parse().map_err(|_| format!("{text}: no size"))?;
    let bytes = n.checked_mul(1 << shift).ok_or("too large")?;
    if bytes.is_multiple_of(SECTOR as u64) {
        Ok(bytes)
    } else {
        Err(format!("{text}: not a multiple of {SECTOR}"))
    }
}

fn range(text: &str) -> Result<NamedRange, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [name, start, sectors] = parts[..] else {
        return Err("expected NAME:START:SECTORS".to_owned());
    };
    let number = |s: &str| s.parse().map_err(|_| format!("{s}: no number"));
    Ok(NamedRange::new(name, number(start)?, number(sectors)?))
}

fn card(a: &Arguments) -> Result<Card, Box<dyn Error>> {
    let mut ext = match &a.ext_csd {
        Some(path) => ExtCsd::load(path)?,
        None => a.fields.unwrap_or_default().into(),
    };
    if let Some(bytes) = a.size {
        ext.set_sectors(u32::try_from(bytes / SECTOR as u64)?);
    }
    let sectors = ext.sectors();
    let store: Box<dyn Store> = match (&a.image, a.pattern) {
        (Some(path), _) => Box::new(FileStore::open(path, sectors)?),
        (None, Some(seed)) => Box::new(MemStore::with_pattern(sectors, Pattern { seed })),
        (None, None) => Box::new(MemStore::new(sectors)),
    };
    let preset = match a.timing {
        Preset::Zero => Timing::zero(),
        Preset::Seed => Timing::seed_card(),
    };
    let config = Config {
        cid: a.cid.clone().unwrap_or_default(),
        csd: a.csd.unwrap_or_default(),
        timing: a.timing_us.unwrap_or(preset),
        faults: a.fault.clone(),
        lies: a.lies.clone().unwrap_or_default(),
        ..Config::from(ext)
    };
    Ok(Card::new(config, store)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    start_log(arguments.verbose)?;
    // blocked before any thread starts, so that only sigwait sees them
    let signals: SigSet = [
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGINT,
        Signal::SIGTERM,
    ]
    .into_iter()
    .collect();
    signals.thread_block()?;
    let mut host = Sdhci::new(card(&arguments)?);
    host.hardware_timeout = !arguments.no_hardware_timeout;
    let server = Server::start_with(host, &arguments.socket)?;
    log::info!("listening on {}", arguments.socket.display());
    loop {
        match signals.wait()? {
            Signal::SIGUSR1 => server.power_cut(),
            Signal::SIGUSR2 => {
                let report =
                    server.with_card(|c| Report::new(c, &arguments.range, arguments.entries))?;
                let mut out = std::io::stdout().lock();
                serde_json::to_writer(&mut out, &report)?;
                writeln!(out)?;
                out.flush()?;
            }
            _ => break,
        }
    }
    server.stop();
    Ok(())
}

/// Log lines on stderr.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }
    fn log(&self, record: &log::Record) {
        eprintln!("[{}] {}", record.level(), record.args());
    }
    fn flush(&self) {}
}

fn start_log(verbose: u8) -> Result<(), log::SetLoggerError> {
    log::set_logger(&Stderr)?;
    log::set_max_level(match verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    });
    Ok(())
}
