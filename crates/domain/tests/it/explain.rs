//! Why a job waits: one row for each reason, its words, and an oracle over a model that knows no tag sets.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::explain::{
    Daemon, KeyState, NamedDaemon, Presence, QueueState, Reason, WaitingJob, capable_daemon_seen_at, explain,
};
use coder_domain::ids::{DaemonId, OrganizationId, UserId};
use coder_domain::tags::TagSet;
use jiff::SignedDuration;
use proptest::prelude::*;
use uuid::Uuid;

const NOW: i64 = 1_000_000;
const STALE: SignedDuration = SignedDuration::from_secs(90);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn organization(number: u8) -> OrganizationId {
    OrganizationId(Uuid::from_u128(u128::from(number) + 1))
}

fn user(number: u8) -> UserId {
    UserId(Uuid::from_u128(u128::from(number) + 100))
}

/// What a job asks for or a daemon has, without tag sets: whose, and the values of two tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wants {
    user: Option<u8>,
    extra: [Option<u8>; 2],
}

const PLAIN: Wants = Wants { user: None, extra: [None, None] };

impl Wants {
    fn tags(&self) -> TagSet {
        let mut tags = BTreeMap::new();
        tags.insert("scope".to_owned(), if self.user.is_some() { "user" } else { "organization" }.to_owned());
        tags.insert("owner".to_owned(), self.user.map(|number| user(number).to_string()).unwrap_or_default());
        for (key, value) in ["a", "b"].iter().zip(self.extra) {
            if let Some(value) = value {
                tags.insert((*key).to_owned(), value.to_string());
            }
        }
        TagSet::from_stored(tags)
    }
}

#[derive(Clone, Debug)]
struct Worker {
    organization: u8,
    types: Vec<String>,
    has: Wants,
    seconds_since_seen: Option<i64>,
    presence: Presence,
    key: KeyState,
    draining: bool,
    problem: &'static str,
    slots: u32,
    busy: u32,
}

fn worker() -> Worker {
    Worker {
        organization: 0,
        types: vec!["terraform".to_owned()],
        has: PLAIN,
        seconds_since_seen: Some(0),
        presence: Presence::Connected,
        key: KeyState::Live,
        draining: false,
        problem: "",
        slots: 1,
        busy: 0,
    }
}

const INITIATOR: u8 = 0;

/// Asks the rule; daemons are called `d0`, `d1` and so on.
fn ask(wants: Wants, workers: &[Worker]) -> Vec<Reason> {
    let tags = wants.tags();
    let named: Vec<_> = workers
        .iter()
        .enumerate()
        .map(|(number, worker)| (format!("d{number}"), worker.has.tags()))
        .collect();
    let daemons: Vec<_> = workers
        .iter()
        .zip(&named)
        .map(|(worker, (name, tags))| Daemon {
            id: DaemonId(Uuid::from_u128(name.len() as u128)),
            name,
            organization: organization(worker.organization),
            provisioners: &worker.types,
            tags,
            last_seen_at: worker.seconds_since_seen.map(|ago| at(NOW - ago)),
            presence: worker.presence,
            key: worker.key,
            draining: worker.draining,
            problem: worker.problem,
            slots: worker.slots,
            busy: worker.busy,
        })
        .collect();
    let job = WaitingJob {
        organization: organization(0),
        provisioner: "terraform",
        tags: &tags,
        created_at: at(NOW - 10),
        initiator: user(INITIATOR),
    };
    let queue = QueueState { position: 2, size: 5, oldest_running_since: Some(at(NOW - 60)) };
    explain(&job, &daemons, queue, at(NOW), STALE)
}

fn codes(reasons: &[Reason]) -> Vec<&'static str> {
    reasons.iter().map(Reason::code).collect()
}

#[track_caller]
fn check(wants: Wants, workers: &[Worker], expected: &[&str], message: &str) {
    let reasons = ask(wants, workers);
    assert_eq!(codes(&reasons), expected);
    assert_eq!(reasons[0].message(), message);
}

fn with(user: Option<u8>, a: Option<u8>, b: Option<u8>) -> Wants {
    Wants { user, extra: [a, b] }
}

