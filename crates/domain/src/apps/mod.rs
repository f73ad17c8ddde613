//! Rules about workspace apps: their host names and paths, and who may open them (agent 6).

mod path;
mod port;
mod sharing;
mod subdomain;
mod wildcard;

pub use self::path::{PathAddress, PathTarget};
pub use self::port::{FIRST_PORT, Port, is_worth_showing};
pub use self::sharing::{AccessMethod, PathAppRules, SharingLevel, UnknownLevel, effective_level, may_open};
pub use self::subdomain::{InvalidSubdomain, SubdomainName};
pub use self::wildcard::{InvalidWildcard, WildcardHost};

/// Whether a text is a name as users, workspaces, agents and apps have: letters and digits, joined by single hyphens.
fn is_name(text: &str) -> bool {
    text.split('-').all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
