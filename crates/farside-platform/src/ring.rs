//! Many reads or writes of a file with one call of the kernel, by io_uring. Kernels and containers may forbid it; then it is not there.
//!
//! One read each is a system call, and the thread that made it sleeps and is woken. Thirty-two at once are one call and one sleep.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use io_uring::{IoUring, opcode, squeue, types};

/// Reads or writes in one call.
const ENTRIES: usize = 64;

thread_local! {
    /// Each thread has its own, so nobody waits for another's.
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Environment variable that keeps this process from it, where it is `off`: a kernel's io_uring may have a bug.
const VARIABLE: &str = "FARSIDE_IO_URING";

/// Whether the kernel lets this process have it, and whoever started it did not say otherwise; asked once.
pub(crate) fn is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        std::env::var_os(VARIABLE).is_none_or(|value| value != "off") && IoUring::new(ENTRIES as u32).is_ok()
    })
}

/// Fills each buffer from its offset; what became of each. `None` if there is no io_uring: nothing was read.
pub(crate) fn read_many(file: &File, reads: &mut [(u64, &mut [u8])]) -> Option<Vec<io::Result<()>>> {
    with_ring(|ring| reads.chunks_mut(ENTRIES).flat_map(|reads| read_some(ring, file, reads)).collect())
}

