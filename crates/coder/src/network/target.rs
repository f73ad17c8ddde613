//! Names of workspaces and agents, and getting ready what they name: started, connected, and with its startup scripts done.

use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_api::builds::{BuildReason, Transition, WorkspaceStatus};
use coder_api::client::Client;
use coder_api::paths;
use coder_api::resources::{AgentLifecycle, AgentStatus, StartupScriptBehavior, WorkspaceAgent};
use coder_api::workspaces::Workspace;
use coder_domain::ids::WorkspaceId;
use tokio::time::{Instant, sleep};

use crate::cmd::{build, start};
use crate::context::Context;
use crate::remote;
use crate::terminal::spinner;

/// The delays between two looks at an agent.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// After this time of waiting a disconnected agent is mentioned.
const MENTION_AFTER: Duration = Duration::from_secs(30);

/// A workspace and, if it is named, an agent (agent 7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    owner: String,
    workspace: String,
    agent: Option<String>,
}

/// Whether to wait for the end of startup scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wait {
    /// Always.
    Yes,
    /// Never.
    No,
    /// As the template says.
    #[default]
    Auto,
}

/// How a workspace is made ready.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preparation {
    pub(crate) disable_autostart: bool,
    pub(crate) wait: Wait,
}

impl Name {
    /// Reads the forms that the official program has.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let name = |owner: &str, workspace: &str, agent: Option<&str>| {
            let parts = [Some(owner), Some(workspace), agent];
            if parts.into_iter().flatten().any(str::is_empty) {
                bail!(
                    "{text:?} is not the name of a workspace: use workspace, owner/workspace, or workspace.agent"
                );
            }
            let agent = agent.map(str::to_owned);
            Ok(Self { owner: owner.to_owned(), workspace: workspace.to_owned(), agent })
        };
        if text.parse::<WorkspaceId>().is_ok() {
            return name(paths::ME, text, None);
        }
        if let Some((owner, rest)) = text.split_once('/') {
            let (workspace, agent) = split(rest);
            return name(owner, workspace, agent);
        }
        let dots: Vec<_> = text.split('.').collect();
        if let ([agent, workspace, owner], false) = (&dots[..], text.contains("--")) {
            return name(owner, workspace, Some(agent));
        }
        match text.split_once("--") {
            Some((owner, rest)) => {
                let (workspace, agent) = split(rest);
                name(owner, workspace, agent)
            }
            None => {
                let (workspace, agent) = split(text);
                name(paths::ME, workspace, agent)
            }
        }
    }

    /// As [`Self::parse`], of a host name of `coder config-ssh`: the prefix goes first, then the suffix behind its dot.
    pub(crate) fn parse_host(text: &str, prefix: Option<&str>, suffix: Option<&str>) -> anyhow::Result<Self> {
        let given = |part: Option<&str>| part.filter(|part| !part.is_empty()).map(str::to_owned);
        if let Some(rest) = given(prefix).and_then(|prefix| text.strip_prefix(&*prefix)) {
            return Self::parse(rest);
        }
        let suffix = given(suffix).map(|suffix| format!(".{}", suffix.trim_start_matches('.')));
        let rest = suffix.and_then(|suffix| text.strip_suffix(&*suffix));
        Self::parse(rest.unwrap_or(text))
    }

    /// Finds the workspace.
    pub(crate) async fn find(&self, client: &Client) -> anyhow::Result<Workspace> {
        if let Ok(id) = self.workspace.parse::<WorkspaceId>() {
            return Ok(client.workspace(id).await?);
        }
        remote::workspace(client, &format!("{}/{}", self.owner, self.workspace)).await
    }

    /// Finds the agent in the resources of the workspace's latest build.
    pub(crate) fn choose_agent(&self, workspace: &Workspace) -> anyhow::Result<WorkspaceAgent> {
        let resources = &workspace.latest_build.resources;
        let agents: Vec<_> = resources.iter().flat_map(|resource| &resource.agents).collect();
        let mut names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        names.sort_unstable();
        let names = names.join(", ");
        let workspace = &workspace.name;
        match (&self.agent, &agents[..]) {
            (_, []) => bail!("workspace {workspace:?} has no agents, so there is nothing to connect to"),
            (None, [only]) => Ok((*only).clone()),
            (None, _) => bail!("workspace {workspace:?} has several agents, name one: {names}"),
            (Some(wanted), agents) => {
                let found = agents.iter().find(|agent| agent.name == *wanted);
                let found = found.with_context(|| {
                    format!("workspace {workspace:?} has no agent {wanted:?}: it has {names}")
                })?;
                Ok((*found).clone())
            }
        }
    }
}

