//! Version constraints as templates write them: `>= 1.5, < 2.0, != 1.6.1`.

use std::cmp::Ordering;
use std::fmt;

use super::version::{Version, is_pre_release_byte, number, order_of_pre_releases};

/// Longer texts are rejected.
const MAX_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Pessimistic,
}

/// Longer operators first, because one is a prefix of another.
const OPERATORS: [(&str, Operator); 7] = [
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("!=", Operator::NotEqual),
    ("~>", Operator::Pessimistic),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("=", Operator::Equal),
];

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    operator: Operator,
    numbers: (u64, u64, u64),
    /// How many of the three numbers were given.
    written: usize,
    pre: String,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constraint {
    terms: Vec<Term>,
    text: String,
}

impl Constraint {
    /// `None` for an invalid constraint; Terraform reports it better, with its position.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let terms = text.split(',').map(Term::parse).collect::<Option<Vec<_>>>()?;
        Some(Self { terms, text: text.to_owned() })
    }

    pub(crate) fn accepts(&self, version: &Version) -> bool {
        self.terms.iter().all(|term| term.accepts(version))
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Term {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let found = OPERATORS.iter().find_map(|(sign, operator)| Some((text.strip_prefix(sign)?, *operator)));
        let (rest, operator) = found.unwrap_or((text, Operator::Equal));
        let version = rest.trim();
        let version = version.strip_prefix('v').unwrap_or(version);
        let without_build = version.split('+').next()?;
        let (core, pre) = match without_build.split_once('-') {
            Some((core, pre)) if !pre.is_empty() => (core, pre),
            Some(_) => return None,
            None => (without_build, ""),
        };
        let parts = core.split('.').map(number).collect::<Option<Vec<_>>>()?;
        let (numbers, written) = match parts[..] {
            [major] => ((major, 0, 0), 1),
            [major, minor] => ((major, minor, 0), 2),
            [major, minor, patch] => ((major, minor, patch), 3),
            _ => return None,
        };
        pre.bytes().all(is_pre_release_byte).then(|| Self { operator, numbers, written, pre: pre.to_owned() })
    }

    /// A pre-release counts as its release, as in Terraform, unless the constraint names a pre-release: then it
    /// must be of the same release, and the exact order counts.
    fn accepts(&self, version: &Version) -> bool {
        let exact = !self.pre.is_empty();
        let pre = if exact { version.pre.as_str() } else { "" };
        let order = version.numbers.cmp(&self.numbers).then_with(|| order_of_pre_releases(pre, &self.pre));
        let comparable = !exact || pre.is_empty() || version.numbers == self.numbers;
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Greater => comparable && order == Ordering::Greater,
            Operator::GreaterOrEqual => comparable && order != Ordering::Less,
            Operator::Less => comparable && order == Ordering::Less,
            Operator::LessOrEqual => comparable && order != Ordering::Greater,
            Operator::Pessimistic => {
                let ((major, minor, _), (wanted_major, wanted_minor, _)) = (version.numbers, self.numbers);
                let stays = match self.written {
                    1 => true,
                    2 => major == wanted_major,
                    _ => major == wanted_major && minor == wanted_minor,
                };
                comparable && stays && order != Ordering::Less && (!exact || !pre.is_empty())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator() {
        let table = [
            ("1.5.7", "1.5.7", true),
            ("1.5.7", "1.5.6", false),
            ("= 1.5", "1.5.0", true),
            ("=v1.5.0", "1.5.0", true),
            ("!= 1.5.0", "1.5.0", false),
            ("!=1.5.0", "1.5.1", true),
            ("> 1.5", "1.5.0", false),
            ("> 1.5", "1.5.1", true),
            (">= 1.5", "1.5.0", true),
            (">= 1.5", "1.4.9", false),
            (">= 1.9.0", "1.10.0", true),
            ("< 2", "1.99.0", true),
            ("< 1.5.0", "1.5.0", false),
            ("<= 1.5.0", "1.5.0", true),
            ("<= 1.5.0", "1.5.1", false),
            ("~> 1.5", "1.99.0", true),
            ("~> 1.5", "2.0.0", false),
            ("~> 1.5", "1.4.9", false),
            ("~> 1.5.0", "1.5.9", true),
            ("~> 1.5.3", "1.5.2", false),
            ("~> 1.5.0", "1.6.0", false),
            // A single number has no upper bound, as in Terraform.
            ("~> 1", "2.0.0", true),
            (">= 1.2, < 1.4, != 1.3.3", "1.3.4", true),
            (">= 1.2, < 1.4, != 1.3.3", "1.3.3", false),
            (">= 1.2,<1.4", "1.4.0", false),
            // A pre-release counts as its release.
            (">= 1.12.0", "1.12.0-rc1", true),
            ("= 1.12.0", "1.12.0-rc1", true),
            ("< 1.12.0", "1.12.0-rc1", false),
            ("~> 1.12.0", "1.12.0-rc1", true),
            // Unless the constraint names a pre-release.
            ("= 1.12.0-rc1", "1.12.0-rc1", true),
            ("= 1.12.0-rc1", "1.12.0", false),
            ("= 1.12.0-rc1", "1.12.0-rc2", false),
            ("!= 1.12.0-rc1", "1.12.0-rc2", true),
            (">= 1.12.0-rc1", "1.12.0-rc2", true),
            (">= 1.12.0-rc1", "1.12.0-beta1", false),
            (">= 1.12.0-rc1", "1.12.0", true),
            (">= 1.12.0-rc1", "1.13.0-rc1", false),
            ("~> 1.12.0-rc1", "1.12.0-rc2", true),
            ("~> 1.12.0-rc1", "1.12.0", false),
            ("< 1.12.0-rc2", "1.12.0-rc1", true),
        ];
        for (constraint, version, accepts) in table {
            let parsed = Constraint::parse(constraint).unwrap();
            assert_eq!(
                parsed.accepts(&Version::parse(version).unwrap()),
                accepts,
                "{constraint} for {version}"
            );
        }
    }

    #[test]
    fn invalid_constraints_are_not_parsed() {
        for bad in ["", ">=", "~> a", ">= 1.2.3.4", "1.2.", "> = 1", ">= 1.2,", "1.2.3-", "=> 1.2", "latest"]
        {
            assert!(Constraint::parse(bad).is_none(), "{bad}");
        }
        assert!(Constraint::parse(&"1".repeat(MAX_BYTES + 1)).is_none());
    }
}
