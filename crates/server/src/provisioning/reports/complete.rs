//! CompleteJob: a job succeeds, and its results are stored in the same transaction.

use std::collections::HashSet;

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::build::Transition;
use coder_domain::ids::{FileId, JobId, PresetId, TemplateVersionId, WorkspaceId};
use coder_domain::job::{TransitionError, Type};
use coder_domain::schedule::deadline::Deadlines;
use coder_store::jobs::assignments::{self, JobWithBuild};
use coder_store::jobs::{self, journals};
use coder_store::templates::version_details::{self, ExternalAuth, Parameter, ParameterOption, Plan, Preset};
use coder_store::templates::versions;
use coder_store::workspaces::builds::{Build, BuildEnd};
use coder_store::workspaces::{self, builds, schedules};
use coder_store::{Document, Tx, transaction};
use coder_wire::messages::provisioner as wire;
use coder_wire::messages::provisionerd::{CompletedJob, completed_job};
use prost::Message;
use sha2::{Digest, Sha256};

use super::refusal::{self, Refusal};
use super::results::Results;
use super::{module_files, update};
use crate::audit;
use crate::external_auth::providers::ExternalAuthProviders;
use crate::provisioning::session::Session;
use crate::routes::announce;
use crate::schedules::deadlines;

/// The field of the job's private input that holds the hash of the accepted message.
const ACCEPTED: &str = "completed_sha256";

/// A validated message, converted to rows before the transaction begins.
struct CheckedReport {
    results: Results,
    result: JobResult,
    /// An error that fails the job. Its results are stored nevertheless.
    error: Option<String>,
}

enum JobResult {
    Import(Box<Import>),
    DryRun,
    Build { state: Vec<u8>, has_ai_task: bool },
}

struct Import {
    parameters: Vec<Parameter>,
    presets: Vec<Preset>,
    external_auth: Vec<ExternalAuth>,
    plan: Option<Vec<u8>>,
    modules: Modules,
    has_ai_tasks: bool,
    has_external_agents: bool,
}

enum Modules {
    None,
    /// The archive itself, with its hash.
    Inline(String, Bytes),
    /// The hash of an archive that was uploaded before.
    Uploaded(String),
}

/// Answers one call (wire-protocol 5.6). A repeat of the accepted message is accepted and changes nothing. Every other report
/// about an ended job is refused (CONF-16).
pub async fn complete(session: &Session, request: &CompletedJob) -> Result<(), Refusal> {
    let (app, daemon) = (&session.app, session.daemon);
    let job = refusal::job_id(&request.job_id)?;
    let result = request.r#type.as_ref().ok_or_else(|| Refusal::invalid("a completed job needs a type"))?;
    let (kind, digest, holder) = (kind_of(result), digest(request), session.holder(job));
    let found = assignments::find_with_build(&mut app.store.reader().await?, job).await?;
    let JobWithBuild { job: row, build, schedules: stored } = found.ok_or(Refusal::NoSuchJob)?;
    let row = refusal::known(session, Some(row))?;
    match refusal::require(&row, holder) {
        Ok(()) => {}
        Err(TransitionError::AlreadyCompleted) if is_repeat(&row, &digest) => return Ok(()),
        Err(reason) => return Err(reason.into()),
    }
    if row.kind != kind {
        return Err(Refusal::invalid(format!("the job is a {}, not a {}", row.kind.as_str(), kind.as_str())));
    }
    let now = app.now();
    let transition = build.as_ref().map(|build| build.transition);
    let checked = check(&app.external_auth, &row, transition, request.clone(), now)?;
    let input = with_digest(&row.input, &digest);
    let error = checked.error.as_deref().unwrap_or_default();
    let workspace = transaction!(app.store, Refusal, |tx| {
        // This statement comes first: its condition excludes other writers of this job until the commit.
        jobs::complete_with_input(tx, job, holder, &input, error, now).await?;
        checked.results.store(tx, job).await?;
        match &checked.result {
            JobResult::DryRun => Ok(None),
            JobResult::Import(import) => {
                let version = update::imported_version(&row)?;
                store_import(tx, (job, version), import, now).await?;
                audit::job_end::import(tx, &row, error, now).await?;
                Ok(None)
            }
            JobResult::Build { state, has_ai_task } => {
                let build = build.as_ref().ok_or_else(|| Refusal::invalid("the job has no build"))?;
                let stops = match build.transition {
                    Transition::Start => deadlines::of_start(&app.config.schedules, &stored, now),
                    Transition::Stop | Transition::Delete => Deadlines::default(),
                };
                let ended = BuildEnd {
                    has_ai_task: *has_ai_task,
                    has_external_agent: checked.results.has_external_agent(),
                    deadline_at: stops.deadline,
                    max_deadline_at: stops.max_deadline,
                };
                store_build(tx, &row, build, state, ended, now).await.map(Some)
            }
        }
    });
    let workspace = match workspace {
        Err(Refusal::Store(error)) => {
            Err(refusal::explain(&mut app.store.reader().await?, session, job, holder, error).await)
        }
        other => other,
    };
    let workspace = match workspace {
        Ok(workspace) => workspace,
        // The same message may have arrived twice at once.
        Err(Refusal::Job(TransitionError::AlreadyCompleted)) => {
            let row = refusal::known(session, jobs::find(&mut app.store.reader().await?, job).await?)?;
            return if is_repeat(&row, &digest) {
                Ok(())
            } else {
                Err(TransitionError::AlreadyCompleted.into())
            };
        }
        Err(error) => return Err(error),
    };
    session.job_ended(job);
    app.events.job_ended(job);
    if let Some(workspace) = workspace {
        announce::workspace_changed(app, workspace);
    }
    tracing::info!(job_id = %job, daemon_id = %daemon, kind = kind.as_str(), error, "job completed");
    Ok(())
}