/// Splits `workspace.agent` and `workspace--agent`.
fn split(text: &str) -> (&str, Option<&str>) {
    let parts = text.split_once("--").or_else(|| text.split_once('.'));
    parts.map_or((text, None), |(workspace, agent)| (workspace, Some(agent)))
}

/// Finds workspace and agent, starts the workspace if it is stopped, and waits until the agent is connected and, where
/// that is wanted, its startup scripts have ended.
pub(crate) async fn prepare(
    ctx: &Context,
    client: &Client,
    name: &Name,
    how: Preparation,
) -> anyhow::Result<(Workspace, WorkspaceAgent)> {
    let workspace = started(ctx, client, name.find(client).await?, how).await?;
    let agent = name.choose_agent(&workspace)?;
    let agent = connected(ctx, client, agent).await?;
    let agent = scripts_done(ctx, client, agent, how.wait).await?;
    Ok((workspace, agent))
}

/// Starts a stopped workspace, and waits for its build.
async fn started(
    ctx: &Context,
    client: &Client,
    workspace: Workspace,
    how: Preparation,
) -> anyhow::Result<Workspace> {
    let name = &workspace.name;
    match workspace.latest_build.status {
        WorkspaceStatus::Running => return Ok(workspace),
        WorkspaceStatus::Deleting | WorkspaceStatus::Deleted => bail!("workspace {name:?} is being deleted"),
        WorkspaceStatus::Pending | WorkspaceStatus::Starting
            if workspace.latest_build.transition == Transition::Start =>
        {
            build::finish(ctx, client, &workspace.latest_build).await?;
        }
        WorkspaceStatus::Stopped if how.disable_autostart => bail!(
            "workspace {name:?} is stopped, and starting it is turned off by --disable-autostart: run `coder start {name}`"
        ),
        WorkspaceStatus::Stopped => {
            ctx.printer.note(&format!("Workspace {name:?} is stopped, starting it."));
            start_it(ctx, client, &workspace).await?;
        }
        WorkspaceStatus::Stopping | WorkspaceStatus::Pending => {
            bail!("workspace {name:?} is stopping: wait for its end, or see `coder logs {name} -f`")
        }
        WorkspaceStatus::Failed | WorkspaceStatus::Canceled | WorkspaceStatus::Canceling
            if workspace.latest_build.transition == Transition::Start =>
        {
            bail!(
                "the last start of workspace {name:?} did not succeed: see `coder logs {name}`, and run `coder start {name}`"
            )
        }
        _ => bail!(
            "workspace {name:?} is {}: run `coder start {name}`",
            workspace.latest_build.status.as_str()
        ),
    }
    Ok(client.workspace(workspace.id).await?)
}

async fn start_it(ctx: &Context, client: &Client, workspace: &Workspace) -> anyhow::Result<()> {
    let mut request = start::prepare(ctx, client, workspace, &start::Values::default(), true).await?;
    request.reason = Some(BuildReason::SshConnection);
    match start::request_start(ctx, client, workspace, request).await {
        Ok(build) => build::finish(ctx, client, &build).await,
        // Somebody else starts it at this moment.
        Err(error)
            if error
                .downcast_ref::<coder_api::client::Error>()
                .and_then(coder_api::client::Error::status)
                .is_some_and(|status| status == 409) =>
        {
            let now = client.workspace(workspace.id).await?;
            build::finish(ctx, client, &now.latest_build).await
        }
        Err(error) => Err(error),
    }
}

/// Waits until the agent is connected.
pub(crate) async fn connected(
    ctx: &Context,
    client: &Client,
    agent: WorkspaceAgent,
) -> anyhow::Result<WorkspaceAgent> {
    // The workspace was read just now.
    if agent.status == AgentStatus::Connected {
        return Ok(agent);
    }
    let text = format!("Waiting for agent {:?} to connect", agent.name);
    let waiting = async {
        let mut mentioned = false;
        let since = Instant::now();
        until(client, &agent, |now| {
            let late = now.status == AgentStatus::Timeout || since.elapsed() > MENTION_AFTER;
            if now.status != AgentStatus::Connected && late && !mentioned {
                mentioned = true;
                let help = &now.troubleshooting_url;
                let help = if help.is_empty() { String::new() } else { format!(": see {help}") };
                ctx.printer.warn(&format!(
                    "agent {:?} is {} and has not connected yet{help}",
                    now.name,
                    now.status.as_str()
                ));
            }
            now.status == AgentStatus::Connected
        })
        .await
    };
    spinner::waiting(&ctx.printer, &text, waiting).await
}

