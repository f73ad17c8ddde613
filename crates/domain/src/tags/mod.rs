//! Tag sets in canonical form, and the only predicate that decides which daemon may run which job.
//!
//! Invariant: nothing else in the product compares tags. SQL sees only ids of interned sets.

mod index;
mod precedence;
mod published_table;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::index::{DaemonIndex, JobIndex};
pub use self::precedence::{for_build, for_import, needs_source};
pub use self::published_table::published_table;
use crate::ids::{OrganizationId, UserId};

/// The reserved key that says whose jobs a daemon runs.
pub const SCOPE: &str = "scope";
/// The reserved key that names the owner of a user-scoped set.
pub const OWNER: &str = "owner";
/// Scope value: the organization's jobs.
pub const SCOPE_ORGANIZATION: &str = "organization";
/// Scope value: one user's jobs.
pub const SCOPE_USER: &str = "user";

/// A flat map of tags, ordered by key, so that equal sets have one text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TagSet(BTreeMap<String, String>);

/// Why a set or a pair of tags was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A pair has no `=` (scheduling-and-auth TAG-5).
    #[error("invalid format for tag {0:?}: write it as key=value")]
    NoEquals(String),
    /// A pair starts with `=`.
    #[error("tag {0:?} has no key: write it as key=value")]
    NoKey(String),
    /// A key or value holds the byte zero (TAG-4).
    #[error("tags must not contain the NUL character")]
    Nul,
    /// More than [`MAX_TAGS`].
    #[error("{0} tags are too many: at most {MAX_TAGS} are allowed")]
    TooMany(usize),
    /// Longer than [`MAX_TAG_BYTES`].
    #[error("a tag's key or value of {0} bytes is too long: at most {MAX_TAG_BYTES} are allowed")]
    TooLong(usize),
}

/// How many tags a set may have. Every job and daemon has a set in memory, so it is bounded.
pub const MAX_TAGS: usize = 1000;
/// How long a key or value may be, in bytes.
pub const MAX_TAG_BYTES: usize = 4096;

impl TagSet {
    /// The canonical untagged set: `scope=organization owner=` (TAG-2).
    #[must_use]
    pub fn untagged() -> Self {
        Self::canonical(UserId::NIL, [])
    }

    /// Merges `sets` left to right and puts the result into canonical form (TAG-3): a later value wins, an empty
    /// value is skipped, `scope=user` belongs to `user` whatever the caller wrote, everything else is
    /// `scope=organization` with an empty owner.
    #[must_use]
    pub fn canonical<'a>(user: UserId, sets: impl IntoIterator<Item = &'a BTreeMap<String, String>>) -> Self {
        let mut tags = BTreeMap::new();
        for set in sets {
            for (key, value) in set.iter().filter(|(_, value)| !value.is_empty()) {
                tags.insert(key.clone(), value.clone());
            }
        }
        let user_scoped = tags.get(SCOPE).is_some_and(|scope| scope == SCOPE_USER);
        let (scope, owner) =
            if user_scoped { (SCOPE_USER, user.to_string()) } else { (SCOPE_ORGANIZATION, String::new()) };
        tags.insert(SCOPE.to_owned(), scope.to_owned());
        tags.insert(OWNER.to_owned(), owner);
        Self(tags)
    }

    /// The map as it is, for sets that were canonical when they were stored, or that are legacy (TAG-9).
    #[must_use]
    pub const fn from_stored(tags: BTreeMap<String, String>) -> Self {
        Self(tags)
    }

    /// The tags as a map.
    #[must_use]
    pub const fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The value of `key`, if present.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Whether this is exactly the untagged set.
    #[must_use]
    pub fn is_untagged(&self) -> bool {
        self.0.len() == 2 && self.get(SCOPE) == Some(SCOPE_ORGANIZATION) && self.get(OWNER) == Some("")
    }

    /// Whether these are one user's tags.
    #[must_use]
    pub fn is_user_scoped(&self) -> bool {
        self.get(SCOPE) == Some(SCOPE_USER)
    }

    /// The lower-cased owner tag, part of a daemon's identity (wire-protocol 1.8).
    #[must_use]
    pub fn owner(&self) -> String {
        self.get(OWNER).unwrap_or_default().to_lowercase()
    }

    /// Whether a daemon with these tags may run a job with `job`'s tags (scheduling-and-auth 1.2, steps 3 and 4):
    /// the untagged set needs exactly itself, any other job needs each of its pairs.
    #[must_use]
    pub fn satisfies(&self, job: &Self) -> bool {
        if job.is_untagged() {
            return self == job;
        }
        job.0.iter().all(|(key, value)| self.0.get(key) == Some(value))
    }
}

impl fmt::Display for TagSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{key}={value}")?;
        }
        Ok(())
    }
}

/// Which jobs a daemon can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonCapabilities<'a> {
    /// The organization it joined.
    pub organization: OrganizationId,
    /// Provisioner types it serves, for example `terraform`.
    pub provisioners: &'a [String],
    /// Its effective tags.
    pub tags: &'a TagSet,
}

/// What a job requires of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequirements<'a> {
    /// The organization it belongs to.
    pub organization: OrganizationId,
    /// The provisioner type it needs.
    pub provisioner: &'a str,
    pub tags: &'a TagSet,
}

