//! Messages of a data stream. The source sends what a step is made of; the destination, only if it said so in the
//! stream's header, what it holds of the step already, and what it knows of what the source asks for.
//!
//! ```text
//! offset  bytes  field
//!      0      1  kind: 1 frame, 2 scanned, 3 step end, 4 failure, 7 working, 8 ask, 10 withdraw (source to
//!                      destination);
//!                      5 held, 6 held end, 9 answer (destination to source)
//!      1      4  length of the body, little-endian
//!      5      n  body: a frame of farside-wire; a Protocol Buffers message; a chunk of `held`; nothing (6, 7);
//!                a question or an answer of `known`; numbers of offered volumes, a byte each (10)
//! ```
//!
//! A stream that ends without *step end* or *failure* is a lost one.

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::messages::{Failure, Scanned, StepEnd};
use crate::error::TransferError;
use crate::limits::{ASK_BYTES_MAX, FAILURE_TEXT_MAX, HELD_CHUNK_BYTES_MAX, STREAM_MESSAGE_BYTES_MAX};

/// Bytes before a message's body.
pub const ENVELOPE_BYTES: usize = 5;

/// One message.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamMessage {
    /// A frame, to be decoded.
    Frame(Vec<u8>),
    /// How far the difference is.
    Scanned(Scanned),
    /// All of the step was sent.
    StepEnd(StepEnd),
    /// The source gave up.
    Failure(Failure),
    /// A chunk of what the destination holds.
    Held(Vec<u8>),
    /// All of that was told.
    HeldEnd,
    /// The source compares what is held; nothing of it travelled for a while.
    Working,
    /// A question for known data.
    Ask(Vec<u8>),
    /// The answer to one.
    Answer(Vec<u8>),
    /// No frame behind this names these of the volumes that the stream's header offers.
    Withdraw(Vec<u8>),
}

impl StreamMessage {
    /// Whether it is a destination's to send.
    fn is_of_destination(&self) -> bool {
        matches!(self, StreamMessage::Held(_) | StreamMessage::HeldEnd | StreamMessage::Answer(_))
    }
}

/// Sends one message. All of it is with the transport when this returns: a secured stream keeps what its socket does not
/// take at once, and pushes it on only with what is written next. After a last message that would be never.
pub async fn write(
    io: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &StreamMessage,
) -> std::io::Result<()> {
    let encoded;
    let (kind, body): (u8, &[u8]) = match message {
        StreamMessage::Frame(frame) => (1, frame),
        StreamMessage::Scanned(m) => {
            encoded = m.encode_to_vec();
            (2, &encoded)
        }
        StreamMessage::StepEnd(m) => {
            encoded = m.encode_to_vec();
            (3, &encoded)
        }
        StreamMessage::Failure(m) => {
            encoded = m.encode_to_vec();
            (4, &encoded)
        }
        StreamMessage::Held(chunk) => (5, chunk),
        StreamMessage::HeldEnd => (6, &[]),
        StreamMessage::Working => (7, &[]),
        StreamMessage::Ask(ask) => (8, ask),
        StreamMessage::Answer(answer) => (9, answer),
        StreamMessage::Withdraw(numbers) => (10, numbers),
    };
    write_body(io, kind, body).await?;
    io.flush().await
}

/// Writes a frame and does not flush: whoever has nothing more to write for the moment does. A flush waits until the last connection
/// has taken all of it, while the others run dry: one after each frame cost an OC-3 of 100 ms half of its rate for a second.
pub async fn write_frame(io: &mut (impl AsyncWrite + Unpin + ?Sized), frame: &[u8]) -> std::io::Result<()> {
    write_body(io, 1, frame).await
}

async fn write_body(
    io: &mut (impl AsyncWrite + Unpin + ?Sized),
    kind: u8,
    body: &[u8],
) -> std::io::Result<()> {
    let mut envelope = [kind; ENVELOPE_BYTES];
    envelope[1..].copy_from_slice(&(body.len() as u32).to_le_bytes());
    io.write_all(&envelope).await?;
    io.write_all(body).await
}

/// Receives one message of a source; its length is checked before memory is claimed for it.
pub async fn read(io: &mut (impl AsyncRead + Unpin + ?Sized)) -> Result<StreamMessage, TransferError> {
    read_any(io, false).await
}

/// Receives one message of a destination.
pub async fn read_held(io: &mut (impl AsyncRead + Unpin + ?Sized)) -> Result<StreamMessage, TransferError> {
    read_any(io, true).await
}

