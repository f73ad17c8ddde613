//! Daemons inside the server. They speak the same protocol over memory; whoever runs them calls
//! [`Handle::connect_builtin`] where an external one would dial.

use coder_domain::ids::{KeyId, UserId};
use coder_domain::protocol;
use coder_domain::tags::TagSet;
use coder_store::daemons::{self, Join};
use coder_wire::bytes::ByteStream;

use crate::provisioning::serve::Session;
use crate::server::Handle;

/// Bytes under way in each direction.
const BUFFER_BYTES: usize = 64 << 10;

impl Handle {
    /// Joins as built-in daemon number `index`: default organization, no tags, the type `terraform`. The stream is what
    /// an external daemon has after the WebSocket handshake.
    ///
    /// # Errors
    /// When the daemon's row cannot be written.
    pub async fn connect_builtin(&self, index: u32) -> Result<impl ByteStream + use<>, coder_store::Error> {
        let app = &self.app;
        let join = Join {
            organization_id: app.default_organization,
            name: name(&host(), index),
            key_id: KeyId::BUILT_IN,
            provisioners: vec!["terraform".to_owned()],
            tags: TagSet::canonical(UserId::NIL, []),
            version: app.build.compatible.clone(),
            api_version: protocol::CURRENT.to_string(),
        };
        let daemon = daemons::upsert(&mut app.store.single().await?, &join, app.now()).await?;
        let session = Session::new(app.clone(), daemon, &join, self.address());
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        app.lifecycle.spawn("built-in daemon session", session.run(near));
        Ok(far)
    }

    /// Under which URL workspaces reach us: the configured one, or the listener's.
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
