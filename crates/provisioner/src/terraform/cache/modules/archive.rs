//! Identifies the content of an archive without downloading it.

use reqwest::Client;
use reqwest::header::{CONTENT_LENGTH, ETAG, HeaderName, LAST_MODIFIED};

use super::REQUEST_TIMEOUT;

/// A text that changes with the archive at this address; `None` when the server provides none.
pub(crate) async fn fingerprint(http: &Client, url: &str) -> Option<String> {
    let asked = tokio::time::timeout(REQUEST_TIMEOUT, http.head(url).send()).await.ok()?;
    let answer = asked.ok().filter(|answer| answer.status().is_success())?;
    let header = |name: HeaderName| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let length = header(CONTENT_LENGTH).unwrap_or_default();
    // A weak entity tag does not identify the bytes.
    let tag = header(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| header(LAST_MODIFIED))?;
    Some(format!("{tag} {length}"))
}
