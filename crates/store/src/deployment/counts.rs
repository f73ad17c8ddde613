//! Counts of workspaces and users for metrics. The queries are aggregates and run rarely.

use coder_domain::build::Transition;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};

record! {
    /// The number of workspaces with equal labels.
    pub struct LatestBuilds {
        /// The template's name.
        pub template_name: String,
        /// The version's name.
        pub template_version: String,
        /// The owner's user name.
        pub workspace_owner: String,
        /// What the build does.
        pub transition: Transition,
        /// The status of its job.
        pub status: String,
        /// So many.
        pub total: i64,
    }
}

macro_rules! latest {
    () => {
        " from workspaces as workspace
        join workspace_builds as build on build.workspace_id = workspace.id and build.build_number =
            (select max(newest.build_number) from workspace_builds as newest where newest.workspace_id = workspace.id)
        join provisioner_jobs as job on job.id = build.job_id"
    };
}

macro_rules! status {
    () => {
        "case when job.error <> '' then 'failed'
            when job.completed_us is not null and job.canceled_us is not null then 'canceled'
            when job.completed_us is not null then 'succeeded'
            when job.canceled_us is not null then 'canceling'
            when job.started_us is not null then 'running'
            else 'pending' end"
    };
}

statements! { "workspaces";
    BY_STATUS = sql(concat!("select latest.status, count(*) as total from (select ", status!(), " as status", latest!(),
        " where not workspace.deleted) as latest group by latest.status"));
    LATEST = sql(concat!("select latest.template_name, latest.template_version, latest.workspace_owner,
            latest.transition, latest.status, count(*) as total
        from (select template.name as template_name, version.name as template_version,
                owner.username as workspace_owner, build.transition as transition, ", status!(), " as status", latest!(), "
            join templates as template on template.id = workspace.template_id
            join template_versions as version on version.id = build.template_version_id
            join users as owner on owner.id = workspace.owner_id
            where not workspace.deleted) as latest
        group by latest.template_name, latest.template_version, latest.workspace_owner, latest.transition, latest.status
        order by total desc, latest.template_name, latest.template_version, latest.workspace_owner limit $1"));
    ACTIVE_USERS = sql("select count(*) as total from users where not deleted and not is_system and last_seen_us >= $1");
}

/// The number of workspaces that are not deleted, by the job status of their latest build.
pub async fn workspaces_by_status(tx: &mut Tx) -> Result<Vec<(String, i64)>> {
    let rows = tx.fetch(&BY_STATUS, values![]).await?;
    rows.iter().map(|row| Ok((row.get("status")?, row.get("total")?))).collect()
}

/// The same by template, version, owner and transition. Returns the `limit` largest groups.
pub async fn latest_builds(tx: &mut Tx, limit: i64) -> Result<Vec<LatestBuilds>> {
    tx.fetch(&LATEST, values![limit]).await?.iter().map(LatestBuilds::from_row).collect()
}

/// The number of users that were active at or after this instant.
pub async fn active_users(tx: &mut Tx, since: Timestamp) -> Result<i64> {
    tx.fetch_one(&ACTIVE_USERS, values![since]).await?.get("total")
}
