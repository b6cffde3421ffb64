//! The last stage before the stream: frames to be to frames, several at a time, sent in order.

use std::collections::VecDeque;
use std::sync::Arc;

use farside_engine::BLOCK_BYTES;
use farside_wire::FrameRung;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinHandle};

use super::frame::{Frame, Outgoing, Spares, Work};
use crate::error::MirrorError;
use crate::limits::ENCODERS_PER_TRANSFER;
use crate::source::counters::Counters;

/// What encoding a frame needs besides the frame.
#[derive(Clone)]
pub(super) struct Encoding {
    pub(super) counters: Arc<Counters>,
    /// Memory of frames that were encoded, and of such that were sent.
    pub(super) spares: Arc<Spares<Work>>,
    pub(super) sent: Arc<Spares<Vec<u8>>>,
}

/// The site's encoders are few, so that many transfers share the machine's cores instead of fighting over them.
pub(super) async fn encode(
    encoders: Arc<Semaphore>,
    encoding: Encoding,
    mut frames: mpsc::Receiver<Frame>,
    out: mpsc::Sender<Outgoing>,
) -> Result<(), MirrorError> {
    let mut underway = VecDeque::new();
    let mut is_open = true;
    while is_open || !underway.is_empty() {
        tokio::select! {
            next = frames.recv(), if is_open && underway.len() < ENCODERS_PER_TRANSFER => {
                let Some(frame) = next else {
                    is_open = false;
                    continue;
                };
                let turn = encoders.clone().acquire_owned().await;
                let turn = turn.map_err(|e| MirrorError::Internal(e.to_string()))?;
                let encoding = encoding.clone();
                underway.push_back(tokio::task::spawn_blocking(move || {
                    let frame = encoding.encode(frame);
                    drop(turn);
                    frame
                }));
            }
            frame = first_of(&mut underway), if !underway.is_empty() => {
                if out.send(Outgoing::Frame(frame??)).await.is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

type Underway = JoinHandle<Result<Vec<u8>, MirrorError>>;

/// The frame that is to be sent next, once it is there. Cancel-safe.
async fn first_of(underway: &mut VecDeque<Underway>) -> Result<Result<Vec<u8>, MirrorError>, JoinError> {
    let Some(first) = underway.front_mut() else { return std::future::pending().await };
    let frame = first.await;
    underway.pop_front();
    frame
}

impl Encoding {
    fn encode(&self, frame: Frame) -> Result<Vec<u8>, MirrorError> {
        let Frame { planned, mut work, effort } = frame;
        let mut bytes = self.sent.take();
        let Work { data, prefix, encoder } = &mut work;
        let plan = &planned.plan;
        let encoded = encoder
            .encode(&plan.runs, data, &planned.fingerprints, prefix, effort, &mut bytes)
            .map_err(|e| MirrorError::Internal(e.to_string()))?;
        self.counters.frames.add(1);
        self.counters.changed.add(plan.data_bytes() + plan.repeat_blocks * BLOCK_BYTES);
        self.counters.deallocated.add(plan.hole_blocks() * BLOCK_BYTES);
        if encoded.rung == FrameRung::Delta {
            self.counters.delta.add(plan.data_bytes());
        }
        self.spares.give(work);
        Ok(bytes)
    }
}
