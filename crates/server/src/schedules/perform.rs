//! Looks at one workspace, and does what is due: everything in one transaction, so that two servers never do it twice.

use coder_domain::Timestamp;
use coder_domain::ids::{UserId, WorkspaceId};
use coder_domain::schedule::decide::{self, Decision, Facts, LastBuild, OwnerStatus, ScheduledAction};
use coder_domain::tags::JobRequirements;
use coder_store::jobs::{self, Job};
use coder_store::users::UserStatus;
use coder_store::workspaces::build_inputs::{self, BuildInputs};
use coder_store::workspaces::schedules::{self as rows, Schedule};
use coder_store::workspaces::{self, Workspace};
use coder_store::{Tx, transaction};
use http::StatusCode;
use jiff::SignedDuration;

use super::autostart;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::Error;
use crate::http::origin::Origin;
use crate::provisioning::credentials::owner_credentials::OwnerCredentials;
use crate::routes::builds::create::after;
use crate::routes::builds::insert::{self, BuildPlan, BuildRequest, InsertedBuild, Requester};
use crate::routes::{announce, matching_daemons};

/// A removal that is held back is looked at again after this time.
const REMOVAL_RETRY: SignedDuration = SignedDuration::from_mins(1);

/// What there is to decide about.
struct Seen {
    schedule: Schedule,
    inputs: BuildInputs,
    /// The job of the last build.
    job: Job,
    /// When the workspace was to be looked at.
    due: Timestamp,
    decision: Decision,
    /// Why it does not start by its schedule.
    note: String,
}

/// What came of a look.
enum Looked {
    /// Nothing was due, or it waits.
    Nothing,
    Done(ScheduledAction, Option<Box<InsertedBuild>>),
}

/// Why a look did not end with what was due.
enum Failure {
    Store(coder_store::Error),
    /// The action could not be done; it is tried again.
    Refused(ScheduledAction, Timestamp, Error),
    /// Something changed at the same time.
    Changed,
}

impl From<coder_store::Error> for Failure {
    fn from(error: coder_store::Error) -> Self {
        Self::Store(error)
    }
}

/// Looks at a workspace. With `hold_removals`, it becomes neither dormant nor deleted now.
pub async fn look_at(app: &App, id: WorkspaceId, hold_removals: bool) -> Result<(), coder_store::Error> {
    let now = app.now();
    match look(app, id, hold_removals, now).await {
        Ok(Looked::Nothing) => Ok(()),
        Ok(Looked::Done(action, build)) => {
            match &build {
                Some(build) => after(app, build),
                None => announce::workspace_changed(app, id),
            }
            let build_id = build.map(|build| build.build.id.to_string()).unwrap_or_default();
            tracing::info!(workspace_id = %id, reason = action.name(), build_id, "a schedule was carried out");
            Ok(())
        }
        Err(Failure::Refused(action, due, error)) => postpone(app, id, action, due, &error).await,
        // The workspace is looked at again, because it changed.
        Err(
            Failure::Changed
            | Failure::Store(coder_store::Error::Stale { .. } | coder_store::Error::Conflict { .. }),
        ) => Ok(()),
        Err(Failure::Store(error)) => Err(error),
    }
}

