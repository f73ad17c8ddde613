//! Pipelined statements: they have the same effect as one by one, or none at all.

use coder_domain::build::Transition;
use coder_domain::ids::{JobId, ResourceId};
use coder_domain::tags::TagSet;
use coder_store::workspaces::resources::{self, Resource};
use coder_store::{Document, Error, jobs, transaction};

use crate::fixture::{Fixture, at, on_both_engines};

on_both_engines!(
    unchanged_required_row_fails_all_pipelined_statements,
    pipelined_statement_is_visible_to_the_next_query,
    failing_pipelined_statement_rolls_all_back,
    reads_need_no_transaction,
    several_jobs_enter_the_queue_at_once,
);

fn resource(job: JobId) -> Resource {
    Resource {
        id: ResourceId::random(),
        job_id: job,
        position: 0,
        transition: Transition::Start,
        kind: "null_resource".to_owned(),
        name: "one".to_owned(),
        hide: false,
        icon: String::new(),
        instance_type: String::new(),
        daily_cost: 0,
        module_path: String::new(),
        metadata: Vec::new(),
        created_at: at(1),
    }
}

async fn count(fixture: &Fixture, job: JobId) -> usize {
    resources::list(&mut fixture.store.reader().await.unwrap(), &[job]).await.unwrap().len()
}

async fn unchanged_required_row_fails_all_pipelined_statements(fixture: Fixture) {
    let (daemon, other) =
        (fixture.daemon("a", &TagSet::untagged()).await, fixture.daemon("b", &TagSet::untagged()).await);
    let job = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(job));
    for (holder, ends) in [(other, false), (daemon, true), (daemon, false)] {
        let made = [resource(job)];
        let before = count(&fixture, job).await;
        let outcome = transaction!(fixture.store, Error, |tx| {
            jobs::complete_with_input(tx, job, holder, &Document::default(), "", at(50)).await?;
            resources::insert(tx, &made).await
        });
        match outcome {
            Ok(()) => assert!(ends),
            Err(Error::Stale { table }) => assert_eq!((table, ends), ("provisioner_jobs", false)),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(count(&fixture, job).await, before + usize::from(ends));
    }
}

async fn pipelined_statement_is_visible_to_the_next_query(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let mut tx = fixture.store.begin().await.unwrap();
    resources::insert(&mut tx, &[resource(job)]).await.unwrap();
    assert_eq!(resources::list(&mut tx, &[job]).await.unwrap().len(), 1);
    resources::insert(&mut tx, &[resource(job)]).await.unwrap();
    tx.rollback().await;
    assert_eq!(count(&fixture, job).await, 0);
}

async fn failing_pipelined_statement_rolls_all_back(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let outcome = transaction!(fixture.store, Error, |tx| {
        resources::insert(tx, &[resource(job)]).await?;
        resources::insert(tx, &[resource(JobId::random())]).await
    });
    assert!(matches!(outcome, Err(Error::Reference(_))), "{outcome:?}");
    assert_eq!(count(&fixture, job).await, 0);
}

async fn reads_need_no_transaction(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let before = fixture.store.statement_counts().round_trips;
    transaction!(fixture.store, Error, |tx| { jobs::get(tx, job).await }).unwrap();
    let asked = fixture.store.statement_counts().round_trips - before;
    assert_eq!(asked, if fixture.store.is_postgres() { 1 } else { 3 }, "BEGIN and COMMIT are for changes");
}

async fn several_jobs_enter_the_queue_at_once(fixture: Fixture) {
    let waiting = [fixture.new_job(&TagSet::untagged()), fixture.new_job(&TagSet::untagged())];
    transaction!(fixture.store, Error, |tx| {
        for job in &waiting {
            jobs::insert(tx, job, at(5)).await?;
        }
        Ok(())
    })
    .unwrap();
    let daemon = fixture.daemon("a", &TagSet::untagged()).await;
    let mut taken = Vec::new();
    while let Some(job) = fixture.claim(daemon, &[1]).await {
        taken.push(job);
    }
    taken.sort();
    let mut all = waiting.map(|job| job.id);
    all.sort();
    assert_eq!(taken, all);
    let mut broken = coder_store::check::check(&fixture.store).await.unwrap();
    broken.retain(|violation| violation.invariant.contains("queue"));
    assert!(broken.is_empty(), "{broken:?}");
}
