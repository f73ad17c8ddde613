//! The life of a pool's provisioner keys: a new key works before the old one is deleted.
//!
//! The state is the list of keys in the resource's status, written before each step that a crash could interrupt:
//!
//! 1. `Pending`: the name is noted. It has a hash that only this resource makes, so a key of that name is its own.
//! 2. The key is made on the server and written into the Secret beside the old one.
//! 3. `Active`: new pods use it. The former key is `Retiring` and still works.
//! 4. When no pod and no connected daemon uses a retiring key, it is deleted.
//!
//! [`next`] names one step at a time. It is called again after each step with what is true then.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::crd::provisioner_status::{KeyState, KeyStatus};
use crate::names::{hash8, key_name};

/// What the key has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Beginning of its name.
    pub base: String,
    /// The UID of the resource.
    pub uid: String,
    /// Key of the Secret's entry with the current key.
    pub entry: String,
    pub organization_id: String,
    pub tags: BTreeMap<String, String>,
    pub url: String,
    pub control_plane: Option<String>,
    /// Empty if it is not known.
    pub deployment_id: String,
    /// The value of the annotation that asks for a new key.
    pub rotate: Option<String>,
    /// The greatest age of a key.
    pub rotate_after: Option<SignedDuration>,
}

/// What the server says about a key that was presented to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// It was not asked, or did not answer.
    Unknown,
    /// It accepts the key.
    Valid { id: String, organization_id: String, tags: BTreeMap<String, String> },
    /// It does not know the key.
    Refused,
}

/// What is true now.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The keys in the status.
    pub keys: &'a [KeyStatus],
    /// How many keys were made so far.
    pub generation: i64,
    /// The last value of the annotation that was acted on.
    pub rotated_for: Option<&'a str>,
    /// The fingerprints of the entries of the Secret.
    pub entries: &'a BTreeMap<String, String>,
    /// What the server says about the active key, or about the pending one if it is in the Secret.
    pub check: Check,
    /// The ids of keys that pods or connected daemons use; none if that is not known.
    pub in_use: Option<&'a BTreeSet<String>>,
    pub now: Timestamp,
}

/// Why a key is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    First,
    SecretLost,
    SecretChanged,
    KeyRefused,
    KeyChanged,
    TagsChanged,
    NameChanged,
    OrganizationChanged,
    ControlPlaneChanged,
    Requested,
    TooOld,
}

impl Reason {
    /// The words of an Event.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::First => "the pool has no key yet",
            Self::SecretLost => "the Secret does not have the key any more",
            Self::SecretChanged => "the key in the Secret was changed",
            Self::KeyRefused => "the server does not know the key any more",
            Self::KeyChanged => "the key is not the one that was made",
            Self::TagsChanged => "the tags were changed",
            Self::NameChanged => "key.name was changed",
            Self::OrganizationChanged => "the organization was changed",
            Self::ControlPlaneChanged => "the control plane was changed",
            Self::Requested => "the annotation coder.com/rotate-key was changed",
            Self::TooOld => "the key is older than key.rotateAfterSeconds",
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Note a pending key in the status.
    Note(KeyStatus, Reason),
    /// Make the pending key on the server, after deleting one of its name, and write it into the Secret.
    Create(KeyStatus),
    /// The pending key of the Secret has to be presented to the server before anything else.
    Present(KeyStatus),
    /// The pending key works: make it the active one.
    Activate(KeyStatus),
    /// Correct the active key in the status; nothing is made.
    Update(KeyStatus),
    /// Delete a pending key that nobody wants any more, or a retiring one that nobody uses.
    Delete(KeyStatus),
    /// There is nothing to do.
    Rest,
}

