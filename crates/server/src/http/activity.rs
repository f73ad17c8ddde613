//! Time limits of a connection: for the first request, for the end of a request head, for idle time, and for a peer that
//! does not read its responses.
//!
//! Requests only update counters. One timer per connection reads them when a limit may have passed. An upgraded connection
//! has no timer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::Version;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

/// Bytes that a peer must send or read within the time limit: 273 bytes a second with the default of a minute.
pub const LEAST_BYTES: usize = 16 << 10;

/// The counters of one connection. Times are milliseconds since it began.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    /// Requests whose response is not complete.
    open: AtomicUsize,
    /// Those of them that wait for this server and not for the peer.
    ours: AtomicUsize,
    /// Requests that ended.
    ended: AtomicU64,
    /// Bytes of response bodies that were sent.
    sent: AtomicU64,
    /// When the last request ended.
    idle_since: AtomicU64,
    /// When the first bytes of the next head arrived; zero before.
    head_since: AtomicU64,
    multiplexed: AtomicBool,
}

/// The time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// For the first head, from the beginning of the connection, and for a later head, from its first byte.
    pub head: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// In which the peer must read [`LEAST_BYTES`] of its responses.
    pub stall: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// No request came. The connection is shut down gracefully.
    Idle,
    /// The first head did not arrive, or a later one did not end.
    Head,
    /// The peer does not read its responses.
    Stalled,
}

