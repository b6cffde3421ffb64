//! The state goes to another database while the daemon runs.
//!
//! Writers wait at the gate while all tables are copied in one transaction there; what is there must be empty, or have been moved
//! away from. Whatever fails before that commit leaves everything as it was. After it nothing is written here any more, and what
//! is here gets a mark: a daemon that is started on it is refused and told where the state is. A daemon that dies between the
//! two has said nothing, and goes on here after its start; the copy is then in the way of the next try, which says so.
//!
//! Accounts are in no table of the file: they lie beside it. They go along all the same (`accounts.rs`).

mod accounts;

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;

use super::address::DatabaseAddress;
use super::connections::{Connections, Transaction};
use super::database::MOVED_TO;
use super::statement::{Kind, Row, Statement, Value, query, query_scalar};
use super::tables::{TABLES, Table};
use super::{State, StateError};
use accounts::{AGAIN, Accounts};

/// How long writers wait at most.
const COPIED_WITHIN: Duration = Duration::from_secs(300);
/// Rows that are read at once.
const PORTION: usize = 500;
/// Values of one statement: SQLite takes 32 766.
const VALUES_MAX: usize = 30_000;
/// What of the settings belongs to a place and not to the state.
const OF_THE_PLACE: &str = "name NOT IN ('moved_to', 'probe', 'accounts')";

/// A table that was copied, and how many rows it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MovedTable {
    pub(crate) name: &'static str,
    pub(crate) rows: i64,
}

impl State {
    /// Carries all of it to `to`. From then on nothing is written here any more. Accounts go into `accounts_file`, or out of it:
    /// whoever calls sees to it that nobody changes them meanwhile. `entry` is that of the move itself in the audit log.
    pub(crate) async fn move_to(
        &self,
        to: &DatabaseAddress,
        accounts_file: &Path,
        entry: Option<i64>,
    ) -> Result<Vec<MovedTable>, StateError> {
        let began = Instant::now();
        let setting = to.setting();
        // One that moves it is enough.
        let mut gate = self.gate.close().await;
        if let Some(to) = &*gate {
            return Err(StateError::Moved { to: to.clone() });
        }
        if *self.setting == *setting {
            return Err(StateError::NotMoved(format!("it is in {to} already")));
        }
        let target = State::open_to_move(to).await.map_err(not_moved)?;
        let entry = entry.map(|number| (number, began));
        let copied = tokio::time::timeout(COPIED_WITHIN, self.copy(&target, accounts_file, entry)).await;
        target.close().await;
        let copied = copied.unwrap_or_else(|_| {
            Err(StateError::NotMoved(format!(
                "copying it took longer than {} s, and nothing can be written meanwhile. Once the way to {to} is faster, or less is asked of \
                 it: {AGAIN}",
                COPIED_WITHIN.as_secs()
            )))
        });
        let tables = copied.map_err(not_moved)?;
        *gate = Some(setting.clone());
        if let Err(error) = self.mark_moved(&setting).await {
            tracing::error!(
                %error, to = setting,
                "the state was moved, but the old database could not be marked: do not start a daemon on it any more"
            );
        }
        if to.is_server() {
            accounts::forget(accounts_file).await;
        }
        Ok(tables)
    }

    /// Refuses what would be kept beside the database, once that was moved.
    pub(crate) async fn check_not_moved(&self) -> Result<(), StateError> {
        self.gate.pass().await.map(drop)
    }

