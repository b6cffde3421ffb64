//! A statement and its values, for whichever database there is.
//!
//! One set of statements serves both: placeholders are `$1`, `$2`, what replaces a row says `ON CONFLICT`, and what an insert has
//! made is asked for with `RETURNING`. Not sqlx's `Any`: its options know no pragma and no password that is not in a URL, and its
//! rows are copied a second time.

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{Decode, Row as _, SqlSafeStr, SqlStr, Type};

use super::error::StateError;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Integer,
    Bool,
    Text,
    Bytes,
}

/// A value for a placeholder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// PostgreSQL wants to know of what kind nothing is.
    Null(Kind),
    Integer(i64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
}

/// What can be bound.
pub(super) trait Bound {
    const KIND: Kind;
    fn value(self) -> Value;
}

macro_rules! bound {
    ($($type:ty => $kind:ident, $made:expr;)*) => {$(
        impl Bound for $type {
            const KIND: Kind = Kind::$kind;
            fn value(self) -> Value {
                #[allow(clippy::redundant_closure_call)]
                Value::$kind($made(self))
            }
        }
    )*};
}
bound! {
    i64 => Integer, |number| number;
    &i64 => Integer, |number: &i64| *number;
    u32 => Integer, i64::from;
    u8 => Integer, i64::from;
    bool => Bool, |flag| flag;
    &str => Text, str::to_owned;
    String => Text, |text| text;
    &String => Text, String::clone;
    &[u8] => Bytes, <[u8]>::to_vec;
    Vec<u8> => Bytes, |bytes| bytes;
    &Vec<u8> => Bytes, Vec::clone;
}

impl<T: Bound> Bound for Option<T> {
    const KIND: Kind = T::KIND;
    fn value(self) -> Value {
        self.map_or(Value::Null(T::KIND), T::value)
    }
}

impl<T: Bound + Clone> Bound for &Option<T> {
    const KIND: Kind = T::KIND;
    fn value(self) -> Value {
        self.clone().value()
    }
}

/// A row of either database.
#[derive(Debug)]
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// What a column can be read as.
pub(super) trait Column:
    for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}
impl<T> Column for T where
    T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

impl Row {
    /// The column of this name.
    pub(super) fn named<T: Column>(&self, name: &str) -> Result<T, sqlx::Error> {
        match self {
            Row::Sqlite(row) => row.try_get(name),
            Row::Postgres(row) => row.try_get(name),
        }
    }

    /// The column at this place.
    pub(super) fn at<T: Column>(&self, place: usize) -> Result<T, sqlx::Error> {
        match self {
            Row::Sqlite(row) => row.try_get(place),
            Row::Postgres(row) => row.try_get(place),
        }
    }
}

/// What is read from a whole row.
pub(super) trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self, sqlx::Error>;
}

macro_rules! tuples {
    ($(($($type:ident $place:tt),*))*) => {$(
        impl<$($type: Column),*> FromRow for ($($type,)*) {
            fn from_row(row: &Row) -> Result<Self, sqlx::Error> {
                Ok(($(row.at::<$type>($place)?,)*))
            }
        }
    )*};
}
tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

/// What runs a statement: connections, or a transaction.
pub(super) trait Executor: Send {
    /// Runs it; how many rows it has changed.
    fn execute(self, statement: Statement) -> impl Future<Output = Result<u64, StateError>> + Send;

    /// Runs it to its end; its rows.
    fn rows(self, statement: Statement) -> impl Future<Output = Result<Vec<Row>, StateError>> + Send;
}

/// A statement with the values of its placeholders.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    sql: SqlStr,
    values: Vec<Value>,
}

/// A statement.
pub(super) fn query(sql: impl SqlSafeStr) -> Statement {
    Statement { sql: sql.into_sql_str(), values: Vec::new() }
}

/// One whose rows are read as a whole.
pub(super) fn query_as(sql: impl SqlSafeStr) -> Rows {
    Rows(query(sql))
}

