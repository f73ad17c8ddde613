//! The state machine of a job: a golden table of every state with every event, and properties of random sequences.

use std::fmt::Write as _;

use coder_domain::Timestamp;
use coder_domain::ids::DaemonId;
use coder_domain::job::lifecycle::{Cause, Connection, Ending, Guard, JobEvent, Lifecycle, Limits, Sender};
use coder_domain::job::{Status, TransitionError};
use coder_domain::key::Sha256Digest;
use jiff::SignedDuration;
use proptest::prelude::*;
use uuid::Uuid;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

const OWN: DaemonId = DaemonId(Uuid::from_u128(1));
const OTHER: DaemonId = DaemonId(Uuid::from_u128(2));
/// The server has watched from the beginning.
const ALWAYS: Timestamp = Timestamp::MIN;

fn nonce(text: &str) -> Sha256Digest {
    Sha256Digest::of(text)
}

/// The job after these events, one second apart, the first at second 1.
fn after(events: impl IntoIterator<Item = JobEvent>) -> Lifecycle {
    (1..).zip(events).fold(Lifecycle::Waiting, |job, (second, event)| {
        job.apply(event, at(second)).expect("each event is allowed")
    })
}

fn official() -> JobEvent {
    JobEvent::Acquire { daemon: OWN, session: None }
}

fn session() -> JobEvent {
    JobEvent::Acquire { daemon: OWN, session: Some(nonce("ours")) }
}

fn resume() -> JobEvent {
    JobEvent::Resume { daemon: OWN, session: nonce("ours") }
}

fn end(guard: Guard) -> JobEvent {
    JobEvent::End(Ending { guard, cause: Cause::NotDelivered })
}

const PLAIN: Sender = Sender { daemon: OWN, epoch: None };
/// The current epoch of the sessions in the table, which resumed the job once.
const TOKEN: Sender = Sender { daemon: OWN, epoch: Some(2) };
const OLD_TOKEN: Sender = Sender { daemon: OWN, epoch: Some(1) };

fn states() -> Vec<(&'static str, Lifecycle)> {
    use JobEvent::{Cancel, ConnectionLost, Fail};
    let resumed = |more: Vec<JobEvent>| after([vec![session(), resume()], more].concat());
    vec![
        ("waiting", Lifecycle::Waiting),
        ("official", after([official()])),
        ("official, cancel", after([official(), Cancel])),
        ("official, lost", after([official(), ConnectionLost(PLAIN)])),
        ("official, lost, cancel", after([official(), ConnectionLost(PLAIN), Cancel])),
        ("session", resumed(vec![])),
        ("session, cancel", resumed(vec![Cancel])),
        ("session, lost", resumed(vec![ConnectionLost(TOKEN)])),
        ("session, lost, cancel", resumed(vec![Cancel, ConnectionLost(TOKEN)])),
        ("succeeded", after([official(), JobEvent::Complete(PLAIN)])),
        ("failed", resumed(vec![Fail(TOKEN, "no".to_owned())])),
        ("canceled in the queue", after([Cancel])),
    ]
}

