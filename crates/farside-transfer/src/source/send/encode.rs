//! The last stage before the stream: frames to be to frames, several at a time, sent in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farside_engine::BLOCK_BYTES;
use farside_wire::{Encoder, Sent};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::frame::{Frame, Spares, Work};
use super::pace::Pace;
use crate::error::TransferError;
use crate::limits::ENCODERS_PER_TRANSFER;
use crate::precedence;
use crate::protocol::stream::StreamMessage;
use crate::source::counters::Counters;
use crate::source::flow::Outgoing;

/// What encoding a frame needs besides the frame.
#[derive(Clone)]
pub(crate) struct Encoding {
    pub(crate) counters: Arc<Counters>,
    pub(crate) pace: Arc<Pace>,
    /// Of the stream; those that encode are beside it.
    pub(crate) first: Arc<Encoder>,
    /// Encoders that have no frame now.
    pub(crate) encoders: Arc<Spares<Option<Encoder>>>,
    /// Memory of frames that were encoded, and of such that were sent.
    pub(crate) spares: Arc<Spares<Work>>,
    pub(crate) sent: Arc<Spares<Vec<u8>>>,
}

/// The site's encoders are few, so that many transfers share the machine's cores instead of fighting over them.
pub(crate) async fn encode(
    encoding: Encoding,
    mut frames: mpsc::Receiver<Frame>,
    out: mpsc::Sender<Outgoing>,
) -> Result<(), TransferError> {
    let mut underway = VecDeque::new();
    let mut is_open = true;
    while is_open || !underway.is_empty() {
        tokio::select! {
            next = frames.recv(), if is_open && underway.len() < ENCODERS_PER_TRANSFER => {
                let Some(frame) = next else {
                    is_open = false;
                    continue;
                };
                let permit = encoding.pace.acquire(frame.effort).await?;
                let encoding = encoding.clone();
                underway.push_back(precedence::encode(move || {
                    let frame = encoding.encode(frame);
                    drop(permit);
                    frame
                }));
            }
            frame = first_of(&mut underway), if !underway.is_empty() => {
                let (frame, sent, withdrawn) = frame??;
                if !withdrawn.is_empty() && out.send(StreamMessage::Withdraw(withdrawn).into()).await.is_err() {
                    break;
                }
                if out.send(Outgoing::Frame(frame, sent)).await.is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// A frame, what it cost, and what is withdrawn before it.
type Made = Result<(Vec<u8>, Sent, Vec<u8>), TransferError>;
type Underway = JoinHandle<Made>;

/// The frame that is to be sent next, once it is there. Cancel-safe.
async fn first_of(underway: &mut VecDeque<Underway>) -> Result<Made, JoinError> {
    let Some(first) = underway.front_mut() else { return std::future::pending().await };
    let frame = first.await;
    underway.pop_front();
    frame
}

impl Encoding {
    fn encode(&self, frame: Frame) -> Made {
        let Frame { planned, mut work, effort, searching, withdrawn } = frame;
        let begins = self.pace.now();
        let mut bytes = self.sent.take();
        let mut encoder = self.encoders.take().unwrap_or_else(|| self.first.beside());
        let Work { data, prefix } = &mut work;
        let plan = &planned.plan;
        encoder
            .encode(&plan.runs, data, &planned.fingerprints, prefix, effort, &mut bytes)
            .map_err(|e| TransferError::Internal(e.to_string()))?;
        self.counters.frames.add(1);
        self.counters.changed.add(plan.data_bytes() + plan.repeat_blocks * BLOCK_BYTES);
        self.counters.deallocated.add(plan.hole_blocks() * BLOCK_BYTES);
        self.spares.give(work);
        self.encoders.give(Some(encoder));
        let sent = Sent {
            effort,
            in_bytes: plan.data_bytes(),
            out_bytes: bytes.len() as u64,
            searching,
            encoding: self.pace.now().saturating_sub(begins),
            waited: Duration::ZERO,
            writing: Duration::ZERO,
        };
        Ok((bytes, sent, withdrawn))
    }
}