/// One of whose rows the first column is read.
pub(super) fn query_scalar(sql: impl SqlSafeStr) -> Scalars {
    Scalars(query(sql))
}

impl Statement {
    /// The value of the next placeholder.
    pub(super) fn bind(mut self, value: impl Bound) -> Statement {
        self.values.push(value.value());
        self
    }

    /// The same for a value that is one already.
    pub(super) fn bind_value(mut self, value: Value) -> Statement {
        self.values.push(value);
        self
    }

    /// Runs it; how many rows it has changed.
    pub(super) async fn execute(self, on: impl Executor) -> Result<u64, StateError> {
        on.execute(self).await
    }

    /// Runs it; its rows.
    pub(super) async fn rows(self, on: impl Executor) -> Result<Vec<Row>, StateError> {
        on.rows(self).await
    }

    pub(super) fn for_sqlite(self) -> Query<'static, Sqlite, SqliteArguments> {
        let mut query = sqlx::query(self.sql);
        for value in self.values {
            query = match value {
                Value::Null(_) => query.bind(None::<i64>),
                Value::Integer(number) => query.bind(number),
                Value::Bool(flag) => query.bind(flag),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }

    pub(super) fn for_postgres(self) -> Query<'static, Postgres, PgArguments> {
        let mut query = sqlx::query(self.sql);
        for value in self.values {
            query = match value {
                Value::Null(Kind::Integer) => query.bind(None::<i64>),
                Value::Null(Kind::Bool) => query.bind(None::<bool>),
                Value::Null(Kind::Text) => query.bind(None::<String>),
                Value::Null(Kind::Bytes) => query.bind(None::<Vec<u8>>),
                Value::Integer(number) => query.bind(number),
                Value::Bool(flag) => query.bind(flag),
                // A text of PostgreSQL holds every character but this one, and what a peer or a client said may have it.
                Value::Text(text) if text.contains('\0') => query.bind(text.replace('\0', "\u{fffd}")),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }
}

/// See [`query_as`].
#[derive(Debug)]
pub(super) struct Rows(Statement);

impl Rows {
    pub(super) fn bind(self, value: impl Bound) -> Rows {
        Rows(self.0.bind(value))
    }

    pub(super) async fn fetch_all<T: FromRow>(self, on: impl Executor) -> Result<Vec<T>, StateError> {
        let rows = self.0.rows(on).await?;
        Ok(rows.iter().map(T::from_row).collect::<Result<_, _>>()?)
    }

    pub(super) async fn fetch_optional<T: FromRow>(self, on: impl Executor) -> Result<Option<T>, StateError> {
        Ok(self.0.rows(on).await?.first().map(T::from_row).transpose()?)
    }

    pub(super) async fn fetch_one<T: FromRow>(self, on: impl Executor) -> Result<T, StateError> {
        self.fetch_optional(on).await?.ok_or(StateError::Statement(sqlx::Error::RowNotFound))
    }
}

/// See [`query_scalar`].
#[derive(Debug)]
pub(super) struct Scalars(Statement);

impl Scalars {
    pub(super) fn bind(self, value: impl Bound) -> Scalars {
        Scalars(self.0.bind(value))
    }

    pub(super) async fn fetch_all<T: Column>(self, on: impl Executor) -> Result<Vec<T>, StateError> {
        let rows = self.0.rows(on).await?;
        Ok(rows.iter().map(|row| row.at(0)).collect::<Result<_, _>>()?)
    }

    pub(super) async fn fetch_optional<T: Column>(self, on: impl Executor) -> Result<Option<T>, StateError> {
        Ok(self.0.rows(on).await?.first().map(|row| row.at(0)).transpose()?)
    }

    pub(super) async fn fetch_one<T: Column>(self, on: impl Executor) -> Result<T, StateError> {
        self.fetch_optional(on).await?.ok_or(StateError::Statement(sqlx::Error::RowNotFound))
    }
}