/// Decides, plans the build outside of a transaction, and carries it out in one, if the decision is still the same.
async fn look(app: &App, id: WorkspaceId, hold_removals: bool, now: Timestamp) -> Result<Looked, Failure> {
    let seen = see(&mut app.store.reader().await?, id, now).await?;
    let planned = match seen {
        Some(Seen { decision: Decision { action: Some((action, due)), .. }, .. })
            if action.build().is_none() || hold_removals && action.is_removal() =>
        {
            Some((action, due, None))
        }
        Some(seen) => match seen.decision.action {
            Some((action, due)) => {
                let build = plan(app, &seen, action, now).await;
                Some((action, due, build.map_err(|error| Failure::Refused(action, due, error))?))
            }
            None => None,
        },
        None => return Ok(Looked::Nothing),
    };
    transaction!(app.store, Failure, |tx| {
        let Some(seen) = see(tx, id, now).await? else { return Ok(Looked::Nothing) };
        let Some((action, due, build)) = &planned else {
            if seen.decision.action.is_some() {
                return Err(Failure::Changed);
            }
            rows::update_due(tx, id, seen.decision.next_look, &seen.note, seen.due).await?;
            return Ok(Looked::Nothing);
        };
        if seen.decision.action != Some((*action, *due)) {
            return Err(Failure::Changed);
        }
        if hold_removals && action.is_removal() {
            let note = format!("{}: waits, because the clock of the server was set", action.name());
            rows::update_due(tx, id, now.checked_add(REMOVAL_RETRY).ok(), &note, seen.due).await?;
            return Ok(Looked::Nothing);
        }
        let Seen { inputs: BuildInputs { mut workspace, template, previous }, .. } = seen;
        if let ScheduledAction::Dormancy { .. } = action {
            let rules = template.settings.schedule_rules();
            workspace = make_dormant(tx, workspace, rules.time_til_deletion, now).await?;
        }
        let Some((requester, request, plan)) = build else { return Ok(Looked::Done(*action, None)) };
        if plan.require_fit(&template, &previous).is_err() {
            return Err(Failure::Changed);
        }
        let refused = |error| Failure::Refused(*action, *due, error);
        let inserted = insert::insert(app, tx, requester, (&workspace, &previous), request, plan, now).await;
        let inserted = inserted.map_err(refused)?;
        require_daemon(app, tx, &inserted, now).await.map_err(refused)?;
        Ok(Looked::Done(*action, Some(Box::new(inserted))))
    })
}

/// The facts about a workspace that is due, and what they decide. None when it is not due any more.
async fn see(tx: &mut Tx, id: WorkspaceId, now: Timestamp) -> Result<Option<Seen>, coder_store::Error> {
    let Some(schedule) = rows::find(tx, id).await? else { return Ok(None) };
    let Some(due) = schedule.due_at.filter(|due| *due <= now) else { return Ok(None) };
    let Some(inputs) = build_inputs::find(tx, id).await? else { return Ok(None) };
    let Some(last) = &inputs.previous.last else { return Ok(None) };
    let Some(job) = jobs::find(tx, last.job_id).await? else { return Ok(None) };
    let own = autostart(inputs.workspace.autostart_schedule.as_deref());
    let rules = inputs.template.settings.schedule_rules();
    let facts = Facts {
        rules: &rules,
        owner: owner(&schedule),
        build: LastBuild {
            transition: last.transition,
            status: job.status(),
            created_at: last.created_at,
            ended_at: job.completed_at,
            deadline: last.deadline_at,
        },
        autostart: own.as_ref(),
        last_used_at: inputs.workspace.last_used_at,
        dormant_at: inputs.workspace.dormant_at,
        deleting_at: inputs.workspace.deleting_at,
    };
    let decision = match inputs.workspace.owner_id {
        // The life of a prebuilt workspace is not that of a person's.
        UserId::PREBUILDS => Decision { action: None, next_look: None },
        _ => decide::decide(&facts, now),
    };
    let note = decide::why_no_autostart(&facts).map(|why| format!("autostart: {why}")).unwrap_or_default();
    Ok(Some(Seen { schedule, inputs, job, due, decision, note }))
}

/// The build that an action needs, in the name of the owner.
async fn plan(
    app: &App,
    seen: &Seen,
    action: ScheduledAction,
    now: Timestamp,
) -> Result<Option<(Requester<'static>, BuildRequest, BuildPlan)>, Error> {
    let Some((transition, reason)) = action.build() else { return Ok(None) };
    let BuildInputs { workspace, template, previous } = &seen.inputs;
    let follows = workspace.automatic_updates == "always" || template.settings.require_active_version;
    let request = BuildRequest {
        version: (action == ScheduledAction::Start && follows).then_some(template.active_version_id),
        reason,
        ..BuildRequest::new(transition)
    };
    let credentials = credentials(action, &seen.schedule, &seen.job);
    let requester = Requester::Schedule { owner: workspace.owner_id, credentials };
    let plan = BuildPlan::new(app, &requester, (workspace, template, previous), &request, now).await?;
    Ok(Some((requester, request, plan)))
}

