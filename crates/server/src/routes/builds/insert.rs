//! Checks and inserts a new build, with the order of checks in scheduling-and-auth 3.7.

use std::collections::BTreeMap;

use coder_api::json::NameValue;
use coder_domain::Timestamp;
use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::{BuildId, JobId, PresetId, TemplateVersionId, UserId};
use coder_domain::job::{Status, Type};
use coder_domain::queue::is_automatic;
use coder_domain::rbac::{Action, Object, Resource};
use coder_domain::tags::{JobRequirements, TagSet};
use coder_store::jobs::{Job, NewJob};
use coder_store::templates::Template;
use coder_store::templates::versions::Version;
use coder_store::workspaces::Workspace;
use coder_store::workspaces::build_inputs::{self, BuildParameters, PreviousBuild};
use coder_store::workspaces::builds::{Build, NewBuild};
use coder_store::workspaces::{self, builds, schedules};
use coder_store::{Document, Tx, jobs, users};
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::json;

use super::parameters::{GivenParameters, VersionParameters};
use super::{source, tags};
use crate::audit::job_end::{self, AuditContext};
use crate::context::App;
use crate::http::{Caller, Error, Result};
use crate::provisioning::credentials::owner_credentials::OwnerCredentials;
use crate::routes::users::takeover;
use crate::routes::{matching_daemons, templates, versions};

/// The schedule task looks at a workspace so long after a build was requested, and again until the build has ended.
const LOOK_AFTER: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// What the build does.
    pub transition: Transition,
    /// The version; the last build's when `None`.
    pub version: Option<TemplateVersionId>,
    pub preset: Option<PresetId>,
    pub parameters: Vec<NameValue>,
    /// State to build on instead of the last one.
    pub state: Option<Vec<u8>>,
    /// Forget the resources instead of removing them.
    pub orphan: bool,
    pub reason: BuildReason,
    /// Terraform's own debug log.
    pub debug: bool,
}

impl BuildRequest {
    /// A build with defaults.
    #[must_use]
    pub const fn new(transition: Transition) -> Self {
        Self {
            transition,
            version: None,
            preset: None,
            parameters: Vec::new(),
            state: None,
            orphan: false,
            reason: BuildReason::Initiator,
            debug: false,
        }
    }
}

/// Who requests a build.
pub enum Requester<'a> {
    Person(&'a Caller),
    /// The schedule of a workspace, in the name of its owner.
    Schedule {
        owner: UserId,
        /// What the build gets of the owner's credentials.
        credentials: OwnerCredentials,
    },
}

impl Requester<'_> {
    fn user(&self) -> UserId {
        match self {
            Self::Person(caller) => caller.user.id,
            Self::Schedule { owner, .. } => *owner,
        }
    }

    const fn person(&self) -> Option<&Caller> {
        match self {
            Self::Person(caller) => Some(caller),
            Self::Schedule { .. } => None,
        }
    }

    /// Whether the build may use other versions, states and logs than those that everybody may use.
    fn may_update(&self, template: &Template) -> bool {
        self.person().is_some_and(|caller| caller.may(Action::Update, templates::find::of(template)))
    }
}

/// An inserted build. Announce its job after the commit.
pub struct InsertedBuild {
    /// The row.
    pub build: Build,
    pub job: NewJob,
    /// Whether the server completed it at once: an orphan delete without a matching daemon (BLD-3).
    pub finished: bool,
    /// Name of the version that is built.
    pub version_name: String,
}

/// Why a build was not inserted.
pub enum InsertError {
    /// It is refused, also by conflicts at the end of the transaction.
    Refused(Error),
    /// The plan does not fit any more.
    PlanChanged,
}

impl From<Error> for InsertError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<coder_store::Error> for InsertError {
    fn from(error: coder_store::Error) -> Self {
        Self::Refused(conflict(error))
    }
}

/// 409 when another build was inserted at the same time.
fn conflict(error: coder_store::Error) -> Error {
    let is_conflict = matches!(error, coder_store::Error::Stale { table: "workspace_builds" })
        || error.is_conflict_on("workspace_builds", "build_number");
    if is_conflict { active() } else { error.into() }
}

