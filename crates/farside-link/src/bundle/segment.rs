//! What travels on a lane: segments of a 16-byte header and a payload, inside TLS.
//!
//! ```text
//! kind u8 │ flags u8 │ zero u16 │ payload length u32 │ offset u64 │ payload     (little-endian)
//!
//! data    offset of the first byte      the bytes      flag 1: more than half of the credit is used with it
//! ack     all before it have arrived    limit u64, position u64
//! end     length of the stream          -
//! ping    a number                      -
//! pong    the same number               -
//! attach  0                             the bundle's id (16 bytes), and what its opener says
//! leave   0                             -              the bundle has ended in order, both ways
//! abort   0                             the reason, UTF-8
//! ```
//!
//! *Limit* is how far the other side may send. *Position* is what has arrived of data and end segments on the very lane
//! that carries the ack, headers included: it says which segments this lane has delivered, in whatever order the lanes
//! bring them, and that it moves.
//!
//! Decoding is strict: unknown kinds and flags, lengths that the kind cannot have and offsets past
//! [`STREAM_BYTES_MAX`] are refused by the header alone, before anything is kept of the payload.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::limits::{ATTACH_OPENING_MAX, BUNDLE_REASON_MAX, SEGMENT_PAYLOAD_MAX, STREAM_BYTES_MAX};
use crate::text::printable;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 16;
/// Payload of an ack.
pub(super) const ACK_BYTES: usize = 16;
/// The bundle's id in an attach segment.
const ID_BYTES: usize = 16;

/// Bytes that are no segment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(String);

/// A header, decoded: which segment, and how much payload follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    Data { offset: u64, bytes: usize, crowded: bool },
    Ack { contiguous: u64 },
    End { offset: u64 },
    Ping(u64),
    Pong(u64),
    Attach { bytes: usize },
    Leave,
    Abort { bytes: usize },
}

const DATA: u8 = 1;
const ACK: u8 = 2;
const END: u8 = 3;
const PING: u8 = 4;
const PONG: u8 = 5;
const ATTACH: u8 = 6;
const LEAVE: u8 = 7;
const ABORT: u8 = 8;

impl Header {
    /// Bytes of payload that follow.
    pub(super) fn payload_bytes(&self) -> usize {
        match *self {
            Header::Data { bytes, .. } | Header::Attach { bytes } | Header::Abort { bytes } => bytes,
            Header::Ack { .. } => ACK_BYTES,
            Header::End { .. } | Header::Ping(_) | Header::Pong(_) | Header::Leave => 0,
        }
    }

    /// The header as it travels.
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, flag, offset) = match *self {
            Header::Data { offset, crowded, .. } => (DATA, crowded, offset),
            Header::Ack { contiguous } => (ACK, false, contiguous),
            Header::End { offset } => (END, false, offset),
            Header::Ping(number) => (PING, false, number),
            Header::Pong(number) => (PONG, false, number),
            Header::Attach { .. } => (ATTACH, false, 0),
            Header::Leave => (LEAVE, false, 0),
            Header::Abort { .. } => (ABORT, false, 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = u8::from(flag);
        bytes[4..8].copy_from_slice(&(self.payload_bytes() as u32).to_le_bytes());
        bytes[8..].copy_from_slice(&offset.to_le_bytes());
        bytes
    }

    /// Decodes a header; whatever it says is within its bounds.
    pub(super) fn decode(raw: &[u8; HEADER_BYTES]) -> Result<Header, Malformed> {
        let [kind, flags, zero @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *raw;
        let bytes = u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]) as usize;
        let offset =
            u64::from_le_bytes([raw[8], raw[9], raw[10], raw[11], raw[12], raw[13], raw[14], raw[15]]);
        let flag = flags == 1;
        let (header, flagged, lengths) = match kind {
            DATA => (Header::Data { offset, bytes, crowded: flag }, true, 1..=SEGMENT_PAYLOAD_MAX),
            ACK => (Header::Ack { contiguous: offset }, false, ACK_BYTES..=ACK_BYTES),
            END => (Header::End { offset }, false, 0..=0),
            PING => (Header::Ping(offset), false, 0..=0),
            PONG => (Header::Pong(offset), false, 0..=0),
            ATTACH => (Header::Attach { bytes }, false, ID_BYTES..=ID_BYTES + ATTACH_OPENING_MAX),
            LEAVE => (Header::Leave, false, 0..=0),
            ABORT => (Header::Abort { bytes }, false, 0..=BUNDLE_REASON_MAX),
            _ => return Err(Malformed(format!("a segment of unknown kind {kind}"))),
        };
        if zero != [0; 2] || flags > u8::from(flagged) {
            return Err(Malformed(format!(
                "a segment of kind {kind} with unknown flags {flags:#x} {zero:x?}"
            )));
        }
        if !lengths.contains(&bytes) {
            return Err(Malformed(format!(
                "a segment of kind {kind} with {bytes} bytes; it has {} to {}",
                lengths.start(),
                lengths.end()
            )));
        }
        let last = match header {
            Header::Data { .. } => offset.saturating_add(bytes as u64),
            Header::Ack { .. } | Header::End { .. } => offset,
            Header::Ping(_) | Header::Pong(_) => 0,
            // They have no offset: it is zero.
            Header::Attach { .. } | Header::Leave | Header::Abort { .. } if offset == 0 => 0,
            Header::Attach { .. } | Header::Leave | Header::Abort { .. } => u64::MAX,
        };
        if last > STREAM_BYTES_MAX {
            return Err(Malformed(format!("a segment of kind {kind} with the offset {offset}")));
        }
        Ok(header)
    }
}