async fn read_any(
    io: &mut (impl AsyncRead + Unpin + ?Sized),
    from_destination: bool,
) -> Result<StreamMessage, TransferError> {
    let lost = |e: std::io::Error| TransferError::Session(farside_peer::SessionError::Lost(e.to_string()));
    let mut envelope = [0; ENVELOPE_BYTES];
    io.read_exact(&mut envelope).await.map_err(lost)?;
    let [kind, length @ ..] = envelope;
    let length = u32::from_le_bytes(length) as usize;
    let limit = match kind {
        1 => farside_wire::FRAME_BYTES_MAX,
        5 => HELD_CHUNK_BYTES_MAX,
        6 | 7 => 0,
        8 => ASK_BYTES_MAX,
        10 => farside_wire::OTHERS_MAX.into(),
        _ => STREAM_MESSAGE_BYTES_MAX,
    };
    if length > limit {
        return Err(TransferError::Protocol(format!(
            "a message of {length} bytes on a data stream, limit {limit}"
        )));
    }
    let mut body = vec![0; length];
    io.read_exact(&mut body).await.map_err(lost)?;
    let malformed = |e: prost::DecodeError| TransferError::Protocol(format!("malformed message: {e}"));
    let message = match kind {
        1 => StreamMessage::Frame(body),
        2 => StreamMessage::Scanned(Scanned::decode(&body[..]).map_err(malformed)?),
        3 => StreamMessage::StepEnd(StepEnd::decode(&body[..]).map_err(malformed)?),
        4 => StreamMessage::Failure(Failure::decode(&body[..]).map_err(malformed)?),
        5 => StreamMessage::Held(body),
        6 => StreamMessage::HeldEnd,
        7 => StreamMessage::Working,
        8 => StreamMessage::Ask(body),
        9 => StreamMessage::Answer(body),
        10 => StreamMessage::Withdraw(body),
        other => {
            return Err(TransferError::Protocol(format!(
                "a message of unknown kind {other} on a data stream"
            )));
        }
    };
    if message.is_of_destination() != from_destination {
        return Err(TransferError::Protocol(format!(
            "a message of kind {kind}, which only the other side may send"
        )));
    }
    Ok(message)
}

impl Failure {
    /// With its texts cut to what the protocol allows.
    pub fn new(code: &str, message: &str) -> Failure {
        Failure { code: cut(code), message: cut(message) }
    }
}

/// At most [`FAILURE_TEXT_MAX`] bytes of a text from outside, without control characters (it goes to logs and
/// terminals).
pub fn cut(text: &str) -> String {
    let mut end = text.len().min(FAILURE_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn round_trip(message: StreamMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, &message).await.unwrap();
        let ours = message.is_of_destination();
        assert_eq!(read_any(&mut &bytes[..], ours).await.unwrap(), message);
        assert!(read_any(&mut &bytes[..], !ours).await.is_err(), "from the wrong side");
        for length in 0..bytes.len() {
            assert!(read_any(&mut &bytes[..length], ours).await.is_err(), "truncated to {length}");
        }
        bytes
    }

    #[tokio::test]
    async fn a_message_does_not_wait_for_the_next_one() {
        let mut keeps_back = tokio::io::BufWriter::new(Vec::new());
        write(&mut keeps_back, &StreamMessage::HeldEnd).await.unwrap();
        assert_eq!(keeps_back.get_ref().len(), ENVELOPE_BYTES);
    }

    #[tokio::test]
    async fn messages_come_back_and_their_layout_is_pinned() {
        let frame = round_trip(StreamMessage::Frame(vec![7, 8])).await;
        assert_eq!(frame, [1, 2, 0, 0, 0, 7, 8]);
        let scanned = Scanned { changed_bytes: 4096, deallocated_bytes: 0, complete: true, scan_nanos: 5 };
        let bytes = round_trip(StreamMessage::Scanned(scanned)).await;
        assert_eq!(bytes, [2, 7, 0, 0, 0, 8, 0x80, 0x20, 0x18, 1, 0x20, 5]);
        round_trip(StreamMessage::StepEnd(StepEnd { frames: 3, changed_bytes: 9, ..StepEnd::default() }))
            .await;
        round_trip(StreamMessage::Failure(Failure::new("corrupt", "block 7"))).await;
        assert_eq!(round_trip(StreamMessage::Held(vec![1, 5, 4])).await, [5, 3, 0, 0, 0, 1, 5, 4]);
        assert_eq!(round_trip(StreamMessage::HeldEnd).await, [6, 0, 0, 0, 0]);
        assert_eq!(round_trip(StreamMessage::Working).await, [7, 0, 0, 0, 0]);
        assert_eq!(round_trip(StreamMessage::Ask(vec![1, 2])).await, [8, 2, 0, 0, 0, 1, 2]);
        assert_eq!(round_trip(StreamMessage::Answer(vec![6, 0])).await, [9, 2, 0, 0, 0, 6, 0]);
        assert_eq!(round_trip(StreamMessage::Withdraw(vec![0, 63])).await, [10, 2, 0, 0, 0, 0, 63]);
    }

    #[tokio::test]
    async fn a_length_beyond_the_limit_is_refused_before_it_is_believed() {
        for kind in 1..=10 {
            let bytes = [kind, 0xff, 0xff, 0xff, 0xff];
            assert!(matches!(read(&mut &bytes[..]).await, Err(TransferError::Protocol(_))));
            assert!(matches!(read_held(&mut &bytes[..]).await, Err(TransferError::Protocol(_))));
        }
        assert!(matches!(read(&mut &[7, 1, 0, 0, 0, 0][..]).await, Err(TransferError::Protocol(_))));
        assert!(matches!(read(&mut &[10, 65, 0, 0, 0][..]).await, Err(TransferError::Protocol(_))));
        assert!(matches!(read(&mut &[11, 0, 0, 0, 0][..]).await, Err(TransferError::Protocol(_))));
    }

    #[test]
    fn texts_from_outside_are_cut_and_cleaned() {
        let long = "ä".repeat(FAILURE_TEXT_MAX);
        assert!(cut(&long).len() <= FAILURE_TEXT_MAX);
        assert_eq!(cut("a\x1b[31m\nb"), "a [31m b");
    }
}