impl Activity {
    /// Starts the clock of a connection.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            open: AtomicUsize::new(0),
            ours: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Bytes arrived. With HTTP/2 they need not belong to a head.
    pub fn received(&self) {
        let waits = self.head_since.load(Ordering::Relaxed) == 0
            && self.open.load(Ordering::Relaxed) == 0
            && !self.multiplexed.load(Ordering::Relaxed);
        if waits {
            self.head_since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// A head is complete.
    #[must_use]
    pub fn request(self: &Arc<Self>, version: Version) -> ActiveRequest {
        self.multiplexed.store(version == Version::HTTP_2, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.ours.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        ActiveRequest { activity: Arc::clone(self), ours: true }
    }

    /// Resolves when the connection is to be closed.
    pub async fn overdue(&self, timeouts: ConnectionTimeouts) -> CloseReason {
        let progress = || (self.ended.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed));
        let mut before = None;
        loop {
            if self.open.load(Ordering::Relaxed) == 0 {
                before = None;
                let head = self.head_since.load(Ordering::Relaxed);
                let (since, limit, reason) = match (self.ended.load(Ordering::Relaxed), head) {
                    (0, _) => (0, timeouts.head, CloseReason::Head),
                    (_, 0) => (self.idle_since.load(Ordering::Relaxed), timeouts.idle, CloseReason::Idle),
                    (_, head) => (head, timeouts.head, CloseReason::Head),
                };
                let due = self.began + Duration::from_millis(since) + limit;
                if due <= Instant::now() {
                    return reason;
                }
                // A head that begins meanwhile has less time than an idle connection has.
                tokio::time::sleep_until(due.min(Instant::now() + timeouts.head)).await;
                continue;
            }
            let now = progress();
            let waits_for_peer = self.ours.load(Ordering::Relaxed) == 0;
            let least = LEAST_BYTES as u64;
            let stalled = before.is_some_and(|(ended, sent)| ended == now.0 && now.1 - sent < least);
            if waits_for_peer && stalled {
                return CloseReason::Stalled;
            }
            before = waits_for_peer.then_some(now);
            tokio::time::sleep(timeouts.stall).await;
        }
    }
}

/// One request of a connection, until its response is complete.
#[derive(Debug)]
pub struct ActiveRequest {
    activity: Arc<Activity>,
    ours: bool,
}

impl ActiveRequest {
    /// The body of its response. From now on the request waits for the peer.
    #[must_use]
    pub fn responds(mut self, body: Body) -> TrackedBody {
        self.waits_for_us(false);
        TrackedBody { body, request: self }
    }

    fn waits_for_us(&mut self, ours: bool) {
        if self.ours != ours {
            self.ours = ours;
            if ours {
                self.activity.ours.fetch_add(1, Ordering::Relaxed);
            } else {
                self.activity.ours.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.waits_for_us(false);
        self.activity.ended.fetch_add(1, Ordering::Relaxed);
        self.activity.idle_since.store(self.activity.now(), Ordering::Relaxed);
        self.activity.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response that counts the bytes that were sent.
#[derive(Debug)]
pub struct TrackedBody {
    body: Body,
    request: ActiveRequest,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.request.waits_for_us(polled.is_pending());
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.request.activity.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const LIMITS: ConnectionTimeouts = ConnectionTimeouts {
        head: Duration::from_secs(20),
        idle: Duration::from_secs(75),
        stall: Duration::from_secs(60),
    };

    /// After how many seconds the connection is closed, and why.
    async fn cut(activity: &Activity) -> (u64, CloseReason) {
        let cut = activity.overdue(LIMITS).await;
        (activity.began.elapsed().as_secs(), cut)
    }

    fn after(seconds: u64) -> tokio::time::Sleep {
        tokio::time::sleep(Duration::from_secs(seconds))
    }

    /// A request that was answered at once.
    fn answer(activity: &Arc<Activity>, version: Version) {
        drop(activity.request(version).responds(Body::empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_a_trickle_before_the_first_request_have_the_same_time() {
        let activity = Activity::new();
        assert_eq!(cut(&activity).await, (20, CloseReason::Head));
        let activity = Activity::new();
        let trickle = async {
            loop {
                after(1).await;
                activity.received();
            }
        };
        let ended = tokio::select! { ended = cut(&activity) => ended, () = trickle => unreachable!() };
        assert_eq!(ended, (20, CloseReason::Head));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_is_cut_when_idle_and_sooner_within_a_head() {
        let activity = Activity::new();
        after(10).await;
        answer(&activity, Version::HTTP_11);
        assert_eq!(cut(&activity).await, (85, CloseReason::Idle));
        let activity = Activity::new();
        after(10).await;
        answer(&activity, Version::HTTP_11);
        let begins = async {
            after(10).await;
            activity.received();
            std::future::pending::<()>().await;
        };
        let (seconds, why) =
            tokio::select! { ended = cut(&activity) => ended, () = begins => unreachable!() };
        assert_eq!(why, CloseReason::Head);
        assert!((40..=60).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn pings_of_http_2_are_no_heads() {
        let activity = Activity::new();
        answer(&activity, Version::HTTP_2);
        activity.received();
        assert_eq!(cut(&activity).await, (75, CloseReason::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_handler_is_not_the_peers_fault() {
        let activity = Activity::new();
        let request = activity.request(Version::HTTP_11);
        let handler = async {
            after(3600).await;
            drop(request.responds(Body::empty()));
        };
        let ((seconds, why), ()) = tokio::join!(cut(&activity), handler);
        assert_eq!(why, CloseReason::Idle);
        assert!(seconds >= 3675, "{seconds}");
        // A body that comes slowly from us, too.
        let activity = Activity::new();
        let slow = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let mut body = activity.request(Version::HTTP_2).responds(Body::from_stream(slow));
        let reading = async { tokio::time::timeout(Duration::from_secs(3600), body.frame()).await.is_err() };
        assert!(tokio::select! { _ = cut(&activity) => false, waited = reading => waited });
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_nobody_takes_is_cut() {
        let activity = Activity::new();
        let _never_polled = activity.request(Version::HTTP_2).responds(Body::from("x"));
        assert_eq!(cut(&activity).await, (60, CloseReason::Stalled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_must_be_taken_at_a_least_rate() {
        for (bytes, is_cut) in [(100, true), (LEAST_BYTES / 2, false)] {
            let activity = Activity::new();
            let pieces = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(vec![0; bytes]));
            let mut body = activity.request(Version::HTTP_2).responds(Body::from_stream(pieces));
            let slow_reader = async {
                for _ in 0..60 {
                    after(20).await;
                    body.frame().await.unwrap().unwrap();
                }
            };
            let was_cut = tokio::select! { _ = cut(&activity) => true, () = slow_reader => false };
            assert_eq!(was_cut, is_cut, "{bytes}");
        }
    }
}
