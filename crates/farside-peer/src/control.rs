//! Frames of the control stream: a little-endian u32 length, then a protobuf message of that many bytes.
//!
//! The length is compared with [`CONTROL_FRAME_MAX`] before anything is kept or decoded.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use farside_link::{printable, wire_cost};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::{Refusal, SessionError};
use crate::limits::{CONTROL_FRAME_MAX, REFUSAL_TEXT_MAX};

/// Bytes of the length before each frame.
const LENGTH_BYTES: usize = 4;
/// One frame.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Frame {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 7, 8, 9, 10")]
    pub(crate) body: Option<Body>,
    /// Beside any body: how often the sender of this wants a quiet session to be asked for a sign of life, milliseconds; 0 says
    /// nothing. Of the two sides the longer counts. Who does not know it asks every two seconds.
    #[prost(uint32, tag = "11")]
    pub(crate) keepalive: u32,
    /// Beside any body: streams on which less may come from now on than was granted. Who does not know it sends what was granted.
    #[prost(message, repeated, tag = "12")]
    pub(crate) holds: Vec<Hold>,
    /// Beside any body: streams of which nothing arrives that goes in full packets. Who does not know it goes on as before.
    #[prost(message, repeated, tag = "13")]
    pub(crate) packets: Vec<Packets>,
    /// Beside a pong: the wall clock of its sender, milliseconds since 1970; 0 says nothing.
    #[prost(uint64, tag = "14")]
    pub(crate) clock: u64,
}

/// Full packets do not pass, on the path of this stream that is silent.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packets {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bundle: Bytes,
    /// The largest segment that connections shall be made with from now on, bytes.
    #[prost(uint32, tag = "2")]
    pub(crate) mss: u32,
    /// The one that does not pass.
    #[prost(uint32, tag = "3")]
    pub(crate) stuck: u32,
}

/// What a limit that was lowered leaves of the credit that a stream has.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hold {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bundle: Bytes,
    /// Bytes per second; 0: as fast as granted, again.
    #[prost(uint64, tag = "2")]
    pub(crate) rate: u64,
    /// For what comes before this offset of the stream: it was granted. What is past it comes no faster than it will be.
    #[prost(uint64, tag = "3")]
    pub(crate) until: u64,
}

/// What a frame may say beside its body.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Beside {
    pub(crate) keepalive: u32,
    pub(crate) holds: Vec<Hold>,
    pub(crate) packets: Vec<Packets>,
    pub(crate) clock: u64,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// A request.
    #[prost(message, tag = "1")]
    Call(Payload),
    /// Its answer.
    #[prost(message, tag = "2")]
    Answer(Payload),
    /// Or its refusal.
    #[prost(message, tag = "3")]
    Refused(RefusedCall),
    /// Comes back as a pong.
    #[prost(fixed64, tag = "4")]
    Ping(u64),
    #[prost(fixed64, tag = "5")]
    Pong(u64),
    // Tag 6 was version 1's request for a data stream.
    /// The bundle that the other side opens is not taken.
    #[prost(message, tag = "7")]
    StreamRefused(RefusedStream),
    /// The session ends, and why.
    #[prost(string, tag = "8")]
    Close(String),
    /// The side that was dialled opens a bundle; dial lanes for it.
    #[prost(message, tag = "9")]
    OpenBundle(OpenBundle),
    /// The side that was dialled could use so many lanes of a bundle on each path.
    #[prost(message, tag = "10")]
    MoreLanes(MoreLanes),
}

