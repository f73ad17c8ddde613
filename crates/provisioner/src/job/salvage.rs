//! States that a killed process of this daemon left on disk, which may be newer than the server's, and the
//! tokens to hand them over (docs/extensions.md, Salvage).

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use coder_domain::backoff::Backoff;
use coder_wire::drpc;
use coder_wire::extension::{Extension, Journal, MAX_STATE_SIZE};
use serde::{Deserialize, Serialize};

use crate::connection::ConnectionHandle;
use crate::files::job_file::JobFile;
use crate::terraform::journal::StateVersion;

/// Upper bound of a record file.
const RECORD_BYTES: u64 = 4096;

/// Delays between attempts to hand over a state when connections break.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Job id and token, stored in the job's directory. The token is secret, so only the daemon's user may read the
/// file.
#[derive(Serialize, Deserialize)]
pub(crate) struct JobRecord {
    job_id: String,
    token: String,
}

impl JobRecord {
    pub(crate) fn new(job_id: &str, token: &[u8]) -> Self {
        Self { job_id: job_id.to_owned(), token: hex::encode(token) }
    }

    /// Writes the record atomically.
    pub(crate) fn write(&self, file: &JobFile) -> std::io::Result<()> {
        file.write(&serde_json::to_vec(self)?)
    }

    fn read(file: &JobFile) -> Option<Self> {
        serde_json::from_slice(&file.read(RECORD_BYTES).ok()?).ok()
    }
}

/// A job's directory that outlived its process and contains a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SalvagedState {
    pub(crate) dir: PathBuf,
    pub(crate) record: JobFile,
    pub(crate) state: JobFile,
}

impl SalvagedState {
    /// Removes the directory; the server has the state.
    pub(crate) async fn remove(self) {
        let dir = self.dir.clone();
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(dir)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(dir = %self.dir.display(), %error, "an old job's directory could not be removed");
        }
    }

    /// The state and the token; `None` when either is missing or invalid.
    fn read(&self) -> Option<Journal> {
        let record = JobRecord::read(&self.record)?;
        let state = Bytes::from(self.state.read(MAX_STATE_SIZE as u64).ok()?);
        let stamp = StateVersion::of(&state)?;
        let token = hex::decode(record.token).ok()?.into();
        Some(Journal { job_id: record.job_id, token, serial: stamp.serial, lineage: stamp.lineage, state })
    }
}

/// Hands over the states one by one, as soon as a server accepts them.
pub(crate) async fn salvage_all(link: &ConnectionHandle, salvaged: Vec<SalvagedState>) {
    for one in salvaged {
        let reading = one.clone();
        let Ok(Some(journal)) = tokio::task::spawn_blocking(move || reading.read()).await else {
            tracing::warn!(target: "provisioner", state = %one.state.path().display(), "the state of a killed daemon's job cannot be handed over; it is kept for a week");
            continue;
        };
        salvage(link, &one, &journal).await;
    }
}

async fn salvage(link: &ConnectionHandle, salvaged: &SalvagedState, journal: &Journal) {
    let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    loop {
        let Some(connection) = link.connection().await else { return };
        if !connection.granted().has(Extension::Journal) {
            tracing::warn!(target: "provisioner", state = %salvaged.state.path().display(), "this server does not accept the state of a killed daemon's job; it is kept for a week");
            return;
        }
        match connection.extensions().salvage(journal).await {
            Ok(receipt) => {
                tracing::info!(target: "provisioner", job_id = %journal.job_id, serial = journal.serial, kept = receipt.kept, "the server has the state of a killed daemon's job");
                salvaged.clone().remove().await;
                return;
            }
            Err(drpc::Error::Refused(status)) => {
                tracing::warn!(target: "provisioner", job_id = %journal.job_id, state = %salvaged.state.path().display(), error = %status, "the server rejects the state of a killed daemon's job; it is kept for a week");
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "retrying to hand over a state");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_record_is_private_and_a_broken_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let salvaged = SalvagedState {
            dir: dir.path().to_owned(),
            record: JobFile::new(dir.path(), "job.json"),
            state: JobFile::new(dir.path(), "terraform.tfstate"),
        };
        assert!(salvaged.read().is_none());
        JobRecord::new("j", b"old").write(&salvaged.record).unwrap();
        JobRecord::new("j", b"token").write(&salvaged.record).unwrap();
        assert_eq!(salvaged.record.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(salvaged.read().is_none(), "no state");
        std::fs::write(salvaged.state.path(), r#"{"version":4,"serial":3,"lineage":"l"}"#).unwrap();
        let journal = salvaged.read().unwrap();
        assert_eq!((journal.serial, journal.lineage.as_str(), &journal.token[..]), (3, "l", &b"token"[..]));
        std::fs::write(salvaged.state.path(), r#"{"version":4,"ser"#).unwrap();
        assert!(salvaged.read().is_none(), "a torn state");
    }
}
