//! Records: a length in 32 bits, big endian, and frames that are encrypted and authenticated.
//!
//! Each direction has a key of its own, made of the secret that the servers of a deployment share and of two random
//! numbers, one of each side. A record that was changed, left out or repeated does not open.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{Error, RECORD};

/// Length of the authentication tag in bytes.
const TAG: usize = 16;
/// Length of the header in bytes.
const HEADER: usize = 4;

/// The key of one direction, and the number of its next record.
pub(super) struct Key {
    key: LessSafeKey,
    next: u64,
}

impl Key {
    /// The key of a direction between two hellos.
    pub(super) fn derive(secret: &[u8], direction: &[u8], hellos: &[&[u8]]) -> Self {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
        context.update(direction);
        hellos.iter().for_each(|hello| context.update(hello));
        let key = UnboundKey::new(&AES_256_GCM, context.sign().as_ref());
        Self { key: LessSafeKey::new(key.expect("both have 32 bytes")), next: 0 }
    }

    fn nonce(&mut self) -> Nonce {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&self.next.to_be_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(bytes)
    }

    /// The record with these frames, at most [`RECORD`] bytes of them.
    pub(super) fn seal(&mut self, frames: &[u8]) -> Vec<u8> {
        let length = u32::try_from(frames.len() + TAG).expect("records are bounded far below").to_be_bytes();
        let mut record = Vec::with_capacity(HEADER + frames.len() + TAG);
        record.extend_from_slice(&length);
        record.extend_from_slice(frames);
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(length), &mut record[HEADER..]);
        record.extend_from_slice(tag.expect("a record is far below the limit of the cipher").as_ref());
        record
    }

    /// Reads the next record; none at the end of the stream.
    pub(super) async fn read(&mut self, io: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, Error> {
        let mut head = [0; HEADER];
        if io.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        io.read_exact(&mut head[1..]).await?;
        let length = u32::from_be_bytes(head);
        if length as usize > RECORD + TAG {
            return Err(Error::TooLong);
        }
        // Grows as bytes arrive; nothing is allocated from the declared length alone.
        let mut record = Vec::new();
        io.take(length.into()).read_to_end(&mut record).await?;
        if record.len() < length as usize {
            return Ok(None);
        }
        let nonce = self.nonce();
        let opened =
            self.key.open_in_place(nonce, Aad::from(head), &mut record).map_err(|_| Error::Secret)?;
        let length = opened.len();
        record.truncate(length);
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &[u8]) -> Key {
        Key::derive(secret, b"a", &[b"x", b"y"])
    }

    #[tokio::test]
    async fn records_open_in_their_order_and_with_their_key_only() {
        let mut writer = key(b"secret");
        let (first, second) = (writer.seal(b"first"), writer.seal(b"second"));
        let mut reader = key(b"secret");
        let stream = [&first[..], &second].concat();
        let mut stream = &stream[..];
        assert_eq!(reader.read(&mut stream).await.unwrap().unwrap(), b"first");
        assert_eq!(reader.read(&mut stream).await.unwrap().unwrap(), b"second");
        assert!(reader.read(&mut stream).await.unwrap().is_none());
        let refused = async |mut key: Key, record: &[u8]| {
            let mut record = record;
            matches!(key.read(&mut record).await, Err(Error::Secret))
        };
        assert!(refused(key(b"secret"), &second).await, "a record was left out");
        assert!(refused(key(b"other"), &first).await, "another secret");
        assert!(refused(Key::derive(b"secret", b"b", &[b"x", b"y"]), &first).await, "another direction");
        assert!(refused(Key::derive(b"secret", b"a", &[b"x", b"z"]), &first).await, "another connection");
        let mut changed = first.clone();
        changed[6] ^= 1;
        assert!(refused(key(b"secret"), &changed).await, "changed");
    }

    #[tokio::test]
    async fn long_records_are_refused_by_their_header() {
        let length = u32::try_from(RECORD + TAG + 1).unwrap().to_be_bytes();
        assert!(matches!(key(b"s").read(&mut &length[..]).await, Err(Error::TooLong)));
    }
}
