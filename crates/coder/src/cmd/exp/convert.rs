//! Converts Terraform's output into provisioner resources: `coder exp terraform convert`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use coder_provisioner::{TextError, convert_text};

use crate::terminal::output::Printer;

/// Longest text that is read.
const MAX_INPUT_BYTES: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with what `terraform show -json` prints about the plan or the state; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
    /// File with what `terraform graph -type=plan` prints; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,
    /// What the JSON file describes: the plan or the state.
    #[arg(long, value_name = "KIND")]
    source: InputKind,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum InputKind {
    /// A saved plan.
    Plan,
    /// A state.
    State,
}

impl From<InputKind> for coder_provisioner::TextSource {
    fn from(source: InputKind) -> Self {
        match source {
            InputKind::Plan => Self::Plan,
            InputKind::State => Self::State,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        !(is_stdin(&args.json) && is_stdin(&args.graph)),
        "only one of --json and --graph can be standard input"
    );
    let shown = read(&args.json)?;
    let graph = String::from_utf8(read(&args.graph)?).context("the graph is not UTF-8 text")?;
    let printer = Printer::detect(false);
    match convert_text(args.source.into(), &shown, &graph) {
        Ok(value) => {
            printer.json(&value)?;
            Ok(())
        }
        Err(error) => {
            // A violated rule is a result too, and its text is the error of a job.
            if let TextError::Template(text) = &error {
                printer.data(&serde_json::to_string(text)?);
            }
            let of = match &error {
                TextError::Json { .. } | TextError::Source(_) => Some(&args.json),
                TextError::Graph(_) => Some(&args.graph),
                TextError::Template(_) => None,
            };
            let error = anyhow::Error::from(error);
            Err(match of {
                Some(file) => error.context(file.display().to_string()),
                None => error,
            })
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (name, source): (String, Box<dyn std::io::Read>) = if is_stdin(path) {
        ("standard input".to_owned(), Box::new(std::io::stdin()))
    } else {
        let name = path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| format!("open {name}"))?;
        (name, Box::new(file))
    };
    source.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
    ensure!(bytes.len() as u64 <= MAX_INPUT_BYTES, "{name} is larger than 256 MiB");
    Ok(bytes)
}
