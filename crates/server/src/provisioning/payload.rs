//! The message that carries a job to its daemon (wire-protocol 5.4). Everything is read when the job is taken.

use std::collections::BTreeMap;
use std::time::Duration;

use coder_domain::build::Transition;
use coder_domain::ids::{JobId, TemplateId, TemplateVersionId};
use coder_domain::job::Type;
use coder_store::version_details::{self, Variable};
use coder_store::{Tx, builds, files, jobs, organizations, templates, users, versions, workspaces};
use coder_wire::drpc::MESSAGE as MAX_MESSAGE;
use coder_wire::messages::provisioner::{
    Metadata, RichParameterValue, Role, VariableValue, WorkspaceTransition,
};
use coder_wire::messages::provisionerd::{AcquiredJob, acquired_job};
use prost::Message;
use serde::Deserialize;
use uuid::Uuid;

use super::serve::Session;
use super::{bundle, session_token, update};
use crate::git_ssh_key;

/// The group that everybody is in.
const EVERYONE: &str = "Everyone";

/// Why a taken job cannot be handed out; the text becomes the job's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something the job needs is gone.
    #[error("the job's {0} is missing")]
    Missing(&'static str),
    /// The private input is not what was written.
    #[error("the job's input cannot be read: {0}")]
    Input(#[from] serde_json::Error),
    /// The message would not fit.
    #[error(
        "payload was too big: {size} bytes, at most {limit} are possible; make the template's files or the state smaller"
    )]
    TooBig {
        /// Bytes of the message.
        size: usize,
        /// Bytes that a message may have.
        limit: usize,
    },
    /// The connection does not take it.
    #[error("the job cannot be sent: {0}")]
    Unsendable(String),
    /// The database failed.
    #[error("the database failed while the job was prepared")]
    Store(#[from] coder_store::Error),
}

/// The private input of jobs; each type has some of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    template_id: Option<TemplateId>,
    user_variable_values: Option<Vec<Pair>>,
    rich_parameter_values: Option<Vec<Pair>>,
    workspace_name: String,
    log_level: String,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    value: String,
}

/// Makes the message for a job that `session`'s daemon has just taken.
pub async fn make(session: &Session, id: JobId) -> Result<AcquiredJob, Error> {
    let mut tx = session.app.store.reader().await?;
    let job = jobs::get(&mut tx, id).await?;
    let waited =
        job.started_at.map(|at| Duration::try_from(at.duration_since(job.created_at)).unwrap_or_default());
    session.app.metrics.handed_out(job.organization_id, &job.tags, waited.unwrap_or_default());
    let initiator =
        users::find_many(&mut tx, &[job.initiator_id]).await?.pop().ok_or(Error::Missing("initiator"))?;
    let archive =
        files::get_data(&mut tx, job.file_id).await.map_err(|error| or_missing(error, "source archive"))?;
    let input = Input::deserialize(&job.input.0)?;
    let arm = match job.kind {
        Type::TemplateVersionImport => import(session, &mut tx, &job, input).await?,
        Type::TemplateVersionDryRun => dry_run(session, &mut tx, &job, input).await?,
        Type::WorkspaceBuild => build(session, tx, &job, input).await?,
    };
    let mut message = AcquiredJob {
        job_id: job.id.to_string(),
        created_at: job.created_at.as_millisecond(),
        provisioner: job.provisioner,
        user_name: initiator.username,
        template_source_archive: archive.into(),
        trace_metadata: job.trace_metadata,
        r#type: Some(arm),
    };
    if message.encoded_len() > MAX_MESSAGE
        && let Some(version) = job.template_version_id
    {
        bundle::take_out(session, version, &mut message).await?;
    }
    let size = message.encoded_len();
    if size > MAX_MESSAGE {
        return Err(Error::TooBig { size, limit: MAX_MESSAGE });
    }
    Ok(message)
}

fn or_missing(error: coder_store::Error, what: &'static str) -> Error {
    if error.is_not_found() { Error::Missing(what) } else { error.into() }
}

fn values(pairs: Option<Vec<Pair>>) -> Vec<RichParameterValue> {
    let value = |pair: Pair| RichParameterValue { name: pair.name, value: pair.value };
    pairs.unwrap_or_default().into_iter().map(value).collect()
}

async fn import(
    session: &Session,
    tx: &mut Tx,
    job: &jobs::Job,
    input: Input,
) -> Result<acquired_job::Type, Error> {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    // Names that are not given keep the values of the template's active version.
    if let Some(template) = input.template_id
        && let Some(template) = templates::find(tx, template).await?
    {
        for variable in version_details::list_variables(tx, template.active_version_id).await? {
            given.insert(variable.name, variable.value.expose().to_owned());
        }
    }
    given.extend(
        input.user_variable_values.unwrap_or_default().into_iter().map(|pair| (pair.name, pair.value)),
    );
    let sensitive = |(name, value)| VariableValue { name, value, sensitive: true };
    let metadata = Metadata {
        coder_url: session.url.clone(),
        workspace_owner_groups: vec![EVERYONE.to_owned()],
        template_id: input.template_id.map(|id| id.to_string()).unwrap_or_default(),
        template_version_id: text(job.template_version_id),
        ..Metadata::default()
    };
    Ok(acquired_job::Type::TemplateImport(acquired_job::TemplateImport {
        metadata: Some(metadata),
        user_variable_values: given.into_iter().map(sensitive).collect(),
    }))
}

