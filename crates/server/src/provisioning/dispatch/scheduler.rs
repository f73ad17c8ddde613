//! Who gets the next job: waiting daemons, waking them, and the claim. The rules without I/O are in `wait_queue.rs`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::clock::Clock;
use coder_domain::ids::{DaemonId, JobId, OrganizationId};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::{JobRequirements, TagSet};
use coder_store::jobs::{self, ClaimOutcome, ClaimRequest, ClaimedJob as Taken, Holder};
use coder_store::{Error, Store, transaction};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::tag_sets::TagSets;
use super::wait_queue::{Domain, Next, Waiter, Waiting};
use crate::events::Events;
use crate::provisioning::session::connected_daemons::Connected;
use crate::retry::retry_while;

/// How long the end of a job that could not be delivered waits for a database that is away, before the reaper has it.
const DATABASE_AWAY: Duration = Duration::from_secs(20);

/// What a job gets whose daemon went away between the claim and the delivery (scheduling-and-auth 2.2).
pub const BROKEN: &str = coder_domain::job::lifecycle::NOT_DELIVERED;

/// Hands jobs to waiting daemons; a clone is the same object.
#[derive(Clone)]
pub struct Scheduler(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    events: Events,
    waiting: Mutex<Shared>,
    tag_sets: TagSets,
    /// In microseconds.
    watched_since: AtomicI64,
    connected: Connected,
    tasks: TaskTracker,
    /// Claims under way at once: when thousands of daemons look for jobs, requests still find a connection.
    places: Arc<Semaphore>,
    /// How many jobs were announced, and at which count no open job was left.
    announced: AtomicU64,
    quiet_at: AtomicU64,
}

#[derive(Default)]
struct Shared {
    waiting: Waiting,
    wakers: HashMap<Waiter, Arc<Notify>>,
}

impl Shared {
    fn wake(&self, waiters: impl IntoIterator<Item = Waiter>) {
        for waker in waiters.into_iter().filter_map(|waiter| self.wakers.get(&waiter)) {
            waker.notify_one();
        }
    }
}

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub struct Taker {
    /// Its row.
    pub daemon: DaemonId,
    /// Hash of its session, when its process has one; its jobs can only be held with their epoch.
    pub session: Option<Sha256Digest>,
}

impl From<DaemonId> for Taker {
    fn from(daemon: DaemonId) -> Self {
        Self { daemon, session: None }
    }
}

/// How a wait ended.
#[derive(Debug)]
pub enum Outcome {
    /// A job that now belongs to the daemon.
    Job(Claimed),
    /// The wait was given up before any job was taken.
    Canceled,
}

