//! `coder completion`: a short script on standard output, for `source <(coder completion bash)` or a file. The shell
//! asks this program for candidates, so the script need not change with it.

use clap::ValueEnum;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::env;
use crate::terminal::output::Printer;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to complete for; default the one in SHELL.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Option<Shell>,
    /// The same as a flag.
    #[arg(
        short = 's',
        long = "shell",
        value_enum,
        hide_possible_values = true,
        conflicts_with = "shell",
        value_name = "SHELL"
    )]
    named: Option<Shell>,
    /// Print the script; this program never installs it.
    #[arg(short, long)]
    print: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Shell {
    fn of_environment() -> Option<Self> {
        let path = env::get(env::SHELL)?;
        Self::from_str(path.rsplit('/').next()?, true).ok()
    }

    const fn script(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Elvish => &Elvish,
            Self::Fish => &Fish,
            Self::Powershell => &Powershell,
            Self::Zsh => &Zsh,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Some(shell) = args.shell.or(args.named).or_else(Shell::of_environment) else {
        anyhow::bail!("your shell is not known: name it, for example `coder completion bash`");
    };
    let mut script = Vec::new();
    shell.script().write_registration(env::COMPLETE, "coder", "coder", "coder", &mut script)?;
    Printer::detect(false).raw(&script)?;
    Ok(())
}
