//! WebSocket frames (RFC 6455) decoded in place, as far as a byte stream needs them.

use super::Error;

/// Longest header: two bytes, eight of length, four of mask.
const MAX_HEADER_SIZE: usize = 14;
/// Longest payload of a control frame.
const MAX_CONTROL_PAYLOAD: usize = 125;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// A control frame of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// A ping; the answer has the same payload.
    Ping(Vec<u8>),
    /// The close code; 1005 without a code.
    Close(u16),
}

/// Decodes frames. Payload is never buffered, so a declared length allocates nothing.
#[derive(Debug)]
pub struct Decoder {
    /// Whether the peer must mask, that is, whether the peer is the client.
    masked: bool,
    head: [u8; MAX_HEADER_SIZE],
    head_len: usize,
    /// Payload bytes of the current frame still to come.
    remaining: u64,
    in_frame: bool,
    /// Between the frames of one message.
    in_message: bool,
    opcode: u8,
    mask: [u8; 4],
    mask_at: usize,
    control: Vec<u8>,
}

impl Decoder {
    /// A decoder for what a client sends (`masked`) or a server.
    #[must_use]
    pub const fn new(masked: bool) -> Self {
        Self {
            masked,
            head: [0; MAX_HEADER_SIZE],
            head_len: 0,
            remaining: 0,
            in_frame: false,
            in_message: false,
            opcode: 0,
            mask: [0; 4],
            mask_at: 0,
            control: Vec::new(),
        }
    }

    /// Replaces the frames in `bytes` by their payload and returns its length. Control frames are appended to
    /// `controls`; after a Close the rest is ignored.
    ///
    /// # Errors
    /// [`Error`] at the first broken rule.
    pub fn decode(&mut self, bytes: &mut [u8], controls: &mut Vec<Control>) -> Result<usize, Error> {
        let (mut from, mut to) = (0, 0);
        while from < bytes.len() {
            if !self.in_frame {
                self.head[self.head_len] = bytes[from];
                self.head_len += 1;
                from += 1;
                if self.header_complete()? {
                    self.begin()?;
                }
            }
            if !self.in_frame {
                continue;
            }
            let count = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(bytes.len() - from);
            self.unmask(&mut bytes[from..from + count]);
            if self.opcode >= CLOSE {
                self.control.extend_from_slice(&bytes[from..from + count]);
            } else {
                bytes.copy_within(from..from + count, to);
                to += count;
            }
            from += count;
            self.remaining -= count as u64;
            if self.remaining == 0 {
                self.in_frame = false;
                self.head_len = 0;
                let control = std::mem::take(&mut self.control);
                match self.opcode {
                    PING => controls.push(Control::Ping(control)),
                    CLOSE => {
                        controls.push(Control::Close(close_code(&control)?));
                        return Ok(to);
                    }
                    _ => {}
                }
            }
        }
        Ok(to)
    }

    fn header_complete(&self) -> Result<bool, Error> {
        if self.head_len < 2 {
            return Ok(false);
        }
        let has_mask = self.head[1] & 0x80 != 0;
        if has_mask != self.masked {
            return Err(Error::Mask);
        }
        let length = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        Ok(self.head_len == 2 + length + if has_mask { 4 } else { 0 })
    }

    fn begin(&mut self) -> Result<(), Error> {
        let (first, second) = (self.head[0], self.head[1]);
        let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(Error::Reserved);
        }
        let short = second & 0x7f;
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let length = match extended {
            0 => u64::from(short),
            _ => self.head[2..2 + extended].iter().fold(0, |length, byte| (length << 8) | u64::from(*byte)),
        };
        if length >> 63 != 0 {
            return Err(Error::Length);
        }
        match opcode {
            CONTINUATION if self.in_message => self.in_message = !fin,
            BINARY if !self.in_message => self.in_message = !fin,
            TEXT => return Err(Error::Text),
            CONTINUATION | BINARY => return Err(Error::Fragments),
            CLOSE | PING | PONG if !fin || length > MAX_CONTROL_PAYLOAD as u64 => return Err(Error::Control),
            CLOSE | PING | PONG => {}
            other => return Err(Error::Opcode(other)),
        }
        self.opcode = opcode;
        self.remaining = length;
        self.in_frame = true;
        self.mask_at = 0;
        if self.masked {
            self.mask.copy_from_slice(&self.head[2 + extended..6 + extended]);
        }
        Ok(())
    }

    fn unmask(&mut self, bytes: &mut [u8]) {
        if self.masked {
            apply_mask(bytes, self.mask, self.mask_at);
            self.mask_at = (self.mask_at + bytes.len()) % 4;
        }
    }
}

