//! The database in PostgreSQL: opening, its one migration, and whose it is.
//!
//! One daemon has it: the connection that writes holds an advisory lock as long as it lives, so that whoever would write has it. A
//! daemon that comes back after its connection was lost finds its own mark in the table `owner`, or writes nothing any more. Which
//! daemon of a site that is, a lease says (`desk.rs`).

pub(super) mod connections;
pub(super) mod desk;
mod schema;

use std::sync::Arc;

use sqlx::postgres::PgConnection;

use super::address::ServerAddress;
use super::connections::{Connections as AnyConnections, Gate, Opened};
use super::error::StateError;
use connections::{Connections, Purpose, Server};
use schema::{SCHEMA, foreign_table, migrations, schema_of};

/// What is done where a database without a state has tables of somebody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Foreign {
    /// The state's are made beside them.
    Suffered,
    /// Nothing is.
    Refused,
}

/// Opens the database, made or brought up to date if need be.
pub(super) async fn open(address: &ServerAddress, foreign: Foreign) -> Result<Opened, StateError> {
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
    let was_new = prepare(first.connection()?, &server, foreign).await?;
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
async fn prepare(
    connection: &mut PgConnection,
    server: &Server,
    foreign: Foreign,
) -> Result<bool, StateError> {
    let address = || server.address().to_owned();
    let failed = |reason: String| StateError::OpenServer { address: address(), reason };
    let found = schema_of(connection).await.map_err(|error| failed(error.to_string()))?;
    if let Some(found) = found.filter(|found| *found > SCHEMA) {
        return Err(StateError::NewerServer { address: address(), found, known: SCHEMA });
    }
    if found.is_none() && foreign == Foreign::Refused {
        let table = foreign_table(connection).await.map_err(|error| failed(error.to_string()))?;
        if let Some(table) = table {
            return Err(StateError::NotMoved(format!(
                "{} is not empty: it has {table}, which is not of farside. Name an empty database of its own",
                address()
            )));
        }
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

#[cfg(test)]
mod tests;
