//! What peers can make the server hold while their requests run: one bound for each kind, shared fairly between users,
//! keys and addresses (`coder_wire::budget`). Everything is given back when the request ends.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use coder_domain::ids::UserId;
use coder_wire::budget::{Account, Budget, Reservation};
use http::StatusCode;
use hyper::body::{Frame, SizeHint};

use crate::config::Limits;
use crate::http::error::Error;

const MIB: usize = 1 << 20;
/// For bodies and files of up to [`SMALL`] bytes, so that ordinary requests never wait for large ones.
const SMALL_TOTAL: usize = 32 * MIB;
/// For everything else that is in memory: bodies and what is made of them, messages of daemons, responses nobody reads.
const LARGE_TOTAL: usize = 96 * MIB;
/// For what arrived from daemons and was not read yet.
const UNREAD_TOTAL: usize = 48 * MIB;
/// For files on their way, which are on the disk.
const DISK_TOTAL: usize = 2048 * MIB;
/// The most that one daemon's connection may reserve.
const CONNECTION: usize = 32 * MIB;

/// Longest small body.
pub const SMALL: usize = 16 << 10;
/// Bodies of so many bytes need no reservation.
const TINY: usize = 1 << 10;
/// What a JSON document costs besides its bytes while it is worked on: the values that are made of it.
const JSON_COPIES: usize = 4;
/// Reservations for bodies grow by so many bytes.
const STEP: usize = 64 << 10;
/// Responses of so many bytes are held until the peer has read them, so they count.
const RESPONSE: usize = 64 << 10;
/// What a response takes that is read from the database or the disk as the peer reads.
const STREAMED: usize = 1 << 20;
/// How long a request waits for others to end before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// Responses of more bytes do not wait.
const MUCH: usize = 4 << 20;
/// How long a response waits, which is in memory already.
const RESPONSE_PATIENCE: Duration = Duration::from_secs(2);

/// The bounds of a server.
#[derive(Debug)]
pub struct Memory {
    small: Budget,
    large: Budget,
    unread: Budget,
    disk: Budget,
    /// Where files are while they arrive.
    pub directory: PathBuf,
}

impl Memory {
    /// The bounds, all free.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            small: Budget::new(SMALL_TOTAL),
            large: Budget::new(LARGE_TOTAL),
            unread: Budget::new(UNREAD_TOTAL),
            disk: Budget::new(DISK_TOTAL),
            directory: limits.spool_directory.clone().unwrap_or_else(std::env::temp_dir),
        }
    }

    /// The accounts of somebody.
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

    /// The accounts of whoever calls from an address and is not known yet. IPv6 addresses of one network count together,
    /// since a host has all of them.
    #[must_use]
    pub fn of_address(&self, address: IpAddr) -> Holder {
        self.holder(match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        })
    }

    /// What is reserved now, on the disk too.
    #[must_use]
    pub fn used(&self) -> usize {
        [&self.small, &self.large, &self.unread, &self.disk].map(Budget::used).iter().sum()
    }

    /// The most memory, and the most of the disk, that was reserved at once since this was asked last.
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
    /// What the request has reserved, until its response is made.
    request: Arc<Mutex<Vec<Reservation>>>,
}

impl Holder {
    /// The same request, whose caller is known now.
    #[must_use]
    pub fn of_user(&self, memory: &Memory, user: UserId) -> Self {
        Self { request: Arc::clone(&self.request), ..memory.holder(user.0.as_u128()) }
    }

    /// For one daemon's connection.
    #[must_use]
    pub fn connection(&self) -> Self {
        Self { large: self.large.connection(CONNECTION), ..self.clone() }
    }

    /// The account of memory.
    #[must_use]
    pub const fn memory(&self) -> &Account {
        &self.large
    }

    /// The account of what daemons sent and nobody read yet.
    #[must_use]
    pub const fn unread(&self) -> &Account {
        &self.unread
    }

    /// The account of the disk.
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
        let mut kept = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend([body.small, body.large].into_iter().filter(|one| one.amount() > 0));
    }

    /// The request is over.
    pub fn release(&self) {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The accounts of a request; none where a router is driven without its layers.
pub fn of(request: &Request) -> Option<&Holder> {
    request.extensions().get()
}

/// What a body of JSON takes while it arrives, and what is made of it.
#[derive(Debug)]
pub struct BodyReservation {
    small: Reservation,
    large: Reservation,
}

impl BodyReservation {
    /// Reserves what a body of `bytes` takes; waits a moment for others to end.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes <= TINY {
            return Ok(());
        }
        if bytes <= SMALL {
            return wait(self.small.grow(SMALL)).await;
        }
        let wanted = (JSON_COPIES * bytes).next_multiple_of(STEP);
        if self.large.amount() < wanted {
            wait(self.large.grow(wanted)).await?;
        }
        self.small.shrink(0);
        Ok(())
    }
}

/// Waits for a reservation, and no longer than a request should.
pub async fn wait(reserved: impl Future<Output = ()>) -> Result<(), Error> {
    tokio::time::timeout(PATIENCE, reserved).await.map_err(|_| busy())
}

fn busy() -> Error {
    Error::new(StatusCode::SERVICE_UNAVAILABLE, "The server is busy with other large requests.")
        .detail("Nothing was changed. Try again in a moment, with fewer large requests at once.")
}

/// Counts a response that is in memory until the peer has read it.
pub async fn count_response(response: Response, holder: &Holder) -> Response {
    let size = match response.body().size_hint().exact() {
        Some(size) => usize::try_from(size).unwrap_or(usize::MAX),
        None => STREAMED,
    };
    if size < RESPONSE {
        return response;
    }
    let mut reservation = holder.large.reserve();
    // What is in memory already cannot wait for long, and what takes much of it not at all.
    let patience = if size > MUCH { Duration::ZERO } else { RESPONSE_PATIENCE };
    if tokio::time::timeout(patience, reservation.grow(size)).await.is_err() {
        return busy().into_response();
    }
    response.map(|body| Body::new(Counted { body, _reservation: reservation }))
}

/// A body with what is reserved for it.
struct Counted {
    body: Body,
    _reservation: Reservation,
}

impl HttpBody for Counted {
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
