//! The fair order: against an oracle that reads turns off the history, and the promises one by one.

use coder_domain::Timestamp;
use coder_domain::ids::{JobId, UserId};
use coder_domain::queue::model::{FairQueue, Job};
use proptest::prelude::*;
use uuid::Uuid;

fn at(second: usize) -> Timestamp {
    Timestamp::from_second(i64::try_from(second).expect("a small number")).expect("a small number")
}

fn user(number: u8) -> UserId {
    UserId(Uuid::from_u128(1000 + u128::from(number)))
}

/// A job whose id says when it was made, so that ids never decide against age.
fn job(number: usize, initiator: u8, set: u8, automatic: bool) -> Job<u8> {
    let id = JobId(Uuid::from_u128(number as u128 + 1));
    Job { id, initiator: user(initiator), set, automatic, created_at: at(number) }
}

/// What happens to the queue. A mask has a bit for each set a daemon may take.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue { initiator: u8, set: u8, automatic: bool },
    Acquire { mask: u8 },
    Cancel { nth: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u8..4, 0_u8..3, proptest::bool::weighted(0.2))
            .prop_map(|(initiator, set, automatic)| Step::Enqueue { initiator, set, automatic }),
        4 => (1_u8..8).prop_map(|mask| Step::Acquire { mask }),
        1 => any::<usize>().prop_map(|nth| Step::Cancel { nth }),
    ]
}

/// Everything that ever happened, and nothing derived from it.
#[derive(Default)]
struct History {
    waiting: Vec<Job<u8>>,
    /// Lines that were opened by an arrival: whose, what, which class, when.
    opened: Vec<(UserId, u8, bool, usize)>,
    /// Servings: who, of which class, by which mask, when.
    served: Vec<(UserId, bool, u8, usize)>,
    now: usize,
}

impl History {
    fn enqueue(&mut self, job: Job<u8>) {
        self.now += 1;
        let same = |other: &&Job<u8>| {
            other.initiator == job.initiator && other.set == job.set && other.automatic == job.automatic
        };
        if self.waiting.iter().find(same).is_none() {
            self.opened.push((job.initiator, job.set, job.automatic, self.now));
        }
        self.waiting.push(job);
    }

    /// When the jobs like this one last went to the back: by arriving, or by a serving of a daemon that takes them.
    fn turn(&self, job: &Job<u8>) -> usize {
        let opened = self.opened.iter().filter(|(who, set, class, _)| {
            *who == job.initiator && *set == job.set && *class == job.automatic
        });
        let served = self.served.iter().filter(|(who, class, mask, _)| {
            *who == job.initiator && *class == job.automatic && mask & (1 << job.set) != 0
        });
        opened.map(|entry| entry.3).chain(served.map(|entry| entry.3)).max().unwrap_or(0)
    }

