//! The database as a file: opening, migrations, what is looked at before anything is built on it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

use super::connections::{Connections, Gate, Opened};
use super::error::StateError;

/// How long a statement waits for a lock: only another process (a person with `sqlite3`) can hold one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that read at the same time.
const READERS_MAX: u32 = 4;

/// What has ever changed the tables, oldest first. Once released, a migration is never edited.
const MIGRATIONS: [(i64, &str, &str); 26] = [
    (1, "first", include_str!("migrations/0001_first.sql")),
    (2, "directions", include_str!("migrations/0002_directions.sql")),
    (3, "fence", include_str!("migrations/0003_fence.sql")),
    (4, "schedules", include_str!("migrations/0004_schedules.sql")),
    (5, "turns", include_str!("migrations/0005_turns.sql")),
    (6, "paths", include_str!("migrations/0006_paths.sql")),
    (7, "let-go", include_str!("migrations/0007_let_go.sql")),
    (8, "throttles", include_str!("migrations/0008_throttles.sql")),
    (9, "recorded-rights", include_str!("migrations/0009_recorded_rights.sql")),
    (10, "role-changes", include_str!("migrations/0010_role_changes.sql")),
    (11, "swap-ended", include_str!("migrations/0011_swap_ended.sql")),
    (12, "replaced-peers", include_str!("migrations/0012_replaced_peers.sql")),
    (13, "rights-of-volumes", include_str!("migrations/0013_rights_of_volumes.sql")),
    (14, "overtaken", include_str!("migrations/0014_overtaken.sql")),
    (15, "keepalive", include_str!("migrations/0015_keepalive.sql")),
    (16, "hosts", include_str!("migrations/0016_hosts.sql")),
    (17, "followed-since", include_str!("migrations/0017_followed_since.sql")),
    (18, "scrubs", include_str!("migrations/0018_scrubs.sql")),
    (19, "dedups", include_str!("migrations/0019_dedups.sql")),
    (20, "retention", include_str!("migrations/0020_retention.sql")),
    (21, "alarms", include_str!("migrations/0021_alarms.sql")),
    (22, "drills", include_str!("migrations/0022_drills.sql")),
    (23, "access", include_str!("migrations/0023_access.sql")),
    (24, "daemons", include_str!("migrations/0024_daemons.sql")),
    (25, "ended there", include_str!("migrations/0025_ended_there.sql")),
    (26, "past", include_str!("migrations/0026_past.sql")),
];

/// The newest schema this version knows: the number of its last migration.
pub(crate) const SCHEMA: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// What a start depends on. History and log are not among it: they are large, and damage there costs lines only.
const CHECKED_TABLES: [&str; 7] =
    ["pools", "peers", "rights", "hosts", "host_rights", "relationships", "source_relationships"];

/// Opens the file, made or brought up to date if need be.
pub(super) async fn open(path: &Path) -> Result<Opened, StateError> {
    let failed = |reason: String| StateError::Open { path: path.to_path_buf(), reason };
    // SQLite would make it readable to all; its other files take the mode of this one.
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(|e| failed(e.to_string()))?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true);
    // On a full disk SQLite ends a transaction by itself, and what counts transactions above it does not know: such a
    // connection begins none ever again. It is closed, and another opened.
    // A connection to a file lives as long as the pool. Looking after its age is left out: sqlx counts its idle connections in a
    // way that may fall below zero while one is taken (0.9.0, `num_idle`), and the task that looks then goes round for ever, with
    // a processor and the writer's connection (seen once, in a daemon that had just started).
    let pool = |connections: u32| {
        let options =
            SqlitePoolOptions::new().max_connections(connections).idle_timeout(None).max_lifetime(None);
        options
            .before_acquire(|connection, _| Box::pin(std::future::ready(Ok(!connection.is_in_transaction()))))
    };
    let writer = pool(1).connect_with(options.clone()).await.map_err(|e| failed(e.to_string()))?;
    let found = schema_of(&writer).await.map_err(|e| failed(e.to_string()))?;
    match found {
        Some(found) if found > SCHEMA => {
            return Err(StateError::Newer { path: path.to_path_buf(), found, known: SCHEMA });
        }
        Some(_) => check(&writer).await.map_err(failed)?,
        None => {}
    }
    migrations().run(&writer).await.map_err(|e| failed(e.to_string()))?;
    let line_writer = pool(1)
        .connect_with(options.clone().synchronous(SqliteSynchronous::Normal))
        .await
        .map_err(|e| failed(e.to_string()))?;
    let readers =
        pool(READERS_MAX).connect_with(options.read_only(true)).await.map_err(|e| failed(e.to_string()))?;
    let gate = Gate::default();
    Ok(Opened {
        writer: Connections::sqlite(writer, Some(gate.clone())),
        line_writer: Connections::sqlite(line_writer, Some(gate.clone())),
        readers: Connections::sqlite(readers, None),
        gate,
        was_new: found.is_none(),
    })
}

