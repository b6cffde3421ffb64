//! The files of a store: `lock`, `key`, and `realms/REALM/ORIGIN/NUMBER.chunks`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rand::TryRngCore;

use crate::container::FILE_BYTES_MAX;
use crate::error::ChunkError;
use crate::fingerprint::FingerprintKey;
use crate::name::{ContainerName, OriginId, RealmId, from_hex, hex};

const SUFFIX: &str = ".chunks";

/// Where the files are.
pub(super) struct Directory {
    root: PathBuf,
}

/// A container's file.
pub(super) struct Found {
    pub(super) realm: RealmId,
    pub(super) name: ContainerName,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

fn refused(path: &Path, error: io::Error) -> ChunkError {
    ChunkError::Directory { path: path.to_owned(), error }
}

/// Sixteen random bytes.
pub(super) fn random_id(path: &Path) -> Result<[u8; 16], ChunkError> {
    let mut id = [0; 16];
    let filled = rand::rngs::OsRng.try_fill_bytes(&mut id);
    filled.map_err(|error| refused(path, io::Error::other(error.to_string())))?;
    Ok(id)
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Directory {
    /// Makes it where it is not there, and locks it against other processes.
    pub(super) fn open(root: &Path) -> Result<(Directory, File), ChunkError> {
        make(&root.join("realms")).map_err(|error| refused(root, error))?;
        let path = root.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(|error| refused(&path, error))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok((Directory { root: root.to_owned() }, lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ChunkError::InUse(root.to_owned())),
            Err(error) => Err(refused(&path, error.into())),
        }
    }

    /// The store's secret; a new one if there is none, and then nothing that was stored is found.
    pub(super) fn key(&self) -> Result<FingerprintKey, ChunkError> {
        let path = self.root.join("key");
        let mut secret = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                file.take(33).read_to_end(&mut secret).map_err(|error| refused(&path, error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(&path, error)),
        }
        if let Ok(secret) = <[u8; 32]>::try_from(secret) {
            return Ok(FingerprintKey::new(secret));
        }
        let key =
            FingerprintKey::random().map_err(|error| refused(&path, io::Error::other(error.to_string())))?;
        let beside = self.root.join("key.new");
        // A file that was there would keep its mode.
        let _ = fs::remove_file(&beside);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut file| file.write_all(key.secret()))
            .and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| refused(&path, error))?;
        Ok(key)
    }

    /// The file of a container.
    pub(super) fn path_of(&self, realm: RealmId, name: ContainerName) -> PathBuf {
        self.of_origin(realm, name.origin).join(format!("{}{SUFFIX}", name.number))
    }

    /// Makes what a container's file is in.
    pub(super) fn make_for(&self, realm: RealmId, name: ContainerName) -> io::Result<PathBuf> {
        make(&self.of_origin(realm, name.origin))?;
        Ok(self.path_of(realm, name))
    }

    fn of_origin(&self, realm: RealmId, origin: OriginId) -> PathBuf {
        self.root.join("realms").join(hex(&realm.0)).join(hex(&origin.0))
    }

    /// Removes a container's file, and its directory if that was the last.
    pub(super) fn remove(&self, realm: RealmId, name: ContainerName) -> io::Result<()> {
        let path = self.path_of(realm, name);
        // Somebody may have it open, a stream that rests for hours: the disk is to have its bytes back now all the same.
        drop(OpenOptions::new().write(true).truncate(true).open(&path));
        fs::remove_file(path)?;
        // It fails while there are others.
        let _ = fs::remove_dir(self.of_origin(realm, name.origin));
        Ok(())
    }

    /// Every container there is. Directories that hold none are removed; what has another name is left alone.
    pub(super) fn containers(&self) -> Result<Vec<Found>, ChunkError> {
        let mut found = Vec::new();
        let realms = self.root.join("realms");
        for (realm, path) in directories(&realms).map_err(|error| refused(&realms, error))? {
            let realm = RealmId(realm);
            for (origin, path) in directories(&path).map_err(|error| refused(&path, error))? {
                let before = found.len();
                let origin = OriginId(origin);
                add_files(&path, realm, origin, &mut found).map_err(|error| refused(&path, error))?;
                if found.len() == before {
                    // It fails if there is something else in it.
                    let _ = fs::remove_dir(&path);
                }
            }
        }
        Ok(found)
    }
}

/// The directories in `path` that are named by an id.
fn directories(path: &Path) -> io::Result<Vec<([u8; 16], PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(from_hex);
        if let (Some(id), true) = (id, entry.file_type()?.is_dir()) {
            found.push((id, entry.path()));
        }
    }
    Ok(found)
}

fn add_files(path: &Path, realm: RealmId, origin: OriginId, found: &mut Vec<Found>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| {
            let digits = name.strip_suffix(SUFFIX)?;
            digits.parse::<u64>().ok().filter(|number| number.to_string() == digits)
        });
        let metadata = entry.metadata()?;
        let Some(number) = number.filter(|_| metadata.is_file()) else { continue };
        if metadata.len() > FILE_BYTES_MAX {
            // It would push out everything else.
            fs::remove_file(entry.path())?;
        } else {
            let modified = metadata.modified()?;
            found.push(Found {
                realm,
                name: ContainerName { origin, number },
                bytes: metadata.len(),
                modified,
            });
        }
    }
    Ok(())
}
