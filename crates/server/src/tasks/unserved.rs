//! Whether anything that could run a waiting job has been seen, and why not (scheduling-and-auth 3.6).

use std::collections::{HashMap, HashSet};

use coder_domain::Timestamp;
use coder_domain::explain::{self, Queue};
use coder_domain::ids::{DaemonId, KeyId, OrganizationId};
use coder_store::daemons::{self, Daemon, Filter};
use coder_store::jobs::Job;
use coder_store::keys;
use coder_store::{Error, Tx};

use crate::context::App;
use crate::routes::matched::STALE_AFTER;

/// The daemons of an organization, as of one pass.
pub(super) struct Seen {
    daemons: Vec<Daemon>,
    keys: HashMap<KeyId, explain::Key>,
    connected: HashSet<DaemonId>,
    is_shared: bool,
    watched_since: Timestamp,
}

impl Seen {
    pub(super) async fn load(app: &App, tx: &mut Tx, organization: OrganizationId) -> Result<Self, Error> {
        let filter = Filter { organization_id: Some(organization), with_revoked: true, ..Filter::default() };
        let daemons = daemons::list(tx, &filter).await?;
        let used: HashSet<_> = daemons.iter().map(|daemon| daemon.key_id).collect();
        let mut keys = HashMap::new();
        for id in used {
            let Some(key) = keys::find(tx, id).await? else { continue };
            let state = match (key.revoked_at, key.expires_at) {
                (Some(at), _) => explain::Key::Revoked(at),
                (None, Some(at)) if at <= app.now() => explain::Key::Expired(at),
                _ => explain::Key::Live,
            };
            keys.insert(id, state);
        }
        Ok(Self {
            daemons,
            keys,
            connected: app.scheduler.connected().daemons().into_iter().collect(),
            is_shared: app.store.is_postgres(),
            watched_since: app.scheduler.watched_since(),
        })
    }

    /// When something that could run the job was seen last, and why it waits.
    pub(super) fn of(&self, job: &Job, now: Timestamp) -> (Timestamp, String) {
        let daemons: Vec<_> = self.daemons.iter().map(|daemon| self.daemon(daemon)).collect();
        let about = explain::Job {
            organization: job.organization_id,
            provisioner: &job.provisioner,
            tags: &job.tags,
            created_at: job.created_at,
            initiator: job.initiator_id,
        };
        let able_seen_at = explain::able_seen_at(&about, &daemons, self.watched_since, now);
        let reasons = explain::explain(&about, &daemons, Queue::default(), now, STALE_AFTER);
        (able_seen_at, reasons.first().map(explain::Reason::message).unwrap_or_default())
    }

    fn daemon<'a>(&'a self, row: &'a Daemon) -> explain::Daemon<'a> {
        let session = match (self.connected.contains(&row.id), self.is_shared) {
            (true, _) => explain::Session::Connected,
            (false, false) => explain::Session::Gone,
            (false, true) => explain::Session::Unknown,
        };
        let number = |count: i64| u32::try_from(count).unwrap_or_default();
        explain::Daemon {
            id: row.id,
            name: &row.name,
            organization: row.organization_id,
            provisioners: &row.provisioners,
            tags: &row.tags,
            last_seen_at: row.last_seen_at,
            session,
            key: self.keys.get(&row.key_id).copied().unwrap_or(explain::Key::None),
            draining: row.draining,
            slots: number(row.slots),
            busy: number(row.busy),
        }
    }
}
