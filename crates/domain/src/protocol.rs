//! Which versions of the daemon protocol we accept (wire-protocol 1.6).

use std::fmt;
use std::str::FromStr;

/// A `major.minor` pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// Breaking changes.
    pub major: u32,
    /// Additions.
    pub minor: u32,
}

/// The daemon protocol this build speaks.
pub const CURRENT: ApiVersion = ApiVersion { major: 1, minor: 14 };
/// The version of a daemon that names none.
pub const DEFAULT_VERSION: ApiVersion = ApiVersion { major: 1, minor: 0 };

/// Why a daemon's version was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not two integers joined by one dot.
    #[error("invalid version string: {0}")]
    Malformed(String),
    /// The peer's major is above ours.
    #[error("server is at version {server}, behind requested major version {requested}")]
    MajorAhead {
        /// Our version.
        server: ApiVersion,
        /// The version asked for.
        requested: ApiVersion,
    },
    /// The peer's minor is above ours.
    #[error("server is at version {server}, behind requested minor version {requested}")]
    MinorAhead {
        /// Our version.
        server: ApiVersion,
        /// The version asked for.
        requested: ApiVersion,
    },
    /// The peer's major is no longer served.
    #[error("version {requested} is no longer supported; server is at version {server}")]
    MajorBehind {
        /// Our version.
        server: ApiVersion,
        /// The version asked for.
        requested: ApiVersion,
    },
}

impl ApiVersion {
    /// Checks a requested version against this (the server's) one. An empty text counts as [`DEFAULT_VERSION`].
    pub fn accept(self, requested: &str) -> Result<Self, Error> {
        let requested = if requested.is_empty() { DEFAULT_VERSION } else { requested.parse()? };
        if requested.major > self.major {
            return Err(Error::MajorAhead { server: self, requested });
        }
        if requested.major < self.major {
            return Err(Error::MajorBehind { server: self, requested });
        }
        if requested.minor > self.minor {
            return Err(Error::MinorAhead { server: self, requested });
        }
        Ok(requested)
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ApiVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::Malformed(text.chars().take(32).collect());
        let (major, minor) = text.split_once('.').ok_or_else(malformed)?;
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(major) || !digits(minor) {
            return Err(malformed());
        }
        let number = |part: &str| part.parse().map_err(|_| malformed());
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_table() {
        let ok = |text: &str| CURRENT.accept(text).is_ok();
        assert!(ok("") && ok("1.0") && ok("1.9") && ok("1.14"));
        for bad in ["1.15", "2.0", "0.9", "1", "1.x", "1.1.1", "+1.1", " 1.1", "1.", ".1", "99999999999.1"] {
            assert!(!ok(bad), "{bad}");
        }
    }

    #[test]
    fn the_refusal_names_the_servers_version() {
        let error = CURRENT.accept("1.99").expect_err("ahead");
        assert_eq!(error.to_string(), "server is at version 1.14, behind requested minor version 1.99");
    }
}
