//! The receiving side of a bundle: segments from any lane in any order become the stream, and the credit that the other side
//! may use. Pure: no I/O, no clock.
//!
//! ```text
//!   read by the application │ ready │ gap │ held │ gap … │
//! ──────────────────────────┼───────┼─────┼──────┼───────┼──────────► offset
//!                       consumed  contiguous          highest   limit ≤ consumed + window
//! ```
//!
//! * What is granted has room: memory for data is at most the window, pieces out of order are bounded in number too, and a
//!   segment past the limit is an error.
//! * Bytes that are there already are dropped and counted; two lanes may bring the same.
//! * An automatic window doubles when the sender says that more than half of its credit is in use, this side's application keeps
//!   up, and no throttle is what limits; once for each window, so at most once in a round trip. It starts where it is told to
//!   and takes what it grows by from the site's budget.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::budget::WindowBudget;
use super::sender::Broken;
use crate::limits::{ACK_EVERY_MAX, SEGMENTS_HELD_MAX, WINDOW_MAX, WINDOW_MIN, WINDOW_START};
use crate::options::Window;

/// Pieces smaller than this are copied together, so that tiny segments do not cost more memory than their bytes.
const SMALL_PIECE: usize = 4096;

/// What there is to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Read {
    Piece(Bytes),
    /// Everything was read.
    End,
    /// Nothing yet.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Receiver {
    ready: VecDeque<Bytes>,
    /// After them: small pieces, together.
    small: BytesMut,
    ready_bytes: u64,
    contiguous: u64,
    held: BTreeMap<u64, Bytes>,
    highest: u64,
    limit: u64,
    /// The limit that some ack has announced to the sender.
    announced: u64,
    window: u64,
    automatic: bool,
    /// A crowded segment that ends past this has used credit of the present window.
    grown_at: u64,
    budget: Arc<WindowBudget>,
    borrowed: u64,
    end: Option<u64>,
    duplicates: u64,
}

impl Receiver {
    pub(super) fn new(window: Window, start: Option<u64>, budget: Arc<WindowBudget>) -> Receiver {
        let (window, automatic) = match window {
            Window::Auto => (start.unwrap_or(WINDOW_START), true),
            Window::Bytes(bytes) => (bytes, false),
        };
        let mut window = window.clamp(WINDOW_MIN, WINDOW_MAX);
        let mut borrowed = window.saturating_sub(WINDOW_START);
        if !budget.take(borrowed) {
            (window, borrowed) = (WINDOW_START, 0);
        }
        Receiver {
            ready: VecDeque::new(),
            small: BytesMut::new(),
            ready_bytes: 0,
            contiguous: 0,
            held: BTreeMap::new(),
            highest: 0,
            limit: WINDOW_MIN,
            announced: WINDOW_MIN,
            window,
            automatic,
            grown_at: WINDOW_MIN,
            budget,
            borrowed,
            end: None,
            duplicates: 0,
        }
    }

    /// Whether data may come there: to be asked before anything is kept for it.
    pub(super) fn admits(&self, offset: u64, bytes: usize) -> Result<(), Broken> {
        let end = offset + bytes as u64;
        if end > self.limit {
            return Err(Broken(format!(
                "it sent {bytes} bytes at {offset}; {} were granted, and nothing past that",
                self.limit
            )));
        }
        match self.end {
            Some(length) if end > length => {
                Err(Broken(format!("it sent {bytes} bytes at {offset}, past the stream's end at {length}")))
            }
            _ => Ok(()),
        }
    }

    /// Data arrived; whether there is more to read than before.
    pub(super) fn on_data(&mut self, offset: u64, bytes: Bytes, crowded: bool) -> Result<bool, Broken> {
        self.admits(offset, bytes.len())?;
        let end = offset + bytes.len() as u64;
        self.highest = self.highest.max(end);
        let before = self.contiguous;
        if offset <= self.contiguous && self.held.is_empty() {
            // In order, as with one lane always.
            let known = (self.contiguous - offset).min(bytes.len() as u64);
            self.duplicates += known;
            self.append(bytes, known as usize);
        } else {
            self.hold(offset, &bytes);
            while let Some(entry) = self.held.first_entry()
                && *entry.key() == self.contiguous
            {
                let piece = entry.remove();
                self.append(piece, 0);
            }
            if self.held.len() > SEGMENTS_HELD_MAX {
                return Err(Broken(format!("more than {SEGMENTS_HELD_MAX} pieces out of order")));
            }
        }
        if crowded && end > self.grown_at {
            self.grow();
        }
        Ok(self.contiguous > before)
    }

