//! Connections that are opened before it is known what for, which saves the round trips of opening them later.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use url::{Origin, Url};

use super::{BoxedByteStream, Error};

/// Servers close connections that say nothing.
const MOST_AGE: Duration = Duration::from_secs(5);

/// Connections without a use yet.
#[derive(Default)]
pub(super) struct Spares(Mutex<Vec<Spare>>);

struct Spare {
    origin: Origin,
    since: Instant,
    opening: JoinHandle<Result<BoxedByteStream, Error>>,
}

impl Spares {
    /// Keeps a connection to the host of `url` that is being opened.
    pub(super) fn put(&self, url: &Url, opening: JoinHandle<Result<BoxedByteStream, Error>>) {
        let spare = Spare { origin: url.origin(), since: Instant::now(), opening };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(spare);
    }

    /// One to the host of `url` that is not too old.
    pub(super) fn take(&self, url: &Url) -> Option<JoinHandle<Result<BoxedByteStream, Error>>> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.retain(|spare| spare.since.elapsed() < MOST_AGE);
        let found = spares.iter().position(|spare| spare.origin == url.origin())?;
        Some(spares.swap_remove(found).opening)
    }
}

impl fmt::Debug for Spares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spares").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn spares_are_for_one_host_and_for_a_short_time() {
        let url = |text| Url::parse(text).unwrap();
        let spares = Spares::default();
        let put = || {
            let opening = tokio::spawn(async { Ok(Box::new(tokio::io::empty()) as BoxedByteStream) });
            spares.put(&url("https://a/"), opening);
        };
        put();
        for other in ["http://a/", "https://b/", "https://a:444/"] {
            assert!(spares.take(&url(other)).is_none(), "{other}");
        }
        assert!(spares.take(&url("https://a/x?y")).is_some());
        assert!(spares.take(&url("https://a/")).is_none(), "it has gone");
        put();
        tokio::time::advance(MOST_AGE).await;
        assert!(spares.take(&url("https://a/")).is_none(), "the server may have closed it");
    }
}
