//! The life of a job: every state meets every event, and random lives keep the promises.

use std::fmt::Write as _;

use coder_domain::Timestamp;
use coder_domain::ids::DaemonId;
use coder_domain::job::lifecycle::{Connection, JobEvent, Lifecycle, Limits, Sender};
use coder_domain::job::{Status, TransitionError};
use coder_domain::key::Sha256Digest;
use proptest::prelude::*;
use uuid::Uuid;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

const OWN: DaemonId = DaemonId(Uuid::from_u128(1));
const OTHER: DaemonId = DaemonId(Uuid::from_u128(2));

fn nonce(text: &str) -> Sha256Digest {
    Sha256Digest::of(text)
}

/// A life after these events, a second apart from second 1 on.
fn after(events: impl IntoIterator<Item = JobEvent>) -> Lifecycle {
    (1..).zip(events).fold(Lifecycle::Waiting, |life, (second, what)| {
        life.apply(what, at(second), &Limits::default()).expect("the story is possible")
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

const PLAIN: Sender = Sender { daemon: OWN, epoch: None };
/// The current epoch of the sessions in the grid, which came back once.
const TOKEN: Sender = Sender { daemon: OWN, epoch: Some(2) };
const OLD_TOKEN: Sender = Sender { daemon: OWN, epoch: Some(1) };

fn states() -> Vec<(&'static str, Lifecycle)> {
    use JobEvent::{Cancel, ConnectionLost, Fail};
    let came_back = || vec![session(), resume()];
    let with = |mut story: Vec<JobEvent>, more: Vec<JobEvent>| {
        story.extend(more);
        after(story)
    };
    vec![
        ("waiting", Lifecycle::Waiting),
        ("official", after([official()])),
        ("official, cancel", after([official(), Cancel])),
        ("official, lost", after([official(), ConnectionLost(PLAIN)])),
        ("official, lost, cancel", after([official(), ConnectionLost(PLAIN), Cancel])),
        ("session", with(came_back(), vec![])),
        ("session, cancel", with(came_back(), vec![Cancel])),
        ("session, lost", with(came_back(), vec![ConnectionLost(TOKEN)])),
        ("session, lost, cancel", with(came_back(), vec![Cancel, ConnectionLost(TOKEN)])),
        ("succeeded", after([official(), JobEvent::Complete(PLAIN)])),
        ("failed", with(came_back(), vec![Fail(TOKEN, "no".to_owned())])),
        ("canceled in the queue", after([Cancel])),
    ]
}

/// Name, event, and second; the states above are at most four seconds old.
fn events() -> Vec<(&'static str, JobEvent, i64)> {
    use JobEvent::{
        Cancel, Complete, ConnectionLost, Fail, GiveUp, GraceOver, KeyGone, Silent, Unheard, Update,
    };
    let stranger = Sender { daemon: OTHER, epoch: None };
    let forged = Sender { daemon: OTHER, epoch: Some(2) };
    let unserved =
        || JobEvent::Unserved { capable_daemon_seen_at: at(10), reason: "Nobody came.".to_owned() };
    let fail = |sender| Fail(sender, "broken".to_owned());
    let far = 1_000_000;
    vec![
        ("acquire, official", official(), 10),
        ("acquire, session", session(), 10),
        ("acquire, another", JobEvent::Acquire { daemon: OTHER, session: None }, 10),
        ("update", Update(PLAIN), 10),
        ("update, token", Update(TOKEN), 10),
        ("update, old token", Update(OLD_TOKEN), 10),
        ("update, another daemon", Update(stranger), 10),
        ("update, stolen token", Update(forged), 10),
        ("complete", Complete(PLAIN), 10),
        ("complete, token", Complete(TOKEN), 10),
        ("complete, old token", Complete(OLD_TOKEN), 10),
        ("complete, another daemon", Complete(stranger), 10),
        ("fail", fail(PLAIN), 10),
        ("fail, token", fail(TOKEN), 10),
        ("fail, old token", fail(OLD_TOKEN), 10),
        ("fail, another daemon", fail(stranger), 10),
        ("cancel", Cancel, 10),
        ("connection lost", ConnectionLost(PLAIN), 10),
        ("connection lost, token", ConnectionLost(TOKEN), 10),
        ("connection lost, old token", ConnectionLost(OLD_TOKEN), 10),
        ("connection lost, another daemon", ConnectionLost(stranger), 10),
        ("resume", resume(), 10),
        ("resume, another nonce", JobEvent::Resume { daemon: OWN, session: nonce("guess") }, 10),
        ("resume, another daemon", JobEvent::Resume { daemon: OTHER, session: nonce("ours") }, 10),
        ("grace, too early", GraceOver, 120),
        ("grace over", GraceOver, far),
        ("silent, too early", Silent, 300),
        ("silent", Silent, far),
        ("unheard, too early", Unheard, 31),
        ("unheard", Unheard, far),
        ("unserved, too early", unserved(), 10 + 30 * 60 - 1),
        ("unserved", unserved(), 10 + 30 * 60),
        ("key deleted", KeyGone { daemon: OWN, expired: false }, 10),
        ("key deleted, another daemon", KeyGone { daemon: OTHER, expired: false }, 10),
        ("key expired", KeyGone { daemon: OWN, expired: true }, 10),
        ("given up", GiveUp("invalid".to_owned()), 10),
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
        TransitionError::NotYet => "refused: not yet",
    }
}

fn shown(life: &Lifecycle) -> String {
    let mut text = life.status().to_string();
    if let Lifecycle::Held { owner, connection, alive_at, .. } = life {
        let lost = if matches!(connection, Connection::Lost(_)) { ", lost" } else { "" };
        let _ = write!(text, ", epoch {}, alive {}{lost}", owner.epoch, alive_at.as_second());
    }
    if let Lifecycle::Ended { error, .. } = life
        && !error.is_empty()
    {
        let _ = write!(text, ": {error}");
    }
    text
}

#[test]
fn every_state_with_every_event() {
    let mut grid = String::new();
    for (state, life) in states() {
        let _ = writeln!(grid, "## {state}: {}", shown(&life));
        for (event, what, second) in events() {
            let outcome = match life.clone().apply(what, at(second), &Limits::default()) {
                Ok(next) if next == life => "nothing changes".to_owned(),
                Ok(next) => shown(&next),
                Err(error) => refusal(&error).to_owned(),
            };
            let _ = writeln!(grid, "{event:32} {outcome}");
        }
        grid.push('\n');
    }
    insta::assert_snapshot!("states_and_events", grid);
}

#[test]
fn a_session_comes_back_within_its_grace_and_goes_on() {
    let life = after([session(), JobEvent::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    let limits = Limits::default();
    assert_eq!(life.clone().apply(JobEvent::GraceOver, at(121), &limits), Err(TransitionError::NotYet));
    let life = life.apply(resume(), at(121), &limits).unwrap();
    assert_eq!(life.epoch(), Some(2));
    assert_eq!(life.clone().apply(JobEvent::GraceOver, at(9999), &limits), Err(TransitionError::NotYet));
    let late = JobEvent::Complete(OLD_TOKEN);
    assert_eq!(life.clone().apply(late, at(122), &limits), Err(TransitionError::Superseded));
    assert_eq!(life.apply(JobEvent::Complete(TOKEN), at(122), &limits).unwrap().status(), Status::Succeeded);
}

/// Each limit is kept to the instant: one second before it nothing happens, at it the job ends.
#[test]
fn limits_are_exact() {
    let lost = JobEvent::ConnectionLost;
    let first = Sender { daemon: OWN, epoch: Some(1) };
    let check = |story: Vec<JobEvent>, what: JobEvent, second: i64| {
        let life = after(story);
        let limits = Limits::default();
        let early = life.clone().apply(what.clone(), at(second - 1), &limits);
        assert_eq!(early, Err(TransitionError::NotYet), "{what:?}");
        assert_eq!(life.apply(what, at(second), &limits).map(|life| life.status()), Ok(Status::Failed));
    };
    check(vec![session(), lost(first)], JobEvent::GraceOver, 2 + 120);
    check(vec![official()], JobEvent::Silent, 1 + 300);
    check(vec![official(), JobEvent::Update(PLAIN)], JobEvent::Silent, 2 + 300);
    check(vec![official(), lost(PLAIN), JobEvent::Cancel], JobEvent::Unheard, 3 + 30);
    check(vec![official(), JobEvent::Cancel, lost(PLAIN)], JobEvent::Unheard, 3 + 30);
}

#[test]
fn the_end_of_an_old_connection_does_not_lose_the_new_one() {
    let life = after([session(), resume()]);
    let lost = life.clone().apply(JobEvent::ConnectionLost(OLD_TOKEN), at(10), &Limits::default());
    assert_eq!(lost, Err(TransitionError::Superseded));
}

#[test]
fn a_grace_longer_than_the_official_silence_is_kept() {
    let limits = Limits { grace: jiff::SignedDuration::from_mins(10), ..Limits::default() };
    let life = after([session(), JobEvent::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    assert_eq!(life.clone().apply(JobEvent::Silent, at(500), &limits), Err(TransitionError::NotYet));
    assert_eq!(life.apply(JobEvent::GraceOver, at(700), &limits).unwrap().status(), Status::Failed);
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
        2 => Just(JobEvent::GraceOver),
        1 => Just(JobEvent::Silent),
        1 => Just(JobEvent::Unheard),
        1 => (0_i64..4000).prop_map(|s| JobEvent::Unserved { capable_daemon_seen_at: at(s), reason: String::new() }),
        1 => daemon().prop_map(|daemon| JobEvent::KeyGone { daemon, expired: true }),
    ]
}

/// Who speaks in a event, if a daemon does.
fn speaker(what: &JobEvent) -> Option<Sender> {
    match what {
        JobEvent::Update(sender)
        | JobEvent::Complete(sender)
        | JobEvent::Fail(sender, _)
        | JobEvent::ConnectionLost(sender) => Some(*sender),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// One owner for ever, one end, and nobody is heard but the owner's latest connection.
    #[test]
    fn one_owner_one_result(steps in proptest::collection::vec((event(), 0_i64..200), 0..40)) {
        let limits = Limits::default();
        let (mut life, mut now) = (Lifecycle::Waiting, 0);
        let (mut owner, mut epoch, mut official) = (None, 0_u64, false);
        for (what, wait) in steps {
            now += wait;
            let before = life.clone();
            let Ok(next) = life.clone().apply(what.clone(), at(now), &limits) else { continue };
            prop_assert!(before.record().completed_at.is_none(), "an ended job accepts nothing");
            if let Some(sender) = speaker(&what) {
                prop_assert_eq!(Some(sender.daemon), owner, "only the owner speaks");
                prop_assert!(sender.epoch == Some(epoch) || (official && sender.epoch.is_none()));
            }
            match &what {
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
            // What is stored and read again is the same life, but for the connection.
            if let Lifecycle::Held { owner, alive_at, connection: Connection::Connected, .. } = &next {
                let read = next.record().lifecycle(owner.session, owner.epoch, *alive_at);
                prop_assert_eq!(&read, &next);
            }
            life = next;
        }
    }
}
