//! Compresses the text of a batch of log lines, unless it is too short to benefit.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Shorter texts are not compressed.
const MIN_COMPRESSED_BYTES: usize = 1 << 10;

/// A bound on the decompressed text. Valid rows hold far less.
const MAX_BYTES: u64 = 64 << 20;

/// The values of the columns `lines` and `packed`. One of them is empty.
pub(crate) fn compress(text: String) -> (String, Option<Vec<u8>>) {
    if text.len() < MIN_COMPRESSED_BYTES {
        return (text, None);
    }
    // Log lines repeat much text, so the fastest compression already saves most of the space.
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    (String::new(), Some(packed.expect("memory takes what is written to it")))
}

/// The text from the two columns.
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
    fn a_text_is_compressed_from_a_length_on() {
        for (length, is_compressed) in
            [(0, false), (MIN_COMPRESSED_BYTES - 1, false), (MIN_COMPRESSED_BYTES, true)]
        {
            let (lines, packed) = compress("x".repeat(length));
            assert_eq!((lines.is_empty(), packed.is_some()), (length == 0 || is_compressed, is_compressed));
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
