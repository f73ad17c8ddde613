//! The packet codec (wire-protocol 3.1, 3.2): assembles packets from frames, however the bytes are split.

use bytes::{Buf, Bytes, BytesMut};

use super::MAX_MESSAGE_SIZE;

/// Most data bytes of a frame that we send; longer packets are split.
pub const MAX_FRAME_SIZE: usize = 64 << 10;
/// Longest header: a control byte and three variable-length numbers.
pub const MAX_HEADER_SIZE: usize = 31;

/// A packet of up to this many times the limit is skipped to its end before it is refused: a Go caller that is
/// answered while it still writes sees the end of the stream and not the error.
const MAX_SKIPPED: u64 = 16;

const DONE: u8 = 1;
const CONTROL: u8 = 0x80;

/// The kind of a packet. Any six-bit value can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Begins a call; the data is its name.
    pub const INVOKE: Self = Self(1);
    pub const MESSAGE: Self = Self(2);
    /// Ends the call with an error.
    pub const ERROR: Self = Self(3);
    /// Cancels the call.
    pub const CANCEL: Self = Self(4);
    /// Ends the call.
    pub const CLOSE: Self = Self(5);
    /// The sender has no further messages.
    pub const CLOSE_SEND: Self = Self(6);
    /// Pairs that precede a call.
    pub const METADATA: Self = Self(7);
}

/// The content of one or more frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub kind: Kind,
    /// The call on this byte stream, from 1.
    pub stream: u64,
    /// Counts the packets of one direction of a call, from 1.
    pub message: u64,
    /// Packets of unknown kind are ignored when this is set.
    pub control: bool,
    /// The payload.
    pub data: Bytes,
}

/// Why bytes are not packets. `at` counts the bytes of the stream up to the end of the bad header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A number longer than ten bytes.
    #[error("a number of a frame header is longer than ten bytes, at byte {at}")]
    Varint {
        /// Position in the stream.
        at: u64,
    },
    /// Stream and message ids must grow.
    #[error("the ids of a frame go back, at byte {at}")]
    Order {
        /// Position in the stream.
        at: u64,
    },
    /// All frames of a packet have one kind.
    #[error("the kind changes inside a packet, at byte {at}")]
    KindChange {
        /// Position in the stream.
        at: u64,
    },
    /// The packet is longer than allowed. The decoder has skipped it and continues with the next, unless it exceeds 16
    /// times the limit.
    #[error("a packet of {size} bytes exceeds the limit of {limit} bytes, at byte {at}")]
    TooLarge {
        /// Bytes of the packet, or of its part that was announced.
        size: u64,
        /// Bytes that are allowed.
        limit: usize,
        /// Position in the stream.
        at: u64,
    },
}

#[derive(Debug, Default)]
struct FrameHeader {
    control: u8,
    numbers: [u64; 3],
    /// Fields that are complete: the control byte, then the numbers.
    fields: usize,
    /// Bytes of the current number.
    bytes: u32,
}

#[derive(Debug)]
struct Partial {
    kind: u8,
    control: bool,
    /// Bytes announced so far; beyond the limit they are not kept.
    size: u64,
    data: BytesMut,
}

/// Assembles packets. Data is buffered as it arrives and never beyond the limit; a declared length allocates nothing.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    at: u64,
    header: FrameHeader,
    /// Data bytes of the current frame still to come, and whether it ends its packet.
    frame: Option<(u64, bool)>,
    packet: Option<Partial>,
    /// The smallest pair of ids that may come next; ids begin at one.
    ids: (u64, u64),
    /// The data of calls up to this one is discarded as it arrives.
    discarded: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(MAX_MESSAGE_SIZE)
    }
}

