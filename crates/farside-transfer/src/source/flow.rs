//! What flows between the stages of a step.

use farside_wire::{Run, Sent};

use crate::protocol::stream::StreamMessage;

/// Some ascending runs, at most [`RUNS_PER_BATCH`](crate::limits::RUNS_PER_BATCH), all behind those of the batch before. Between the difference and the
/// reading they flow in these, so that a stage in between can take some away.
pub(crate) type RunBatch = Vec<Run>;

/// What is sent next.
pub(crate) enum Outgoing {
    Message(StreamMessage),
    /// A frame, and what it cost so far.
    Frame(Vec<u8>, Sent),
}

impl From<StreamMessage> for Outgoing {
    fn from(message: StreamMessage) -> Outgoing {
        Outgoing::Message(message)
    }
}