    /// Keeps what of it is not there yet.
    fn hold(&mut self, offset: u64, bytes: &Bytes) {
        let end = offset + bytes.len() as u64;
        let mut at = offset.max(self.contiguous).min(end);
        let mut kept = 0;
        while at < end {
            let there_until = self.held.range(..=at).next_back().map_or(0, |(o, b)| o + b.len() as u64);
            if there_until > at {
                at = there_until.min(end);
                continue;
            }
            let gap_end = self.held.range(at..).next().map_or(end, |(o, _)| (*o).min(end));
            let piece = bytes.slice((at - offset) as usize..(gap_end - offset) as usize);
            kept += gap_end - at;
            // A small part would keep the memory of the whole.
            let is_part = piece.len() * 2 < bytes.len();
            self.held.insert(at, if is_part { Bytes::copy_from_slice(&piece) } else { piece });
            at = gap_end;
        }
        self.duplicates += bytes.len() as u64 - kept;
    }

    /// What follows what is ready, without its first `known` bytes.
    fn append(&mut self, mut piece: Bytes, known: usize) {
        let whole = piece.len();
        let piece = piece.split_off(known);
        let bytes = piece.len();
        if bytes == 0 {
            return;
        }
        self.contiguous += bytes as u64;
        self.ready_bytes += bytes as u64;
        if bytes < SMALL_PIECE || bytes * 2 < whole {
            self.small.extend_from_slice(&piece);
            if self.small.len() >= 4 * SMALL_PIECE {
                self.ready.push_back(self.small.split().freeze());
            }
            return;
        }
        if !self.small.is_empty() {
            self.ready.push_back(self.small.split().freeze());
        }
        self.ready.push_back(piece);
    }

    /// The stream's length is known.
    pub(super) fn on_end(&mut self, offset: u64) -> Result<(), Broken> {
        if offset < self.highest || offset > self.limit || self.end.is_some_and(|end| end != offset) {
            return Err(Broken(format!(
                "it ends the stream at {offset}; data came up to {}, {} were granted, and it ended at {:?} before",
                self.highest, self.limit, self.end
            )));
        }
        self.end = Some(offset);
        Ok(())
    }

    /// The next bytes of the stream. What is handed out counts as read.
    pub(super) fn read(&mut self) -> Read {
        let piece = match self.ready.pop_front() {
            Some(piece) => piece,
            None if !self.small.is_empty() => self.small.split().freeze(),
            None if self.is_complete() => return Read::End,
            None => return Read::Nothing,
        };
        self.ready_bytes -= piece.len() as u64;
        Read::Piece(piece)
    }

    fn consumed(&self) -> u64 {
        self.contiguous - self.ready_bytes
    }

    fn grow(&mut self) {
        let more = self.window.min(WINDOW_MAX.saturating_sub(self.window));
        // A throttle grants less than the window, and an application that does not read needs none.
        let is_what_limits = self.grantable() <= self.window / 4 && self.ready_bytes <= self.window / 2;
        if self.automatic && is_what_limits && more > 0 && self.budget.take(more) {
            self.borrowed += more;
            self.grown_at = self.limit;
            self.window += more;
        }
    }

    /// Credit that there is room for and that is not granted.
    pub(super) fn grantable(&self) -> u64 {
        if self.end.is_some() { 0 } else { (self.consumed() + self.window).saturating_sub(self.limit) }
    }

    /// Grants `bytes` of what is [grantable](Receiver::grantable).
    pub(super) fn grant(&mut self, bytes: u64) {
        self.limit += bytes.min(self.grantable());
    }

    /// Credit that was granted and not used yet.
    pub(super) fn unused(&self) -> u64 {
        self.limit - self.highest
    }

    /// How far the sender may send.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Enough credit is granted that the sender does not know of.
    pub(super) fn is_ack_due(&self) -> bool {
        self.unannounced() >= (self.window / 4).clamp(1, ACK_EVERY_MAX * 4)
    }

    /// Some credit is granted that the sender does not know of.
    pub(super) fn has_unannounced(&self) -> bool {
        self.unannounced() > 0
    }

    /// How much.
    pub(super) fn unannounced(&self) -> u64 {
        self.limit - self.announced
    }

    /// Contiguous offset and limit for an ack that goes out now.
    pub(super) fn send_ack(&mut self) -> (u64, u64) {
        self.announced = self.limit;
        (self.contiguous, self.limit)
    }

    /// Bytes of a lane's after which an ack is due there.
    pub(super) fn ack_every(&self) -> u64 {
        (self.window / 4).min(ACK_EVERY_MAX)
    }

    /// Everything has arrived, the end too.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.contiguous)
    }

    pub(super) fn contiguous(&self) -> u64 {
        self.contiguous
    }

    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.budget.give_back(self.borrowed);
    }
}
