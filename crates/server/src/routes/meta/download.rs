//! The programs that are downloaded, and the script that installs the server's own (documented-flow 5, agent 1.3).

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio_util::io::ReaderStream;

use super::binaries::{self, Version};
use super::compressed;
use crate::context::App;
use crate::http::{AccessUrl, Error, Result};

/// The size before any encoding of the body.
const ORIGINAL_LENGTH: HeaderName = HeaderName::from_static("x-original-content-length");

/// `GET /bin/`
pub async fn list_binaries(State(app): State<App>) -> String {
    let names = app.config.executable.as_ref().map(|own| binaries::list(own)).unwrap_or_default();
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// `GET /bin/{name}`
pub async fn binary(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let found = app.config.executable.as_ref().and_then(|own| binaries::find(own, &name));
    let path = found.ok_or_else(|| {
        let served = app.config.executable.as_ref().map(|own| binaries::list(own)).unwrap_or_default();
        Error::new(StatusCode::NOT_FOUND, "This server has no binary of that name.").detail(format!(
            "It serves {}. Builds for other platforms are served when they lie beside the server's executable.",
            if served.is_empty() { "none".to_owned() } else { served.join(", ") }
        ))
    })?;
    let unreadable = |error| Error::internal("The binary cannot be read.", error);
    let file = tokio::fs::File::open(&path).await.map_err(unreadable)?;
    let metadata = file.metadata().await.map_err(unreadable)?;
    let version = Version { length: metadata.len(), modified: metadata.modified().ok() };
    let hashing = path.clone();
    let hashed = tokio::task::spawn_blocking(move || binaries::hash(&hashing, version)).await;
    let hash = hashed.unwrap_or_else(|panic| Err(std::io::Error::other(panic))).map_err(unreadable)?;
    let etag = HeaderValue::from_str(&format!("\"{hash}\""))
        .map_err(|e| Error::internal("The binary cannot be described.", e))?;
    if headers.get(header::IF_NONE_MATCH) == Some(&etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let copy = if compressed::accepted(&headers) { compressed::copy(path, version).await } else { None };
    let mut answer = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(copy.as_ref().map_or(version.length, |copy| copy.length))),
        (ORIGINAL_LENGTH, HeaderValue::from(version.length)),
        // agent 1.3: of the file, whatever the encoding. Editors compare it with the hash of the file they have.
        (header::ETAG, etag),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ]);
    let Some(copy) = copy else {
        let body = Body::from_stream(ReaderStream::with_capacity(file, 64 << 10));
        return Ok((answer, body).into_response());
    };
    answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Ok((answer, copy.body()).into_response())
}

/// `GET /install.sh`
pub async fn install_script(State(app): State<App>, AccessUrl(url): AccessUrl) -> Result<Response> {
    if app.config.executable.is_none() {
        return Err(Error::new(StatusCode::NOT_FOUND, "This server does not hand out its binary."));
    }
    let mut script = SCRIPT.replace("@URL@", &quoted(&url));
    for (place, version) in [("@PRODUCT@", &app.build.product), ("@COMPATIBLE@", &app.build.compatible)] {
        script = script.replace(place, &quoted(version));
    }
    Ok(([(header::CONTENT_TYPE, "text/x-shellscript; charset=utf-8")], script).into_response())
}

const SCRIPT: &str = include_str!("install.sh");

/// Quotes a word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("https://a/$(b)"), "'https://a/$(b)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