#[test]
fn row_i_no_daemon_in_this_organization() {
    check(PLAIN, &[], &["no_daemons"], "No daemon has joined this organization.");
    let foreign = Worker { organization: 1, ..worker() };
    check(PLAIN, &[foreign], &["no_daemons"], "No daemon has joined this organization.");
    let echo = Worker { types: vec!["echo".to_owned()], ..worker() };
    let message = "None of the organization's 2 daemons serves the provisioner type terraform.";
    check(PLAIN, &[echo.clone(), echo], &["no_daemons"], message);
}

#[test]
fn row_ii_the_nearest_daemon_lacks_a_tag_or_has_another_value() {
    let (near, far) = (with(None, Some(1), None), with(None, Some(2), None));
    let workers = [Worker { has: far, ..worker() }, Worker { has: near, ..worker() }];
    check(with(None, Some(1), Some(2)), &workers, &["missing_tag"], "The nearest daemon, d1, lacks b=2.");
    check(
        with(None, Some(3), None),
        &workers,
        &["different_tag"],
        "The nearest daemon, d0, has a=2 where the job wants a=3.",
    );
    check(
        with(None, Some(3), Some(1)),
        &workers,
        &["different_tag"],
        "The nearest daemon, d0, has a=2 where the job wants a=3, and lacks b=1.",
    );
    let own = Worker { has: with(Some(INITIATOR), None, None), ..worker() };
    check(
        PLAIN,
        &[own],
        &["different_tag"],
        "The nearest daemon, d0, has scope=user where the job wants scope=organization.",
    );
}

#[test]
fn row_ii_a_connected_daemon_is_nearer_than_a_disconnected_one() {
    let gone = Worker { presence: Presence::Disconnected, has: with(None, Some(1), None), ..worker() };
    let there = Worker { has: with(None, None, Some(9)), ..worker() };
    check(
        with(None, Some(1), Some(2)),
        &[gone, there],
        &["different_tag"],
        "The nearest daemon, d1, has b=9 where the job wants b=2, and lacks a=1.",
    );
}

#[test]
fn row_iii_untagged_and_every_daemon_has_tags_or_the_reverse() {
    let tagged = Worker { has: with(None, Some(1), None), ..worker() };
    check(
        PLAIN,
        &[tagged.clone(), tagged.clone()],
        &["untagged_job"],
        "The job has no tags, and all 2 daemons have some: they take jobs with tags only.",
    );
    check(
        with(None, Some(1), None),
        &[worker(), worker(), worker()],
        &["tagged_job"],
        "The job has tags, and none of the 3 daemons has any: they take jobs without tags only.",
    );
    let busy = Worker { busy: 1, ..worker() };
    let reasons = ask(PLAIN, &[tagged, busy]);
    assert_eq!(codes(&reasons), ["busy", "untagged_job"]);
    assert_eq!(reasons[1].message(), "The job has no tags, and 1 daemon with tags never takes such a job.");
}

#[test]
fn row_iv_a_matching_daemon_was_last_seen_at() {
    let gone = |ago| Worker { presence: Presence::Unknown, seconds_since_seen: ago, ..worker() };
    check(
        PLAIN,
        &[gone(Some(500)), gone(Some(91)), gone(None)],
        &["not_seen"],
        "Daemon d1 could run the job but was last seen at 1970-01-12T13:45:09Z (and 2 more like it).",
    );
    check(PLAIN, &[gone(None)], &["not_seen"], "Daemon d0 could run the job but never came.");
    assert_eq!(codes(&ask(PLAIN, &[gone(Some(90))])), ["starting"], "the stale interval itself is not stale");
    assert_eq!(codes(&ask(PLAIN, &[gone(Some(-9999))])), ["starting"], "the clock jumped back");
    let left = Worker { presence: Presence::Disconnected, ..worker() };
    assert_eq!(codes(&ask(PLAIN, &[left])), ["not_seen"], "certainly gone, however fresh");
}

#[test]
fn row_v_its_key_is_expired_or_revoked() {
    let dead = |key| Worker { key, presence: Presence::Disconnected, ..worker() };
    check(
        PLAIN,
        &[dead(KeyState::Expired(at(0))), dead(KeyState::Expired(at(60)))],
        &["key_expired"],
        "Daemon d1 could run the job but its key expired at 1970-01-01T00:01:00Z (and 1 more like it).",
    );
    check(
        PLAIN,
        &[dead(KeyState::Revoked(at(60)))],
        &["key_revoked"],
        "Daemon d0 could run the job but its key was deleted at 1970-01-01T00:01:00Z.",
    );
}

