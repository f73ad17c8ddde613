//! Encrypts Terraform's states and the other columns that hold secrets (`rotation.rs` lists them). With keys
//! configured, values are encrypted with AES-256-GCM before they are stored. A value is bound to its column and row, so
//! that it cannot be moved to another row.
//!
//! A stored value begins with a mark, the id of its key and a nonce. In a text column, the part after the mark is
//! base64. A value without the mark was stored unencrypted and stays readable. The first key encrypts; all keys
//! decrypt.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coder_domain::ids::{BuildId, JobId, UserId};
use coder_domain::secret::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// The mark of an encrypted value. It is not valid UTF-8, so no text begins with it.
pub(crate) const MARK: &[u8] = b"\0cst1";
/// Prefix of unencrypted bytes that would otherwise look encrypted.
const PLAIN: &[u8] = b"\0cst0";
/// The common prefix of both marks.
const RESERVED: &[u8] = b"\0cst";
/// The mark in text columns; Postgres stores no NUL in them.
const TEXT_MARK: &str = "\u{1}cst1:";
const TEXT_PLAIN: &str = "\u{1}cst0:";
const TEXT_RESERVED: &str = "\u{1}cst";
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;
const HEAD_BYTES: usize = MARK.len() + ID_BYTES + NONCE_LEN;

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "state encryption key number {number} is not {KEY_BYTES} bytes in base64: make one with `openssl rand -base64 32`"
)]
pub struct InvalidKey {
    /// The number of the key in the list, from 1.
    pub number: usize,
}

/// The keys of a deployment, newest first. Without a key nothing is encrypted.
#[derive(Clone, Default)]
pub struct StateKeys(Arc<[EncryptionKey]>);

struct EncryptionKey {
    id: [u8; ID_BYTES],
    key: LessSafeKey,
}

/// The row to which an encrypted value is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    Build(BuildId),
    Journal(JobId),
    /// The OAuth tokens of a user at a provider.
    Link(UserId, &'a str),
    /// Any other value. The id is unique among all rows that have a column of this name.
    Cell {
        table: &'static str,
        column: &'static str,
        id: &'a str,
    },
}

impl Owner<'_> {
    fn bound(self) -> String {
        match self {
            Self::Build(id) => format!("build {id}"),
            Self::Journal(id) => format!("journal {id}"),
            Self::Link(user, provider) => format!("link {user} {provider}"),
            Self::Cell { column, id, .. } => format!("{column} {id}"),
        }
    }

    const fn table(self) -> &'static str {
        match self {
            Self::Build(_) => "workspace_build_states",
            Self::Journal(_) => "provisioner_job_journals",
            Self::Link(..) => "external_auth_links",
            Self::Cell { table, .. } => table,
        }
    }

    const fn column(self) -> &'static str {
        match self {
            Self::Build(_) | Self::Journal(_) => "state",
            Self::Link(..) => "tokens",
            Self::Cell { column, .. } => column,
        }
    }

    fn row(&self) -> String {
        match self {
            Self::Build(id) => id.to_string(),
            Self::Journal(id) => id.to_string(),
            Self::Link(user, provider) => format!("{user} {provider}"),
            Self::Cell { id, .. } => (*id).to_owned(),
        }
    }
}

impl std::fmt::Debug for StateKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| hex::encode(key.id))).finish()
    }
}

impl StateKeys {
    /// Parses keys, each 32 bytes in base64. The first one encrypts.
    ///
    /// # Errors
    /// [`InvalidKey`] for the first invalid text.
    pub fn parse(texts: &[Secret]) -> std::result::Result<Self, InvalidKey> {
        let keys = texts.iter().enumerate().map(|(index, text)| {
            let bytes =
                BASE64_STANDARD.decode(text.expose().trim()).ok().filter(|key| key.len() == KEY_BYTES);
            let unbound = bytes.as_deref().and_then(|bytes| UnboundKey::new(&AES_256_GCM, bytes).ok());
            match (bytes, unbound) {
                (Some(bytes), Some(unbound)) => {
                    Ok(EncryptionKey { id: id_of(&bytes), key: LessSafeKey::new(unbound) })
                }
                _ => Err(InvalidKey { number: index + 1 }),
            }
        });
        Ok(Self(keys.collect::<std::result::Result<Vec<_>, _>>()?.into()))
    }

    /// Whether there is no key, so that values are stored unencrypted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The id of the key that encrypts.
    #[must_use]
    pub fn current(&self) -> Option<String> {
        self.0.first().map(|key| hex::encode(key.id))
    }

    /// The id of the key that encrypts, as it is stored beside a journal; empty without a key.
    pub(crate) fn cipher(&self) -> String {
        self.current().map(|id| format!("aes-256-gcm {id}")).unwrap_or_default()
    }

