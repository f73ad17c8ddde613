//! The queues of daemons that wait for jobs, and which one may query the database next. Pure rules without I/O
//! (scheduling-and-auth 2.1).
//!
//! Invariant: at most one waiter of a domain is cleared at any moment (ACQ-1).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use coder_domain::ids::OrganizationId;
use coder_domain::tags::{self, DaemonCapabilities, DaemonIndex, JobRequirements, TagSet};

/// A group of daemons that can run the same jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    pub organization: OrganizationId,
    /// Types served, sorted, without duplicates.
    pub provisioners: Vec<String>,
    /// Effective tags.
    pub tags: TagSet,
}

impl Domain {
    /// A domain in canonical form.
    #[must_use]
    pub fn new(organization: OrganizationId, mut provisioners: Vec<String>, tags: TagSet) -> Self {
        provisioners.sort();
        provisioners.dedup();
        Self { organization, provisioners, tags }
    }

    /// Whether its daemons can run such a job.
    #[must_use]
    pub fn accepts(&self, demand: &JobRequirements<'_>) -> bool {
        let offer = DaemonCapabilities {
            organization: self.organization,
            provisioners: &self.provisioners,
            tags: &self.tags,
        };
        tags::matches(&offer, demand)
    }
}

/// One waiting acquire call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Waiter(u64);

#[derive(Debug, Default)]
struct Queue {
    /// The waiter that may query the database.
    cleared: Option<Waiter>,
    /// A job was inserted after that waiter was cleared. Its query may have been too early.
    ask_again: bool,
    /// The other waiters, in order of arrival.
    idle: VecDeque<Waiter>,
}

impl Queue {
    fn clear_next(&mut self) -> Option<Waiter> {
        self.ask_again = false;
        self.cleared = self.idle.pop_front();
        self.cleared
    }

    /// Clears a waiter, or lets the cleared one query again.
    fn wake_next(&mut self) -> Option<Waiter> {
        if self.cleared.is_some() {
            self.ask_again = true;
            return None;
        }
        self.clear_next()
    }

    fn is_empty(&self) -> bool {
        self.cleared.is_none() && self.idle.is_empty()
    }
}

/// What a waiter does after a query without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Query again at once: a job was inserted meanwhile.
    AskAgain,
    /// Wait to be cleared.
    Wait,
}

/// The queues of all domains.
#[derive(Debug, Default)]
pub struct WaitQueues {
    queues: HashMap<Arc<Domain>, Queue>,
    members: HashMap<Waiter, Arc<Domain>>,
    index: Index,
    last: u64,
}

/// An index of domains by the jobs that they can run.
#[derive(Debug, Default)]
struct Index {
    /// By organization and type.
    offers: HashMap<OrganizationId, HashMap<String, DaemonIndex<u64>>>,
    domains: HashMap<u64, Arc<Domain>>,
    numbers: HashMap<Arc<Domain>, u64>,
    last: u64,
}

impl Index {
    fn insert(&mut self, domain: &Arc<Domain>) {
        self.last += 1;
        let of_organization = self.offers.entry(domain.organization).or_default();
        for provisioner in &domain.provisioners {
            let offers = of_organization.entry(provisioner.clone()).or_default();
            offers.insert(self.last, domain.tags.clone());
        }
        self.domains.insert(self.last, Arc::clone(domain));
        self.numbers.insert(Arc::clone(domain), self.last);
    }

    fn remove(&mut self, domain: &Domain) {
        let Some(number) = self.numbers.remove(domain) else { return };
        self.domains.remove(&number);
        let Some(of_organization) = self.offers.get_mut(&domain.organization) else { return };
        for provisioner in &domain.provisioners {
            let Some(offers) = of_organization.get_mut(provisioner) else { continue };
            offers.remove(number);
            if offers.is_empty() {
                of_organization.remove(provisioner);
            }
        }
        if of_organization.is_empty() {
            self.offers.remove(&domain.organization);
        }
    }

    fn that_accept<'a>(&'a self, demand: &JobRequirements<'_>) -> impl Iterator<Item = &'a Arc<Domain>> {
        let offers = self.offers.get(&demand.organization).and_then(|kinds| kinds.get(demand.provisioner));
        let numbers = offers.map(|offers| offers.that_satisfy(demand.tags).collect::<Vec<_>>());
        numbers.into_iter().flatten().filter_map(|number| self.domains.get(&number))
    }
}