async fn dry_run(
    session: &Session,
    tx: &mut Tx,
    job: &jobs::Job,
    input: Input,
) -> Result<acquired_job::Type, Error> {
    let version = job.template_version_id.ok_or(Error::Missing("template version"))?;
    let metadata = Metadata {
        coder_url: session.url.clone(),
        workspace_name: input.workspace_name,
        workspace_owner_groups: vec![EVERYONE.to_owned()],
        ..Metadata::default()
    };
    let mut variable_values = variables(tx, version).await?;
    for given in input.user_variable_values.unwrap_or_default() {
        if let Some(known) = variable_values.iter_mut().find(|known| known.name == given.name) {
            known.value = given.value;
        }
    }
    Ok(acquired_job::Type::TemplateDryRun(acquired_job::TemplateDryRun {
        rich_parameter_values: values(input.rich_parameter_values),
        variable_values,
        metadata: Some(metadata),
    }))
}

/// Stored variables that have a value or a default, or need one.
async fn variables(tx: &mut Tx, version: TemplateVersionId) -> Result<Vec<VariableValue>, Error> {
    let counts = |variable: &Variable| {
        variable.required
            || !variable.value.expose().is_empty()
            || !variable.default_value.expose().is_empty()
    };
    let all = version_details::list_variables(tx, version).await?;
    Ok(all.into_iter().filter(counts).map(update::value_of).collect())
}

async fn build(
    session: &Session,
    mut tx: Tx,
    job: &jobs::Job,
    input: Input,
) -> Result<acquired_job::Type, Error> {
    let tx_ref = &mut tx;
    let build = match job.workspace_build_id {
        Some(id) => builds::find(tx_ref, id).await?,
        None => None,
    };
    let build = build.ok_or(Error::Missing("workspace build"))?;
    let workspace = workspaces::find(tx_ref, build.workspace_id).await?.ok_or(Error::Missing("workspace"))?;
    let owner = users::find(tx_ref, workspace.owner_id).await?.ok_or(Error::Missing("workspace's owner"))?;
    let version = versions::find(tx_ref, build.template_version_id).await?;
    let version = version.ok_or(Error::Missing("template version"))?;
    let template = templates::find(tx_ref, workspace.template_id).await?.ok_or(Error::Missing("template"))?;
    let member = organizations::find_member(tx_ref, workspace.organization_id, owner.id).await?;
    let parameters = builds::list_parameters(tx_ref, build.id).await?;
    let previous = match builds::find_by_number(tx_ref, workspace.id, build.build_number - 1).await? {
        Some(previous) => builds::list_parameters(tx_ref, previous.id).await?,
        None => BTreeMap::new(),
    };
    let modules = version_details::find_module_file(tx_ref, version.id).await?;
    let variable_values = variables(tx_ref, version.id).await?;
    let state = builds::find_state(tx_ref, build.id).await?.unwrap_or_default();
    drop(tx);

    let app = &session.app;
    let ssh = git_ssh_key::of(&app.store, owner.id, app.now()).await?;
    let token = if build.transition == Transition::Start {
        let lifetime = app.config.sessions.max_token_lifetime;
        let token = session_token::renew(&app.store, &owner, workspace.id, lifetime, app.now()).await?;
        token.expose().to_owned()
    } else {
        session_token::revoke(&app.store, owner.id, workspace.id).await?;
        String::new()
    };
    let site = owner.site_roles.iter().map(|name| Role { name: name.clone(), org_id: String::new() });
    let organization = workspace.organization_id.to_string();
    let local = member.map(|member| member.roles).unwrap_or_default();
    let local = local.into_iter().map(|name| Role { name, org_id: organization.clone() });
    let metadata = Metadata {
        coder_url: session.url.clone(),
        workspace_transition: transition(build.transition) as i32,
        workspace_name: workspace.name.clone(),
        workspace_owner: owner.username.clone(),
        workspace_id: workspace.id.to_string(),
        workspace_owner_id: owner.id.to_string(),
        workspace_owner_email: owner.email.clone(),
        template_name: template.name,
        template_version: version.name,
        workspace_owner_oidc_access_token: String::new(),
        workspace_owner_session_token: token,
        template_id: template.id.to_string(),
        workspace_owner_name: owner.name.clone(),
        workspace_owner_groups: vec![EVERYONE.to_owned()],
        workspace_owner_ssh_public_key: ssh.public_key,
        workspace_owner_ssh_private_key: ssh.private_key.expose().to_owned(),
        workspace_build_id: build.id.to_string(),
        workspace_owner_login_type: owner.login_type.as_str().to_owned(),
        workspace_owner_rbac_roles: site.chain(local).collect(),
        task_id: Uuid::nil().to_string(),
        template_version_id: version.id.to_string(),
        template_version_modules_file: modules.map(|file| file.to_string()).unwrap_or_default(),
        ..Metadata::default()
    };
    app.events.workspace_changed(workspace.id);
    let stored = |all: BTreeMap<String, String>| {
        all.into_iter().map(|(name, value)| RichParameterValue { name, value }).collect()
    };
    Ok(acquired_job::Type::WorkspaceBuild(acquired_job::WorkspaceBuild {
        workspace_build_id: build.id.to_string(),
        workspace_name: workspace.name,
        rich_parameter_values: stored(parameters),
        variable_values,
        external_auth_providers: Vec::new(),
        metadata: Some(metadata),
        state: state.into(),
        log_level: if input.log_level == "debug" { input.log_level } else { String::new() },
        previous_parameter_values: stored(previous),
    }))
}

const fn transition(transition: Transition) -> WorkspaceTransition {
    match transition {
        Transition::Start => WorkspaceTransition::Start,
        Transition::Stop => WorkspaceTransition::Stop,
        Transition::Delete => WorkspaceTransition::Destroy,
    }
}

fn text(id: Option<TemplateVersionId>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}