impl Decoder {
    /// A decoder for packets of at most `limit` data bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            at: 0,
            header: FrameHeader::default(),
            frame: None,
            packet: None,
            ids: (1, 1),
            discarded: 0,
        }
    }

    /// Whether no packet is incomplete.
    #[must_use]
    pub const fn between_packets(&self) -> bool {
        self.packet.is_none() && self.header.fields == 0
    }

    /// Bytes of the current packet in memory.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.packet.as_ref().map_or(0, |packet| packet.data.len())
    }

    /// Discards the data of calls up to this one; their packets are empty.
    pub fn discard(&mut self, stream: u64) {
        self.discarded = self.discarded.max(stream);
        if self.ids.0 <= self.discarded
            && let Some(packet) = &mut self.packet
        {
            packet.data = BytesMut::new();
        }
    }

    /// Reads bytes until a packet is complete; none when the input ends before.
    ///
    /// # Errors
    /// [`FrameError`]. The decoder can continue only after [`FrameError::TooLarge`].
    pub fn decode(&mut self, input: &mut impl Buf) -> Result<Option<Packet>, FrameError> {
        while input.has_remaining() {
            match self.frame {
                None => {
                    let byte = input.get_u8();
                    self.at += 1;
                    if self.header.take(byte, self.at)? {
                        let header = std::mem::take(&mut self.header);
                        self.begin(&header)?;
                    }
                }
                Some((remaining, done)) => {
                    let chunk = input.chunk();
                    let count = usize::try_from(remaining).unwrap_or(usize::MAX).min(chunk.len());
                    if let Some(packet) = &mut self.packet
                        && packet.size <= self.limit as u64
                        && self.ids.0 > self.discarded
                    {
                        packet.data.extend_from_slice(&chunk[..count]);
                    }
                    input.advance(count);
                    self.at += count as u64;
                    self.frame = Some((remaining - count as u64, done));
                }
            }
            if let Some((0, done)) = self.frame {
                self.frame = None;
                if done && let Some(packet) = self.packet.take() {
                    return self.finish(packet).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn begin(&mut self, header: &FrameHeader) -> Result<(), FrameError> {
        let at = self.at;
        let [stream, message, length] = header.numbers;
        let kind = (header.control >> 1) & 0x3f;
        let ids = (stream, message);
        if ids < self.ids || message == 0 {
            return Err(FrameError::Order { at });
        }
        if ids > self.ids {
            // A higher pair drops an unfinished packet silently, as the Go library does.
            self.packet = None;
            self.ids = ids;
        }
        let fresh = || Partial { kind, control: false, size: 0, data: BytesMut::new() };
        let packet = self.packet.get_or_insert_with(fresh);
        if packet.kind != kind {
            return Err(FrameError::KindChange { at });
        }
        packet.control |= header.control & CONTROL != 0;
        packet.size = packet.size.saturating_add(length);
        if packet.size > self.limit as u64 {
            packet.data = BytesMut::new();
        }
        if packet.size > (self.limit as u64).saturating_mul(MAX_SKIPPED) {
            return Err(FrameError::TooLarge { size: packet.size, limit: self.limit, at });
        }
        self.frame = Some((length, header.control & DONE != 0));
        Ok(())
    }

    fn finish(&mut self, packet: Partial) -> Result<Packet, FrameError> {
        let (stream, message) = self.ids;
        self.ids.1 = message.saturating_add(1);
        if packet.size > self.limit as u64 {
            return Err(FrameError::TooLarge { size: packet.size, limit: self.limit, at: self.at });
        }
        let data = packet.data.freeze();
        Ok(Packet { kind: Kind(packet.kind), stream, message, control: packet.control, data })
    }
}

impl FrameHeader {
    /// Reads one byte; true when the header is complete.
    fn take(&mut self, byte: u8, at: u64) -> Result<bool, FrameError> {
        if self.fields == 0 {
            self.control = byte;
            self.fields = 1;
            return Ok(false);
        }
        let number = &mut self.numbers[self.fields - 1];
        *number |= u64::from(byte & 0x7f) << (7 * self.bytes);
        self.bytes += 1;
        if byte & 0x80 == 0 {
            self.bytes = 0;
            self.fields += 1;
        } else if self.bytes == 10 {
            return Err(FrameError::Varint { at });
        }
        Ok(self.fields == 4)
    }
}

/// The packets of a whole byte string, and how it ended. An entry point for fuzzing and for captures.
pub fn parse(mut bytes: &[u8]) -> (Vec<Packet>, Result<(), FrameError>) {
    let mut decoder = Decoder::default();
    let mut packets = Vec::new();
    loop {
        match decoder.decode(&mut bytes) {
            Ok(Some(packet)) => packets.push(packet),
            Ok(None) => return (packets, Ok(())),
            Err(error) => return (packets, Err(error)),
        }
    }
}

/// The frames of a packet: the header of each, and its data.
pub fn split(
    kind: Kind,
    control: bool,
    (stream, message): (u64, u64),
    data: &[u8],
) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let (part, left) = rest?.split_at(rest?.len().min(MAX_FRAME_SIZE));
        rest = (!left.is_empty()).then_some(left);
        let done = if rest.is_none() { DONE } else { 0 };
        let mut header = Vec::with_capacity(MAX_HEADER_SIZE);
        header.push(kind.0 << 1 | done | if control { CONTROL } else { 0 });
        for number in [stream, message, part.len() as u64] {
            push_varint(&mut header, number);
        }
        Some((header, part))
    })
}

