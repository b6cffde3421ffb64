//! A container: chunks in the order of their arrival, in one file that is only appended to.
//!
//! Byte map, little-endian:
//!
//! ```text
//! offset  bytes  field
//!      0      8  magic "FSCHUNKS"
//!      8      4  version: 1
//!     12      4  zero
//!     16     16  realm
//!     32     16  origin
//!     48      8  number
//!     56      8  XXH3-64 of bytes 0..56
//!     64         records: bytes of the chunk (4), its place (2), "CK" (2), its fingerprint (16), the chunk
//!  then, once nothing more is appended, the directory:
//!         24 n   for each place: offset of the chunk (4), its bytes (4; 0: it never came), its fingerprint (16)
//!             8  XXH3-64 of those
//!             4  n
//!             4  zero
//!             8  magic "FSCHNKDR"
//! ```
//!
//! At the site that makes a container places come in order; at the other they come as streams bring them. A file
//! without a directory is of a process that was killed: its records are read once, and it gets one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::cut::CHUNK_MAX;
use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint};
use crate::name::{ContainerName, RealmId};
use crate::ranges::Ranges;

/// Bytes after which the site that makes a container begins the next. One read brings the directory of so many; one eviction frees them.
pub const CONTAINER_BYTES: u32 = 16 << 20;
/// Places of a container; no chunk has a higher one.
pub const CHUNKS_PER_CONTAINER: u16 = 4096;

const MAGIC: &[u8; 8] = b"FSCHUNKS";
const MAGIC_DIRECTORY: &[u8; 8] = b"FSCHNKDR";
/// Of a record. The directory has zeros there, so that none of its entries looks like one.
const MARK: [u8; 2] = *b"CK";
const VERSION: u32 = 1;
pub(crate) const HEADER: usize = 64;
const RECORD: usize = 8 + FINGERPRINT_BYTES;
pub(crate) const ENTRY: usize = 8 + FINGERPRINT_BYTES;
pub(crate) const TRAILER: usize = 24;
/// Bytes after which nothing at all is appended: where chunks come in another order the last may be a small one.
const RECORDS_END: u32 = CONTAINER_BYTES + (RECORD + CHUNK_MAX) as u32;
/// No container's file is longer.
pub const FILE_BYTES_MAX: u64 = RECORDS_END as u64
    + (RECORD + CHUNK_MAX) as u64
    + (CHUNKS_PER_CONTAINER as usize * ENTRY + TRAILER) as u64;

/// Bytes of a container that wait to be written, in whole pages. A process that is killed loses them, as it would what the kernel
/// has not written when the power fails.
const TAIL_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// A chunk of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of its first byte in the file.
    pub offset: u32,
    /// Its bytes; 0 if it never came.
    pub length: u32,
    /// What it is found by here.
    pub fingerprint: Fingerprint,
}

const ABSENT: Entry = Entry { offset: 0, length: 0, fingerprint: Fingerprint([0; FINGERPRINT_BYTES]) };