#[test]
fn row_vi_all_matching_daemons_are_busy() {
    let busy = Worker { slots: 2, busy: 2, ..worker() };
    check(
        PLAIN,
        &[busy.clone(), busy],
        &["busy"],
        "All 2 daemons that can run the job are busy (4 slots): position 2 of 5, oldest running since \
         1970-01-12T13:45:40Z.",
    );
    let half = Worker { slots: 2, busy: 1, ..worker() };
    assert_eq!(codes(&ask(PLAIN, &[half])), ["starting"]);
}

#[test]
fn row_vii_it_drains() {
    let draining = Worker { draining: true, busy: 1, ..worker() };
    check(PLAIN, &[draining], &["draining"], "Daemon d0 could run the job but drains.");
}

#[test]
fn an_unhealthy_daemon_is_not_free() {
    let unhealthy = Worker { problem: "no Terraform", ..worker() };
    check(
        PLAIN,
        &[unhealthy.clone(), unhealthy.clone()],
        &["unhealthy"],
        "Daemon d0 could run the job but is unhealthy ('no Terraform') (and 1 more like it).",
    );
    let [draining, gone] = [
        Worker { draining: true, ..unhealthy.clone() },
        Worker { presence: Presence::Disconnected, ..unhealthy.clone() },
    ];
    assert_eq!(codes(&ask(PLAIN, &[draining])), ["draining"], "it takes no job when it is repaired");
    assert_eq!(codes(&ask(PLAIN, &[gone])), ["not_seen"]);
    let busy = Worker { busy: 1, ..unhealthy };
    assert_eq!(codes(&ask(PLAIN, &[busy])), ["unhealthy"], "it takes no job when it is free");
}

#[test]
fn row_viii_another_users_scope() {
    let others = Worker { has: with(Some(1), None, None), ..worker() };
    let message = "Daemon d0 takes the jobs of another user only.";
    check(PLAIN, std::slice::from_ref(&others), &["other_user"], message);
    let own = with(Some(INITIATOR), None, None);
    check(own, std::slice::from_ref(&others), &["other_user"], message);
    // A daemon of the organization never takes a user's own jobs, whatever its tags are.
    let message = "Daemon d1 takes the jobs of another user only.";
    check(own, &[worker(), others], &["other_user", "different_tag"], message);
}

#[test]
fn another_users_daemon_without_the_tags_is_the_last_reason() {
    let stranger = |a| Worker { has: with(Some(1), a, None), ..worker() };
    let message = "Daemon d0 takes the jobs of another user only.";
    for user in [None, Some(INITIATOR)] {
        let wants = with(user, Some(1), None);
        check(wants, &[stranger(None)], &["other_user"], message);
        let message = "Daemon d0 takes the jobs of another user only (and 1 more like it).";
        check(wants, &[stranger(None), stranger(Some(2))], &["other_user"], message);
        let busy = Worker { has: wants, busy: 1, ..worker() };
        assert_eq!(codes(&ask(wants, &[stranger(None), stranger(Some(2)), busy.clone()])), ["busy"]);
        let reasons = ask(wants, &[stranger(None), busy, stranger(Some(1))]);
        assert_eq!(codes(&reasons), ["busy", "other_user"]);
        let message = "Daemon d2 takes the jobs of another user only.";
        assert_eq!(reasons[1].message(), message, "the one with the tags, counted alone");
    }
    let own = Worker { has: with(Some(INITIATOR), None, None), ..worker() };
    let wants = with(Some(INITIATOR), Some(1), None);
    check(wants, &[stranger(None), own], &["missing_tag"], "The nearest daemon, d1, lacks a=1.");
}

#[test]
fn a_free_daemon_is_the_only_reason() {
    let busy = Worker { busy: 1, ..worker() };
    check(
        PLAIN,
        &[busy, worker()],
        &["starting"],
        "Daemon d1 is free and can run the job, which starts at once.",
    );
}

#[test]
fn the_order_of_reasons() {
    let workers = [
        Worker { has: with(Some(1), None, None), ..worker() },
        Worker { has: with(None, None, Some(2)), ..worker() },
        Worker { key: KeyState::Revoked(at(0)), ..worker() },
        Worker { key: KeyState::Expired(at(0)), ..worker() },
        Worker { presence: Presence::Disconnected, ..worker() },
        Worker { draining: true, ..worker() },
        Worker { problem: "no Terraform", ..worker() },
        Worker { busy: 1, ..worker() },
    ];
    let expected = [
        "busy",
        "unhealthy",
        "draining",
        "not_seen",
        "key_expired",
        "key_revoked",
        "untagged_job",
        "other_user",
    ];
    assert_eq!(codes(&ask(PLAIN, &workers)), expected);
}

