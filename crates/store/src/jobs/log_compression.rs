//! The text of a batch of log lines as it is stored: compressed, unless it is so short that this gains nothing.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Shorter texts stay text.
const MIN_COMPRESSED_BYTES: usize = 1 << 10;

/// A row holds far less; more is no batch of lines.
const MAX_BYTES: u64 = 64 << 20;

/// What goes into the columns `lines` and `packed`; one of them is empty.
pub(crate) fn compress(text: String) -> (String, Option<Vec<u8>>) {
    if text.len() < MIN_COMPRESSED_BYTES {
        return (text, None);
    }
    // Much of a log is alike, so the quickest way already saves most of it.
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    (String::new(), Some(packed.expect("memory takes what is written to it")))
}

/// The text of the two columns.
pub(crate) fn decompress(lines: String, packed: Option<Vec<u8>>) -> std::io::Result<String> {
    let Some(packed) = packed else { return Ok(lines) };
    let mut text = String::new();
    DeflateDecoder::new(packed.as_slice()).take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_compressed_and_come_back() {
        for text in
            [String::new(), "short".to_owned(), "a line like all others\n".repeat(10_000), "ä".repeat(5_000)]
        {
            let (lines, packed) = compress(text.clone());
            let size = lines.len() + packed.as_ref().map_or(0, Vec::len);
            assert!(size <= MIN_COMPRESSED_BYTES.max(text.len() / 10), "{size} of {}", text.len());
            assert_eq!(decompress(lines, packed).unwrap(), text);
        }
    }

    #[test]
    fn broken_bytes_are_an_error_and_endless_ones_end() {
        let (_, packed) = compress("x".repeat(1 << 20));
        let packed = packed.unwrap();
        assert!(decompress(String::new(), Some(packed[..packed.len() / 2].to_vec())).is_err());
        assert!(decompress(String::new(), Some(vec![0xff; 100])).is_err());
        let bomb = compress("x".repeat(usize::try_from(MAX_BYTES).unwrap() + (1 << 20))).1;
        assert_eq!(decompress(String::new(), bomb).unwrap().len() as u64, MAX_BYTES);
    }
}
