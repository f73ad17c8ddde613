//! The server's own executable, and the script that installs it (documented-flow 5).

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio_util::io::ReaderStream;

use crate::context::App;
use crate::http::{AccessUrl, Error, Result};

/// The name of the only executable that is served.
fn own_name() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("coder-{}-{architecture}", std::env::consts::OS)
}

/// `GET /bin/{name}`
pub async fn binary(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let path = app.config.executable.as_ref().filter(|_| name == own_name()).ok_or_else(|| {
        Error::new(StatusCode::NOT_FOUND, "This server has no binary of that name.")
            .detail(format!("It serves only its own: {}", own_name()))
    })?;
    let file =
        tokio::fs::File::open(path).await.map_err(|e| Error::internal("The binary cannot be read.", e))?;
    let metadata = file.metadata().await.map_err(|e| Error::internal("The binary cannot be read.", e))?;
    let etag = format!("\"{}-{}\"", app.build.product, metadata.len());
    let etag =
        HeaderValue::from_str(&etag).map_err(|e| Error::internal("The binary cannot be described.", e))?;
    if headers.get(header::IF_NONE_MATCH) == Some(&etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(metadata.len())),
        (header::ETAG, etag),
    ];
    Ok((headers, Body::from_stream(ReaderStream::with_capacity(file, 64 << 10))).into_response())
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
