//! The one binary: command line, output and wiring. `cmd/<command>.rs` holds one command each.
//!
//! Nothing is started before the command is known: `coder version` opens neither a runtime nor TLS.

mod accounts;
mod args;
mod building;
mod cli;
mod cmd;
mod context;
mod duration;
pub mod env;
mod examples;
mod exit;
mod flat_yaml;
mod follow;
#[cfg(feature = "server")]
mod job_flags;
mod lockfile;
#[cfg(feature = "server")]
mod logging;
mod output;
mod pack;
mod parameters;
#[cfg(feature = "server")]
mod progress;
mod prompt;
pub mod reference;
mod remote;
mod resources;
mod runtime;
mod session;
#[cfg(feature = "server")]
mod signals;
mod table;
#[cfg(feature = "server")]
mod terraform;
mod tfvars;
mod variables;
pub mod versions;
mod waiting;

use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

pub use cli::command;
use cli::{Cli, Command};
use context::Context;
use exit::Exit;
use output::Printer;

/// Runs the program on the process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    #[cfg(feature = "server")]
    if cmd::provider::plugin::is_meant() {
        return cmd::provider::plugin::main().into();
    }
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let exit = match run(cli) {
        Ok(()) => Exit::Success,
        Err(error) => {
            let hint = error.chain().find_map(|cause| cause.downcast_ref::<coder_api::client::Error>());
            Printer::detect().error(&error, hint.and_then(coder_api::client::Error::hint).as_deref());
            exit::of(&error)
        }
    };
    exit.into()
}

/// Help goes to standard output and is no failure; a wrong command line is failure 1, as in the official program.
fn usage(error: &clap::Error) -> Exit {
    // Nothing can be done about a closed stream.
    drop(error.print());
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Success,
        _ => Exit::Failure,
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { global, command } = cli;
    match command {
        Command::Version(args) => cmd::version::run(&args),
        Command::Completion(args) => cmd::completion::run(&args),
        #[cfg(feature = "server")]
        Command::Provider { command } => cmd::provider::run(&command),
        #[cfg(feature = "server")]
        Command::Exp { command } => cmd::exp::run(&command),
        command => {
            let ctx = Context::new(global);
            match command {
                #[cfg(feature = "server")]
                Command::Quickstart(args) => cmd::quickstart::run(&ctx, args),
                #[cfg(feature = "server")]
                Command::Server(args) => cmd::server::run(&ctx, *args),
                Command::Provisioner { command } => match *command {
                    #[cfg(feature = "server")]
                    cmd::provisioner::Command::Start(args) => cmd::provisioner::start::run(&ctx, *args),
                    command => asking(&ctx, cmd::provisioner::run(&ctx, command)),
                },
                command => asking(&ctx, client(&ctx, command)),
            }
        }
    }
}

/// Runs a command that asks a server, and warns about the server's version whatever came of it.
fn asking(ctx: &Context, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let result = runtime::small()?.block_on(work);
    ctx.warn_version();
    ctx.warn_features();
    result
}

/// Commands that only ask a server.
async fn client(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Login(args) => cmd::login::run(ctx, args).await,
        Command::Logout(args) => cmd::logout::run(ctx, args).await,
        Command::Whoami(args) => cmd::whoami::run(ctx, args).await,
        Command::Templates { command } => cmd::templates::run(ctx, command).await,
        Command::Create(args) => cmd::create::run(ctx, args).await,
        Command::List(args) => cmd::list::run(ctx, args).await,
        Command::Show(args) => cmd::show::run(ctx, args).await,
        Command::Start(args) => cmd::start::run(ctx, args).await,
        Command::Stop(args) => cmd::stop::run(ctx, args).await,
        Command::Restart(args) => cmd::restart::run(ctx, args).await,
        Command::Delete(args) => cmd::delete::run(ctx, args).await,
        Command::Logs(args) => cmd::logs::run(ctx, args).await,
        Command::State { command } => cmd::state::run(ctx, command).await,
        Command::Tokens { command } => cmd::tokens::run(ctx, command).await,
        Command::Users { command } => cmd::users::run(ctx, command).await,
        Command::Organizations { command } => cmd::organizations::run(ctx, command).await,
        #[cfg(feature = "server")]
        Command::Quickstart(_) | Command::Server(_) | Command::Provider { .. } | Command::Exp { .. } => {
            unreachable!("dispatched by run")
        }
        Command::Provisioner { .. } | Command::Version(_) | Command::Completion(_) => {
            unreachable!("dispatched by run")
        }
    }
}
