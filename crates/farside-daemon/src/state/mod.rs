//! The state database: `DIR/farside.db`, SQLite.
//!
//! Guarantees: what a call has stored is on disk when it returns (WAL, `synchronous = FULL`), and writers never wait
//! for one another's locks (one connection writes). Holds what the daemon needs to go on by itself: which pools to
//! open, pairings and rights, relationships, history. Holds nothing that data depends on.

mod log;
mod peers;
mod pools;
mod relationships;
mod rights;
mod rows;
mod transfers;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

pub(crate) use pools::PoolRow;
pub(crate) use relationships::PoolRelationships;
pub(crate) use rights::RightRow;

/// How long a statement waits for a lock: only another process (a person with `sqlite3`) can hold one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that read at the same time.
const READERS_MAX: u32 = 4;

/// What has ever changed the tables, oldest first. Once released, a migration is never edited.
const MIGRATIONS: [(i64, &str, &str); 4] = [
    (1, "first", include_str!("migrations/0001_first.sql")),
    (2, "directions", include_str!("migrations/0002_directions.sql")),
    (3, "fence", include_str!("migrations/0003_fence.sql")),
    (4, "schedules", include_str!("migrations/0004_schedules.sql")),
];

/// The database while it is open.
#[derive(Clone, Debug)]
pub(crate) struct State {
    writer: SqlitePool,
    readers: SqlitePool,
}

/// Why the state database does not serve.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be opened.
    #[error(
        "cannot open the state database {}: {reason}; no volume depends on it: if it is damaged, move it away, start \
         again, and name the pools with farside pool import",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// A statement failed.
    #[error("the state database failed: {0}")]
    Statement(#[from] sqlx::Error),
    /// A row makes no sense: somebody else has written it.
    #[error("the state database holds a row that makes no sense: {0}")]
    Row(&'static str),
}

impl State {
    /// Opens the database, made or brought up to date if need be.
    pub(crate) async fn open(path: &Path) -> Result<State, StateError> {
        let failed = |reason: String| StateError::Open { path: path.to_path_buf(), reason };
        // SQLite would make it readable to all; its other files take the mode of this one.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| failed(e.to_string()))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true);
        let pool = |connections: u32| SqlitePoolOptions::new().max_connections(connections);
        let writer = pool(1).connect_with(options.clone()).await.map_err(|e| failed(e.to_string()))?;
        migrations().run(&writer).await.map_err(|e| failed(e.to_string()))?;
        let readers = pool(READERS_MAX)
            .connect_with(options.read_only(true))
            .await
            .map_err(|e| failed(e.to_string()))?;
        Ok(State { writer, readers })
    }

    /// Whether it can still be written: for `/healthz`.
    pub(crate) async fn probe(&self) -> Result<(), StateError> {
        sqlx::query("SELECT 1").execute(&self.writer).await?;
        Ok(())
    }

    /// Closes it; calls under way end first.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

fn migrations() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_opens_twice_and_a_damaged_one_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        State::open(&path).await.unwrap().close().await;
        let state = State::open(&path).await.unwrap();
        state.probe().await.unwrap();
        state.close().await;

        std::fs::write(&path, vec![0x5a; 8192]).unwrap();
        let error = State::open(&path).await.unwrap_err().to_string();
        assert!(error.contains("farside pool import"), "{error}");
    }

    #[tokio::test]
    async fn every_connection_is_durable_and_patient() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        for pool in [&state.writer, &state.readers] {
            let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(pool).await.unwrap();
            let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(pool).await.unwrap();
            let busy: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(pool).await.unwrap();
            assert_eq!((journal.as_str(), synchronous, busy), ("wal", 2, 5000));
        }
    }
}
