//! Verifies detached OpenPGP signatures of a few trusted keys: version 4, RSA, SHA-2, and nothing else.
//!
//! The trusted keys are part of the program, so there is no web of trust, no key server and no private key. A
//! general library would add a hundred crates for ciphers and curves that no release uses; the arithmetic is
//! ring's. Rules: RFC 9580 (packets 4.2, keys 5.5.2, signatures 5.2, hashed data 5.2.4).

mod armour;
mod packet;

use ring::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RsaPublicKeyComponents,
};
use sha1::{Digest as _, Sha1};

use self::packet::{Packet, PublicKey, Signature};

/// Signature types.
mod kind {
    pub(super) const DATA: u8 = 0x00;
    pub(super) const USER: std::ops::RangeInclusive<u8> = 0x10..=0x13;
    pub(super) const SUBKEY: u8 = 0x18;
    pub(super) const KEY_REVOKED: u8 = 0x20;
    pub(super) const SUBKEY_REVOKED: u8 = 0x28;
}

const MAY_SIGN: u8 = 0x02;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("it is not OpenPGP: {0}")]
    Malformed(&'static str),
    #[error("it was made with key {0}, which is not trusted")]
    UnknownKey(String),
    #[error("it uses {0}, which is not supported")]
    Unsupported(&'static str),
    #[error("it does not match this file")]
    Wrong,
    #[error("key {0} was not valid when it was made")]
    NotValidThen(String),
}

/// A key, and the validity of its data signatures.
#[derive(Debug)]
struct TrustedKey {
    key: PublicKey,
    id: [u8; 8],
    /// Seconds since 1970; the end is exclusive.
    valid: std::ops::Range<u64>,
}

#[derive(Debug)]
pub(super) struct Keys(Vec<TrustedKey>);

impl Keys {
    /// Reads ASCII-armored public key blocks. Subkeys are trusted as far as their primary key certifies them.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let mut trusted = Vec::new();
        for block in armour::blocks(text, "PUBLIC KEY BLOCK")? {
            read_block(&block, &mut trusted)?;
        }
        if trusted.is_empty() {
            Err(Error::Malformed("it has no key that may sign"))
        } else {
            Ok(Self(trusted))
        }
    }

    /// Checks that one of the signatures, binary or armored, is one of `data` by a key that was valid at that
    /// time.
    ///
    /// Keys that have expired since are still accepted: a daemon must be able to install older releases.
    pub(super) fn verify(&self, data: &[u8], signatures: &[u8]) -> Result<(), Error> {
        let armoured = std::str::from_utf8(signatures).ok().filter(|text| text.contains("-----BEGIN"));
        let binary = match armoured {
            Some(text) => armour::blocks(text, "SIGNATURE")?.concat(),
            None => signatures.to_vec(),
        };
        let mut result = Err(Error::Malformed("there is no signature in it"));
        for packet in packet::all(&binary)? {
            if let Packet::Signature(signature) = packet {
                result = self.check(data, &signature?);
                if result.is_ok() {
                    break;
                }
            }
        }
        result
    }

    fn check(&self, data: &[u8], signature: &Signature) -> Result<(), Error> {
        if signature.kind != kind::DATA {
            return Err(Error::Unsupported("a signature type that is not for files"));
        }
        let issuer = signature.issuer.ok_or(Error::Malformed("it does not name its key"))?;
        let named = hex::encode_upper(issuer);
        let trusted = self.0.iter().find(|trusted| trusted.id == issuer);
        let trusted = trusted.ok_or_else(|| Error::UnknownKey(named.clone()))?;
        verify(&trusted.key, data, signature)?;
        let created = u64::from(signature.created.ok_or(Error::Malformed("it has no time"))?);
        if trusted.valid.contains(&created) { Ok(()) } else { Err(Error::NotValidThen(named)) }
    }
}

/// A key of a block, and the signatures by its primary key.
struct KeyBindings {
    /// `None` for an unsupported kind of key.
    key: Option<PublicKey>,
    is_primary: bool,
    /// The data that the following signatures cover.
    subject: Vec<u8>,
    newest: Option<Signature>,
    is_revoked: bool,
}

