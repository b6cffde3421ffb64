//! The tables in PostgreSQL, and what has made them.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;

/// What has made the tables. The first is all that SQLite's migrations made up to this number; from then on both go together.
const MIGRATIONS: [(i64, &str, &str); 4] = [
    (23, "first", include_str!("../migrations/postgres/0023_first.sql")),
    (24, "daemons", include_str!("../migrations/postgres/0024_daemons.sql")),
    (25, "ended there", include_str!("../migrations/postgres/0025_ended_there.sql")),
    (26, "past", include_str!("../migrations/postgres/0026_past.sql")),
];

/// The newest schema this version knows: that of the file, too.
pub(super) const SCHEMA: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// The schema of a database; none if it is new.
pub(super) async fn schema_of(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let made: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !made {
        return Ok(None);
    }
    sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(connection).await
}

/// A table or the like that somebody else has made in this database, with its schema; none if there is none. What belongs to an
/// extension is nobody's data.
pub(super) async fn foreign_table(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname <> 'information_schema' \
         AND n.nspname NOT LIKE 'pg\\_%' AND NOT EXISTS (SELECT 1 FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass \
         AND d.objid = c.oid AND d.deptype = 'e') ORDER BY c.relkind IN ('r', 'p') DESC, 1 LIMIT 1",
    )
    .fetch_optional(connection)
    .await
}

pub(super) fn migrations() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_databases_have_the_same_schema() {
        assert_eq!(super::SCHEMA, crate::state::SCHEMA);
    }
}
