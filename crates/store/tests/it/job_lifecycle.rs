//! Applies random events to the state machine of the domain and to the database. Both must agree after each event. The
//! events include resumption, lost connections, messages of earlier connections, and late decisions of the server.

use coder_domain::ids::{DaemonId, JobId};
use coder_domain::job::Status;
use coder_domain::job::lifecycle::{Cause, Ending, Guard, JobEvent, Lifecycle, Limits, Sender};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::jobs::Holder;
use coder_store::{Error, jobs};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::{Fixture, on_both_engines, tags};

on_both_engines!(database_agrees_with_the_job_lifecycle, each_deadline_ends_the_job_unless_it_changed);

const LIMITS: Limits = Limits {
    reconnect_grace: SignedDuration::from_secs(20),
    hung_after: SignedDuration::from_secs(50),
    pending_after: SignedDuration::from_secs(60),
    cancel_undelivered_after: SignedDuration::from_secs(10),
};

#[derive(Clone, Debug)]
enum Step {
    Event(JobEvent),
    /// The server reads the job and decides whether it is due.
    Decide,
    /// The server ends the job by its last decision, which may be outdated.
    EndAsDecided,
}

fn steps(daemons: [DaemonId; 2]) -> impl Strategy<Value = Vec<(Step, i64)>> {
    let daemon = move || prop_oneof![4 => Just(daemons[0]), 1 => Just(daemons[1])];
    let session = || prop_oneof![4 => Just(Sha256Digest::of("ours")), 1 => Just(Sha256Digest::of("guess"))];
    let sender = move || {
        (daemon(), proptest::option::of(1_u64..4)).prop_map(|(daemon, epoch)| Sender { daemon, epoch })
    };
    let guard = prop_oneof![Just(Guard::Open), Just(Guard::Pending), daemon().prop_map(Guard::HeldBy)];
    let event = prop_oneof![
        4 => (daemon(), proptest::option::of(session()))
            .prop_map(|(daemon, session)| JobEvent::Acquire { daemon, session }),
        3 => sender().prop_map(JobEvent::Update),
        1 => sender().prop_map(JobEvent::Complete),
        1 => (sender(), prop_oneof![Just(""), Just("failed")])
            .prop_map(|(sender, error)| JobEvent::Fail(sender, error.to_owned())),
        2 => Just(JobEvent::Cancel),
        4 => sender().prop_map(JobEvent::ConnectionLost),
        4 => (daemon(), session()).prop_map(|(daemon, session)| JobEvent::Resume { daemon, session }),
        1 => guard.prop_map(|guard| JobEvent::End(Ending { guard, cause: Cause::KeyDeleted })),
    ];
    let step = prop_oneof![
        20 => event.prop_map(Step::Event),
        4 => Just(Step::Decide),
        4 => Just(Step::EndAsDecided),
    ];
    proptest::collection::vec((step, 1_i64..40), 1..16)
}

async fn database_agrees_with_the_job_lifecycle(fixture: Fixture) {
    let daemons =
        [fixture.daemon("one", &TagSet::untagged()).await, fixture.daemon("two", &TagSet::untagged()).await];
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let mut runner =
            TestRunner::new(Config { cases: 192, failure_persistence: None, ..Config::default() });
        runner
            .run(&steps(daemons), |steps| runtime.block_on(run(&fixture, daemons, steps)).map(drop))
            .unwrap();
    });
}

async fn run(
    fixture: &Fixture,
    daemons: [DaemonId; 2],
    steps: Vec<(Step, i64)>,
) -> Result<Lifecycle, TestCaseError> {
    // A unique tag, so that a claim can only find this job.
    let id = fixture.job(&tags(&[("case", &JobId::random().to_string())])).await;
    let created_at = fixture.get_job(id).await.created_at;
    let (mut now, mut machine, mut decided) = (fixture.tick(), Lifecycle::Waiting, None);
    for (step, wait) in steps {
        now += SignedDuration::from_secs(wait);
        let event = match step {
            Step::Event(event) => event,
            Step::Decide => {
                decided = due(&fixture.get_job(id).await.lifecycle(), now, created_at).or(decided);
                continue;
            }
            Step::EndAsDecided => match &decided {
                Some(ending) => JobEvent::End(ending.clone()),
                None => continue,
            },
        };
        let expected = machine.clone().apply(event.clone(), now);
        let done = apply(fixture, id, &event, now).await;
        // A connection may end twice. Only the first end is stored.
        let is_change = expected.as_ref().is_ok_and(|next| *next != machine);
        let is_lost = matches!(event, JobEvent::ConnectionLost(_));
        let is_expected = if is_lost { is_change } else { expected.is_ok() };
        prop_assert_eq!(done, is_expected, "{:?} in {:?}", event, machine);
        machine = expected.unwrap_or(machine);
        let stored = fixture.get_job(id).await;
        prop_assert_eq!(stored.lifecycle(), with_daemon_name(machine.clone(), daemons), "after {:?}", event);
        prop_assert_eq!(listed_under(fixture, id).await, vec![machine.status()]);
    }
    Ok(machine)
}

