//! The files that pages load: the terminal's scripts and styles, embedded in the program (`crates/server/assets`).

use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::http::params::Names;
use crate::http::{Error, Result};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Name, type and content.
const ASSETS: [(&str, &str, &[u8]); 6] = [
    ("terminal.js", SCRIPT, include_bytes!("../../assets/terminal.js")),
    ("xterm.js", SCRIPT, include_bytes!("../../assets/xterm/xterm.js")),
    ("xterm-addon-fit.js", SCRIPT, include_bytes!("../../assets/xterm/addon-fit.js")),
    ("xterm.css", STYLE, include_bytes!("../../assets/xterm/xterm.css")),
    ("xterm-license.txt", PLAIN_TEXT, include_bytes!("../../assets/xterm/LICENSE")),
    ("xterm-addon-fit-license.txt", PLAIN_TEXT, include_bytes!("../../assets/xterm/LICENSE-addon-fit")),
];

/// `GET /assets/{name}`: the browser keeps a file and asks whether it has changed.
pub async fn asset(names: Names, headers: HeaderMap) -> Result<Response> {
    let [name] = names.take()?;
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, content) = found.ok_or_else(Error::not_found)?;
    let tag = format!("\"{}\"", hex::encode(&Sha256::digest(content)[..16]));
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { (*content).into_response() };
    let set = response.headers_mut();
    set.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set.insert(header::ETAG, HeaderValue::from_str(&tag).expect("it is hexadecimal"));
    Ok(response)
}
