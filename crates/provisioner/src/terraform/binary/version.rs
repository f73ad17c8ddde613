//! Versions of Terraform and OpenTofu, and their order.

use std::cmp::Ordering;
use std::fmt;

/// A version. Build metadata after a `+` does not affect the order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    pub(crate) numbers: (u64, u64, u64),
    /// The pre-release after a `-`; empty for a release.
    pub(crate) pre: String,
    text: String,
}

impl Version {
    /// Parses three numbers and an optional suffix.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let without_build = text.split('+').next()?;
        let (core, pre) = match without_build.split_once('-') {
            Some((core, pre)) => (core, pre),
            None => (without_build, ""),
        };
        let mut parts = core.split('.').map(number);
        let numbers = (parts.next()??, parts.next()??, parts.next()??);
        let is_whole = parts.next().is_none() && pre.bytes().all(is_pre_release_byte);
        is_whole.then(|| Self { numbers, pre: pre.to_owned(), text: text.to_owned() })
    }

    pub(crate) fn is_release(&self) -> bool {
        self.pre.is_empty()
    }

    /// The order of versions and pre-releases: `1.9.0-beta1 < 1.9.0-rc1 < 1.9.0`.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| order_of_pre_releases(&self.pre, &other.pre))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Digits only, without a sign.
pub(super) fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

pub(super) fn is_pre_release_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')
}

/// Part by part: numbers by value and before words, fewer parts before more, a release after all of them.
pub(super) fn order_of_pre_releases(one: &str, other: &str) -> Ordering {
    match (one.is_empty(), other.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut ones, mut others) = (one.split('.'), other.split('.'));
    loop {
        let order = match (ones.next(), others.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(other)) => match (number(one), number(other)) {
                (Some(one), Some(other)) => one.cmp(&other),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => one.cmp(other),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse() {
        let version = Version::parse("1.9.0-rc1+ent").unwrap();
        assert_eq!((version.numbers, version.pre.as_str()), ((1, 9, 0), "rc1"));
        assert_eq!(version.to_string(), "1.9.0-rc1+ent");
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.+3", "1.2.3-r c", "1.2.99999999999999999999999"]
        {
            assert!(Version::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn versions_are_ordered_by_value() {
        let ordered = [
            "0.15.5",
            "1.0.0-alpha20",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc1",
            "1.0.0",
            "1.2.0",
            "1.10.0",
            "2.0.0-dev",
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                let (a, b) = (Version::parse(one).unwrap(), Version::parse(other).unwrap());
                assert_eq!(a.order(&b), at.cmp(&other_at), "{one} and {other}");
            }
        }
        assert_eq!(
            Version::parse("1.0.0+a").unwrap().order(&Version::parse("1.0.0+b").unwrap()),
            Ordering::Equal
        );
    }
}