/// What the opener of a bundle says to the other side.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Opening {
    /// Always 1: an opening is never empty, so that an *attach* with one is told from an *attach* without.
    #[prost(uint32, tag = "1")]
    pub(crate) format: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) header: Bytes,
    /// What is sent to the opener gives way to other traffic.
    #[prost(bool, tag = "3")]
    pub(crate) low_priority: bool,
    /// See [`StreamOptions::bulk`](farside_link::StreamOptions::bulk). Who does not know it begins with one connection.
    #[prost(bool, tag = "4")]
    pub(crate) bulk: bool,
    /// What the opener takes before it has said more, bytes: on a far line the first ack with credit comes a round trip after the
    /// first lane. Less than [`WINDOW_MIN`](farside_link::limits::WINDOW_MIN), which always holds, says nothing.
    #[prost(uint64, tag = "5")]
    pub(crate) window: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OpenBundle {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bundle: Bytes,
    #[prost(message, required, tag = "2")]
    pub(crate) opening: Opening,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MoreLanes {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bundle: Bytes,
    #[prost(uint32, tag = "2")]
    pub(crate) lanes: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    /// Chosen by whoever calls, unique among its calls of the session.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RefusedCall {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) code: String,
    #[prost(string, tag = "3")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RefusedStream {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) bundle: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
}

/// The bytes of a frame, its length before it.
pub(crate) fn encode(body: Body) -> Bytes {
    encode_with(body, Beside::default())
}

/// The same, and what it says beside.
pub(crate) fn encode_with(body: Body, beside: Beside) -> Bytes {
    let Beside { keepalive, holds, packets, clock } = beside;
    let frame = Frame { body: Some(body), keepalive, holds, packets, clock };
    let length = frame.encoded_len();
    let mut bytes = BytesMut::with_capacity(LENGTH_BYTES + length);
    bytes.put_u32_le(u32::try_from(length).expect("bounded by CONTROL_FRAME_MAX"));
    frame.encode(&mut bytes).expect("the buffer has room");
    bytes.freeze()
}

/// The next frame, what it says beside, and its bytes on the wire; `None` at an orderly end.
pub(crate) async fn read(
    io: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(Body, Beside, u64)>, SessionError> {
    let lost = |e: io::Error| SessionError::Lost(e.to_string());
    let mut length = [0; LENGTH_BYTES];
    // An end is orderly between frames only.
    let first = io.read(&mut length).await.map_err(lost)?;
    if first == 0 {
        return Ok(None);
    }
    io.read_exact(&mut length[first..]).await.map_err(lost)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > CONTROL_FRAME_MAX {
        return Err(SessionError::Protocol(format!(
            "a control frame of {length} bytes; the limit is {CONTROL_FRAME_MAX}"
        )));
    }
    let mut bytes = BytesMut::zeroed(length);
    io.read_exact(&mut bytes).await.map_err(lost)?;
    let (body, beside) = decode(bytes.freeze())?;
    Ok(Some((body, beside, wire_cost(LENGTH_BYTES + length))))
}

/// Decodes a frame without its length.
fn decode(bytes: Bytes) -> Result<(Body, Beside), SessionError> {
    let frame =
        Frame::decode(bytes).map_err(|e| SessionError::Protocol(format!("malformed control frame: {e}")))?;
    let body =
        frame.body.ok_or_else(|| SessionError::Protocol("a control frame of unknown kind".to_owned()))?;
    let Frame { keepalive, holds, packets, clock, .. } = frame;
    Ok((body, Beside { keepalive, holds, packets, clock }))
}

/// A refusal fit to be sent or shown.
pub(crate) fn bounded(refusal: &Refusal) -> Refusal {
    Refusal { code: printable(&refusal.code, 64), message: printable(&refusal.message, REFUSAL_TEXT_MAX) }
}

/// Feeds arbitrary bytes to the decoders of control frames and of what opens a bundle. What decodes must survive encoding.
///
/// # Panics
/// If it does not: that is what a fuzzer looks for.
pub fn fuzz_control(data: &[u8]) {
    if let Ok((body, beside)) = decode(Bytes::copy_from_slice(data)) {
        let again = encode_with(body.clone(), beside.clone());
        assert_eq!(decode(again.slice(LENGTH_BYTES..)).expect("own encoding"), (body, beside));
    }
    if let Ok(opening) = Opening::decode(data) {
        assert_eq!(Opening::decode(&opening.encode_to_vec()[..]).expect("own encoding"), opening);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_round_trip_and_ends_are_distinguished() {
        let body = Body::Call(Payload { id: 7, body: Bytes::from_static(b"hello") });
        let bytes = encode(body.clone());
        let mut io = &bytes[..];
        let (read_back, _, wire) = read(&mut io).await.unwrap().unwrap();
        assert_eq!(read_back, body);
        assert_eq!(wire, bytes.len() as u64 + 22);
        assert!(read(&mut io).await.unwrap().is_none());
        for cut in 1..bytes.len() {
            assert!(matches!(read(&mut &bytes[..cut]).await, Err(SessionError::Lost(_))), "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        let length = (CONTROL_FRAME_MAX as u32 + 1).to_le_bytes();
        assert!(matches!(read(&mut &length[..]).await, Err(SessionError::Protocol(_))));
    }

    #[test]
    fn the_largest_call_fits_the_largest_frame() {
        let body = Bytes::from(vec![0; crate::CALL_BYTES_MAX]);
        let bytes = encode(Body::Answer(Payload { id: u64::MAX, body }));
        assert!(bytes.len() - LENGTH_BYTES <= CONTROL_FRAME_MAX);
    }
}
