//! What the fuzzer calls: anything a peer's box may say, in any order, on a trunk that carries flows.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use farside_link::{StreamOptions, WireCounters};
use farside_peer::{DataStream, PeerId, PeerLink, SessionError};
use tokio::sync::oneshot;

use super::effort::Cores;
use super::header::StreamHeader;
use super::state::{Entry, SMALL_MAX, Trunk, TrunkParts};
use crate::flow::{Arrived, Flow, Part, Windows};
use crate::protocol::{FrameReader, Hello, Kind, Open};

/// A flow that waits for its opening's answer, one whose host takes what comes, and one whose host takes nothing.
const FLOWS: [u32; 3] = [1, 2, 3];
/// Blocks that this side has asked for of the second flow, and what each stands for.
const ASKED: (u64, usize) = (4, 1000);
/// The budget of all windows: a flow begins with a sixteenth of it.
const BUDGET: u64 = 1 << 20;

/// Nobody is at the other end.
struct Nobody;

#[async_trait]
impl PeerLink for Nobody {
    fn peer(&self) -> PeerId {
        PeerId([7; 32])
    }

    async fn call(&self, _: Bytes, _: Option<&WireCounters>) -> Result<Bytes, SessionError> {
        Err(SessionError::Lost("there is nobody".to_owned()))
    }

    async fn open_stream(&self, _: Bytes, _: StreamOptions) -> Result<DataStream, SessionError> {
        Err(SessionError::Lost("there is nobody".to_owned()))
    }

    fn expect_bulk(&self) {}

    async fn closed(&self) {}

    fn rtt_seconds(&self) -> Option<f64> {
        None
    }

    fn wire(&self) -> Arc<WireCounters> {
        Arc::default()
    }
}

/// For the fuzzer: whatever a peer says, it is taken within the bounds of what is held here, or the trunk ends.
pub fn fuzz_trunk(bytes: &[u8]) {
    static CORES: OnceLock<Arc<Cores>> = OnceLock::new();
    let windows = Windows::new(BUDGET);
    let parts = TrunkParts {
        windows: Arc::clone(&windows),
        store: None,
        cores: Arc::clone(CORES.get_or_init(|| Arc::new(Cores::new()))),
        figures: Arc::default(),
    };
    let (trunk, _queues) = Trunk::new(Arc::new(Nobody), "peer".to_owned(), parts);
    let (answer, _opening) = oneshot::channel();
    let mut answer = Some(answer);
    let flows = FLOWS.map(|id| {
        let flow = Flow::new(id, &windows);
        trunk.flows.lock().insert(id, Entry { flow: Arc::clone(&flow), answer: answer.take() });
        flow
    });
    let [_, reads, does_not_read] = &flows;
    (0..ASKED.0).for_each(|sequence| reads.asks(sequence, ASKED.1));
    let window = u64::from(does_not_read.initial_window());

    let mut reader = FrameReader::default();
    reader.buffer().extend_from_slice(bytes);
    while let Ok(Some(frame)) = reader.next_frame() {
        let keeps_to_it = match frame.kind {
            Kind::Hello => Hello::parse(&frame.body).is_some(),
            Kind::Open => Open::parse(&frame.body).is_some(),
            Kind::Opened | Kind::Refused => trunk.answered(&frame),
            _ => trunk.take(frame),
        };
        if !keeps_to_it {
            break;
        }
        deliver(reads);
        let held = does_not_read.inbox.lock().held();
        assert!(held as u64 <= HELD_PER_WINDOW * window, "{held} bytes are held of a window of {window}");
        assert!(trunk.waiting() <= SMALL_MAX + 1, "answers without end");
    }
    drop(trunk);
    assert!(windows.granted() <= BUDGET);
}

/// What a part may take in memory, for each byte that it takes of its flow's window.
const HELD_PER_WINDOW: u64 = 4;

/// Takes what has come in order, and gives credit for it, as [`crate::carry`] does.
fn deliver(flow: &Flow) {
    loop {
        let arrived = flow.inbox.lock().take();
        let Some(Arrived::Part(_, part)) = arrived else { return };
        let mut window = flow.window.lock();
        if let Part::Rest(returned) = part {
            window.rests(returned);
        }
        let credit = window.consumed(part.cost(), None);
        drop(window);
        flow.inbox.lock().allow(credit.unwrap_or(0));
    }
}

/// For the fuzzer: the header of a stream is read as it was written, or refused.
pub fn fuzz_header(bytes: &[u8]) {
    if let Some(header) = StreamHeader::parse(bytes) {
        assert_eq!(header.encode(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Frame;
    use proptest::prelude::*;

    /// Frames of all kinds for the flows that there are, with numbers that fit together often enough.
    fn said() -> impl Strategy<Value = Vec<u8>> {
        let number = prop_oneof![0u64..6, Just(1 << 20), any::<u64>()];
        let numbers = prop::collection::vec(number, 0..3);
        let rest = prop_oneof![
            Just(Vec::new()),
            // A block of literals, as many as it says.
            (1u8..30).prop_map(|n| [vec![0, n, 1, n, 4 * n], vec![b'a'; usize::from(n)]].concat()),
            prop::collection::vec(any::<u8>(), 0..40),
        ];
        let frame = (1u8..=18, 0u32..5, numbers, rest).prop_map(|(kind, flow, numbers, rest)| {
            let body = [Frame::numbers(Kind::Ping, 0, &numbers).body.to_vec(), rest].concat();
            let frame = Frame { kind: Kind::Ping, flow, body: body.into() };
            let mut bytes = [frame.head(), frame.body.to_vec()].concat();
            bytes[0] = kind;
            bytes
        });
        prop::collection::vec(frame, 0..60).prop_map(|frames| frames.concat())
    }

    proptest! {
        #[test]
        fn whatever_a_peer_says_is_bounded(bytes in said()) {
            fuzz_trunk(&bytes);
        }

        #[test]
        fn garbage_is_no_header(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            fuzz_header(&bytes);
        }
    }
}
