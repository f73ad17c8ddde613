//! The facts from which the reasons follow: the job, the daemons, and the job's place.

use jiff::Timestamp;

use crate::ids::{DaemonId, OrganizationId, UserId};
use crate::tags::TagSet;

/// The waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<'a> {
    /// The organization it belongs to.
    pub organization: OrganizationId,
    /// The provisioner type it needs.
    pub provisioner: &'a str,
    /// Its tags as stored.
    pub tags: &'a TagSet,
    /// When it began to wait.
    pub created_at: Timestamp,
    /// Who asked for it.
    pub initiator: UserId,
}

/// What is known of a daemon's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has one.
    Connected,
    /// It has none, which is certain: this server is the only one, or each was asked.
    Disconnected,
    /// Another replica may hold it: the time of the last sign of life decides.
    Unknown,
}

/// The state of the key that a daemon joined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It joined with a session, with the pre-shared key, or runs inside the server.
    None,
    /// It may join again.
    Live,
    /// It can not join again since this instant.
    Expired(Timestamp),
    /// It was deleted at this instant.
    Revoked(Timestamp),
}

/// A daemon as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Daemon<'a> {
    /// Its row.
    pub id: DaemonId,
    /// Its name.
    pub name: &'a str,
    /// The organization it joined; daemons of another one are passed over.
    pub organization: OrganizationId,
    /// The types it serves.
    pub provisioners: &'a [String],
    /// Its effective tags; the owner of a user-scoped daemon is in them.
    pub tags: &'a TagSet,
    /// Its last sign of life; none when it never came.
    pub last_seen_at: Option<Timestamp>,
    /// Its connection.
    pub presence: Presence,
    /// The key it joined with.
    pub key: KeyState,
    /// Whether it was told to take no more jobs.
    pub draining: bool,
    /// Why it can run no jobs, in a few words; empty when it can.
    pub problem: &'a str,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many it runs now.
    pub busy: u32,
}

/// Where the job stands among those that the same daemons could take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Its place, from 1; 0 when unknown.
    pub position: u64,
    /// How many wait.
    pub size: u64,
    /// Start of the oldest job that those daemons run.
    pub oldest_running_since: Option<Timestamp>,
}
