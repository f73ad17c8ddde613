//! What is known about an organization's daemons: for the explanation why a job waits (`coder_domain::explain`), and
//! for the question whether a daemon that can run it was seen.

use coder_domain::explain::{Daemon, KeyState, Presence};
use coder_domain::ids::{DaemonId, KeyId, OrganizationId};
use coder_domain::tags::TagSet;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};

record! {
    /// A daemon with its key, its jobs and what it reported about itself.
    pub struct DaemonFacts {
        /// Its row.
        pub id: DaemonId,
        /// The organization it joined.
        pub organization_id: OrganizationId,
        pub name: String,
        /// The provisioner types it serves.
        pub provisioners: Vec<String>,
        /// Its effective tags.
        pub tags: TagSet,
        /// Its last heartbeat.
        pub last_seen_at: Option<Timestamp> = "last_seen_us",
        /// When its newest connection ended; none while it is connected.
        pub left_at: Option<Timestamp> = "left_us",
        /// The server process of its newest connection, which may have ended; empty when unknown.
        pub server: String,
        /// How many jobs it can run at once, as it reported.
        pub slots: i64,
        /// Whether it is draining.
        pub draining: bool,
        /// Why it cannot run jobs, in a few words; empty when it can or did not report it.
        pub problem: String,
        pub key_id: KeyId,
        /// When the key expires.
        pub expires_at: Option<Timestamp> = "expires_us",
        /// When the key was deleted.
        pub revoked_at: Option<Timestamp> = "revoked_us",
        /// How many open jobs it holds.
        pub busy: i64,
        /// When the oldest of these jobs started.
        pub oldest_running_since: Option<Timestamp> = "oldest_us",
    }
}

impl DaemonFacts {
    #[must_use]
    pub fn key(&self, now: Timestamp) -> KeyState {
        let reserved = [KeyId::BUILT_IN, KeyId::USER_AUTH, KeyId::PSK].contains(&self.key_id);
        match (self.revoked_at, self.expires_at) {
            (Some(at), _) => KeyState::Revoked(at),
            (None, Some(at)) if at <= now => KeyState::Expired(at),
            _ if reserved => KeyState::None,
            _ => KeyState::Live,
        }
    }

    /// Converts the row for the explanation. `session` is what the servers know about its connection.
    #[must_use]
    pub fn daemon(&self, presence: Presence, now: Timestamp) -> Daemon<'_> {
        let number = |count: i64| u32::try_from(count.max(0)).unwrap_or(u32::MAX);
        Daemon {
            id: self.id,
            name: &self.name,
            organization: self.organization_id,
            provisioners: &self.provisioners,
            tags: &self.tags,
            last_seen_at: self.last_seen_at,
            presence,
            key: self.key(now),
            draining: self.draining,
            problem: &self.problem,
            slots: number(self.slots),
            busy: number(self.busy),
        }
    }
}

statements! { "provisioner_daemons";
    /// Held jobs are few, and an index covers exactly them.
    LIST = sql("select daemon.id, daemon.organization_id, daemon.name, daemon.provisioners, daemon.tags,
        daemon.last_seen_us, daemon.left_us, coalesce(substr(daemon.connection, 1, 36), '') as server, daemon.slots, daemon.draining, daemon.problem, daemon.key_id, joined.expires_us,
        joined.revoked_us, coalesce(held.jobs, 0) as busy, held.oldest_us
        from provisioner_daemons as daemon join provisioner_keys as joined on joined.id = daemon.key_id
        left join (select worker_id, count(*) as jobs, min(started_us) as oldest_us from provisioner_jobs
            where started_us is not null and completed_us is null group by worker_id) as held
            on held.worker_id = daemon.id
        where daemon.organization_id = $1 order by coalesce(daemon.last_seen_us, 0) desc, daemon.id limit $2");
}

/// The daemons of an organization, including those of deleted keys, most recently seen first. One statement that reads
/// a few rows for each daemon, however many jobs wait.
pub async fn list(tx: &mut Tx, organization: OrganizationId, limit: i64) -> Result<Vec<DaemonFacts>> {
    tx.fetch(&LIST, values![organization, limit]).await?.iter().map(DaemonFacts::from_row).collect()
}
