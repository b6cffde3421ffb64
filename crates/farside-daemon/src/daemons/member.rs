//! What a daemon knows of itself: a number drawn once, and whether its site has others. A small file in its data directory.

use std::path::Path;

use farside_platform::private_file;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::DaemonError;

/// The file.
const FILE: &str = "daemon.json";
/// Longest file read.
const BYTES_MAX: u64 = 4096;

/// A daemon.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct Member {
    pub(crate) id: Uuid,
    /// The site has had others since this one is of it: it waits for the database instead of ending without it.
    pub(crate) several: bool,
}

impl Member {
    /// What the data directory says; a new one if it says nothing, and whether it did.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub(crate) fn load(directory: &Path) -> Result<(Member, bool), DaemonError> {
        let path = directory.join(FILE);
        let failed = |why: String| {
            DaemonError::Config(format!(
                "{}: {why}. It says which of its site's daemons this one is. If it is lost: take this daemon off the list (farside \
                 site remove, at another one), empty its data directory, and have it join again",
                path.display()
            ))
        };
        match private_file::read(&path, BYTES_MAX).map_err(|error| failed(error.to_string()))? {
            None => Ok((Member { id: Uuid::new_v4(), several: false }, false)),
            Some(bytes) => {
                serde_json::from_slice(&bytes).map(|member| (member, true)).map_err(|e| failed(e.to_string()))
            }
        }
    }

    /// Keeps it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn keep(&self, directory: &Path) -> std::io::Result<()> {
        private_file::store(&directory.join(FILE), &serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_who_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (new, was_there) = Member::load(directory.path()).unwrap();
        assert!(!was_there && !new.several);
        Member { several: true, ..new.clone() }.keep(directory.path()).unwrap();
        assert_eq!(Member::load(directory.path()).unwrap(), (Member { several: true, ..new }, true));
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        let said = Member::load(directory.path()).unwrap_err().to_string();
        assert!(said.contains("site remove"), "{said}");
    }
}
