//! Connections of one purpose (writing what must last, writing lines, reading) to whichever database there is.
//!
//! What writes passes a gate: while the state is copied elsewhere writers wait there, and once it has moved they are turned away.

use std::sync::Arc;

use sqlx::sqlite::{Sqlite, SqlitePool};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::error::StateError;
use super::postgres::connections::{Connections as PostgresConnections, Transaction as PostgresTransaction};
use super::statement::{Executor, Row, Statement};

/// Where the state has moved, once it has.
type Moved = Option<String>;

/// What every writer passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<RwLock<Moved>>);

impl Gate {
    pub(super) async fn pass(&self) -> Result<OwnedRwLockReadGuard<Moved>, StateError> {
        let guard = Arc::clone(&self.0).read_owned().await;
        match &*guard {
            None => Ok(guard),
            Some(to) => Err(StateError::Moved { to: to.clone() }),
        }
    }

    /// Waits until nobody writes; nobody does until the answer is dropped, and never again once it says where the state is.
    pub(super) async fn close(&self) -> OwnedRwLockWriteGuard<Moved> {
        Arc::clone(&self.0).write_owned().await
    }
}

/// The connections of a database that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) writer: Connections,
    pub(super) line_writer: Connections,
    pub(super) readers: Connections,
    pub(super) gate: Gate,
    /// It was empty.
    pub(super) was_new: bool,
}

/// Connections of one purpose.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    kind: Kind,
    /// None: they only read.
    gate: Option<Gate>,
}

#[derive(Clone, Debug)]
enum Kind {
    Sqlite(SqlitePool),
    Postgres(PostgresConnections),
}

impl Connections {
    pub(super) fn sqlite(pool: SqlitePool, gate: Option<Gate>) -> Connections {
        Connections { kind: Kind::Sqlite(pool), gate }
    }

    pub(super) fn postgres(connections: PostgresConnections, gate: Option<Gate>) -> Connections {
        Connections { kind: Kind::Postgres(connections), gate }
    }

    async fn pass(&self) -> Result<Option<OwnedRwLockReadGuard<Moved>>, StateError> {
        match &self.gate {
            Some(gate) => gate.pass().await.map(Some),
            None => Ok(None),
        }
    }

    /// Begins a transaction. Dropped before it is committed, it changes nothing.
    pub(super) async fn begin(&self) -> Result<Transaction, StateError> {
        let passed = self.pass().await?;
        self.begin_past_the_gate(passed).await
    }

    /// The same for whoever holds the gate closed.
    pub(super) async fn begin_past_the_gate(
        &self,
        passed: Option<OwnedRwLockReadGuard<Moved>>,
    ) -> Result<Transaction, StateError> {
        let kind = match &self.kind {
            Kind::Sqlite(pool) => {
                // One that only reads could not take the lock of writers.
                let begin = if self.gate.is_some() { "BEGIN IMMEDIATE" } else { "BEGIN" };
                Begun::Sqlite(pool.begin_with(begin).await?)
            }
            Kind::Postgres(connections) => Begun::Postgres(Box::new(connections.begin().await?)),
        };
        Ok(Transaction { kind, _passed: passed })
    }

    /// Whether it is PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        matches!(self.kind, Kind::Postgres(_))
    }

    /// The file's; none in PostgreSQL.
    #[cfg(test)]
    pub(super) fn sqlite_pool(&self) -> Option<&SqlitePool> {
        match &self.kind {
            Kind::Sqlite(pool) => Some(pool),
            Kind::Postgres(_) => None,
        }
    }

    /// Closes them; calls under way end first.
    pub(super) async fn close(&self) {
        match &self.kind {
            Kind::Sqlite(pool) => pool.close().await,
            Kind::Postgres(connections) => connections.close().await,
        }
    }
}

/// A transaction that has begun.
#[derive(Debug)]
pub(super) struct Transaction {
    kind: Begun,
    _passed: Option<OwnedRwLockReadGuard<Moved>>,
}

#[derive(Debug)]
enum Begun {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(Box<PostgresTransaction>),
}

impl Executor for &Connections {
    async fn execute(self, statement: Statement) -> Result<u64, StateError> {
        let _passed = self.pass().await?;
        match &self.kind {
            Kind::Sqlite(pool) => Ok(statement.for_sqlite().execute(pool).await?.rows_affected()),
            Kind::Postgres(connections) => connections.execute(statement).await,
        }
    }

    async fn rows(self, statement: Statement) -> Result<Vec<Row>, StateError> {
        let _passed = self.pass().await?;
        match &self.kind {
            // All rows, even where one is asked for: what changes something is committed when there are no more.
            Kind::Sqlite(pool) => {
                let rows = statement.for_sqlite().fetch_all(pool).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Kind::Postgres(connections) => connections.rows(statement).await,
        }
    }
}

impl Executor for &mut Transaction {
    async fn execute(self, statement: Statement) -> Result<u64, StateError> {
        match &mut self.kind {
            Begun::Sqlite(transaction) => {
                Ok(statement.for_sqlite().execute(&mut **transaction).await?.rows_affected())
            }
            Begun::Postgres(transaction) => transaction.execute(statement).await,
        }
    }

    async fn rows(self, statement: Statement) -> Result<Vec<Row>, StateError> {
        match &mut self.kind {
            Begun::Sqlite(transaction) => {
                let rows = statement.for_sqlite().fetch_all(&mut **transaction).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Begun::Postgres(transaction) => transaction.rows(statement).await,
        }
    }
}

impl Transaction {
    /// All of it, or an error.
    pub(super) async fn commit(self) -> Result<(), StateError> {
        match self.kind {
            Begun::Sqlite(transaction) => Ok(transaction.commit().await?),
            Begun::Postgres(transaction) => transaction.commit().await,
        }
    }
}
