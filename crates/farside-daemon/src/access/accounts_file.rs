//! Accounts at rest: a file of the data directory that its owner alone reads; or, where several daemons may be one site, a setting in
//! their PostgreSQL, so that all know the same.
//!
//! Not in a state database that is a file: that goes into support bundles, and the hash of a password, slow as it is, is worth guessing at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use farside_api::{AccessRole, ErrorBody, ErrorCode};
use farside_platform::private_file;
use serde::{Deserialize, Serialize};

/// The file.
const ACCOUNTS_FILE: &str = "accounts.json";
/// An account has some 250 bytes; what is longer is another file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// An account.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptAccount {
    pub(super) role: AccessRole,
    /// The hash of its password, with salt and parameters, as a PHC string.
    pub(super) password: String,
    /// Nanoseconds.
    pub(super) created_at: i64,
    pub(super) created_by: String,
}

/// Accounts by name.
pub(super) type Accounts = BTreeMap<String, KeptAccount>;

/// Where accounts are kept.
#[derive(Clone, Debug)]
pub(super) struct AccountsFile {
    path: PathBuf,
    /// Why what is there cannot be read. It is not written over, then.
    damage: Option<String>,
}

/// What the text of a setting says.
///
/// # Errors
/// It was damaged.
pub(super) fn parse(text: &str) -> Result<Accounts, String> {
    serde_json::from_str(text).map_err(|error| format!("the accounts in the state database: {error}"))
}

/// And back.
pub(super) fn text_of(accounts: &Accounts) -> Result<String, ErrorBody> {
    serde_json::to_string(accounts)
        .map_err(|error| ErrorBody::new(ErrorCode::Failed, format!("the accounts cannot be kept: {error}")))
}

impl AccountsFile {
    /// Reads the file of this directory. One that cannot be read keeps no daemon from its start: nobody can log in, and the
    /// log says why.
    pub(super) fn open(directory: &Path) -> (AccountsFile, Accounts) {
        let path = directory.join(ACCOUNTS_FILE);
        let read = match private_file::read(&path, FILE_BYTES_MAX) {
            Ok(None) => Ok(Accounts::default()),
            Ok(Some(bytes)) => {
                serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(accounts) => (AccountsFile { path, damage: None }, accounts),
            Err(damage) => {
                tracing::error!(
                    "nobody can log in: {damage}. Restore the file from a backup, or remove it and make the accounts \
                     anew (farside account create), and restart. Tokens and the control socket are not affected"
                );
                (AccountsFile { path, damage: Some(damage) }, Accounts::default())
            }
        }
    }

    /// Where it is, or would be.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps these, and no others.
    ///
    /// # Errors
    /// They could not be written; what was there stays.
    pub(super) fn store(&self, accounts: &Accounts) -> Result<(), ErrorBody> {
        let failed = |why: String| {
            ErrorBody::new(
                ErrorCode::Failed,
                format!("the accounts cannot be kept: {why}; nothing was changed"),
            )
        };
        if let Some(damage) = &self.damage {
            return Err(failed(damage.clone()).hint("restore or remove the file, and restart farsided"));
        }
        let bytes = serde_json::to_vec(accounts).map_err(|error| failed(error.to_string()))?;
        private_file::store(&self.path, &bytes).map_err(|error| {
            failed(error.to_string()).hint("is the disk of the data directory full or read-only?")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_told_of_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (file, accounts) = AccountsFile::open(directory.path());
        assert!(accounts.is_empty());
        file.store(&accounts).unwrap();
        std::fs::write(directory.path().join(ACCOUNTS_FILE), "{").unwrap();
        let (file, accounts) = AccountsFile::open(directory.path());
        assert!(accounts.is_empty());
        assert!(file.store(&accounts).unwrap_err().message.contains(ACCOUNTS_FILE));
        assert_eq!(std::fs::read(directory.path().join(ACCOUNTS_FILE)).unwrap(), b"{");
    }
}