    /// Whether stored bytes are encrypted as they would be now.
    pub(crate) fn is_current(&self, stored: &[u8]) -> bool {
        match (self.0.first(), key_of(stored)) {
            (Some(key), Some(id)) => key.id == id,
            (None, None) => true,
            // An empty value has no content.
            (Some(_), None) => stored.is_empty(),
            (None, Some(_)) => false,
        }
    }

    /// Encrypts a state for storage. An empty state stays empty.
    pub(crate) fn seal(&self, owner: Owner<'_>, state: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.0.first() else {
            return if state.starts_with(RESERVED) { [PLAIN, &state].concat() } else { state };
        };
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

    /// Decrypts a stored state.
    ///
    /// # Errors
    /// [`Error::RowKeyMissing`] when its key is not configured, [`Error::Corrupt`] when it was changed or belongs to
    /// another row.
    pub(crate) fn open(&self, owner: Owner<'_>, stored: Vec<u8>) -> Result<Vec<u8>> {
        let Some(id) = key_of(&stored) else {
            return Ok(stored.strip_prefix(PLAIN).map(<[u8]>::to_vec).unwrap_or(stored));
        };
        let Some(key) = self.0.iter().find(|key| key.id == id) else {
            return Err(Error::RowKeyMissing { table: owner.table(), id: owner.row(), key: hex::encode(id) });
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

    /// Encrypts a text for storage. An empty text stays empty.
    pub(crate) fn seal_text(&self, owner: Owner<'_>, text: String) -> String {
        if self.0.is_empty() {
            return if text.starts_with(TEXT_RESERVED) { format!("{TEXT_PLAIN}{text}") } else { text };
        }
        let sealed = self.seal(owner, text.into_bytes());
        let body = sealed.strip_prefix(MARK);
        body.map(|body| format!("{TEXT_MARK}{}", BASE64_STANDARD.encode(body))).unwrap_or_default()
    }

    /// Decrypts a stored text.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub(crate) fn open_text(&self, owner: Owner<'_>, stored: String) -> Result<String> {
        if let Some(plain) = stored.strip_prefix(TEXT_PLAIN) {
            return Ok(plain.to_owned());
        }
        let Some(sealed) = text_as_bytes(&stored) else { return Ok(stored) };
        if key_of(&sealed).is_none() {
            let detail = "it is cut off".to_owned();
            return Err(Error::Corrupt {
                table: owner.table(),
                column: owner.column(),
                id: owner.row(),
                detail,
            });
        }
        String::from_utf8(self.open(owner, sealed)?).map_err(|_| Error::Corrupt {
            table: owner.table(),
            column: owner.column(),
            id: owner.row(),
            detail: "it is not valid UTF-8".to_owned(),
        })
    }

    /// Whether a stored text is encrypted as it would be now.
    pub(crate) fn is_text_current(&self, stored: &str) -> bool {
        match text_as_bytes(stored) {
            Some(sealed) => self.is_current(&sealed),
            None => self.0.is_empty() || stored.is_empty(),
        }
    }

    /// Whether a stored value begins with one of the marks.
    pub(crate) fn is_special(stored: &[u8]) -> bool {
        stored.starts_with(RESERVED) || stored.starts_with(TEXT_RESERVED.as_bytes())
    }

    /// Whether there is a key with this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|key| hex::encode(key.id) == id)
    }
}

/// An encrypted text in the form of a bytes column; none when it is not encrypted. Invalid base64 becomes an empty
/// value, which fails when it is decrypted.
fn text_as_bytes(stored: &str) -> Option<Vec<u8>> {
    let body = stored.strip_prefix(TEXT_MARK)?;
    Some([MARK, &BASE64_STANDARD.decode(body).unwrap_or_default()].concat())
}

/// The id of the key that encrypted a stored value that begins with these bytes.
pub(crate) fn key_name(head: &[u8]) -> Option<String> {
    key_of(head).map(hex::encode)
}

fn id_of(key: &[u8]) -> [u8; ID_BYTES] {
    let sum = Sha256::new().chain_update(b"name of a state encryption key").chain_update(key).finalize();
    let mut id = [0; ID_BYTES];
    id.copy_from_slice(&sum[..ID_BYTES]);
    id
}