/// Waits for the end of the startup scripts, if that is wanted.
async fn scripts_done(
    ctx: &Context,
    client: &Client,
    agent: WorkspaceAgent,
    wait: Wait,
) -> anyhow::Result<WorkspaceAgent> {
    let waits = match wait {
        Wait::Yes => true,
        Wait::No => false,
        Wait::Auto => agent.startup_script_behavior == StartupScriptBehavior::Blocking,
    };
    let runs = |state: &AgentLifecycle| matches!(state, AgentLifecycle::Created | AgentLifecycle::Starting);
    let agent = if waits && runs(&agent.lifecycle_state) {
        let text = format!("Waiting for the startup scripts of agent {:?}", agent.name);
        let waiting = until(client, &agent, |now| !runs(&now.lifecycle_state));
        spinner::waiting(&ctx.printer, &text, waiting).await?
    } else {
        agent
    };
    match agent.lifecycle_state {
        AgentLifecycle::StartError => {
            ctx.printer.warn("a startup script failed, so the workspace may be incomplete: see its log");
        }
        AgentLifecycle::StartTimeout => {
            ctx.printer
                .warn("a startup script ran out of time, so the workspace may be incomplete: see its log");
        }
        AgentLifecycle::ShuttingDown | AgentLifecycle::Off => bail!("the workspace is shutting down"),
        _ => {}
    }
    Ok(agent)
}

/// Looks at an agent again and again until `is_done`.
async fn until(
    client: &Client,
    agent: &WorkspaceAgent,
    mut is_done: impl FnMut(&WorkspaceAgent) -> bool,
) -> anyhow::Result<WorkspaceAgent> {
    let mut delay = FIRST_LOOK;
    loop {
        let now = client.agent(agent.id).await?;
        if is_done(&now) {
            return Ok(now);
        }
        sleep(delay).await;
        delay = (delay * 3 / 2).min(LAST_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(owner: &str, workspace: &str, agent: Option<&str>) -> Name {
        Name { owner: owner.to_owned(), workspace: workspace.to_owned(), agent: agent.map(str::to_owned) }
    }

    /// agent 7.1.
    #[test]
    fn names_have_the_forms_of_the_official_program() {
        for (text, wanted) in [
            ("dev", name("me", "dev", None)),
            ("dev.main", name("me", "dev", Some("main"))),
            ("bob/dev", name("bob", "dev", None)),
            ("bob--dev", name("bob", "dev", None)),
            ("bob/dev.main", name("bob", "dev", Some("main"))),
            ("bob/dev--main", name("bob", "dev", Some("main"))),
            ("bob--dev--main", name("bob", "dev", Some("main"))),
            ("bob--dev.main", name("bob", "dev", Some("main"))),
            ("main.dev.bob", name("bob", "dev", Some("main"))),
        ] {
            assert_eq!(Name::parse(text).unwrap(), wanted, "{text}");
        }
        let id = "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10";
        assert_eq!(Name::parse(id).unwrap(), name("me", id, None));
        for text in ["", "/dev", "bob/", ".main", "dev.", "bob--", "--dev"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefix_or_suffix_of_a_host_name_is_taken_off() {
        let parse = |text| Name::parse_host(text, Some("coder."), Some("coder")).unwrap();
        assert_eq!(parse("coder.dev"), name("me", "dev", None));
        assert_eq!(parse("coder.bob--dev--main"), name("bob", "dev", Some("main")));
        assert_eq!(parse("dev.coder"), name("me", "dev", None));
        assert_eq!(parse("main.dev.bob.coder"), name("bob", "dev", Some("main")));
        assert_eq!(parse("coder.dev.coder"), name("me", "dev", Some("coder")), "the prefix goes first");
        let suffix = Name::parse_host("devcoder", None, Some("coder")).unwrap();
        assert_eq!(suffix, name("me", "devcoder", None), "the suffix needs its dot");
    }
}
