//! Splits the output of a script into lines of bounded length.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longest line. A longer one is cut: binary output may have no line ends at all.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;

/// Reads until the end and hands each line over, without its line end.
pub(super) async fn read(mut from: impl AsyncRead + Unpin, mut line: impl FnMut(&[u8])) {
    let mut splitter = Splitter::default();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        splitter.take(&buffer[..count], &mut line);
    }
    splitter.finish(&mut line);
}

#[derive(Debug, Default)]
struct Splitter {
    begun: Vec<u8>,
}

impl Splitter {
    fn take(&mut self, mut bytes: &[u8], line: &mut impl FnMut(&[u8])) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            self.push(&bytes[..at], line);
            let end = self.begun.strip_suffix(b"\r").unwrap_or(&self.begun);
            line(end);
            self.begun.clear();
            bytes = &bytes[at + 1..];
        }
        self.push(bytes, line);
    }

    fn push(&mut self, mut bytes: &[u8], line: &mut impl FnMut(&[u8])) {
        while self.begun.len() + bytes.len() > MAX_LINE_BYTES {
            let (now, later) = bytes.split_at(MAX_LINE_BYTES - self.begun.len());
            self.begun.extend_from_slice(now);
            line(&self.begun);
            self.begun.clear();
            bytes = later;
        }
        self.begun.extend_from_slice(bytes);
    }

    fn finish(&mut self, line: &mut impl FnMut(&[u8])) {
        if !self.begun.is_empty() {
            line(&self.begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut splitter, mut lines) = (Splitter::default(), Vec::new());
        let mut each = |line: &[u8]| lines.push(line.to_vec());
        for piece in pieces {
            splitter.take(piece, &mut each);
        }
        splitter.finish(&mut each);
        lines
    }

    #[test]
    fn line_ends_are_removed() {
        assert_eq!(split(&[b"a\r\n", b"b", b"c\n\n", b"d"]), [&b"a"[..], b"bc", b"", b"d"]);
        assert!(split(&[b""]).is_empty());
    }

    #[test]
    fn endless_line_is_cut() {
        let endless = vec![0xff; MAX_LINE_BYTES * 2 + 5];
        let lengths: Vec<_> = split(&[&endless, b"\nx"]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [MAX_LINE_BYTES, MAX_LINE_BYTES, 5, 1]);
    }
}
