//! What the server says unasked: drain, cancel, revocation (docs/extensions.md, Notices).

use coder_wire::drpc::Status;
use coder_wire::extension::messages::notification::Notification as Kind;
use coder_wire::extension::messages::{Drain, JobCancel, JobRevoked, Notification};
use coder_wire::extension::{Extension, Extensions, NotificationSender};
use tokio::time::sleep;

use super::Session;
use super::held_jobs::Word;

/// For people.
const CANCELED: &str = "somebody canceled the job";
const FORCED: &str = "the job was canceled, and its time to stop is over";

/// Says what there is to say until the daemon listens no longer. Nothing is done while there is nothing to say.
pub(crate) async fn tell(session: &Session, notifications: &mut NotificationSender) -> Result<(), Status> {
    let force_after = session.app.config.provisioning.force_cancel_after;
    loop {
        let (words, next) = session.hand.words(session.app.now(), force_after);
        for notification in words.into_iter().filter_map(|word| notification(word, session.granted)) {
            if notifications.send(&notification).await.is_err() {
                // The connection is gone, and with it whoever would hear it.
                return Ok(());
            }
        }
        session.hand.told();
        let timer = async {
            match next {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = notifications.closed() => return Ok(()),
            () = session.hand.changed() => {}
            () = timer => {}
        }
    }
}

fn notification(word: Word, granted: Extensions) -> Option<Notification> {
    let (extension, kind) = match word {
        Word::Drain(reason) => (Extension::Drain, Kind::Drain(Drain { reason })),
        Word::Cancel(job, force) => {
            let reason = if force { FORCED } else { CANCELED }.to_owned();
            (Extension::Cancel, Kind::JobCancel(JobCancel { job_id: job.to_string(), reason, force }))
        }
        Word::Revoked(job, reason) => {
            (Extension::Cancel, Kind::JobRevoked(JobRevoked { job_id: job.to_string(), reason }))
        }
    };
    granted.has(extension).then_some(Notification { notification: Some(kind) })
}
