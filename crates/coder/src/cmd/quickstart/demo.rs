//! The demo of a quickstart: a scoped key, a tagged template, a workspace built from it. A second run continues with
//! the existing ones.

use std::collections::BTreeMap;

use anyhow::Context as _;
use coder_api::builds::{CreateWorkspaceBuildRequest, Transition, WorkspaceStatus};
use coder_api::client::{Client, JobLogTarget};
use coder_api::files;
use coder_api::paths;
use coder_api::templates::CreateTemplateRequest;
use coder_api::versions::CreateTemplateVersionRequest;
use coder_api::workspaces::{CreateWorkspaceRequest, Workspace};
use coder_domain::ids::{OrganizationId, TemplateVersionId};
use coder_domain::secret::Secret;

use crate::job::follow;
use crate::remote;
use crate::template::{examples, pack};
use crate::terminal::output::Printer;

pub(super) const KEY_NAME: &str = "quickstart";
pub(super) const TAG: (&str, &str) = ("pool", "quickstart");
pub(super) const TEMPLATE: &str = "hello";
pub(super) const WORKSPACE: &str = "hello";

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
        examples::ALL.iter().find(|example| example.name == TEMPLATE).context("the example is embedded")?;
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
    let job = follow::follow(client, printer, JobLogTarget::Version(version.id)).await?;
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

/// A running workspace and who built it.
pub(super) struct Built {
    pub(super) workspace: Workspace,
    pub(super) worker_name: String,
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
            client.create_build(workspace.id, &request).await?
        }
    };
    let job = follow::follow(client, printer, JobLogTarget::Build(build.id)).await?;
    follow::outcome(&job, "the start of the workspace")?;
    let worker_name = client.job(organization, job.id).await?.worker_name;
    let workspace = client.workspace_by_name(paths::ME, WORKSPACE).await?;
    Ok(Built { workspace, worker_name })
}