const fn kind_of(result: &completed_job::Type) -> Type {
    match result {
        completed_job::Type::TemplateImport(_) => Type::TemplateVersionImport,
        completed_job::Type::TemplateDryRun(_) => Type::TemplateVersionDryRun,
        completed_job::Type::WorkspaceBuild(_) => Type::WorkspaceBuild,
    }
}

/// The hash by which a repeat of an accepted report is recognized.
pub fn digest(request: &impl Message) -> String {
    // Maps are sorted, so equal messages have equal bytes.
    Sha256::digest(request.encode_to_vec()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the report with this digest ended the job.
pub fn is_repeat(row: &jobs::Job, digest: &str) -> bool {
    accepted(row) == Some(digest)
}

/// The digest of the report that ended the job, if a report did.
pub fn accepted(row: &jobs::Job) -> Option<&str> {
    row.input.0.get(ACCEPTED).and_then(serde_json::Value::as_str).filter(|_| row.completed_at.is_some())
}

/// The private input with the digest of the report that ends the job.
pub fn with_digest(input: &Document, digest: &str) -> Document {
    let mut input = input.clone();
    if !input.0.is_object() {
        input.0 = serde_json::Value::Object(serde_json::Map::new());
    }
    if let Some(map) = input.0.as_object_mut() {
        map.insert(ACCEPTED.to_owned(), digest.into());
    }
    input
}

fn check(
    accounts: &ExternalAuthProviders,
    row: &jobs::Job,
    transition: Option<Transition>,
    request: CompletedJob,
    now: Timestamp,
) -> Result<CheckedReport, Refusal> {
    let mut results = Results::default();
    let result = match request.r#type {
        None => return Err(Refusal::invalid("a completed job needs a type")),
        Some(completed_job::Type::TemplateDryRun(found)) => {
            results.add_resources(row.id, Transition::Start, found.resources, now)?;
            results.add_modules(Transition::Start, found.modules);
            JobResult::DryRun
        }
        Some(completed_job::Type::WorkspaceBuild(made)) => {
            let transition = transition.ok_or_else(|| Refusal::invalid("the job has no build"))?;
            results.add_resources(row.id, transition, made.resources, now)?;
            results.add_modules(transition, made.modules);
            results.add_timings(made.timings);
            let is_app = |task: &wire::AiTask| {
                !task.app_id.is_empty() || task.sidebar_app.as_ref().is_some_and(|app| !app.id.is_empty())
            };
            if !made.ai_tasks.iter().all(is_app) {
                return Err(Refusal::invalid("an AI task needs the id of an app"));
            }
            JobResult::Build { state: made.state.to_vec(), has_ai_task: !made.ai_tasks.is_empty() }
        }
        Some(completed_job::Type::TemplateImport(mut found)) => {
            results.add_resources(
                row.id,
                Transition::Start,
                std::mem::take(&mut found.start_resources),
                now,
            )?;
            results.add_resources(
                row.id,
                Transition::Stop,
                std::mem::take(&mut found.stop_resources),
                now,
            )?;
            results.add_modules(Transition::Start, std::mem::take(&mut found.start_modules));
            results.add_modules(Transition::Stop, std::mem::take(&mut found.stop_modules));
            JobResult::Import(Box::new(import(found)?))
        }
    };
    let error = match &result {
        JobResult::Import(import) => {
            import.external_auth.iter().find_map(|auth| not_configured(accounts, auth))
        }
        JobResult::DryRun | JobResult::Build { .. } => None,
    };
    Ok(CheckedReport { results, result, error })
}

fn import(found: completed_job::TemplateImport) -> Result<Import, Refusal> {
    let external_auth = if found.external_auth_providers.is_empty() {
        let named = found.external_auth_providers_names.into_iter();
        named.map(|provider_id| ExternalAuth { provider_id, optional: false }).collect()
    } else {
        let listed = found.external_auth_providers.into_iter();
        listed.map(|auth| ExternalAuth { provider_id: auth.id, optional: auth.optional }).collect()
    };
    let modules = if !found.module_files.is_empty() {
        Modules::Inline(coder_store::files::hash(&found.module_files), found.module_files)
    } else if found.module_files_hash.is_empty() {
        Modules::None
    } else {
        Modules::Uploaded(module_files::text_of_hash(&found.module_files_hash)?)
    };
    let plan = if found.plan.is_empty() {
        // Modules are stored with the plan, so there must be one (wire-protocol 5.6).
        (!matches!(modules, Modules::None)).then(|| b"{}".to_vec())
    } else {
        serde_json::from_slice::<&serde_json::value::RawValue>(&found.plan)
            .map_err(|_| Refusal::invalid("the plan is not valid JSON"))?;
        Some(found.plan.to_vec())
    };
    Ok(Import {
        parameters: unique(found.rich_parameters, |parameter| &parameter.name, "parameter")?
            .into_iter()
            .map(parameter)
            .collect::<Result<_, _>>()?,
        presets: unique(found.presets, |preset| &preset.name, "preset")?.into_iter().map(preset).collect(),
        external_auth,
        plan,
        modules,
        has_ai_tasks: found.has_ai_tasks,
        has_external_agents: found.has_external_agents,
    })
}

/// The error of an import that names an external authentication provider that is not configured, even an optional one
/// (wire-protocol 5.6).
fn not_configured(accounts: &ExternalAuthProviders, auth: &ExternalAuth) -> Option<String> {
    let id = &auth.provider_id;
    accounts.find(id).is_none().then(|| {
        format!(
            "external auth provider {id:?} is not configured on this server: configure it (docs/operators/external-authentication.md), or remove it from the template"
        )
    })
}

fn unique<T>(all: Vec<T>, name: impl Fn(&T) -> &str, what: &str) -> Result<Vec<T>, Refusal> {
    let mut seen = HashSet::new();
    for one in &all {
        if !seen.insert(name(one)) {
            return Err(Refusal::invalid(format!("duplicate {what} name {:?}", name(one))));
        }
    }
    Ok(all)
}

fn parameter(reported: wire::RichParameter) -> Result<Parameter, Refusal> {
    let form_type = form_type(reported.form_type)?;
    let option = |option: wire::RichParameterOption| ParameterOption {
        name: option.name,
        description: option.description,
        value: option.value,
        icon: option.icon,
    };
    Ok(Parameter {
        name: reported.name,
        display_name: reported.display_name,
        description: reported.description,
        kind: reported.r#type,
        form_type: form_type.to_owned(),
        mutable: reported.mutable,
        default_value: reported.default_value,
        icon: reported.icon,
        options: reported.options.into_iter().map(option).collect(),
        validation_regex: reported.validation_regex,
        validation_error: reported.validation_error,
        validation_min: reported.validation_min,
        validation_max: reported.validation_max,
        validation_monotonic: reported.validation_monotonic,
        required: reported.required,
        order: reported.order,
        ephemeral: reported.ephemeral,
    })
}

/// The form types of the official API (wire-protocol 4.6).
fn form_type(number: i32) -> Result<&'static str, Refusal> {
    use wire::ParameterFormType as Form;
    Ok(match Form::try_from(number) {
        Ok(Form::Default) => "",
        Ok(Form::FormError) => "error",
        Ok(Form::Radio) => "radio",
        Ok(Form::Dropdown) => "dropdown",
        Ok(Form::Input) => "input",
        Ok(Form::Textarea) => "textarea",
        Ok(Form::Slider) => "slider",
        Ok(Form::Checkbox) => "checkbox",
        Ok(Form::Switch) => "switch",
        Ok(Form::Tagselect) => "tag-select",
        Ok(Form::Multiselect) => "multi-select",
        Err(_) => return Err(Refusal::invalid(format!("unknown form type {number}"))),
    })
}