impl KeyBindings {
    fn of(key: Option<PublicKey>, subject: Vec<u8>, is_primary: bool) -> Self {
        Self { key, is_primary, subject, newest: None, is_revoked: false }
    }

    /// Adds a signature by the primary key; others are ignored.
    fn take(&mut self, signature: Signature, primary: &PublicKey) {
        let (revokes, binds) = match self.is_primary {
            true => (signature.kind == kind::KEY_REVOKED, kind::USER.contains(&signature.kind)),
            false => (signature.kind == kind::SUBKEY_REVOKED, signature.kind == kind::SUBKEY),
        };
        let is_newer = self.newest.as_ref().is_none_or(|known| known.created <= signature.created);
        let matters = revokes || (binds && is_newer);
        if !matters || verify(primary, &self.subject, &signature).is_err() {
            return;
        }
        if revokes {
            self.is_revoked = true;
        } else {
            self.newest = Some(signature);
        }
    }

    /// The key, if it may sign data.
    fn trusted(self) -> Option<TrustedKey> {
        let (key, signature) = (self.key?, self.newest?);
        let may_sign = signature.flags.is_none_or(|flags| flags & MAY_SIGN != 0);
        (may_sign && !self.is_revoked).then(|| TrustedKey {
            id: id_of(&key),
            valid: validity(&key, &signature),
            key,
        })
    }
}

/// One primary key, its users and its subkeys. Signatures follow the packet that they cover.
fn read_block(block: &[u8], trusted: &mut Vec<TrustedKey>) -> Result<(), Error> {
    let mut packets = packet::all(block)?.into_iter();
    let Some(Packet::PublicKey(primary)) = packets.next() else {
        return Err(Error::Malformed("a block of keys must begin with a primary key"));
    };
    let primary = primary?;
    let mut said = KeyBindings::of(Some(primary.clone()), hashed_key(&primary), true);
    for packet in packets {
        match packet {
            Packet::Signature(Ok(signature)) => said.take(signature, &primary),
            Packet::User(id) if said.is_primary => {
                said.subject = hashed_key(&primary);
                said.subject.push(0xB4);
                said.subject.extend(u32::try_from(id.len()).unwrap_or(u32::MAX).to_be_bytes());
                said.subject.extend(id);
            }
            Packet::Subkey(subkey) => {
                let subkey = subkey.ok();
                let mut subject = hashed_key(&primary);
                subject.extend(subkey.as_ref().map(hashed_key).unwrap_or_default());
                let before = std::mem::replace(&mut said, KeyBindings::of(subkey, subject, false));
                if before.is_primary && before.is_revoked {
                    // A revoked primary key certifies nothing.
                    return Ok(());
                }
                trusted.extend(before.trusted());
            }
            _ => {}
        }
    }
    trusted.extend(said.trusted());
    Ok(())
}

fn validity(key: &PublicKey, signature: &Signature) -> std::ops::Range<u64> {
    let created = u64::from(key.created);
    let end = match signature.key_expires_after {
        Some(seconds) if seconds > 0 => created + u64::from(seconds),
        _ => u64::MAX,
    };
    created..end
}

fn hashed_key(key: &PublicKey) -> Vec<u8> {
    let length = u16::try_from(key.body.len()).unwrap_or(u16::MAX);
    [&[0x99][..], &length.to_be_bytes(), &key.body].concat()
}

fn id_of(key: &PublicKey) -> [u8; 8] {
    let fingerprint = Sha1::digest(hashed_key(key));
    let mut id = [0; 8];
    id.copy_from_slice(&fingerprint[12..]);
    id
}