impl Scheduler {
    /// A scheduler without waiters.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>, events: Events) -> Self {
        let watched_since = AtomicI64::new(clock.now().as_microsecond());
        let places = Arc::new(Semaphore::new((store.connections() / 2).max(1)));
        Self(Arc::new(Inner {
            store,
            clock,
            watched_since,
            events,
            waiting: Mutex::default(),
            tag_sets: TagSets::default(),
            connected: Connected::default(),
            tasks: TaskTracker::new(),
            places,
            announced: AtomicU64::new(1),
            quiet_at: AtomicU64::new(0),
        }))
    }

    /// The daemons connected to this process.
    #[must_use]
    pub fn connected(&self) -> &Connected {
        &self.0.connected
    }

    /// The tag sets of all jobs and daemons.
    #[must_use]
    pub fn tag_sets(&self) -> &TagSets {
        &self.0.tag_sets
    }

    /// Wakes one waiter of every domain that may run such a job. Call it after the commit of the job (ACQ-11).
    pub fn announce(&self, organization: OrganizationId, provisioner: &str, tags: &TagSet) {
        self.0.announced.fetch_add(1, Ordering::SeqCst);
        if !self.0.events.is_deaf() {
            self.wake(organization, provisioner, tags);
        }
    }

    fn wake(&self, organization: OrganizationId, provisioner: &str, tags: &TagSet) {
        let mut shared = self.shared();
        let cleared = shared.waiting.posted(&JobRequirements { organization, provisioner, tags });
        shared.wake(cleared);
    }

    /// Wakes one waiter of every domain that may run a job which waits: the backup for lost wake-ups (ACQ-6). It costs one
    /// statement, whoever waits, and none while nobody does.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn look(&self) -> Result<(), Error> {
        if self.size().0 == 0 {
            return Ok(());
        }
        let mut tx = self.0.store.reader().await?;
        let wanted = jobs::requirements::list(&mut tx).await?;
        for job in wanted {
            if let Some(tags) = self.0.tag_sets.get(&mut tx, job.tag_set_id).await? {
                self.wake(job.organization_id, &job.provisioner, &tags);
            }
        }
        Ok(())
    }

    /// Since when this process could have seen a daemon; silence before it counts for nothing.
    #[must_use]
    pub fn watched_since(&self) -> Timestamp {
        let micros = self.0.watched_since.load(Ordering::Relaxed);
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    }

    /// What was seen before counts for nothing, because somebody set the clock.
    pub fn watch_from(&self, now: Timestamp) {
        self.0.watched_since.store(now.as_microsecond(), Ordering::Relaxed);
    }

    /// How many jobs were announced so far.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.0.announced.load(Ordering::SeqCst)
    }

    /// Notes that no job was open when `announced` of them had been announced.
    pub fn set_quiet(&self, announced: u64) {
        self.0.quiet_at.store(announced, Ordering::SeqCst);
    }

    /// Whether nothing was announced since no job was open; then there is nothing to reap, provided that no other
    /// process uses the database.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.quiet_at.load(Ordering::SeqCst) == self.announced()
    }

    /// How many wait, and in how many domains.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        self.shared().waiting.size()
    }

    /// Waits for a job until `cancel` resolves. Dropping the future gives the wait up too: a job that was taken at
    /// that very moment is failed with [`BROKEN`], never left running.
    ///
    /// # Errors
    /// When the database fails; the daemon tries again.
    pub async fn acquire(
        &self,
        domain: &Arc<Domain>,
        taker: impl Into<Taker>,
        cancel: impl Future<Output = ()>,
    ) -> Result<Outcome, Error> {
        let (mut cancel, taker) = (pin!(cancel), taker.into());
        let mut ticket = self.join(domain);
        loop {
            tokio::select! {
                biased;
                () = cancel.as_mut() => return Ok(Outcome::Canceled),
                () = ticket.waker.notified() => {}
            }
            let place = tokio::select! {
                biased;
                () = cancel.as_mut() => return Ok(Outcome::Canceled),
                place = Arc::clone(&self.0.places).acquire_owned() => {
                    place.expect("nobody closes it")
                }
            };
            // The claim runs to its end whatever happens to us, so that its result is never unknown.
            let (send, receive) = oneshot::channel();
            let (this, domain) = (self.clone(), Arc::clone(domain));
            self.0.tasks.spawn(async move {
                let outcome = this.ask(ticket, &domain, taker, place).await;
                // Nobody receives: dropping the outcome fails the job, or passes the clearance on.
                drop(send.send(outcome));
            });
            match receive.await {
                Ok(Ok(Asked::Job(claimed))) => return Ok(Outcome::Job(claimed)),
                Ok(Ok(Asked::Nothing(back))) => ticket = back,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(Error::Unavailable { what: "looking for a job", source: None }),
            }
        }
    }

    /// Ends when no claim is under way; call it when no acquire can start any more.
    pub async fn settled(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn join(&self, domain: &Arc<Domain>) -> Ticket {
        let waker = Arc::new(Notify::new());
        let mut shared = self.shared();
        let (waiter, first) = shared.waiting.join(domain);
        shared.wakers.insert(waiter, Arc::clone(&waker));
        if first {
            waker.notify_one();
        }
        Ticket { waiter, waker, served: None, scheduler: self.clone() }
    }

    async fn ask(
        &self,
        mut ticket: Ticket,
        domain: &Domain,
        taker: Taker,
        _place: OwnedSemaphorePermit,
    ) -> Result<Asked, Error> {
        loop {
            if let Some(Taken { job, more }) = self.claim(domain, taker).await? {
                ticket.served = Some(more);
                drop(ticket);
                self.0.events.job_changed(job);
                return Ok(Asked::Job(Claimed { job, taker, scheduler: Some(self.clone()) }));
            }
            if self.shared().waiting.found_nothing(ticket.waiter) == Next::Wait {
                return Ok(Asked::Nothing(ticket));
            }
        }
    }

    async fn claim(&self, domain: &Domain, taker: Taker) -> Result<Option<Taken>, Error> {
        let store = &self.0.store;
        loop {
            let (wanted, newest) = self.0.tag_sets.known_to_be_satisfied_by(&domain.tags);
            let claim = ClaimRequest {
                organization_id: domain.organization,
                provisioners: &domain.provisioners,
                tag_sets: &wanted,
                daemon: taker.daemon,
                session: taker.session,
            };
            let now = self.0.clock.now();
            match jobs::try_claim(&mut store.single().await?, &claim, newest, now).await? {
                ClaimOutcome::Job(taken) => return Ok(Some(taken)),
                ClaimOutcome::Nothing => return Ok(None),
                ClaimOutcome::NewerTagSets => self.0.tag_sets.refresh(&mut store.reader().await?).await?,
            }
        }
    }

    fn fail_undelivered(&self, job: JobId, taker: Taker) {
        let this = self.clone();
        self.0.tasks.spawn(async move {
            let (now, daemon, since) = (this.0.clock.now(), taker.daemon, Instant::now());
            let fail = || async {
                transaction!(this.0.store, Error, |tx| {
                    jobs::fail(tx, job, holder(taker), BROKEN, "", now).await
                })
            };
            let is_worth_it = |error: &Error| error.is_retryable() && since.elapsed() < DATABASE_AWAY;
            let failed = retry_while(fail, is_worth_it).await;
            match failed {
                Ok(()) => tracing::warn!(%job, %daemon, "a job was taken but could not be delivered"),
                // Reaped meanwhile, resumed, or reported on by the daemon after all.
                Err(Error::Stale { .. }) => {}
                Err(error) => {
                    tracing::error!(%job, %daemon, %error, "an undelivered job waits for the reaper")
                }
            }
            this.0.events.job_changed(job);
        });
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first epoch of a job (`coder_domain::job::lifecycle`).
const FIRST_EPOCH: i64 = 1;

fn holder(taker: Taker) -> Holder {
    Holder { daemon: taker.daemon, epoch: taker.session.map(|_| FIRST_EPOCH) }
}

enum Asked {
    Job(Claimed),
    Nothing(Ticket),
}

/// A place among the waiters; dropping it leaves, and clears whoever follows.
struct Ticket {
    waiter: Waiter,
    waker: Arc<Notify>,
    /// Whether more jobs waited when this waiter got one.
    served: Option<bool>,
    scheduler: Scheduler,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut shared = self.scheduler.shared();
        shared.wakers.remove(&self.waiter);
        let next = match self.served {
            Some(more) => shared.waiting.served(self.waiter, more),
            None => shared.waiting.leave(self.waiter),
        };
        shared.wake(next);
    }
}

/// A job that a daemon owns but has not received yet. Dropping it before [`Claimed::delivered`] fails the job.
pub struct Claimed {
    job: JobId,
    taker: Taker,
    scheduler: Option<Scheduler>,
}

impl Claimed {
    /// The job.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// The epoch under which it is held; none by the official rule.
    #[must_use]
    pub fn epoch(&self) -> Option<i64> {
        holder(self.taker).epoch
    }

    /// The daemon has it, or somebody else ended it.
    pub fn delivered(mut self) {
        self.scheduler = None;
    }
}

impl std::fmt::Debug for Claimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Claimed").field(&self.job).finish()
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.fail_undelivered(self.job, self.taker);
        }
    }
}
