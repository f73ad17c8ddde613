//! The invariants that the schema's constraints cannot express (`coder server check`). `docs/store.md` lists them.
//! Every statement selects the violations as `id` and `detail`.

use std::collections::BTreeMap;

use crate::engine::{Statement, Tx, sql, statements, values};
use crate::{Error, Result, Store, jobs, tag_sets};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, as `docs/store.md` names it.
    pub invariant: &'static str,
    /// The row.
    pub id: String,
    /// More about it.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.id)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

statements! { "check";
    JOB_OWNER_WITHOUT_START = sql("select id, '' as detail from provisioner_jobs
        where worker_id is not null and started_us is null");
    JOB_RUNNING_WITHOUT_OWNER = sql("select id, '' as detail from provisioner_jobs
        where started_us is not null and worker_id is null and completed_us is null");
    JOB_ERROR_WHILE_OPEN = sql("select id, '' as detail from provisioner_jobs
        where completed_us is null and (error <> '' or error_code <> '')");
    JOB_CANCELED_WAITING = sql("select id, '' as detail from provisioner_jobs
        where canceled_us is not null and started_us is null and completed_us is null");
    JOB_PREBUILD = sql("select id, '' as detail from provisioner_jobs
        where prebuild <> (initiator_id = 'c42fdf75-3097-471c-8c33-fb52454d81c0')");
    JOB_AUTOMATIC = sql("select id, '' as detail from provisioner_jobs where prebuild and not automatic");
    JOB_FENCE = sql("select id, '' as detail from provisioner_jobs
        where (worker_id is null and (session_hash is not null or token_hash is not null or lost_us is not null))
        or (token_hash is not null and session_hash is null) or (completed_us is not null and lost_us is not null)");
    /// Compares the waiting jobs with the counts of their sub-queues. Selects the differences.
    QUEUE_LINES = sql("select organization_id as id, provisioner || ' ' || cast(tag_set_id as text) as detail from (
            select organization_id, initiator_id, automatic, provisioner, tag_set_id, waiting from queue_lines
            union all select organization_id, initiator_id, automatic, provisioner, tag_set_id, -1 from provisioner_jobs
            where started_us is null and completed_us is null and canceled_us is null) as counted
        group by organization_id, initiator_id, automatic, provisioner, tag_set_id having sum(waiting) <> 0");
    QUEUE_TURNS = sql("select organization_id as id, initiator_id as detail from queue_lines
        where automatic <> (turn >= 4611686018427387904) or waiting < 0");
    QUEUE_COUNTS = sql("select organization_id as id, provisioner || ' ' || cast(tag_set_id as text) as detail from (
            select organization_id, provisioner, tag_set_id, prebuild, level, bucket, total from queue_counts
            union all select job.organization_id, job.provisioner, job.tag_set_id, job.prebuild, size.level,
                job.created_us >> size.shift, -1 from provisioner_jobs as job
                cross join (select 1 as level, 20 as shift union all select 2, 26 union all select 3, 32) as size
                where job.started_us is null and job.completed_us is null and job.canceled_us is null
            union all select '', '', 0, job.prebuild, size.level, job.created_us >> size.shift, -1
                from provisioner_jobs as job
                cross join (select 1 as level, 20 as shift union all select 2, 26 union all select 3, 32) as size
                where job.started_us is null and job.completed_us is null and job.canceled_us is null) as counted
        group by organization_id, provisioner, tag_set_id, prebuild, level, bucket having sum(total) <> 0");
    JOURNALS = sql("select journal.job_id as id, job.type as detail from provisioner_job_journals as journal
        join provisioner_jobs as job on job.id = journal.job_id
        where job.type <> 'workspace_build' or length(journal.sha256) <> 32");
    JOB_WITHOUT_VERSION = sql("select job.id, job.type as detail from provisioner_jobs as job
        where not exists (select 1 from template_versions as version where version.id = job.template_version_id)");
    JOB_WITHOUT_BUILD = sql("select job.id, coalesce(job.workspace_build_id, '') as detail from provisioner_jobs as job
        where (job.type = 'workspace_build') <> exists (select 1 from workspace_builds as build
            where build.id = job.workspace_build_id and build.job_id = job.id)");
    VERSION_JOB = sql("select version.id, version.job_id as detail from template_versions as version
        join provisioner_jobs as job on job.id = version.job_id
        where job.type <> 'template_version_import' or job.template_version_id <> version.id");
    BUILD_JOB = sql("select build.id, build.job_id as detail from workspace_builds as build
        join provisioner_jobs as job on job.id = build.job_id
        where job.type <> 'workspace_build' or job.workspace_build_id <> build.id");
    BUILD_NUMBERS = sql("select workspace_id as id, '' as detail from workspace_builds
        group by workspace_id having min(build_number) <> 1 or max(build_number) <> count(*)");
    WORKSPACE_WITHOUT_BUILD = sql("select id, '' as detail from workspaces
        where not exists (select 1 from workspace_builds as build where build.workspace_id = workspaces.id)");
    WORKSPACE_OPEN_JOBS = sql("select build.workspace_id as id, cast(count(*) as text) as detail
        from workspace_builds as build join provisioner_jobs as job on job.id = build.job_id
        where job.completed_us is null group by build.workspace_id having count(*) > 1");
    OLD_BUILD_OPEN = sql("select build.id, '' as detail from workspace_builds as build
        join provisioner_jobs as job on job.id = build.job_id
        where job.completed_us is null and exists (select 1 from workspace_builds as newer
            where newer.workspace_id = build.workspace_id and newer.build_number > build.build_number)");
    WORKSPACE_DELETED = sql("select workspace.id, '' as detail from workspaces as workspace
        join workspace_builds as build on build.workspace_id = workspace.id
            and build.build_number = (select max(newest.build_number) from workspace_builds as newest
                where newest.workspace_id = workspace.id)
        join provisioner_jobs as job on job.id = build.job_id
        where workspace.deleted <> (build.transition = 'delete' and job.completed_us is not null
            and job.error = '' and job.canceled_us is null)
        and not (workspace.deleted and build.transition = 'delete')");
    BUILD_TEMPLATE = sql("select build.id, version.id as detail from workspace_builds as build
        join workspaces as workspace on workspace.id = build.workspace_id
        join template_versions as version on version.id = build.template_version_id
        where version.template_id is null or version.template_id <> workspace.template_id");
    TEMPLATE_ACTIVE = sql("select template.id, template.active_version_id as detail from templates as template
        where not exists (select 1 from template_versions as version
            where version.id = template.active_version_id and version.template_id = template.id)");
    TEMPLATE_DELETED_IN_USE = sql("select workspace.id, workspace.template_id as detail from workspaces as workspace
        join templates as template on template.id = workspace.template_id
        where template.deleted and not workspace.deleted");
    VERSION_ORGANIZATION = sql("select version.id, '' as detail from template_versions as version
        join templates as template on template.id = version.template_id
        where template.organization_id <> version.organization_id");
    LOG_GAPS = sql("select job_id as id, '' as detail from provisioner_job_logs
        group by job_id having min(first_id) <> 1 or sum(last_id - first_id + 1) <> max(last_id)");
    LOG_COUNTERS = sql("select job.id, '' as detail from provisioner_jobs as job
        left join (select job_id, max(last_id) as last_id, sum(output_bytes) as bytes from provisioner_job_logs
            group by job_id) as log on log.job_id = job.id
        where job.logs_last_id <> coalesce(log.last_id, 0) or job.logs_bytes <> coalesce(log.bytes, 0)");
    LOG_ROWS = sql("select job_id || ' ' || cast(first_id as text) as sealed_id, job_id as id, first_id, last_id, output_bytes, lines, packed from provisioner_job_logs
        where (job_id, first_id) > ($1, $2) order by job_id, first_id limit $3");
    TAG_SET_GAPS = sql("select 'tag_sets' as id, '' as detail from
        (select count(*) as total, min(id) as first, max(id) as last from tag_sets) as numbers
        where total > 0 and (first <> 1 or last <> total)");
    DEFAULT_ORGANIZATION = sql("select 'organizations' as id, '' as detail from
        (select count(*) as total from organizations where is_default and not deleted) as numbers where total <> 1");
    RESERVED_KEYS = sql("select 'provisioner_keys' as id, '' as detail from
        (select count(*) as total from provisioner_keys where length(hashed_secret) = 0
            and id in ('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002',
                '00000000-0000-0000-0000-000000000003')) as numbers where total <> 3");
    DAEMON_ORGANIZATION = sql("select daemon.id, '' as detail from provisioner_daemons as daemon
        join provisioner_keys as joined on joined.id = daemon.key_id
        where length(joined.hashed_secret) > 0 and joined.organization_id <> daemon.organization_id");
    DAEMON_TAG_SET = sql("select daemon.id, '' as detail from provisioner_daemons as daemon
        left join tag_sets as interned on interned.id = daemon.tag_set_id
        where interned.tags is null or interned.tags <> daemon.tags");
    LOWER_CASE = sql("select id, 'users' as detail from users where length(username_lower) <> length(username)
        union all select id, 'templates' as detail from templates where length(name_lower) <> length(name)
        union all select id, 'workspaces' as detail from workspaces where length(name_lower) <> length(name)");
}

/// Invariants that one statement can check, by name.
const BY_STATEMENT: &[(&str, &Statement)] = &[
    ("a job has an owner only after its start", &JOB_OWNER_WITHOUT_START),
    ("a running job has an owner", &JOB_RUNNING_WITHOUT_OWNER),
    ("an open job has no error", &JOB_ERROR_WHILE_OPEN),
    ("a waiting job that is canceled has ended", &JOB_CANCELED_WAITING),
    ("exactly the prebuilds user's jobs queue last", &JOB_PREBUILD),
    ("every job of the prebuilds user is automatic", &JOB_AUTOMATIC),
    ("only held jobs have a session, a token or a lost connection", &JOB_FENCE),
    ("the sub-queues count the waiting jobs", &QUEUE_LINES),
    ("the turns of the sub-queues belong to their class", &QUEUE_TURNS),
    ("the counts of the queue equal the waiting jobs", &QUEUE_COUNTS),
    ("a journal belongs to a build", &JOURNALS),
    ("a job's template version exists", &JOB_WITHOUT_VERSION),
    ("a job and its build refer to each other", &JOB_WITHOUT_BUILD),
    ("a template version's job imports it", &VERSION_JOB),
    ("a build's job builds it", &BUILD_JOB),
    ("build numbers run from 1 without gaps", &BUILD_NUMBERS),
    ("every workspace has a build", &WORKSPACE_WITHOUT_BUILD),
    ("a workspace has at most one open job", &WORKSPACE_OPEN_JOBS),
    ("only the latest build is open", &OLD_BUILD_OPEN),
    ("exactly the workspaces whose delete build succeeded are deleted", &WORKSPACE_DELETED),
    ("a build's version belongs to the workspace's template", &BUILD_TEMPLATE),
    ("a template's active version is one of its own", &TEMPLATE_ACTIVE),
    ("a template with workspaces is not deleted", &TEMPLATE_DELETED_IN_USE),
    ("a version belongs to its template's organization", &VERSION_ORGANIZATION),
    ("log lines are numbered from 1 without gaps", &LOG_GAPS),
    ("a job's log counters equal its log", &LOG_COUNTERS),
    ("tag set ids run from 1 without gaps", &TAG_SET_GAPS),
    ("there is one default organization", &DEFAULT_ORGANIZATION),
    ("the three reserved keys exist", &RESERVED_KEYS),
    ("a daemon belongs to its key's organization", &DAEMON_ORGANIZATION),
    ("a daemon's tag set has its tags", &DAEMON_TAG_SET),
    ("lower-case names belong to their names", &LOWER_CASE),
];

/// Invariants for which the documents in the rows must be parsed.
const LOGS_READABLE: &str = "a log row holds the lines it counts";
const TAGS_CANONICAL: &str = "tag sets are stored in canonical form";
const JOBS_READABLE: &str = "every job can be read";

const PAGE_SIZE: i64 = 64;

/// The names of all invariants.
#[must_use]
pub fn invariants() -> Vec<&'static str> {
    let names = BY_STATEMENT.iter().map(|(name, _)| *name);
    names.chain([LOGS_READABLE, TAGS_CANONICAL, JOBS_READABLE]).collect()
}

/// All violations. Servers may be running, but each statement sees a different moment: repeat the check before you
/// trust a violation that it found while jobs were running.
///
/// A row that cannot be read is reported as a violation, except when its encryption key is not configured:
/// [`list_undecryptable`](crate::encryption::rotation::list_undecryptable) reports those together.
pub async fn check(store: &Store) -> Result<Vec<Violation>> {
    let mut tx = store.reader().await?;
    let mut found = Vec::new();
    for (invariant, statement) in BY_STATEMENT {
        for row in tx.fetch(statement, vec![]).await? {
            found.push(Violation { invariant, id: row.get("id")?, detail: row.get("detail")? });
        }
    }
    check_logs(&mut tx, &mut found).await?;
    check_tags(&mut tx, &mut found).await?;
    check_jobs(&mut tx, &mut found).await?;
    Ok(found)
}

async fn check_logs(tx: &mut Tx, found: &mut Vec<Violation>) -> Result<()> {
    let mut after = (String::new(), 0_i64);
    loop {
        let rows = tx.fetch(&LOG_ROWS, values![after.0, after.1, PAGE_SIZE]).await?;
        for row in &rows {
            let (job, first, last): (String, i64, i64) =
                (row.get("id")?, row.get("first_id")?, row.get("last_id")?);
            let bytes: i64 = row.get("output_bytes")?;
            let detail = match jobs::logs::unpack(row) {
                Ok(lines) => {
                    let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
                    let ids = count == last - first + 1;
                    // A NUL was replaced by a longer character when the text was stored, so the text may be longer than
                    // counted.
                    let stored = lines.iter().map(|line| line.line.output.len()).sum::<usize>();
                    let fits = i64::try_from(stored).unwrap_or(i64::MAX) >= bytes;
                    if ids && fits { None } else { Some(format!("row {first} to {last}: {count} lines")) }
                }
                Err(Error::RowKeyMissing { .. }) => None,
                Err(error) => Some(error.to_string()),
            };
            if let Some(detail) = detail {
                found.push(Violation { invariant: LOGS_READABLE, id: job.clone(), detail });
            }
            after = (job, first);
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}

async fn check_tags(tx: &mut Tx, found: &mut Vec<Violation>) -> Result<()> {
    for row in tx.fetch(&tag_sets::LIST_SINCE_TEXT, values![0_i64]).await? {
        let text: String = row.get("tags")?;
        let canonical = serde_json::from_str::<BTreeMap<String, String>>(&text)
            .is_ok_and(|map| serde_json::to_string(&map).is_ok_and(|again| again == text));
        if !canonical {
            let id: i64 = row.get("number")?;
            found.push(Violation { invariant: TAGS_CANONICAL, id: id.to_string(), detail: String::new() });
        }
    }
    Ok(())
}

async fn check_jobs(tx: &mut Tx, found: &mut Vec<Violation>) -> Result<()> {
    let mut after = String::new();
    loop {
        let rows = tx.fetch(&jobs::job::PAGE_BY_ID, values![after, PAGE_SIZE]).await?;
        for row in &rows {
            after = row.get("id")?;
            match jobs::Job::from_row(row) {
                Ok(_) | Err(Error::RowKeyMissing { .. }) => {}
                Err(error) => found.push(Violation {
                    invariant: JOBS_READABLE,
                    id: after.clone(),
                    detail: error.to_string(),
                }),
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
    }
}