/// Appends a packet in frames of at most [`MAX_FRAME_SIZE`] data bytes.
pub fn encode(out: &mut Vec<u8>, kind: Kind, control: bool, ids: (u64, u64), data: &[u8]) {
    for (header, part) in split(kind, control, ids, data) {
        out.extend_from_slice(&header);
        out.extend_from_slice(part);
    }
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("seven bits"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets() -> impl Strategy<Value = Vec<Packet>> {
        let data = proptest::collection::vec(any::<u8>(), 0..200);
        let one = (1u8..64, 0u64..3, 1u64..400, any::<bool>(), data, 0..2u8);
        proptest::collection::vec(one, 0..20).prop_map(|list| {
            let (mut stream, mut message) = (1, 0);
            let packet =
                |(kind, streams, messages, control, data, big): (u8, u64, u64, bool, Vec<u8>, u8)| {
                    if streams > 0 {
                        (stream, message) = (stream + streams, 0);
                    }
                    message += messages;
                    let data = if big == 1 { data.repeat(700) } else { data };
                    Packet { kind: Kind(kind), stream, message, control, data: data.into() }
                };
            list.into_iter().map(packet).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn packets_survive_any_split(packets in packets(), piece in 1usize..70_000) {
            let mut bytes = Vec::new();
            for packet in &packets {
                encode(&mut bytes, packet.kind, packet.control, (packet.stream, packet.message), &packet.data);
            }
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for mut part in bytes.chunks(piece) {
                while let Some(packet) = decoder.decode(&mut part).unwrap() {
                    got.push(packet);
                }
            }
            prop_assert!(decoder.between_packets());
            prop_assert_eq!(got, packets);
        }

        #[test]
        fn garbage_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn packet_survives_a_split_at_every_offset() {
        let mut bytes = Vec::new();
        encode(&mut bytes, Kind::INVOKE, false, (1, 1), b"/a/b");
        encode(&mut bytes, Kind::MESSAGE, false, (1, 200), &[7; 300]);
        let (expected, end) = parse(&bytes);
        assert_eq!((expected.len(), end), (2, Ok(())));
        for at in 0..=bytes.len() {
            let (mut front, mut back) = bytes.split_at(at);
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for part in [&mut front, &mut back] {
                while let Some(packet) = decoder.decode(part).unwrap() {
                    got.push(packet);
                }
            }
            assert_eq!(got, expected, "split at {at}");
        }
    }

    #[test]
    fn a_packet_of_the_limit_passes_and_one_byte_more_is_refused() {
        let check = |size: usize| {
            let mut bytes = Vec::new();
            encode(&mut bytes, Kind::MESSAGE, false, (1, 1), &vec![1; size]);
            parse(&bytes)
        };
        let (packets, end) = check(MAX_MESSAGE_SIZE);
        assert_eq!((packets[0].data.len(), end), (MAX_MESSAGE_SIZE, Ok(())));
        let (packets, end) = check(MAX_MESSAGE_SIZE + 1);
        assert!(packets.is_empty());
        assert!(matches!(end, Err(FrameError::TooLarge { limit: MAX_MESSAGE_SIZE, .. })), "{end:?}");
    }

    #[test]
    fn huge_declared_length_is_refused_before_any_data() {
        let (_, end) = parse(&[5, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert!(matches!(end, Err(FrameError::TooLarge { .. })), "{end:?}");
    }

    #[test]
    fn a_packet_is_skipped_up_to_16_times_the_limit() {
        let limit = 64;
        for (times, skipped) in [(limit * 16, true), (limit * 16 + 1, false), (limit * 16 + 2, false)] {
            let mut bytes = Vec::new();
            encode(&mut bytes, Kind::MESSAGE, false, (1, 1), &vec![7; times]);
            let end = bytes.len() as u64;
            encode(&mut bytes, Kind::MESSAGE, false, (1, 2), &[8; 64]);
            let (mut decoder, mut input) = (Decoder::new(limit), &bytes[..]);
            let Err(FrameError::TooLarge { size, limit: 64, at }) = decoder.decode(&mut input) else {
                panic!("{times} bytes passed");
            };
            assert_eq!((size, at), (times as u64, if skipped { end } else { 5 }), "{times}");
            assert_eq!(decoder.buffered(), 0);
            if skipped {
                assert_eq!(decoder.decode(&mut input).unwrap().unwrap().data, vec![8; 64]);
            }
        }
    }

    #[test]
    fn frames_that_break_a_rule_are_refused_at_their_place() {
        // A whole packet of nine bytes before.
        let whole = [5, 2, 3, 5, 1, 2, 3, 4, 5];
        let varint = [0xff; 11];
        for (frame, expected) in [
            (&[5, 2, 3, 0][..], FrameError::Order { at: 13 }),
            (&[5, 1, 9, 0], FrameError::Order { at: 13 }),
            (&[5, 0, 9, 0], FrameError::Order { at: 13 }),
            (&[5, 3, 0, 0], FrameError::Order { at: 13 }),
            (&[4, 2, 4, 1, 0, 7, 2, 4, 0], FrameError::KindChange { at: 18 }),
            (&varint, FrameError::Varint { at: 20 }),
        ] {
            let (packets, end) = parse(&[&whole[..], frame].concat());
            assert_eq!((packets.len(), end), (1, Err(expected)), "{frame:?}");
        }
        for good in [&[5, 2, 4, 0], &[5, 3, 1, 0]] {
            let (packets, end) = parse(&[&whole[..], good].concat());
            assert_eq!((packets.len(), end), (2, Ok(())), "{good:?}");
        }
    }

    #[test]
    fn a_later_packet_replaces_one_that_was_not_finished() {
        // The first frame does not end its packet; the second has the next id, and another kind.
        let (packets, end) = parse(&[4, 1, 1, 2, b'a', b'b', 7, 1, 2, 1, b'c']);
        let expected = Packet { kind: Kind::ERROR, stream: 1, message: 2, control: false, data: "c".into() };
        assert_eq!((packets, end), (vec![expected], Ok(())));
    }

    #[test]
    fn a_header_or_a_part_of_a_packet_is_something_in_between() {
        let mut decoder = Decoder::default();
        for (byte, between, buffered) in [
            (4, false, 0),
            (1, false, 0),
            (1, false, 0),
            (2, false, 0),
            (b'a', false, 1),
            (b'b', false, 2),
            (5, false, 2),
            (1, false, 2),
            (1, false, 2),
            (0, true, 0),
        ] {
            let packet = decoder.decode(&mut &[byte][..]).unwrap();
            assert_eq!(packet.is_some(), between);
            assert_eq!((decoder.between_packets(), decoder.buffered()), (between, buffered));
        }
    }

    #[test]
    fn what_is_discarded_is_the_data_of_calls_up_to_one() {
        let mut bytes = Vec::new();
        for ids in [(1, 1), (2, 1), (3, 1)] {
            encode(&mut bytes, Kind::MESSAGE, false, ids, b"data");
        }
        for before in [0, 6] {
            let (mut decoder, mut input) = (Decoder::default(), &bytes[..]);
            // Perhaps in the middle of the first packet.
            assert_eq!(decoder.decode(&mut &input[..before]), Ok(None));
            input = &input[before..];
            decoder.discard(2);
            decoder.discard(1);
            let lengths = [(); 3].map(|()| decoder.decode(&mut input).unwrap().unwrap().data.len());
            assert_eq!(lengths, [0, 0, 4]);
        }
        let (mut decoder, mut input) = (Decoder::default(), &bytes[..]);
        assert!(decoder.decode(&mut input).unwrap().is_some());
        assert_eq!(decoder.decode(&mut &input[..6]), Ok(None));
        decoder.discard(1);
        assert_eq!(decoder.decode(&mut &input[6..]).unwrap().unwrap().data, "data", "of a later call");
    }

    #[test]
    fn long_messages_are_split_at_64_kib() {
        let data = vec![0; 2 * MAX_FRAME_SIZE];
        let frames: Vec<_> = split(Kind::MESSAGE, false, (1, 2), &data).collect();
        assert_eq!(
            frames.iter().map(|(_, data)| data.len()).collect::<Vec<_>>(),
            [MAX_FRAME_SIZE, MAX_FRAME_SIZE]
        );
        assert_eq!((frames[0].0[0], frames[1].0[0]), (4, 5));
    }
}
