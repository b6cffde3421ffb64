//! Many reads of a file with one call of the kernel, by io_uring. Kernels and containers may forbid it; then it is not there.
//!
//! One read each is a system call, and the thread that made it sleeps and is woken. Thirty-two at once are one call and one sleep.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use io_uring::{IoUring, opcode, types};

/// Reads in one call.
const ENTRIES: usize = 64;

thread_local! {
    /// Each thread has its own, so nobody waits for another's.
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Whether the kernel lets this process have it; asked once.
pub(crate) fn is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| IoUring::new(ENTRIES as u32).is_ok())
}

/// Fills each buffer from its offset; what became of each. `None` if there is no io_uring: nothing was read.
pub(crate) fn read_many(file: &File, reads: &mut [(u64, &mut [u8])]) -> Option<Vec<io::Result<()>>> {
    if !is_allowed() {
        return None;
    }
    RING.with_borrow_mut(|ring| {
        if ring.is_none() {
            *ring = IoUring::new(ENTRIES as u32).ok();
        }
        let ring = ring.as_mut()?;
        Some(reads.chunks_mut(ENTRIES).flat_map(|reads| read_some(ring, file, reads)).collect())
    })
}

/// Up to [`ENTRIES`] of them.
fn read_some(ring: &mut IoUring, file: &File, reads: &mut [(u64, &mut [u8])]) -> Vec<io::Result<()>> {
    let mut outcomes = [i32::MIN; ENTRIES];
    let mut under_way = 0;
    for (number, (offset, buffer)) in reads.iter_mut().enumerate() {
        let Ok(length) = u32::try_from(buffer.len()) else { break };
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.as_mut_ptr(), length)
            .offset(*offset)
            .build()
            .user_data(number as u64);
        // SAFETY: the kernel writes to `buffer` and uses the descriptor until it completes the read. Both are borrowed by this
        // function for as long as it runs, `buffer` exclusively, and it neither returns nor unwinds before every read that it
        // queued is complete: the loop below has no other way out, and nothing between here and its end panics.
        #[allow(unsafe_code, reason = "the kernel is given addresses; the proof is above")]
        let queued = unsafe { ring.submission().push(&read) };
        // There is room: the ring is empty between two calls, and `reads` has no more than it takes.
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
            // The reads may be under way, and these buffers are somebody else's once this returns.
            Err(_) => std::process::abort(),
        }
        for completed in ring.completion() {
            if let Some(outcome) = outcomes.get_mut(completed.user_data() as usize) {
                *outcome = completed.result();
            }
            under_way = under_way.saturating_sub(1);
        }
    }
    let outcome_of = |number: usize| (number < queued).then(|| outcomes[number]);
    reads
        .iter_mut()
        .enumerate()
        .map(|(number, (offset, buffer))| match outcome_of(number) {
            Some(read) if usize::try_from(read) == Ok(buffer.len()) => Ok(()),
            Some(error) if error < 0 && !is_passing(&io::Error::from_raw_os_error(-error)) => {
                Err(io::Error::from_raw_os_error(-error))
            }
            // Not queued, cut short or interrupted.
            _ => file.read_exact_at(buffer, *offset),
        })
        .collect()
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
}
