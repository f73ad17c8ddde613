//! Budgets for memory and disk that requests and daemons take: one for each kind, shared fairly between users, keys and
//! addresses (`coder_wire::budget`). A request returns what it reserved when it ends.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use coder_domain::ids::UserId;
use coder_wire::budget::{Account, Budget, Reservation};
use http::StatusCode;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

use crate::config::Limits;
use crate::http::error::Error;

const MIB: usize = 1 << 20;
/// For bodies and files of up to [`SMALL_BODY_BYTES`] bytes, so that ordinary requests never wait for large ones.
const SMALL_TOTAL: usize = 32 * MIB;
/// For everything else in memory: bodies and what is parsed from them, messages of daemons, responses that wait for a peer.
const LARGE_TOTAL: usize = 96 * MIB;
/// For bytes that arrived from daemons and wait in buffers.
const UNREAD_TOTAL: usize = 48 * MIB;
/// For temporary files on the disk.
const DISK_TOTAL: usize = 2048 * MIB;
/// Threads that parse sources, evaluate expressions or render texts at the same time. One may take a second and 40 MiB.
const WORK_TOTAL: usize = 2;
/// The most that one daemon's connection may reserve.
const MAX_CONNECTION_BYTES: usize = 32 * MIB;

/// Longest small body.
pub const SMALL_BODY_BYTES: usize = 16 << 10;
/// Bodies up to this length need no reservation.
const FREE_BODY_BYTES: usize = 1 << 10;
/// Memory of a parsed JSON document, as a multiple of its bytes.
const JSON_COPIES: usize = 4;
/// The step by which reservations for bodies grow.
const RESERVATION_STEP: usize = 64 << 10;
/// Responses from this length on are reserved until the peer has read them.
const RESERVED_RESPONSE_BYTES: usize = 64 << 10;
/// The reservation of a response that is streamed from the database or the disk.
const STREAMED_RESPONSE_BYTES: usize = 1 << 20;
/// How long a request waits for a reservation before it is refused.
const REQUEST_WAIT: Duration = Duration::from_secs(10);
/// Longer responses do not wait for a reservation.
const NO_WAIT: usize = 4 << 20;
/// How long a response waits for a reservation. It is in memory meanwhile.
const RESPONSE_WAIT: Duration = Duration::from_secs(2);

/// The budgets of a server.
#[derive(Debug)]
pub struct Memory {
    small: Budget,
    large: Budget,
    unread: Budget,
    disk: Budget,
    work: Budget,
    /// The folder for temporary files.
    pub directory: PathBuf,
}

impl Memory {
    /// Empty budgets.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            small: Budget::new(SMALL_TOTAL),
            large: Budget::new(LARGE_TOTAL),
            unread: Budget::new(UNREAD_TOTAL),
            disk: Budget::new(DISK_TOTAL),
            work: Budget::new(WORK_TOTAL),
            directory: limits.spool_directory.clone().unwrap_or_else(std::env::temp_dir),
        }
    }

    /// The accounts of a user, a key or an address.
    #[must_use]
    pub fn holder(&self, holder: u128) -> Holder {
        Holder {
            small: self.small.account(holder),
            large: self.large.account(holder),
            unread: self.unread.account(holder),
            disk: self.disk.account(holder),
            request: Arc::default(),
        }
    }

    /// The accounts of an address, for requests before authentication. IPv6 addresses of one /64 network share accounts, since
    /// one host has all of them.
    #[must_use]
    pub fn of_address(&self, address: IpAddr) -> Holder {
        self.holder(match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        })
    }

    /// A place for work on a blocking thread that takes noticeable time or memory, until the reservation is dropped. Users take turns.
    /// Wait for it without a database connection: the work of others may need one.
    ///
    /// # Errors
    /// 503 after [`REQUEST_WAIT`].
    pub async fn work_place(&self, user: UserId) -> Result<Reservation, Error> {
        let mut place = self.work.account(user.0.as_u128()).reserve();
        let granted = tokio::time::timeout(REQUEST_WAIT, place.grow(1)).await;
        granted.map_err(|_| {
            Error::new(StatusCode::SERVICE_UNAVAILABLE, "Too many templates are being read at once.")
                .detail("Nothing was changed. Try again in a moment.")
        })?;
        Ok(place)
    }

    /// Bytes that are reserved now, including the disk.
    #[must_use]
    pub fn used(&self) -> usize {
        [&self.small, &self.large, &self.unread, &self.disk].map(Budget::used).iter().sum()
    }

    /// The peaks of reserved memory and disk since the last call.
    #[must_use]
    pub fn take_peaks(&self) -> (usize, usize) {
        let memory = [&self.small, &self.large, &self.unread];
        (memory.map(Budget::take_peak).iter().sum(), self.disk.take_peak())
    }
}

