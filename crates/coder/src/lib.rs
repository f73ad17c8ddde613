//! The one binary: command line, output and wiring. `cmd/<command>.rs` holds one command each.
//!
//! Nothing is started before the command is known: `coder version` opens neither a runtime nor TLS.

mod args;
mod browser;
mod cli;
mod cmd;
mod completion;
mod context;
#[cfg(feature = "server")]
mod daemon_flags;
mod duration;
pub mod env;
mod error_report;
mod exit;
mod external_auth;
mod help;
#[cfg(feature = "server")]
mod ignored_flags;
mod job;
mod logging;
mod network;
mod parameters;
mod parent_pipe;
mod plural;
pub mod reference;
mod remote;
mod runtime;
mod session;
mod signals;
mod suggest;
mod template;
mod terminal;
pub mod versions;

use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

pub use cli::command;
use cli::{Cli, Command};
use context::Context;
use error_report::Facts;
use exit::Exit;
use terminal::output::Printer;

/// Runs the program on the process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    #[cfg(feature = "server")]
    if cmd::provider::plugin::is_started_as_provider() {
        return cmd::provider::plugin::main().into();
    }
    // Only a shell that asks for names needs the completers.
    let completing = || completion::attach(command());
    if let Some(prompt) = cmd::git_askpass::prompt() {
        return finish(cmd::git_askpass::run(&prompt), &Facts::default()).into();
    }
    clap_complete::CompleteEnv::with_factory(completing).var(env::COMPLETE).complete();
    let parsed = cli::parser().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let facts = Facts::new(&cli.global);
    finish(run(cli), &facts).into()
}

/// Shows the error that ended a command.
fn finish(result: anyhow::Result<()>, facts: &Facts) -> Exit {
    match result {
        Ok(()) => Exit::Success,
        Err(error) => {
            if !exit::is_silent(&error) {
                Printer::detect(false).error(&error_report::report(&error, facts));
            }
            exit::of(&error)
        }
    }
}

/// Help and the version go to standard output and are not a failure; a wrong command line is failure 1, as in the official
/// program.
fn usage(error: &clap::Error) -> Exit {
    let words = std::env::args_os();
    let exit = match error.kind() {
        ErrorKind::DisplayHelp => return show_help(words),
        // A command that only has subcommands shows its help instead of an error.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            return show_help(words.chain(["--help".into()]));
        }
        ErrorKind::DisplayVersion => Exit::Success,
        _ => Exit::Failure,
    };
    drop(error.print());
    let words: Vec<_> = std::env::args().skip(1).collect();
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            help::missing_in_slim(&words).or_else(|| help::misplaced_name(&command(), &words))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            help::refused_variable(command(), error, &words)
        }
        _ => None,
    };
    if let Some(hint) = hint {
        Printer::detect(false).hint(&hint);
    }
    exit
}

/// Shows the help that these arguments ask for. Only here is the command line built with its help texts: other commands start
/// faster without them.
fn show_help(words: impl Iterator<Item = std::ffi::OsString>) -> Exit {
    if let Err(help) = command().try_get_matches_from(words) {
        // A closed stream is not a failure.
        drop(help.print());
    }
    Exit::Success
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { global, command } = cli;
    match command {
        Command::Version(args) => cmd::version::run(&args),
        Command::Completion(args) => cmd::completion::run(&args),
        Command::Man(args) => cmd::man::run(&args),
        #[cfg(feature = "server")]
        Command::Provider { command } => cmd::provider::run(&command),
        command => {
            let ctx = Context::new(global);
            match command {
                Command::Agent(args) => cmd::agent::run(&ctx, *args),
                #[cfg(feature = "server")]
                Command::Exp { command } => cmd::exp::run(&ctx, &command),
                Command::Gitssh(args) => cmd::gitssh::run(&args),
                Command::Stat(args) => cmd::stat::run(&args),
                Command::Dotfiles(args) => cmd::dotfiles::run(&ctx, &args),
                #[cfg(feature = "server")]
                Command::Quickstart(args) => cmd::quickstart::run(&ctx, args),
                #[cfg(feature = "server")]
                Command::Server(args) => cmd::server::run(&ctx, *args),
                #[cfg(feature = "server")]
                Command::ResetPassword(args) => {
                    runtime::small()?.block_on(cmd::reset_password::run(&ctx, args))
                }
                #[cfg(feature = "operator")]
                Command::Operator(args) => cmd::operator::run(&ctx, args),
                Command::Provisioner { command } => match *command {
                    #[cfg(feature = "server")]
                    cmd::provisioner::Command::Start(args) => cmd::provisioner::start::run(&ctx, *args),
                    command => with_warnings(&ctx, cmd::provisioner::run(&ctx, command)),
                },
                command => with_warnings(&ctx, client(&ctx, command)),
            }
        }
    }
}