impl From<InsertError> for Error {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::Refused(error) => error,
            InsertError::PlanChanged => {
                Self::conflict("The template or the workspace was changed at the same time. Try again.")
            }
        }
    }
}

/// How often a build is planned when its template or workspace is changed before the insertion.
const PLAN_ATTEMPTS: usize = 3;

/// Plans and inserts a build, again when the plan did not fit any more.
pub async fn until_plan_fits<T, F>(attempt: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, InsertError>>,
{
    for _ in 1..PLAN_ATTEMPTS {
        match attempt().await {
            Err(InsertError::PlanChanged) => {}
            result => return Ok(result?),
        }
    }
    Ok(attempt().await?)
}

/// What a build will be, computed before the transaction that inserts it: reading a source, evaluating expressions and matching
/// patterns take a time in which others could write nothing.
pub struct BuildPlan {
    version: Version,
    import: Job,
    preset: Option<PresetId>,
    values: BTreeMap<String, String>,
    tags: TagSet,
    /// The build that it follows, and the template's last change.
    follows: Option<BuildId>,
    template_updated_at: Timestamp,
}

impl BuildPlan {
    /// Checks a build and computes its parameters and tags.
    pub async fn new(
        app: &App,
        requester: &Requester<'_>,
        (workspace, template, previous): (&Workspace, &Template, &PreviousBuild),
        request: &BuildRequest,
        now: Timestamp,
    ) -> Result<Self> {
        let last = previous.last.as_ref();
        let mut tx = app.store.reader().await?;
        let (version, import) = version_for(&mut tx, requester, template, request, last).await?;
        check_import(&version, &import)?;
        check_workspace(workspace, previous)?;
        extras(app, requester, template, request)?;
        let BuildParameters { definitions, values, has_presets } =
            build_inputs::list_parameters(&mut tx, version.id, last.map(|last| last.id)).await?;
        let given = GivenParameters {
            transition: Some(request.transition),
            preset: request.preset,
            request: request.parameters.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect(),
            last: last.map(|_| values),
        };
        let known = VersionParameters::with(&mut tx, version.id, definitions, has_presets, &given).await?;
        let flow = versions::tags::flow(Some(template));
        let source = source::find(&mut tx, flow, &version, import.file_id, workspace.owner_id, now).await?;
        drop(tx);
        let resolved = known.resolve(app, requester.user(), source, given).await?;
        let tags =
            tags::resolve(resolved.source.as_ref(), &import, workspace.owner_id, &resolved.values).await?;
        let values = resolved.values;
        let preset = request.preset.or_else(|| known.matching_preset(&values));
        let (follows, template_updated_at) = (last.map(|last| last.id), template.updated_at);
        Ok(Self { version, import, preset, values, tags, follows, template_updated_at })
    }

    /// Checks that nothing has changed that the plan was made from.
    pub fn require_fit(
        &self,
        template: &Template,
        previous: &PreviousBuild,
    ) -> std::result::Result<(), InsertError> {
        let fits = self.follows == previous.last.as_ref().map(|last| last.id)
            && self.template_updated_at == template.updated_at;
        if fits { Ok(()) } else { Err(InsertError::PlanChanged) }
    }
}

fn check_import(version: &Version, import: &Job) -> Result<()> {
    match import.status() {
        Status::Pending | Status::Running | Status::Canceling => {
            let text = format!(
                "The provided template version is {}. Wait for it to complete importing!",
                import.status()
            );
            Err(Error::new(StatusCode::NOT_ACCEPTABLE, text))
        }
        Status::Failed | Status::Canceled => {
            let text = format!(
                "The provided template version {:?} has failed to import: {:?}. You cannot build workspaces with it!",
                version.name, import.error
            );
            Err(Error::bad_request(text))
        }
        Status::Succeeded => Ok(()),
    }
}

fn check_workspace(workspace: &Workspace, previous: &PreviousBuild) -> Result<()> {
    if previous.last.is_some() && previous.last_ended_at.is_none() {
        return Err(active());
    }
    if workspace.deleted {
        return Err(Error::conflict("Workspace is deleted and cannot be built."));
    }
    Ok(())
}

/// Inserts a build. The caller has checked that the workspace may be started, stopped or deleted, and that the plan fits.
pub async fn insert(
    app: &App,
    tx: &mut Tx,
    requester: &Requester<'_>,
    (workspace, previous): (&Workspace, &PreviousBuild),
    request: &BuildRequest,
    plan: &BuildPlan,
    now: Timestamp,
) -> Result<InsertedBuild> {
    check_workspace(workspace, previous)?;
    let BuildPlan { version, import, preset, values, tags, .. } = plan;
    let build_id = BuildId::random();
    let mut input = json!({
        "workspace_build_id": build_id,
        "dry_run": false,
        "log_level": if request.debug { "debug" } else { "" },
        "owner_credentials": owner_credentials(tx, requester, workspace).await?,
    });
    let origin = requester.person().map(|caller| (*caller.origin).clone()).unwrap_or_default();
    AuditContext::new(&workspace.name, &previous.owner_name, &origin).store_in(&mut input);
    let tag_set = Some(import.tag_set_id).filter(|_| import.tags == *tags);
    let job = NewJob {
        id: JobId::random(),
        organization_id: workspace.organization_id,
        initiator_id: requester.user(),
        automatic: is_automatic(requester.user(), Some(request.reason)),
        kind: Type::WorkspaceBuild,
        provisioner: import.provisioner.clone(),
        file_id: import.file_id,
        tags: tags.clone(),
        template_version_id: Some(version.id),
        workspace_build_id: Some(build_id),
        input: Document(input),
        trace_metadata: BTreeMap::new(),
    };
    jobs::insert_with_tag_set(tx, &job, tag_set, now).await?;
    let build =
        write(tx, requester.user(), (workspace, previous), request, &job, (version, *preset), values, now)
            .await?;
    let is_use = requester.person().is_some() && request.transition == Transition::Start;
    let look_at = now.checked_add(LOOK_AFTER).unwrap_or(now);
    schedules::build_inserted(tx, workspace.id, look_at, is_use.then_some(now)).await?;
    let finished = request.orphan && finish_orphan(app, tx, workspace, &build, &job, now).await?;
    Ok(InsertedBuild { build, job, finished, version_name: version.name.clone() })
}

async fn owner_credentials(
    tx: &mut Tx,
    requester: &Requester<'_>,
    workspace: &Workspace,
) -> Result<OwnerCredentials> {
    match requester {
        Requester::Person(caller) => credentials_for(tx, caller, workspace.owner_id).await,
        Requester::Schedule { credentials, .. } => Ok(credentials.clone()),
    }
}

/// What a build gets of the owner's credentials when this person requests it: nothing when another person does who may not act
/// as the owner.
pub async fn credentials_for(tx: &mut Tx, caller: &Caller, owner: UserId) -> Result<OwnerCredentials> {
    if owner != caller.user.id {
        let owner = users::get(tx, owner).await?;
        if !takeover::is_allowed(tx, caller, &owner).await? {
            return Ok(OwnerCredentials::Withheld);
        }
    }
    Ok(OwnerCredentials::requested_with(&caller.key))
}

/// The version to build: the requested one, the last build's, or the template's active one (BLD-1).
async fn version_for(
    tx: &mut Tx,
    requester: &Requester<'_>,
    template: &Template,
    request: &BuildRequest,
    last: Option<&Build>,
) -> Result<(Version, Job)> {
    let missing = || {
        Error::bad_request("Template version does not exist.")
            .field("template_version_id", "template version not found")
    };
    let active = template.active_version_id;
    let free = requester.may_update(template);
    let bound = request.transition == Transition::Start && template.settings.require_active_version && !free;
    let id = match (request.version, last) {
        (Some(id), _) => id,
        (None, _) if bound => active,
        (None, Some(last)) => last.template_version_id,
        (None, None) => active,
    };
    let (version, import) = build_inputs::find_version(tx, id).await?.ok_or_else(missing)?;
    if version.template_id != Some(template.id) {
        if let Some(caller) = requester.person() {
            versions::find::readable(tx, caller, id).await?.ok_or_else(missing)?;
        }
        return Err(Error::bad_request("Template version doesn't match the workspace's template.")
            .field("template_version_id", "template version doesn't match template"));
    }
    if bound && version.id != active {
        return Err(Error::new(
            StatusCode::FORBIDDEN,
            "The template requires its active version, use that one.",
        ));
    }
    Ok((version, import))
}

/// Checks the rights for state, orphaning and debug logs, which need more than the right to build.
fn extras(app: &App, requester: &Requester<'_>, template: &Template, request: &BuildRequest) -> Result<()> {
    if (request.state.is_some() || request.orphan) && !requester.may_update(template) {
        return Err(Error::new(StatusCode::FORBIDDEN, "Only template managers may provide custom state."));
    }
    if request.orphan && request.transition != Transition::Delete {
        return Err(Error::bad_request("Orphan is only permitted when deleting a workspace."));
    }
    if request.orphan && request.state.is_some() {
        return Err(Error::bad_request("Custom state cannot be provided when orphaning a workspace."));
    }
    if request.debug {
        let may_read = |caller: &Caller| caller.may(Action::Read, Object::site(Resource::Deployment));
        if !requester.person().is_some_and(may_read) {
            return Err(Error::bad_request(
                "Workspace builds with a custom log level are restricted to administrators only.",
            ));
        }
        if !app.config.workspaces.terraform_debug {
            return Err(Error::bad_request(
                "Terraform debug mode is disabled in the deployment configuration.",
            ));
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "each is a different thing the rows are made of")]
async fn write(
    tx: &mut Tx,
    initiator: UserId,
    (workspace, previous): (&Workspace, &PreviousBuild),
    request: &BuildRequest,
    job: &NewJob,
    (version, preset): (&Version, Option<PresetId>),
    values: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<Build> {
    let id = job.workspace_build_id.expect("build jobs are made with their build's id");
    let last = previous.last.as_ref();
    let new = NewBuild {
        id,
        workspace_id: workspace.id,
        template_version_id: version.id,
        template_version_preset_id: preset,
        job_id: job.id,
        initiator_id: initiator,
        transition: request.transition,
        reason: request.reason,
    };
    let build_number = last.map_or(0, |last| last.build_number) + 1;
    builds::insert_numbered(tx, &new, build_number, now).await.map_err(conflict)?;
    builds::insert_parameters(tx, id, values).await?;
    match (&request.state, last) {
        (Some(state), _) => builds::update_state(tx, id, state.clone()).await?,
        (None, Some(last)) if !request.orphan => {
            builds::copy_known_state(tx, id, last.id, previous.last_state_sealed).await?;
        }
        _ => {}
    }
    if request.transition == Transition::Start && workspace.dormant_at.is_some() {
        let awake = Workspace { dormant_at: None, deleting_at: None, updated_at: now, ..workspace.clone() };
        workspaces::update(tx, &awake).await?;
    }
    Ok(Build {
        id,
        workspace_id: workspace.id,
        build_number,
        template_version_id: version.id,
        template_version_preset_id: preset,
        job_id: job.id,
        initiator_id: initiator,
        transition: request.transition,
        reason: request.reason,
        daily_cost: 0,
        deadline_at: None,
        max_deadline_at: None,
        has_ai_task: None,
        has_external_agent: None,
        created_at: now,
        updated_at: now,
    })
}

/// Completes an orphan delete when no daemon could run it (BLD-3).
async fn finish_orphan(
    app: &App,
    tx: &mut Tx,
    workspace: &Workspace,
    build: &Build,
    job: &NewJob,
    now: Timestamp,
) -> Result<bool> {
    let demand =
        JobRequirements { organization: job.organization_id, provisioner: &job.provisioner, tags: &job.tags };
    if matching_daemons::count(app, tx, &demand, now).await?.available > 0 {
        return Ok(false);
    }
    jobs::finish_unclaimed(tx, job.id, "", now).await?;
    workspaces::delete(tx, workspace.id, now).await?;
    let job = jobs::get(tx, job.id).await?;
    job_end::build(tx, &job, build, "", now).await?;
    Ok(true)
}

fn active() -> Error {
    Error::conflict("A workspace build is already active.")
}
