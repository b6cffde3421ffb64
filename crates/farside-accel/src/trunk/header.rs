//! The header of a trunk's streams.

use bytes::Bytes;

use crate::protocol::Nonce;

/// Which of a trunk's two streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// For what must not wait.
    Urgent,
    /// For flows that have much to send.
    Bulk,
}

/// What a stream of a session is for, in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamHeader {
    pub(super) stream: Stream,
    pub(super) trunk: Nonce,
}

const HEADER_MAGIC: &[u8; 8] = b"farsideT";

impl StreamHeader {
    pub(super) fn encode(&self) -> Bytes {
        let stream = match self.stream {
            Stream::Urgent => 0,
            Stream::Bulk => 1,
        };
        [&HEADER_MAGIC[..], &[stream], &self.trunk].concat().into()
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<StreamHeader> {
        let (stream, trunk) = bytes.strip_prefix(HEADER_MAGIC)?.split_first()?;
        let stream = match stream {
            0 => Stream::Urgent,
            1 => Stream::Bulk,
            _ => return None,
        };
        Some(StreamHeader { stream, trunk: trunk.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for stream in [Stream::Urgent, Stream::Bulk] {
            let header = StreamHeader { stream, trunk: [5; 16] };
            assert_eq!(StreamHeader::parse(&header.encode()), Some(header));
            assert_eq!(StreamHeader::parse(&header.encode()[1..]), None);
            assert_eq!(StreamHeader::parse(&[&header.encode()[..], &[0]].concat()), None);
        }
    }
}
