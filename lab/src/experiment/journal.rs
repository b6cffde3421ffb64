//! The journal of an experiment: one line of JSON per run in `OUT/runs.jsonl`, on disk before the next run begins. So
//! whatever is killed, and when, costs the runs that were going on and no other.
//!
//! Guarantees: [`Journal::append`] returns once the record is durable; a line that a crash tore is dropped when the
//! journal is opened next, and said so; records are never deleted, only moved to `runs.jsonl.1`, `.2`…
//! ([`Journal::set_aside`]). One process at a time: others are refused by a lock that dies with it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::record::{RECORD_VERSION, RunRecord};

/// The journal's name in the experiment's directory.
pub const JOURNAL_FILE: &str = "runs.jsonl";

/// Older journals beside it; somebody who set aside more has a script that loops.
const SET_ASIDE_MAX: u32 = 10_000;

/// A lock that was released is still held by every program that another thread was just starting, until that has begun
/// to run: milliseconds, or more on a busy machine.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_POLL: Duration = Duration::from_millis(5);

/// An open journal, its lock held.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<RunRecord>,
    torn: bool,
    _lock: File,
}

/// Why the journal cannot be used. Records on disk are as they were.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}; runs recorded before are safe", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process runs this experiment.
    #[error("another farside-lab writes to {path}; wait for it, or give another directory with --out", path = path.display())]
    Busy {
        /// The experiment's directory.
        path: PathBuf,
    },
    /// A line in the middle is no record.
    #[error(
        "{path}:{line}: no record of a run: {source}; nothing was changed. Repair the line, or begin anew with --fresh, \
         which keeps the file as {JOURNAL_FILE}.1",
        path = path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Written by another version of the laboratory.
    #[error(
        "{path}:{line}: a record of version {found}, this farside-lab knows {RECORD_VERSION}; use the one that wrote it, \
         or begin anew with --fresh, which keeps the file as {JOURNAL_FILE}.1",
        path = path.display()
    )]
    Version {
        /// The journal.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Its version.
        found: u32,
    },
}

impl Journal {
    /// Opens the journal of the experiment in `directory`, which is made where it is missing, and drops a torn last
    /// line.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let lock = lock(directory)?;
        let path = directory.join(JOURNAL_FILE);
        let mut file =
            at("open", &path, OpenOptions::new().read(true).append(true).create(true).open(&path))?;
        sync_directory(directory)?;
        let text = at("read", &path, fs::read(&path))?;
        let read = read(&path, &text)?;
        if read.torn {
            at("cut the torn last line off", &path, file.set_len(read.whole_bytes as u64))?;
        }
        if read.lacks_newline {
            at("write", &path, file.write_all(b"\n"))?;
        }
        at("sync", &path, file.sync_all())?;
        Ok(Self { path, file, records: read.records, torn: read.torn, _lock: lock })
    }

    /// All records, in the order in which they were made.
    #[must_use]
    pub fn records(&self) -> &[RunRecord] {
        &self.records
    }

    /// Whether opening found a torn last line: a run that was written down when the machine stopped.
    #[must_use]
    pub fn dropped_torn_line(&self) -> bool {
        self.torn
    }

    /// Appends `record` and returns when it is durable.
    ///
    /// # Errors
    /// [`JournalError::Io`]; the journal may then end in a torn line, which the next opening drops.
    pub fn append(&mut self, record: RunRecord) -> Result<(), JournalError> {
        let mut line = at("write", &self.path, serde_json::to_vec(&record).map_err(io::Error::from))?;
        line.push(b'\n');
        at("write", &self.path, self.file.write_all(&line))?;
        at("sync", &self.path, self.file.sync_data())?;
        self.records.push(record);
        Ok(())
    }

    /// Moves the records that `stale` selects to the first free of `runs.jsonl.1`, `.2`…, and tells which file that is;
    /// nothing if it selects none.
    ///
    /// # Errors
    /// [`JournalError::Io`]. The journal is replaced only when both files are durable, so a crash in between leaves
    /// some records in both, none in neither.
    pub fn set_aside(&mut self, stale: impl Fn(&RunRecord) -> bool) -> Result<Option<PathBuf>, JournalError> {
        let (gone, kept): (Vec<RunRecord>, Vec<RunRecord>) =
            self.records.iter().cloned().partition(|r| stale(r));
        if gone.is_empty() {
            return Ok(None);
        }
        let aside = free_name(&self.path)?;
        write_records(&aside, &gone)?;
        let replacement = self.path.with_extension("jsonl.new");
        write_records(&replacement, &kept)?;
        at("replace", &self.path, fs::rename(&replacement, &self.path))?;
        sync_directory(self.path.parent().unwrap_or(Path::new(".")))?;
        self.file = at("open", &self.path, OpenOptions::new().append(true).open(&self.path))?;
        self.records = kept;
        Ok(Some(aside))
    }
}