fn close_code(payload: &[u8]) -> Result<u16, Error> {
    match payload {
        [] => Ok(1005),
        [high, low, ..] => Ok(u16::from_be_bytes([*high, *low])),
        [_] => Err(Error::Control),
    }
}

/// Applies a mask of which `offset` bytes have been used, less than four.
fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut rotated = mask;
    rotated.rotate_left(offset);
    for chunk in bytes.chunks_mut(4) {
        for (byte, mask) in chunk.iter_mut().zip(rotated) {
            *byte ^= mask;
        }
    }
}

/// Appends one unfragmented frame to `out`, masked when there is a mask.
pub(super) fn encode(out: &mut Vec<u8>, opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) {
    let flag = if mask.is_some() { 0x80 } else { 0 };
    out.push(0x80 | opcode);
    match payload.len() {
        length @ 0..=125 => out.push(flag | u8::try_from(length).expect("at most 125")),
        length => match u16::try_from(length) {
            Ok(length) => {
                out.push(flag | 126);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                out.push(flag | 127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        },
    }
    out.extend_from_slice(mask.as_ref().map_or(&[][..], |mask| &mask[..]));
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        apply_mask(&mut out[start..], mask, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn payload_survives_any_split(
            payload in proptest::collection::vec(any::<u8>(), 0..70_000),
            masked: bool,
            piece in 1usize..9000,
        ) {
            let mut bytes = Vec::new();
            let mask = masked.then_some([1, 2, 3, 4]);
            encode(&mut bytes, BINARY, &payload, mask);
            encode(&mut bytes, PING, b"p", mask);
            encode(&mut bytes, BINARY, &payload, mask);
            let mut decoder = Decoder::new(masked);
            let (mut got, mut controls) = (Vec::new(), Vec::new());
            for part in bytes.chunks_mut(piece) {
                let count = decoder.decode(part, &mut controls).unwrap();
                got.extend_from_slice(&part[..count]);
            }
            prop_assert_eq!(got, [payload.clone(), payload].concat());
            prop_assert_eq!(controls, vec![Control::Ping(b"p".to_vec())]);
        }

        #[test]
        fn garbage_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), masked: bool) {
            let _ = Decoder::new(masked).decode(&mut bytes, &mut Vec::new());
        }
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let check = |bytes: &[u8], error: Error| {
            let mut bytes = bytes.to_vec();
            assert_eq!(Decoder::new(false).decode(&mut bytes, &mut Vec::new()), Err(error));
        };
        check(&[0x82, 0x80, 0, 0, 0, 0], Error::Mask);
        check(&[0xc2, 0], Error::Reserved);
        check(&[0x81, 0], Error::Text);
        check(&[0x80, 0], Error::Fragments);
        check(&[0x02, 0, 0x82, 0], Error::Fragments);
        check(&[0x89, 126, 0, 126], Error::Control);
        check(&[0x09, 0], Error::Control);
        check(&[0x88, 1, 3], Error::Control);
        check(&[0x83, 0], Error::Opcode(3));
        check(&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], Error::Length);
    }

    #[test]
    fn a_huge_declared_length_allocates_nothing() {
        let mut decoder = Decoder::new(false);
        let mut bytes = vec![0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'a'];
        assert_eq!(decoder.decode(&mut bytes, &mut Vec::new()), Ok(1));
        assert_eq!(bytes[0], b'a');
    }
}