/// The fingerprint of a key: the beginning of its SHA-256, which is not a secret.
#[must_use]
pub fn fingerprint(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The next step.
#[must_use]
pub fn next(wanted: &Wanted, observed: &Observed<'_>) -> Step {
    let of = |state| observed.keys.iter().find(|key| key.state == state);
    if let Some(pending) = of(KeyState::Pending) {
        return next_of_pending(wanted, observed, pending);
    }
    let Some(active) = of(KeyState::Active) else {
        return note(wanted, observed, Reason::First);
    };
    if let Some(reason) = reason(wanted, observed, active) {
        return note(wanted, observed, reason);
    }
    let corrected = corrected(wanted, observed, active);
    if corrected != *active {
        return Step::Update(corrected);
    }
    let unused = |key: &&KeyStatus| {
        key.state == KeyState::Retiring
            && observed.in_use.is_some_and(|used| key.id.as_ref().is_none_or(|id| !used.contains(id)))
    };
    observed.keys.iter().find(unused).map_or(Step::Rest, |key| Step::Delete(key.clone()))
}

fn next_of_pending(wanted: &Wanted, observed: &Observed<'_>, pending: &KeyStatus) -> Step {
    if !fits(wanted, pending) {
        return Step::Delete(pending.clone());
    }
    let Some(fingerprint) = observed.entries.get(&pending.entry) else {
        return Step::Create(pending.clone());
    };
    match &observed.check {
        Check::Unknown => Step::Present(pending.clone()),
        Check::Valid { id, organization_id, tags }
            if *organization_id == pending.organization_id && same_tags(tags, &pending.tags) =>
        {
            Step::Activate(KeyStatus {
                state: KeyState::Active,
                id: Some(id.clone()),
                fingerprint: Some(fingerprint.clone()),
                ..pending.clone()
            })
        }
        // Somebody changed the Secret between two steps: the key of this name is made again.
        Check::Valid { .. } | Check::Refused => Step::Create(pending.clone()),
    }
}

fn fits(wanted: &Wanted, key: &KeyStatus) -> bool {
    same_tags(&key.tags, &wanted.tags)
        && key.organization_id == wanted.organization_id
        && same_deployment(wanted, key)
        && has_name(wanted, key)
}

/// Whether a key's name begins as it should. Names on the server do not differ by case.
fn has_name(wanted: &Wanted, key: &KeyStatus) -> bool {
    key.base.as_ref().is_none_or(|base| base.eq_ignore_ascii_case(&wanted.base))
}

/// Whether both are keys of one deployment. Its URL may change.
fn same_deployment(wanted: &Wanted, key: &KeyStatus) -> bool {
    if key.url == wanted.url {
        return true;
    }
    !key.deployment_id.is_empty() && key.deployment_id == wanted.deployment_id
}

/// Tags with an empty value do not count, except that the scope and the owner are always the organization's.
fn same_tags(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    use coder_domain::ids::UserId;
    use coder_domain::tags::TagSet;
    TagSet::canonical(UserId::NIL, [one]) == TagSet::canonical(UserId::NIL, [other])
}

fn reason(wanted: &Wanted, observed: &Observed<'_>, active: &KeyStatus) -> Option<Reason> {
    if !same_deployment(wanted, active) {
        return Some(Reason::ControlPlaneChanged);
    }
    if active.organization_id != wanted.organization_id {
        return Some(Reason::OrganizationChanged);
    }
    if !same_tags(&active.tags, &wanted.tags) {
        return Some(Reason::TagsChanged);
    }
    if !has_name(wanted, active) {
        return Some(Reason::NameChanged);
    }
    let Some(fingerprint) = observed.entries.get(&active.entry) else {
        return Some(Reason::SecretLost);
    };
    let is_same = active.fingerprint.as_ref().is_none_or(|known| known == fingerprint);
    match &observed.check {
        Check::Refused if is_same => return Some(Reason::KeyRefused),
        Check::Refused => return Some(Reason::SecretChanged),
        Check::Valid { id, organization_id, tags } => {
            let same_id = active.id.as_ref().is_none_or(|known| known == id);
            if !same_id || *organization_id != active.organization_id || !same_tags(tags, &active.tags) {
                return Some(if is_same { Reason::KeyChanged } else { Reason::SecretChanged });
            }
        }
        Check::Unknown => {}
    }
    if wanted.rotate.is_some() && wanted.rotate.as_deref() != observed.rotated_for {
        return Some(Reason::Requested);
    }
    let created = active.created_at.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    let age = created.map(|created| observed.now.duration_since(created));
    let is_old = age.zip(wanted.rotate_after).is_some_and(|(age, most)| age >= most);
    is_old.then_some(Reason::TooOld)
}

/// The active key with what is known of it by now: its address, and the fingerprint of a secret that the server accepts.
fn corrected(wanted: &Wanted, observed: &Observed<'_>, active: &KeyStatus) -> KeyStatus {
    let mut key = active.clone();
    // A key that another operator made keeps its name until the wanted one is changed.
    key.base.get_or_insert_with(|| wanted.base.clone());
    key.url.clone_from(&wanted.url);
    key.control_plane.clone_from(&wanted.control_plane);
    if !wanted.deployment_id.is_empty() {
        key.deployment_id.clone_from(&wanted.deployment_id);
    }
    if let Check::Valid { id, .. } = &observed.check {
        key.id = Some(id.clone());
        key.fingerprint = observed.entries.get(&active.entry).cloned().or(key.fingerprint);
    }
    key
}

fn note(wanted: &Wanted, observed: &Observed<'_>, reason: Reason) -> Step {
    let mut identity = format!("{}\0{}\0{}", wanted.uid, observed.generation, wanted.organization_id);
    for (key, value) in &wanted.tags {
        identity.push_str(&format!("\0{key}\0{value}"));
    }
    let pending = KeyStatus {
        state: KeyState::Pending,
        name: key_name(&wanted.base, &identity),
        base: Some(wanted.base.clone()),
        id: None,
        entry: format!("{}-{}", wanted.entry, hash8(&identity)),
        fingerprint: None,
        organization_id: wanted.organization_id.clone(),
        tags: wanted.tags.clone(),
        url: wanted.url.clone(),
        control_plane: wanted.control_plane.clone(),
        deployment_id: wanted.deployment_id.clone(),
        created_at: Timestamp::from_second(observed.now.as_second()).ok().map(|now| now.to_string()),
    };
    Step::Note(pending, reason)
}

/// Applies a step that only changes the status.
#[must_use]
pub fn apply(keys: &[KeyStatus], step: &Step) -> Vec<KeyStatus> {
    let mut keys = keys.to_vec();
    match step {
        Step::Note(pending, _) => keys.push(pending.clone()),
        Step::Activate(active) => {
            for key in &mut keys {
                if key.state == KeyState::Active {
                    key.state = KeyState::Retiring;
                }
                if key.name == active.name {
                    *key = active.clone();
                }
            }
        }
        Step::Update(active) => {
            for key in keys.iter_mut().filter(|key| key.state == KeyState::Active) {
                *key = active.clone();
            }
        }
        Step::Delete(deleted) => keys.retain(|key| key.name != deleted.name),
        Step::Create(_) | Step::Present(_) | Step::Rest => {}
    }
    keys
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
