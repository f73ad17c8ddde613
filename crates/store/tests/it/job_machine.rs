//! Random events are fed to the pure job machine and to the database; both must agree after each.

use coder_domain::ids::{DaemonId, JobId};
use coder_domain::job::{Event, Record, Status};
use coder_domain::tags::TagSet;
use coder_store::{Error, jobs};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::{Fixture, on_both_engines, tags};

on_both_engines!(the_database_agrees_with_the_machine);

async fn the_database_agrees_with_the_machine(fixture: Fixture) {
    let daemons =
        [fixture.daemon("one", &TagSet::untagged()).await, fixture.daemon("two", &TagSet::untagged()).await];
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let mut runner =
            TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
        let events = proptest::collection::vec((0_u8..6, any::<bool>()), 1..8);
        runner.run(&events, |steps| runtime.block_on(run(&fixture, daemons, steps))).unwrap();
    });
}

async fn run(fixture: &Fixture, daemons: [DaemonId; 2], steps: Vec<(u8, bool)>) -> Result<(), TestCaseError> {
    // A tag of its own, so that a claim can only find this job.
    let id = fixture.job(&tags(&[("case", &JobId::random().to_string())])).await;
    let set = fixture.get_job(id).await.tag_set_id;
    let mut machine = Record::default();
    for (step, first) in steps {
        let daemon = daemons[usize::from(first)];
        let event = match step {
            0 => Event::Acquire(daemon),
            1 => Event::Cancel,
            2 => Event::Complete(daemon),
            3 => Event::Fail(daemon, "failed".to_owned()),
            4 => Event::Fail(daemon, String::new()),
            _ => Event::Reap("hung".to_owned()),
        };
        let now = fixture.tick();
        let expected = machine.clone().apply(event.clone(), now);
        let done = apply(fixture, id, set, &event, now).await;
        prop_assert_eq!(done, expected.is_ok(), "{:?} in {:?}", event, machine);
        machine = expected.unwrap_or(machine);
        let stored = fixture.get_job(id).await;
        let mut shown = machine.clone();
        if let (Some(worker), false) = (shown.worker, shown.error.is_empty()) {
            // Whoever reads the error learns where it was.
            let name = if worker == daemons[0] { "one" } else { "two" };
            shown.error = format!("{} (daemon {name})", shown.error);
        }
        prop_assert_eq!(stored.record(), shown);
        prop_assert_eq!(listed_under(fixture, id).await, vec![machine.status()]);
    }
    Ok(())
}

async fn apply(fixture: &Fixture, id: JobId, set: i64, event: &Event, now: jiff::Timestamp) -> bool {
    let mut tx = fixture.store.single().await.unwrap();
    let done = match event {
        Event::Acquire(daemon) => {
            let provisioners = ["terraform".to_owned()];
            let claim = jobs::Claim {
                organization_id: fixture.organization,
                provisioners: &provisioners,
                tag_sets: &[set],
                daemon: *daemon,
                session: None,
            };
            return jobs::claim(&mut tx, &claim, now).await.unwrap().is_some_and(|claimed| claimed.job == id);
        }
        Event::Cancel => jobs::cancel(&mut tx, id, None, now).await.map(|_| ()),
        Event::Complete(daemon) => jobs::complete(&mut tx, id, *daemon, now).await,
        Event::Fail(daemon, error) => jobs::fail(&mut tx, id, *daemon, error, "", now).await,
        Event::Reap(error) => {
            let seen = jobs::get(&mut tx, id).await.unwrap().updated_at;
            jobs::reap::finish(&mut tx, id, seen, error, now).await
        }
    };
    match done {
        Ok(()) => true,
        Err(Error::Stale { .. }) => false,
        Err(other) => panic!("{other:?}"),
    }
}

/// The statuses under which a filtered list shows the job: SQL repeats the derivation, so it is compared here.
async fn listed_under(fixture: &Fixture, id: JobId) -> Vec<Status> {
    let mut found = Vec::new();
    let mut tx = fixture.store.reader().await.unwrap();
    for status in Status::ALL {
        let filter = jobs::list::Filter {
            ids: Some(vec![id]),
            status: Some(vec![status]),
            ..jobs::list::Filter::default()
        };
        if !jobs::list::list(&mut tx, &filter, 1).await.unwrap().is_empty() {
            found.push(status);
        }
    }
    found
}
