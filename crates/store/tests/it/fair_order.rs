//! The fair order: claims return the same jobs as the reference model, for random sequences of events.

use std::collections::{BTreeMap, HashMap};

use coder_domain::ids::{DaemonId, JobId, UserId};
use coder_domain::job::lifecycle::Guard;
use coder_domain::queue::model::{FairQueue, Job};
use coder_store::jobs::queue;
use coder_store::{Error, check, jobs, tag_sets, users};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::{Fixture, new_user, on_both_engines, tags};

on_both_engines!(
    claims_follow_the_order_of_the_model,
    new_initiator_waits_for_at_most_one_job_of_each_other,
    a_job_canceled_while_it_waits_is_never_handed_out,
);

/// The tag sets that a claim may request, by index.
const WANTED_SETS: [&[usize]; 5] = [&[0, 1, 2], &[0], &[1, 2], &[2], &[0, 2]];

#[derive(Clone, Debug)]
enum Step {
    Enqueue { initiator: usize, set: usize, automatic: bool },
    Acquire { wish: usize },
    Cancel { nth: usize },
    Reap { nth: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_usize, 0..3_usize, proptest::bool::weighted(0.2))
            .prop_map(|(initiator, set, automatic)| Step::Enqueue { initiator, set, automatic }),
        3 => (0..WANTED_SETS.len()).prop_map(|wish| Step::Acquire { wish }),
        1 => (0..20_usize).prop_map(|nth| Step::Cancel { nth }),
        1 => (0..20_usize).prop_map(|nth| Step::Reap { nth }),
    ];
    proptest::collection::vec(step, 1..40)
}

struct World {
    fixture: Fixture,
    people: Vec<UserId>,
    daemon: DaemonId,
}

impl World {
    async fn new(fixture: Fixture) -> Self {
        let mut people = vec![UserId::PREBUILDS];
        for name in ["b", "c", "d"] {
            let user = new_user(name);
            people.push(user.id);
            fixture.store.write(async |tx| users::insert(tx, &user).await).await.unwrap();
        }
        let daemon = fixture.daemon("one", &tags(&[])).await;
        Self { fixture, people, daemon }
    }

    async fn enqueue(&self, initiator: UserId, set: &str, automatic: bool) -> JobId {
        let mut job = self.fixture.new_job(&tags(&[("set", set)]));
        (job.initiator_id, job.automatic) = (initiator, automatic);
        let now = self.fixture.tick();
        coder_store::transaction!(self.fixture.store, Error, |tx| { jobs::insert(tx, &job, now).await })
            .unwrap();
        job.id
    }

    async fn run(&self, case: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
        let mut fair = FairQueue::default();
        let mut waiting: Vec<JobId> = Vec::new();
        let mut sets: HashMap<usize, i64> = HashMap::new();
        for set in 0..3 {
            let id = self.enqueue(self.people[1], &format!("{case} {set}"), false).await;
            sets.insert(set, self.fixture.get_job(id).await.tag_set_id);
            let mut tx = self.fixture.store.single().await.unwrap();
            jobs::cancel(&mut tx, id, None, self.fixture.tick()).await.unwrap();
        }
        for step in steps {
            match step {
                Step::Enqueue { initiator, set, automatic } => {
                    let initiator = self.people[initiator];
                    let id = self.enqueue(initiator, &format!("{case} {set}"), automatic).await;
                    let automatic = automatic || initiator == UserId::PREBUILDS;
                    let created_at = self.fixture.get_job(id).await.created_at;
                    fair.enqueue(&Job { id, initiator, set, automatic, created_at });
                    waiting.push(id);
                }
                Step::Acquire { wish } => {
                    let types = ["terraform".to_owned()];
                    let asked: Vec<i64> = WANTED_SETS[wish].iter().map(|set| sets[set]).collect();
                    for id in &waiting {
                        let job = self.fixture.get_job(*id).await;
                        let mut tx = self.fixture.store.reader().await.unwrap();
                        let place = queue::fair_position(&mut tx, &job, &types, &asked).await.unwrap();
                        let found = u64::try_from(place.position).ok().zip(u64::try_from(place.size).ok());
                        let expected = fair.position(*id, |set| WANTED_SETS[wish].contains(&set));
                        if asked.contains(&job.tag_set_id) {
                            prop_assert_eq!(found, expected);
                        }
                    }
                    let expected = fair.acquire(|set| WANTED_SETS[wish].contains(&set));
                    let wanted: Vec<i64> = WANTED_SETS[wish].iter().map(|set| sets[set]).collect();
                    let found = self.fixture.claim(self.daemon, &wanted).await;
                    prop_assert_eq!(found, expected);
                    waiting.retain(|id| Some(*id) != found);
                }
                Step::Cancel { .. } | Step::Reap { .. } if waiting.is_empty() => {}
                Step::Cancel { nth } => {
                    let id = waiting.remove(nth % waiting.len());
                    let mut tx = self.fixture.store.single().await.unwrap();
                    prop_assert!(jobs::cancel(&mut tx, id, None, self.fixture.tick()).await.unwrap());
                    prop_assert!(fair.remove(id));
                }
                Step::Reap { nth } => {
                    let id = waiting.remove(nth % waiting.len());
                    let mut tx = self.fixture.store.single().await.unwrap();
                    let now = self.fixture.tick();
                    jobs::give_up(&mut tx, id, Guard::Pending, "unserved", now).await.unwrap();
                    prop_assert!(fair.remove(id));
                }
            }
        }
        let all: Vec<i64> = sets.values().copied().collect();
        while let Some(expected) = fair.acquire(|_| true) {
            prop_assert_eq!(self.fixture.claim(self.daemon, &all).await, Some(expected));
        }
        prop_assert_eq!(self.fixture.claim(self.daemon, &all).await, None);
        Ok(())
    }
}

