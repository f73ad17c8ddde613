//! Hands jobs to daemons: waiting, waking, and claiming. The rules without I/O are in `wait_queue.rs`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::clock::Clock;
use coder_domain::ids::{DaemonId, JobId, OrganizationId};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::{JobRequirements, TagSet};
use coder_store::jobs::{self, ClaimOutcome, ClaimRequest, ClaimedJob, Holder};
use coder_store::{Error, Store, transaction};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::tag_sets::TagSets;
use super::wait_queue::{Domain, Next, WaitQueues, Waiter};
use crate::events::Events;
use crate::provisioning::session::connected_daemons::ConnectedDaemons;
use crate::retry::retry_while;

/// How long ending an undelivered job waits for an unavailable database, before it is left to the reaper.
const DATABASE_WAIT: Duration = Duration::from_secs(20);

/// The error of a job whose daemon disconnected between claim and delivery (scheduling-and-auth 2.2).
pub const BROKEN: &str = coder_domain::job::lifecycle::NOT_DELIVERED;

/// Hands jobs to waiting daemons. Clones share it.
#[derive(Clone)]
pub struct Scheduler(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    events: Events,
    waiting: Mutex<WaitState>,
    tag_sets: TagSets,
    /// In microseconds.
    watched_since: AtomicI64,
    connected: ConnectedDaemons,
    tasks: TaskTracker,
    /// Bounds concurrent claims, so that requests find a database connection when thousands of daemons look for jobs.
    claim_permits: Arc<Semaphore>,
    /// How many jobs were announced, and the count at which no open job was left.
    announced: AtomicU64,
    quiet_at: AtomicU64,
}

#[derive(Default)]
struct WaitState {
    waiting: WaitQueues,
    wakers: HashMap<Waiter, Arc<Notify>>,
}

impl WaitState {
    fn wake(&self, waiters: impl IntoIterator<Item = Waiter>) {
        for waker in waiters.into_iter().filter_map(|waiter| self.wakers.get(&waiter)) {
            waker.notify_one();
        }
    }
}

/// A daemon that waits for a job.
#[derive(Clone, Copy, Debug)]
pub struct WaitingDaemon {
    /// Its row.
    pub daemon: DaemonId,
    /// Hash of its session, if its process has one. Its jobs are then held by epoch.
    pub session: Option<Sha256Digest>,
}

impl From<DaemonId> for WaitingDaemon {
    fn from(daemon: DaemonId) -> Self {
        Self { daemon, session: None }
    }
}

/// How a wait ended.
#[derive(Debug)]
pub enum AcquireOutcome {
    /// A job that the daemon now holds.
    Job(Claimed),
    /// The wait was canceled before a job was claimed.
    Canceled,
}

