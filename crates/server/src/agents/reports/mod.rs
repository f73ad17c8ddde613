//! What agents report: one file for each kind of call.

pub(super) mod app_health;
pub(super) mod boundary;
pub(super) mod connections;
pub(super) mod lifecycle;
pub mod logs;
pub(super) mod metadata;
pub(super) mod monitoring;
pub(super) mod scripts;
pub(super) mod startup;
pub(super) mod stats;
pub(super) mod sub_agents;

use coder_domain::Timestamp;
use coder_wire::drpc::Status;
use uuid::Uuid;

/// An id of 16 bytes.
fn id(bytes: &[u8], what: &str) -> Result<Uuid, Status> {
    Uuid::from_slice(bytes)
        .map_err(|_| Status::new(format!("{what} must have 16 bytes, not {}", bytes.len())))
}

/// An instant, if it is one that can be stored.
fn instant(stamp: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(stamp.seconds, stamp.nanos).ok()
}

/// A text of at most `limit` bytes.
fn bounded(text: String, limit: usize, what: &str) -> Result<String, Status> {
    if text.len() > limit {
        return Err(Status::new(format!("{what} has {} bytes; {limit} are allowed", text.len())));
    }
    Ok(text)
}
