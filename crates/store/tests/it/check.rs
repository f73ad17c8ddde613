//! The check reports nothing for valid data, and it reports each broken invariant.

use std::collections::BTreeSet;

use coder_domain::build::Transition;
use coder_domain::tags::TagSet;
use coder_store::workspaces::{self, builds};
use coder_store::{check, jobs};

use crate::fixture::{Fixture, at, on_both_engines, tags};
use crate::templates::{new_template, new_version};
use crate::workspaces::{end, new_build, new_workspace};

on_both_engines!(every_broken_invariant_is_reported);

async fn broken(fixture: &Fixture) -> BTreeSet<&'static str> {
    check::check(&fixture.store).await.unwrap().into_iter().map(|violation| violation.invariant).collect()
}

/// Creates one row of every kind through the store's functions.
async fn fill(fixture: &Fixture) {
    let version = new_version(fixture, "v1").await;
    let template = new_template(fixture, "docker", &version).await;
    end(fixture, version.job_id).await;
    let other = new_version(fixture, "v1").await;
    new_template(fixture, "other", &other).await;
    let daemon = fixture.daemon("one", &tags(&[("site", "a")])).await;
    let running = fixture.claim(daemon, &[1]).await.unwrap();
    assert_eq!(running, other.job_id);
    let line = |output: &str| jobs::logs::NewLine {
        created_at: at(1),
        source: jobs::logs::Source::Provisioner,
        level: jobs::logs::Level::Info,
        stage: String::new(),
        output: output.to_owned(),
    };
    let mut tx = fixture.store.begin().await.unwrap();
    for text in ["a", "b\0"] {
        jobs::logs::append(&mut tx, running, daemon, &[line(text), line("")], 1000, at(2)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let workspace = new_workspace(fixture, &template, "dev").await.id;
    let (_, job, _) = new_build(fixture, &template, workspace, Transition::Start).await.unwrap();
    end(fixture, job).await;
    let (build, _, _) = new_build(fixture, &template, workspace, Transition::Stop).await.unwrap();
    let gone = new_workspace(fixture, &template, "gone").await.id;
    let (_, job, _) = new_build(fixture, &template, gone, Transition::Delete).await.unwrap();
    end(fixture, job).await;
    let mut tx = fixture.store.begin().await.unwrap();
    workspaces::delete(&mut tx, gone, at(9)).await.unwrap();
    builds::update_state(&mut tx, build, b"{}".to_vec()).await.unwrap();
    let canceled = new_version_job(fixture, &mut tx).await;
    jobs::cancel(&mut tx, canceled, None, at(99)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn new_version_job(fixture: &Fixture, tx: &mut coder_store::Tx) -> coder_domain::ids::JobId {
    // A dry run of the first version.
    let template = template_id(tx).await;
    let version = coder_store::templates::versions::list(
        tx,
        template,
        coder_store::templates::versions::VersionPage::default(),
    )
    .await;
    let job = jobs::NewJob {
        kind: coder_domain::job::Type::TemplateVersionDryRun,
        template_version_id: Some(version.unwrap()[0].id),
        ..fixture.new_job(&TagSet::untagged())
    };
    jobs::insert(tx, &job, at(98)).await.unwrap();
    job.id
}

async fn template_id(tx: &mut coder_store::Tx) -> coder_domain::ids::TemplateId {
    coder_store::templates::list(tx, &coder_store::templates::TemplateFilter::default()).await.unwrap()[0].id
}

/// Changes with the invariants that they break. Each change is made to valid data and then undone from a copy.
const BREAKS: &[(&str, &[&str])] = &[
    (
        "update provisioner_jobs set started_us = null where completed_us is null and worker_id is not null",
        &[
            "a job has an owner only after its start",
            "the counts of the queue equal the waiting jobs",
            "the sub-queues count the waiting jobs",
        ],
    ),
    (
        "update provisioner_jobs set worker_id = null where completed_us is null and worker_id is not null",
        &["a running job has an owner"],
    ),
    (
        "update provisioner_jobs set error = 'x' where completed_us is null and worker_id is not null",
        &["an open job has no error"],
    ),
    (
        "update provisioner_jobs set canceled_us = 1 where completed_us is null and worker_id is null",
        &[
            "a waiting job that is canceled has ended",
            "the counts of the queue equal the waiting jobs",
            "the sub-queues count the waiting jobs",
        ],
    ),
    (
        "update provisioner_jobs set prebuild = true where worker_id is not null",
        &["every job of the prebuilds user is automatic", "exactly the prebuilds user's jobs queue last"],
    ),
    (
        "update provisioner_jobs set template_version_id = '11111111-1111-4111-8111-111111111111' where type = 'template_version_dry_run'",
        &["a job's template version exists"],
    ),
    (
        "update provisioner_jobs set workspace_build_id = '11111111-1111-4111-8111-111111111111' where type = 'workspace_build' and completed_us is null",
        &["a job and its build refer to each other", "a build's job builds it"],
    ),
    (
        "update provisioner_jobs set type = 'template_version_dry_run' where type = 'template_version_import' and worker_id is not null",
        &["a template version's job imports it"],
    ),
    (
        "update workspace_builds set build_number = 3 where build_number = 2",
        &["build numbers run from 1 without gaps"],
    ),
    (
        "insert into workspaces select 'w', organization_id, owner_id, template_id, 'w', 'w', autostart_schedule, ttl_ms,
            automatic_updates, favorite, created_us, updated_us, last_used_us, dormant_us, deleting_us, false, null, '',
            null from workspaces where name = 'dev'",
        &["every workspace has a build"],
    ),
    (
        "update provisioner_jobs set completed_us = null where type = 'workspace_build' and worker_id is null
            and id in (select job_id from workspace_builds where transition = 'start')",
        &["a workspace has at most one open job", "only the latest build is open", "a running job has an owner"],
    ),
    (
        "update workspaces set deleted = true where name = 'dev'",
        &["exactly the workspaces whose delete build succeeded are deleted"],
    ),
    (
        "update workspaces set deleted = false where name = 'gone'",
        &["exactly the workspaces whose delete build succeeded are deleted"],
    ),
    (
        "update workspace_builds set template_version_id = (select active_version_id from templates where name = 'other')
            where transition = 'stop'",
        &["a build's version belongs to the workspace's template"],
    ),
    (
        "update templates set active_version_id = 'x' where name = 'other'",
        &["a template's active version is one of its own"],
    ),
    ("update templates set deleted = true where name = 'docker'", &["a template with workspaces is not deleted"]),
    (
        "update templates set organization_id = 'x' where name = 'other'",
        &["a version belongs to its template's organization"],
    ),
    (
        "delete from provisioner_job_logs where first_id = 1",
        &["log lines are numbered from 1 without gaps", "a job's log counters equal its log"],
    ),
    (
        "update provisioner_jobs set logs_bytes = logs_bytes + 1 where logs_last_id > 0",
        &["a job's log counters equal its log"],
    ),
    ("update provisioner_job_logs set lines = '[]' where first_id = 1", &["a log row holds the lines it counts"]),
    (
        "update provisioner_job_logs set output_bytes = output_bytes + 100 where first_id = 1",
        &["a job's log counters equal its log", "a log row holds the lines it counts"],
    ),
    ("update provisioner_job_logs set lines = 'x' where first_id = 1", &["a log row holds the lines it counts"]),
    (
        "update provisioner_jobs set automatic = false, prebuild = true, initiator_id =
            'c42fdf75-3097-471c-8c33-fb52454d81c0' where completed_us is not null and worker_id is null",
        &["every job of the prebuilds user is automatic"],
    ),
    (
        "update provisioner_jobs set lost_us = 1 where completed_us is not null and worker_id is null",
        &["only held jobs have a session, a token or a lost connection"],
    ),
    ("update queue_lines set waiting = waiting + 1", &["the sub-queues count the waiting jobs"]),
    ("update queue_lines set turn = turn + 4611686018427387904", &["the turns of the sub-queues belong to their class"]),
    (
        "update queue_counts set total = total - 1 where level = 2 and tag_set_id > 0",
        &["the counts of the queue equal the waiting jobs"],
    ),
    (
        "insert into provisioner_job_journals select id, 1, 'l', 'x', '', 'x', 1 from provisioner_jobs
            where type = 'workspace_build'",
        &["a journal belongs to a build"],
    ),
    ("update provisioner_daemons set tag_set_id = 0", &["a daemon's tag set has its tags"]),
    ("update tag_sets set id = 9 where id = 1", &["tag set ids run from 1 without gaps"]),
    ("update tag_sets set tags = '{\"b\": \"1\", \"a\": \"2\"}' where id = 1", &["tag sets are stored in canonical form"]),
    ("update provisioner_jobs set trace_metadata = '[' where worker_id is not null", &["every job can be read"]),
    ("update organizations set is_default = false", &["there is one default organization"]),
    ("update provisioner_keys set name = 'x', hashed_secret = name where name = 'psk'", &["the three reserved keys exist"]),
    (
        "update provisioner_keys set organization_id = 'x', hashed_secret = 'y' where name = 'built-in'",
        &["a daemon belongs to its key's organization", "the three reserved keys exist"],
    ),
    ("update users set username_lower = 'adas' where username = 'ada'", &["lower-case names belong to their names"]),
];

async fn every_broken_invariant_is_reported(fixture: Fixture) {
    fill(&fixture).await;
    let found = check::check(&fixture.store).await.unwrap();
    assert_eq!(found, [], "good data");
    let tables = include_str!("tables.txt");
    let mut seen = BTreeSet::new();
    // Foreign keys are switched off, so that the order of the repairs does not matter.
    let guard = if fixture.store.is_postgres() { "set session_replication_role = replica;" } else { "" };
    for table in tables.lines() {
        fixture.database().execute(&format!("create table copy_of_{table} as select * from {table}")).await;
    }
    for (change, want) in BREAKS {
        let change = if fixture.store.is_postgres() {
            change.replace("hashed_secret = name", "hashed_secret = 'x'")
        } else {
            (*change).to_owned()
        };
        fixture.database().execute(&format!("{guard} {change}")).await;
        let found = broken(&fixture).await;
        assert_eq!(found, want.iter().copied().collect(), "{change}");
        seen.extend(found);
        let mut repair = guard.to_owned();
        for table in tables.lines() {
            repair += &format!("delete from {table}; insert into {table} select * from copy_of_{table};");
        }
        fixture.database().execute(&repair).await;
    }
    assert_eq!(seen, check::invariants().into_iter().collect(), "an invariant without a test");
    assert_eq!(broken(&fixture).await, BTreeSet::new());
}

#[test]
fn a_violation_names_its_row_with_what_is_wrong_there() {
    let violation = |detail: &str| check::Violation {
        invariant: "build numbers run from 1 without gaps",
        id: "7".to_owned(),
        detail: detail.to_owned(),
    };
    assert_eq!(violation("").to_string(), "build numbers run from 1 without gaps: 7");
    assert_eq!(violation("2 builds").to_string(), "build numbers run from 1 without gaps: 7 (2 builds)");
}
