//! `coder man`: manual pages, generated from the command line.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::terminal::output::Printer;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory to write a page of every command to, such as ~/.local/share/man/man1; default the first page to standard output.
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let printer = Printer::detect(false);
    let command = crate::command();
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        printer.raw(&page)?;
        return Ok(());
    };
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("write manual pages to {}", directory.display()))?;
    printer.note(&format!("The manual pages are in {}.", directory.display()));
    Ok(())
}