/// The schema of a database; none if it is new.
pub(super) async fn schema_of(pool: &SqlitePool) -> Result<Option<i64>, sqlx::Error> {
    let made: Option<i64> = sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
        .fetch_optional(pool)
        .await?;
    match made {
        None => Ok(None),
        Some(_) => sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(pool).await,
    }
}

/// Reads what a start depends on, before anything is built on it.
async fn check(pool: &SqlitePool) -> Result<(), String> {
    for table in CHECKED_TABLES {
        // A schema from before a table has nothing in it to check.
        let made: Option<i64> =
            sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?")
                .bind(table)
                .fetch_optional(pool)
                .await
                .map_err(|e| e.to_string())?;
        if made.is_none() {
            continue;
        }
        // A pragma takes no bound values.
        let pragma = AssertSqlSafe(format!("PRAGMA quick_check({table})"));
        let said: Vec<String> =
            sqlx::query_scalar(pragma).fetch_all(pool).await.map_err(|e| e.to_string())?;
        if let Some(finding) = said.iter().find(|line| *line != "ok") {
            return Err(format!("its table {table} is damaged: {finding}"));
        }
    }
    Ok(())
}

pub(super) fn migrations() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use farside_mirror::{Schedule, SourceStore};
    use farside_peer::PeerRegistry;

    use super::*;
    use crate::state::State;
    use crate::state::statement::{query, query_scalar};

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

    /// A database that these statements make.
    async fn made(path: &Path, statements: &'static str) {
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        sqlx::raw_sql(statements).execute(&pool).await.unwrap();
        pool.close().await;
    }

    #[tokio::test]
    async fn a_database_of_the_first_schema_is_brought_up_to_date() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        made(&path, include_str!("frozen/0001.sql")).await;
        let state = State::open(&path).await.unwrap();
        assert_eq!(schema_of(state.readers.sqlite_pool().unwrap()).await.unwrap(), Some(SCHEMA));

        let relationships = state.relationships(None).await.unwrap();
        let of = |volume: &str| relationships.iter().find(|r| r.destination.volume == volume).unwrap();
        assert_eq!(relationships.len(), 2);
        assert_eq!((of("mail").schedule.to_string().as_str(), of("mail").quiesced), ("every 1m 30s", false));
        assert_eq!((of("web").schedule.clone(), of("web").quiesced), (Schedule::OnRequest, true));
        assert_eq!(of("mail").source.to_string(), "tank/mail");
        let id = of("mail").id;
        assert_eq!(id.to_string(), "24c771e1-71fc-4d23-a4ce-287c5bef7467");
        assert!(relationships.iter().all(|r| r.broken_off_at.is_none()
            && !r.resync_pending
            && r.swap.is_none()
            && r.role_change == 1));

        let history = state.transfers_of(id, 10).await.unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(history[0].base.as_deref(), history[1].incremental.as_deref());
        assert!(history.iter().all(|transfer| transfer.levels.is_none()), "nobody counted them");
        assert_eq!(state.log(None, 10).await.unwrap(), []);
        let peers = state.list().await.unwrap();
        assert_eq!((peers.len(), peers[0].name.as_str()), (1, "north"));
        let rights = state.rights().await.unwrap();
        assert_eq!((rights.len(), rights.iter().filter(|r| r.reverse).count()), (2, 1));
        assert!(rights.iter().all(|right| !right.fence && right.volume_id.is_none()));
        let sources = state.source_relationships().await.unwrap();
        assert_eq!((sources.len(), sources[0].base.is_some(), &sources[0].overtaken), (1, true, &None));
        assert_eq!(state.pools().await.unwrap()[0].path, "/srv/vault.pool");
    }

    #[tokio::test]
    async fn what_an_earlier_schema_named_otherwise_keeps_its_meaning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        let mut earlier = migrations();
        earlier.migrations.to_mut().retain(|migration| migration.version < 10);
        earlier.run(&pool).await.unwrap();
        let statements = "INSERT INTO relationships (id, peer, source, pool, volume, quiesced, turn, swap, swap_with) \
             VALUES (zeroblob(16), zeroblob(32), 'tank/mail', 'vault', 'mail', 0, 7, 'turning', zeroblob(16)); \
             INSERT INTO source_relationships (id, peer, source, destination, let_go_at, let_go_why) \
             VALUES (zeroblob(16), zeroblob(32), 'p/a', 'q/a', 5, 'old'); \
             INSERT INTO transfers (relationship, volume, ended_at, record) \
             VALUES (zeroblob(16), 'vault/mail', 1, '{\"held_bytes\":9,\"rungs\":null,\"reason\":\"\\\"rungs\\\":\"}')";
        sqlx::raw_sql(statements).execute(&pool).await.unwrap();
        pool.close().await;

        let state = State::open(&path).await.unwrap();
        let [mirror] = &state.relationships(None).await.unwrap()[..] else { panic!("one") };
        assert_eq!(mirror.role_change, 7);
        assert!(matches!(mirror.swap, Some(farside_mirror::SwapMark::Swapping { .. })), "{mirror:?}");
        let sources = state.source_relationships().await.unwrap();
        assert_eq!(sources[0].released.as_ref().map(|released| released.why.as_str()), Some("old"));
        let record: String =
            query_scalar("SELECT record FROM transfers").fetch_one(&state.readers).await.unwrap();
        assert_eq!(record, "{\"resumed_bytes\":9,\"levels\":null,\"reason\":\"\\\"rungs\\\":\"}");
    }

    #[tokio::test]
    async fn a_database_of_a_newer_version_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        State::open(&path).await.unwrap().close().await;
        made(
            &path,
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (99, 'tomorrow', 1, X'00', 1); DROP TABLE relationships;",
        )
        .await;
        let before = std::fs::read(&path).unwrap();
        let error = State::open(&path).await.unwrap_err();
        assert!(matches!(error, StateError::Newer { found: 99, known: SCHEMA, .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("schema 99") && said.contains(&format!("up to {SCHEMA}")), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[tokio::test]
    async fn damage_in_what_a_start_depends_on_is_found_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        made(&path, include_str!("frozen/0001.sql")).await;
        State::open(&path).await.unwrap().close().await;
        let whole = std::fs::read(&path).unwrap();
        // The page that holds the relationships: found by a source's name.
        let place = whole.windows(9).position(|bytes| bytes == b"tank/mail").unwrap();
        let mut damaged = whole.clone();
        damaged[place / 4096 * 4096..][..4096].fill(0x5a);
        std::fs::write(&path, &damaged).unwrap();
        let error = State::open(&path).await.unwrap_err().to_string();
        assert!(error.contains("damaged") || error.contains("malformed"), "{error}");
        assert!(error.contains("farside pool import") && error.contains("-wal"), "{error}");
    }

    /// SQLite's own limit does what a full disk does: it ends the transaction by itself.
    #[tokio::test]
    async fn after_a_full_disk_it_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let entry = crate::state::log::tests::line(1, "q/r");
        let large = "x".repeat(1 << 20);
        let mut connection = state.writer.sqlite_pool().unwrap().acquire().await.unwrap();
        let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *connection).await.unwrap();
        let limit = AssertSqlSafe(format!("PRAGMA max_page_count = {}", pages + 8));
        sqlx::query(limit).execute(&mut *connection).await.unwrap();
        drop(connection);
        for _ in 0..3 {
            let mut transaction = match state.writer.begin().await {
                Ok(transaction) => transaction,
                Err(error) => panic!("no transaction begins any more: {error}"),
            };
            // Where it is taken, this was another connection, without the limit.
            let _ = query("INSERT INTO settings (name, value) VALUES ('large', $1)")
                .bind(&large)
                .execute(&mut transaction)
                .await;
        }
        state.probe().await.unwrap();
        state.append_log(&entry).await.unwrap();
    }

    #[tokio::test]
    async fn every_connection_is_durable_and_patient() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        for (pool, expected) in [(&state.writer, 2), (&state.readers, 2), (&state.line_writer, 1)] {
            let journal: String = query_scalar("PRAGMA journal_mode").fetch_one(pool).await.unwrap();
            let synchronous: i64 = query_scalar("PRAGMA synchronous").fetch_one(pool).await.unwrap();
            let busy: i64 = query_scalar("PRAGMA busy_timeout").fetch_one(pool).await.unwrap();
            assert_eq!((journal.as_str(), synchronous, busy), ("wal", expected, 5000));
        }
    }
}
