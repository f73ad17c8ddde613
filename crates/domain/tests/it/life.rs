//! The life of a job: every state meets every happening, and random lives keep the promises.

use std::fmt::Write as _;

use coder_domain::Timestamp;
use coder_domain::ids::DaemonId;
use coder_domain::job::life::{Happening, Life, Limits, Link, Sender};
use coder_domain::job::{InvalidTransition, Status};
use coder_domain::key::Hashed;
use proptest::prelude::*;
use uuid::Uuid;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

const OWN: DaemonId = DaemonId(Uuid::from_u128(1));
const OTHER: DaemonId = DaemonId(Uuid::from_u128(2));

fn nonce(text: &str) -> Hashed {
    Hashed::of(text)
}

/// A life after these happenings, a second apart from second 1 on.
fn after(happenings: impl IntoIterator<Item = Happening>) -> Life {
    (1..).zip(happenings).fold(Life::Waiting, |life, (second, what)| {
        life.apply(what, at(second), &Limits::default()).expect("the story is possible")
    })
}

fn official() -> Happening {
    Happening::Acquire { daemon: OWN, session: None }
}

fn session() -> Happening {
    Happening::Acquire { daemon: OWN, session: Some(nonce("ours")) }
}

fn resume() -> Happening {
    Happening::Resume { daemon: OWN, session: nonce("ours") }
}

const PLAIN: Sender = Sender { daemon: OWN, epoch: None };
/// The current epoch of the sessions in the grid, which came back once.
const TOKEN: Sender = Sender { daemon: OWN, epoch: Some(2) };
const OLD_TOKEN: Sender = Sender { daemon: OWN, epoch: Some(1) };

fn states() -> Vec<(&'static str, Life)> {
    use Happening::{Cancel, ConnectionLost, Fail};
    let came_back = || vec![session(), resume()];
    let with = |mut story: Vec<Happening>, more: Vec<Happening>| {
        story.extend(more);
        after(story)
    };
    vec![
        ("waiting", Life::Waiting),
        ("official", after([official()])),
        ("official, cancel", after([official(), Cancel])),
        ("official, lost", after([official(), ConnectionLost(PLAIN)])),
        ("official, lost, cancel", after([official(), ConnectionLost(PLAIN), Cancel])),
        ("session", with(came_back(), vec![])),
        ("session, cancel", with(came_back(), vec![Cancel])),
        ("session, lost", with(came_back(), vec![ConnectionLost(TOKEN)])),
        ("session, lost, cancel", with(came_back(), vec![Cancel, ConnectionLost(TOKEN)])),
        ("succeeded", after([official(), Happening::Complete(PLAIN)])),
        ("failed", with(came_back(), vec![Fail(TOKEN, "no".to_owned())])),
        ("canceled in the queue", after([Cancel])),
    ]
}

