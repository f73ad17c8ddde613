//! `coder completion`: the script on standard output, for `source <(coder completion bash)` or a file.

use clap_complete::Shell;

use crate::output::Printer;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to complete for; default the one in SHELL.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Option<Shell>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let shell = args.shell.or_else(Shell::from_env);
    let Some(shell) = shell else {
        anyhow::bail!("your shell is not known: name it, for example `coder completion bash`");
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::command(), "coder", &mut script);
    Printer::detect().raw(&script)?;
    Ok(())
}