/// Name and event; each happens at second 10, the states are at most four seconds old.
fn events() -> Vec<(&'static str, JobEvent)> {
    use JobEvent::{Cancel, Complete, ConnectionLost, Fail, Update};
    let stranger = Sender { daemon: OTHER, epoch: None };
    let forged = Sender { daemon: OTHER, epoch: Some(2) };
    let fail = |sender| Fail(sender, "broken".to_owned());
    vec![
        ("acquire, official", official()),
        ("acquire, session", session()),
        ("acquire, another", JobEvent::Acquire { daemon: OTHER, session: None }),
        ("update", Update(PLAIN)),
        ("update, token", Update(TOKEN)),
        ("update, old token", Update(OLD_TOKEN)),
        ("update, another daemon", Update(stranger)),
        ("update, stolen token", Update(forged)),
        ("complete", Complete(PLAIN)),
        ("complete, token", Complete(TOKEN)),
        ("complete, old token", Complete(OLD_TOKEN)),
        ("complete, another daemon", Complete(stranger)),
        ("fail", fail(PLAIN)),
        ("fail, token", fail(TOKEN)),
        ("fail, old token", fail(OLD_TOKEN)),
        ("fail, another daemon", fail(stranger)),
        ("cancel", Cancel),
        ("connection lost", ConnectionLost(PLAIN)),
        ("connection lost, token", ConnectionLost(TOKEN)),
        ("connection lost, old token", ConnectionLost(OLD_TOKEN)),
        ("connection lost, another daemon", ConnectionLost(stranger)),
        ("resume", resume()),
        ("resume, another nonce", JobEvent::Resume { daemon: OWN, session: nonce("guess") }),
        ("resume, another daemon", JobEvent::Resume { daemon: OTHER, session: nonce("ours") }),
        ("end if open", end(Guard::Open)),
        ("end if pending", end(Guard::Pending)),
        ("end if held by it", end(Guard::HeldBy(OWN))),
        ("end if held by another daemon", end(Guard::HeldBy(OTHER))),
        ("end if silent since 1", end(Guard::SilentSince(at(1)))),
        ("end if silent since 2", end(Guard::SilentSince(at(2)))),
        ("end if lost since 2", end(Guard::LostSince(at(2)))),
        ("end if lost since 3", end(Guard::LostSince(at(3)))),
    ]
}

fn refusal(error: &TransitionError) -> &'static str {
    match error {
        TransitionError::NotPending => "refused: not pending",
        TransitionError::NotRunning => "refused: not running",
        TransitionError::NotOwner => "refused: not owner",
        TransitionError::AlreadyCompleted => "refused: ended",
        TransitionError::AlreadyCanceled => "refused: canceled before",
        TransitionError::Superseded => "refused: superseded",
        TransitionError::Changed => "refused: changed",
    }
}

fn describe(job: &Lifecycle) -> String {
    let mut text = job.status().to_string();
    if let Lifecycle::Held { owner, connection, alive_at, .. } = job {
        let lost = if matches!(connection, Connection::Lost(_)) { ", lost" } else { "" };
        let _ = write!(text, ", epoch {}, alive {}{lost}", owner.epoch, alive_at.as_second());
    }
    if let Lifecycle::Ended { error, .. } = job
        && !error.is_empty()
    {
        let _ = write!(text, ": {error}");
    }
    text
}

#[test]
fn every_state_with_every_event() {
    let mut table = String::new();
    for (state, job) in states() {
        let _ = writeln!(table, "## {state}: {}", describe(&job));
        for (name, event) in events() {
            let outcome = match job.clone().apply(event, at(10)) {
                Ok(next) if next == job => "nothing changes".to_owned(),
                Ok(next) => describe(&next),
                Err(error) => refusal(&error).to_owned(),
            };
            let _ = writeln!(table, "{name:32} {outcome}");
        }
        let _ = match job.deadline(&Limits::default(), ALWAYS) {
            None => writeln!(table, "no deadline"),
            Some(due) => {
                let (second, ending) = (due.at.as_second(), due.ending);
                writeln!(
                    table,
                    "deadline {second}, {:?}, {}\n  {}\n  {}",
                    ending.guard,
                    ending.cause.label(),
                    ending.cause.error(),
                    ending.cause.log_line()
                )
            }
        };
        table.push('\n');
    }
    insta::assert_snapshot!("states_and_events", table);
}

