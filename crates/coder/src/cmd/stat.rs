//! `coder stat`: processors, memory and disk in use. Templates call it in metadata scripts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use coder_agent::resources::{self, Usage};
use serde::Serialize;

use crate::terminal::output::Printer;

/// How long the use of processors is observed.
const SAMPLE_TIME: Duration = Duration::from_millis(100);
const CGROUP: &str = "/sys/fs/cgroup";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: StatFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StatFormat {
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Line {
    Text,
    Json,
}

/// One of the values.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show the use of processors, in cores.
    Cpu {
        /// Show the values of the machine, even inside a container.
        #[arg(long)]
        host: bool,
        /// Output format.
        #[arg(short, long, value_enum, default_value = "text", value_name = "FORMAT")]
        output: Line,
    },
    /// Show the use of memory.
    Mem {
        /// Show the values of the machine, even inside a container.
        #[arg(long)]
        host: bool,
        /// Unit of the numbers.
        #[arg(long, value_enum, default_value = "Gi", value_name = "PREFIX")]
        prefix: Prefix,
        /// Output format.
        #[arg(short, long, value_enum, default_value = "text", value_name = "FORMAT")]
        output: Line,
    },
    /// Show the use of a disk.
    Disk {
        /// Path on the file system.
        #[arg(long, default_value = "/", value_name = "PATH")]
        path: PathBuf,
        /// Unit of the numbers.
        #[arg(long, value_enum, default_value = "Gi", value_name = "PREFIX")]
        prefix: Prefix,
        /// Output format.
        #[arg(short, long, value_enum, default_value = "text", value_name = "FORMAT")]
        output: Line,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Prefix {
    Ki,
    Mi,
    Gi,
    Ti,
}

impl Prefix {
    const fn bytes(self) -> f64 {
        match self {
            Self::Ki => 1024.0,
            Self::Mi => 1_048_576.0,
            Self::Gi => 1_073_741_824.0,
            Self::Ti => 1_099_511_627_776.0,
        }
    }
}

/// A value with its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Stat {
    used: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    unit: String,
}

#[derive(Debug, Serialize)]
struct All {
    host_cpu: Option<Stat>,
    host_memory: Option<Stat>,
    home_disk: Option<Stat>,
    container_cpu: Option<Stat>,
    container_memory: Option<Stat>,
}

impl Stat {
    fn bytes(usage: Usage, prefix: Prefix) -> Self {
        let scaled = |bytes: u64| round(bytes as f64 / prefix.bytes());
        Self { used: scaled(usage.used), total: Some(scaled(usage.total)), unit: format!("{prefix:?}B") }
    }

    fn text(&self) -> String {
        match self.total {
            Some(total) => {
                let percent = if total > 0.0 { self.used / total * 100.0 } else { 0.0 };
                format!("{}/{} {} ({percent:.0}%)", self.used, total, self.unit)
            }
            None => format!("{} {}", self.used, self.unit),
        }
    }
}

fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let printer = Printer::detect(false);
    let show = |stat: Stat, line: Line| -> anyhow::Result<()> {
        printer.data(&match line {
            Line::Text => stat.text(),
            Line::Json => serde_json::to_string_pretty(&stat)?,
        });
        Ok(())
    };
    match &args.what {
        Some(What::Cpu { host, output }) => {
            let container = if *host { None } else { container_cpu(Path::new(CGROUP)) };
            let stat =
                container.or_else(host_cpu).context("the use of processors cannot be read from /proc")?;
            show(stat, *output)
        }
        Some(What::Mem { host, prefix, output }) => {
            let usage = if *host { resources::host_memory() } else { resources::memory() };
            show(Stat::bytes(usage.context("the use of memory cannot be read from /proc")?, *prefix), *output)
        }
        Some(What::Disk { path, prefix, output }) => {
            let usage = resources::disk(path).with_context(|| format!("look up {}", path.display()))?;
            show(Stat::bytes(usage, *prefix), *output)
        }
        None => all(&printer, args.output),
    }
}

