//! Small reads and writes that have arrived together, on their way to one thread.
//!
//! A client with thirty-two commands under way sends them in bursts, since it is answered in bursts. Carried out one by one, each
//! wakes a thread, goes to the medium and to the socket by itself; together they do it once.

use crate::buffer_pool::PayloadBuffer;
use crate::export::Write;
use crate::limits::{JOINED_BYTES_MAX, JOINED_REQUEST_BYTES_MAX, JOINED_REQUESTS_MAX};
use crate::protocol::request::{Range, Request};
use crate::room::Reservation;

/// What has arrived and is not yet with a thread.
#[derive(Default)]
pub(crate) struct Joined {
    pub(crate) reads: Batch<JoinedRead>,
    pub(crate) writes: Batch<JoinedWrite>,
}

pub(crate) struct JoinedRead {
    pub(crate) request: Request,
    pub(crate) range: Range,
    pub(crate) reservation: Reservation,
}

pub(crate) struct JoinedWrite {
    pub(crate) request: Request,
    pub(crate) offset: u64,
    pub(crate) fua: bool,
    pub(crate) payload: PayloadBuffer,
    pub(crate) reservation: Reservation,
}

impl JoinedWrite {
    pub(crate) fn as_write(&self) -> Write<'_> {
        Write { offset: self.offset, bytes: &self.payload, fua: self.fua }
    }
}

/// Commands of one kind. A long one is alone.
pub(crate) struct Batch<T> {
    commands: Vec<T>,
    bytes: u32,
    has_long: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch { commands: Vec::new(), bytes: 0, has_long: false }
    }
}

impl<T> Batch<T> {
    pub(crate) fn has_room_for(&self, length: u32) -> bool {
        self.commands.is_empty()
            || (length <= JOINED_REQUEST_BYTES_MAX && self.bytes + length <= JOINED_BYTES_MAX)
    }

    /// Nothing is to be joined with these.
    pub(crate) fn is_full(&self) -> bool {
        self.has_long || self.commands.len() == JOINED_REQUESTS_MAX
    }

    pub(crate) fn push(&mut self, command: T, length: u32) {
        self.commands.push(command);
        self.bytes += length;
        self.has_long |= length > JOINED_REQUEST_BYTES_MAX;
    }

    /// All of them, if there are any.
    pub(crate) fn take(&mut self) -> Option<Vec<T>> {
        let taken = std::mem::take(self).commands;
        (!taken.is_empty()).then_some(taken)
    }
}