async fn claims_follow_the_order_of_the_model(fixture: Fixture) {
    let world = World::new(fixture).await;
    let runtime = tokio::runtime::Handle::current();
    let case = std::sync::atomic::AtomicU64::new(0);
    tokio::task::block_in_place(|| {
        let mut runner =
            TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
        let run = |steps| {
            let case = case.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            runtime.block_on(world.run(case, steps))
        };
        runner.run(&steps(), run).unwrap();
    });
    let broken = check::check(&world.fixture.store).await.unwrap();
    let broken: Vec<_> = broken.into_iter().filter(|found| found.invariant.contains("queue")).collect();
    assert_eq!(broken, []);
}

/// With k initiators that wait for the same daemons, the first job of a new initiator starts within k acquisitions.
async fn new_initiator_waits_for_at_most_one_job_of_each_other(fixture: Fixture) {
    let world = World::new(fixture).await;
    for _ in 0..10 {
        for person in &world.people[1..] {
            world.enqueue(*person, "s", false).await;
        }
    }
    let sets = tag_sets::list_since(&mut world.fixture.store.reader().await.unwrap(), 0).await.unwrap();
    let sets: Vec<_> = sets.iter().map(|set| set.id).collect();
    let mut owners = BTreeMap::new();
    for _ in 0..7 {
        let job = world.fixture.claim(world.daemon, &sets).await.unwrap();
        *owners.entry(world.fixture.get_job(job).await.initiator_id).or_insert(0) += 1;
    }
    assert!(owners.values().all(|jobs| (2..=3).contains(jobs)), "{owners:?}");
    let new = world.enqueue(world.fixture.user, "s", false).await;
    let k = world.people.len();
    let mut found = Vec::new();
    for _ in 0..k {
        found.push(world.fixture.claim(world.daemon, &sets).await.unwrap());
    }
    assert!(found.contains(&new), "within {k} acquisitions");
}

/// Races a cancel against a claim, 2,000 times, or as often as `CODER_TEST_CANCEL_RACES` says.
async fn a_job_canceled_while_it_waits_is_never_handed_out(fixture: Fixture) {
    let races = std::env::var("CODER_TEST_CANCEL_RACES").map_or(2_000, |text| text.parse().unwrap());
    let daemon = fixture.daemon("one", &tags(&[])).await;
    let fixture = std::sync::Arc::new(fixture);
    let mut canceled = 0;
    for _ in 0..races {
        let job = fixture.job(&tags(&[])).await;
        let other = std::sync::Arc::clone(&fixture);
        let claiming = tokio::spawn(async move { other.claim(daemon, &[1]).await });
        let mut tx = fixture.store.single().await.unwrap();
        let ended = jobs::cancel(&mut tx, job, None, fixture.tick()).await.unwrap();
        drop(tx);
        let claimed = claiming.await.unwrap();
        assert_eq!(claimed, (!ended).then_some(job), "either it was canceled, or it was handed out");
        if ended {
            canceled += 1;
            assert_eq!(fixture.get_job(job).await.worker_id, None);
        } else {
            jobs::fail(&mut fixture.store.single().await.unwrap(), job, daemon, "", "", fixture.tick())
                .await
                .unwrap();
        }
    }
    assert!(canceled > 0 || races < 100, "no race was won by the cancel");
    assert_eq!(fixture.claim(daemon, &[1]).await, None);
}