#[test]
fn a_session_resumes_within_its_grace_and_goes_on() {
    let limits = Limits::default();
    let job = after([session(), JobEvent::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    assert_eq!(job.due(at(121), &limits, ALWAYS), None);
    let ending = job.due(at(122), &limits, ALWAYS).expect("the grace is over");
    assert_eq!((&ending.cause, ending.guard), (&Cause::DaemonLost, Guard::LostSince(at(2))));
    let job = job.apply(resume(), at(121)).unwrap();
    assert_eq!(job.epoch(), Some(2));
    assert_eq!(job.due(at(122), &limits, ALWAYS), None);
    assert_eq!(job.clone().apply(JobEvent::End(ending), at(122)), Err(TransitionError::Changed));
    let late = JobEvent::Complete(OLD_TOKEN);
    assert_eq!(job.clone().apply(late, at(122)), Err(TransitionError::Superseded));
    assert_eq!(job.apply(JobEvent::Complete(TOKEN), at(122)).unwrap().status(), Status::Succeeded);
}

/// One second before the limit nothing is due; at the limit the job ends.
#[test]
fn limits_are_exact() {
    let lost = JobEvent::ConnectionLost;
    let first = Sender { daemon: OWN, epoch: Some(1) };
    let limits = Limits::default();
    let check = |events: Vec<JobEvent>, second: i64, cause: Cause| {
        let job = after(events);
        assert_eq!(job.due(at(second - 1), &limits, ALWAYS), None, "{cause:?}");
        let ending = job.due(at(second), &limits, ALWAYS).expect("due");
        assert_eq!(ending.cause, cause);
        let ended = job.apply(JobEvent::End(ending), at(second)).expect("nothing changed");
        assert_eq!(ended.status(), Status::Failed);
    };
    let hung = || Cause::Hung(SignedDuration::from_mins(5));
    check(vec![session()], 1 + 300, hung());
    check(vec![session(), lost(first)], 2 + 120, Cause::DaemonLost);
    check(vec![official()], 1 + 300, hung());
    check(vec![official(), lost(PLAIN)], 1 + 300, hung());
    check(vec![official(), JobEvent::Cancel], 1 + 300, hung());
    check(vec![official(), JobEvent::Update(PLAIN)], 2 + 300, hung());
    check(vec![official(), lost(PLAIN), JobEvent::Cancel], 3 + 30, Cause::CancelUndelivered);
    check(vec![official(), JobEvent::Cancel, lost(PLAIN)], 3 + 30, Cause::CancelUndelivered);
}

#[test]
fn an_undelivered_cancel_never_delays_the_official_limit() {
    let limits = Limits { cancel_undelivered_after: SignedDuration::from_mins(10), ..Limits::default() };
    let job = after([official(), JobEvent::Cancel, JobEvent::ConnectionLost(PLAIN)]);
    let deadline = job.deadline(&limits, ALWAYS).expect("held");
    assert_eq!((deadline.at, deadline.ending.cause.label()), (at(1 + 300), "hung"));
    // At the same instant the official reason counts.
    let limits = Limits { cancel_undelivered_after: SignedDuration::from_secs(300 - 2), ..limits };
    let deadline = job.deadline(&limits, ALWAYS).expect("held");
    assert_eq!((deadline.at, deadline.ending.cause.label()), (at(1 + 300), "hung"));
}

#[test]
fn a_waiting_job_ends_when_no_daemon_could_run_it_for_the_whole_time() {
    let limits = Limits::default();
    let due = |job: &Lifecycle, second| job.due_pending(at(second), &limits, at(10), "No daemon came.");
    assert_eq!(due(&Lifecycle::Waiting, 10 + 30 * 60 - 1), None);
    let ending = due(&Lifecycle::Waiting, 10 + 30 * 60).expect("due");
    assert_eq!(
        ending.cause.error(),
        "Coder: Build has been detected as pending for 30 minutes and has been terminated by the reaper. No daemon came."
    );
    assert_eq!(
        ending.cause.log_line(),
        "Coder: Build has been detected as pending for 30 minutes and will be terminated. No daemon came."
    );
    for (name, job) in states().into_iter().skip(1) {
        assert_eq!(due(&job, 1_000_000), None, "{name}");
        assert!(job.apply(JobEvent::End(ending.clone()), at(1_000_000)).is_err(), "{name}");
    }
}

#[test]
fn official_texts_count_seconds_below_a_minute() {
    let text = Cause::Hung(SignedDuration::from_secs(59)).error();
    assert!(text.contains("as hung for 59 seconds and has been terminated"), "{text}");
}

#[test]
fn the_end_of_an_old_connection_does_not_lose_the_new_one() {
    let job = after([session(), resume()]);
    let lost = job.apply(JobEvent::ConnectionLost(OLD_TOKEN), at(10));
    assert_eq!(lost, Err(TransitionError::Superseded));
}

#[test]
fn a_grace_longer_than_the_official_silence_is_kept() {
    let limits = Limits { reconnect_grace: SignedDuration::from_mins(10), ..Limits::default() };
    let job = after([session(), JobEvent::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    assert_eq!(job.due(at(601), &limits, ALWAYS), None);
    assert_eq!(job.due(at(602), &limits, ALWAYS).map(|ending| ending.cause), Some(Cause::DaemonLost));
}

#[test]
fn after_a_restart_a_session_that_does_not_reconnect_has_its_grace_period() {
    let (limits, start) = (Limits::default(), at(1000));
    let job = after([session()]).after_restart(start);
    let deadline = job.deadline(&limits, start).expect("held");
    assert_eq!((deadline.at, &deadline.ending.cause), (at(1120), &Cause::DaemonLost));
    // Another replica may have its connection: a heartbeat in between refuses the ending.
    assert_eq!(deadline.ending.guard, Guard::SilentSince(at(1)));
    let lost = after([session(), JobEvent::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    assert_eq!(lost.clone().after_restart(start), lost, "what is known stays");
    let known = lost.deadline(&limits, start).expect("held");
    assert_eq!((known.at, known.ending.guard), (at(1120), Guard::LostSince(at(2))));
    let official = after([official()]).after_restart(start).deadline(&limits, start).expect("held");
    assert_eq!((official.at, official.ending.cause.label()), (at(1300), "hung"));
}

fn limits() -> impl Strategy<Value = Limits> {
    (0_i64..400, 0_i64..400, 0_i64..400).prop_map(|(grace, hung, cancel)| Limits {
        reconnect_grace: SignedDuration::from_secs(grace),
        hung_after: SignedDuration::from_secs(hung),
        cancel_undelivered_after: SignedDuration::from_secs(cancel),
        ..Limits::default()
    })
}

fn guard() -> impl Strategy<Value = Guard> {
    prop_oneof![
        Just(Guard::Pending),
        Just(Guard::HeldBy(OWN)),
        Just(Guard::HeldBy(OTHER)),
        (0_i64..4000).prop_map(|second| Guard::SilentSince(at(second))),
        (0_i64..4000).prop_map(|second| Guard::LostSince(at(second))),
    ]
}

fn event() -> impl Strategy<Value = JobEvent> {
    let daemon = || prop_oneof![4 => Just(OWN), 1 => Just(OTHER)];
    let sender = move || {
        (daemon(), proptest::option::of(0_u64..5)).prop_map(|(daemon, epoch)| Sender { daemon, epoch })
    };
    let session = || prop_oneof![3 => Just(nonce("ours")), 1 => Just(nonce("guess"))];
    prop_oneof![
        3 => (daemon(), proptest::option::of(session()))
            .prop_map(|(daemon, session)| JobEvent::Acquire { daemon, session }),
        4 => sender().prop_map(JobEvent::Update),
        1 => sender().prop_map(JobEvent::Complete),
        1 => sender().prop_map(|sender| JobEvent::Fail(sender, "broken".to_owned())),
        1 => Just(JobEvent::Cancel),
        3 => sender().prop_map(JobEvent::ConnectionLost),
        4 => (daemon(), session()).prop_map(|(daemon, session)| JobEvent::Resume { daemon, session }),
        2 => guard().prop_map(end),
    ]
}

/// The sender of an event, if a daemon sent it.
fn sender(event: &JobEvent) -> Option<Sender> {
    match event {
        JobEvent::Update(sender)
        | JobEvent::Complete(sender)
        | JobEvent::Fail(sender, _)
        | JobEvent::ConnectionLost(sender) => Some(*sender),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// A job has one owner and one end, and accepts messages of the owner's latest connection only.
    #[test]
    fn one_owner_one_result(
        limits in limits(),
        steps in proptest::collection::vec((event(), 0_i64..200), 0..40),
    ) {
        let (mut job, mut now) = (Lifecycle::Waiting, 0);
        let (mut owner, mut epoch, mut official) = (None, 0_u64, false);
        for (event, wait) in steps {
            now += wait;
            check_due(&job, at(now), &limits)?;
            let before = job.clone();
            let Ok(next) = job.clone().apply(event.clone(), at(now)) else { continue };
            prop_assert!(before.record().completed_at.is_none(), "an ended job accepts nothing");
            prop_assert_eq!(next.status().is_active(), next.record().completed_at.is_none());
            if let Some(sender) = sender(&event) {
                prop_assert_eq!(Some(sender.daemon), owner, "only the owner's events count");
                prop_assert!(sender.epoch == Some(epoch) || (official && sender.epoch.is_none()));
            }
            match &event {
                JobEvent::Acquire { daemon, session } => {
                    prop_assert_eq!(owner.replace(*daemon), None, "acquired once");
                    (epoch, official) = (1, session.is_none());
                }
                JobEvent::Resume { .. } => {
                    prop_assert!(!official);
                    epoch += 1;
                }
                JobEvent::Cancel => prop_assert!(next.record().canceled_at == Some(at(now))),
                _ => {}
            }
            if let Lifecycle::Held { owner: held, .. } = &next {
                prop_assert_eq!((Some(held.daemon), held.epoch), (owner, epoch));
            }
            prop_assert_eq!(next.record().worker, owner);
            // What is stored and read again is the same state, but for the connection.
            if let Lifecycle::Held { owner, alive_at, connection: Connection::Connected, .. } = &next {
                let read = next.record().lifecycle(owner.session, owner.epoch, *alive_at);
                prop_assert_eq!(&read, &next);
            }
            job = next;
        }
    }
}

/// A query skips the jobs whose owner was heard of more recently.
#[test]
fn no_limit_for_silent_owners_is_shorter_than_the_shortest() {
    let seconds = SignedDuration::from_secs;
    let of = |grace, hung, cancel| Limits {
        reconnect_grace: seconds(grace),
        hung_after: seconds(hung),
        cancel_undelivered_after: seconds(cancel),
        ..Limits::default()
    };
    for (one, two, three) in
        [(10, 20, 30), (10, 30, 20), (20, 10, 30), (30, 10, 20), (20, 30, 10), (30, 20, 10)]
    {
        assert_eq!(of(one, two, three).shortest_silence(), seconds(10));
    }
    assert_eq!(Limits::default().shortest_silence(), seconds(30));
}

/// What is due can be applied at once, never before the shortest silence, and later only if nothing changed.
fn check_due(job: &Lifecycle, now: Timestamp, limits: &Limits) -> Result<(), TestCaseError> {
    let Some(ending) = job.due(now, limits, ALWAYS) else { return Ok(()) };
    let Lifecycle::Held { alive_at, owner, .. } = job else {
        return Err(TestCaseError::fail("only held jobs are due"));
    };
    prop_assert!(now.duration_since(*alive_at) >= limits.shortest_silence());
    prop_assert!(job.clone().apply(JobEvent::End(ending.clone()), now).is_ok());
    let later = now + SignedDuration::from_secs(1);
    prop_assert_eq!(
        job.due(now, limits, later),
        None,
        "not before this server has watched for the whole time"
    );
    if let Some(session) = owner.session {
        let resume = JobEvent::Resume { daemon: owner.daemon, session };
        let back = job.clone().apply(resume, later).expect("its own session");
        prop_assert_eq!(back.apply(JobEvent::End(ending), later), Err(TransitionError::Changed));
    }
    Ok(())
}

#[test]
fn nothing_is_true_of_a_job_that_has_ended() {
    let held = after([official()]);
    let ended = after([official(), JobEvent::Fail(PLAIN, "it failed".to_owned())]);
    let guards = [Guard::Open, Guard::Pending, Guard::HeldBy(OWN), Guard::SilentSince(at(1))];
    assert_eq!(guards.map(|guard| guard.holds(&held)), [true, false, true, true]);
    assert_eq!(guards.map(|guard| guard.holds(&ended)), [false; 4]);
    assert_eq!(guards.map(|guard| guard.holds(&Lifecycle::Waiting)), [true, true, false, false]);
}
