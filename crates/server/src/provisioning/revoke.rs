//! What happens at once when a key is deleted, expires or changes: its sessions end and its jobs fail.

use std::time::Duration;

use coder_domain::ids::KeyId;
use coder_domain::job::life::{KEY_DELETED, KEY_EXPIRED};
use coder_store::jobs::{self, While};
use coder_store::{Error, keys};
use futures_util::future::join_all;

use super::give_up::give_up;
use crate::context::App;

/// Longest time that a daemon gets to hear why its connection ends.
pub(super) const FAREWELL: Duration = Duration::from_millis(300);

/// Why a key is valid no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Somebody deleted it.
    Deleted,
    /// Its time is over.
    Expired,
}

impl Reason {
    /// The error of the jobs that end with it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Deleted => KEY_DELETED,
            Self::Expired => KEY_EXPIRED,
        }
    }
}

/// Call it after the commit that deleted the key, or when it has expired. Its running jobs fail with the reason, its
/// daemons hear so and are disconnected. Returns how many sessions ended here; other replicas end theirs when a daemon's
/// next message finds its job ended, and at the next join.
///
/// # Errors
/// When the database fails; sessions end all the same, and their jobs when their grace does.
pub async fn key(app: &App, key: KeyId, reason: Reason) -> Result<usize, Error> {
    let sessions = app.scheduler.connected().of_key(key);
    // Whoever holds nothing can end at once; nobody gets another job from here on.
    for (_, hand) in &sessions {
        hand.retire();
    }
    let ended = end_jobs(app, key, reason).await;
    let farewells = join_all(sessions.iter().map(|(_, hand)| hand.all_told()));
    // A daemon that does not listen is not waited for.
    let _ = tokio::time::timeout(FAREWELL, farewells).await;
    for (close, _) in &sessions {
        close.cancel();
    }
    // A claim that was under way when the first look was taken has its result by now, or fails for its connection.
    ended.and(end_jobs(app, key, reason).await)?;
    tracing::info!(%key, ?reason, sessions = sessions.len(), "the sessions of a provisioner key were ended");
    Ok(sessions.len())
}

async fn end_jobs(app: &App, key: KeyId, reason: Reason) -> Result<(), Error> {
    let jobs = jobs::list_of_key(&mut app.store.reader().await?, key).await?;
    for job in jobs {
        let said = format!("Coder: {}; the job has been ended.", reason.text());
        give_up(app, job, While::Open, reason.text(), &said).await?;
    }
    Ok(())
}

/// Call it after the commit that changed when a key ends, its secret or its networks: its sessions look at its terms
/// again.
pub fn changed(app: &App, key: KeyId) {
    app.scheduler.connected().recheck_key(key);
}

/// At the start: keys may have expired while no server ran.
///
/// # Errors
/// When the database fails.
pub async fn expired_meanwhile(app: &App) -> Result<(), Error> {
    let expired = keys::list_expired_in_use(&mut app.store.reader().await?, app.now()).await?;
    for id in expired {
        key(app, id, Reason::Expired).await?;
    }
    Ok(())
}
