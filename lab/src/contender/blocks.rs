//! How a host changes its disk: only the blocks that it writes. Tools that know which blocks were written (`btrfs send`)
//! are measured on copies that changed so.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;
use thiserror::Error;

/// What a file system on the volume writes at least, bytes.
const BLOCK_BYTES: usize = 4096;

/// Read at once, bytes: large enough that two files are read at the disk's speed, small enough for any machine.
const CHUNK_BYTES: usize = 1 << 20;

/// What was written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Copied {
    /// Blocks of 4 KiB with other content, written.
    pub written_blocks: u64,
    /// Blocks of 4 KiB that became zero, given back to the file system.
    pub freed_blocks: u64,
}

/// The target may have some of the changed blocks, not all: lay it anew.
#[derive(Debug, Error)]
#[error("{}: {what}: {source}", path.display())]
pub struct CopyError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Writes into `target`, which is what `old` is, the 4 KiB blocks in which `new` differs from `old`; blocks that are zero
/// now are punched, as a host's discard would. The target gets the size of `new`.
///
/// # Errors
///
/// When one of the files cannot be opened, read or written.
pub fn copy_changed(old: &Path, new: &Path, target: &Path) -> Result<Copied, CopyError> {
    let pair = Generations::open(old, new)?;
    let target_file =
        OpenOptions::new().write(true).open(target).map_err(failed("cannot open it to write", target))?;
    target_file.set_len(pair.new_size).map_err(failed("cannot give it its new size", target))?;
    let mut copied = Copied::default();
    pair.changed(|at, after| {
        if after.iter().all(|byte| *byte == 0) {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&target_file, punch, at, after.len() as u64)
                .map_err(|error| failed("cannot free a block of it", target)(error.into()))?;
            copied.freed_blocks += 1;
        } else {
            target_file.write_all_at(after, at).map_err(failed("cannot write it", target))?;
            copied.written_blocks += 1;
        }
        Ok(())
    })?;
    Ok(copied)
}

/// Writes those blocks to `out` in the form of `rbd export-diff`, version 1, without a snapshot: what a host of a cluster
/// writes into an image that is what `old` is.
///
/// # Errors
///
/// As for [`copy_changed`].
pub fn write_rbd_diff(old: &Path, new: &Path, out: &mut impl Write) -> Result<(), CopyError> {
    let pair = Generations::open(old, new)?;
    let mut write =
        |bytes: &[u8]| out.write_all(bytes).map_err(failed("cannot write what differs in it", new));
    write(b"rbd diff v1\ns")?;
    write(&pair.new_size.to_le_bytes())?;
    pair.changed(|at, after| {
        let is_zero = after.iter().all(|byte| *byte == 0);
        write(if is_zero { b"z" } else { b"w" })?;
        write(&at.to_le_bytes())?;
        write(&(after.len() as u64).to_le_bytes())?;
        if is_zero { Ok(()) } else { write(after) }
    })?;
    write(b"e")
}

/// Two states of a disk.
struct Generations<'a> {
    old: (&'a Path, File),
    new: (&'a Path, File),
    old_size: u64,
    new_size: u64,
}

impl Generations<'_> {
    fn open<'a>(old: &'a Path, new: &'a Path) -> Result<Generations<'a>, CopyError> {
        let open = |path: &Path| File::open(path).map_err(failed("cannot open it", path));
        let size = |file: &File, path: &Path| {
            file.metadata().map(|metadata| metadata.len()).map_err(failed("cannot ask for its size", path))
        };
        let (old_file, new_file) = (open(old)?, open(new)?);
        let (old_size, new_size) = (size(&old_file, old)?, size(&new_file, new)?);
        Ok(Generations { old: (old, old_file), new: (new, new_file), old_size, new_size })
    }

    /// Has `work` see each block that differs: where it begins, and what it is now.
    fn changed(&self, mut work: impl FnMut(u64, &[u8]) -> Result<(), CopyError>) -> Result<(), CopyError> {
        let mut before = vec![0; CHUNK_BYTES];
        let mut after = vec![0; CHUNK_BYTES];
        for start in (0..self.new_size).step_by(CHUNK_BYTES) {
            let length = usize::try_from(self.new_size - start).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let after = &mut after[..length];
            self.new.1.read_exact_at(after, start).map_err(failed("cannot read it", self.new.0))?;
            // What the old one does not have is zero there, as it is in the target after `set_len`.
            let before = &mut before[..length];
            let known = usize::try_from(self.old_size.saturating_sub(start)).unwrap_or(length).min(length);
            self.old
                .1
                .read_exact_at(&mut before[..known], start)
                .map_err(failed("cannot read it", self.old.0))?;
            before[known..].fill(0);
            let blocks = before.chunks(BLOCK_BYTES).zip(after.chunks(BLOCK_BYTES)).enumerate();
            for (index, (_, after)) in blocks.filter(|(_, (before, after))| before != after) {
                work(start + (index * BLOCK_BYTES) as u64, after)?;
            }
        }
        Ok(())
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    move |source| CopyError { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_what_differs_is_written_and_zeroes_are_freed() {
        let directory = tempfile::tempdir().expect("a directory");
        let [old, new, target] = ["old", "new", "target"].map(|name| directory.path().join(name));
        // Three chunks and a block that is not whole; the target differs from the old one where nothing changes, which
        // shows what is left alone.
        let mut content = vec![1; 3 * CHUNK_BYTES + 100];
        fs::write(&old, &content).expect("written");
        content[CHUNK_BYTES - 1] = 2;
        content[2 * CHUNK_BYTES..2 * CHUNK_BYTES + 2 * BLOCK_BYTES].fill(0);
        let last = content.len() - 1;
        content[last] = 3;
        fs::write(&new, &content).expect("written");
        let marker = vec![9; 3 * CHUNK_BYTES + 100];
        fs::write(&target, &marker).expect("written");
        let blocks_before = fs::metadata(&target).expect("there").blocks();

        let copied = copy_changed(&old, &new, &target).expect("copied");
        assert_eq!(copied, Copied { written_blocks: 2, freed_blocks: 2 });
        let got = fs::read(&target).expect("read");
        assert_eq!(got.len(), content.len());
        let changed: Vec<usize> = (0..got.len()).step_by(BLOCK_BYTES).filter(|at| got[*at] != 9).collect();
        assert_eq!(
            changed,
            [CHUNK_BYTES - BLOCK_BYTES, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + BLOCK_BYTES, 3 * CHUNK_BYTES]
        );
        assert!(fs::metadata(&target).expect("there").blocks() < blocks_before, "zeroes take no place");

        fs::write(&target, fs::read(&old).expect("read")).expect("written");
        copy_changed(&old, &new, &target).expect("copied");
        assert_eq!(fs::read(&target).expect("read"), content);
    }

    #[test]
    fn a_new_size_is_followed_either_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let [short, long, target] = ["short", "long", "target"].map(|name| directory.path().join(name));
        fs::write(&short, vec![1; 5000]).expect("written");
        fs::write(&long, vec![1; CHUNK_BYTES + 5000]).expect("written");
        for (from, to) in [(&short, &long), (&long, &short)] {
            fs::copy(from, &target).expect("copied");
            copy_changed(from, to, &target).expect("copied");
            assert_eq!(fs::read(&target).expect("read"), fs::read(to).expect("read"));
        }
        let error = copy_changed(&directory.path().join("nowhere"), &long, &target).expect_err("not there");
        assert!(error.to_string().contains("nowhere: cannot open it"), "{error}");
    }
}