/// The accounts of a user, a key or an address, in the extensions of its requests.
#[derive(Clone, Debug)]
pub struct Holder {
    small: Account,
    large: Account,
    unread: Account,
    disk: Account,
    /// Reservations of the request, until its response is made.
    request: Arc<Mutex<Vec<Reservation>>>,
}

impl Holder {
    /// The same request, on the accounts of its authenticated user.
    #[must_use]
    pub fn of_user(&self, memory: &Memory, user: UserId) -> Self {
        Self { request: Arc::clone(&self.request), ..memory.holder(user.0.as_u128()) }
    }

    /// Accounts for one daemon's connection.
    #[must_use]
    pub fn connection(&self) -> Self {
        Self { large: self.large.connection(MAX_CONNECTION_BYTES), ..self.clone() }
    }

    #[must_use]
    pub const fn memory(&self) -> &Account {
        &self.large
    }

    /// The account of buffered bytes from daemons.
    #[must_use]
    pub const fn unread(&self) -> &Account {
        &self.unread
    }

    #[must_use]
    pub const fn disk(&self) -> &Account {
        &self.disk
    }

    /// A reservation for a body of JSON that is about to arrive.
    #[must_use]
    pub fn body(&self) -> BodyReservation {
        BodyReservation { small: self.small.reserve(), large: self.large.reserve() }
    }

    /// Keeps a reservation until the response is made.
    pub fn keep(&self, body: BodyReservation) {
        let mut kept = self.request.lock();
        kept.extend([body.small, body.large].into_iter().filter(|one| one.amount() > 0));
    }

    /// The request is over.
    pub fn release(&self) {
        self.request.lock().clear();
    }
}

/// The accounts of a request; `None` when a test calls a handler without the layers.
pub fn of(request: &Request) -> Option<&Holder> {
    request.extensions().get()
}

/// The reservation for a JSON body and the values that are parsed from it.
#[derive(Debug)]
pub struct BodyReservation {
    small: Reservation,
    large: Reservation,
}

impl BodyReservation {
    /// Reserves memory for a body of `bytes`, or fails after [`REQUEST_WAIT`].
    pub async fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes <= FREE_BODY_BYTES {
            return Ok(());
        }
        if bytes <= SMALL_BODY_BYTES {
            return wait(self.small.grow(SMALL_BODY_BYTES)).await;
        }
        let needed = (JSON_COPIES * bytes).next_multiple_of(RESERVATION_STEP);
        if self.large.amount() < needed {
            wait(self.large.grow(needed)).await?;
        }
        self.small.shrink(0);
        Ok(())
    }
}

/// Waits for a reservation for at most [`REQUEST_WAIT`].
pub async fn wait(reserved: impl Future<Output = ()>) -> Result<(), Error> {
    tokio::time::timeout(REQUEST_WAIT, reserved).await.map_err(|_| busy())
}

fn busy() -> Error {
    Error::new(StatusCode::SERVICE_UNAVAILABLE, "The server is busy with other large requests.")
        .detail("Nothing was changed. Try again in a moment, with fewer large requests at once.")
}

/// Marks a response, in its extensions, that is open for hours and holds one small piece at a time. It reserves nothing.
#[derive(Clone, Copy, Debug)]
pub struct Watched;

