//! What a script prints: read as long as it prints, kept within bounds. The beginning goes to the log file (or stays in
//! memory), the end is kept for messages and follows in the file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::error::GroundError;

/// The beginning that is kept in a log file; a script that prints a line per file of a large tree stays below.
const FILE_HEAD_BYTES: usize = 4 << 20;
/// The beginning of what a script answers (a figure, a version) that is kept in memory.
pub(crate) const ANSWER_BYTES: usize = 64 << 10;
/// The end that is kept.
const TAIL_BYTES: usize = 32 << 10;
/// Lines of the end that an error shows.
const SHOWN_LINES: usize = 12;
/// How long to wait, after a script has ended, for a process that still holds its output.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Collects the output of one script.
#[derive(Debug)]
pub(crate) struct Log {
    kept: Arc<Mutex<Kept>>,
    ended: Receiver<()>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Only where no file has it.
    head: Vec<u8>,
    /// The end of what is not in `head`.
    tail: VecDeque<u8>,
    /// Bytes printed in all.
    total: u64,
}

impl Log {
    /// Reads `source` to its end on a thread; the beginning goes to `file`.
    pub(crate) fn to_file(source: impl Read + Send + 'static, file: File) -> Result<Self, GroundError> {
        Self::collect(source, Some(file), FILE_HEAD_BYTES)
    }

    /// Reads `source` to its end on a thread; the beginning stays in memory.
    pub(crate) fn in_memory(source: impl Read + Send + 'static) -> Result<Self, GroundError> {
        Self::collect(source, None, ANSWER_BYTES)
    }

    fn collect(
        mut source: impl Read + Send + 'static,
        file: Option<File>,
        head_bytes: usize,
    ) -> Result<Self, GroundError> {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (end, ended) = sync_channel(1);
        let shared = Arc::clone(&kept);
        let work = move || {
            // A log that cannot be written (disk full) must not stop what is measured: the end stays in memory.
            let _: io::Result<()> = pump(&mut source, file, head_bytes, &shared);
            let _ = end.try_send(());
        };
        thread::Builder::new()
            .name("log".into())
            .spawn(work)
            .map_err(GroundError::system("start a thread"))?;
        Ok(Self { kept, ended })
    }

    /// Waits a moment until everything that was printed has been read.
    pub(crate) fn settle(&self) {
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(END_LIMIT) {
            // A process in the background holds it; what has come so far is there.
        }
    }

    /// The beginning, where it is kept in memory, with the number of bytes left out after it.
    pub(crate) fn answer(&self) -> (String, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (String::from_utf8_lossy(&kept.head).into_owned(), kept.total - kept.head.len() as u64)
    }

    /// The last lines, each on a line of its own behind a line end; empty if there are none.
    pub(crate) fn last_lines(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.head.iter().chain(&kept.tail).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].iter().map(|line| format!("\n  | {line}")).collect()
    }
}

fn pump(
    source: &mut impl Read,
    mut file: Option<File>,
    head_bytes: usize,
    kept: &Mutex<Kept>,
) -> io::Result<()> {
    let in_memory = file.is_none();
    let mut buffer = vec![0; 16 << 10];
    let mut head_left = head_bytes;
    let mut in_file = 0_u64;
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let (head, rest) = buffer[..count].split_at(count.min(head_left));
        head_left -= head.len();
        if let Some(open) = &mut file {
            match open.write_all(head) {
                Ok(()) => in_file += head.len() as u64,
                Err(_) => file = None,
            }
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.total += count as u64;
        if in_memory {
            kept.head.extend_from_slice(head);
            kept.follow(rest);
        } else {
            kept.follow(&buffer[..count]);
        }
    }
    let Some(mut file) = file else { return Ok(()) };
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let after = kept.total - in_file;
    if after > 0 {
        let shown = kept.tail.len().min(usize::try_from(after).unwrap_or(usize::MAX));
        let left_out = after - shown as u64;
        if left_out > 0 {
            writeln!(file, "\n[{left_out} bytes left out]")?;
        }
        let end: Vec<u8> = kept.tail.iter().skip(kept.tail.len() - shown).copied().collect();
        file.write_all(&end)?;
    }
    Ok(())
}

impl Kept {
    /// Takes `bytes` into the end.
    fn follow(&mut self, bytes: &[u8]) {
        self.tail.extend(bytes);
        let over = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_the_beginning_and_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = |number: usize| format!("line {number:10}\n");
        let lines = 2 * FILE_HEAD_BYTES / line(0).len();
        let text: String = (0..lines).map(line).collect();
        let log = Log::to_file(io::Cursor::new(text.clone()), File::create(&path).unwrap()).unwrap();
        log.settle();
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept.starts_with(&text[..FILE_HEAD_BYTES]));
        assert!(kept.ends_with(&text[text.len() - TAIL_BYTES..]));
        let left_out = text.len() - FILE_HEAD_BYTES - TAIL_BYTES;
        assert!(kept.contains(&format!("\n[{left_out} bytes left out]\n")));
        assert_eq!(
            kept.len(),
            FILE_HEAD_BYTES + TAIL_BYTES + format!("\n[{left_out} bytes left out]\n").len()
        );
        assert!(log.last_lines().ends_with(&format!("\n  | {}", line(lines - 1).trim_end())));
        assert_eq!(log.last_lines().lines().count(), SHOWN_LINES + 1, "and the line end before the first");
    }

    #[test]
    fn a_short_log_is_whole_and_an_answer_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let text = "x".repeat(FILE_HEAD_BYTES + 7);
        Log::to_file(io::Cursor::new(text.clone()), File::create(&path).unwrap()).unwrap().settle();
        assert!(std::fs::read_to_string(&path).unwrap() == text, "nothing doubled, nothing left out");
        let answer = Log::in_memory(io::Cursor::new("y".repeat(ANSWER_BYTES + 5))).unwrap();
        answer.settle();
        assert_eq!(answer.answer(), ("y".repeat(ANSWER_BYTES), 5));
    }
}