/// Name, happening, and second; the states above are at most four seconds old.
fn happenings() -> Vec<(&'static str, Happening, i64)> {
    use Happening::{
        Cancel, Complete, ConnectionLost, Fail, GiveUp, GraceOver, KeyGone, Silent, Unheard, Update,
    };
    let stranger = Sender { daemon: OTHER, epoch: None };
    let forged = Sender { daemon: OTHER, epoch: Some(2) };
    let unserved = || Happening::Unserved { able_seen_at: at(10), reason: "Nobody came.".to_owned() };
    let fail = |sender| Fail(sender, "broken".to_owned());
    let far = 1_000_000;
    vec![
        ("acquire, official", official(), 10),
        ("acquire, session", session(), 10),
        ("acquire, another", Happening::Acquire { daemon: OTHER, session: None }, 10),
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
        ("resume, another nonce", Happening::Resume { daemon: OWN, session: nonce("guess") }, 10),
        ("resume, another daemon", Happening::Resume { daemon: OTHER, session: nonce("ours") }, 10),
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

fn refusal(error: &InvalidTransition) -> &'static str {
    match error {
        InvalidTransition::NotPending => "refused: not pending",
        InvalidTransition::NotRunning => "refused: not running",
        InvalidTransition::NotOwner => "refused: not owner",
        InvalidTransition::AlreadyCompleted => "refused: ended",
        InvalidTransition::AlreadyCanceled => "refused: canceled before",
        InvalidTransition::Superseded => "refused: superseded",
        InvalidTransition::NotYet => "refused: not yet",
    }
}

fn shown(life: &Life) -> String {
    let mut text = life.status().to_string();
    if let Life::Held { owner, link, alive_at, .. } = life {
        let lost = if matches!(link, Link::Lost(_)) { ", lost" } else { "" };
        let _ = write!(text, ", epoch {}, alive {}{lost}", owner.epoch, alive_at.as_second());
    }
    if let Life::Ended { error, .. } = life
        && !error.is_empty()
    {
        let _ = write!(text, ": {error}");
    }
    text
}

#[test]
fn every_state_meets_every_happening() {
    let mut grid = String::new();
    for (state, life) in states() {
        let _ = writeln!(grid, "## {state}: {}", shown(&life));
        for (happening, what, second) in happenings() {
            let outcome = match life.clone().apply(what, at(second), &Limits::default()) {
                Ok(next) if next == life => "nothing changes".to_owned(),
                Ok(next) => shown(&next),
                Err(error) => refusal(&error).to_owned(),
            };
            let _ = writeln!(grid, "{happening:32} {outcome}");
        }
        grid.push('\n');
    }
    insta::assert_snapshot!("states_and_happenings", grid);
}

#[test]
fn a_session_comes_back_within_its_grace_and_goes_on() {
    let life = after([session(), Happening::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    let limits = Limits::default();
    assert_eq!(life.clone().apply(Happening::GraceOver, at(121), &limits), Err(InvalidTransition::NotYet));
    let life = life.apply(resume(), at(121), &limits).unwrap();
    assert_eq!(life.epoch(), Some(2));
    assert_eq!(life.clone().apply(Happening::GraceOver, at(9999), &limits), Err(InvalidTransition::NotYet));
    let late = Happening::Complete(OLD_TOKEN);
    assert_eq!(life.clone().apply(late, at(122), &limits), Err(InvalidTransition::Superseded));
    assert_eq!(life.apply(Happening::Complete(TOKEN), at(122), &limits).unwrap().status(), Status::Succeeded);
}

/// Each limit is kept to the instant: one second before it nothing happens, at it the job ends.
#[test]
fn limits_are_exact() {
    let lost = Happening::ConnectionLost;
    let first = Sender { daemon: OWN, epoch: Some(1) };
    let check = |story: Vec<Happening>, what: Happening, second: i64| {
        let life = after(story);
        let limits = Limits::default();
        let early = life.clone().apply(what.clone(), at(second - 1), &limits);
        assert_eq!(early, Err(InvalidTransition::NotYet), "{what:?}");
        assert_eq!(life.apply(what, at(second), &limits).map(|life| life.status()), Ok(Status::Failed));
    };
    check(vec![session(), lost(first)], Happening::GraceOver, 2 + 120);
    check(vec![official()], Happening::Silent, 1 + 300);
    check(vec![official(), Happening::Update(PLAIN)], Happening::Silent, 2 + 300);
    check(vec![official(), lost(PLAIN), Happening::Cancel], Happening::Unheard, 3 + 30);
    check(vec![official(), Happening::Cancel, lost(PLAIN)], Happening::Unheard, 3 + 30);
}

#[test]
fn the_end_of_an_old_connection_does_not_lose_the_new_one() {
    let life = after([session(), resume()]);
    let lost = life.clone().apply(Happening::ConnectionLost(OLD_TOKEN), at(10), &Limits::default());
    assert_eq!(lost, Err(InvalidTransition::Superseded));
}

#[test]
fn a_grace_longer_than_the_official_silence_is_kept() {
    let limits = Limits { grace: jiff::SignedDuration::from_mins(10), ..Limits::default() };
    let life = after([session(), Happening::ConnectionLost(Sender { daemon: OWN, epoch: Some(1) })]);
    assert_eq!(life.clone().apply(Happening::Silent, at(500), &limits), Err(InvalidTransition::NotYet));
    assert_eq!(life.apply(Happening::GraceOver, at(700), &limits).unwrap().status(), Status::Failed);
}

fn happening() -> impl Strategy<Value = Happening> {
    let daemon = || prop_oneof![4 => Just(OWN), 1 => Just(OTHER)];
    let sender = move || {
        (daemon(), proptest::option::of(0_u64..5)).prop_map(|(daemon, epoch)| Sender { daemon, epoch })
    };
    let session = || prop_oneof![3 => Just(nonce("ours")), 1 => Just(nonce("guess"))];
    prop_oneof![
        3 => (daemon(), proptest::option::of(session()))
            .prop_map(|(daemon, session)| Happening::Acquire { daemon, session }),
        4 => sender().prop_map(Happening::Update),
        1 => sender().prop_map(Happening::Complete),
        1 => sender().prop_map(|sender| Happening::Fail(sender, "broken".to_owned())),
        1 => Just(Happening::Cancel),
        3 => sender().prop_map(Happening::ConnectionLost),
        4 => (daemon(), session()).prop_map(|(daemon, session)| Happening::Resume { daemon, session }),
        2 => Just(Happening::GraceOver),
        1 => Just(Happening::Silent),
        1 => Just(Happening::Unheard),
        1 => (0_i64..4000).prop_map(|s| Happening::Unserved { able_seen_at: at(s), reason: String::new() }),
        1 => daemon().prop_map(|daemon| Happening::KeyGone { daemon, expired: true }),
    ]
}

/// Who speaks in a happening, if a daemon does.
fn speaker(what: &Happening) -> Option<Sender> {
    match what {
        Happening::Update(sender)
        | Happening::Complete(sender)
        | Happening::Fail(sender, _)
        | Happening::ConnectionLost(sender) => Some(*sender),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// One owner for ever, one end, and nobody is heard but the owner's latest connection.
    #[test]
    fn one_owner_one_result(steps in proptest::collection::vec((happening(), 0_i64..200), 0..40)) {
        let limits = Limits::default();
        let (mut life, mut now) = (Life::Waiting, 0);
        let (mut owner, mut epoch, mut official) = (None, 0_u64, false);
        for (what, wait) in steps {
            now += wait;
            let before = life.clone();
            let Ok(next) = life.clone().apply(what.clone(), at(now), &limits) else { continue };
            prop_assert!(before.facts().completed_at.is_none(), "an ended job accepts nothing");
            if let Some(sender) = speaker(&what) {
                prop_assert_eq!(Some(sender.daemon), owner, "only the owner speaks");
                prop_assert!(sender.epoch == Some(epoch) || (official && sender.epoch.is_none()));
            }
            match &what {
                Happening::Acquire { daemon, session } => {
                    prop_assert_eq!(owner.replace(*daemon), None, "acquired once");
                    (epoch, official) = (1, session.is_none());
                }
                Happening::Resume { .. } => {
                    prop_assert!(!official);
                    epoch += 1;
                }
                Happening::Cancel => prop_assert!(next.facts().canceled_at == Some(at(now))),
                _ => {}
            }
            if let Life::Held { owner: held, .. } = &next {
                prop_assert_eq!((Some(held.daemon), held.epoch), (owner, epoch));
            }
            prop_assert_eq!(next.facts().worker, owner);
            // What is stored and read again is the same life, but for the connection.
            if let Life::Held { owner, alive_at, link: Link::Connected, .. } = &next {
                let read = next.facts().life(owner.session, owner.epoch, *alive_at);
                prop_assert_eq!(&read, &next);
            }
            life = next;
        }
    }
}