impl WaitQueues {
    /// Adds a waiter. Returns whether it may query at once, as the first waiter of a domain may (ACQ-2).
    pub fn join(&mut self, domain: &Arc<Domain>) -> (Waiter, bool) {
        self.last += 1;
        let waiter = Waiter(self.last);
        self.members.insert(waiter, Arc::clone(domain));
        if !self.queues.contains_key(domain) {
            self.index.insert(domain);
        }
        let queue = self.queues.entry(Arc::clone(domain)).or_default();
        let first = queue.is_empty();
        if first {
            queue.cleared = Some(waiter);
        } else {
            queue.idle.push_back(waiter);
        }
        (waiter, first)
    }

    /// The cleared waiter found no job (ACQ-3). It stays at the head of its queue.
    pub fn found_nothing(&mut self, waiter: Waiter) -> Next {
        let Some(queue) = self.members.get(&waiter).and_then(|domain| self.queues.get_mut(domain)) else {
            return Next::Wait;
        };
        if std::mem::take(&mut queue.ask_again) {
            return Next::AskAgain;
        }
        queue.cleared = None;
        queue.idle.push_front(waiter);
        Next::Wait
    }

    /// A waiter failed or was canceled. If it was cleared, the next waiter is cleared instead and returned (ACQ-5).
    pub fn leave(&mut self, waiter: Waiter) -> Option<Waiter> {
        self.remove(waiter, true)
    }

    /// A cleared waiter got a job. The next waiter is cleared if `more` jobs waited at that moment, or a job was inserted since
    /// it was cleared. Otherwise the next inserted job clears one (ACQ-4).
    pub fn served(&mut self, waiter: Waiter, more: bool) -> Option<Waiter> {
        self.remove(waiter, more)
    }

    fn remove(&mut self, waiter: Waiter, follow: bool) -> Option<Waiter> {
        let domain = self.members.remove(&waiter)?;
        let queue = self.queues.get_mut(&domain)?;
        let next = if queue.cleared == Some(waiter) {
            queue.cleared = None;
            if follow || queue.ask_again { queue.clear_next() } else { None }
        } else {
            queue.idle.retain(|other| *other != waiter);
            None
        };
        if queue.is_empty() {
            self.queues.remove(&domain);
            self.index.remove(&domain);
        }
        next
    }

    /// A job was inserted. One waiter of every domain that can run it is cleared (CONF-12: the exact predicate, and all
    /// matching domains).
    pub fn posted(&mut self, demand: &JobRequirements<'_>) -> Vec<Waiter> {
        let queues = &mut self.queues;
        let accepting = self.index.that_accept(demand);
        accepting.filter_map(|domain| queues.get_mut(domain)?.wake_next()).collect()
    }

    /// The number of waiters and of domains.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.members.len(), self.queues.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use coder_domain::ids::UserId;

    use super::*;

    const ORGANIZATION: OrganizationId = OrganizationId::NIL;

    fn tag_set(pairs: &[(&str, &str)]) -> TagSet {
        let map: BTreeMap<_, _> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        TagSet::canonical(UserId::NIL, [&map])
    }

    fn domain(pairs: &[(&str, &str)]) -> Arc<Domain> {
        Arc::new(Domain::new(ORGANIZATION, vec!["terraform".to_owned()], tag_set(pairs)))
    }

    fn post(waiting: &mut WaitQueues, pairs: &[(&str, &str)]) -> Vec<Waiter> {
        let tags = tag_set(pairs);
        waiting.posted(&JobRequirements { organization: ORGANIZATION, provisioner: "terraform", tags: &tags })
    }

    #[test]
    fn acq_2_only_the_first_of_a_domain_asks_at_once() {
        let mut waiting = WaitQueues::default();
        assert!(waiting.join(&domain(&[])).1);
        assert!(!waiting.join(&domain(&[])).1);
        assert!(waiting.join(&domain(&[("a", "1")])).1);
        assert_eq!(waiting.size(), (3, 2));
    }

    #[test]
    fn order_of_types_and_duplicates_do_not_make_another_domain() {
        let make = |kinds: &[&str]| {
            Domain::new(ORGANIZATION, kinds.iter().map(ToString::to_string).collect(), tag_set(&[]))
        };
        assert_eq!(make(&["terraform", "echo"]), make(&["echo", "terraform", "echo"]));
    }

    #[test]
    fn acq_3_a_posting_during_a_query_makes_it_ask_again() {
        let mut waiting = WaitQueues::default();
        let (first, _) = waiting.join(&domain(&[]));
        assert_eq!(post(&mut waiting, &[]), []);
        assert_eq!(waiting.found_nothing(first), Next::AskAgain);
        assert_eq!(waiting.found_nothing(first), Next::Wait);
        assert_eq!(post(&mut waiting, &[]), [first]);
    }

