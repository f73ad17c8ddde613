//! OpenPGP packets, as far as public keys and signatures need them (RFC 9580 sections 4.2, 5.2 and 5.5).

use super::Error;

/// A public key of the supported kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    /// Seconds since 1970.
    pub(super) created: u32,
    pub(super) modulus: Vec<u8>,
    pub(super) exponent: Vec<u8>,
    /// The packet's content, which signatures cover.
    pub(super) body: Vec<u8>,
}

/// A signature of the supported kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) kind: u8,
    /// The number of the hash algorithm.
    pub(super) hash: u8,
    /// Seconds since 1970.
    pub(super) created: Option<u32>,
    pub(super) key_expires_after: Option<u32>,
    pub(super) flags: Option<u8>,
    pub(super) issuer: Option<[u8; 8]>,
    /// What is hashed after the signed data.
    pub(super) hashed: Vec<u8>,
    pub(super) number: Vec<u8>,
}

pub(super) enum Packet {
    PublicKey(Result<PublicKey, Error>),
    Subkey(Result<PublicKey, Error>),
    User(Vec<u8>),
    Signature(Result<Signature, Error>),
    Other,
}

/// Reads from the front of a slice.
struct PacketReader<'a>(&'a [u8]);

const TRUNCATED: Error = Error::Malformed("it is truncated");

impl<'a> PacketReader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self, bytes: usize) -> Result<usize, Error> {
        let bytes = self.take(bytes)?;
        Ok(bytes.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    fn time(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number(4)?).map_err(|_| TRUNCATED)
    }

    /// A multiprecision integer without leading zeros.
    fn big(&mut self) -> Result<Vec<u8>, Error> {
        let bits = self.number(2)?;
        Ok(self.take(bits.div_ceil(8))?.to_vec())
    }
}

/// All packets, including unknown ones.
pub(super) fn all(bytes: &[u8]) -> Result<Vec<Packet>, Error> {
    let mut reader = PacketReader(bytes);
    let mut packets = Vec::new();
    while !reader.0.is_empty() {
        let header = reader.byte()?;
        if header & 0x80 == 0 {
            return Err(Error::Malformed("there is data between the packets"));
        }
        let is_new = header & 0x40 != 0;
        let tag = if is_new { header & 0x3f } else { header >> 2 & 0x0f };
        let length = if is_new { new_length(&mut reader)? } else { old_length(&mut reader, header & 3)? };
        let body = reader.take(length)?;
        packets.push(match tag {
            2 => Packet::Signature(signature(body)),
            6 => Packet::PublicKey(public_key(body)),
            13 => Packet::User(body.to_vec()),
            14 => Packet::Subkey(public_key(body)),
            _ => Packet::Other,
        });
    }
    Ok(packets)
}

fn new_length(reader: &mut PacketReader<'_>) -> Result<usize, Error> {
    Ok(match reader.byte()? {
        short @ ..192 => usize::from(short),
        middle @ 192..224 => ((usize::from(middle) - 192) << 8) + usize::from(reader.byte()?) + 192,
        255 => reader.number(4)?,
        _ => return Err(Error::Unsupported("packets in parts")),
    })
}

fn old_length(reader: &mut PacketReader<'_>, kind: u8) -> Result<usize, Error> {
    match kind {
        0 => reader.number(1),
        1 => reader.number(2),
        2 => reader.number(4),
        _ => Err(Error::Unsupported("packets without a length")),
    }
}

fn public_key(body: &[u8]) -> Result<PublicKey, Error> {
    let mut reader = PacketReader(body);
    if reader.byte()? != 4 {
        return Err(Error::Unsupported("a key that is not of version 4"));
    }
    let created = reader.time()?;
    // RSA, or RSA for signatures only.
    if !matches!(reader.byte()?, 1 | 3) {
        return Err(Error::Unsupported("a key that is not RSA"));
    }
    let (modulus, exponent) = (reader.big()?, reader.big()?);
    Ok(PublicKey { created, modulus, exponent, body: body.to_vec() })
}

fn signature(body: &[u8]) -> Result<Signature, Error> {
    let mut reader = PacketReader(body);
    if reader.byte()? != 4 {
        return Err(Error::Unsupported("a signature that is not of version 4"));
    }
    let kind = reader.byte()?;
    if !matches!(reader.byte()?, 1 | 3) {
        return Err(Error::Unsupported("a signature that is not RSA"));
    }
    let hash = reader.byte()?;
    let length = reader.number(2)?;
    let hashed_subpackets = reader.take(length)?;
    let mut hashed = body[..6 + length].to_vec();
    hashed.extend([4, 0xff]);
    hashed.extend(u32::try_from(6 + length).map_err(|_| TRUNCATED)?.to_be_bytes());
    let length = reader.number(2)?;
    let unhashed_subpackets = reader.take(length)?;
    reader.take(2)?;
    let number = reader.big()?;
    let mut signature = Signature {
        kind,
        hash,
        created: None,
        key_expires_after: None,
        flags: None,
        issuer: None,
        hashed,
        number,
    };
    signature.read(hashed_subpackets, true)?;
    signature.read(unhashed_subpackets, false)?;
    Ok(signature)
}

impl Signature {
    /// Subpackets. Of the unhashed ones only the issuer is read, which is only a hint.
    fn read(&mut self, subpackets: &[u8], are_hashed: bool) -> Result<(), Error> {
        let mut reader = PacketReader(subpackets);
        while !reader.0.is_empty() {
            let length = match reader.byte()? {
                short @ ..192 => usize::from(short),
                middle @ 192..255 => ((usize::from(middle) - 192) << 8) + usize::from(reader.byte()?) + 192,
                255 => reader.number(4)?,
            };
            let mut content = PacketReader(reader.take(length)?);
            let kind = content.byte()?;
            let is_critical = kind & 0x80 != 0;
            match (kind & 0x7f, are_hashed) {
                (2, true) => self.created = Some(content.time()?),
                (9, true) => self.key_expires_after = Some(content.time()?),
                (27, true) => self.flags = content.0.first().copied(),
                (16, _) => self.issuer = content.take(8)?.try_into().ok(),
                // A version and a fingerprint, whose last eight bytes are the key id.
                (33, _) if content.0.len() == 21 => self.issuer = content.0[13..].try_into().ok(),
                (_, true) if is_critical => {
                    return Err(Error::Unsupported("a critical subpacket that is unknown"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_all_forms() {
        let mut bytes = vec![0xcd, 1, b'a'];
        bytes.extend([0xcd, 192, 8]);
        bytes.extend([b'b'; 200]);
        bytes.extend([0xcd, 255, 0, 0, 0, 2, b'c', b'c']);
        bytes.extend([0xb4, 1, b'd', 0xb5, 0, 1, b'e', 0xb6, 0, 0, 0, 1, b'f']);
        let users: Vec<_> = all(&bytes)
            .unwrap()
            .into_iter()
            .map(|packet| if let Packet::User(id) = packet { id } else { panic!("no user") })
            .collect();
        assert_eq!(users, [vec![b'a'], vec![b'b'; 200], vec![b'c'; 2], vec![b'd'], vec![b'e'], vec![b'f']]);
    }

    #[test]
    fn nothing_is_taken_from_a_declared_length() {
        for bytes in [&[0xcd_u8, 255, 255, 255, 255, 255][..], &[0xcd], &[0xb7, 1], &[0xcd, 224, 1], &[1]] {
            assert!(all(bytes).is_err(), "{bytes:?}");
        }
    }
}
