//! `coder schedule`: when workspaces start and stop without a person.

mod change;
mod input;
mod show;

use crate::context::Context;

pub(crate) use input::autostart;
pub(crate) use show::stops_next;

/// The subcommands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show when workspaces start and stop.
    Show(show::Args),
    /// Set when a workspace starts by itself.
    ///
    /// The schedule is a time, then optionally days and a time zone. The time is 9:30AM or 14:00. The days are as in cron:
    /// 1,3,5 or Mon-Fri; without them it starts every day. The time zone is a name like Europe/Dublin; without one it is that of
    /// this machine. A start needs a workspace that is stopped, whose last build did not fail, and that is not dormant.
    Start(change::StartArgs),
    /// Set after which time a workspace stops by itself.
    ///
    /// The time begins when a start has ended, and activity extends it. It is 2h30m or a number of minutes, at least one minute.
    /// A workspace that is started keeps its present deadline: change that with `coder schedule extend`.
    Stop(change::StopArgs),
    /// Set when a started workspace stops, once.
    ///
    /// The time begins now: it is 2h30m or a number of minutes, at least 30 minutes.
    #[command(alias = "override-stop")]
    Extend(change::ExtendArgs),
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Show(args) => show::run(ctx, args).await,
        Command::Start(args) => change::start(ctx, args).await,
        Command::Stop(args) => change::stop(ctx, args).await,
        Command::Extend(args) => change::extend(ctx, args).await,
    }
}
