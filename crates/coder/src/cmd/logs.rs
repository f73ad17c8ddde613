//! `coder logs`: the log of a build and of the agents that it made, as plain lines on standard output.

use std::collections::BTreeMap;

use coder_api::builds::WorkspaceBuild;
use coder_api::client::{Client, JobLogTarget};
use coder_api::jobs::{LogLevel, ProvisionerJobLog};
use coder_api::resources::{WorkspaceAgent, WorkspaceAgentLog};
use coder_domain::Timestamp;
use coder_domain::ids::LogSourceId;
use futures_util::stream::{self, StreamExt as _};

use crate::context::Context;
use crate::job::follow;
use crate::remote;
use crate::terminal::output::{Printer, Style, one_line};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Number of the build; 0 is the last one, -1 the one before.
    #[arg(short = 'n', long, default_value_t = 0, allow_negative_numbers = true, value_name = "NUMBER")]
    build_number: i64,
    /// Wait for new lines until the build has ended, then for those of its agents until there is a later build.
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    let build = if args.build_number == 0 {
        workspace.latest_build.clone()
    } else {
        let last = workspace.latest_build.build_number;
        let number = if args.build_number < 0 { last + args.build_number } else { args.build_number };
        remote::build(&client, &workspace, number).await?
    };
    let mut shown = Lines { printer: ctx.printer, stage: String::new() };
    if !args.follow && !follow::has_ended(build.job.status) {
        let lines = client.job_logs(JobLogTarget::Build(build.id), 0).await?;
        lines.iter().for_each(|line| shown.print(line));
        ctx.printer.note("The build is still under way; wait for more with --follow.");
        return Ok(());
    }
    let mut log = client.follow_job_logs(JobLogTarget::Build(build.id), 0);
    while let Some(line) = log.next().await? {
        shown.print(&line);
    }
    // What the build has made is known at its end.
    let build = remote::build(&client, &workspace, build.build_number).await?;
    agent_logs(ctx, &client, &build, args.follow).await
}

/// Prints the logs of all agents of a build: what there is in the order of time, then new lines as they come.
async fn agent_logs(
    ctx: &Context,
    client: &Client,
    build: &WorkspaceBuild,
    follow: bool,
) -> anyhow::Result<()> {
    let agents: Vec<_> =
        build.resources.iter().flat_map(|resource| &resource.agents).map(AgentLines::new).collect();
    let (mut stored, mut last) = (Vec::new(), Vec::new());
    for agent in &agents {
        let lines = client.agent_logs(agent.agent.id, 0).await?;
        last.push(lines.last().map_or(0, |line| line.id));
        stored.extend(lines.into_iter().map(|line| (agent, line)));
    }
    stored.sort_by_key(|(_, line)| line.created_at);
    stored.iter().for_each(|(agent, line)| agent.print(&ctx.printer, line));
    if !follow {
        return Ok(());
    }
    let follower = |(agent, after)| {
        let log = client.follow_agent_logs(AgentLines::id(agent), after);
        let lines = stream::try_unfold(log, async |mut log| {
            Ok::<_, coder_api::client::Error>(log.next().await?.map(|line| (line, log)))
        });
        Box::pin(lines.map(move |line| (agent, line)))
    };
    let mut lines = stream::select_all(agents.iter().zip(last).map(follower));
    while let Some((agent, line)) = lines.next().await {
        agent.print(&ctx.printer, &line?);
    }
    Ok(())
}

/// An agent with the names of its log sources.
struct AgentLines<'a> {
    agent: &'a WorkspaceAgent,
    sources: BTreeMap<LogSourceId, &'a str>,
}

impl<'a> AgentLines<'a> {
    fn new(agent: &'a WorkspaceAgent) -> Self {
        let sources =
            agent.log_sources.iter().map(|source| (source.id, source.display_name.as_str())).collect();
        Self { agent, sources }
    }

    const fn id(&self) -> coder_domain::ids::AgentId {
        self.agent.id
    }

    fn print(&self, printer: &Printer, line: &WorkspaceAgentLog) {
        let source = line.source_id.and_then(|id| self.sources.get(&id)).filter(|name| !name.is_empty());
        let from = match source {
            Some(source) => format!("agent {} ({})", self.agent.name, one_line(source)),
            None => format!("agent {}", self.agent.name),
        };
        print(printer, line.created_at, &line.level, &format!("{from}: {}", one_line(&line.output)));
    }
}

fn print(printer: &Printer, at: Timestamp, level: &LogLevel, text: &str) {
    let at = printer.paint(Style::Faint, &at.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string());
    printer.data(&format!("{at} [{level}] {text}"));
}

/// Prints lines, with a heading wherever the stage changes.
struct Lines {
    printer: Printer,
    stage: String,
}

impl Lines {
    fn print(&mut self, line: &ProvisionerJobLog) {
        if !line.stage.is_empty() && line.stage != self.stage {
            self.stage.clone_from(&line.stage);
            let heading = format!("=== {}", one_line(&line.stage));
            print(&self.printer, line.created_at, &line.log_level, &heading);
        }
        if !line.output.is_empty() {
            print(&self.printer, line.created_at, &line.log_level, &one_line(&line.output));
        }
    }
}
