//! The indexes of similar content as files of the data directory, one for each volume: `similarity/UUID`.
//!
//! A file is written beside and renamed, so a reader finds a whole one. Nothing is synced: the index has a checksum, and
//! one that a crash has spoilt is made anew.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use farside_transfer::source::SimilarityStore;
use uuid::Uuid;

/// The directory within the data directory.
const DIRECTORY: &str = "similarity";
/// Extension of a file that is being written.
const BESIDE: &str = "new";

pub(crate) struct SimilarityFiles {
    directory: PathBuf,
}

impl SimilarityFiles {
    pub(crate) fn new(data_dir: &Path) -> SimilarityFiles {
        SimilarityFiles { directory: data_dir.join(DIRECTORY) }
    }

    fn path(&self, volume: Uuid) -> PathBuf {
        self.directory.join(volume.to_string())
    }
}

impl SimilarityStore for SimilarityFiles {
    fn load(&self, volume: Uuid) -> io::Result<Option<Box<dyn Read + Send>>> {
        match File::open(self.path(volume)) {
            Ok(file) => Ok(Some(Box::new(BufReader::new(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn save(&self, volume: Uuid, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let path = self.path(volume);
        let beside = path.with_extension(BESIDE);
        let saved = write_file(&beside, write).and_then(|()| fs::rename(&beside, path));
        if saved.is_err() {
            // Most likely the disk is full: half an index would make it no better.
            let _ = remove_file(&beside);
        }
        saved
    }

    fn remove(&self, volume: Uuid) -> io::Result<()> {
        let path = self.path(volume);
        // One that a crash has left behind.
        remove_file(&path.with_extension(BESIDE)).and(remove_file(&path))
    }
}

fn write_file(path: &Path, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    file.flush()
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let directory = tempfile::tempdir().unwrap();
        let files = SimilarityFiles::new(directory.path());
        let volume = Uuid::from_u128(7);
        let read = || {
            let mut text = String::new();
            files.load(volume).unwrap().map(|mut file| file.read_to_string(&mut text).unwrap());
            text
        };
        assert!(files.load(volume).unwrap().is_none());
        files.remove(volume).unwrap();
        files.save(volume, &mut |out| out.write_all(b"one")).unwrap();
        assert_eq!(read(), "one");
        let failed = files.save(volume, &mut |out| {
            out.write_all(b"tw")?;
            Err(io::Error::other("no room"))
        });
        assert!(failed.is_err());
        assert_eq!(read(), "one");
        let names = || fs::read_dir(directory.path().join(DIRECTORY)).unwrap().count();
        assert_eq!(names(), 1, "half a file does not stay");
        files.save(volume, &mut |out| out.write_all(b"three")).unwrap();
        assert_eq!(read(), "three");
        fs::write(files.path(volume).with_extension(BESIDE), "of a crash").unwrap();
        files.remove(volume).unwrap();
        assert!(files.load(volume).unwrap().is_none());
        assert_eq!(names(), 0);
    }
}
