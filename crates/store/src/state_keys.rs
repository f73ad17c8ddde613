//! Terraform's states hold secrets of every kind. With keys configured they are encrypted before they are stored:
//! AES-256-GCM, bound to the row they belong to, so that a state cannot be put in another's place. Tokens of accounts
//! elsewhere are kept in the same way.
//!
//! A stored state begins with a mark, the id of its key and a nonce. What does not begin with the mark was stored plain
//! and stays readable. The first key encrypts, all decrypt.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coder_domain::ids::{BuildId, JobId, UserId};
use coder_domain::secret::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// No text begins with it.
pub(crate) const MARK: &[u8] = b"\0cst1";
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;
const HEAD_BYTES: usize = MARK.len() + ID_BYTES + NONCE_LEN;

/// Why a text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "state encryption key number {number} is not {KEY_BYTES} bytes in base64: make one with `openssl rand -base64 32`"
)]
pub struct BadKey {
    /// Its place in the list, from 1.
    pub number: usize,
}

/// The keys of a deployment, the newest first; none for no encryption.
#[derive(Clone, Default)]
pub struct StateKeys(Arc<[Key]>);

struct Key {
    id: [u8; ID_BYTES],
    key: LessSafeKey,
}

/// Which row a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    Build(BuildId),
    Journal(JobId),
    /// Tokens of a user's account at a provider.
    Link(UserId, &'a str),
}

impl Owner<'_> {
    fn bound(self) -> String {
        match self {
            Self::Build(id) => format!("build {id}"),
            Self::Journal(id) => format!("journal {id}"),
            Self::Link(user, provider) => format!("link {user} {provider}"),
        }
    }

    const fn table(self) -> &'static str {
        match self {
            Self::Build(_) => "workspace_build_states",
            Self::Journal(_) => "provisioner_job_journals",
            Self::Link(..) => "external_auth_links",
        }
    }

    const fn column(self) -> &'static str {
        match self {
            Self::Build(_) | Self::Journal(_) => "state",
            Self::Link(..) => "tokens",
        }
    }

    fn row(self) -> String {
        match self {
            Self::Build(id) => id.to_string(),
            Self::Journal(id) => id.to_string(),
            Self::Link(user, provider) => format!("{user} {provider}"),
        }
    }
}

impl std::fmt::Debug for StateKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| hex::encode(key.id))).finish()
    }
}

impl StateKeys {
    /// Reads keys, each 32 bytes in base64; the first one is for encryption.
    ///
    /// # Errors
    /// [`BadKey`] for the first that is none.
    pub fn parse(texts: &[Secret]) -> std::result::Result<Self, BadKey> {
        let keys = texts.iter().enumerate().map(|(index, text)| {
            let bytes =
                BASE64_STANDARD.decode(text.expose().trim()).ok().filter(|key| key.len() == KEY_BYTES);
            let unbound = bytes.as_deref().and_then(|bytes| UnboundKey::new(&AES_256_GCM, bytes).ok());
            match (bytes, unbound) {
                (Some(bytes), Some(unbound)) => Ok(Key { id: id_of(&bytes), key: LessSafeKey::new(unbound) }),
                _ => Err(BadKey { number: index + 1 }),
            }
        });
        Ok(Self(keys.collect::<std::result::Result<Vec<_>, _>>()?.into()))
    }

    /// Whether there is none, so that states are stored plain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the key that encrypts.
    #[must_use]
    pub fn current(&self) -> Option<String> {
        self.0.first().map(|key| hex::encode(key.id))
    }

    /// How what is stored now is encrypted; empty when it is not.
    pub(crate) fn cipher(&self) -> String {
        self.current().map(|id| format!("aes-256-gcm {id}")).unwrap_or_default()
    }

    /// Whether stored bytes are as they would be stored now.
    pub(crate) fn is_current(&self, stored: &[u8]) -> bool {
        match (self.0.first(), key_of(stored)) {
            (Some(key), Some(id)) => key.id == id,
            (None, None) => true,
            // Nothing in it.
            (Some(_), None) => stored.is_empty(),
            (None, Some(_)) => false,
        }
    }

