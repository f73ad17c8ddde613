//! When and from where a provisioner key may be used, and which names and tags it may have.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use super::network::AllowList;
use crate::names;
use crate::tags::{self, SCOPE, SCOPE_USER};

/// Which of a key's two secrets was presented. A key has two for a while after a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretVersion {
    /// The newest secret.
    Current,
    /// The secret before the last rotation.
    Previous,
}

/// When and from where a key may be used. The default is that of official keys: from everywhere until it is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValidity {
    /// The first instant at which the key is no longer valid.
    pub expires_at: Option<Timestamp>,
    /// When it was deleted.
    pub revoked_at: Option<Timestamp>,
    /// The first instant at which the secret before the last rotation is no longer valid; none without one.
    pub previous_until: Option<Timestamp>,
    /// The networks from which it may be used.
    pub networks: AllowList,
}

/// Why a key is refused. Clients do not learn the reason (scheduling-and-auth 4.2); it is for logs and for sessions that
/// must end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It was deleted.
    #[error("the key was deleted at {0:.0}: give the daemon another one")]
    Revoked(Timestamp),
    #[error("the key expired at {0:.0}: give the daemon another one")]
    Expired(Timestamp),
    /// It was rotated, and the overlap is over.
    #[error("the key was rotated and its old secret ended at {0:.0}: give the daemon the new one")]
    Superseded(Timestamp),
    /// It is used from an address that is not in its allow list.
    #[error("the key may not be used from {}: see its allow list", .0.map_or("an unknown address".to_owned(), |a| a.to_string()))]
    Address(Option<IpAddr>),
}

impl KeyValidity {
    /// Whether the key may be used at `now` from `address`, with this secret. Checked at each join, and for open sessions
    /// at [`KeyValidity::ends_at`] and whenever the key changes.
    pub fn check(
        &self,
        secret: SecretVersion,
        now: Timestamp,
        address: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let over = |end: Option<Timestamp>| end.filter(|end| now >= *end);
        if let Some(at) = self.revoked_at {
            return Err(Refusal::Revoked(at));
        }
        if let Some(at) = over(self.expires_at) {
            return Err(Refusal::Expired(at));
        }
        if secret == SecretVersion::Previous {
            match self.previous_until {
                None => return Err(Refusal::Superseded(now)),
                Some(at) if now >= at => return Err(Refusal::Superseded(at)),
                Some(_) => {}
            }
        }
        if self.networks.allows(address) { Ok(()) } else { Err(Refusal::Address(address)) }
    }

    /// The first instant at which this secret is no longer valid, as far as is known now. A session sets a timer to it.
    #[must_use]
    pub fn ends_at(&self, secret: SecretVersion) -> Option<Timestamp> {
        let rotated = (secret == SecretVersion::Previous).then_some(self.previous_until).flatten();
        [self.revoked_at, self.expires_at, rotated].into_iter().flatten().min()
    }

    /// The validity after a rotation: the current secret becomes the previous one for `overlap`, and an older one ends at
    /// once. A negative overlap counts as zero.
    #[must_use]
    pub fn rotated(self, now: Timestamp, overlap: SignedDuration) -> Self {
        let until = now.saturating_add(overlap.max(SignedDuration::ZERO)).unwrap_or(Timestamp::MAX);
        Self { previous_until: Some(until), ..self }
    }
}