#[test]
fn next_steps_name_the_jobs_tags_and_quote_what_others_chose() {
    let tags = with(None, Some(1), Some(2)).tags();
    let reason = &ask(with(None, Some(1), Some(2)), &[])[0];
    assert_eq!(reason.next_step(&tags), "Start a daemon: coder provisioner start --tag a=1 --tag b=2");
    let mut map = tags.as_map().clone();
    map.insert("evil\u{1b}[31m".to_owned(), "x y".to_owned());
    let step = reason.next_step(&TagSet::from_stored(map));
    assert!(step.ends_with(r"--tag 'evil\u{1b}[31m=x y'"), "{step}");
    let many = (0..10_000).map(|n| (format!("k{n:05}"), "v".to_owned())).collect();
    let step = reason.next_step(&TagSet::from_stored(many));
    assert!(step.ends_with("--tag k00003=v --tag … (9996 more)"), "{step}");
}

#[test]
fn every_code_is_listed() {
    let unique: std::collections::BTreeSet<_> = Reason::CODES.into_iter().collect();
    assert_eq!(unique.len(), Reason::CODES.len());
}

#[test]
fn capable_daemons_are_remembered_for_the_reaper() {
    let (tags, types) = (PLAIN.tags(), vec!["terraform".to_owned()]);
    let daemon = |presence, ago: i64, key| Daemon {
        id: DaemonId::NIL,
        name: "d",
        organization: organization(0),
        provisioners: &types,
        tags: &tags,
        last_seen_at: Some(at(NOW - ago)),
        presence,
        key,
        draining: true,
        problem: "no Terraform",
        slots: 1,
        busy: 1,
    };
    let job = |created| WaitingJob {
        organization: organization(0),
        provisioner: "terraform",
        tags: &tags,
        created_at: at(created),
        initiator: user(INITIATOR),
    };
    let seen = |created, daemons: &[Daemon<'_>], watched| {
        capable_daemon_seen_at(&job(created), daemons, at(watched), at(NOW))
    };
    assert_eq!(seen(10, &[], 0), at(10), "never before it was made");
    assert_eq!(seen(10, &[], 500), at(500), "never before we looked");
    assert_eq!(
        seen(10, &[daemon(Presence::Connected, 700, KeyState::None)], 0),
        at(NOW),
        "busy and draining, but there"
    );
    assert_eq!(seen(10, &[daemon(Presence::Unknown, 700, KeyState::Live)], 0), at(NOW - 700));
    assert_eq!(
        seen(10, &[daemon(Presence::Disconnected, 700, KeyState::Revoked(at(0)))], 0),
        at(10),
        "it cannot come back"
    );
    let foreign = Daemon { organization: organization(1), ..daemon(Presence::Connected, 0, KeyState::None) };
    assert_eq!(seen(10, &[foreign], 0), at(10));
}

fn wants() -> impl Strategy<Value = Wants> {
    let tag = || prop_oneof![2 => Just(None), 3 => (0_u8..2).prop_map(Some)];
    (prop_oneof![3 => Just(None), 2 => (0_u8..2).prop_map(Some)], tag(), tag())
        .prop_map(|(user, a, b)| with(user, a, b))
}

fn workers() -> impl Strategy<Value = Vec<Worker>> {
    let presence = prop_oneof![3 => Just(Presence::Connected), 1 => Just(Presence::Disconnected), 2 => Just(Presence::Unknown)];
    let key = prop_oneof![
        2 => Just(KeyState::None),
        3 => Just(KeyState::Live),
        1 => (0_i64..3).prop_map(|second| KeyState::Expired(at(second))),
        1 => (0_i64..3).prop_map(|second| KeyState::Revoked(at(second))),
    ];
    let place =
        (prop_oneof![9 => Just(0_u8), 1 => Just(1)], prop_oneof![9 => Just("terraform"), 1 => Just("echo")]);
    let seen = proptest::option::of(prop_oneof![Just(0_i64), Just(90), Just(91), Just(5000)]);
    let one = (place, wants(), presence, key, seen, any::<bool>(), 1_u32..3, 0_u32..4).prop_map(
        |((organization, kind), has, presence, key, seconds_since_seen, draining, slots, busy)| Worker {
            organization,
            types: vec![kind.to_owned()],
            has,
            seconds_since_seen,
            presence,
            key,
            draining,
            problem: "",
            slots,
            busy,
        },
    );
    proptest::collection::vec(one, 0..7)
}