    #[test]
    fn acq_4_success_clears_one_other_when_more_is_known_to_wait() {
        let mut waiting = WaitQueues::default();
        let join = |waiting: &mut WaitQueues| waiting.join(&domain(&[])).0;
        let (first, second, third) = (join(&mut waiting), join(&mut waiting), join(&mut waiting));
        assert_eq!(waiting.served(first, true), Some(second));
        assert_eq!(waiting.served(second, false), None, "the question would be in vain");
        assert_eq!(post(&mut waiting, &[]), [third]);
        let fourth = join(&mut waiting);
        assert_eq!(post(&mut waiting, &[]), []);
        assert_eq!(waiting.served(third, false), Some(fourth), "a job was posted after the question");
        assert_eq!(waiting.served(fourth, true), None);
        assert_eq!(waiting.size(), (0, 0));
    }

    #[test]
    fn acq_5_a_cleared_waiter_that_leaves_passes_its_clearance_on() {
        let mut waiting = WaitQueues::default();
        let (first, _) = waiting.join(&domain(&[]));
        let (second, _) = waiting.join(&domain(&[]));
        assert_eq!(waiting.leave(second), None, "it was not cleared");
        let (third, _) = waiting.join(&domain(&[]));
        assert_eq!(waiting.leave(first), Some(third));
        assert_eq!(waiting.found_nothing(third), Next::Wait);
        assert_eq!(waiting.leave(third), None);
        assert_eq!(waiting.size(), (0, 0), "the last one removes the domain");
    }

    #[test]
    fn conf_12_an_untagged_job_wakes_the_untagged_domain_only_and_a_tagged_one_all_that_match() {
        let mut waiting = WaitQueues::default();
        let mut join = |pairs: &[(&str, &str)]| {
            let (waiter, _) = waiting.join(&domain(pairs));
            waiting.found_nothing(waiter);
            waiter
        };
        let plain = join(&[]);
        let on_prem = join(&[("environment", "on-prem")]);
        let chicago = join(&[("environment", "on-prem"), ("datacenter", "chicago")]);
        assert_eq!(post(&mut waiting, &[]), [plain]);
        let mut woken = post(&mut waiting, &[("environment", "on-prem")]);
        woken.sort();
        assert_eq!(woken, [on_prem, chicago]);
        let tags = tag_set(&[]);
        let foreign = OrganizationId::random();
        assert!(
            waiting
                .posted(&JobRequirements { organization: foreign, provisioner: "terraform", tags: &tags })
                .is_empty()
        );
        assert!(
            waiting
                .posted(&JobRequirements { organization: ORGANIZATION, provisioner: "echo", tags: &tags })
                .is_empty()
        );
    }

    /// Random events; after each, no domain has two cleared waiters, and a posted job is never left with idle
    /// waiters only.
    #[test]
    fn no_wake_up_is_lost_in_any_order_of_events() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let domain = domain(&[]);
        for _ in 0..2000 {
            let mut waiting = WaitQueues::default();
            let (mut cleared, mut all): (Vec<Waiter>, Vec<Waiter>) = (Vec::new(), Vec::new());
            let mut jobs = 0_u32;
            for _ in 0..random(40) {
                match random(4) {
                    0 => {
                        let (waiter, first) = waiting.join(&domain);
                        all.push(waiter);
                        cleared.extend(first.then_some(waiter));
                    }
                    1 => {
                        jobs += 1;
                        cleared.extend(post(&mut waiting, &[]));
                    }
                    2 if !cleared.is_empty() => {
                        let waiter = cleared[0];
                        if jobs > 0 {
                            jobs -= 1;
                            all.retain(|other| *other != waiter);
                            cleared = waiting.served(waiter, jobs > 0).into_iter().collect();
                        } else if waiting.found_nothing(waiter) == Next::Wait {
                            cleared.clear();
                        }
                    }
                    3 if !all.is_empty() => {
                        let at = usize::try_from(random(all.len() as u64)).unwrap();
                        let waiter = all.remove(at);
                        let next = waiting.leave(waiter);
                        cleared.retain(|other| *other != waiter);
                        cleared.extend(next);
                    }
                    _ => {}
                }
                assert!(cleared.len() <= 1, "ACQ-1");
                assert!(jobs == 0 || all.is_empty() || cleared.len() == 1, "somebody asks while jobs wait");
            }
        }
    }
}
