//! Removes escapes, color codes and line breaks from a text, and maps each byte back to its place in the
//! original.
//!
//! A secret that a program prints in JSON, in a URL, in HTML or in colors is still the secret, also behind
//! several of these. Each pass removes one layer; the caller searches for secrets after each.

use std::ops::Range;

/// Maximum number of layers: JSON in JSON in JSON, in colors.
const MAX_PASSES: usize = 4;

const ESCAPE: u8 = 0x1b;

/// The longest HTML entity, with `&` and `;`.
const MAX_ENTITY_BYTES: usize = 12;

/// Bytes, each with its range in the original.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub(crate) bytes: Vec<u8>,
    places: Vec<Range<u32>>,
}

/// What the next bytes mean.
enum EscapeToken {
    /// This many bytes decode to these.
    Means(usize, Decoded),
    /// The input ends inside an escape sequence.
    Open,
    /// An ordinary byte.
    Plain,
}

/// At most four bytes.
struct Decoded([u8; 4], usize);

impl Decoded {
    const NOTHING: Self = Self([0; 4], 0);

    const fn byte(byte: u8) -> Self {
        Self([byte, 0, 0, 0], 1)
    }

    fn character(character: char) -> Self {
        let mut bytes = [0; 4];
        let length = character.encode_utf8(&mut bytes).len();
        Self(bytes, length)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Layer {
    /// Maps a range of this layer to the original.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        let (Some(first), Some(last)) =
            (self.places.get(range.start), self.places.get(range.end.wrapping_sub(1)))
        else {
            return 0..0;
        };
        first.start as usize..last.end as usize
    }

    /// The bytes without one layer of escapes; `None` when there are none. With `closed`, an incomplete escape
    /// at the end is dropped, because the rest may follow in the next text.
    fn next(bytes: &[u8], places: Option<&[Range<u32>]>, closed: bool) -> Option<Self> {
        if !bytes.iter().any(|byte| matches!(*byte, ESCAPE | b'\n' | b'\r' | b'\\' | b'%' | b'&')) {
            return None;
        }
        let place = |from: usize, to: usize| match places {
            Some(places) => places[from].start..places[to - 1].end,
            // The caller bounds the original far below what 32 bits hold.
            None => u32::try_from(from).unwrap_or(u32::MAX)..u32::try_from(to).unwrap_or(u32::MAX),
        };
        let mut layer =
            Self { bytes: Vec::with_capacity(bytes.len()), places: Vec::with_capacity(bytes.len()) };
        let (mut at, mut changed) = (0, false);
        while at < bytes.len() {
            let (length, meaning) = match token(&bytes[at..]) {
                EscapeToken::Means(length, meaning) => {
                    changed = true;
                    (length, meaning)
                }
                EscapeToken::Open if closed => {
                    changed = true;
                    break;
                }
                EscapeToken::Open | EscapeToken::Plain => (1, Decoded::byte(bytes[at])),
            };
            for byte in meaning.bytes() {
                layer.bytes.push(*byte);
                layer.places.push(place(at, at + length));
            }
            at += length;
        }
        changed.then_some(layer)
    }
}

/// The layers of a text, outermost first; each costs one pass over the text. With `closed`, an incomplete
/// escape at the end is dropped.
pub(crate) fn layers(text: &[u8], closed: bool) -> impl Iterator<Item = Layer> + use<> {
    let first = Layer::next(text, None, closed);
    let mut next = first;
    let mut left = MAX_PASSES;
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let layer = next.take()?;
        if left > 0 {
            next = Layer::next(&layer.bytes, Some(&layer.places), closed);
        }
        Some(layer)
    })
}

/// The innermost layer of a text, or the text itself.
pub(crate) fn innermost(text: &str) -> Vec<u8> {
    layers(text.as_bytes(), false).last().map_or_else(|| text.as_bytes().to_vec(), |layer| layer.bytes)
}