fn preset(reported: wire::Preset) -> Preset {
    let prebuild = reported.prebuild.as_ref();
    let expiration = prebuild.and_then(|prebuild| prebuild.expiration_policy).map(|policy| policy.ttl);
    let scheduling = prebuild.and_then(|prebuild| prebuild.scheduling.as_ref()).map(|scheduling| {
        let schedule = scheduling.schedule.iter();
        let schedule = schedule.map(|one| serde_json::json!({"cron": one.cron, "instances": one.instances}));
        serde_json::json!({"timezone": scheduling.timezone, "schedule": schedule.collect::<Vec<_>>()})
    });
    Preset {
        id: PresetId::random(),
        name: reported.name,
        is_default: reported.default,
        description: reported.description,
        icon: reported.icon,
        desired_instances: prebuild.map(|prebuild| i64::from(prebuild.instances)),
        parameters: reported.parameters.into_iter().map(|one| (one.name, one.value)).collect(),
        prebuild: serde_json::json!({"expiration_seconds": expiration, "scheduling": scheduling}),
    }
}

async fn store_import(
    tx: &mut Tx,
    (job, version): (JobId, TemplateVersionId),
    import: &Import,
    now: Timestamp,
) -> Result<(), Refusal> {
    version_details::insert_parameters(tx, version, &import.parameters).await?;
    version_details::insert_presets(tx, version, &import.presets).await?;
    version_details::insert_external_auth(tx, version, &import.external_auth).await?;
    let module_file_id: Option<FileId> = match &import.modules {
        Modules::None => None,
        Modules::Inline(hash, data) => {
            let (size, mut content) = (data.len() as u64, &data[..]);
            Some(module_files::store(tx, hash.clone(), size, &mut content, now).await?)
        }
        Modules::Uploaded(hash) => Some(uploaded(tx, job, version, hash).await?),
    };
    if let (Some(plan), None) = (&import.plan, module_file_id) {
        // The modules of a bundle were stored when the job was handed out.
        version_details::update_plan_alone(tx, version, plan, now).await?;
    } else if let Some(plan) = &import.plan {
        let plan = Plan { plan: plan.clone(), module_file_id, provisioner_version: String::new() };
        version_details::update_plan(tx, version, plan, now).await?;
    }
    versions::update_flags(tx, version, import.has_ai_tasks, import.has_external_agents, now).await?;
    Ok(())
}

