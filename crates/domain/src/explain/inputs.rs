//! What the reasons are derived from: the job, the daemons, and the job's position.

use jiff::Timestamp;

use crate::ids::{DaemonId, OrganizationId, UserId};
use crate::tags::TagSet;

/// The waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingJob<'a> {
    /// The organization it belongs to.
    pub organization: OrganizationId,
    /// The provisioner type it needs.
    pub provisioner: &'a str,
    /// Its tags as stored.
    pub tags: &'a TagSet,
    /// When it began to wait.
    pub created_at: Timestamp,
    /// The user who started it.
    pub initiator: UserId,
}

/// Whether a daemon is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Connected,
    /// It is certainly not connected: this server is the only one, or no server has its connection.
    Disconnected,
    /// Another replica may have its connection: the time of its last heartbeat decides.
    Unknown,
}

/// The state of the key that a daemon joined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It joined with a session, with the pre-shared key, or runs inside the server.
    None,
    /// It may join again.
    Live,
    /// It expired at this instant.
    Expired(Timestamp),
    /// It was deleted at this instant.
    Revoked(Timestamp),
}

/// A daemon as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Daemon<'a> {
    /// Its row.
    pub id: DaemonId,
    pub name: &'a str,
    /// The organization it joined; daemons of another one are ignored.
    pub organization: OrganizationId,
    /// The types it serves.
    pub provisioners: &'a [String],
    /// Its effective tags; the owner of a user-scoped daemon is in them.
    pub tags: &'a TagSet,
    /// Its last heartbeat; none if it never connected.
    pub last_seen_at: Option<Timestamp>,
    /// Its connection.
    pub presence: Presence,
    /// The key it joined with.
    pub key: KeyState,
    /// Whether it drains: it accepts no more jobs.
    pub draining: bool,
    /// Why it can run no jobs, in a few words; empty if it can.
    pub problem: &'a str,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many it runs now.
    pub busy: u32,
}

/// The job's position among those that the same daemons could run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// From 1; 0 if unknown.
    pub position: u64,
    /// How many jobs wait.
    pub size: u64,
    /// Start of the oldest job that those daemons run.
    pub oldest_running_since: Option<Timestamp>,
}