/// Payload of an ack: how far the other side may send, and what has arrived on this lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    pub(super) limit: u64,
    pub(super) position: u64,
}

impl Ack {
    pub(super) fn encode(&self) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        bytes[..8].copy_from_slice(&self.limit.to_le_bytes());
        bytes[8..].copy_from_slice(&self.position.to_le_bytes());
        bytes
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Ack, Malformed> {
        let (limit, position) = match payload.split_first_chunk::<8>() {
            Some((limit, rest)) => match rest.try_into() {
                Ok(position) => (u64::from_le_bytes(*limit), u64::from_le_bytes(position)),
                Err(_) => return Err(Malformed(format!("an ack of {} bytes", payload.len()))),
            },
            None => return Err(Malformed(format!("an ack of {} bytes", payload.len()))),
        };
        if limit > STREAM_BYTES_MAX {
            return Err(Malformed(format!("an ack with the limit {limit}")));
        }
        Ok(Ack { limit, position })
    }
}

/// An abort with its reason, cut to what it may have.
pub fn encode_abort(reason: &str) -> Vec<u8> {
    let reason = printable(reason, BUNDLE_REASON_MAX);
    let mut bytes = Header::Abort { bytes: reason.len() }.encode().to_vec();
    bytes.extend_from_slice(reason.as_bytes());
    bytes
}

/// The reason in an abort, fit for a log line.
pub(super) fn decode_reason(payload: &[u8]) -> String {
    printable(&String::from_utf8_lossy(payload), BUNDLE_REASON_MAX)
}

/// The first segment on a lane that is used again: which bundle it joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attach {
    /// The bundle's id, chosen by whoever opens it.
    pub bundle: [u8; 16],
    /// What the opener says to the other side, at most [`ATTACH_OPENING_MAX`] bytes; empty on a lane that joins a bundle which is
    /// there.
    pub opening: Bytes,
}

impl Attach {
    /// The segment as it travels.
    ///
    /// # Panics
    /// If the opening is longer than it may be.
    pub fn encode(&self) -> Bytes {
        assert!(self.opening.len() <= ATTACH_OPENING_MAX, "an opening of {} bytes", self.opening.len());
        let length = ID_BYTES + self.opening.len();
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + length);
        bytes.put_slice(&Header::Attach { bytes: length }.encode());
        bytes.put_slice(&self.bundle);
        bytes.put_slice(&self.opening);
        bytes.freeze()
    }

    fn decode(mut payload: Bytes) -> Result<Attach, Malformed> {
        let short = || Malformed("an attach without the bundle's id".to_owned());
        let bundle = *payload.first_chunk().ok_or_else(short)?;
        let opening = payload.split_off(ID_BYTES);
        Ok(Attach { bundle, opening })
    }

    /// Waits on an idle lane for the next bundle; `None` if the other side closes it. Reads nothing past the segment.
    /// Not to be dropped while it waits if the lane is to be used further: what has come of a segment would be lost.
    ///
    /// # Errors
    /// The connection's, or `InvalidData` if anything else than an attach comes.
    pub async fn read(io: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Attach>> {
        let invalid = |e: Malformed| io::Error::new(io::ErrorKind::InvalidData, e);
        let mut raw = [0; HEADER_BYTES];
        let first = io.read(&mut raw).await?;
        if first == 0 {
            return Ok(None);
        }
        io.read_exact(&mut raw[first..]).await?;
        let Header::Attach { bytes } = Header::decode(&raw).map_err(invalid)? else {
            return Err(invalid(Malformed(format!("a segment of kind {} on an idle lane", raw[0]))));
        };
        let mut payload = BytesMut::zeroed(bytes);
        io.read_exact(&mut payload).await?;
        Attach::decode(payload.freeze()).map(Some).map_err(invalid)
    }
}

/// Feeds arbitrary bytes to the decoder of segments, as a lane would: header, payload, and so on. What decodes must
/// survive encoding.
///
/// # Panics
/// If it does not: that is what a fuzzer looks for.
pub fn fuzz_segments(mut data: &[u8]) {
    while let Some((raw, rest)) = data.split_first_chunk::<HEADER_BYTES>() {
        let Ok(header) = Header::decode(raw) else { return };
        assert_eq!(header.encode(), *raw, "{header:?}");
        let Some((payload, rest)) = rest.split_at_checked(header.payload_bytes()) else { return };
        match header {
            Header::Ack { .. } => match Ack::decode(payload) {
                Ok(ack) => assert_eq!(ack.encode(), payload),
                Err(_) => return,
            },
            Header::Attach { .. } => {
                let attach = Attach::decode(Bytes::copy_from_slice(payload)).expect("the header bounds it");
                assert_eq!(attach.encode()[HEADER_BYTES..], *payload);
            }
            Header::Abort { .. } => {
                let reason = decode_reason(payload);
                let again = encode_abort(&reason);
                assert_eq!(decode_reason(&again[HEADER_BYTES..]), reason);
            }
            _ => {}
        }
        data = rest;
    }
}
