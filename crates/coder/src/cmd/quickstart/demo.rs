//! The demo of a quickstart: a scoped key, a tagged template, a workspace built from it. A second run continues with
//! the existing ones.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use coder_api::builds::{CreateWorkspaceBuildRequest, Transition, WorkspaceStatus};
use coder_api::client::{Client, JobLogTarget};
use coder_api::files;
use coder_api::json::NameValue;
use coder_api::paths;
use coder_api::templates::CreateTemplateRequest;
use coder_api::versions::CreateTemplateVersionRequest;
use coder_api::workspaces::{CreateWorkspaceRequest, Workspace};
use coder_domain::ids::{OrganizationId, TemplateVersionId};
use coder_domain::secret::Secret;

use super::{account, daemon};
use crate::context::Context;
use crate::job::follow;
use crate::network::target::{self, Name};
use crate::remote;
use crate::template::{examples, pack};
use crate::terminal::output::Printer;

pub(super) const KEY_NAME: &str = "quickstart";
pub(super) const TAG: (&str, &str) = ("pool", "quickstart");
pub(super) const TEMPLATE: &str = "hello";
/// The example that becomes the template.
const EXAMPLE: &str = "quickstart";
pub(super) const WORKSPACE: &str = "hello";

/// The agent and the app of the example.
const AGENT: &str = "main";
const APP: &str = "page";
/// How long the agent may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([(TAG.0.to_owned(), TAG.1.to_owned())])
}

/// Creates a key. Replaces the key of an earlier run, whose secret is lost.
pub(super) async fn key(client: &Client, organization: OrganizationId) -> anyhow::Result<Secret> {
    let keys = client.provisioner_keys(organization).await?;
    if keys.iter().any(|key| key.name == KEY_NAME) {
        client.delete_provisioner_key(organization, KEY_NAME).await?;
    }
    Ok(client.create_provisioner_key(organization, KEY_NAME, tags()).await?)
}

/// Imports the example and makes it a template, or its newest version.
pub(super) async fn push(
    client: &Client,
    printer: &Printer,
    organization: OrganizationId,
) -> anyhow::Result<TemplateVersionId> {
    let example =
        examples::ALL.iter().find(|example| example.name == EXAMPLE).context("the example is embedded")?;
    let existing = remote::found(client.template_by_name(organization, TEMPLATE).await)?;
    let file = client.upload(files::TAR, pack::embedded(example.files)?.into()).await?;
    let request = CreateTemplateVersionRequest {
        message: "Made by coder quickstart".to_owned(),
        template_id: existing.as_ref().map(|template| template.id),
        file_id: Some(file),
        tags: tags(),
        ..CreateTemplateVersionRequest::default()
    };
    let version = client.create_version(organization, &request).await?;
    let job = follow::follow(client, printer, JobLogTarget::Version(version.id), None).await?;
    follow::outcome(&job, "the import of the template")?;
    match existing {
        Some(template) => client.set_active_version(template.id, version.id).await?,
        None => {
            let request = CreateTemplateRequest {
                name: TEMPLATE.to_owned(),
                description: example.about().chars().take(120).collect(),
                version_id: Some(version.id),
                ..CreateTemplateRequest::default()
            };
            client.create_template(organization, &request).await?;
        }
    }
    Ok(version.id)
}

/// The URL of the workspace's app.
pub(super) fn app_url(server: &str) -> String {
    format!("{server}/@{}/{WORKSPACE}.{AGENT}/apps/{APP}/", account::USER)
}

/// The workspace serves its page on a port that is free now.
fn parameters() -> anyhow::Result<Vec<NameValue>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("look for a free port")?;
    let port = listener.local_addr().context("look for a free port")?.port();
    Ok(vec![NameValue { name: "page_port".to_owned(), value: port.to_string() }])
}

/// A running workspace and who built it.
pub(super) struct Built {
    pub(super) workspace: Workspace,
    pub(super) worker_name: String,
}

/// Waits until the workspace's agent is connected. The workspace as it is then.
pub(super) async fn agent_connected(
    ctx: &Context,
    client: &Client,
    directory: &Path,
    workspace: &Workspace,
) -> anyhow::Result<Workspace> {
    let agent = Name::parse(WORKSPACE)?.choose_agent(workspace)?;
    let log = daemon::cache(directory).join(format!("workspaces/{}/log/coder-agent.log", workspace.id));
    tokio::time::timeout(CONNECT_TIMEOUT, target::connected(ctx, client, agent)).await.with_context(
        || {
            format!(
                "the workspace's agent has not connected within {} s: see {}",
                CONNECT_TIMEOUT.as_secs(),
                log.display()
            )
        },
    )??;
    Ok(client.workspace(workspace.id).await?)
}

/// Creates the workspace, or starts the one of an earlier run with the new version.
pub(super) async fn workspace(
    client: &Client,
    printer: &Printer,
    organization: OrganizationId,
    version: TemplateVersionId,
) -> anyhow::Result<Built> {
    let build = match remote::found(client.workspace_by_name(paths::ME, WORKSPACE).await)? {
        None => {
            let request = CreateWorkspaceRequest {
                template_version_id: Some(version),
                name: WORKSPACE.to_owned(),
                rich_parameter_values: parameters()?,
                ..CreateWorkspaceRequest::default()
            };
            client.create_workspace(paths::ME, &request).await?.latest_build
        }
        Some(workspace) if workspace.latest_build.status == WorkspaceStatus::Starting => {
            workspace.latest_build
        }
        Some(workspace) => {
            let mut request = CreateWorkspaceBuildRequest::new(Transition::Start);
            request.template_version_id = Some(version);
            request.rich_parameter_values = parameters()?;
            client.create_build(workspace.id, &request).await?
        }
    };
    let job = follow::follow(client, printer, JobLogTarget::Build(build.id), None).await?;
    follow::outcome(&job, "the start of the workspace")?;
    let worker_name = client.job(organization, job.id).await?.worker_name;
    let workspace = client.workspace_by_name(paths::ME, WORKSPACE).await?;
    Ok(Built { workspace, worker_name })
}
