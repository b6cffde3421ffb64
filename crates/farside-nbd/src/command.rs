//! Carrying out one command: the call into the export, and the answer it makes.
//!
//! Runs on a thread that may block. What comes in here has been validated; what the export returns has not.

use std::sync::Arc;

use bytes::Bytes;

use crate::buffer_pool::BufferPool;
use crate::context::{Context, STATE_ZERO, base_allocation};
use crate::error::{ErrorKind, NbdError};
use crate::export::{Export, Marked};
use crate::limits::{EXTENTS_PER_REPLY_MAX, HOLE_BYTES_MIN};
use crate::protocol::reply::{self, ReadRun};
use crate::protocol::request::{Action, Range};

/// Carries out `action`, which is no write (those go together), and returns the answer's pieces.
pub(crate) fn perform(
    export: &dyn Export,
    contexts: &[Context],
    structured_replies: bool,
    cookie: u64,
    action: Action,
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
        Action::Write { .. } => unreachable!("a write comes with its payload, and with other writes"),
        Action::Flush => export.flush()?,
        Action::Trim { range, fua } => export.trim(range.offset, range.length.into(), fua)?,
        Action::Cache { range } => export.cache(range.offset, range.length.into())?,
        Action::WriteZeroes { range, mode } => {
            export.write_zeroes(range.offset, range.length.into(), mode)?;
        }
        Action::BlockStatus { range, one_extent } => {
            let runs_max = if one_extent { 1 } else { EXTENTS_PER_REPLY_MAX };
            let said = |context: &Context| {
                let told = context.status(export, range.offset, range.length.into(), runs_max)?;
                Ok((context.id, within(told, range, runs_max)?))
            };
            let all = contexts.iter().map(said).collect::<Result<Vec<_>, NbdError>>()?;
            return Ok(reply::block_status(cookie, &all));
        }
    }
    Ok(reply::done(cookie))
}