/// Writes pieces one behind the other from each offset on; of each how much of it is written, at least, or what failed. `None` if
/// there is no io_uring: nothing was written.
pub(crate) fn write_many(file: &File, writes: &[(u64, Vec<IoSlice<'_>>)]) -> Option<Vec<io::Result<usize>>> {
    with_ring(|ring| writes.chunks(ENTRIES).flat_map(|writes| write_some(ring, file, writes)).collect())
}

/// With this thread's ring.
fn with_ring<T>(work: impl FnOnce(&mut IoUring) -> T) -> Option<T> {
    if !is_allowed() {
        return None;
    }
    RING.with_borrow_mut(|ring| {
        if ring.is_none() {
            *ring = IoUring::new(ENTRIES as u32).ok();
        }
        ring.as_mut().map(work)
    })
}

/// Up to [`ENTRIES`] of them.
fn read_some(ring: &mut IoUring, file: &File, reads: &mut [(u64, &mut [u8])]) -> Vec<io::Result<()>> {
    let entries: Vec<squeue::Entry> = reads
        .iter_mut()
        .map_while(|(offset, buffer)| {
            let length = u32::try_from(buffer.len()).ok()?;
            let fd = types::Fd(file.as_raw_fd());
            Some(opcode::Read::new(fd, buffer.as_mut_ptr(), length).offset(*offset).build())
        })
        .collect();
    // SAFETY: the kernel writes to the buffers and uses the descriptor. Both are borrowed by this function for as long as it runs, the
    // buffers exclusively, and nothing uses them before this call is over.
    #[allow(unsafe_code, reason = "the kernel is given addresses; the proof is above")]
    let outcomes = unsafe { complete(ring, entries) };
    reads
        .iter_mut()
        .enumerate()
        .map(|(number, (offset, buffer))| finish_read(file, *offset, buffer, outcomes.get(number).copied()))
        .collect()
}

/// What became of a read whose result is `outcome`; none: it was not queued. What was cut short, interrupted or not queued is read
/// now, without the ring.
fn finish_read(file: &File, offset: u64, buffer: &mut [u8], outcome: Option<i32>) -> io::Result<()> {
    match outcome {
        Some(read) if usize::try_from(read) == Ok(buffer.len()) => Ok(()),
        Some(error) if is_final(error) => Err(io::Error::from_raw_os_error(-error)),
        _ => file.read_exact_at(buffer, offset),
    }
}

/// Up to [`ENTRIES`] of them.
fn write_some(ring: &mut IoUring, file: &File, writes: &[(u64, Vec<IoSlice<'_>>)]) -> Vec<io::Result<usize>> {
    let entries: Vec<squeue::Entry> = writes
        .iter()
        .map_while(|(offset, pieces)| {
            let count = u32::try_from(pieces.len()).ok()?;
            let fd = types::Fd(file.as_raw_fd());
            // An `IoSlice` is an `iovec`: its documentation says so.
            Some(opcode::Writev::new(fd, pieces.as_ptr().cast(), count).offset(*offset).build())
        })
        .collect();
    // SAFETY: the kernel reads the lists of pieces and the pieces, and uses the descriptor. All are borrowed by this function for as
    // long as it runs, so nobody changes them before this call is over.
    #[allow(unsafe_code, reason = "the kernel is given addresses; the proof is above")]
    let outcomes = unsafe { complete(ring, entries) };
    (0..writes.len()).map(|number| written_by(outcomes.get(number).copied())).collect()
}

/// How much of a write is there whose result is this; none: it was not queued. An interrupted one has written nothing.
fn written_by(outcome: Option<i32>) -> io::Result<usize> {
    match outcome {
        Some(error) if is_final(error) => Err(io::Error::from_raw_os_error(-error)),
        Some(written) => Ok(usize::try_from(written).unwrap_or(0)),
        None => Ok(0),
    }
}

/// Carries out operations, at most [`ENTRIES`]; the result of each of the first of them: those that the ring took.
///
/// # Safety
/// Whatever their addresses name is valid, and nobody else uses it in another way than the operation allows, until this returns.
#[allow(unsafe_code, reason = "the kernel is given addresses; each caller proves that they are good")]
unsafe fn complete(ring: &mut IoUring, operations: Vec<squeue::Entry>) -> Vec<i32> {
    let mut outcomes = vec![i32::MIN; operations.len()];
    let mut under_way = 0;
    for (number, operation) in operations.into_iter().enumerate() {
        let operation = operation.user_data(number as u64);
        // SAFETY: what the addresses name is good until this function returns, says its caller, and it neither returns nor unwinds before
        // every operation that it queued is complete: the loop below has no other way out, and nothing from here to its end panics.
        let queued = unsafe { ring.submission().push(&operation) };
        // There is room: the ring is empty between two calls, and nobody has more than it takes.
        if queued.is_err() {
            break;
        }
        under_way += 1;
    }
    let queued = under_way;
    while under_way > 0 {
        match ring.submit_and_wait(under_way) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => std::thread::yield_now(),
            // They may be under way, and these buffers are somebody else's once this returns.
            Err(_) => std::process::abort(),
        }
        for completed in ring.completion() {
            if let Some(outcome) = outcomes.get_mut(completed.user_data() as usize) {
                *outcome = completed.result();
            }
            under_way = under_way.saturating_sub(1);
        }
    }
    outcomes.truncate(queued);
    outcomes
}

/// Whether a result is an error that trying again at once does not mend.
fn is_final(result: i32) -> bool {
    // The least there is has no opposite: it stands for no answer.
    let errno = result.checked_neg().filter(|errno| *errno > 0);
    errno.is_some_and(|errno| !is_passing(&io::Error::from_raw_os_error(errno)))
}

/// It can be tried again at once.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::INTR, Errno::AGAIN, Errno::BUSY].iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_says_what_became_of_it() {
        if !is_allowed() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 1000) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        // More than go at once, of all lengths, one past the end and one that is cut by it.
        let mut buffers: Vec<Vec<u8>> = (0..200).map(|i| vec![0; i * 7]).collect();
        let offsets = (0..200u64).map(|i| match i {
            100 => 400_000,
            101 => 300_000 - 5,
            i => i * 1400,
        });
        let mut reads: Vec<(u64, &mut [u8])> =
            offsets.clone().zip(buffers.iter_mut().map(|buffer| &mut buffer[..])).collect();
        let outcomes = read_many(&file, &mut reads).unwrap();
        assert_eq!(outcomes.len(), 200);
        for (number, (outcome, offset)) in outcomes.iter().zip(offsets).enumerate() {
            let at = offset as usize;
            match bytes.get(at..at + number * 7) {
                Some(expected) => {
                    outcome.as_ref().unwrap();
                    assert!(buffers[number] == expected, "{number}");
                }
                None => assert_eq!(outcome.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
            }
        }
        let write_only = File::options().write(true).open(&path).unwrap();
        let mut buffer = [0; 10];
        let refused = read_many(&write_only, &mut [(0, &mut buffer)]).unwrap();
        assert_eq!(
            refused[0].as_ref().unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::BADF.raw_os_error())
        );
    }

    /// What the kernel seldom answers of a file: a part, that it was interrupted, that it has no room for the request now.
    #[test]
    fn what_was_cut_short_or_interrupted_is_done_without_the_ring() {
        use rustix::io::Errno;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY].map(|errno| -errno.raw_os_error());
        for outcome in
            passing.into_iter().map(Some).chain([None, Some(0), Some(1), Some(4095), Some(i32::MIN)])
        {
            let mut buffer = vec![0xEE; 4096];
            finish_read(&file, 777, &mut buffer, outcome).unwrap();
            assert!(buffer == bytes[777..777 + 4096], "{outcome:?}");
            // Cut short by the end of the file, it stays an error.
            let error = finish_read(&file, 19_000, &mut buffer, outcome).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{outcome:?}");
        }
        // A whole one is not read again.
        let mut buffer = vec![0xEE; 4096];
        finish_read(&file, 0, &mut buffer, Some(4096)).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 0xEE));
        for errno in [Errno::IO, Errno::NOSPC, Errno::NODATA] {
            let error = finish_read(&file, 0, &mut buffer, Some(-errno.raw_os_error())).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
            let error = written_by(Some(-errno.raw_os_error())).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
        }
        // Of writes whoever asked writes the whole again.
        for outcome in passing.into_iter().map(Some).chain([None, Some(0), Some(i32::MIN)]) {
            assert_eq!(written_by(outcome).unwrap(), 0, "{outcome:?}");
        }
        assert_eq!(written_by(Some(512)).unwrap(), 512);
    }

    #[test]
    fn each_write_says_how_much_of_it_is_there() {
        if !is_allowed() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        // More than go at once, in pieces, with gaps between them.
        let content = |i: u64| vec![i as u8 + 1; 10 + i as usize];
        let contents: Vec<Vec<u8>> = (0..150).map(content).collect();
        let writes: Vec<(u64, Vec<IoSlice<'_>>)> = contents
            .iter()
            .enumerate()
            .map(|(i, bytes)| (i as u64 * 500, bytes.chunks(7).map(IoSlice::new).collect()))
            .collect();
        let written = write_many(&file, &writes).unwrap();
        for ((written, bytes), (offset, _)) in written.iter().zip(&contents).zip(&writes) {
            assert_eq!(*written.as_ref().unwrap(), bytes.len());
            let mut read = vec![0; bytes.len()];
            file.read_exact_at(&mut read, *offset).unwrap();
            assert!(read == *bytes, "{offset}");
        }
        let read_only = File::open(&path).unwrap();
        let refused = write_many(&read_only, &writes[..1]).unwrap();
        assert_eq!(
            refused[0].as_ref().unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::BADF.raw_os_error())
        );
    }
}