/// Runs a command that asks a server, and warns about the server's version whatever came of it.
fn with_warnings(ctx: &Context, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
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
        Command::Publickey(args) => cmd::publickey::run(ctx, args).await,
        Command::Templates { command } => cmd::templates::run(ctx, command).await,
        Command::Create(args) => cmd::create::run(ctx, args).await,
        Command::List(args) => cmd::list::run(ctx, args).await,
        Command::Show(args) => cmd::show::run(ctx, args).await,
        Command::Start(args) => cmd::start::run(ctx, args).await,
        Command::Stop(args) => cmd::stop::run(ctx, args).await,
        Command::Restart(args) => cmd::restart::run(ctx, args).await,
        Command::Update(args) => cmd::update::run(ctx, args).await,
        Command::Schedule { command } => cmd::schedule::run(ctx, command).await,
        Command::Autoupdate(args) => cmd::autoupdate::run(ctx, args).await,
        Command::Rename(args) => cmd::rename::run(ctx, args).await,
        Command::Favorite(args) => cmd::favorite::run(ctx, args, true).await,
        Command::Unfavorite(args) => cmd::favorite::run(ctx, args, false).await,
        Command::Delete(args) => cmd::delete::run(ctx, args).await,
        Command::Logs(args) => cmd::logs::run(ctx, args).await,
        Command::Ssh(args) => cmd::ssh::run(ctx, *args).await,
        Command::ConfigSsh(args) => cmd::config_ssh::run(ctx, args).await,
        Command::PortForward(args) => cmd::port_forward::run(ctx, args).await,
        Command::Ping(args) => cmd::ping::run(ctx, args).await,
        Command::Speedtest(args) => cmd::speedtest::run(ctx, args).await,
        Command::Netcheck(args) => cmd::netcheck::run(ctx, args).await,
        Command::Open { command } => cmd::open::run(ctx, command).await,
        Command::Connect { command } => cmd::connect::run(command).await,
        Command::State { command } => cmd::state::run(ctx, command).await,
        Command::Tokens { command } => cmd::tokens::run(ctx, command).await,
        Command::Users { command } => cmd::users::run(ctx, command).await,
        Command::Organizations { command } => cmd::organizations::run(ctx, command).await,
        Command::ExternalAuth { command } => cmd::external_auth::run(ctx, command).await,
        #[cfg(feature = "server")]
        Command::Quickstart(_)
        | Command::Server(_)
        | Command::ResetPassword(_)
        | Command::Provider { .. }
        | Command::Exp { .. } => {
            unreachable!("dispatched by run")
        }
        #[cfg(feature = "operator")]
        Command::Operator(_) => unreachable!("dispatched by run"),
        Command::Agent(_)
        | Command::Gitssh(_)
        | Command::Stat(_)
        | Command::Dotfiles(_)
        | Command::Provisioner { .. }
        | Command::Version(_)
        | Command::Completion(_)
        | Command::Man(_) => {
            unreachable!("dispatched by run")
        }
    }
}
