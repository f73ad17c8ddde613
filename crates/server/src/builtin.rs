//! Built-in daemons. They use the same protocol over memory: [`Handle::connect_builtin`] replaces the dialing of an external
//! daemon.

use std::time::Duration;

use bytes::Bytes;
use coder_domain::ids::{JobId, KeyId, UserId};
use coder_domain::job::Type;
use coder_domain::job::lifecycle::{Cause, Ending, Guard};
use coder_domain::key::Sha256Digest;
use coder_domain::protocol;
use coder_domain::tags::TagSet;
use coder_store::daemons::{self, NewDaemon};
use coder_store::jobs;
use coder_wire::bytes::ByteStream;
use coder_wire::extension::Extensions;

use crate::provisioning::rescue::end_job::end_job;
use crate::provisioning::session::Session;
use crate::provisioning::session::attach::{fresh_session, hash};
use crate::provisioning::session::authenticate::Authenticated;
use crate::server::Handle;

/// Bytes that are buffered in each direction.
const BUFFER_BYTES: usize = 64 << 10;

/// How long a daemon has to send the state that the previous process saved, before the job ends without it.
const SALVAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// A built-in daemon, with the session that owns its jobs.
#[derive(Clone)]
pub struct Builtin {
    index: u32,
    session: Bytes,
}

impl Builtin {
    /// The hash of its session. It is not secret. The next process recognizes its jobs by it.
    #[must_use]
    pub fn session(&self) -> Sha256Digest {
        hash(&self.session)
    }
}

impl std::fmt::Debug for Builtin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builtin").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Handle {
    /// Built-in daemon number `index`.
    #[must_use]
    pub fn builtin(&self, index: u32) -> Builtin {
        Builtin { index, session: fresh_session(self.app.now()) }
    }

    /// Joins as this daemon: default organization, no tags, the type `terraform`, and all extensions. The stream is what
    /// an external daemon has after the WebSocket handshake.
    ///
    /// # Errors
    /// When the daemon's row cannot be written.
    pub async fn connect_builtin(
        &self,
        builtin: &Builtin,
    ) -> Result<(impl ByteStream + use<>, Extensions), coder_store::Error> {
        let app = &self.app;
        let join = NewDaemon {
            organization_id: app.default_organization,
            name: name(&host(), builtin.index),
            key_id: KeyId::BUILT_IN,
            provisioners: vec!["terraform".to_owned()],
            tags: TagSet::canonical(UserId::NIL, []),
            version: app.build.compatible.clone(),
            api_version: protocol::CURRENT.to_string(),
        };
        let daemon = daemons::upsert(&mut app.store.single().await?, &join, app.now()).await?;
        let extensions = Extensions::ALL.intersection(app.config.provisioning.extensions);
        let authenticated = Authenticated { extensions, ..Authenticated::official(join) };
        let session = Session::authenticated(app.clone(), daemon, &authenticated, self.address());
        let session = session.with_session(builtin.session.clone());
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        app.lifecycle.spawn("built-in daemon session", session.run(near));
        Ok((far, extensions))
    }

    /// Ends the jobs of built-in daemons whose process has ended, by the hashes of their sessions. Call it when nothing runs
    /// for them any more. A workspace build waits for a moment: the daemon that uses the directory now may send the state
    /// that was saved there, which also ends the job.
    ///
    /// # Errors
    /// When the database fails. The jobs then end with the grace period of their sessions.
    pub async fn end_builtin_jobs(&self, former: &[Sha256Digest]) -> Result<(), coder_store::Error> {
        let mut open = Vec::new();
        let mut tx = self.app.store.reader().await?;
        for session in former {
            open.extend(jobs::list_of_session(&mut tx, *session).await?);
        }
        let (builds, others): (Vec<_>, Vec<_>) = jobs::find_many(&mut tx, &open)
            .await?
            .into_iter()
            .partition(|job| job.kind == Type::WorkspaceBuild);
        drop(tx);
        for job in others {
            self.end_builtin_job(job.id).await?;
        }
        if !builds.is_empty() {
            tokio::select! {
                () = self.app.lifecycle.soft().cancelled() => {}
                () = tokio::time::sleep(SALVAGE_TIMEOUT) => {}
            }
        }
        for job in builds {
            self.end_builtin_job(job.id).await?;
        }
        Ok(())
    }

    async fn end_builtin_job(&self, job: JobId) -> Result<(), coder_store::Error> {
        let ending = Ending { guard: Guard::Open, cause: Cause::DaemonProcessGone };
        end_job(&self.app, job, &ending).await.map(drop)
    }

    /// The URL at which workspaces reach this server: the configured one, or the listener's.
    fn address(&self) -> String {
        if let Some(url) = &self.app.config.access_url {
            return url.as_str().trim_end_matches('/').to_owned();
        }
        match (self.http, self.https) {
            (Some(http), _) => format!("http://{http}"),
            (None, Some(https)) => format!("https://{https}"),
            (None, None) => String::new(),
        }
    }
}

/// `<host>-<index>` within the 64 characters of the column.
fn name(host: &str, index: u32) -> String {
    let suffix = format!("-{index}");
    let host: String = host.chars().take(64 - suffix.len()).collect();
    format!("{host}{suffix}")
}

fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default().to_lowercase();
    if first.is_empty() { "localhost".to_owned() } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_their_column() {
        assert_eq!(name("box", 2), "box-2");
        assert_eq!(name(&"x".repeat(100), 10).len(), 64);
        assert!(!host().contains('.'));
    }
}
