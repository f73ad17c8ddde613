//! `coder provider …`: the Terraform provider `coder/coder`, which is part of this program.

pub(crate) mod install;
pub(crate) mod plugin;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lay out a filesystem mirror, so that Terraform and OpenTofu run by hand find the coder provider in it.
    Install(install::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Install(args) => install::run(args),
    }
}
