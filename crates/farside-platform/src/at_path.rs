//! What a device's path leads to by now: names are taken away, moved and given again while a device is open, and what is open stays
//! what it is.

use std::fs::Metadata;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::device::{BlockDevice, DeviceError, FileDevice};

/// What lies at a path, compared with what is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AtPath {
    /// The very thing that is open.
    Same,
    /// Not what is open: that is a file without any name, which goes with whoever has it open last.
    Removed {
        /// Something else has its name.
        replaced: bool,
    },
    /// Not what is open: that is elsewhere.
    Moved {
        /// Where, as far as the kernel tells.
        to: Option<PathBuf>,
        /// Something else has its name.
        replaced: bool,
    },
}

/// What was found at a path.
#[derive(Debug)]
pub struct Found(Option<Metadata>);

impl Found {
    /// Looks there. It may take long: the file system may not answer.
    ///
    /// # Errors
    /// It cannot be told: nothing may be read there, for example.
    pub fn at(path: &Path) -> Result<Found, DeviceError> {
        match path.metadata() {
            Ok(found) => Ok(Found(Some(found))),
            Err(error) if is_nothing(&error) => Ok(Found(None)),
            Err(source) => Err(DeviceError::Open { device: path.display().to_string(), source }),
        }
    }
}

impl FileDevice {
    /// What its path leads to by now.
    ///
    /// # Errors
    /// As [`Found::at`].
    pub fn at_path(&self) -> Result<AtPath, DeviceError> {
        self.compared_with(&Found::at(&self.path)?)
    }

    /// What was found at its path, compared with what is open.
    ///
    /// # Errors
    /// The kernel does not say what is open.
    pub fn compared_with(&self, Found(found): &Found) -> Result<AtPath, DeviceError> {
        let open_error = |source| DeviceError::Open { device: self.name(), source };
        let open = self.file.metadata().map_err(open_error)?;
        let replaced = match found {
            Some(found) if self.is_same(found, &open) => return Ok(AtPath::Same),
            found => found.is_some(),
        };
        if !self.is_block_device() && open.nlink() == 0 {
            return Ok(AtPath::Removed { replaced });
        }
        Ok(AtPath::Moved { to: self.name_now(&open), replaced })
    }

    /// A path by which what is open can be opened once more, whatever names it has: by this machine's administrator, and while
    /// this process lives.
    pub fn path_of_what_is_open(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    fn is_same(&self, found: &Metadata, open: &Metadata) -> bool {
        if self.is_block_device() {
            // Any node of the device will do.
            found.file_type().is_block_device() && found.rdev() == open.rdev()
        } else {
            (found.dev(), found.ino()) == (open.dev(), open.ino())
        }
    }

    /// The name that the kernel has for what is open, if that leads there.
    fn name_now(&self, open: &Metadata) -> Option<PathBuf> {
        let name = std::fs::read_link(self.path_of_what_is_open()).ok()?;
        name.metadata().is_ok_and(|found| self.is_same(&found, open)).then_some(name)
    }
}

fn is_nothing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::BLOCK_BYTES;

    #[test]
    fn what_is_open_is_told_from_what_has_its_name_by_now() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("d"), directory.path().join("moved"));
        let device = FileDevice::create(&path, 8 * BLOCK_BYTES as u64).unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Same);
        std::fs::rename(&path, &moved).unwrap();
        let to = Some(moved.canonicalize().unwrap());
        assert_eq!(device.at_path().unwrap(), AtPath::Moved { to: to.clone(), replaced: false });
        std::fs::write(&path, b"a backup").unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Moved { to, replaced: true });
        std::fs::remove_file(&moved).unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Removed { replaced: true });
        std::fs::remove_file(&path).unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Removed { replaced: false });
        let again = std::fs::metadata(device.path_of_what_is_open()).unwrap();
        assert_eq!(again.len(), 8 * BLOCK_BYTES as u64);
    }

    #[test]
    fn another_name_of_the_file_is_no_loss_though_the_kernel_does_not_tell_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("d"), directory.path().join("other"));
        let device = FileDevice::create(&path, 8 * BLOCK_BYTES as u64).unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Moved { to: None, replaced: false });
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(device.at_path().unwrap(), AtPath::Same);
        // What is mounted, or made, over its directory.
        let nested = directory.path().join("nested");
        std::fs::create_dir(&nested).unwrap();
        std::fs::rename(&path, nested.join("d")).unwrap();
        std::fs::write(&path, b"x").unwrap();
        let to = nested.join("d").canonicalize().ok();
        // The kernel's name is that of the first link, which is gone.
        let at_path = device.at_path().unwrap();
        assert!(
            at_path == AtPath::Moved { to: None, replaced: true }
                || at_path == AtPath::Moved { to, replaced: true },
            "{at_path:?}"
        );
    }
}
