//! Files that are being made. Until one is what its maker wants it to be it has a name of its own: a making that is cut leaves the
//! wanted name free, and nothing there that nobody can use. The name is given without overwriting anything.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use crate::random::{OsRandomness, Randomness};

/// What the name of a draft has behind the wanted one, before a random number.
const MARK: &str = ".unfinished-";
/// So much of a long name is in its draft's: names have 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// The name that a file has until it is published. Whoever drops it before removes the file.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
    is_published: AtomicBool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published.load(Ordering::Acquire) {
            // It did not exist a moment ago, and nobody has been told of it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Draft {
    /// Makes a file of `bytes` bytes that is to be at `path`, where nothing is yet.
    pub(crate) fn make(path: &Path, bytes: u64) -> io::Result<Draft> {
        if path.symlink_metadata().is_ok() {
            return Err(Errno::EXIST.into());
        }
        let name = draft_name(path).ok_or(Errno::ISDIR)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name)?;
        let draft = Draft { path: name, is_published: AtomicBool::new(false) };
        file.set_len(bytes)?;
        file.sync_all()?;
        Ok(draft)
    }

    /// Gives it its name, for good. Something may have that name by now: then it stays a draft.
    pub(crate) fn publish(&self, path: &Path) -> io::Result<()> {
        if self.is_published.load(Ordering::Acquire) {
            return Ok(());
        }
        give_name(&self.path, path)?;
        self.is_published.store(true, Ordering::Release);
        // The name must survive a power failure as well as the bytes.
        File::open(directory_of(path))?.sync_all()
    }

    /// Those for this path.
    pub(crate) fn all_for(path: &Path) -> Vec<PathBuf> {
        let Some(prefix) = draft_prefix(path) else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(directory_of(path)) else { return Vec::new() };
        let is_draft = |name: &OsStr| {
            let number = name.as_bytes().strip_prefix(prefix.as_bytes());
            number.is_some_and(|number| number.len() == 8 && number.iter().all(u8::is_ascii_hexdigit))
        };
        entries.flatten().filter(|entry| is_draft(&entry.file_name())).map(|entry| entry.path()).collect()
    }
}

/// The directory that a path's last part lies in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn draft_prefix(path: &Path) -> Option<std::ffi::OsString> {
    let name = path.file_name()?.as_bytes();
    let kept = &name[..name.len().min(NAME_BYTES_MAX)];
    Some(OsStr::from_bytes(&[kept, MARK.as_bytes()].concat()).to_owned())
}

fn draft_name(path: &Path) -> Option<PathBuf> {
    let mut name = draft_prefix(path)?;
    name.push(format!("{:08x}", OsRandomness.next_u64() as u32));
    Some(directory_of(path).join(name))
}

/// Renames without overwriting. Some network file systems cannot do that in one step: they have links.
fn give_name(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        done => return Ok(done?),
    }
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
    Ok(rustix::fs::unlinkat(CWD, from, AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{AtPath, BLOCK_BYTES, DeviceError, FileDevice};

    const BYTES: u64 = 8 * BLOCK_BYTES as u64;

    fn names(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_draft_has_its_name_once_it_is_published_and_is_no_more_if_it_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        drop(FileDevice::draft(&path, BYTES).unwrap());
        assert_eq!(names(directory.path()), 0);
        let device = FileDevice::draft(&path, BYTES).unwrap();
        assert!(!path.exists());
        assert_eq!(FileDevice::unfinished(&path), Vec::<PathBuf>::new(), "somebody works on it");
        device.publish().unwrap();
        device.publish().unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Same);
        drop(device);
        assert_eq!((path.metadata().unwrap().len(), names(directory.path())), (BYTES, 1));
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        let device = FileDevice::draft(&path, BYTES).unwrap();
        std::fs::write(&path, b"somebody's").unwrap();
        assert!(matches!(device.publish(), Err(DeviceError::Open { source, .. })
            if source.kind() == io::ErrorKind::AlreadyExists));
        drop(device);
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
        assert_eq!(names(directory.path()), 1);
        FileDevice::draft(&path, BYTES).unwrap_err();
    }

    #[test]
    fn what_a_kill_leaves_keeps_nobody_from_the_name_and_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d".repeat(250));
        let killed = FileDevice::draft(&path, BYTES).unwrap();
        let left = killed.draft.as_ref().unwrap().path.clone();
        // What drops it never runs.
        let (file, rest) = (killed.file.try_clone().unwrap(), std::mem::ManuallyDrop::new(killed));
        rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
        assert_eq!(FileDevice::unfinished(&path), [left]);
        FileDevice::draft(&path, BYTES).unwrap().publish().unwrap();
        assert!(path.exists());
        let _ = rest;
    }

    #[test]
    fn a_file_that_cannot_be_made_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        // Larger than any file system's files.
        FileDevice::create(&directory.path().join("d"), 1 << 63).unwrap_err();
        assert_eq!(names(directory.path()), 0);
    }
}
