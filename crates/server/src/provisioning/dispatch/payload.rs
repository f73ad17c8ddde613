//! The message that carries a job to its daemon (wire-protocol 5.4). It is built when the job is claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use coder_domain::build::Transition;
use coder_domain::ids::{JobId, TemplateId, TemplateVersionId, UserId};
use coder_domain::job::Type;
use coder_store::jobs::assignments::{self, Assignment, BuildContext};
use coder_store::templates::version_details::{self, ExternalAuth, Variable};
use coder_store::{Tx, files, jobs, templates};
use coder_wire::drpc::MAX_MESSAGE_SIZE as MAX_MESSAGE;
use coder_wire::messages::provisioner::{
    ExternalAuthProvider, Metadata, RichParameterValue, Role, VariableValue, WorkspaceTransition,
};
use coder_wire::messages::provisionerd::{AcquiredJob, acquired_job};
use futures_util::future::try_join_all;
use prost::Message;
use serde::Deserialize;
use uuid::Uuid;

use super::bundle::{self, TemplateArchive};
use crate::context::App;
use crate::owners::EVERYONE;
use crate::provisioning::credentials::owner_credentials::OwnerCredentials;
use crate::provisioning::credentials::workspace_token;
use crate::provisioning::reports::update;
use crate::provisioning::session::Session;
use crate::{external_auth, git_ssh_key};

/// Why a claimed job cannot be handed out. The text becomes the job's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A row that the job needs does not exist.
    #[error("the job's {0} is missing")]
    Missing(&'static str),
    /// The private input is invalid.
    #[error("the job's input cannot be read: {0}")]
    Input(#[from] serde_json::Error),
    /// The message would be too long.
    #[error(
        "payload was too big: {size} bytes, at most {limit} are possible; make the template's files or the state smaller"
    )]
    TooBig {
        /// Bytes of the message.
        size: usize,
        /// Bytes that a message may have.
        limit: usize,
    },
    /// A token that the template needs has expired and cannot be refreshed.
    #[error(
        "the owner's token of the external auth provider {provider:?} cannot be refreshed, try again: {source}"
    )]
    ExternalAuth {
        /// The provider's id.
        provider: String,
        /// The provider's error.
        source: external_auth::Error,
    },
    /// The message cannot be sent.
    #[error("the job cannot be sent: {0}")]
    Unsendable(String),
    /// The database failed.
    #[error("the database failed while the job was prepared")]
    Store(#[from] coder_store::Error),
}

impl Error {
    /// Whether a retry may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

/// The private input of jobs; each type has some of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    template_id: Option<TemplateId>,
    user_variable_values: Option<Vec<NameValue>>,
    rich_parameter_values: Option<Vec<NameValue>>,
    workspace_name: String,
    log_level: String,
    owner_credentials: OwnerCredentials,
}

#[derive(Deserialize)]
struct NameValue {
    name: String,
    value: String,
}

