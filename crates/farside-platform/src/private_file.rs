//! Small files with a private key: none but their owner reads them, and they are there whole or not at all.
//!
//! Not guarded against: whoever is the owner, or root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Why a private file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// It cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// Its mode lets others read it.
    #[error("others may read the private key in {0} (mode {mode:o}); run: chmod 600 {0}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is another file.
    #[error("{} has more than {max} bytes: it is no key of farside", path.display())]
    Long {
        /// The file.
        path: PathBuf,
        /// Longest that is read.
        max: u64,
    },
}

/// The file, of `max` bytes at most, unless others may read it; none if it is not there.
///
/// # Errors
/// What is wrong with it.
pub fn read(path: &Path, max: u64) -> Result<Option<Zeroizing<Vec<u8>>>, PrivateFileError> {
    let failed = |reason: io::Error| PrivateFileError::Io { path: path.to_owned(), reason };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(PrivateFileError::Open { path: path.to_owned(), mode: metadata.mode() & 0o777 });
    }
    if metadata.len() > max {
        return Err(PrivateFileError::Long { path: path.to_owned(), max });
    }
    // Room from the beginning: a buffer that grows leaves copies of the key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(max).unwrap_or(0)));
    (&mut file).take(max).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Makes the file durable, with mode 0600: by a temporary file beside it that is renamed. A crash leaves it whole or not at all.
/// One that is there is replaced.
///
/// # Errors
/// What the system said.
pub fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "a file needs a directory and a name");
    let directory = path.parent().ok_or_else(no_name)?;
    let mut name = path.file_name().ok_or_else(no_name)?.to_owned();
    name.push(".new");
    let temporary = directory.join(name);
    // A crash may have left one; nobody has ever known what is in it.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?; // the bytes, before the name points at them
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all() // the name
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_comes_back_as_it_was_stored_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        assert!(read(&path, 100).unwrap().is_none());
        fs::write(directory.path().join("key.pem.new"), "half a key").unwrap();
        store(&path, b"a key").unwrap();
        assert_eq!(**read(&path, 100).unwrap().unwrap(), *b"a key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
        assert!(matches!(read(&path, 4), Err(PrivateFileError::Long { max: 4, .. })));
        for mode in [0o640, 0o604, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let said = read(&path, 100).unwrap_err().to_string();
            assert!(said.contains("chmod 600"), "{said}");
        }
    }
}