/// Why a key cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("name {0}")]
    Name(#[from] names::Error),
    #[error(transparent)]
    Tags(#[from] tags::Error),
    /// A key has no user, so user-scoped daemons of a key could run no jobs (CONF-18).
    #[error("a key cannot have the tag scope=user: only daemons that join with a user's token can")]
    UserScope,
    /// It expires in the past.
    #[error("the key would expire at {0:.0}, which is in the past")]
    Past(Timestamp),
}

/// Checks a new key: its name in lower case (KEY-2, KEY-3), its tags (TAG-4), its expiry.
pub fn validate(
    name: &str,
    key_tags: &BTreeMap<String, String>,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), InvalidKey> {
    names::provisioner_key(name)?;
    tags::validate(key_tags)?;
    if key_tags.get(SCOPE).is_some_and(|scope| scope == SCOPE_USER) {
        return Err(InvalidKey::UserScope);
    }
    match expires_at {
        Some(at) if at <= now => Err(InvalidKey::Past(at)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn home() -> Option<IpAddr> {
        "10.0.0.1".parse().ok()
    }

    #[test]
    fn an_official_key_is_valid_until_it_is_deleted() {
        let validity = KeyValidity::default();
        assert_eq!(validity.check(SecretVersion::Current, at(5), None), Ok(()));
        assert_eq!(validity.ends_at(SecretVersion::Current), None);
        let deleted = KeyValidity { revoked_at: Some(at(3)), ..validity };
        assert_eq!(deleted.check(SecretVersion::Current, at(5), home()), Err(Refusal::Revoked(at(3))));
    }

    #[test]
    fn expiry_is_the_first_invalid_instant() {
        let validity = KeyValidity { expires_at: Some(at(10)), ..KeyValidity::default() };
        assert_eq!(validity.check(SecretVersion::Current, at(9), None), Ok(()));
        assert_eq!(validity.check(SecretVersion::Current, at(10), None), Err(Refusal::Expired(at(10))));
        assert_eq!(validity.ends_at(SecretVersion::Current), Some(at(10)));
    }

    #[test]
    fn old_and_new_are_valid_during_the_overlap_and_only_the_newest_after_it() {
        let validity = KeyValidity::default().rotated(at(10), SignedDuration::from_secs(60));
        for shown in [SecretVersion::Current, SecretVersion::Previous] {
            assert_eq!(validity.check(shown, at(69), None), Ok(()));
        }
        assert_eq!(validity.check(SecretVersion::Previous, at(70), None), Err(Refusal::Superseded(at(70))));
        assert_eq!(validity.check(SecretVersion::Current, at(70), None), Ok(()));
        assert_eq!(
            (validity.ends_at(SecretVersion::Previous), validity.ends_at(SecretVersion::Current)),
            (Some(at(70)), None)
        );
        let at_once = KeyValidity::default().rotated(at(10), SignedDuration::from_secs(-5));
        assert!(at_once.check(SecretVersion::Previous, at(10), None).is_err());
        assert!(
            KeyValidity::default().check(SecretVersion::Previous, at(0), None).is_err(),
            "the key has no previous secret"
        );
    }

    #[test]
    fn the_allow_list_decides_by_address() {
        let networks = AllowList::parse(["10.0.0.0/8"]).expect("a list");
        let validity = KeyValidity { networks, ..KeyValidity::default() };
        assert_eq!(validity.check(SecretVersion::Current, at(0), home()), Ok(()));
        let mapped = "::ffff:10.0.0.1".parse().ok();
        assert_eq!(validity.check(SecretVersion::Current, at(0), mapped), Ok(()));
        for address in ["8.8.8.8".parse().ok(), None] {
            let refusal = validity.check(SecretVersion::Current, at(0), address).expect_err("outside");
            assert_eq!(refusal, Refusal::Address(address));
            assert!(refusal.to_string().starts_with("the key may not be used from "));
        }
    }

    #[test]
    fn conf_18_key_2_key_3_tag_4_invalid_keys_are_refused() {
        let tags = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let check = |name: &str, pairs: &[(&str, &str)]| validate(name, &tags(pairs), None, at(0));
        assert_eq!(check(&"k".repeat(64), &[("scope", "organization"), ("a", "b")]), Ok(()));
        assert!(matches!(check(&"k".repeat(65), &[]), Err(InvalidKey::Name(names::Error::TooLong(64)))));
        assert!(matches!(check("", &[]), Err(InvalidKey::Name(names::Error::Empty))));
        assert!(matches!(check("PSK", &[]), Err(InvalidKey::Name(names::Error::Reserved(_)))));
        assert!(matches!(check("a\0b", &[]), Err(InvalidKey::Name(_))));
        assert_eq!(check("a", &[("scope", "user")]), Err(InvalidKey::UserScope));
        assert_eq!(check("a", &[("a", "\0")]), Err(InvalidKey::Tags(tags::Error::Nul)));
        let many: BTreeMap<_, _> = (0..10_000).map(|n| (n.to_string(), String::new())).collect();
        assert!(matches!(
            validate("a", &many, None, at(0)),
            Err(InvalidKey::Tags(tags::Error::TooMany(10_000)))
        ));
        assert_eq!(validate("a", &tags(&[]), Some(at(7)), at(7)), Err(InvalidKey::Past(at(7))));
        assert_eq!(validate("a", &tags(&[]), Some(at(8)), at(7)), Ok(()));
    }

    proptest! {
        /// A timer set to `ends_at` is neither late nor early.
        #[test]
        fn validity_changes_exactly_at_ends_at(
            expires in proptest::option::of(0_i64..20), overlap in proptest::option::of(-3_i64..20),
            previous: bool, now in 0_i64..25,
        ) {
            let mut validity = KeyValidity { expires_at: expires.map(at), ..KeyValidity::default() };
            if let Some(overlap) = overlap {
                validity = validity.rotated(at(0), SignedDuration::from_secs(overlap));
            }
            let shown = if previous && overlap.is_some() { SecretVersion::Previous } else { SecretVersion::Current };
            let valid = validity.ends_at(shown).is_none_or(|end| at(now) < end);
            prop_assert_eq!(validity.check(shown, at(now), None).is_ok(), valid);
        }
    }
}
