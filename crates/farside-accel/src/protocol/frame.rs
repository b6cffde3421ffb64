//! Frames: how bytes become messages, and back.

use bytes::{Buf, Bytes, BytesMut};
use farside_chunks::stream::BLOCK_BYTES_MAX;
use farside_link::wire_cost;

/// Largest body, bytes: a block of literals that do not compress, what says so, and its sequence number.
pub const FRAME_MAX: usize = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 8;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// See the table at the head of the module, here and below.
    Hello = 1,
    /// Connect.
    Open = 2,
    /// Connected.
    Opened = 3,
    /// Not connected.
    Refused = 4,
    /// A block.
    Data = 5,
    /// The end of one direction.
    Fin = 6,
    /// The end of both.
    Reset = 7,
    /// Room for more.
    Credit = 8,
    /// Are you there?
    Ping = 9,
    /// I am.
    Pong = 10,
    /// A probe came by.
    Probed = 11,
    /// A block in chunks.
    Block = 12,
    /// The same, with whose end the history of literals ends.
    BlockAlone = 13,
    /// The history of literals ends.
    Rest = 14,
    /// What is in a block?
    Ask = 15,
    /// This.
    Answer = 16,
    /// What a store holds.
    Holdings = 17,
    /// All is delivered.
    Done = 18,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Hello, Open, Opened, Refused, Data, Fin, Reset, Credit, Ping, Pong, Probed, Block, BlockAlone,
            Rest, Ask, Answer, Holdings, Done,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Whose; zero where it is nobody's.
    pub flow: u32,
    /// See [`Kind`].
    pub body: Bytes,
}

/// Why bytes are no frames: the trunk ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A kind that there is not.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A number that is no number.
    #[error("a malformed number")]
    Number,
    /// A body that is too long.
    #[error("a frame of {0} bytes; at most {FRAME_MAX} are allowed")]
    Length(u64),
}

/// A body that is smaller is copied out of what was read.
const COPIED_BELOW: usize = 16 << 10;
/// Longest head: a kind, a flow of 32 bits, a length.
const HEAD_MAX: usize = 1 + 5 + 5;

impl Frame {
    /// A frame without a body.
    pub fn bare(kind: Kind, flow: u32) -> Frame {
        Frame { kind, flow, body: Bytes::new() }
    }

    /// A frame whose body is one number.
    pub fn number(kind: Kind, flow: u32, number: u64) -> Frame {
        Frame::numbers(kind, flow, &[number])
    }

    /// A frame whose body is numbers.
    pub fn numbers(kind: Kind, flow: u32, numbers: &[u64]) -> Frame {
        let mut body = Vec::with_capacity(10 * numbers.len());
        numbers.iter().for_each(|number| put(&mut body, *number));
        Frame { kind, flow, body: body.into() }
    }

    /// A frame whose body is a number and bytes.
    pub fn with_bytes(kind: Kind, flow: u32, number: u64, bytes: &[u8]) -> Frame {
        let mut body = Vec::with_capacity(10 + bytes.len());
        put(&mut body, number);
        body.extend_from_slice(bytes);
        Frame { kind, flow, body: body.into() }
    }

    /// A body that begins with a number, for what follows it to be appended.
    pub fn body_of(number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, number);
        body
    }

    /// The numbers that the body is; none if it is something else.
    pub fn as_numbers<const N: usize>(&self) -> Option<[u64; N]> {
        let mut rest = &self.body[..];
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = take(&mut rest)?.ok()?;
        }
        rest.is_empty().then_some(numbers)
    }

    /// The number that the body begins with, and what follows it; none if there is none.
    pub fn split_number(&self) -> Option<(u64, Bytes)> {
        let mut rest = &self.body[..];
        let number = take(&mut rest)?.ok()?;
        Some((number, self.body.slice(self.body.len() - rest.len()..)))
    }

    /// What it costs between the boxes, TLS included.
    pub fn wire_bytes(&self) -> u64 {
        wire_cost(self.head().len() + self.body.len())
    }

    /// The head; the body follows it as it is.
    pub fn head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_MAX);
        head.push(self.kind as u8);
        put(&mut head, u64::from(self.flow));
        put(&mut head, self.body.len() as u64);
        head
    }
}

/// Cuts what arrives into frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: BytesMut,
}

impl FrameReader {
    /// Where what arrives is appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// The next frame; `None` until more has arrived.
    ///
    /// # Errors
    /// [`FrameError`]; what follows cannot be understood any more.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let mut rest = &self.bytes[..];
        let Some((&first, after)) = rest.split_first() else { return Ok(None) };
        let kind = Kind::of(first).ok_or(FrameError::Kind(first))?;
        rest = after;
        let Some(flow) = take(&mut rest) else { return Ok(None) };
        let flow = u32::try_from(flow?).map_err(|_| FrameError::Number)?;
        let Some(length) = take(&mut rest) else { return Ok(None) };
        let length = length?;
        let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= FRAME_MAX);
        let bytes = bytes.ok_or(FrameError::Length(length))?;
        if rest.len() < bytes {
            return Ok(None);
        }
        let head = self.bytes.len() - rest.len();
        self.bytes.advance(head);
        // A small body that waits must not keep all that was read with it.
        let body = if bytes < COPIED_BELOW {
            let body = Bytes::copy_from_slice(&self.bytes[..bytes]);
            self.bytes.advance(bytes);
            body
        } else {
            self.bytes.split_to(bytes).freeze()
        };
        Ok(Some(Frame { kind, flow, body }))
    }
}

/// Appends a number as LEB128.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front; none if its end has not arrived.
fn take(bytes: &mut &[u8]) -> Option<Result<u64, FrameError>> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().enumerate() {
        let shift = 7 * at;
        if shift > 63 || (shift == 63 && *byte > 1) {
            return Some(Err(FrameError::Number));
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(Ok(number));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(|frame| [frame.head(), frame.body.to_vec()].concat()).collect()
    }

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let kind = (1u8..=18).prop_map(|kind| Kind::of(kind).unwrap());
        let frame = (kind, any::<u32>(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(kind, flow, body)| Frame { kind, flow, body: body.into() });
        prop::collection::vec(frame, 0..20)
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(frames in frames(), part in 1usize..50) {
            let mut reader = FrameReader::default();
            let mut read = Vec::new();
            for part in bytes_of(&frames).chunks(part) {
                reader.buffer().extend_from_slice(part);
                while let Some(frame) = reader.next_frame().unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn garbage_is_an_error_or_frames(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            crate::protocol::fuzz_frames(&bytes);
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let mut reader = FrameReader::default();
        let mut head = vec![Kind::Data as u8, 1];
        put(&mut head, FRAME_MAX as u64 + 1);
        reader.buffer().extend_from_slice(&head);
        assert_eq!(reader.next_frame(), Err(FrameError::Length(FRAME_MAX as u64 + 1)));
    }

    #[test]
    fn the_frozen_bytes_of_a_frame() {
        let frame = Frame { kind: Kind::Data, flow: 300, body: Bytes::from_static(b"\x07abc") };
        assert_eq!(bytes_of(&[frame]), b"\x05\xac\x02\x04\x07abc");
        assert_eq!(bytes_of(&[Frame::number(Kind::Credit, 1, 65_536)]), b"\x08\x01\x03\x80\x80\x04");
        assert_eq!(
            bytes_of(&[Frame::number(Kind::Reset, 1, 300), Frame::bare(Kind::Reset, 1)]),
            b"\x07\x01\x02\xac\x02\x07\x01\x00"
        );
    }
}
