//! The OAuth client for external authentication providers: authorization codes and refresh tokens (RFC 6749), device codes
//! (RFC 8628), and validation of tokens. Responses are bounded in time and size, and no error contains them.

use coder_api::client::{Proxies, TlsError, tls_config};
use coder_domain::external_auth::Provider;
use coder_domain::secret::Secret;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::config::ExternalAuth;

/// Longest response that is read.
const RESPONSE_BYTES: usize = 64 << 10;
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Why the client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No certificate authorities.
    #[error("cannot load the certificate authorities for external authentication providers")]
    Tls(#[from] TlsError),
    /// The HTTP client refuses its settings.
    #[error("cannot set up the HTTP client for external authentication providers")]
    Client(#[source] reqwest::Error),
}

/// Why a provider gave no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It refused, with an error code.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// It is unreachable or its response is invalid. A retry may succeed.
    #[error("the provider is unavailable: {0}")]
    Unavailable(String),
}

/// The tokens from a provider.
pub struct ProviderTokens {
    /// The access token.
    pub access: Secret,
    /// The refresh token; empty without one.
    pub refresh: Secret,
    /// Lifetime in seconds, if the token expires.
    pub lifetime: Option<i64>,
}

/// A device code and the code that the user types in. No `Debug`: the device code is secret.
#[derive(Deserialize)]
pub struct DeviceCode {
    /// The device code, for polling.
    pub device_code: String,
    /// The code that the user types in.
    pub user_code: String,
    /// Where the user types it in.
    #[serde(alias = "verification_url")]
    pub verification_uri: String,
    /// Lifetime in seconds.
    #[serde(default)]
    pub expires_in: i64,
    /// Seconds between two polls.
    #[serde(default)]
    pub interval: i64,
}

/// The response of a token endpoint. Some providers send the lifetime as text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenResponse {
    access_token: String,
    refresh_token: String,
    expires_in: serde_json::Value,
    error: String,
}

/// The HTTP client for providers. Redirects are not followed: secrets go where the configuration says.
pub struct OAuthClient {
    http: reqwest::Client,
}

impl OAuthClient {
    pub(super) fn new(settings: &ExternalAuth) -> Result<Self, SetupError> {
        let proxies = Proxies::from_env();
        let proxy = reqwest::Proxy::custom(move |url| proxies.for_url(url).cloned());
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_config(&[])?)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent("coder")
            .timeout(settings.timeout)
            .proxy(proxy)
            .build();
        Ok(Self { http: http.map_err(|error| SetupError::Client(error.without_url()))? })
    }

    /// Exchanges an authorization code for tokens.
    pub async fn redeem(
        &self,
        provider: &Provider,
        code: &str,
        callback: &str,
        verifier: &str,
    ) -> Result<ProviderTokens, Error> {
        let mut form = vec![("grant_type", "authorization_code"), ("code", code), ("redirect_uri", callback)];
        if !verifier.is_empty() {
            form.push(("code_verifier", verifier));
        }
        self.grant(provider, form).await
    }

    /// Refreshes the token. The refresh token stays the same unless the provider sends another one.
    pub async fn refresh(&self, provider: &Provider, refresh: &Secret) -> Result<ProviderTokens, Error> {
        let form = vec![("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
        let grant = self.grant(provider, form).await?;
        let is_new = !grant.refresh.expose().is_empty();
        Ok(if is_new { grant } else { ProviderTokens { refresh: refresh.clone(), ..grant } })
    }

    /// Requests a device code.
    pub async fn device(&self, provider: &Provider, code_url: &Url) -> Result<DeviceCode, Error> {
        let scopes = provider.scopes.join(" ");
        let form = [("client_id", provider.client_id.as_str()), ("scope", scopes.as_str())];
        let (status, body) = self.post(code_url, &form).await?;
        if !status.is_success() {
            return Err(unexpected(status));
        }
        parse(&body).ok_or_else(not_understood)
    }

    /// Exchanges a device code for tokens, once the user has confirmed it.
    pub async fn redeem_device(&self, provider: &Provider, code: &str) -> Result<ProviderTokens, Error> {
        self.grant(provider, vec![("grant_type", DEVICE_GRANT), ("device_code", code)]).await
    }

    /// Whether a token is valid. When the provider gives no clear answer, it counts as valid.
    pub async fn is_valid(&self, provider: &Provider, token: &Secret) -> bool {
        let Some(url) = &provider.validate_url else { return true };
        let request = self.http.get(url.clone()).bearer_auth(token.expose());
        match request.header(header::ACCEPT, "application/json").send().await {
            Ok(answer) => match answer.status() {
                StatusCode::UNAUTHORIZED => false,
                StatusCode::FORBIDDEN => is_limited(answer.headers()),
                _ => true,
            },
            Err(error) => {
                tracing::warn!(provider = provider.id, error = %error.without_url(), "cannot validate an external authentication token");
                true
            }
        }
    }

    async fn grant(&self, provider: &Provider, mut form: Vec<(&str, &str)>) -> Result<ProviderTokens, Error> {
        form.push(("client_id", &provider.client_id));
        if !provider.client_secret.expose().is_empty() {
            form.push(("client_secret", provider.client_secret.expose()));
        }
        let (status, body) = self.post(&provider.token_url, &form).await?;
        let answer: Option<TokenResponse> = parse(&body);
        let refused = answer.as_ref().map(|answer| error_code(&answer.error)).filter(|word| !word.is_empty());
        match (answer, refused) {
            _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(unexpected(status))
            }
            (_, Some(word)) => Err(Error::Refused(word)),
            _ if status.is_client_error() => Err(Error::Refused(format!("status {}", status.as_u16()))),
            (Some(answer), None) if status.is_success() && !answer.access_token.is_empty() => {
                Ok(ProviderTokens {
                    lifetime: lifetime(&answer.expires_in),
                    access: Secret::new(answer.access_token),
                    refresh: Secret::new(answer.refresh_token),
                })
            }
            _ if status.is_success() => Err(not_understood()),
            _ => Err(unexpected(status)),
        }
    }

    async fn post(&self, url: &Url, form: &[(&str, &str)]) -> Result<(StatusCode, Vec<u8>), Error> {
        let away = |error: reqwest::Error| {
            let why = if error.is_timeout() { "it timed out" } else { "it is unreachable" };
            tracing::warn!(host = url.host_str(), error = %error.without_url(), "external authentication provider: {why}");
            Error::Unavailable(why.to_owned())
        };
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.http.post(url.clone()).header(header::ACCEPT, "application/json");
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let mut answer = request.send().await.map_err(away)?;
        let mut read = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(away)? {
            if read.len() + chunk.len() > RESPONSE_BYTES {
                return Err(Error::Unavailable(format!(
                    "its response is longer than {RESPONSE_BYTES} bytes"
                )));
            }
            read.extend_from_slice(&chunk);
        }
        Ok((answer.status(), read))
    }
}

