//! The files below a path, opened with the rights of whoever runs this program.

use std::fs::{File, Metadata, OpenOptions, ReadDir};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use rustix::fs::OFlags;
use serde::Serialize;
use tokio::sync::{Mutex, mpsc};

/// Smallest file whose bytes a chunk store keeps.
pub(super) const SMALLEST: u64 = 512;
/// Read of a file at once, bytes. Two of them wait at most.
const READ_BYTES: usize = 256 << 10;
/// Unreadable files that are named; all are counted.
const NAMED_MAX: usize = 20;

/// What of a directory was not sent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct LeftOut {
    /// Symbolic links: what they lead to is sent if it lies below as well.
    pub(super) symbolic_links: u64,
    /// Devices, sockets, pipes.
    pub(super) special_files: u64,
    /// Files of less than [`SMALLEST`] bytes: a store keeps none.
    pub(super) small_files: u64,
    /// Files and directories that could not be read.
    pub(super) unreadable: u64,
    /// The first of them, with the reason.
    pub(super) unreadable_first: Vec<String>,
}

impl LeftOut {
    pub(super) fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.unreadable += 1;
        if self.unreadable_first.len() < NAMED_MAX {
            self.unreadable_first.push(format!("{}: {error}", path.display()));
        }
    }
}

/// Opens a regular file. A link that took its place meanwhile is not followed, a pipe is not waited for.
pub(super) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file any more"));
    }
    Ok((file, metadata))
}

/// Walks down a directory. It holds one open directory for each level, and nothing of what is in them.
#[derive(Debug)]
pub(super) struct Walk {
    levels: Vec<(PathBuf, ReadDir)>,
}

impl Walk {
    pub(super) fn of(directory: &Path) -> io::Result<Walk> {
        Ok(Walk { levels: vec![(directory.to_owned(), std::fs::read_dir(directory)?)] })
    }

    /// The next file that is worth sending, and its size.
    pub(super) fn next(&mut self, left_out: &mut LeftOut) -> Option<(PathBuf, u64)> {
        loop {
            let (directory, entries) = self.levels.last_mut()?;
            let entry = match entries.next() {
                None => {
                    self.levels.pop();
                    continue;
                }
                Some(Err(error)) => {
                    // It would fail the same way for ever.
                    left_out.unreadable(directory, &error);
                    self.levels.pop();
                    continue;
                }
                Some(Ok(entry)) => entry,
            };
            let path = entry.path();
            // Of the entry itself: a link is not followed.
            match entry.metadata() {
                Err(error) => left_out.unreadable(&path, &error),
                Ok(of) if of.is_symlink() => left_out.symbolic_links += 1,
                Ok(of) if of.is_dir() => match std::fs::read_dir(&path) {
                    Ok(entries) => self.levels.push((path, entries)),
                    Err(error) => left_out.unreadable(&path, &error),
                },
                Ok(of) if !of.is_file() => left_out.special_files += 1,
                Ok(of) if of.len() < SMALLEST => left_out.small_files += 1,
                Ok(of) => return Some((path, of.len())),
            }
        }
    }
}

/// How much there is below a directory, counted in a thread of its own.
#[derive(Debug, Default)]
pub(super) struct Total {
    bytes: AtomicU64,
    is_counted: AtomicBool,
}

impl Total {
    pub(super) fn of(directory: &Path) -> Arc<Total> {
        let total: Arc<Total> = Arc::default();
        let (counted, directory) = (Arc::downgrade(&total), directory.to_owned());
        std::thread::spawn(move || {
            let Ok(mut walk) = Walk::of(&directory) else { return };
            let mut left_out = LeftOut::default();
            while let Some((_, bytes)) = walk.next(&mut left_out) {
                let Some(total) = counted.upgrade() else { return };
                total.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            if let Some(total) = counted.upgrade() {
                total.is_counted.store(true, Ordering::Relaxed);
            }
        });
        total
    }

    pub(super) fn known(bytes: u64) -> Arc<Total> {
        Arc::new(Total { bytes: bytes.into(), is_counted: true.into() })
    }

    /// Nothing while it is being counted.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.is_counted.load(Ordering::Relaxed).then(|| self.bytes.load(Ordering::Relaxed))
    }
}

/// Why a file could not be read to its end.
pub(super) type ReadFailure = Arc<Mutex<Option<io::Error>>>;

/// A file as the body of a request.
pub(super) struct FileBody(mpsc::Receiver<io::Result<Bytes>>);

impl FileBody {
    /// Reads in a thread, as fast as it is taken.
    pub(super) fn of(mut file: File, failure: &ReadFailure) -> FileBody {
        let (to, body) = mpsc::channel(2);
        let failure = Arc::clone(failure);
        tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; READ_BYTES];
            loop {
                let said = match file.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => Ok(Bytes::copy_from_slice(&buffer[..read])),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        let cut = io::Error::other("the file could not be read to its end");
                        *failure.blocking_lock() = Some(error);
                        Err(cut)
                    }
                };
                let is_over = said.is_err();
                if to.blocking_send(said).is_err() || is_over {
                    return;
                }
            }
        });
        FileBody(body)
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|read| read.map(|read| read.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_walk_finds_files_and_counts_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::write(at("a/one"), vec![1; 1000]).unwrap();
        std::fs::write(at("a/b/c/two"), vec![2; 2000]).unwrap();
        std::fs::write(at("a/small"), b"x").unwrap();
        symlink(root.path(), at("a/round and round")).unwrap();
        symlink("nowhere", at("a/broken")).unwrap();
        let _socket = UnixListener::bind(at("a/socket")).unwrap();
        let mut left_out = LeftOut::default();
        let mut walk = Walk::of(root.path()).unwrap();
        let mut found: Vec<_> = std::iter::from_fn(|| walk.next(&mut left_out)).collect();
        found.sort();
        assert_eq!(found, [(at("a/b/c/two"), 2000), (at("a/one"), 1000)]);
        let LeftOut { symbolic_links, special_files, small_files, unreadable, .. } = left_out;
        assert_eq!((symbolic_links, special_files, small_files, unreadable), (2, 1, 1, 0));
        assert!(open(&at("a/broken")).is_err() && open(&at("a")).is_err());
        let total = Total::of(root.path());
        while total.bytes().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(total.bytes(), Some(3000));
    }
}