fn all(printer: &Printer, format: StatFormat) -> anyhow::Result<()> {
    let in_gib = |usage: Usage| Stat::bytes(usage, Prefix::Gi);
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"));
    let all = All {
        host_cpu: host_cpu(),
        host_memory: resources::host_memory().map(in_gib),
        home_disk: resources::disk(&home).or_else(|_| resources::disk(Path::new("/"))).ok().map(in_gib),
        container_cpu: container_cpu(Path::new(CGROUP)),
        container_memory: resources::container_memory(Path::new(CGROUP)).map(in_gib),
    };
    if format == StatFormat::Json {
        printer.json(&[all])?;
        return Ok(());
    }
    let rows = [
        ("HOST CPU", &all.host_cpu),
        ("HOST MEMORY", &all.host_memory),
        ("HOME DISK", &all.home_disk),
        ("CONTAINER CPU", &all.container_cpu),
        ("CONTAINER MEMORY", &all.container_memory),
    ];
    for (name, stat) in rows {
        if let Some(stat) = stat {
            printer.data(&format!("{name:<18}{}", stat.text()));
        }
    }
    Ok(())
}

/// The use of the machine's processors.
fn host_cpu() -> Option<Stat> {
    let read = || read_cpu(&std::fs::read_to_string("/proc/stat").ok()?);
    let (busy, all) = read()?;
    std::thread::sleep(SAMPLE_TIME);
    let (busy, all) = {
        let (later_busy, later_all) = read()?;
        (later_busy.saturating_sub(busy), later_all.saturating_sub(all))
    };
    let cores = std::thread::available_parallelism().ok()?.get() as f64;
    let used = if all == 0 { 0.0 } else { busy as f64 / all as f64 * cores };
    Some(Stat { used: round(used), total: Some(cores), unit: "cores".to_owned() })
}

/// Ticks in use, and all ticks.
fn read_cpu(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
    // user nice system idle iowait irq softirq steal; guests are counted as users already.
    let all: u64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or(0);
    Some((all.saturating_sub(idle), all))
}

/// The use of the container's processors; none outside of one.
fn container_cpu(root: &Path) -> Option<Stat> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let used = || {
        let text = read("cpu.stat")?;
        text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())
    };
    // The root of the hierarchy has no such file: this is not a container.
    let limit = read("cpu.max")?;
    let (began, before) = (Instant::now(), used()?);
    std::thread::sleep(SAMPLE_TIME);
    let micros = used()?.saturating_sub(before) as f64;
    let cores = round(micros / began.elapsed().as_micros() as f64);
    Some(Stat { used: cores, total: read_limit(&limit), unit: "cores".to_owned() })
}

/// Cores that a container may use.
fn read_limit(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let period: f64 = period.parse().ok().filter(|period| *period > 0.0)?;
    Some(round(quota.parse::<f64>().ok()? / period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_their_part() {
        let usage = Usage { used: 3 << 29, total: 4 << 30 };
        assert_eq!(Stat::bytes(usage, Prefix::Gi).text(), "1.5/4 GiB (38%)");
        assert_eq!(Stat::bytes(usage, Prefix::Mi).text(), "1536/4096 MiB (38%)");
        assert_eq!(Stat { used: 0.2, total: None, unit: "cores".to_owned() }.text(), "0.2 cores");
    }

    #[test]
    fn ticks_and_limits_are_read() {
        assert_eq!(read_cpu("cpu  10 0 5 80 5 0 0 0 9 9\ncpu0 1 1\n"), Some((15, 100)));
        assert_eq!(read_cpu("nothing"), None);
        assert_eq!(read_limit("150000 100000\n"), Some(1.5));
        assert_eq!(read_limit("max 100000\n"), None);
    }

    #[test]
    fn container_without_hierarchy_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert!(container_cpu(root.path()).is_none());
        std::fs::write(root.path().join("cpu.max"), "200000 100000\n").unwrap();
        std::fs::write(root.path().join("cpu.stat"), "usage_usec 5\n").unwrap();
        let stat = container_cpu(root.path()).unwrap();
        assert_eq!((stat.used, stat.total), (0.0, Some(2.0)));
    }
}