impl Scheduler {
    /// A scheduler without waiters.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>, events: Events) -> Self {
        let watched_since = AtomicI64::new(clock.now().as_microsecond());
        let claim_permits = Arc::new(Semaphore::new((store.connections() / 2).max(1)));
        Self(Arc::new(Inner {
            store,
            clock,
            watched_since,
            events,
            waiting: Mutex::default(),
            tag_sets: TagSets::default(),
            connected: ConnectedDaemons::default(),
            tasks: TaskTracker::new(),
            claim_permits,
            announced: AtomicU64::new(1),
            quiet_at: AtomicU64::new(0),
        }))
    }

    /// The daemons connected to this process.
    #[must_use]
    pub fn connected(&self) -> &ConnectedDaemons {
        &self.0.connected
    }

    /// The tag sets of all jobs and daemons.
    #[must_use]
    pub fn tag_sets(&self) -> &TagSets {
        &self.0.tag_sets
    }

    /// Wakes one waiter of every domain that can run such a job. Call it after the commit of the job (ACQ-11).
    pub fn announce(&self, organization: OrganizationId, provisioner: &str, tags: &TagSet) {
        self.0.announced.fetch_add(1, Ordering::SeqCst);
        if !self.0.events.is_disabled() {
            self.wake(organization, provisioner, tags);
        }
    }

    fn wake(&self, organization: OrganizationId, provisioner: &str, tags: &TagSet) {
        let mut shared = self.shared();
        let cleared = shared.waiting.posted(&JobRequirements { organization, provisioner, tags });
        shared.wake(cleared);
    }

    /// Wakes one waiter of every domain that can run a waiting job. It makes up for lost wake-ups (ACQ-6). It costs one
    /// statement, and none while no daemon waits.
    pub async fn wake_for_waiting_jobs(&self) -> Result<(), Error> {
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

    /// The time since which this process observes daemons. Silence before it does not count.
    #[must_use]
    pub fn watched_since(&self) -> Timestamp {
        let micros = self.0.watched_since.load(Ordering::Relaxed);
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    }

    /// Restarts the observation, after a jump of the clock.
    pub fn watch_from(&self, now: Timestamp) {
        self.0.watched_since.store(now.as_microsecond(), Ordering::Relaxed);
    }

    /// How many jobs were announced so far.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.0.announced.load(Ordering::SeqCst)
    }

    /// Stores that no job was open when `announced` jobs had been announced.
    pub fn set_quiet(&self, announced: u64) {
        self.0.quiet_at.store(announced, Ordering::SeqCst);
    }

    /// Whether no job was announced since no job was open. Then there is nothing to reap, if no other process uses the
    /// database.
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
        waiting: impl Into<WaitingDaemon>,
        cancel: impl Future<Output = ()>,
    ) -> Result<AcquireOutcome, Error> {
        let (mut cancel, waiting) = (pin!(cancel), waiting.into());
        let mut ticket = self.join(domain);
        loop {
            tokio::select! {
                biased;
                () = cancel.as_mut() => return Ok(AcquireOutcome::Canceled),
                () = ticket.waker.notified() => {}
            }
            let permit = tokio::select! {
                biased;
                () = cancel.as_mut() => return Ok(AcquireOutcome::Canceled),
                permit = Arc::clone(&self.0.claim_permits).acquire_owned() => {
                    permit.expect("the semaphore is never closed")
                }
            };
            // The claim runs in a task of its own, so that it ends even if this future is dropped.
            let (send, receive) = oneshot::channel();
            let (this, domain) = (self.clone(), Arc::clone(domain));
            self.0.tasks.spawn(async move {
                let outcome = this.try_claim(ticket, &domain, waiting, permit).await;
                // Without a receiver, dropping the outcome fails the job or clears the next waiter.
                drop(send.send(outcome));
            });
            match receive.await {
                Ok(Ok(WaitOutcome::Job(claimed))) => return Ok(AcquireOutcome::Job(claimed)),
                Ok(Ok(WaitOutcome::Nothing(back))) => ticket = back,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(Error::Unavailable { what: "looking for a job", source: None }),
            }
        }
    }

    /// Waits until no claim is in progress. Call it when no acquire can start any more.
    pub async fn claims_finished(&self) {
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

    async fn try_claim(
        &self,
        mut ticket: Ticket,
        domain: &Domain,
        waiting: WaitingDaemon,
        _permit: OwnedSemaphorePermit,
    ) -> Result<WaitOutcome, Error> {
        loop {
            if let Some(ClaimedJob { job, more }) = self.claim(domain, waiting).await? {
                ticket.served = Some(more);
                drop(ticket);
                self.0.events.job_changed(job);
                return Ok(WaitOutcome::Job(Claimed { job, waiting, scheduler: Some(self.clone()) }));
            }
            if self.shared().waiting.found_nothing(ticket.waiter) == Next::Wait {
                return Ok(WaitOutcome::Nothing(ticket));
            }
        }
    }

    async fn claim(&self, domain: &Domain, waiting: WaitingDaemon) -> Result<Option<ClaimedJob>, Error> {
        let store = &self.0.store;
        loop {
            let (wanted, newest) = self.0.tag_sets.known_to_be_satisfied_by(&domain.tags);
            let claim = ClaimRequest {
                organization_id: domain.organization,
                provisioners: &domain.provisioners,
                tag_sets: &wanted,
                daemon: waiting.daemon,
                session: waiting.session,
            };
            let now = self.0.clock.now();
            match jobs::try_claim(&mut store.single().await?, &claim, newest, now).await? {
                ClaimOutcome::Job(taken) => return Ok(Some(taken)),
                ClaimOutcome::Nothing => return Ok(None),
                ClaimOutcome::NewerTagSets => self.0.tag_sets.refresh(&mut store.reader().await?).await?,
            }
        }
    }

    fn fail_undelivered(&self, job: JobId, waiting: WaitingDaemon) {
        let this = self.clone();
        self.0.tasks.spawn(async move {
            let (now, daemon, since) = (this.0.clock.now(), waiting.daemon, Instant::now());
            let fail = || async {
                transaction!(this.0.store, Error, |tx| {
                    jobs::fail(tx, job, holder(waiting), BROKEN, "", now).await
                })
            };
            let is_worth_it = |error: &Error| error.is_retryable() && since.elapsed() < DATABASE_WAIT;
            let failed = retry_while(fail, is_worth_it).await;
            match failed {
                Ok(()) => tracing::warn!(job_id = %job, daemon_id = %daemon, "ended a claimed job that could not be delivered"),
                // The reaper ended it, or the daemon resumed it or reported on it.
                Err(Error::Stale { .. }) => {}
                Err(error) => {
                    tracing::error!(job_id = %job, daemon_id = %daemon, %error, "cannot end an undelivered job, leaving it to the reaper")
                }
            }
            this.0.events.job_changed(job);
        });
    }

    fn shared(&self) -> MutexGuard<'_, WaitState> {
        self.0.waiting.lock()
    }
}

/// The first epoch of a job (`coder_domain::job::lifecycle`).
const FIRST_EPOCH: i64 = 1;

fn holder(waiting: WaitingDaemon) -> Holder {
    Holder { daemon: waiting.daemon, epoch: waiting.session.map(|_| FIRST_EPOCH) }
}

enum WaitOutcome {
    Job(Claimed),
    Nothing(Ticket),
}

/// A place in the queue. Dropping it leaves the queue and clears the next waiter.
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

/// A job that a daemon claimed but has not received yet. Dropping it before [`Claimed::delivered`] fails the job.
pub struct Claimed {
    job: JobId,
    waiting: WaitingDaemon,
    scheduler: Option<Scheduler>,
}

impl Claimed {
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }

    /// The epoch under which it is held; none by the official rule.
    #[must_use]
    pub fn epoch(&self) -> Option<i64> {
        holder(self.waiting).epoch
    }

    /// The daemon has it, or it has ended.
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
            scheduler.fail_undelivered(self.job, self.waiting);
        }
    }
}