/// Refuses a build that no daemon could run: in the queue it would fail after a while, and a workspace whose last build failed
/// is not started any more.
async fn require_daemon(
    app: &App,
    tx: &mut Tx,
    inserted: &InsertedBuild,
    now: Timestamp,
) -> Result<(), Error> {
    let job = &inserted.job;
    let demand =
        JobRequirements { organization: job.organization_id, provisioner: &job.provisioner, tags: &job.tags };
    if matching_daemons::count(app, tx, &demand, now).await?.available > 0 {
        return Ok(());
    }
    Err(Error::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("no provisioner daemon with the tags {} was seen in the last 90 seconds", job.tags),
    ))
}

fn owner(schedule: &Schedule) -> OwnerStatus {
    match schedule.owner_status {
        _ if schedule.owner_deleted => OwnerStatus::Suspended,
        UserStatus::Active => OwnerStatus::Active,
        UserStatus::Dormant => OwnerStatus::Dormant,
        UserStatus::Suspended => OwnerStatus::Suspended,
    }
}

async fn make_dormant(
    tx: &mut Tx,
    before: Workspace,
    time_til_deletion: SignedDuration,
    now: Timestamp,
) -> Result<Workspace, coder_store::Error> {
    let deleting_at = now.checked_add(time_til_deletion).ok().filter(|_| time_til_deletion.is_positive());
    let row = Workspace { dormant_at: Some(now), deleting_at, updated_at: now, ..before.clone() };
    workspaces::update(tx, &row).await?;
    Event::new(Verb::Write, Kind::Workspace, row.id.0, row.name.as_str())
        .in_organization(row.organization_id)
        .change("dormant_at", before.dormant_at, row.dormant_at)
        .change("deleting_at", before.deleting_at, row.deleting_at)
        .note("automatic_reason", "dormancy")
        .write(tx, row.owner_id, &Origin::default(), now)
        .await?;
    Ok(row)
}

/// A start gets of the owner's credentials what the person who set the schedule might get, everything else what the last build got.
/// So a schedule gives a template no more than the last change of the schedule or the last build did.
fn credentials(action: ScheduledAction, schedule: &Schedule, last_job: &Job) -> OwnerCredentials {
    let read = |value: serde_json::Value| serde_json::from_value(value).ok();
    let of_schedule = schedule.credentials.as_deref().filter(|_| action == ScheduledAction::Start);
    let of_schedule =
        of_schedule.map(|text| serde_json::from_str(text).unwrap_or(OwnerCredentials::Withheld));
    let of_last = || last_job.input.0.get("owner_credentials").cloned().and_then(read);
    of_schedule.or_else(of_last).unwrap_or(OwnerCredentials::Withheld)
}

/// Notes why an action could not be done, and when it is tried again.
async fn postpone(
    app: &App,
    id: WorkspaceId,
    action: ScheduledAction,
    due: Timestamp,
    error: &Error,
) -> Result<(), coder_store::Error> {
    let now = app.now();
    // A person was faster: the build goes on, and the workspace is looked at when it has ended.
    let is_conflict = error.status() == StatusCode::CONFLICT;
    let note = if is_conflict { String::new() } else { format!("{}: {}", action.name(), error.summary()) };
    let again = decide::next_try(due, now);
    let is_new = transaction!(app.store, coder_store::Error, |tx| {
        let Some(read) = rows::find(tx, id).await?.and_then(|found| found.due_at) else { return Ok(false) };
        let before = workspaces::find(tx, id).await?.map(|found| found.schedule_note).unwrap_or_default();
        let stored = rows::update_due(tx, id, Some(again), &note, read).await?;
        Ok(stored && before != note)
    })?;
    if is_new && !note.is_empty() {
        let (summary, cause) = (error.summary(), error.cause());
        tracing::warn!(
            workspace_id = %id, reason = action.name(), error = summary, cause, next_try = %again,
            "a schedule could not be carried out"
        );
        announce::workspace_changed(app, id);
    }
    Ok(())
}