/// Builds the message for a job that the daemon of `session` has claimed.
pub async fn build_message(session: &Session, id: JobId) -> Result<AcquiredJob, Error> {
    let mut tx = session.app.store.reader().await?;
    let Assignment { job, initiator, archive, context, state } = assignments::get(&mut tx, id).await?;
    let waited =
        job.started_at.map(|at| Duration::try_from(at.duration_since(job.created_at)).unwrap_or_default());
    session.app.metrics.handed_out(job.organization_id, &job.tags, waited.unwrap_or_default());
    let initiator = initiator.ok_or(Error::Missing("initiator"))?;
    let archive = archive.ok_or(Error::Missing("source archive"))?;
    let sources = match archive.data {
        Some(data) => TemplateArchive::Short(data.into()),
        None if archive.size > MAX_MESSAGE as i64 => TemplateArchive::Long(
            files::find(&mut tx, job.file_id).await?.ok_or(Error::Missing("source archive"))?,
        ),
        None => TemplateArchive::Short(files::get_data(&mut tx, job.file_id).await?.into()),
    };
    let input = Input::deserialize(&job.input.0)?;
    let arm = match job.kind {
        Type::TemplateVersionImport => import(session, &mut tx, &job, input).await?,
        Type::TemplateVersionDryRun => dry_run(session, &mut tx, &job, input).await?,
        Type::WorkspaceBuild => {
            let context = context.ok_or(Error::Missing("workspace build"))?;
            build(session, tx, context, state, input).await?
        }
    };
    let mut message = AcquiredJob {
        job_id: job.id.to_string(),
        created_at: job.created_at.as_millisecond(),
        provisioner: job.provisioner,
        user_name: initiator,
        template_source_archive: match &sources {
            TemplateArchive::Short(data) => data.clone(),
            TemplateArchive::Long(_) => Bytes::new(),
        },
        trace_metadata: job.trace_metadata,
        r#type: Some(arm),
    };
    let is_long = matches!(sources, TemplateArchive::Long(_));
    if (is_long || message.encoded_len() > MAX_MESSAGE)
        && let Some(version) = job.template_version_id
    {
        bundle::take_out(session, version, sources, &mut message).await?;
    }
    // A long archive that could not be split is not in the message yet.
    let missing = if is_long && message.template_source_archive.is_empty() { archive.size } else { 0 };
    let size = message.encoded_len() + usize::try_from(missing).unwrap_or_default();
    if size > MAX_MESSAGE {
        return Err(Error::TooBig { size, limit: MAX_MESSAGE });
    }
    Ok(message)
}

fn values(pairs: Option<Vec<NameValue>>) -> Vec<RichParameterValue> {
    let value = |pair: NameValue| RichParameterValue { name: pair.name, value: pair.value };
    pairs.unwrap_or_default().into_iter().map(value).collect()
}