    fn acquire(&mut self, mask: u8) -> Option<JobId> {
        self.now += 1;
        let visible: Vec<_> = self.waiting.iter().filter(|job| mask & (1 << job.set) != 0).collect();
        let people: Vec<_> = visible.iter().copied().filter(|job| !job.automatic).collect();
        let class = if people.is_empty() { visible } else { people };
        let first = class.iter().map(|job| self.turn(job)).min()?;
        let whose = class.iter().find(|job| self.turn(job) == first)?.initiator;
        let oldest = class.iter().filter(|job| job.initiator == whose).min_by_key(|job| job.created_at)?;
        let (id, automatic) = (oldest.id, oldest.automatic);
        self.served.push((whose, automatic, mask, self.now));
        self.waiting.retain(|job| job.id != id);
        Some(id)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_structure_agrees_with_the_history(steps in proptest::collection::vec(step(), 0..80)) {
        let (mut fair, mut history) = (FairQueue::default(), History::default());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enqueue { initiator, set, automatic } => {
                    let job = job(number, initiator, set, automatic);
                    fair.enqueue(&job);
                    history.enqueue(job);
                }
                Step::Acquire { mask } => {
                    prop_assert_eq!(fair.acquire(|set| mask & (1 << set) != 0), history.acquire(mask));
                }
                Step::Cancel { nth } => {
                    if !history.waiting.is_empty() {
                        let nth = nth % history.waiting.len();
                        let job = history.waiting.remove(nth);
                        prop_assert!(fair.remove(job.id));
                        prop_assert!(!fair.remove(job.id));
                    }
                }
            }
            prop_assert_eq!(fair.len(), history.waiting.len());
        }
    }

    /// The place that is computed is the one at which the job would come.
    #[test]
    fn positions_are_the_order_of_handing_out(steps in proptest::collection::vec(step(), 0..60), mask in 1_u8..8) {
        let mut fair = FairQueue::default();
        let mut ids = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enqueue { initiator, set, automatic } => {
                    let job = job(number, initiator, set, automatic);
                    fair.enqueue(&job);
                    ids.push(job.id);
                }
                Step::Acquire { mask } => { fair.acquire(|set| mask & (1 << set) != 0); }
                Step::Cancel { .. } => {}
            }
        }
        let mine = |set: u8| mask & (1 << set) != 0;
        let mut rest = fair.clone();
        // No more can come than went in, or the queue hands a job out twice.
        let order: Vec<_> = std::iter::from_fn(|| rest.acquire(mine)).take(ids.len() + 1).collect();
        prop_assert!(order.len() <= ids.len(), "a job is handed out twice");
        for id in ids {
            let place = order.iter().position(|other| *other == id);
            let expected = place.map(|index| (index as u64 + 1, order.len() as u64));
            prop_assert_eq!(fair.position(id, mine), expected);
        }
    }

    /// k initiators wait, after any history at all, and keep adding jobs while the daemons work: a new one's first job
    /// starts within k acquisitions.
    #[test]
    fn a_new_initiator_starts_within_k_acquisitions(
        before in proptest::collection::vec(step(), 0..60),
        later in proptest::collection::vec((0_u8..4, 0_u8..3), 0..40),
        set in 0_u8..3,
    ) {
        let mut fair = FairQueue::default();
        let mut number = 0;
        let mut add = |fair: &mut FairQueue<u8>, initiator: u8, set: u8, automatic: bool| {
            number += 1;
            let job = job(number, initiator, set, automatic);
            fair.enqueue(&job);
            job.id
        };
        for step in before {
            match step {
                Step::Enqueue { initiator, set, automatic } => { add(&mut fair, initiator, set, automatic); }
                Step::Acquire { mask } => { fair.acquire(|set| mask & (1 << set) != 0); }
                Step::Cancel { .. } => {}
            }
        }
        let newcomer = add(&mut fair, 99, set, false);
        // Four others at most, whatever they waited with.
        let k = 5;
        let mut later = later.into_iter();
        let started = (1..=k).find(|_| {
            for (initiator, set) in later.by_ref().take(3) {
                add(&mut fair, initiator, set, false);
            }
            fair.acquire(|_| true) == Some(newcomer)
        });
        prop_assert!(started.is_some());
    }

    #[test]
    fn people_come_before_automatic_work(steps in proptest::collection::vec(step(), 0..80)) {
        let mut fair = FairQueue::default();
        let mut waiting: Vec<Job<u8>> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enqueue { initiator, set, automatic } => {
                    let job = job(number, initiator, set, automatic);
                    fair.enqueue(&job);
                    waiting.push(job);
                }
                Step::Acquire { mask } => {
                    if let Some(id) = fair.acquire(|set| mask & (1 << set) != 0) {
                        let index = waiting.iter().position(|job| job.id == id).unwrap();
                        let taken = waiting.remove(index);
                        prop_assert!(mask & (1 << taken.set) != 0);
                        let people = waiting.iter().any(|job| !job.automatic && mask & (1 << job.set) != 0);
                        prop_assert!(!(taken.automatic && people));
                        let older = waiting.iter().any(|job| {
                            job.initiator == taken.initiator && job.automatic == taken.automatic
                                && mask & (1 << job.set) != 0 && job.created_at < taken.created_at
                        });
                        prop_assert!(!older, "an initiator's older job goes first");
                    } else {
                        prop_assert!(!waiting.iter().any(|job| mask & (1 << job.set) != 0));
                    }
                }
                Step::Cancel { .. } => {}
            }
        }
    }

    /// Two pools that overlap, others who never stop asking: every job of people is handed out in the end.
    #[test]
    fn nobody_starves_while_others_never_stop(
        sets in proptest::collection::vec(0_u8..3, 1..6),
        masks in proptest::collection::vec(1_u8..8, 1..4),
    ) {
        let reachable = masks.iter().fold(0, |all, mask| all | mask);
        let mut fair = FairQueue::default();
        let mut number = 0;
        let mut add = |fair: &mut FairQueue<u8>, initiator: u8, set: u8| {
            number += 1;
            let job = job(number, initiator, set, false);
            fair.enqueue(&job);
            job.id
        };
        for flooder in 0..3 {
            for set in 0..3 {
                add(&mut fair, flooder, set);
                add(&mut fair, flooder, set);
            }
        }
        let mut wanted: Vec<JobId> = Vec::new();
        for set in sets.iter().filter(|set| reachable & (1 << **set) != 0) {
            wanted.push(add(&mut fair, 50, *set));
        }
        for round in 0.. {
            if wanted.is_empty() { break }
            prop_assert!(round < 200, "left waiting: {:?}", wanted);
            for mask in &masks {
                for flooder in 0..3 {
                    add(&mut fair, flooder, u8::try_from(round % 3).unwrap());
                }
                // The one in question goes on asking too: its newer jobs must not push its older ones back.
                add(&mut fair, 50, u8::try_from(round % 3).unwrap());
                if let Some(id) = fair.acquire(|set| mask & (1 << set) != 0) {
                    wanted.retain(|job| *job != id);
                }
            }
        }
    }
}

