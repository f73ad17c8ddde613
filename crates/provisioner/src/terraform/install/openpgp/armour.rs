//! ASCII armor: Base64 between two marker lines (RFC 9580 section 6).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Error;

/// The content of all blocks of a kind. Their checksums are ignored, because signatures prove more.
pub(super) fn blocks(text: &str, kind: &str) -> Result<Vec<Vec<u8>>, Error> {
    let (begin, end) = (format!("-----BEGIN PGP {kind}-----"), format!("-----END PGP {kind}-----"));
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.by_ref().any(|line| line == begin) {
        let mut content = String::new();
        let mut is_whole = false;
        let mut in_headers = true;
        for line in lines.by_ref() {
            if line == end {
                is_whole = true;
                break;
            }
            if in_headers {
                in_headers = line.contains(": ");
                if in_headers || line.is_empty() {
                    continue;
                }
            }
            if !line.starts_with('=') {
                content.push_str(line);
            }
        }
        if !is_whole {
            return Err(Error::Malformed("a block has no end"));
        }
        blocks.push(STANDARD.decode(content).map_err(|_| Error::Malformed("a block is not Base64"))?);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_headers_checksums_and_words_around() {
        let text = "words\n-----BEGIN PGP SIGNATURE-----\nVersion: 1\n\nYWJj\nZGVm\n=abcd\n-----END PGP SIGNATURE-----\r\n\
                    -----BEGIN PGP SIGNATURE-----\nZw==\n-----END PGP SIGNATURE-----";
        assert_eq!(blocks(text, "SIGNATURE").unwrap(), [b"abcdef".to_vec(), b"g".to_vec()]);
        assert!(blocks(text, "MESSAGE").unwrap().is_empty());
        assert!(blocks("-----BEGIN PGP SIGNATURE-----\n\nYWJj\n", "SIGNATURE").is_err());
        assert!(
            blocks("-----BEGIN PGP SIGNATURE-----\n\n?\n-----END PGP SIGNATURE-----", "SIGNATURE").is_err()
        );
    }
}