async fn import(
    session: &Session,
    tx: &mut Tx,
    job: &jobs::Job,
    input: Input,
) -> Result<acquired_job::Type, Error> {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    // Variables without a given value keep the values of the template's active version.
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
    // An official daemon downloads modules again. Ours plans with the modules of the builds.
    let modules = version_details::find_module_file(tx, version).await?;
    let metadata = Metadata {
        coder_url: session.url.clone(),
        workspace_name: input.workspace_name,
        workspace_owner_groups: vec![EVERYONE.to_owned()],
        template_version_modules_file: modules.map(|file| file.to_string()).unwrap_or_default(),
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

/// Stored variables that have a value or a default, or are required.
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
    context: BuildContext,
    state: Option<Vec<u8>>,
    input: Input,
) -> Result<acquired_job::Type, Error> {
    let (parameters, previous) = assignments::list_parameters(&mut tx, &context).await?;
    let variable_values =
        if context.has_variables { variables(&mut tx, context.version_id).await? } else { Vec::new() };
    let app = &session.app;
    let requested = if app.external_auth.is_empty() {
        Vec::new()
    } else {
        version_details::list_external_auth(&mut tx, context.version_id).await?
    };
    drop(tx);
    let is_withheld = input.owner_credentials == OwnerCredentials::Withheld;
    let requested = if is_withheld { Vec::new() } else { requested };
    let external_auth_tokens = external_auth_tokens(app, context.owner_id, requested).await?;

    let (workspace, owner) = (context.workspace_id, context.owner_id);
    let owner_name = context.username.ok_or(Error::Missing("workspace's owner"))?;
    let login_type = context.login_type.ok_or(Error::Missing("workspace's owner"))?;
    let (public_key, private_key) = match (context.public_key, context.private_key) {
        (Some(public), Some(private)) => (public, private),
        _ => {
            let generated = git_ssh_key::of(&app.store, owner, app.now()).await?;
            (generated.public_key, generated.private_key)
        }
    };
    let limits = match input.owner_credentials {
        OwnerCredentials::Limited(limits) => Some(limits),
        OwnerCredentials::All | OwnerCredentials::Withheld => None,
    };
    let token = if context.transition == Transition::Start && !is_withheld {
        let lifetime = app.config.sessions.max_token_lifetime;
        workspace_token::renew(app, (owner, login_type), workspace, lifetime, limits).await?
    } else {
        workspace_token::revoke(app, owner, workspace).await?;
        None
    };
    let session_token = token.map(|token| token.expose().to_owned()).unwrap_or_default();
    let private_key = if is_withheld { String::new() } else { private_key.expose().to_owned() };
    // Including the implied roles, as on the official server.
    let site = context.site_roles.unwrap_or_default().into_iter().chain(["member".to_owned()]);
    let site = site.map(|name| Role { name, org_id: String::new() });
    let organization = context.organization_id.to_string();
    let implied = context.member_roles.is_some().then(|| "organization-member".to_owned());
    let local = context.member_roles.into_iter().flatten().chain(implied);
    let local = local.map(|name| Role { name, org_id: organization.clone() });
    let metadata = Metadata {
        coder_url: session.url.clone(),
        workspace_transition: transition(context.transition) as i32,
        workspace_name: context.workspace_name.clone(),
        workspace_owner: owner_name,
        workspace_id: workspace.to_string(),
        workspace_owner_id: owner.to_string(),
        workspace_owner_email: context.email.unwrap_or_default(),
        template_name: context.template_name,
        template_version: context.version_name,
        workspace_owner_oidc_access_token: String::new(),
        workspace_owner_session_token: session_token,
        template_id: context.template_id.to_string(),
        workspace_owner_name: context.name.unwrap_or_default(),
        workspace_owner_groups: vec![EVERYONE.to_owned()],
        workspace_owner_ssh_public_key: public_key,
        workspace_owner_ssh_private_key: private_key,
        workspace_build_id: context.build_id.to_string(),
        workspace_owner_login_type: login_type.as_str().to_owned(),
        workspace_owner_rbac_roles: site.chain(local).collect(),
        task_id: Uuid::nil().to_string(),
        template_version_id: context.version_id.to_string(),
        template_version_modules_file: context
            .module_file_id
            .map(|file| file.to_string())
            .unwrap_or_default(),
        ..Metadata::default()
    };
    app.events.workspace_changed(workspace);
    let stored = |all: BTreeMap<String, String>| {
        all.into_iter().map(|(name, value)| RichParameterValue { name, value }).collect()
    };
    Ok(acquired_job::Type::WorkspaceBuild(acquired_job::WorkspaceBuild {
        workspace_build_id: context.build_id.to_string(),
        workspace_name: context.workspace_name,
        rich_parameter_values: stored(parameters),
        variable_values,
        external_auth_providers: external_auth_tokens,
        metadata: Some(metadata),
        state: state.unwrap_or_default().into(),
        log_level: if input.log_level == "debug" { input.log_level } else { String::new() },
        previous_parameter_values: stored(previous),
    }))
}

/// The valid external authentication tokens of the owner (wire-protocol 5.4). An unavailable provider is an error only if its
/// token is required.
async fn external_auth_tokens(
    app: &App,
    owner: UserId,
    requested: Vec<ExternalAuth>,
) -> Result<Vec<ExternalAuthProvider>, Error> {
    let token = async |requested: ExternalAuth| {
        let Some((provider, _)) = app.external_auth.find(&requested.provider_id) else { return Ok(None) };
        match external_auth::token(app, owner, provider).await? {
            Ok(link) => Ok(link.map(|link| ExternalAuthProvider {
                id: requested.provider_id,
                access_token: link.tokens.access.expose().to_owned(),
            })),
            Err(error) if requested.optional => {
                tracing::warn!(user_id = %owner, provider = provider.id, %error, "a build runs without an optional external authentication token");
                Ok(None)
            }
            Err(source) => Err(Error::ExternalAuth { provider: requested.provider_id, source }),
        }
    };
    Ok(try_join_all(requested.into_iter().map(token)).await?.into_iter().flatten().collect())
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