    async fn mark_moved(&self, to: &str) -> Result<(), StateError> {
        // Nobody else has it: the gate is closed.
        let mut transaction = self.writer.begin_past_the_gate(None).await?;
        query(
            "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(MOVED_TO)
        .bind(to)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await
    }

    async fn copy(
        &self,
        target: &State,
        accounts_file: &Path,
        entry: Option<(i64, Instant)>,
    ) -> Result<Vec<MovedTable>, StateError> {
        let is_left = match target.moved_to().await? {
            None => false,
            Some(to) if to == *self.setting => true,
            Some(to) => {
                return Err(StateError::NotMoved(format!(
                    "{} holds a state that was moved to {to}, which is not where it is now. If nobody needs it, remove that \
                     database",
                    target.setting
                )));
            }
        };
        let mut source = self.readers.begin().await?;
        let accounts = Accounts::read(self, &mut source, accounts_file).await?;
        let mut writer = target.writer.begin().await?;
        for table in TABLES.iter().rev() {
            if is_left {
                query(AssertSqlSafe(format!("DELETE FROM {}", table.name))).execute(&mut writer).await?;
            } else if rows_of(table, &mut writer).await? > 0 {
                return Err(StateError::NotMoved(format!(
                    "{} is not empty: its table {} has rows. Name an empty database; if that is a copy of an earlier try, remove \
                     it first",
                    target.setting, table.name
                )));
            }
        }
        let mut moved = Vec::new();
        for table in &TABLES {
            let mut pages = Pages::of(table, &self.readers);
            loop {
                let page = pages.next(&mut source).await?;
                if page.is_empty() {
                    break;
                }
                insert(table, page, &mut writer).await?;
            }
            let rows = rows_of(table, &mut source).await?;
            let arrived = rows_of(table, &mut writer).await?;
            if rows != arrived {
                return Err(StateError::NotMoved(format!(
                    "of the {rows} rows of {} {arrived} have arrived",
                    table.name
                )));
            }
            if let Some(column) = table.numbered {
                let last = last_number(table, column, &self.readers, &mut source).await?;
                count_on_from(table, column, last, &target.writer, &mut writer).await?;
            }
            moved.push(MovedTable { name: table.name, rows });
        }
        if let Some((number, began)) = entry {
            // Nobody else can say so: here nothing is written after it.
            let took = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
            query("UPDATE audit SET outcome = 'done', duration = $1 WHERE id = $2")
                .bind(took)
                .bind(number)
                .execute(&mut writer)
                .await?;
        }
        accounts.keep(target, &mut writer, accounts_file).await?;
        moved.push(MovedTable { name: "accounts", rows: accounts.number() });
        // Whether the last word arrived is not known if its answer is lost.
        writer.commit().await.map_err(|error| {
            StateError::NotMoved(format!(
                "{} did not confirm the copy: {}. All of it may be there, and is not used: remove it, then {AGAIN}",
                target.setting,
                cause_of(error)
            ))
        })?;
        Ok(moved)
    }
}

/// Why the state was not moved, and what is to be done: errors of a database say what they mean for a daemon that starts on it.
fn not_moved(error: StateError) -> StateError {
    let name_another = "Name an empty database of its own";
    StateError::NotMoved(match error {
        StateError::NotMoved(_) | StateError::Moved { .. } => return error,
        StateError::Open { path, reason } => {
            format!("{} cannot be opened: {reason}. Mend that, then {AGAIN}", path.display())
        }
        StateError::OpenServer { address, reason } => format!(
            "{address} cannot be opened: {reason}. Have that PostgreSQL run, or mend address, user or password, then {AGAIN}"
        ),
        StateError::Newer { path, found, .. } => {
            format!("{} is of a newer farside (schema {found}). {name_another}", path.display())
        }
        StateError::NewerServer { address, found, .. } => {
            format!("{address} is of a newer farside (schema {found}). {name_another}")
        }
        StateError::InUse { address, of } => {
            format!("another farsided runs on {address}{of}. {name_another}")
        }
        StateError::NotOfSite { address, leader } => {
            format!("{address} has the state of another site ({leader} leads it). {name_another}")
        }
        StateError::Emptied { address } => {
            format!("{address} is empty, and belongs to a site of several daemons. {name_another}")
        }
        other => format!("{}. Once the database answers: {AGAIN}", cause_of(other)),
    })
}

/// What failed, without what follows of it elsewhere.
fn cause_of(error: StateError) -> String {
    match error {
        StateError::Away { address, reason } => format!("{address} does not answer any more: {reason}"),
        StateError::Server { address, reason } => format!("{address} failed: {reason}"),
        other => other.to_string(),
    }
}

/// `"a", "b"`: one of them is a word of SQL.
fn columns_of(table: &Table) -> String {
    table.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn is_wanted(table: &Table) -> &'static str {
    if table.name == "settings" { OF_THE_PLACE } else { "TRUE" }
}

async fn rows_of(table: &Table, transaction: &mut Transaction) -> Result<i64, StateError> {
    let count = format!("SELECT count(*) FROM {} WHERE {}", table.name, is_wanted(table));
    query_scalar(AssertSqlSafe(count)).fetch_one(transaction).await
}

/// The rows of a table, some at a time.
struct Pages<'a> {
    table: &'a Table,
    is_postgres: bool,
    /// SQLite: the last row that was read. PostgreSQL: whether there is a cursor.
    after: Option<i64>,
}

