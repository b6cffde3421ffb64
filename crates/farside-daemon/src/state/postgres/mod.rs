//! The database in PostgreSQL: opening, its one migration, and whose it is.
//!
//! One daemon has it: the connection that writes holds an advisory lock as long as it lives, so that whoever would write has it. A
//! daemon that comes back after its connection was lost finds its own mark in the table `owner`, or writes nothing any more. Which
//! daemon of a site that is, a lease says (`desk.rs`).

pub(super) mod connections;
pub(super) mod desk;

use std::sync::Arc;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;

use super::address::ServerAddress;
use super::connections::{Connections as AnyConnections, Gate, Opened};
use super::error::StateError;
use super::sqlite::SCHEMA;
use connections::{Connections, Purpose, Server};

/// What has made the tables. The first is all that SQLite's migrations made up to this number; from then on both go together.
const MIGRATIONS: [(i64, &str, &str); 2] = [
    (23, "first", include_str!("../migrations/postgres/0023_first.sql")),
    (24, "daemons", include_str!("../migrations/postgres/0024_daemons.sql")),
];

/// Opens the database, made or brought up to date if need be.
pub(super) async fn open(address: &ServerAddress) -> Result<Opened, StateError> {
    let server = Arc::new(Server::new(address));
    if address.is_plain() {
        tracing::warn!(
            %address,
            "the connection to the state database need not be encrypted: whoever is on the way may read and change it. Say \
             sslmode=verify-full behind the ? of its address"
        );
    }
    let writer = Connections::new(Arc::clone(&server), Purpose::Write);
    let mut first = writer.take().await.map_err(|error| match error {
        StateError::Away { address, reason } => StateError::OpenServer { address, reason },
        other => other,
    })?;
    let was_new = prepare(first.connection()?, &server).await?;
    first.rests();
    drop(first);
    let gate = Gate::default();
    let lines = Connections::new(Arc::clone(&server), Purpose::Lines);
    let readers = Connections::new(server, Purpose::Read);
    Ok(Opened {
        writer: AnyConnections::postgres(writer, Some(gate.clone())),
        line_writer: AnyConnections::postgres(lines, Some(gate.clone())),
        readers: AnyConnections::postgres(readers, None),
        gate,
        was_new,
    })
}

/// Brings the tables up to date, and puts this daemon's mark there. The connection holds the lock of the site: nobody else does
/// so. Answers whether it was empty.
async fn prepare(connection: &mut PgConnection, server: &Server) -> Result<bool, StateError> {
    let address = || server.address().to_owned();
    let failed = |reason: String| StateError::OpenServer { address: address(), reason };
    let found = schema_of(connection).await.map_err(|error| failed(error.to_string()))?;
    if let Some(found) = found.filter(|found| *found > SCHEMA) {
        return Err(StateError::NewerServer { address: address(), found, known: SCHEMA });
    }
    let migrations = migrations();
    let brought = migrations.run_direct(None, connection, false).await;
    brought.map_err(|error| failed(error.to_string()))?;
    if !server.sign(connection).await.map_err(|error| failed(error.to_string()))? {
        return Err(StateError::TakenOver { address: address() });
    }
    let safe: Option<String> = sqlx::query_scalar("SELECT current_setting('fsync')")
        .fetch_optional(&mut *connection)
        .await
        .map_err(|error| failed(error.to_string()))?;
    if safe.as_deref() == Some("off") {
        tracing::warn!(
            address = server.address(),
            "the PostgreSQL server of the state database runs with fsync = off: a power failure there may destroy it"
        );
    }
    Ok(found.is_none())
}

/// The schema of a database; none if it is new.
async fn schema_of(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let made: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !made {
        return Ok(None);
    }
    sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(connection).await
}

fn migrations() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}

#[cfg(test)]
mod tests;
