//! Carrying out one command: the call into the export, and the answer it makes.
//!
//! Runs on a thread that may block. What comes in here has been validated; what the export returns has not.

use std::sync::Arc;

use bytes::Bytes;

use crate::buffer_pool::{BufferPool, PayloadBuffer};
use crate::error::{ErrorKind, NbdError};
use crate::export::{Export, Extent};
use crate::limits::{EXTENTS_PER_REPLY_MAX, HOLE_BYTES_MIN};
use crate::protocol::reply::{self, ReadRun};
use crate::protocol::request::{Action, Range};

/// Carries out `action` and returns the answer's pieces. `payload` belongs to a write and to nothing else.
pub(crate) fn perform(
    export: &dyn Export,
    structured_replies: bool,
    cookie: u64,
    action: Action,
    payload: Option<PayloadBuffer>,
    buffers: &Arc<BufferPool>,
) -> Result<Vec<Bytes>, NbdError> {
    match action {
        Action::Read { range, .. } if !structured_replies => {
            return Ok(reply::read_simple(cookie, read_all(export, range, buffers)?));
        }
        Action::Read { range, one_chunk } => {
            let holes = if one_chunk { Vec::new() } else { long_holes(export, range)? };
            let runs = read_around(export, range, &holes, buffers)?;
            return Ok(reply::read_structured(cookie, runs));
        }
        Action::Write { range, fua } => {
            let payload = payload.expect("the connection receives a write's payload before it submits it");
            export.write(range.offset, &payload, fua)?;
        }
        Action::Flush => export.flush()?,
        Action::Trim { range, fua } => export.trim(range.offset, range.length.into(), fua)?,
        Action::WriteZeroes { range, mode } => {
            export.write_zeroes(range.offset, range.length.into(), mode)?;
        }
        Action::BlockStatus { range, one_extent } => {
            let extents_max = if one_extent { 1 } else { EXTENTS_PER_REPLY_MAX };
            let extents = extents_within(export, range, extents_max)?;
            return Ok(reply::block_status(cookie, &extents));
        }
    }
    Ok(reply::done(cookie))
}

fn read_all(export: &dyn Export, range: Range, buffers: &Arc<BufferPool>) -> Result<Bytes, NbdError> {
    let mut buffer = buffers.take(range.length);
    export.read(range.offset, &mut buffer)?;
    Ok(buffer.into_bytes())
}

/// Reads what is not in `holes`, which lie within `range`, in order and without touching each other.
///
/// A write that comes between the look for holes and the read may be seen in part. It is concurrent with this
/// read, so either of its states, byte by byte, is a right answer.
fn read_around(
    export: &dyn Export,
    range: Range,
    holes: &[Range],
    buffers: &Arc<BufferPool>,
) -> Result<Vec<ReadRun>, NbdError> {
    let mut runs = Vec::with_capacity(2 * holes.len() + 1);
    let mut offset = range.offset;
    let end = range.offset + u64::from(range.length);
    for hole in holes {
        push_data(&mut runs, export, offset, hole.offset, buffers)?;
        runs.push(ReadRun::Hole { offset: hole.offset, length: hole.length });
        offset = hole.offset + u64::from(hole.length);
    }
    push_data(&mut runs, export, offset, end, buffers)?;
    Ok(runs)
}

fn push_data(
    runs: &mut Vec<ReadRun>,
    export: &dyn Export,
    offset: u64,
    end: u64,
    buffers: &Arc<BufferPool>,
) -> Result<(), NbdError> {
    if offset < end {
        let length = u32::try_from(end - offset).expect("a read has at most 32 MiB");
        runs.push(ReadRun::Data { offset, bytes: read_all(export, Range { offset, length }, buffers)? });
    }
    Ok(())
}

/// The runs of zeros in `range` that are long enough to be sent as holes.
fn long_holes(export: &dyn Export, range: Range) -> Result<Vec<Range>, NbdError> {
    if u64::from(range.length) < HOLE_BYTES_MIN {
        return Ok(Vec::new());
    }
    let extents = match extents_within(export, range, EXTENTS_PER_REPLY_MAX) {
        Ok(extents) => extents,
        Err(error) if error.kind == ErrorKind::NotSupported => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut holes: Vec<Range> = Vec::new();
    let mut offset = range.offset;
    for Extent { length, zero, .. } in extents {
        let length = u32::try_from(length).expect("extents are clamped to the request");
        match holes.last_mut() {
            // A hole and zeros that take room read the same.
            Some(last) if zero && last.offset + u64::from(last.length) == offset => last.length += length,
            _ if zero => holes.push(Range { offset, length }),
            _ => {}
        }
        offset += u64::from(length);
    }
    holes.retain(|hole| u64::from(hole.length) >= HOLE_BYTES_MIN);
    Ok(holes)
}

/// What the export says of `range`: neighbours of one kind joined, none empty, none beyond the range, at least one.
fn extents_within(export: &dyn Export, range: Range, extents_max: usize) -> Result<Vec<Extent>, NbdError> {
    let told = export.block_status(range.offset, range.length.into(), extents_max)?;
    let mut left = u64::from(range.length);
    let mut extents: Vec<Extent> = Vec::with_capacity(told.len().min(extents_max));
    for extent in told {
        let length = extent.length.min(left);
        left -= length;
        let is_full = extents.len() == extents_max;
        match extents.last_mut() {
            _ if length == 0 => {}
            Some(last) if (last.hole, last.zero) == (extent.hole, extent.zero) => last.length += length,
            _ if is_full => break,
            _ => extents.push(Extent { length, ..extent }),
        }
    }
    if extents.is_empty() {
        let Range { offset, length } = range;
        return Err(NbdError::new(
            ErrorKind::Io,
            format_args!("the export has no status for {length} bytes at byte {offset}"),
        ));
    }
    Ok(extents)
}
