//! What the fuzzer calls.

use super::frame::FrameReader;
use super::message::{Hello, Open, Opened, Refused, parse_ask};
use super::probe::ProbeDatagram;

/// For the fuzzer: whatever the bytes are, they are frames or an error.
pub fn fuzz_frames(bytes: &[u8]) {
    let mut reader = FrameReader::default();
    for part in bytes.chunks(7) {
        reader.buffer().extend_from_slice(part);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    let _ = frame.split_number();
                    let _ = Hello::parse(&frame.body);
                    let _ = Open::parse(&frame.body);
                    let _ = Opened::parse(&frame.body);
                    let _ = Refused::parse(&frame.body);
                    let _ = parse_ask(&frame);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// For the fuzzer: a datagram is a probe as it was written, or none.
pub fn fuzz_probe(bytes: &[u8]) {
    if let Some(probe) = ProbeDatagram::parse(bytes) {
        assert_eq!(probe.encode(), bytes);
    }
}