    /// A state as it is to be stored. An empty one stays empty.
    pub(crate) fn seal(&self, owner: Owner<'_>, state: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.0.first() else { return state };
        if state.is_empty() {
            return state;
        }
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).expect("the system has random numbers");
        let mut sealed = Vec::with_capacity(HEAD_BYTES + state.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(MARK);
        sealed.extend_from_slice(&key.id);
        sealed.extend_from_slice(&nonce);
        let mut body = state;
        key.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner.bound()),
                &mut body,
            )
            .expect("a state is far shorter than the cipher allows");
        sealed.append(&mut body);
        sealed
    }

    /// A state as it was before it was stored.
    ///
    /// # Errors
    /// [`Error::Locked`] without its key, [`Error::Corrupt`] when it was changed or belongs to another row.
    pub(crate) fn open(&self, owner: Owner<'_>, stored: Vec<u8>) -> Result<Vec<u8>> {
        let Some(id) = key_of(&stored) else { return Ok(stored) };
        let Some(key) = self.0.iter().find(|key| key.id == id) else {
            return Err(Error::Locked { table: owner.table(), id: owner.row(), key: hex::encode(id) });
        };
        let broken = || Error::Corrupt {
            table: owner.table(),
            column: owner.column(),
            id: owner.row(),
            detail: format!("it is not what the key {} has encrypted for this row", hex::encode(id)),
        };
        let nonce = stored.get(HEAD_BYTES - NONCE_LEN..HEAD_BYTES).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut body = stored[HEAD_BYTES..].to_vec();
        let opened = key.key.open_in_place(nonce, Aad::from(owner.bound()), &mut body);
        let length = opened.map_err(|_| broken())?.len();
        body.truncate(length);
        Ok(body)
    }
}

fn id_of(key: &[u8]) -> [u8; ID_BYTES] {
    let sum = Sha256::new().chain_update(b"name of a state encryption key").chain_update(key).finalize();
    let mut id = [0; ID_BYTES];
    id.copy_from_slice(&sum[..ID_BYTES]);
    id
}

/// The key by which stored bytes are encrypted; none when they are plain.
fn key_of(stored: &[u8]) -> Option<[u8; ID_BYTES]> {
    stored.strip_prefix(MARK)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(numbers: &[u8]) -> StateKeys {
        let text = |number: &u8| Secret::new(BASE64_STANDARD.encode([*number; KEY_BYTES]));
        StateKeys::parse(&numbers.iter().map(text).collect::<Vec<_>>()).unwrap()
    }

    fn owner(number: u128) -> Owner<'static> {
        Owner::Build(BuildId(uuid::Uuid::from_u128(number)))
    }

    #[test]
    fn the_first_key_encrypts_and_all_decrypt() {
        let state = b"{\"secret\":1}".to_vec();
        let old = keys(&[1]).seal(owner(1), state.clone());
        assert!(!old.windows(6).any(|part| part == b"secret"));
        assert_ne!(old, keys(&[1]).seal(owner(1), state.clone()), "every time with another nonce");
        let both = keys(&[2, 1]);
        assert_eq!(both.open(owner(1), old.clone()).unwrap(), state);
        assert!(!both.is_current(&old) && both.is_current(&both.seal(owner(1), state.clone())));
        assert_eq!(both.open(owner(1), state.clone()).unwrap(), state, "plain states stay readable");
        assert_eq!(both.seal(owner(1), Vec::new()), b"", "nothing stays nothing");
    }

    #[test]
    fn a_missing_key_is_named_and_a_changed_state_is_refused() {
        let sealed = keys(&[1]).seal(owner(1), b"state".to_vec());
        let error = keys(&[2]).open(owner(1), sealed.clone()).unwrap_err().to_string();
        assert!(error.contains(&keys(&[1]).current().unwrap()), "{error}");
        assert!(matches!(StateKeys::default().open(owner(1), sealed.clone()), Err(Error::Locked { .. })));
        assert!(
            matches!(keys(&[1]).open(owner(2), sealed.clone()), Err(Error::Corrupt { .. })),
            "another row"
        );
        for at in MARK.len() + ID_BYTES..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(matches!(keys(&[1]).open(owner(1), changed), Err(Error::Corrupt { .. })), "{at}");
        }
        for end in MARK.len() + ID_BYTES..sealed.len() {
            assert!(keys(&[1]).open(owner(1), sealed[..end].to_vec()).is_err(), "{end}");
        }
    }

    #[test]
    fn keys_are_32_bytes_and_never_shown() {
        let good = Secret::new(BASE64_STANDARD.encode([7; KEY_BYTES]));
        let bad = Secret::new(BASE64_STANDARD.encode([7; 31]));
        assert_eq!(StateKeys::parse(&[good.clone(), bad]).unwrap_err(), BadKey { number: 2 });
        let shown = format!("{:?}", StateKeys::parse(&[good]).unwrap());
        assert_eq!(shown.len(), "[\"01234567\"]".len());
    }
}