/// The places at which there are chunks.
pub fn held(entries: &[Entry]) -> Ranges {
    let places = entries.iter().enumerate().filter(|(_, entry)| entry.length > 0);
    Ranges::of(places.map(|(place, _)| place as u16))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A container that chunks are still appended to.
#[derive(Debug)]
pub struct Growing {
    file: File,
    entries: Vec<Entry>,
    end: u32,
    /// What is not in the file yet, its last bytes.
    tail: Vec<u8>,
    is_closed: bool,
}

impl Growing {
    /// A new one.
    ///
    /// # Errors
    ///
    /// What the system says; there may be one already.
    pub fn create(path: &Path, realm: RealmId, name: ContainerName) -> io::Result<Growing> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        if let Err(error) = file.write_all_at(&header(realm, name), 0) {
            // On a full disk: an empty file would be in the way of the next.
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        Ok(Growing { file, entries: Vec::new(), end: HEADER as u32, tail: Vec::new(), is_closed: false })
    }

    /// Whether the site that makes it begins another.
    pub fn is_full(&self) -> bool {
        let is_long = self.end >= CONTAINER_BYTES || self.entries.len() >= usize::from(CHUNKS_PER_CONTAINER);
        is_long || self.is_closed
    }

    /// The place after the last.
    pub fn next_place(&self) -> u16 {
        self.entries.len() as u16
    }

    /// Of the file, bytes.
    pub fn bytes(&self) -> u32 {
        self.end
    }

    /// What is in it.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Appends a chunk of 1 to [`CHUNK_MAX`] bytes. False if there is one at that place already, or can be none.
    ///
    /// # Errors
    ///
    /// What the system says; then the container is as it was.
    pub fn append(&mut self, place: u16, fingerprint: Fingerprint, chunk: &[u8]) -> io::Result<bool> {
        let is_sized = (1..=CHUNK_MAX).contains(&chunk.len());
        let at = usize::from(place);
        let is_taken = self.entries.get(at).is_some_and(|entry| entry.length > 0);
        let has_room = place < CHUNKS_PER_CONTAINER && self.end < RECORDS_END && !self.is_closed;
        if !is_sized || is_taken || !has_room {
            return Ok(false);
        }
        let before = self.tail.len();
        self.tail.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        self.tail.extend_from_slice(&place.to_le_bytes());
        self.tail.extend_from_slice(&MARK);
        self.tail.extend_from_slice(&fingerprint.0);
        self.tail.extend_from_slice(chunk);
        let begin = self.end - before as u32;
        if self.tail.len() >= TAIL_BYTES {
            // Whole pages of the file: of others the kernel clears what is not written yet.
            let pages = (begin as usize + self.tail.len()) / PAGE * PAGE - begin as usize;
            if let Err(error) = self.file.write_all_at(&self.tail[..pages], u64::from(begin)) {
                self.tail.truncate(before);
                return Err(error);
            }
            self.tail.drain(..pages);
        }
        self.note(place, fingerprint, chunk.len());
        Ok(true)
    }

    /// Writes what is not in the file yet.
    ///
    /// # Errors
    ///
    /// What the system says; it is tried again the next time.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.tail, u64::from(self.end) - self.tail.len() as u64)?;
        self.tail = Vec::new();
        Ok(())
    }

    fn note(&mut self, place: u16, fingerprint: Fingerprint, length: usize) {
        let at = usize::from(place);
        if self.entries.len() <= at {
            self.entries.resize(at + 1, ABSENT);
        }
        let offset = self.end + RECORD as u32;
        self.entries[at] = Entry { offset, length: length as u32, fingerprint };
        self.end = offset + length as u32;
    }

    /// The bytes of a chunk, not yet verified.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn read(&self, entry: &Entry, chunk: &mut Vec<u8>) -> io::Result<()> {
        // The latest are asked for most.
        let (end, begin) = (entry.offset + entry.length, self.end - self.tail.len() as u32);
        if let (Some(from), Some(to)) = (entry.offset.checked_sub(begin), end.checked_sub(begin))
            && let Some(bytes) = self.tail.get(from as usize..to as usize)
        {
            chunk.clear();
            chunk.extend_from_slice(bytes);
            return Ok(());
        }
        if end > begin {
            // Half of it is in the file.
            chunk.clear();
            chunk.resize(entry.length as usize, 0);
            let (first, last) = chunk.split_at_mut((begin - entry.offset) as usize);
            self.file.read_exact_at(first, u64::from(entry.offset))?;
            last.copy_from_slice(&self.tail[..last.len()]);
            return Ok(());
        }
        read(&self.file, entry, chunk)
    }

    /// Writes the directory: nothing more is appended. Says how many bytes the file has now.
    ///
    /// # Errors
    ///
    /// What the system says; the file is read as one of a process that was killed.
    pub fn close(&mut self) -> io::Result<u32> {
        self.is_closed = true;
        self.flush()?;
        let mut directory = Vec::with_capacity(self.entries.len() * ENTRY + TRAILER);
        for entry in &self.entries {
            directory.extend_from_slice(&entry.offset.to_le_bytes());
            directory.extend_from_slice(&entry.length.to_le_bytes());
            directory.extend_from_slice(&entry.fingerprint.0);
        }
        let sum = xxh3_64(&directory);
        directory.extend_from_slice(&sum.to_le_bytes());
        directory.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        directory.extend_from_slice(&[0; 4]);
        directory.extend_from_slice(MAGIC_DIRECTORY);
        self.file.write_all_at(&directory, u64::from(self.end))?;
        let bytes = self.end + directory.len() as u32;
        // What a process that was killed left behind it may be longer.
        self.file.set_len(u64::from(bytes))?;
        Ok(bytes)
    }

    /// Reads the records of a file that has no directory. What comes after the first that cannot be one is dropped.
    fn recover(file: File) -> io::Result<Growing> {
        let length = file.metadata()?.len();
        let mut growing =
            Growing { file, entries: Vec::new(), end: HEADER as u32, tail: Vec::new(), is_closed: false };
        let mut record = [0; RECORD];
        while growing.end < RECORDS_END && u64::from(growing.end) + RECORD as u64 <= length {
            growing.file.read_exact_at(&mut record, u64::from(growing.end))?;
            let bytes = u32_at(&record, 0) as usize;
            let place = u16::from_le_bytes([record[4], record[5]]);
            let end = u64::from(growing.end) + (RECORD + bytes) as u64;
            let is_record = (1..=CHUNK_MAX).contains(&bytes)
                && place < CHUNKS_PER_CONTAINER
                && record[6..8] == MARK
                && growing.entries.get(usize::from(place)).is_none_or(|entry| entry.length == 0)
                && end <= length;
            if !is_record {
                break;
            }
            growing.note(place, fingerprint_at(&record, 8), bytes);
        }
        Ok(growing)
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        // What is lost is sent once more.
        let _ = self.flush();
    }
}