#[test]
fn a_long_line_does_not_make_others_wait() {
    let mut fair = FairQueue::default();
    for number in 0..1000 {
        fair.enqueue(&job(number, 0, 0, false));
    }
    let late = job(2000, 1, 0, false);
    fair.enqueue(&late);
    assert_eq!(fair.position(late.id, |_| true), Some((2, 1001)));
    fair.acquire(|_| true);
    assert_eq!(fair.acquire(|_| true), Some(late.id));
}

#[test]
fn turns_alternate_and_an_initiator_who_comes_back_goes_to_the_end() {
    let mut fair = FairQueue::default();
    let jobs: Vec<_> =
        [0, 0, 0, 1, 1, 2].into_iter().enumerate().map(|(n, who)| job(n, who, 0, false)).collect();
    jobs.iter().for_each(|job| fair.enqueue(job));
    let mut next = || {
        let id = fair.acquire(|_| true).unwrap();
        jobs.iter().position(|job| job.id == id).unwrap()
    };
    assert_eq!([next(), next(), next(), next(), next(), next()], [0, 3, 5, 1, 4, 2]);
    let again = job(10, 2, 0, false);
    fair.enqueue(&job(9, 0, 0, false));
    fair.enqueue(&again);
    assert_eq!((fair.len(), fair.is_empty()), (2, false));
    fair.acquire(|_| true);
    assert_eq!(fair.acquire(|_| true), Some(again.id));
    assert!(fair.is_empty());
}

#[test]
fn many_tag_sets_give_no_more_turns() {
    let mut fair = FairQueue::default();
    for number in 0..30 {
        fair.enqueue(&job(number, 0, u8::try_from(number % 3).unwrap(), false));
    }
    let late = job(100, 1, 0, false);
    fair.enqueue(&late);
    fair.acquire(|_| true);
    assert_eq!(fair.acquire(|_| true), Some(late.id));
}