fn token(bytes: &[u8]) -> EscapeToken {
    match bytes[0] {
        // A wrapped text is one text, including its indentation.
        b'\n' | b'\r' => {
            let blanks = bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r' | b' ' | b'\t'));
            EscapeToken::Means(blanks.count(), Decoded::NOTHING)
        }
        ESCAPE => control(bytes),
        b'\\' => backslash(bytes),
        b'%' => match hexadecimal(bytes, 1, 2) {
            HexNumber::Is(byte) => EscapeToken::Means(3, Decoded::byte(low_byte(byte))),
            HexNumber::Open => EscapeToken::Open,
            HexNumber::None => EscapeToken::Plain,
        },
        b'&' => entity(bytes),
        _ => EscapeToken::Plain,
    }
}

/// A terminal control sequence (ECMA-48): colors, cursor movement, titles and links.
fn control(bytes: &[u8]) -> EscapeToken {
    let Some(kind) = bytes.get(1) else { return EscapeToken::Open };
    let rest = &bytes[2..];
    match kind {
        b'[' => match rest.iter().position(|byte| !(0x20..=0x3f).contains(byte)) {
            Some(end) => EscapeToken::Means(2 + end + 1, Decoded::NOTHING),
            None => EscapeToken::Open,
        },
        b']' => {
            for (at, byte) in rest.iter().enumerate() {
                match byte {
                    0x07 => return EscapeToken::Means(2 + at + 1, Decoded::NOTHING),
                    &ESCAPE => return EscapeToken::Means((2 + at + 2).min(bytes.len()), Decoded::NOTHING),
                    _ => {}
                }
            }
            EscapeToken::Open
        }
        // Sequences that select a character set have one more byte.
        b'(' | b')' => EscapeToken::Means(bytes.len().min(3), Decoded::NOTHING),
        _ => EscapeToken::Means(2, Decoded::NOTHING),
    }
}

/// Backslash escapes of JSON, shells and programming languages.
fn backslash(bytes: &[u8]) -> EscapeToken {
    let Some(kind) = bytes.get(1) else { return EscapeToken::Open };
    let plain = |byte| EscapeToken::Means(2, Decoded::byte(byte));
    let number = |digits: usize| match hexadecimal(bytes, 2, digits) {
        HexNumber::Is(number) => char::from_u32(number).map_or(EscapeToken::Plain, |character| {
            EscapeToken::Means(2 + digits, Decoded::character(character))
        }),
        HexNumber::Open => EscapeToken::Open,
        HexNumber::None => EscapeToken::Plain,
    };
    match kind {
        b'"' | b'\'' | b'\\' | b'/' => plain(*kind),
        b'n' => plain(b'\n'),
        b'r' => plain(b'\r'),
        b't' => plain(b'\t'),
        b'e' => plain(ESCAPE),
        b'x' => match hexadecimal(bytes, 2, 2) {
            HexNumber::Is(byte) => EscapeToken::Means(4, Decoded::byte(low_byte(byte))),
            HexNumber::Open => EscapeToken::Open,
            HexNumber::None => EscapeToken::Plain,
        },
        b'U' => number(8),
        b'u' => match hexadecimal(bytes, 2, 4) {
            HexNumber::Is(high @ 0xd800..0xdc00) => surrogates(bytes, high),
            _ => number(4),
        },
        b'0' => match bytes.get(2..4) {
            // The only character that is commonly written in octal.
            Some(b"33") => EscapeToken::Means(4, Decoded::byte(ESCAPE)),
            Some(_) => EscapeToken::Plain,
            None => EscapeToken::Open,
        },
        _ => EscapeToken::Plain,
    }
}

/// A character above U+FFFF, which JSON writes as a surrogate pair.
fn surrogates(bytes: &[u8], high: u32) -> EscapeToken {
    let low = match bytes.get(6..8) {
        Some(b"\\u") => hexadecimal(bytes, 8, 4),
        Some(_) => HexNumber::None,
        None => HexNumber::Open,
    };
    match low {
        HexNumber::Is(low @ 0xdc00..0xe000) => {
            let number = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            char::from_u32(number)
                .map_or(EscapeToken::Plain, |character| EscapeToken::Means(12, Decoded::character(character)))
        }
        HexNumber::Open => EscapeToken::Open,
        HexNumber::Is(_) | HexNumber::None => EscapeToken::Plain,
    }
}