/// Reads the records of the experiment in `directory` without a lock, for a report beside a running experiment; a torn
/// last line is left out.
///
/// # Errors
/// [`JournalError`].
pub fn read_records(directory: &Path) -> Result<Vec<RunRecord>, JournalError> {
    let path = directory.join(JOURNAL_FILE);
    let text = at("read", &path, fs::read(&path))?;
    Ok(read(&path, &text)?.records)
}

/// Moves a journal that cannot be read to the first free of `runs.jsonl.1`, `.2`… whole; nothing if there is none.
///
/// # Errors
/// [`JournalError::Io`], [`JournalError::Busy`].
pub fn set_all_aside(directory: &Path) -> Result<Option<PathBuf>, JournalError> {
    let _lock = lock(directory)?;
    let path = directory.join(JOURNAL_FILE);
    if fs::metadata(&path).map_or(0, |metadata| metadata.len()) == 0 {
        return Ok(None);
    }
    let aside = free_name(&path)?;
    at("move", &path, fs::rename(&path, &aside))?;
    sync_directory(directory)?;
    Ok(Some(aside))
}

struct Read {
    records: Vec<RunRecord>,
    /// Length of the lines that are whole.
    whole_bytes: usize,
    torn: bool,
    /// The last record is whole and only its end of line is not there.
    lacks_newline: bool,
}

fn read(path: &Path, text: &[u8]) -> Result<Read, JournalError> {
    let mut read = Read { records: Vec::new(), whole_bytes: 0, torn: false, lacks_newline: false };
    let mut begin = 0;
    let mut line = 0;
    while begin < text.len() {
        line += 1;
        let newline = text[begin..].iter().position(|byte| *byte == b'\n').map(|length| begin + length);
        let end = newline.unwrap_or(text.len());
        // A crash can leave any part of the last line, or zeros in its place; only what parses whole is believed.
        match serde_json::from_slice::<RunRecord>(&text[begin..end]) {
            Ok(record) if record.version == RECORD_VERSION => read.records.push(record),
            Ok(record) => {
                return Err(JournalError::Version { path: path.to_owned(), line, found: record.version });
            }
            Err(_) if end == text.len() || end + 1 == text.len() => {
                read.torn = true;
                return Ok(read);
            }
            Err(source) => return Err(JournalError::Damaged { path: path.to_owned(), line, source }),
        }
        read.lacks_newline = newline.is_none();
        begin = end + 1;
        read.whole_bytes = begin.min(text.len());
    }
    Ok(read)
}

fn lock(directory: &Path) -> Result<File, JournalError> {
    at("make", directory, fs::create_dir_all(directory))?;
    let path = directory.join("lock");
    let lock = at("open", &path, OpenOptions::new().write(true).create(true).truncate(false).open(&path))?;
    let begun = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => return Err(JournalError::Busy { path: directory.to_owned() }),
            Err(TryLockError::Error(source)) => {
                return Err(JournalError::Io { action: "lock", path, source });
            }
        }
    }
}

fn free_name(path: &Path) -> Result<PathBuf, JournalError> {
    let names = (1..=SET_ASIDE_MAX).map(|number| path.with_extension(format!("jsonl.{number}")));
    names.into_iter().find(|name| !name.exists()).ok_or_else(|| JournalError::Io {
        action: "find a free name beside",
        path: path.to_owned(),
        source: io::ErrorKind::AlreadyExists.into(),
    })
}

fn write_records(path: &Path, records: &[RunRecord]) -> Result<(), JournalError> {
    let mut text = Vec::new();
    for record in records {
        at("write", path, serde_json::to_writer(&mut text, record).map_err(io::Error::from))?;
        text.push(b'\n');
    }
    let mut file = at("create", path, File::create(path))?;
    at("write", path, file.write_all(&text))?;
    at("sync", path, file.sync_all())
}

fn sync_directory(directory: &Path) -> Result<(), JournalError> {
    at("sync", directory, File::open(directory).and_then(|file| file.sync_all()))
}

fn at<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, JournalError> {
    result.map_err(|source| JournalError::Io { action, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
