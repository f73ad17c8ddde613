//! The list of an organization's jobs, with the names that the list shows.

use coder_domain::ids::{JobId, OrganizationId, TemplateId, UserId, WorkspaceId};
use coder_domain::job::Status;

use super::job::{Job, job_columns};
use crate::Result;
use crate::engine::{Tx, optional_list, record, sql, statements, values};
use crate::tag_sets::TagSetId;

/// Selects the jobs of a list. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only of this organization.
    pub organization_id: Option<OrganizationId>,
    /// One of these.
    pub status: Option<Vec<Status>>,
    /// Only these.
    pub ids: Option<Vec<JobId>>,
    /// Only with one of these tag sets. The caller has matched them.
    pub tag_sets: Option<Vec<TagSetId>>,
    /// Only initiated by this user.
    pub initiator_id: Option<UserId>,
}

record! {
    /// The names that are shown with a job; empty where it has none.
    pub struct JobMetadata {
        /// The name of the daemon that holds or held it.
        pub worker_name: String,
        pub template_version_name: String,
        pub template_id: Option<TemplateId>,
        /// Its template's name.
        pub template_name: String,
        /// Its template's display name.
        pub template_display_name: String,
        /// Its template's icon.
        pub template_icon: String,
        pub workspace_id: Option<WorkspaceId>,
        /// Its workspace's name.
        pub workspace_name: String,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListedJob {
    pub job: Job,
    /// The names that are shown with it.
    pub metadata: JobMetadata,
}

/// The `case` repeats `Record::status` for filtering. A test compares the two.
macro_rules! select {
    ($condition:literal) => {
        concat!("select ", job_columns!(), ", coalesce(worker.name, '') as worker_name,
        coalesce(version.name, '') as template_version_name, template.id as template_id,
        coalesce(template.name, '') as template_name, coalesce(template.display_name, '') as template_display_name,
        coalesce(template.icon, '') as template_icon, workspace.id as workspace_id,
        coalesce(workspace.name, '') as workspace_name
        from provisioner_jobs as job
        join tag_sets as interned on interned.id = job.tag_set_id
        left join provisioner_daemons as worker on worker.id = job.worker_id
        left join template_versions as version on version.id = job.template_version_id
        left join templates as template on template.id = version.template_id
        left join workspace_builds as build on build.id = job.workspace_build_id
        left join workspaces as workspace on workspace.id = build.workspace_id
        where (cast($1 as text) is null or job.organization_id = $1)
        and (cast($2 as text) is null or case
            when job.error <> '' then 'failed'
            when job.completed_us is not null and job.canceled_us is not null then 'canceled'
            when job.completed_us is not null then 'succeeded'
            when job.canceled_us is not null then 'canceling'
            when job.started_us is not null then 'running'
            else 'pending' end in (select value from json_each($2)))
        and (cast($3 as text) is null or job.id in (select value from json_each($3)))
        and (cast($4 as text) is null or job.tag_set_id in (select cast(value as bigint) from json_each($4)))
        and (cast($5 as text) is null or job.initiator_id = $5)
        ", $condition, " order by job.created_us desc, job.id desc limit $6")
    };
}

statements! { "provisioner_jobs";
    LIST = sql(select!(""));
    LIST_OF = sql(select!("and job.organization_id = $1"));
    /// Open jobs are few, and an index covers exactly them. The general statement would read the whole history.
    LIST_OPEN = sql(select!("and job.organization_id = $1 and job.completed_us is null"));
    /// Held jobs are even fewer; this avoids a search among the waiting jobs.
    LIST_HELD = sql(select!("and job.started_us is not null and job.completed_us is null"));
    /// Jobs with given ids are found by the primary key.
    LIST_NAMED = sql(select!("and job.id in (select value from json_each($3))"));
}

/// The newest jobs that match a filter.
pub async fn list(tx: &mut Tx, filter: &JobFilter, limit: i64) -> Result<Vec<ListedJob>> {
    let statuses: Option<Vec<String>> =
        filter.status.as_ref().map(|all| all.iter().map(|status| status.as_str().to_owned()).collect());
    let mut parameters = values![filter.organization_id];
    parameters.push(optional_list(statuses.as_deref()));
    parameters.push(optional_list(filter.ids.as_deref()));
    parameters.push(optional_list(filter.tag_sets.as_deref()));
    parameters.extend(values![filter.initiator_id, limit]);
    let all =
        |condition: fn(&Status) -> bool| filter.status.as_ref().is_some_and(|all| all.iter().all(condition));
    let of_one = filter.organization_id.is_some();
    let statement = match &filter.ids {
        Some(_) => &LIST_NAMED,
        None if all(|status| matches!(status, Status::Running | Status::Canceling)) => &LIST_HELD,
        None if of_one && all(|status| status.is_active()) => &LIST_OPEN,
        None if of_one => &LIST_OF,
        None => &LIST,
    };
    let rows = tx.fetch(statement, parameters).await?;
    rows.iter()
        .map(|row| Ok(ListedJob { job: Job::from_row(row)?, metadata: JobMetadata::from_row(row)? }))
        .collect()
}