/// Whether such a daemon takes such a job, from the published words alone.
fn takes(has: Wants, wants: Wants) -> bool {
    if wants == PLAIN {
        return has == PLAIN;
    }
    has.user == wants.user
        && (0..2).all(|tag| wants.extra[tag].is_none() || wants.extra[tag] == has.extra[tag])
}

/// What is wrong with the tags: how many pairs in all, and how many of these are there with another value.
fn wrong(has: Wants, wants: Wants) -> (usize, usize) {
    let scope = usize::from(has.user.is_some() != wants.user.is_some());
    let asked: Vec<_> = (0..2).filter(|tag| wants.extra[*tag].is_some()).collect();
    let other =
        asked.iter().filter(|tag| has.extra[**tag].is_some() && has.extra[**tag] != wants.extra[**tag]);
    let other = other.count() + scope;
    let missing = asked.iter().filter(|tag| has.extra[**tag].is_none()).count();
    (other + missing, other)
}

/// The reasons by their codes, found case by case.
fn oracle(wants: Wants, workers: &[Worker]) -> Vec<&'static str> {
    let there = |worker: &Worker| match (worker.presence, worker.seconds_since_seen) {
        (Presence::Connected, _) => true,
        (Presence::Disconnected, _) | (Presence::Unknown, None) => false,
        (Presence::Unknown, Some(ago)) => ago <= 90,
    };
    let ours: Vec<_> = workers.iter().filter(|w| w.organization == 0 && w.types == ["terraform"]).collect();
    if ours.is_empty() {
        return vec!["no_daemons"];
    }
    let mut able: Vec<&str> = Vec::new();
    let (mut strangers, mut fitting, mut misfits) = (0, 0, Vec::new());
    for worker in &ours {
        if takes(worker.has, wants) {
            able.push(match worker.key {
                KeyState::Expired(_) => "key_expired",
                KeyState::Revoked(_) => "key_revoked",
                _ if !there(worker) => "not_seen",
                _ if worker.draining => "draining",
                _ if worker.busy >= worker.slots => "busy",
                _ => "starting",
            });
        } else if worker.has.user.is_some_and(|owner| owner != wants.user.unwrap_or(INITIATOR)) {
            strangers += 1;
            fitting +=
                usize::from((0..2).all(|tag| [None, worker.has.extra[tag]].contains(&wants.extra[tag])));
        } else {
            misfits.push(*worker);
        }
    }
    if able.contains(&"starting") {
        return vec!["starting"];
    }
    let order = ["busy", "draining", "not_seen", "key_expired", "key_revoked"];
    let mut reasons: Vec<_> = order.into_iter().filter(|code| able.contains(code)).collect();
    if fitting > 0 && wants.user.is_some() {
        reasons.push("other_user");
    }
    let all_plain = misfits.iter().all(|worker| worker.has == PLAIN);
    if !misfits.is_empty() && able.is_empty() && all_plain && wants.user.is_none() {
        reasons.push("tagged_job");
    } else {
        misfits.sort_by_key(|worker| {
            let (pairs, other) = wrong(worker.has, wants);
            (!there(worker), pairs, other)
        });
        for worker in misfits {
            let code = match wrong(worker.has, wants) {
                (0, _) => "untagged_job",
                (_, 0) => "missing_tag",
                _ => "different_tag",
            };
            let nearest = ["missing_tag", "different_tag"];
            let said = reasons.contains(&code)
                || (nearest.contains(&code) && nearest.iter().any(|other| reasons.contains(other)));
            if !said {
                reasons.push(code);
            }
        }
    }
    if (fitting > 0 && wants.user.is_none()) || (strangers > 0 && reasons.is_empty()) {
        reasons.push("other_user");
    }
    reasons
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_true_reasons_in_the_true_order(wants in wants(), workers in workers()) {
        prop_assert_eq!(codes(&ask(wants, &workers)), oracle(wants, &workers));
    }

    /// What the first reason names is true of the daemon that it names.
    #[test]
    fn the_first_reason_is_true(wants in wants(), workers in workers()) {
        let reasons = ask(wants, &workers);
        let of = |name: &str| &workers[name[1..].parse::<usize>().expect("d and a number")];
        match &reasons[0] {
            Reason::Starting { daemon } => {
                let worker = of(&daemon.name);
                prop_assert!(takes(worker.has, wants) && worker.busy < worker.slots && !worker.draining);
            }
            Reason::Busy { daemons, slots, .. } => {
                let full = workers.iter().filter(|w| takes(w.has, wants) && w.busy >= w.slots);
                prop_assert!(*daemons >= 1 && *daemons <= full.count() && *slots >= *daemons as u64);
            }
            Reason::MissingTag { daemon, missing } => {
                let worker = of(&daemon.name);
                prop_assert_eq!((missing.len(), 0), wrong(worker.has, wants));
            }
            Reason::DifferentTag { daemon, different, missing } => {
                let worker = of(&daemon.name);
                prop_assert_eq!((different.len() + missing.len(), different.len()), wrong(worker.has, wants));
                for tag in different {
                    prop_assert_ne!(&tag.wants, &tag.has);
                }
            }
            Reason::NotSeen { daemon, .. } => prop_assert!(of(&daemon.name).presence != Presence::Connected),
            Reason::OtherUser { daemon, .. } => prop_assert!(of(&daemon.name).has.user.is_some()),
            _ => {}
        }
        for reason in &reasons {
            let tags = wants.tags();
            prop_assert!(Reason::CODES.contains(&reason.code()));
            prop_assert!(reason.message().ends_with('.') && !reason.next_step(&tags).is_empty());
        }
    }
}

