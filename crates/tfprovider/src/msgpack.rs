//! The msgpack form of values: a bounded reader and a writer of the subset that Terraform uses.

use std::collections::BTreeMap;

use crate::value::Value;

/// How deep values may nest. The deepest schema here needs seven levels.
const MAX_DEPTH: usize = 32;

/// The extension a value that is unknown and refined by some facts travels as.
const REFINED_UNKNOWN: u8 = 12;

/// Why bytes are not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("a value ends too early")]
    Truncated,
    #[error("a value is followed by {0} more bytes")]
    Trailing(usize),
    #[error("byte {0:#04x} starts no value that Terraform sends")]
    Unexpected(u8),
    #[error("a value nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("text is not UTF-8")]
    NotUtf8,
    #[error("the name of a field is not text")]
    NameNotText,
}

/// Reads exactly one value.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, Error> {
    let mut reader = Reader { rest: bytes };
    let value = reader.value(0)?;
    if reader.rest.is_empty() { Ok(value) } else { Err(Error::Trailing(reader.rest.len())) }
}

/// Writes one value.
pub(crate) fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    /// A length of one, two or four bytes.
    fn length(&mut self, bytes: usize) -> Result<usize, Error> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let first = self.byte()?;
        Ok(match first {
            0x00..=0x7f => Value::Int(i64::from(first)),
            0x80..=0x8f => self.fields(usize::from(first & 0x0f), depth)?,
            0x90..=0x9f => self.elements(usize::from(first & 0x0f), depth)?,
            0xa0..=0xbf => self.text(usize::from(first & 0x1f))?,
            0xc0 => Value::Null,
            0xc2 => Value::Bool(false),
            0xc3 => Value::Bool(true),
            // Binary carries text where a peer wrote it so.
            0xc4..=0xc6 => {
                let length = self.length(1 << (first - 0xc4))?;
                self.text(length)?
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (first - 0xc7))?;
                self.extension(length)?
            }
            0xca => Value::Float(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => Value::Float(f64::from_be_bytes(self.array()?)),
            0xcc => Value::Int(i64::from(self.byte()?)),
            0xcd => Value::Int(i64::from(u16::from_be_bytes(self.array()?))),
            0xce => Value::Int(i64::from(u32::from_be_bytes(self.array()?))),
            0xcf => {
                let number = u64::from_be_bytes(self.array()?);
                i64::try_from(number).map_or(Value::Float(number as f64), Value::Int)
            }
            0xd0 => Value::Int(i64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => Value::Int(i64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => Value::Int(i64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => Value::Int(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => self.extension(1 << (first - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(1 << (first - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let count = self.length(if first == 0xdc { 2 } else { 4 })?;
                self.elements(count, depth)?
            }
            0xde | 0xdf => {
                let count = self.length(if first == 0xde { 2 } else { 4 })?;
                self.fields(count, depth)?
            }
            0xe0..=0xff => Value::Int(i64::from(first.cast_signed())),
            0xc1 => return Err(Error::Unexpected(first)),
        })
    }

    fn text(&mut self, length: usize) -> Result<Value, Error> {
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| Error::NotUtf8)?;
        Ok(Value::text(text))
    }

    /// Both extensions mean unknown; what else is known of the value is of no use here.
    fn extension(&mut self, length: usize) -> Result<Value, Error> {
        let kind = self.byte()?;
        self.take(length)?;
        if kind == 0 || kind == REFINED_UNKNOWN { Ok(Value::Unknown) } else { Err(Error::Unexpected(kind)) }
    }

    // A declared count allocates nothing: each element costs at least one byte that was received.
    fn elements(&mut self, count: usize, depth: usize) -> Result<Value, Error> {
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(self.value(depth + 1)?);
        }
        Ok(Value::List(elements))
    }

    fn fields(&mut self, count: usize, depth: usize) -> Result<Value, Error> {
        let mut fields = BTreeMap::new();
        for _ in 0..count {
            let Value::Text(name) = self.value(depth + 1)? else { return Err(Error::NameNotText) };
            fields.insert(name, self.value(depth + 1)?);
        }
        Ok(Value::Object(fields))
    }
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Unknown => out.extend([0xd4, 0, 0]),
        Value::Null => out.push(0xc0),
        Value::Bool(false) => out.push(0xc2),
        Value::Bool(true) => out.push(0xc3),
        Value::Int(number) => {
            out.push(0xd3);
            out.extend(number.to_be_bytes());
        }
        Value::Float(number) => {
            out.push(0xcb);
            out.extend(number.to_be_bytes());
        }
        Value::Text(text) => {
            head(out, text.len(), 0xdb);
            out.extend(text.as_bytes());
        }
        Value::List(items) => {
            head(out, items.len(), 0xdd);
            items.iter().for_each(|item| write(item, out));
        }
        Value::Object(fields) => {
            head(out, fields.len(), 0xdf);
            for (name, value) in fields {
                head(out, name.len(), 0xdb);
                out.extend(name.as_bytes());
                write(value, out);
            }
        }
    }
}

/// The kind and the length, in four bytes always: readers accept it and one form is simpler than three.
fn head(out: &mut Vec<u8>, length: usize, kind: u8) {
    let length = u32::try_from(length).expect("no value is larger than the message it came in");
    out.push(kind);
    out.extend(length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        Value::object([
            ("bool", Value::Bool(true)),
            ("float", Value::Float(1.5)),
            ("int", Value::Int(-7)),
            ("list", Value::List(vec![Value::text("a"), Value::Unknown, Value::Null])),
            ("long", Value::text("x".repeat(70_000))),
        ])
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert!(decode(&encode(&sample())) == Ok(sample()));
    }

    #[test]
    fn compact_forms_of_a_peer_are_read() {
        let check = |bytes: &[u8], expected: Value| assert!(decode(bytes) == Ok(expected), "{bytes:x?}");
        check(&[0x05], Value::Int(5));
        check(&[0xff], Value::Int(-1));
        check(&[0xcc, 200], Value::Int(200));
        check(&[0xcd, 1, 0], Value::Int(256));
        check(&[0xd1, 0xff, 0xfe], Value::Int(-2));
        check(&[0xcf, 0xff, 0, 0, 0, 0, 0, 0, 0], Value::Float(18_374_686_479_671_623_680.0));
        check(&[0xa2, b'h', b'i'], Value::text("hi"));
        check(&[0xd9, 2, b'h', b'i'], Value::text("hi"));
        check(&[0x92, 0xc0, 0xc3], Value::List(vec![Value::Null, Value::Bool(true)]));
        check(&[0x81, 0xa1, b'k', 0x01], Value::object([("k", Value::Int(1))]));
        check(&[0xd4, 0, 0], Value::Unknown);
        check(&[0xc7, 3, REFINED_UNKNOWN, 0x81, 0x01, 0xc2], Value::Unknown);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = encode(&Value::List(vec![sample(), Value::Int(3)]));
        for length in (0..200).chain(bytes.len() - 20..bytes.len()) {
            assert_eq!(decode(&bytes[..length]).err(), Some(Error::Truncated), "{length}");
        }
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let error = |bytes: &[u8]| decode(bytes).err();
        assert_eq!(error(&[0x91; 100]), Some(Error::TooDeep));
        assert_eq!(error(&[0xdd, 0xff, 0xff, 0xff, 0xff]), Some(Error::Truncated));
        assert_eq!(error(&[0xdb, 0xff, 0xff, 0xff, 0xff, 1]), Some(Error::Truncated));
        assert_eq!(error(&[0xc1]), Some(Error::Unexpected(0xc1)));
        assert_eq!(error(&[0xd4, 7, 0]), Some(Error::Unexpected(7)));
        assert_eq!(error(&[0xa1, 0xff]), Some(Error::NotUtf8));
        assert_eq!(error(&[0x81, 0x01, 0x01]), Some(Error::NameNotText));
        assert_eq!(error(&[0xc0, 0xc0]), Some(Error::Trailing(1)));
    }
}
