//! Converts builds to the API type.

use std::collections::HashMap;

use coder_api::builds::WorkspaceBuild;
use coder_api::daemons::MatchedProvisioners;
use coder_domain::build::WorkspaceStatus;
use coder_domain::ids::{BuildId, TemplateVersionId, UserId};
use coder_domain::job::Status;
use coder_store::jobs::Job;
use coder_store::templates::versions;
use coder_store::workspaces::Workspace;
use coder_store::workspaces::build_inputs::PreviousBuild;
use coder_store::workspaces::builds::Build;
use coder_store::{Tx, jobs as store, users, workspaces};

use super::insert::InsertedBuild;
use crate::context::App;
use crate::http::{Caller, Error, Result};
use crate::routes::versions::create::waiting;
use crate::routes::{jobs, matching_daemons, resources};

/// What a view contains beyond the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    Plain,
    /// How many daemons could take a waiting build.
    Matches,
    /// The same, for a build that was just inserted.
    Fresh,
}

/// Loads builds with related rows, one statement per table.
pub async fn load(
    app: &App,
    tx: &mut Tx,
    rows: &[Build],
    owners: &HashMap<coder_domain::ids::WorkspaceId, Workspace>,
    detail: Detail,
) -> Result<Vec<WorkspaceBuild>> {
    let job_ids: Vec<_> = rows.iter().map(|row| row.job_id).collect();
    let found = store::find_many(tx, &job_ids).await?;
    // A new build has no queue position; clients read again (scheduling-and-auth QUE-6).
    let placed: Vec<_> = if detail == Detail::Fresh { Vec::new() } else { found.iter().collect() };
    let places = jobs::places(app, tx, &placed).await?;
    let ended: Vec<_> = found.iter().filter(|job| job.completed_at.is_some()).map(|job| job.id).collect();
    let mut made = resources::of_jobs(app, tx, &ended).await?;
    let found: HashMap<_, _> = found.into_iter().map(|job| (job.id, job)).collect();
    let people: Vec<UserId> =
        rows.iter().map(|row| row.initiator_id).chain(owners.values().map(|row| row.owner_id)).collect();
    let people: HashMap<_, _> =
        users::find_many(tx, &people).await?.into_iter().map(|row| (row.id, row)).collect();
    let version_ids: Vec<TemplateVersionId> = rows.iter().map(|row| row.template_version_id).collect();
    let names = versions::find_many(tx, &version_ids).await?;
    let names: HashMap<_, _> = names.into_iter().map(|version| (version.id, version.name)).collect();
    let mut views = Vec::with_capacity(rows.len());
    for row in rows {
        let (Some(job), Some(workspace)) = (found.get(&row.job_id), owners.get(&row.workspace_id)) else {
            continue;
        };
        let waits = detail != Detail::Plain && job.status() == Status::Pending;
        let matching = if waits {
            matching_daemons::for_job(app, tx, job, row.created_at).await?
        } else {
            MatchedProvisioners::default()
        };
        let owner = people.get(&workspace.owner_id);
        views.push(one(ViewInput {
            build: row,
            job,
            place: places.get(&job.id).copied().unwrap_or_default(),
            workspace,
            owner_name: owner.map(|user| user.username.clone()).unwrap_or_default(),
            owner_avatar_url: owner.map(|user| user.avatar_url.clone()).unwrap_or_default(),
            initiator_name: people
                .get(&row.initiator_id)
                .map(|user| user.username.clone())
                .unwrap_or_default(),
            version_name: names.get(&row.template_version_id).cloned().unwrap_or_default(),
            resources: made.remove(&job.id).unwrap_or_default(),
            matched: matching,
        }));
    }
    Ok(views)
}

pub async fn load_id(app: &App, tx: &mut Tx, id: BuildId, detail: Detail) -> Result<WorkspaceBuild> {
    let build = workspaces::builds::get(tx, id).await?;
    let workspace = workspaces::find(tx, build.workspace_id).await?.ok_or_else(Error::not_found)?;
    load_one(app, tx, build, workspace, detail).await
}

/// One build.
pub async fn load_one(
    app: &App,
    tx: &mut Tx,
    build: Build,
    workspace: Workspace,
    detail: Detail,
) -> Result<WorkspaceBuild> {
    let owners = HashMap::from([(workspace.id, workspace)]);
    load(app, tx, &[build], &owners, detail).await?.pop().ok_or_else(Error::not_found)
}

/// A build that was just inserted, without reading it back. It has no queue position; clients read again
/// (scheduling-and-auth QUE-6).
pub async fn inserted(
    app: &App,
    tx: &mut Tx,
    caller: &Caller,
    made: InsertedBuild,
    workspace: &Workspace,
    previous: PreviousBuild,
) -> Result<WorkspaceBuild> {
    let at = made.build.created_at;
    let job = waiting(made.job, at);
    let matched = matching_daemons::for_job(app, tx, &job, at).await?;
    Ok(one(ViewInput {
        build: &made.build,
        job: &job,
        place: coder_store::jobs::queue::QueuePosition::default(),
        workspace,
        owner_name: previous.owner_name,
        owner_avatar_url: previous.owner_avatar_url,
        initiator_name: caller.user.username.clone(),
        version_name: made.version_name,
        resources: Vec::new(),
        matched,
    }))
}

/// The rows behind the view of a build.
pub struct ViewInput<'a> {
    /// The row.
    pub build: &'a Build,
    pub job: &'a Job,
    /// Where the job waits.
    pub place: coder_store::jobs::queue::QueuePosition,
    pub workspace: &'a Workspace,
    /// The workspace's owner.
    pub owner_name: String,
    /// The URL of the owner's avatar.
    pub owner_avatar_url: String,
    /// Who caused it.
    pub initiator_name: String,
    /// What it builds.
    pub version_name: String,
    /// What it made.
    pub resources: Vec<coder_api::resources::WorkspaceResource>,
    /// How many daemons could run it.
    pub matched: MatchedProvisioners,
}

pub fn one(input: ViewInput<'_>) -> WorkspaceBuild {
    let ViewInput { build, job, workspace, .. } = input;
    WorkspaceBuild {
        id: build.id,
        created_at: build.created_at,
        updated_at: build.updated_at,
        workspace_id: workspace.id,
        workspace_name: workspace.name.clone(),
        workspace_owner_id: workspace.owner_id,
        workspace_owner_name: input.owner_name,
        workspace_owner_avatar_url: input.owner_avatar_url,
        template_version_id: build.template_version_id,
        template_version_name: input.version_name,
        build_number: build.build_number,
        transition: build.transition,
        initiator_id: build.initiator_id,
        initiator_name: input.initiator_name,
        job: jobs::view(job, input.place),
        reason: build.reason,
        resources: input.resources,
        deadline: build.deadline_at,
        max_deadline: build.max_deadline_at,
        status: WorkspaceStatus::of(build.transition, job.status()),
        daily_cost: build.daily_cost,
        matched_provisioners: input.matched,
        template_version_preset_id: build.template_version_preset_id,
        has_ai_task: build.has_ai_task,
        has_external_agent: build.has_external_agent,
    }
}
