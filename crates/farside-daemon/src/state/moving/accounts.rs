//! Who may log in goes along: a file beside the database that is a file, a setting in the database of a server.
//!
//! The file is written before the copy is confirmed: while the state is on a server, nobody reads it. It is removed after the
//! move to a server: a password that is changed there, or an account that is removed, must not come back from it.

use std::path::{Path, PathBuf};

use farside_platform::private_file;
use serde_json::{Map, Value};

use super::{State, StateError, Transaction};
use crate::state::settings::ACCOUNTS;
use crate::state::statement::{query, query_scalar};

/// What a person types once what kept the state from moving is mended.
pub(super) const AGAIN: &str = "farside site move-state again";

/// Longer than any that is written.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// All accounts, as they are kept in both places.
pub(super) struct Accounts {
    text: String,
    number: i64,
}

impl Accounts {
    /// Those of this state.
    pub(super) async fn read(
        state: &State,
        source: &mut Transaction,
        file: &Path,
    ) -> Result<Accounts, StateError> {
        let (text, place, mend): (Option<String>, _, _) = if state.is_shared() {
            let text = query_scalar("SELECT value FROM settings WHERE name = $1")
                .bind(ACCOUNTS)
                .fetch_optional(source)
                .await?;
            (text, state.setting.to_string(), "Make them anew (farside account create)")
        } else {
            (of_file(file.to_owned()).await?, file.display().to_string(), RESTORE)
        };
        let text = text.unwrap_or_else(|| String::from("{}"));
        let number = serde_json::from_str::<Map<String, Value>>(&text).map_err(|error| {
            StateError::NotMoved(format!(
                "the accounts in {place} are damaged: {error}. {mend}, then {AGAIN}"
            ))
        })?;
        Ok(Accounts { text, number: i64::try_from(number.len()).unwrap_or(i64::MAX) })
    }

    /// How many there are.
    pub(super) fn number(&self) -> i64 {
        self.number
    }

    /// Puts them where the state goes, in place of any that are there.
    pub(super) async fn keep(
        &self,
        target: &State,
        writer: &mut Transaction,
        file: &Path,
    ) -> Result<(), StateError> {
        if target.is_shared() {
            query(
                "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            )
            .bind(ACCOUNTS)
            .bind(&self.text)
            .execute(writer)
            .await?;
            return Ok(());
        }
        let (path, bytes) = (file.to_owned(), self.text.clone().into_bytes());
        let stored = tokio::task::spawn_blocking(move || private_file::store(&path, &bytes)).await;
        stored.map_err(|error| error.to_string()).and_then(|stored| stored.map_err(|error| error.to_string())).map_err(
            |reason| {
                StateError::NotMoved(format!(
                    "the accounts cannot be written to {}: {reason}. See that the data directory can be written, then {AGAIN}",
                    file.display()
                ))
            },
        )
    }
}

const RESTORE: &str = "Restore that file, or remove it and restart farsided";

async fn of_file(path: PathBuf) -> Result<Option<String>, StateError> {
    let unread = |reason: String| {
        StateError::NotMoved(format!(
            "the accounts cannot be carried along: {reason}. {RESTORE}, then {AGAIN}"
        ))
    };
    let read = tokio::task::spawn_blocking(move || private_file::read(&path, FILE_BYTES_MAX)).await;
    let bytes =
        read.map_err(|error| unread(error.to_string()))?.map_err(|error| unread(error.to_string()))?;
    bytes
        .map(|bytes| String::from_utf8(bytes.to_vec()))
        .transpose()
        .map_err(|error| unread(error.to_string()))
}

/// Removes the file: its accounts are kept elsewhere now.
pub(super) async fn forget(file: &Path) {
    let path = file.to_owned();
    let removed = tokio::task::spawn_blocking(move || match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => path.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all()),
    })
    .await;
    if let Err(error) = removed.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
        tracing::error!(
            %error, file = %file.display(),
            "the accounts are in the new database now, but their old file could not be removed. It is not used any more: remove it"
        );
    }
}