/// The archive that a result names by its hash: one that the daemon uploaded for this job, or the one of the version. The hash
/// of another template's modules is not enough.
async fn uploaded(
    tx: &mut Tx,
    job: JobId,
    version: TemplateVersionId,
    hash: &str,
) -> Result<FileId, Refusal> {
    if let Some(id) = jobs::uploads::find(tx, job, hash).await? {
        return Ok(id);
    }
    if let Some(id) = version_details::find_module_file(tx, version).await?
        && coder_store::files::find(tx, id).await?.is_some_and(|file| file.hash == hash)
    {
        return Ok(id);
    }
    Err(Refusal::invalid("the module files were not uploaded before the job was completed"))
}

async fn store_build(
    tx: &mut Tx,
    job: &jobs::Job,
    build: &Build,
    state: &[u8],
    ended: BuildEnd,
    now: Timestamp,
) -> Result<WorkspaceId, Refusal> {
    // A state in the message replaces the journal. Without one, the journal has the newest.
    if !state.is_empty() || !journals::apply(tx, job.id, build.id).await? {
        builds::update_state(tx, build.id, state.to_vec()).await?;
        journals::delete(tx, job.id).await?;
    }
    builds::update_ended(tx, build.id, ended, now).await?;
    if ended.deadline_at.is_some() {
        schedules::look_again(tx, build.workspace_id, now).await?;
    }
    if build.transition == Transition::Delete {
        workspaces::delete(tx, build.workspace_id, now).await?;
    }
    audit::job_end::build(tx, job, build, "", now).await?;
    Ok(build.workspace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_form_types_and_duplicate_names_are_refused() {
        let parameter = |name: &str, form_type| wire::RichParameter {
            name: name.to_owned(),
            form_type,
            ..wire::RichParameter::default()
        };
        let with = |rich_parameters| completed_job::TemplateImport {
            rich_parameters,
            ..completed_job::TemplateImport::default()
        };
        assert!(import(with(vec![parameter("a", 10)])).is_ok());
        assert!(import(with(vec![parameter("a", 11)])).is_err());
        assert!(import(with(vec![parameter("a", 0), parameter("a", 0)])).is_err());
    }

    #[test]
    fn a_plan_is_json_and_modules_have_one() {
        let with = |plan: &'static [u8], modules: &'static [u8]| completed_job::TemplateImport {
            plan: plan.into(),
            module_files: modules.into(),
            ..completed_job::TemplateImport::default()
        };
        assert!(import(with(b"{", b"")).is_err());
        assert!(import(with(b"", b"")).is_ok_and(|import| import.plan.is_none()));
        assert!(import(with(b"", b"tar")).is_ok_and(|import| import.plan.as_deref() == Some(b"{}")));
    }
}