/// The whole matching predicate (scheduling-and-auth 1.2): organization, type, tags.
#[must_use]
pub fn matches(daemon: &DaemonCapabilities<'_>, job: &JobRequirements<'_>) -> bool {
    daemon.organization == job.organization
        && daemon.provisioners.iter().any(|kind| kind == job.provisioner)
        && daemon.tags.satisfies(job.tags)
}

/// Splits `key=value` at the first `=` (TAG-5); the value may contain `=` and may be empty.
pub fn parse_pair(text: &str) -> Result<(String, String), Error> {
    let (key, value) = text.split_once('=').ok_or_else(|| Error::NoEquals(text.to_owned()))?;
    if key.is_empty() {
        return Err(Error::NoKey(text.to_owned()));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Refuses a NUL in any key or value (TAG-4), and sets that exceed the bounds.
pub fn validate(tags: &BTreeMap<String, String>) -> Result<(), Error> {
    if tags.len() > MAX_TAGS {
        return Err(Error::TooMany(tags.len()));
    }
    let longest = tags.iter().flat_map(|(key, value)| [key.len(), value.len()]).max().unwrap_or(0);
    if longest > MAX_TAG_BYTES {
        return Err(Error::TooLong(longest));
    }
    let has_nul = |text: &String| text.contains('\0');
    if tags.iter().any(|(key, value)| has_nul(key) || has_nul(value)) {
        return Err(Error::Nul);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Builds a set from the table's shorthand: `O`/`U(x)` and then pairs.
    fn set(text: &str) -> TagSet {
        let mut tags = BTreeMap::new();
        for word in text.split(' ') {
            match word {
                "O" => tags.extend(map(&[("scope", "organization"), ("owner", "")])),
                "e" => tags.extend(map(&[("environment", "on-prem")])),
                "c" => tags.extend(map(&[("datacenter", "chicago")])),
                "n" => tags.extend(map(&[("datacenter", "new_york")])),
                user => {
                    let owner =
                        user.strip_prefix("U(").and_then(|rest| rest.strip_suffix(')')).expect("U(x)");
                    tags.extend(map(&[("scope", "user"), ("owner", owner)]));
                }
            }
        }
        TagSet::from_stored(tags)
    }

    #[test]
    fn type_must_be_offered() {
        let types = ["echo".to_owned()];
        let (organization, tags) = (OrganizationId::random(), set("O"));
        let daemon = DaemonCapabilities { organization, provisioners: &types, tags: &tags };
        assert!(!matches(&daemon, &JobRequirements { organization, provisioner: "terraform", tags: &tags }));
    }

    #[test]
    fn tag_3_canonical_form() {
        let user = UserId::random();
        let owner = user.to_string();
        let organization = TagSet::from_stored(map(&[("scope", "organization"), ("owner", "")]));
        assert_eq!(TagSet::untagged(), organization);
        let check = |sets: &[BTreeMap<String, String>], want: &TagSet| {
            assert_eq!(&TagSet::canonical(user, sets), want, "{sets:?}");
        };
        check(&[], &organization);
        check(&[map(&[])], &organization);
        check(&[map(&[("scope", "organization"), ("owner", "somebody")])], &organization);
        check(&[map(&[("owner", "somebody")])], &organization);
        check(&[map(&[("scope", "galaxy")])], &organization);
        let scoped = TagSet::from_stored(map(&[("scope", "user"), ("owner", &owner)]));
        check(&[map(&[("scope", "user")])], &scoped);
        check(&[map(&[("scope", "user"), ("owner", "another")])], &scoped);
        let merged =
            TagSet::from_stored(map(&[("scope", "organization"), ("owner", ""), ("a", "2"), ("b", "1")]));
        check(&[map(&[("a", "1"), ("b", "1")]), map(&[("a", "2"), ("b", "")])], &merged);
    }

    #[test]
    fn tag_8_matching_is_case_sensitive() {
        let daemon = TagSet::from_stored(map(&[("scope", "organization"), ("owner", ""), ("A", "b")]));
        let job = TagSet::from_stored(map(&[("scope", "organization"), ("owner", ""), ("A", "B")]));
        assert!(!daemon.satisfies(&job));
    }

    #[test]
    fn tag_9_an_empty_job_set_matches_every_daemon() {
        assert!(set("O e").satisfies(&TagSet::default()));
    }

    #[test]
    fn tag_5_pairs_split_at_the_first_equals() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(matches!(parse_pair("a"), Err(Error::NoEquals(_))));
        assert!(matches!(parse_pair("=a"), Err(Error::NoKey(_))));
    }

    #[test]
    fn tag_4_nul_is_refused() {
        assert_eq!(validate(&map(&[("a\0", "b")])), Err(Error::Nul));
        assert_eq!(validate(&map(&[("a", "\0")])), Err(Error::Nul));
        assert_eq!(validate(&map(&[("a", "b")])), Ok(()));
    }

    proptest! {
        #[test]
        fn canonical_is_idempotent(tags in proptest::collection::btree_map("[a-c]|scope|owner", "[xy]?|user|organization", 0..5)) {
            let user = UserId::random();
            let once = TagSet::canonical(user, [&tags]);
            prop_assert_eq!(&TagSet::canonical(user, [once.as_map()]), &once);
        }
    }
}