/// Reads JSON, or form data, which some providers send.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Some(value);
    }
    let pairs = url::form_urlencoded::parse(body).into_owned();
    let object = pairs.map(|(name, value)| (name, serde_json::Value::from(value))).collect();
    serde_json::from_value(serde_json::Value::Object(object)).ok()
}

/// The lifetime in seconds. Zero and invalid values mean no limit.
fn lifetime(value: &serde_json::Value) -> Option<i64> {
    let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    number.filter(|seconds| *seconds > 0)
}

/// An error code without characters that such codes do not have: it is shown to people.
fn error_code(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')).take(64).collect()
}

fn unexpected(status: StatusCode) -> Error {
    Error::Unavailable(format!("it answered with status {}", status.as_u16()))
}

fn not_understood() -> Error {
    Error::Unavailable("its response contains no token".to_owned())
}

/// Whether a 403 is a rate limit.
fn is_limited(headers: &HeaderMap) -> bool {
    headers.contains_key(header::RETRY_AFTER)
        || headers.get("x-ratelimit-remaining").is_some_and(|left| left.as_bytes() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_as_json_and_as_forms() {
        let json: TokenResponse = parse(br#"{"access_token":"a","expires_in":60,"scope":"x"}"#).unwrap();
        assert_eq!((json.access_token.as_str(), lifetime(&json.expires_in)), ("a", Some(60)));
        let form: TokenResponse = parse(b"access_token=a%2Bb&refresh_token=r&expires_in=60").unwrap();
        assert_eq!((form.access_token.as_str(), form.refresh_token.as_str()), ("a+b", "r"));
        assert_eq!(lifetime(&form.expires_in), Some(60));
        assert_eq!(lifetime(&serde_json::json!(0)), None);
        assert_eq!(parse::<TokenResponse>(b"<html>").unwrap().access_token, "");
        assert!(parse::<DeviceCode>(b"<html>").is_none());
    }

    #[test]
    fn lifetimes_are_numbers_above_zero() {
        for (value, want) in [
            (serde_json::json!(1), Some(1)),
            (serde_json::json!("1"), Some(1)),
            (serde_json::json!(-1), None),
            (serde_json::json!("0"), None),
            (serde_json::json!("soon"), None),
            (serde_json::json!(null), None),
        ] {
            assert_eq!(lifetime(&value), want, "{value}");
        }
    }

    #[test]
    fn a_refusal_without_requests_left_is_a_limit() {
        let limited = |name: &'static str, value: &str| {
            is_limited(&HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())]))
        };
        assert!(limited("retry-after", "1") && limited("x-ratelimit-remaining", "0"));
        assert!(!limited("x-ratelimit-remaining", "1") && !limited("x-other", "0"));
        assert!(!is_limited(&HeaderMap::new()));
    }

    #[test]
    fn error_codes_are_words() {
        assert_eq!(error_code(&"x".repeat(65)), "x".repeat(64));
        assert_eq!(error_code("a_b-c.d e"), "a_b-c.de");
        assert_eq!(error_code("invalid_grant"), "invalid_grant");
        assert_eq!(error_code("<b>\n\u{202e}no"), "bno");
    }
}