/// The id of the key that encrypted these stored bytes; none when they are not encrypted.
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
    fn texts_come_back_and_none_is_taken_for_an_encrypted_one() {
        let owner = |id| Owner::Cell { table: "t", column: "c", id };
        let forged = keys(&[1]).seal_text(owner("a"), "secret".to_owned());
        for plain in ["", "text", "\u{1}cst0:x", "\u{1}cst1:x", "\u{1}cst1:", &forged] {
            for keys in [StateKeys::default(), keys(&[1]), keys(&[2, 1])] {
                let stored = keys.seal_text(owner("a"), plain.to_owned());
                assert!(keys.is_text_current(&stored), "{plain:?}");
                assert_eq!(keys.open_text(owner("a"), stored.clone()).unwrap(), plain);
                assert_eq!(
                    stored == plain,
                    plain.is_empty() || (keys.is_empty() && plain == "text"),
                    "{stored}"
                );
                let bytes = keys.seal(owner("a"), plain.replace('\u{1}', "\0").into_bytes());
                assert_eq!(keys.open(owner("a"), bytes).unwrap(), plain.replace('\u{1}', "\0").as_bytes());
            }
        }
        assert!(
            matches!(keys(&[1]).open_text(owner("b"), forged.clone()), Err(Error::Corrupt { .. })),
            "another row"
        );
        assert!(matches!(keys(&[2]).open_text(owner("a"), forged.clone()), Err(Error::RowKeyMissing { .. })));
        assert!(!keys(&[2, 1]).is_text_current(&forged) && !StateKeys::default().is_text_current(&forged));
        for end in TEXT_MARK.len()..forged.len() {
            assert!(keys(&[1]).open_text(owner("a"), forged[..end].to_owned()).is_err(), "{end}");
        }
    }

    #[test]
    fn a_missing_key_is_named_and_a_changed_state_is_refused() {
        let sealed = keys(&[1]).seal(owner(1), b"state".to_vec());
        let error = keys(&[2]).open(owner(1), sealed.clone()).unwrap_err().to_string();
        assert!(error.contains(&keys(&[1]).current().unwrap()), "{error}");
        assert!(matches!(
            StateKeys::default().open(owner(1), sealed.clone()),
            Err(Error::RowKeyMissing { .. })
        ));
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
    fn errors_name_the_row_and_a_value_belongs_to_one_row() {
        let id = uuid::Uuid::from_u128(1);
        let owners = [
            (Owner::Build(BuildId(id)), "workspace_build_states", "state", id.to_string()),
            (Owner::Journal(JobId(id)), "provisioner_job_journals", "state", id.to_string()),
            (Owner::Link(UserId(id), "github"), "external_auth_links", "tokens", format!("{id} github")),
            (Owner::Link(UserId(id), "gitlab"), "external_auth_links", "tokens", format!("{id} gitlab")),
            (Owner::Cell { table: "t", column: "c", id: "7" }, "t", "c", "7".to_owned()),
            (Owner::Cell { table: "t", column: "d", id: "7" }, "t", "d", "7".to_owned()),
        ];
        for (number, (owner, table, column, row)) in owners.iter().enumerate() {
            let sealed = keys(&[1]).seal(*owner, b"state".to_vec());
            let missing = keys(&[2]).open(*owner, sealed.clone()).unwrap_err();
            assert!(
                matches!(&missing, Error::RowKeyMissing { table: t, id, .. } if t == table && id == row),
                "{missing:?}"
            );
            for (other, (reader, ..)) in owners.iter().enumerate() {
                assert_eq!(keys(&[1]).open(*reader, sealed.clone()).is_ok(), number == other, "{reader:?}");
            }
            let cut = keys(&[1]).open(*owner, sealed[..sealed.len() - 1].to_vec()).unwrap_err();
            let cut_text = keys(&[1]).open_text(*owner, TEXT_MARK.to_owned()).unwrap_err();
            for error in [cut, cut_text] {
                assert!(
                    matches!(&error, Error::Corrupt { table: t, column: c, id, .. }
                        if t == table && c == column && id == row),
                    "{error:?}"
                );
            }
        }
    }

    #[test]
    fn keys_are_known_by_their_ids() {
        let both = keys(&[2, 1]);
        let [first, second] = [2, 1].map(|number| keys(&[number]).current().unwrap());
        assert_ne!(first, second);
        assert_eq!(both.current().as_ref(), Some(&first));
        assert_eq!(both.cipher(), format!("aes-256-gcm {first}"));
        assert_eq!(format!("{both:?}"), format!("[{first:?}, {second:?}]"));
        assert!(both.has(&first) && both.has(&second) && !keys(&[2]).has(&second));
        assert_eq!(key_name(&both.seal(owner(1), b"state".to_vec())), Some(first));
        assert_eq!(key_name(b"state"), None);
        let none = StateKeys::default();
        assert!(none.is_empty() && !both.is_empty());
        assert_eq!((none.current(), none.cipher()), (None, String::new()));
        for (stored, special) in
            [(MARK, true), (PLAIN, true), (TEXT_MARK.as_bytes(), true), (b"state", false), (b"", false)]
        {
            assert_eq!(StateKeys::is_special(stored), special);
        }
    }

    #[test]
    fn keys_are_32_bytes_and_never_shown() {
        let good = Secret::new(BASE64_STANDARD.encode([7; KEY_BYTES]));
        let bad = Secret::new(BASE64_STANDARD.encode([7; 31]));
        assert_eq!(StateKeys::parse(&[good.clone(), bad]).unwrap_err(), InvalidKey { number: 2 });
        let shown = format!("{:?}", StateKeys::parse(&[good]).unwrap());
        assert_eq!(shown.len(), "[\"01234567\"]".len());
    }
}
