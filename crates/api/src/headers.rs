//! Names of headers and cookies that both sides use (http-api 1.3, 1.4; wire-protocol 1.3).

/// The session token, empty when there is none.
pub const SESSION_TOKEN: &str = "coder-session-token";
/// The cookie, and query parameter, that carries a session token.
pub const SESSION_COOKIE: &str = "coder_session_token";
/// A provisioner key's secret.
pub const PROVISIONER_KEY: &str = "coder-provisioner-daemon-key";
/// The deployment's pre-shared key.
pub const PROVISIONER_PSK: &str = "coder-provisioner-daemon-psk";
/// The sender's build version, in both directions.
pub const BUILD_VERSION: &str = "x-coder-build-version";
/// A server's id of one request.
pub const REQUEST_ID: &str = "x-coder-request-id";
/// One warning for the person who sent a request; repeated, one for each. Official clients print them (http-api 1.3).
pub const FEATURE_WARNING: &str = "x-coder-entitlements-warning";
/// Asks to be exempt from rate limits (owners only).
pub const BYPASS_RATE_LIMIT: &str = "x-coder-bypass-ratelimit";
/// Extensions offered by a daemon and granted by a server (docs/extensions.md).
pub const PROVISIONER_EXTENSIONS: &str = "coder-provisioner-extensions";