/// A machine may wait while this is true; in every other case somebody has to do something.
#[test]
fn only_free_and_busy_daemons_need_no_action() {
    let daemon = || NamedDaemon { id: DaemonId(Uuid::from_u128(1)), name: "d".to_owned() };
    let queue = QueueState { position: 1, size: 1, oldest_running_since: None };
    let at = Timestamp::UNIX_EPOCH;
    let reasons = [
        (Reason::Starting { daemon: daemon() }, true),
        (Reason::Busy { daemons: 1, slots: 1, queue }, true),
        (Reason::Draining { daemon: daemon(), daemons: 1 }, false),
        (Reason::NotSeen { daemon: daemon(), last_seen_at: None, daemons: 1 }, false),
        (Reason::KeyExpired { daemon: daemon(), at, daemons: 1 }, false),
        (Reason::KeyRevoked { daemon: daemon(), at, daemons: 1 }, false),
        (Reason::TaggedJob { daemons: 1 }, false),
        (Reason::UntaggedJob { daemons: 1, every: true }, false),
    ];
    for (reason, passes) in reasons {
        assert_eq!(reason.passes_by_itself(), passes, "{}", reason.code());
    }
}

#[test]
fn what_is_not_known_of_the_queue_is_not_said() {
    let text = |position, since| {
        let queue = QueueState { position, size: 3, oldest_running_since: since };
        Reason::Busy { daemons: 1, slots: 1, queue }.message()
    };
    let busy = "The one daemon that can run the job is busy (1 slot)";
    let since = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(text(0, None), format!("{busy}."));
    assert_eq!(text(1, None), format!("{busy}: position 1 of 3."));
    assert_eq!(text(0, since), format!("{busy}, oldest running since 1970-01-01T00:00:00Z."));
}

#[test]
fn four_tags_are_named_and_further_ones_are_counted() {
    let daemon = || NamedDaemon { id: DaemonId(Uuid::from_u128(1)), name: "d".to_owned() };
    for (count, lacks, start) in [
        (4, "k3=v.", "--tag k3=v"),
        (5, "k3=v and 1 more.", "--tag k3=v --tag … (1 more)"),
        (6, "k3=v and 2 more.", "--tag k3=v --tag … (2 more)"),
    ] {
        let tags: BTreeMap<_, _> = (0..count).map(|n| (format!("k{n}"), "v".to_owned())).collect();
        let missing = tags.clone().into_iter().collect();
        let message = Reason::MissingTag { daemon: daemon(), missing }.message();
        assert_eq!(message, format!("The nearest daemon, d, lacks k0=v, k1=v, k2=v, {lacks}"));
        let tags = TagSet::canonical(UserId::NIL, [&tags]);
        let step = Reason::Draining { daemon: daemon(), daemons: 1 }.next_step(&tags);
        assert!(step.ends_with(start), "{step}");
    }
}
