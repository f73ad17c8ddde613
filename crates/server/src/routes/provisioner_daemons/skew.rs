//! Compares a daemon's version with the server's.

use std::cmp::Ordering;

use coder_api::daemons::VersionSkew;
use coder_domain::protocol::{self, ApiVersion};

/// Major and minor of a build version as `v2.30.1+0123abc` or `2.29.0-devel`.
#[must_use]
pub fn major_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || {
        let part = parts.next()?;
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| plain)
    };
    let pair = (number()?, number()?);
    // A version has three parts.
    parts.next().is_some_and(|patch| patch.starts_with(|c: char| c.is_ascii_digit())).then_some(pair)
}

/// Compares builds. Patch versions are compatible.
#[must_use]
pub fn build(daemon: &str, server: &str) -> VersionSkew {
    match (major_minor(daemon), major_minor(server)) {
        (Some(daemon), Some(server)) => skew(daemon.cmp(&server)),
        _ => VersionSkew::Unknown,
    }
}

/// Compares protocol versions. A daemon with a newer one cannot join.
#[must_use]
pub fn api(daemon: &str) -> VersionSkew {
    daemon.parse::<ApiVersion>().map_or(VersionSkew::Unknown, |version| skew(version.cmp(&protocol::CURRENT)))
}

const fn skew(order: Ordering) -> VersionSkew {
    match order {
        Ordering::Less => VersionSkew::Behind,
        Ordering::Equal => VersionSkew::Same,
        Ordering::Greater => VersionSkew::Ahead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_are_compared_by_major_and_minor() {
        for (daemon, want) in [
            ("v2.30.5", VersionSkew::Same),
            ("v2.30.0-devel+0000000", VersionSkew::Same),
            ("v2.29.9", VersionSkew::Behind),
            ("v2.9.0", VersionSkew::Behind),
            ("v3.0.0", VersionSkew::Ahead),
            ("", VersionSkew::Unknown),
            ("v2.30", VersionSkew::Unknown),
            ("v2.x.1", VersionSkew::Unknown),
            ("v2.+1.1", VersionSkew::Unknown),
        ] {
            assert_eq!(build(daemon, "v2.30.0+0123abc"), want, "{daemon:?}");
        }
        assert_eq!(
            (api("1.9"), api("1.14"), api("x")),
            (VersionSkew::Behind, VersionSkew::Same, VersionSkew::Unknown)
        );
    }
}
