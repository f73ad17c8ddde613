//! `coder templates init`: writes an example template.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::context::Context;
use crate::template::examples::{self, Example};
use crate::terminal::menu::{self, Choice};
use crate::terminal::output::Style;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory to write; default one with the example's name.
    directory: Option<PathBuf>,
    /// Name of the example.
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
}

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let example = match &args.id {
        Some(id) => find(id).map_err(anyhow::Error::msg)?,
        None => choose(ctx)?,
    };
    let directory = args.directory.unwrap_or_else(|| PathBuf::from(example.name));
    let taken = fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
    if taken {
        bail!("{} is not empty: name another directory", directory.display());
    }
    fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    for (name, text) in example.files {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let next = format!("cd {} && coder templates push", directory.display());
    ctx.printer.note(&format!(
        "The template is in {}. Next:\n\n    {}\n",
        directory.display(),
        ctx.printer.paint(Style::Code, &next)
    ));
    Ok(())
}

fn find(id: &str) -> Result<&'static Example, String> {
    let names: Vec<_> = examples::ALL.iter().map(|example| example.name).collect();
    let found = examples::ALL.iter().find(|example| example.name == id);
    found.ok_or_else(|| format!("there is no example {id:?}, choose from: {}", names.join(", ")))
}

fn choose(ctx: &Context) -> anyhow::Result<&'static Example> {
    let choices: Vec<_> =
        examples::ALL.iter().map(|example| Choice::new(example.name, example.about())).collect();
    let name = menu::choose(&ctx.printer, "Example:", &choices, None, "pass --id NAME")?;
    find(&name).map_err(anyhow::Error::msg)
}
