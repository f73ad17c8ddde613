//! Measures the figures of `docs/performance.md` on the release binary. `cargo xtask bench` builds it and runs this.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a measuring tool prints to the terminal")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

mod agent;
mod bare;
mod build;
mod idle;
mod load;
mod operator;
mod process;
mod report;
mod scale;
mod slots;
mod start;

use report::Row;

type Measurement = fn(&Setup) -> Result<Vec<Row>>;

const MEASUREMENTS: &[(&str, Measurement)] = &[
    ("version", start::version),
    ("start", start::server),
    ("idle", idle::memory),
    ("import", load::imports),
    ("builds", load::builds),
    ("scale", scale::scale),
    ("build", build::against_bare_terraform),
    ("module", build::with_module),
    ("slots", slots::at_once),
    ("operator", operator::pools),
    ("agent", agent::agent),
    ("throughput", agent::throughput),
    ("terminal", agent::terminal),
    ("crowd", agent::crowd),
    ("sessions", agent::sessions),
];

/// What every measurement needs.
pub(crate) struct Setup {
    /// The binary under test.
    coder: PathBuf,
    /// Whether there is a Postgres to measure on.
    has_postgres: bool,
    /// Where things that take long to make are kept between runs.
    cache: PathBuf,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let coder = arguments.next().context("usage: coder-benches BINARY CACHE [NAME…]")?;
    let cache = PathBuf::from(arguments.next().context("usage: coder-benches BINARY CACHE [NAME…]")?);
    let wanted: Vec<String> = arguments.collect();
    let known = |name: &String| MEASUREMENTS.iter().any(|(known, _)| known == name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<_> = MEASUREMENTS.iter().map(|(name, _)| *name).collect();
        bail!("unknown measurement {unknown:?}, choose from: {}", names.join(", "));
    }
    std::fs::create_dir_all(&cache)?;
    let setup = Setup {
        coder: coder.into(),
        has_postgres: std::env::var_os(coder_store::testing::URL_VARIABLE).is_some(),
        cache,
    };
    let mut rows = Vec::new();
    for (name, measure) in MEASUREMENTS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            eprintln!("measuring: {name}");
            rows.extend(measure(&setup).with_context(|| format!("measuring {name}"))?);
        }
    }
    println!("{}", report::table(&rows));
    Ok(())
}