/// A container that nothing is appended to any more.
#[derive(Debug)]
pub struct Sealed {
    file: File,
    entries: Vec<Entry>,
    bytes: u32,
}

impl Sealed {
    /// Opens the file of container `name` in `realm`. None if it has no directory.
    ///
    /// # Errors
    ///
    /// What the system says, or [`io::ErrorKind::InvalidData`] if this is no such file.
    pub fn open(path: &Path, realm: RealmId, name: ContainerName) -> io::Result<Option<Sealed>> {
        let (file, length) = open(path, realm, name)?;
        // A record may end like a trailer by chance only if the sum is right as well.
        let entries = read_directory(&file, length)?;
        Ok(entries.map(|entries| Sealed { file, entries, bytes: length as u32 }))
    }

    /// The same for a file that nobody appends to and that has no directory: it gets one.
    ///
    /// # Errors
    ///
    /// As [`Sealed::open`].
    pub fn recover(path: &Path, realm: RealmId, name: ContainerName) -> io::Result<Sealed> {
        let (file, _) = open(path, realm, name)?;
        let mut growing = Growing::recover(file)?;
        // Without it the records are read once more the next time.
        let bytes = growing.close().unwrap_or(growing.end);
        Ok(Sealed { file: growing.file.try_clone()?, entries: std::mem::take(&mut growing.entries), bytes })
    }

    /// What is in it.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Of the file, bytes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The bytes of a chunk, not yet verified.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn read(&self, entry: &Entry, chunk: &mut Vec<u8>) -> io::Result<()> {
        read(&self.file, entry, chunk)
    }
}

/// The file of a container, and its length.
fn open(path: &Path, realm: RealmId, name: ContainerName) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length > FILE_BYTES_MAX {
        return Err(damaged("the file is longer than a container can be"));
    }
    let mut head = [0; HEADER];
    file.read_exact_at(&mut head, 0)?;
    if head != header(realm, name) {
        return Err(damaged("this is not the header of that container"));
    }
    Ok((file, length))
}

pub(crate) fn header(realm: RealmId, name: ContainerName) -> [u8; HEADER] {
    let mut head = [0; HEADER];
    {
        let mut at = &mut head[..];
        // A slice takes what fits, and all of it does.
        let _ = at.write_all(MAGIC);
        let _ = at.write_all(&VERSION.to_le_bytes());
        let _ = at.write_all(&[0; 4]);
        let _ = at.write_all(&realm.0);
        let _ = at.write_all(&name.origin.0);
        let _ = at.write_all(&name.number.to_le_bytes());
    }
    let sum = xxh3_64(&head[..HEADER - 8]);
    head[HEADER - 8..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// None if the file ends otherwise than with a directory.
fn read_directory(file: &File, length: u64) -> io::Result<Option<Vec<Entry>>> {
    let Some(at) = length.checked_sub(TRAILER as u64).filter(|at| *at >= HEADER as u64) else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER];
    file.read_exact_at(&mut trailer, at)?;
    let count = u32_at(&trailer, 8) as usize;
    let start = at.checked_sub((count.min(1 << 16) * ENTRY) as u64).filter(|start| *start >= HEADER as u64);
    let (Some(start), true) = (start, &trailer[16..] == MAGIC_DIRECTORY) else { return Ok(None) };
    if count > usize::from(CHUNKS_PER_CONTAINER) {
        return Ok(None);
    }
    let mut bytes = vec![0; count * ENTRY];
    file.read_exact_at(&mut bytes, start)?;
    if xxh3_64(&bytes).to_le_bytes() != trailer[..8] {
        return Ok(None);
    }
    let entries: Vec<Entry> = bytes
        .chunks_exact(ENTRY)
        .map(|entry| Entry {
            offset: u32_at(entry, 0),
            length: u32_at(entry, 4),
            fingerprint: fingerprint_at(entry, 8),
        })
        .collect();
    let is_inside = |entry: &Entry| {
        entry.length as usize <= CHUNK_MAX && u64::from(entry.offset) + u64::from(entry.length) <= start
    };
    Ok(entries.iter().all(is_inside).then_some(entries))
}

fn read(file: &File, entry: &Entry, chunk: &mut Vec<u8>) -> io::Result<()> {
    chunk.clear();
    chunk.resize(entry.length as usize, 0);
    file.read_exact_at(chunk, u64::from(entry.offset))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn fingerprint_at(bytes: &[u8], at: usize) -> Fingerprint {
    let mut fingerprint = [0; FINGERPRINT_BYTES];
    fingerprint.copy_from_slice(&bytes[at..at + FINGERPRINT_BYTES]);
    Fingerprint(fingerprint)
}