/// The answer to a read of `bytes`, which are no holes.
pub(crate) fn read_reply(structured_replies: bool, cookie: u64, range: Range, bytes: Bytes) -> Vec<Bytes> {
    if structured_replies {
        reply::read_structured(cookie, vec![ReadRun::Data { offset: range.offset, bytes }])
    } else {
        reply::read_simple(cookie, bytes)
    }
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
    let told = base_allocation(export, range.offset, range.length.into(), EXTENTS_PER_REPLY_MAX);
    let extents = match told.and_then(|told| within(told, range, EXTENTS_PER_REPLY_MAX)) {
        Ok(extents) => extents,
        Err(error) if error.kind == ErrorKind::NotSupported => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut holes: Vec<Range> = Vec::new();
    let mut offset = range.offset;
    for Marked { length, flags } in extents {
        let zero = flags & STATE_ZERO != 0;
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

/// What was told of `range`: neighbours of one kind joined, none empty, none beyond the range, at least one.
fn within(told: Vec<Marked>, range: Range, runs_max: usize) -> Result<Vec<Marked>, NbdError> {
    let mut left = u64::from(range.length);
    let mut runs: Vec<Marked> = Vec::with_capacity(told.len().min(runs_max));
    for run in told {
        let length = run.length.min(left);
        left -= length;
        let is_full = runs.len() == runs_max;
        match runs.last_mut() {
            _ if length == 0 => {}
            Some(last) if last.flags == run.flags => last.length += length,
            _ if is_full => break,
            _ => runs.push(Marked { length, ..run }),
        }
    }
    if runs.is_empty() {
        let Range { offset, length } = range;
        return Err(NbdError::new(
            ErrorKind::Io,
            format_args!("the export has no status for {length} bytes at byte {offset}"),
        ));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::export::{ExportDescription, Extent, ZeroMode};

    /// An export of which only the status matters, and that may be wrong.
    struct Answered(Result<Vec<Extent>, ErrorKind>);

    impl Export for Answered {
        fn description(&self) -> ExportDescription {
            unreachable!()
        }
        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
            buffer.fill((offset >> 16) as u8);
            Ok(())
        }
        fn write(&self, _: u64, _: &[u8], _: bool) -> Result<(), NbdError> {
            unreachable!()
        }
        fn flush(&self) -> Result<(), NbdError> {
            unreachable!()
        }
        fn trim(&self, _: u64, _: u64, _: bool) -> Result<(), NbdError> {
            unreachable!()
        }
        fn write_zeroes(&self, _: u64, _: u64, _: ZeroMode) -> Result<(), NbdError> {
            unreachable!()
        }
        fn block_status(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, NbdError> {
            self.0.clone().map_err(|kind| NbdError::new(kind, "no status"))
        }
        fn closed(&self) -> CancellationToken {
            unreachable!()
        }
    }

    const K: u64 = 1 << 10;

    fn data(length: u64) -> Extent {
        Extent { length, hole: false, zero: false }
    }

    fn hole(length: u64) -> Extent {
        Extent { length, hole: true, zero: true }
    }

    fn kept_zeros(length: u64) -> Extent {
        Extent { length, hole: false, zero: true }
    }

    const RANGE: Range = Range { offset: 1 << 20, length: 512 << 10 };

    #[test]
    fn status_is_joined_clamped_and_bounded() {
        let told = |extents: Vec<Extent>| {
            base_allocation(&Answered(Ok(extents)), RANGE.offset, RANGE.length.into(), 100).unwrap()
        };
        let some = told(vec![data(4 * K), data(0), data(4 * K), hole(4 * K), data(900 * K), hole(1)]);
        let run = |length, flags| Marked { length, flags };
        let all = within(some.clone(), RANGE, 100).unwrap();
        assert_eq!(all, [run(8 * K, 0), run(4 * K, 3), run(500 * K, 0)]);
        assert_eq!(within(some, RANGE, 1).unwrap(), [run(8 * K, 0)]);
        for nothing in [vec![], vec![data(0)]] {
            let error = within(told(nothing), RANGE, 1).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Io, "an answer without extents would break the protocol");
        }
    }

    #[test]
    fn only_long_zeros_become_holes() {
        // Short hole; zeros that are long only together; what is not described counts as data.
        let told = vec![hole(60 * K), data(4 * K), kept_zeros(40 * K), hole(40 * K), data(4 * K)];
        let holes = long_holes(&Answered(Ok(told)), RANGE).unwrap();
        assert_eq!(holes, [Range { offset: RANGE.offset + 64 * K, length: 80 << 10 }]);

        let short = Range { length: (HOLE_BYTES_MIN - 1) as u32, ..RANGE };
        assert_eq!(long_holes(&Answered(Ok(vec![hole(1 << 30)])), short).unwrap(), []);
        assert_eq!(long_holes(&Answered(Err(ErrorKind::NotSupported)), RANGE).unwrap(), []);
        assert_eq!(long_holes(&Answered(Err(ErrorKind::Io)), RANGE).unwrap_err().kind, ErrorKind::Io);
    }

    #[test]
    fn runs_cover_the_range_once() {
        let buffers = Arc::new(BufferPool::default());
        let hole =
            |at: u64, length: u64| Range { offset: RANGE.offset + at * K, length: (length * K) as u32 };
        for holes in [vec![], vec![hole(0, 512)], vec![hole(0, 64), hole(448, 64)], vec![hole(64, 64)]] {
            let mut at = RANGE.offset;
            for run in read_around(&Answered(Ok(vec![])), RANGE, &holes, &buffers).unwrap() {
                let (offset, length) = match run {
                    ReadRun::Data { offset, bytes } => {
                        assert!(bytes.iter().all(|&byte| byte == (offset >> 16) as u8));
                        (offset, bytes.len() as u64)
                    }
                    ReadRun::Hole { offset, length } => {
                        assert!(holes.contains(&Range { offset, length }));
                        (offset, length.into())
                    }
                };
                assert_eq!(offset, at);
                at += length;
            }
            assert_eq!(at, RANGE.offset + u64::from(RANGE.length));
        }
    }
}