/// Reserves memory for a response until the peer has read it.
pub async fn reserve_response(response: Response, holder: &Holder) -> Response {
    if response.extensions().get::<Watched>().is_some() {
        return response;
    }
    let size = match response.body().size_hint().exact() {
        Some(size) => usize::try_from(size).unwrap_or(usize::MAX),
        None => STREAMED_RESPONSE_BYTES,
    };
    if size < RESERVED_RESPONSE_BYTES {
        return response;
    }
    let mut reservation = holder.large.reserve();
    // The response is in memory already, so it waits for a short time only, and a large one not at all.
    let wait = if size > NO_WAIT { Duration::ZERO } else { RESPONSE_WAIT };
    if tokio::time::timeout(wait, reservation.grow(size)).await.is_err() {
        return busy().into_response();
    }
    response.map(|body| Body::new(ReservedBody { body, _reservation: reservation }))
}

struct ReservedBody {
    body: Body,
    _reservation: Reservation,
}

impl HttpBody for ReservedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(cx)
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
    use super::*;

    fn memory() -> Memory {
        Memory::new(&Limits::default())
    }

    /// Whether a request from `second` may reserve memory while one from `first` has as much as one client may have.
    fn has_room(first: &str, second: &str) -> bool {
        let memory = memory();
        let holder = |address: &str| memory.of_address(address.parse().unwrap());
        let mut most = holder(first).memory().reserve();
        assert!(most.try_grow(LARGE_TOTAL / 2));
        holder(second).memory().reserve().try_grow(MIB)
    }

    #[test]
    fn an_ipv6_network_shares_its_budget_and_ipv4_addresses_have_their_own() {
        assert!(!has_room("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(has_room("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(!has_room("192.0.2.1", "192.0.2.1"));
        assert!(has_room("192.0.2.1", "192.0.2.2"));
    }

    #[tokio::test]
    async fn bodies_reserve_by_their_length_and_return_it_with_the_request() {
        let memory = memory();
        let holder = memory.of_address("192.0.2.1".parse().unwrap());
        let mut body = holder.body();
        for (bytes, used) in [
            (FREE_BODY_BYTES, 0),
            (FREE_BODY_BYTES + 1, SMALL_BODY_BYTES),
            (SMALL_BODY_BYTES, SMALL_BODY_BYTES),
            (SMALL_BODY_BYTES + 1, 2 * RESERVATION_STEP),
            (20 << 10, 2 * RESERVATION_STEP),
        ] {
            body.grow(bytes).await.unwrap();
            assert_eq!(memory.used(), used, "{bytes} bytes");
        }
        holder.keep(body);
        assert_eq!(memory.used(), 2 * RESERVATION_STEP);
        holder.release();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn long_responses_are_reserved_until_they_are_read() {
        let memory = memory();
        let holder = memory.of_address("192.0.2.1".parse().unwrap());
        let streamed = Body::from_stream(futures_util::stream::empty::<Result<Bytes, std::io::Error>>());
        for (body, used) in [
            (Body::from(vec![0; RESERVED_RESPONSE_BYTES - 1]), 0),
            (Body::from(vec![0; RESERVED_RESPONSE_BYTES]), RESERVED_RESPONSE_BYTES),
            (streamed, STREAMED_RESPONSE_BYTES),
        ] {
            let response = reserve_response(Response::new(body), &holder).await;
            assert_eq!((response.status(), memory.used()), (StatusCode::OK, used));
            drop(response);
            assert_eq!(memory.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_without_room_are_refused_large_ones_at_once() {
        let memory = memory();
        let (mut first, mut second) =
            (memory.holder(1).memory().reserve(), memory.holder(2).memory().reserve());
        assert!(first.try_grow(LARGE_TOTAL / 2) && second.try_grow(LARGE_TOTAL / 4));
        // The oldest waiting reservation may exceed the bounds; this one takes that place.
        let mut third = memory.holder(3).memory().reserve();
        third.grow(LARGE_TOTAL / 2).await;
        for (size, waited) in [(NO_WAIT + 1, Duration::ZERO), (NO_WAIT, RESPONSE_WAIT)] {
            let started = tokio::time::Instant::now();
            let response = Response::new(Body::from(vec![0; size]));
            let refused = reserve_response(response, &memory.holder(1)).await;
            assert_eq!((refused.status(), started.elapsed()), (StatusCode::SERVICE_UNAVAILABLE, waited));
        }
    }
}
