//! Our own executable and the script that installs it (documented-flow 5).

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio_util::io::ReaderStream;

use super::external_url;
use crate::context::App;
use crate::http::{Error, Result};

/// The one name we serve: what we are ourselves.
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
pub async fn install_script(State(app): State<App>, headers: HeaderMap) -> Result<Response> {
    if app.config.executable.is_none() {
        return Err(Error::new(StatusCode::NOT_FOUND, "This server does not hand out its binary."));
    }
    let url = external_url(&app, &headers);
    let script = SCRIPT.replace("@URL@", url.trim_end_matches('/'));
    Ok(([(header::CONTENT_TYPE, "text/x-shellscript; charset=utf-8")], script).into_response())
}

const SCRIPT: &str = r#"#!/bin/sh
# Downloads the coder binary of this server. PREFIX chooses where it goes; without it, /usr/local when that can be
# written to and ~/.local otherwise.
set -eu

case "$(uname -s)" in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) echo "there is no binary for $(uname -s)" >&2; exit 1 ;;
esac
case "$(uname -m)" in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) echo "there is no binary for $(uname -m)" >&2; exit 1 ;;
esac

if [ -n "${PREFIX:-}" ]; then
	bin="$PREFIX/bin"
elif [ -w /usr/local/bin ]; then
	bin=/usr/local/bin
else
	bin="$HOME/.local/bin"
fi
mkdir -p "$bin"

new="$bin/.coder.$$"
trap 'rm -f "$new"' EXIT
if command -v curl >/dev/null 2>&1; then
	curl -fsSL -o "$new" "@URL@/bin/coder-$os-$arch"
else
	wget -q -O "$new" "@URL@/bin/coder-$os-$arch"
fi
chmod 0755 "$new"
mv -f "$new" "$bin/coder"

echo "coder is installed as $bin/coder" >&2
case ":$PATH:" in
*":$bin:"*) ;;
*) echo "add $bin to your PATH to use it" >&2 ;;
esac
echo "next: $bin/coder login @URL@" >&2
"#;
