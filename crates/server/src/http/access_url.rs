//! The URL at which people and daemons reach this server.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{Extensions, HeaderMap, header};

use super::origin::Encrypted;
use crate::config::Config;
use crate::context::App;

/// The configured access URL, or the one that the request was sent to. It has no slash at its end, so paths can be appended.
#[derive(Clone, Debug)]
pub struct AccessUrl(pub String);

impl AccessUrl {
    /// The URL for a request with these headers.
    #[must_use]
    pub fn of(config: &Config, headers: &HeaderMap, extensions: &Extensions) -> Self {
        if let Some(url) = &config.access_url {
            return Self(url.as_str().trim_end_matches('/').to_owned());
        }
        let encrypted = extensions.get::<Encrypted>().is_some() || config.listens_for_https_only();
        let scheme = if encrypted { "https" } else { "http" };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        // The host is written into pages and a script, so only a plain authority is accepted.
        let plain = |host: &&str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b));
        Self(format!("{scheme}://{}", host.filter(plain).unwrap_or("localhost")))
    }
}

impl FromRequestParts<App> for AccessUrl {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        Ok(Self::of(&app.config, &parts.headers, &parts.extensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_no_slash_at_their_end() {
        let of = |access_url: Option<&str>, host: &'static str, encrypted: bool| {
            let config =
                Config { access_url: access_url.map(|url| url.parse().unwrap()), ..Config::default() };
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            let mut extensions = Extensions::new();
            if encrypted {
                extensions.insert(Encrypted);
            }
            AccessUrl::of(&config, &headers, &extensions).0
        };
        assert_eq!(of(Some("https://coder.example.com"), "x", false), "https://coder.example.com");
        assert_eq!(of(Some("https://example.com/coder/"), "x", false), "https://example.com/coder");
        assert_eq!(of(None, "127.0.0.1:3000", false), "http://127.0.0.1:3000");
        assert_eq!(of(None, "a.test", true), "https://a.test");
        assert_eq!(of(None, "a.test/<b>", true), "https://localhost");
    }
}