impl<'a> Pages<'a> {
    fn of(table: &'a Table, connections: &Connections) -> Pages<'a> {
        Pages { table, is_postgres: connections.is_postgres(), after: None }
    }

    async fn next(&mut self, source: &mut Transaction) -> Result<Vec<Vec<Value>>, StateError> {
        let (name, columns) = (self.table.name, columns_of(self.table));
        let wanted = is_wanted(self.table);
        if self.is_postgres {
            if self.after.replace(0).is_none() {
                let cursor = format!(
                    "DECLARE rows_of_{name} NO SCROLL CURSOR FOR SELECT {columns} FROM {name} WHERE {wanted}"
                );
                query(AssertSqlSafe(cursor)).execute(&mut *source).await?;
            }
            let fetch = query(AssertSqlSafe(format!("FETCH {PORTION} FROM rows_of_{name}")));
            return fetch.rows(source).await?.iter().map(|row| values(self.table, row, 0)).collect();
        }
        let page = query(AssertSqlSafe(format!(
            "SELECT rowid, {columns} FROM {name} WHERE rowid > $1 AND {wanted} ORDER BY rowid LIMIT {PORTION}"
        )));
        let rows = page.bind(self.after.unwrap_or(i64::MIN)).rows(source).await?;
        if let Some(last) = rows.last() {
            self.after = Some(last.at(0)?);
        }
        rows.iter().map(|row| values(self.table, row, 1)).collect()
    }
}

fn values(table: &Table, row: &Row, first: usize) -> Result<Vec<Value>, StateError> {
    let value = |(place, (_, kind)): (usize, &(&str, Kind))| {
        let place = place + first;
        let value = match kind {
            Kind::Integer => row.at::<Option<i64>>(place)?.map(Value::Integer),
            Kind::Bool => row.at::<Option<bool>>(place)?.map(Value::Bool),
            Kind::Text => row.at::<Option<String>>(place)?.map(Value::Text),
            Kind::Bytes => row.at::<Option<Vec<u8>>>(place)?.map(Value::Bytes),
        };
        Ok(value.unwrap_or(Value::Null(*kind)))
    };
    table.columns.iter().enumerate().map(value).collect()
}

async fn insert(table: &Table, rows: Vec<Vec<Value>>, writer: &mut Transaction) -> Result<(), StateError> {
    let width = table.columns.len();
    for portion in rows.chunks(VALUES_MAX / width) {
        let mut number = 0;
        let mut places = || {
            number += 1;
            format!("${number}")
        };
        let mut row = || {
            let places: Vec<String> = (0..width).map(|_| places()).collect();
            format!("({})", places.join(", "))
        };
        let all: Vec<String> = portion.iter().map(|_| row()).collect();
        let statement: Statement = query(AssertSqlSafe(format!(
            "INSERT INTO {} ({}) VALUES {}",
            table.name,
            columns_of(table),
            all.join(", ")
        )));
        let statement = portion.iter().flatten().cloned().fold(statement, Statement::bind_value);
        statement.execute(&mut *writer).await?;
    }
    Ok(())
}

/// The last number that a table gave, though its row may be gone.
async fn last_number(
    table: &Table,
    column: &str,
    connections: &Connections,
    source: &mut Transaction,
) -> Result<i64, StateError> {
    let name = table.name;
    let last: Option<i64> = if connections.is_postgres() {
        let last = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {name}_{column}_seq");
        query_scalar(AssertSqlSafe(last)).fetch_optional(source).await?
    } else {
        query_scalar("SELECT seq FROM sqlite_sequence WHERE name = $1")
            .bind(name)
            .fetch_optional(source)
            .await?
    };
    Ok(last.unwrap_or(0))
}

async fn count_on_from(
    table: &Table,
    column: &str,
    last: i64,
    connections: &Connections,
    writer: &mut Transaction,
) -> Result<(), StateError> {
    let name = table.name;
    if connections.is_postgres() {
        // A sequence starts at 1, and is told what it gave last, or that it gave nothing yet.
        let set = format!("SELECT setval('{name}_{column}_seq', greatest($1, 1), $1 > 0)");
        query(AssertSqlSafe(set)).bind(last).rows(writer).await?;
        return Ok(());
    }
    query("DELETE FROM sqlite_sequence WHERE name = $1").bind(name).execute(&mut *writer).await?;
    query("INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)")
        .bind(name)
        .bind(last)
        .execute(writer)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests;
