//! What a script prints: in its log file, or in memory where it is an answer; the end of it for messages.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

use super::error::TestBedError;

/// The most that is read of what a script answers (a figure, a version).
pub(crate) const ANSWER_BYTES: u64 = 64 << 10;
/// The end that messages are made of, and how many lines they show.
const TAIL_BYTES: u64 = 32 << 10;
const SHOWN_LINES: usize = 12;

/// What one script printed.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    /// In a new file.
    pub(crate) fn to_file(path: &Path) -> Result<Self, TestBedError> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path);
        let failed = || TestBedError::system(format!("create {}", path.display()));
        file.map_err(failed())?;
        // Scripts that write it together must not write over each other.
        let file = OpenOptions::new().read(true).append(true).open(path).map_err(failed())?;
        Ok(Self(file))
    }

    /// In memory.
    pub(crate) fn in_memory() -> Result<Self, TestBedError> {
        let file = memfd_create("answer", MemfdFlags::CLOEXEC);
        Ok(Self(file.map_err(|error| TestBedError::system("keep an answer")(error.into()))?.into()))
    }

    /// For a script to print to.
    pub(crate) fn writer(&self) -> Result<Stdio, TestBedError> {
        self.0.try_clone().map(Stdio::from).map_err(TestBedError::system("open a log again"))
    }

    /// The beginning, with the number of bytes left out after it.
    pub(crate) fn answer(&self) -> (String, u64) {
        let length = self.length();
        (self.text(0, length.min(ANSWER_BYTES)), length.saturating_sub(ANSWER_BYTES))
    }

    /// The last lines, each on a line of its own behind a line end; empty if there are none.
    pub(crate) fn last_lines(&self) -> String {
        let length = self.length();
        let text = self.text(length.saturating_sub(TAIL_BYTES), length);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].iter().map(|line| format!("\n  | {line}")).collect()
    }

    fn length(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }

    /// What cannot be read is left out: it is for messages.
    fn text(&self, from: u64, until: u64) -> String {
        let mut bytes = vec![0; usize::try_from(until - from).unwrap_or(0)];
        let read = self.0.read_at(&mut bytes, from).unwrap_or(0);
        bytes.truncate(read);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn messages_show_the_end_and_an_answer_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::to_file(&dir.path().join("log")).unwrap();
        for line in 0..10_000 {
            writeln!(&log.0, "line {line}").unwrap();
        }
        assert!(log.last_lines().ends_with("\n  | line 9999"));
        assert_eq!(log.last_lines().lines().count(), SHOWN_LINES + 1, "and the line end before the first");
        let answer = Log::in_memory().unwrap();
        (&answer.0).write_all(&vec![b'y'; ANSWER_BYTES as usize + 5]).unwrap();
        assert_eq!(answer.answer(), ("y".repeat(ANSWER_BYTES as usize), 5));
    }
}