/// Verifies the signature alone.
fn verify(key: &PublicKey, subject: &[u8], signature: &Signature) -> Result<(), Error> {
    let algorithm = match signature.hash {
        8 => &RSA_PKCS1_2048_8192_SHA256,
        9 => &RSA_PKCS1_2048_8192_SHA384,
        10 => &RSA_PKCS1_2048_8192_SHA512,
        _ => return Err(Error::Unsupported("a hash that is not SHA-2")),
    };
    // Numbers are encoded without leading zeros, which the verification requires.
    let missing = key.modulus.len().saturating_sub(signature.number.len());
    let number = [&vec![0; missing][..], &signature.number].concat();
    let message = [subject, &signature.hashed].concat();
    RsaPublicKeyComponents { n: &key.modulus, e: &key.exponent }
        .verify(algorithm, &message, &number)
        .map_err(|_| Error::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_KEY: &str = include_str!("../../../../tests/releases/test-key.asc");
    const SUMS: &[u8] =
        include_bytes!("../../../../tests/releases/terraform/1.9.8/terraform_1.9.8_SHA256SUMS");
    const SIGNATURE: &[u8] =
        include_bytes!("../../../../tests/releases/terraform/1.9.8/terraform_1.9.8_SHA256SUMS.sig");
    const ARMOURED: &[u8] = include_bytes!("../../../../tests/releases/signatures/armoured.asc");
    const BY_PRIMARY: &[u8] = include_bytes!("../../../../tests/releases/signatures/by-primary.sig");
    const TOO_LATE: &[u8] = include_bytes!("../../../../tests/releases/signatures/too-late.sig");
    const BY_REVOKED: &[u8] = include_bytes!("../../../../tests/releases/signatures/by-revoked.sig");
    const BY_STRANGER: &[u8] = include_bytes!("../../../../tests/releases/signatures/by-stranger.sig");
    const TEXT_MODE: &[u8] = include_bytes!("../../../../tests/releases/signatures/text-mode.sig");
    const WITH_SHA1: &[u8] = include_bytes!("../../../../tests/releases/signatures/with-sha1.sig");

    fn keys() -> Keys {
        Keys::read(TEST_KEY).unwrap()
    }

    #[test]
    fn signatures_that_another_program_made_are_right() {
        for signature in [SIGNATURE, ARMOURED, BY_PRIMARY] {
            keys().verify(SUMS, signature).unwrap();
        }
    }

    #[test]
    fn signatures_that_are_not_right_are_refused() {
        for (signature, wanted) in [
            (TOO_LATE, "was not valid when it was made"),
            (BY_REVOKED, "which is not trusted"),
            (BY_STRANGER, "which is not trusted"),
            (TEXT_MODE, "a signature type that is not for files"),
            (WITH_SHA1, "a hash that is not SHA-2"),
            (b"", "there is no signature in it"),
        ] {
            let error = keys().verify(SUMS, signature).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        assert_eq!(keys().verify(&SUMS[1..], SIGNATURE).unwrap_err(), Error::Wrong);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused() {
        let keys = keys();
        for end in 0..SIGNATURE.len() {
            assert!(keys.verify(SUMS, &SIGNATURE[..end]).is_err(), "cut at {end}");
        }
        // The unhashed part, which contains the key id, may change without effect; the rest may not.
        let mut harmless = 0;
        for at in 0..SIGNATURE.len() {
            let mut changed = SIGNATURE.to_vec();
            changed[at] ^= 0x20;
            harmless += usize::from(keys.verify(SUMS, &changed).is_ok());
        }
        assert!(harmless < 24, "{harmless}");
    }

    #[test]
    fn the_keys_of_terraforms_makers_are_read() {
        let keys = Keys::read(super::super::HASHICORP_KEYS).unwrap();
        let ids: Vec<_> = keys.0.iter().map(|trusted| hex::encode_upper(trusted.id)).collect();
        assert_eq!(ids, ["34365D9472D7468F", "B0B441097685B676", "C820C6D5CD27AB87"]);
        // 2026-01-01, and after the expiry of the older subkey.
        let at = |seconds: u64| keys.0.iter().map(|key| key.valid.contains(&seconds)).collect::<Vec<_>>();
        assert_eq!(at(1_767_225_600), [true, false, true]);
        assert_eq!(at(1_620_000_000), [true, true, true]);
    }

    #[test]
    fn blocks_without_a_usable_key_are_refused() {
        for text in ["", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"]
        {
            assert!(Keys::read(text).is_err());
        }
        let cut = TEST_KEY.lines().take(6).collect::<Vec<_>>().join("\n");
        assert!(Keys::read(&cut).is_err());
    }
}
