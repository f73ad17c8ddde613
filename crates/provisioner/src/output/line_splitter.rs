//! Splits output into lines of bounded length.

/// Longer lines are passed on in parts.
pub(crate) const MAX_LINE_BYTES: usize = 1024 * 1024;

/// A whole line, or a part of one that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Line(Vec<u8>),
    Part(Vec<u8>),
}

impl Piece {
    /// Readable text without carriage return, invalid UTF-8 and NUL (wire-protocol 4.2).
    pub(crate) fn text(&self) -> String {
        let (Piece::Line(bytes) | Piece::Part(bytes)) = self;
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        crate::output::log_rows::strip_nul(&String::from_utf8_lossy(bytes)).into_owned()
    }
}

#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    open: Vec<u8>,
    too_long: bool,
}

impl LineSplitter {
    /// Takes input, and returns the complete pieces.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.extend(&bytes[..end], &mut pieces);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.open);
            if std::mem::take(&mut self.too_long) {
                if !line.is_empty() {
                    pieces.push(Piece::Part(line));
                }
            } else {
                pieces.push(Piece::Line(line));
            }
        }
        self.extend(bytes, &mut pieces);
        pieces
    }

    fn extend(&mut self, mut bytes: &[u8], pieces: &mut Vec<Piece>) {
        while self.open.len() + bytes.len() > MAX_LINE_BYTES {
            let (now, later) = bytes.split_at(MAX_LINE_BYTES - self.open.len());
            self.open.extend_from_slice(now);
            pieces.push(Piece::Part(std::mem::take(&mut self.open)));
            self.too_long = true;
            bytes = later;
        }
        self.open.extend_from_slice(bytes);
    }

    /// The last piece when the output ends.
    pub(crate) fn finish(self) -> Option<Piece> {
        if self.open.is_empty() {
            None
        } else if self.too_long {
            Some(Piece::Part(self.open))
        } else {
            Some(Piece::Line(self.open))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_arrive_in_any_portions() {
        let text = b"one\n\ntwo\r\nlast";
        for size in 1..=text.len() {
            let mut lines = LineSplitter::default();
            let mut seen: Vec<String> =
                text.chunks(size).flat_map(|chunk| lines.push(chunk)).map(|piece| piece.text()).collect();
            seen.extend(lines.finish().map(|piece| piece.text()));
            assert_eq!(seen, ["one", "", "two", "last"], "portions of {size}");
        }
    }

    #[test]
    fn endless_lines_come_in_parts_and_nothing_is_lost() {
        let mut lines = LineSplitter::default();
        let mut total = 0;
        for _ in 0..40 {
            for piece in lines.push(&[b'x'; 64 * 1024]) {
                let Piece::Part(bytes) = piece else {
                    panic!("a part that ends without a line break is not a whole line")
                };
                assert!(bytes.len() <= MAX_LINE_BYTES);
                total += bytes.len();
            }
        }
        for piece in lines.push(b"end\nnext\n") {
            match piece {
                Piece::Part(bytes) => total += bytes.len(),
                Piece::Line(bytes) => assert_eq!(bytes, b"next"),
            }
        }
        assert_eq!(total, 40 * 64 * 1024 + 3);
        assert!(lines.finish().is_none());
    }

    #[test]
    fn bad_bytes_become_readable() {
        let mut lines = LineSplitter::default();
        let pieces = lines.push(b"a\xff\0b\n");
        assert_eq!(pieces.first().unwrap().text(), "a\u{fffd}b");
    }
}