async fn each_deadline_ends_the_job_unless_it_changed(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let daemons = [daemon, fixture.daemon("two", &TagSet::untagged()).await];
    let (nonce, plain) = (Sha256Digest::of("ours"), Sender { daemon, epoch: None });
    let official = JobEvent::Acquire { daemon, session: None };
    let session = JobEvent::Acquire { daemon, session: Some(nonce) };
    let lost = JobEvent::ConnectionLost;
    // The events, the seconds until the deadline, the error, and the event that invalidates the decision.
    let cases = [
        (vec![], 60, "as pending for 1 minutes", official.clone()),
        (vec![official.clone()], 50, "as hung for 50 seconds", JobEvent::Update(plain)),
        (vec![official, lost(plain), JobEvent::Cancel], 10, "canceled while", JobEvent::Update(plain)),
        (
            vec![session, lost(Sender { daemon, epoch: Some(1) })],
            20,
            "daemon lost",
            JobEvent::Resume { daemon, session: nonce },
        ),
    ];
    for (events, wait, expected, change) in cases {
        let steps = |after: Vec<Step>| {
            let events = events.iter().cloned().map(|event| (Step::Event(event), 1));
            events
                .chain([(Step::Decide, wait)])
                .chain(after.into_iter().map(|step| (step, 1)))
                .collect::<Vec<_>>()
        };
        let ended = run(&fixture, daemons, steps(vec![Step::EndAsDecided])).await.unwrap();
        assert!(ended.record().error.contains(expected), "{ended:?}");
        let changed =
            run(&fixture, daemons, steps(vec![Step::Event(change), Step::EndAsDecided])).await.unwrap();
        assert!(matches!(changed, Lifecycle::Held { .. }), "{expected}: {changed:?}");
    }
}

fn due(job: &Lifecycle, now: Timestamp, created_at: Timestamp) -> Option<Ending> {
    match job {
        Lifecycle::Waiting => job.due_pending(now, &LIMITS, created_at, "No daemon."),
        _ => job.due(now, &LIMITS, Timestamp::MIN),
    }
}

/// The database adds the name of the job's daemon to an error.
fn with_daemon_name(mut job: Lifecycle, daemons: [DaemonId; 2]) -> Lifecycle {
    if let Lifecycle::Ended { owner: Some(owner), error, .. } = &mut job
        && !error.is_empty()
    {
        let name = if owner.daemon == daemons[0] { "one" } else { "two" };
        *error = format!("{error} (daemon {name})");
    }
    job
}

/// Applies the event to the database. Returns whether it changed the job.
async fn apply(fixture: &Fixture, id: JobId, event: &JobEvent, now: Timestamp) -> bool {
    let mut tx = fixture.store.single().await.unwrap();
    let done = match event {
        JobEvent::Acquire { daemon, session } => {
            let provisioners = ["terraform".to_owned()];
            let set = jobs::get(&mut tx, id).await.unwrap().tag_set_id;
            let claim = jobs::ClaimRequest {
                organization_id: fixture.organization,
                provisioners: &provisioners,
                tag_sets: &[set],
                daemon: *daemon,
                session: *session,
            };
            return jobs::claim(&mut tx, &claim, now).await.unwrap().is_some_and(|claimed| claimed.job == id);
        }
        JobEvent::Update(sender) => jobs::update_alive(&mut tx, id, *sender, now).await.map(drop),
        JobEvent::Complete(sender) => jobs::complete(&mut tx, id, *sender, now).await,
        JobEvent::Fail(sender, error) => jobs::fail(&mut tx, id, *sender, error, "", now).await,
        JobEvent::Cancel => jobs::cancel(&mut tx, id, None, now).await.map(drop),
        JobEvent::ConnectionLost(sender) => {
            let Holder { daemon, epoch } = (*sender).into();
            return jobs::update_lost(&mut tx, daemon, &[(id, epoch)], now).await.unwrap() == 1;
        }
        JobEvent::Resume { daemon, session } => {
            let token = Sha256Digest::of("token");
            jobs::resume(&mut tx, id, *daemon, *session, None, token, now).await.map(drop)
        }
        JobEvent::End(ending) => jobs::give_up(&mut tx, id, ending.guard, &ending.cause.error(), now).await,
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
        let filter = jobs::list::JobFilter {
            ids: Some(vec![id]),
            status: Some(vec![status]),
            ..jobs::list::JobFilter::default()
        };
        if !jobs::list::list(&mut tx, &filter, 1).await.unwrap().is_empty() {
            found.push(status);
        }
    }
    found
}