fn entity(bytes: &[u8]) -> EscapeToken {
    let window = &bytes[..bytes.len().min(MAX_ENTITY_BYTES)];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'#';
    let Some(end) = window.iter().skip(1).position(|byte| !is_part(byte)).map(|at| at + 1) else {
        return if window.len() < MAX_ENTITY_BYTES { EscapeToken::Open } else { EscapeToken::Plain };
    };
    if window[end] != b';' {
        return EscapeToken::Plain;
    }
    let character = match std::str::from_utf8(&window[1..end]).unwrap_or_default() {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        name => match name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => name.strip_prefix('#').and_then(|digits| digits.parse().ok()),
        }
        .and_then(char::from_u32),
    };
    character
        .map_or(EscapeToken::Plain, |character| EscapeToken::Means(end + 1, Decoded::character(character)))
}

enum HexNumber {
    Is(u32),
    /// The input ends inside the number.
    Open,
    None,
}

/// `digits` hexadecimal digits at `from`.
fn hexadecimal(bytes: &[u8], from: usize, digits: usize) -> HexNumber {
    let mut number: u32 = 0;
    for at in from..from + digits {
        let Some(byte) = bytes.get(at) else { return HexNumber::Open };
        let Some(digit) = char::from(*byte).to_digit(16) else { return HexNumber::None };
        number = number << 4 | digit;
    }
    HexNumber::Is(number)
}

fn low_byte(number: u32) -> u8 {
    // It has two digits.
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(text: &str) -> String {
        String::from_utf8_lossy(&innermost(text)).into_owned()
    }

    #[test]
    fn every_escape_is_decoded() {
        for (text, wanted) in [
            ("plain", "plain"),
            (r#"a\"b\\c\/d\'e"#, r#"a"b\c/d'e"#),
            (r"\u0068\x69\U0000006a", "hij"),
            (r"\ud83d\ude00", "😀"),
            ("%68%69%C3%A4", "hiä"),
            ("&amp;&lt;&gt;&quot;&apos;&#39;&#x27;&#228;", "&<>\"''\'ä"),
            ("a\x1b[1;31mb\x1b[0mc", "abc"),
            ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x1b(Bd\x1bMe", "abcde"),
            (r"a\u001b[31mb\x1b[0mc\033[1md\e[2me", "abcde"),
            ("one\r\n   two\n\tthree", "onetwothree"),
            // None of these is complete.
            (
                r"%6 %zz \u12 \ud83d \q & &; &bogus; &toolongtobeone; \x",
                r"%6 %zz \u12 \ud83d \q & &; &bogus; &toolongtobeone; \x",
            ),
        ] {
            assert_eq!(inner(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn layers_are_taken_away_one_by_one_and_not_without_end() {
        let mut text = "a\"b".to_owned();
        for depth in 1..=MAX_PASSES + 1 {
            text = serde_json::to_string(&text).unwrap().trim_matches('"').to_owned();
            if depth <= MAX_PASSES {
                assert_eq!(inner(&text), "a\"b", "{text}");
            } else {
                assert_ne!(inner(&text), "a\"b", "{text}");
            }
            assert!(layers(text.as_bytes(), false).count() <= MAX_PASSES);
        }
    }

    #[test]
    fn places_lead_back_to_the_original() {
        let text = r"x\\u0061\\u0062y";
        let last = layers(text.as_bytes(), false).last().unwrap();
        assert_eq!(last.bytes, b"xaby");
        assert_eq!(&text[last.original(1..3)], r"\\u0061\\u0062");
        assert_eq!(&text[last.original(3..4)], "y");
        assert_eq!(last.original(0..4), 0..text.len());
    }

    #[test]
    fn an_escape_that_is_cut_can_be_left_out() {
        for cut in
            ["%", "%6", "\\", r"\u00", r"\ud83d", r"\ud83d\u", "&", "&am", "\x1b", "\x1b[3", "\x1b]0;t"]
        {
            let text = format!("secret{cut}");
            let closed = layers(text.as_bytes(), true).next().unwrap();
            assert_eq!(closed.bytes, b"secret", "{cut:?}");
            assert!(layers(text.as_bytes(), false).next().is_none(), "{cut:?}");
        }
    }
}
