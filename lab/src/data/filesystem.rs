//! File systems in images: made, mounted for the program that writes, and unmounted before the image is kept.
//!
//! Mounts live in the laboratory's own mount namespace only, so that whatever ends the laboratory ends them. ext4 is made
//! with a fixed UUID, hash seed and time, so that what is left to differ between two makings is what the kernel writes
//! (times and generation numbers of files, and where it puts blocks).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use nix::mount::{MntFlags, umount2};

use super::error::DataError;
use super::making::Making;
use super::{program, seeded};

/// Where images are mounted. Every Debian has this directory, every user may look into it (PostgreSQL does not run as
/// root), and in our own mount namespace nobody else sees what we do there.
const MOUNT_POINT: &str = "/mnt";

/// The moment that file systems were made, for their superblocks: 1 January 2024.
const MADE_AT: &str = "1704067200";

/// The day after, in seconds of Unix time: when the first generation was written.
const FIRST_DAY: u64 = 1_704_153_600;

/// Where the superblock's word of incompatible features stands, and in it the bit of a journal that was not closed.
const SUPERBLOCK_INCOMPATIBLE_AT: u64 = 1024 + 0x60;
const NEEDS_RECOVERY: u32 = 0x4;

/// An image with an ext4 file system, not mounted.
pub(super) struct FileSystem {
    image: PathBuf,
    /// Where in the image it begins.
    offset_bytes: u64,
    size_bytes: u64,
}

/// What kind of content a file system is made for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// Large files: an inode for every 16 KiB, as mke2fs does by itself.
    Large,
    /// Many small files: an inode for every 4 KiB.
    Small,
}

impl FileSystem {
    /// Makes one that fills an image of its own. `number` tells the set's file systems apart.
    pub(super) fn create(
        making: &mut Making<'_>,
        name: &str,
        number: u64,
        content: Content,
    ) -> Result<Self, DataError> {
        let image = making.scratch().join(name);
        let size_bytes = making.volume_bytes();
        let file = File::create_new(&image).map_err(DataError::io("create", &image))?;
        file.set_len(size_bytes).map_err(DataError::io("set the length of", &image))?;
        let made = Self { image, offset_bytes: 0, size_bytes };
        made.format(making, number, content)?;
        Ok(made)
    }

    /// Makes one in the part of an image that begins at `offset_bytes` and reaches to its end.
    pub(super) fn create_in(
        making: &mut Making<'_>,
        image: &Path,
        offset_bytes: u64,
        number: u64,
        content: Content,
    ) -> Result<Self, DataError> {
        let size_bytes = making.volume_bytes() - offset_bytes;
        let made = Self { image: image.to_owned(), offset_bytes, size_bytes };
        made.format(making, number, content)?;
        Ok(made)
    }

    /// The same in a copy of its image.
    pub(super) fn clone_in(&self, image: &Path) -> Self {
        Self { image: image.to_owned(), ..*self }
    }

    fn format(&self, making: &mut Making<'_>, number: u64, content: Content) -> Result<(), DataError> {
        making.program("mke2fs", Command::new("mke2fs").arg("-V"))?;
        making.program("kernel", Command::new("uname").args(["-s", "-r"]))?;
        let extended = format!(
            "offset={},hash_seed={},lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0",
            self.offset_bytes,
            seeded::uuid(making.seed(), number * 2 + 1),
        );
        let inode_bytes = match content {
            Content::Large => "16384",
            Content::Small => "4096",
        };
        let mut command = Command::new("mke2fs");
        command.env("E2FSPROGS_FAKE_TIME", MADE_AT).args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"]);
        command.args(["-i", inode_bytes, "-U", &seeded::uuid(making.seed(), number * 2), "-E", &extended]);
        command.arg(&self.image).arg(format!("{}k", self.size_bytes / 1024));
        program::run("mke2fs", &mut command)?;
        Ok(())
    }

    /// Where programs write until [`Mounted::unmount`].
    pub(super) fn mount(&self) -> Result<Mounted<'_>, DataError> {
        let mut command = Command::new("mount");
        let options = format!("loop,noatime,offset={},sizelimit={}", self.offset_bytes, self.size_bytes);
        command.args(["-t", "ext4", "-o", &options]).arg(&self.image).arg(MOUNT_POINT);
        program::run("mount", &mut command)?;
        Ok(Mounted { file_system: self, mounted: true })
    }

    /// The image that holds it.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Proves that the unmounted file system is closed and sound.
    fn check(&self) -> Result<(), DataError> {
        let mut word = [0; 4];
        let image = File::open(&self.image).map_err(DataError::io("open", &self.image))?;
        image
            .read_exact_at(&mut word, self.offset_bytes + SUPERBLOCK_INCOMPATIBLE_AT)
            .map_err(DataError::io("read", &self.image))?;
        if u32::from_le_bytes(word) & NEEDS_RECOVERY != 0 {
            return Err(DataError::Program {
                what: "umount".to_owned(),
                status: "the journal is still open".to_owned(),
                said: "another process holds the mount in a namespace of its own".to_owned(),
            });
        }
        let mut command = Command::new("e2fsck");
        command.args(["-f", "-n"]).arg(format!("{}?offset={}", self.image.display(), self.offset_bytes));
        program::run("e2fsck", &mut command)?;
        Ok(())
    }
}

/// A mounted file system; unmounted when dropped, too, if something failed.
pub(super) struct Mounted<'a> {
    file_system: &'a FileSystem,
    mounted: bool,
}

impl Mounted<'_> {
    /// Its root directory.
    pub(super) fn root(&self) -> &Path {
        Path::new(MOUNT_POINT)
    }

    /// Unmounts it and proves that it is sound.
    pub(super) fn unmount(mut self) -> Result<(), DataError> {
        umount2(MOUNT_POINT, MntFlags::empty())
            .map_err(|error| DataError::io("unmount", self.root())(error.into()))?;
        self.mounted = false;
        self.file_system.check()
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.mounted {
            // Programs that were stopped may hold files for a moment yet.
            let _ = umount2(MOUNT_POINT, MntFlags::MNT_DETACH);
        }
    }
}

/// Gives a file or directory the time of a day of the simulated year, so that archives are the same whenever they are made.
pub(super) fn set_time(path: &Path, day: u64) -> Result<(), DataError> {
    let time = UNIX_EPOCH + Duration::from_secs(FIRST_DAY + day * 24 * 3600);
    let set = File::open(path).and_then(|opened| opened.set_modified(time));
    set.map_err(DataError::io("set the time of", path))
}
