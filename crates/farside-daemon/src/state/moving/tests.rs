use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::state::statement::query_as;
use crate::state::test_databases::TestDatabase;

/// Rows of each table.
const ROWS: i64 = 3;

/// Something for a column; of the same row the same for whoever refers to it.
fn sample(table: &str, (column, kind): (&str, Kind), row: i64) -> Value {
    let text = |text: &str| Value::Text(text.to_owned());
    match (table, column) {
        ("peers", "address") | ("source_relationships", "base") if row == 2 => return Value::Null(kind),
        ("peers", "paths_mode") => return text("failover"),
        ("relationships", "swap") => return text("prepared"),
        ("relationships", "swap_ended") => return text("given-up"),
        _ => {}
    }
    match kind {
        Kind::Integer => Value::Integer(row),
        Kind::Bool => Value::Bool(row % 2 == 0),
        Kind::Text => Value::Text(format!("{column} {row} ä")),
        Kind::Bytes => {
            let is_key = matches!(column, "peer" | "old" | "new") || (table, column) == ("peers", "id");
            Value::Bytes(vec![row as u8; if is_key { 32 } else { 16 }])
        }
    }
}

async fn fill(state: &State) {
    let mut transaction = state.writer.begin().await.unwrap();
    for table in &TABLES {
        let row = |row| table.columns.iter().map(|column| sample(table.name, *column, row)).collect();
        insert(table, (1..=ROWS).map(row).collect(), &mut transaction).await.unwrap();
        if let Some(column) = table.numbered {
            // The last row is gone; its number is not given again.
            count_on_from(table, column, ROWS + 4, &state.writer, &mut transaction).await.unwrap();
        }
    }
    transaction.commit().await.unwrap();
}

/// All rows of all tables.
async fn all_of(state: &State) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    let mut transaction = state.readers.begin().await.unwrap();
    for table in &TABLES {
        let mut pages = Pages::of(table, &state.readers);
        let mut rows = BTreeSet::new();
        loop {
            let page = pages.next(&mut transaction).await.unwrap();
            if page.is_empty() {
                break;
            }
            rows.extend(page.iter().map(|row| format!("{row:?}")));
        }
        all.insert(table.name, rows);
    }
    all
}

#[tokio::test]
async fn everything_goes_there_and_back() {
    let Some(server) = TestDatabase::postgres().await else { return };
    let file = TestDatabase::file();
    let first = file.open().await;
    fill(&first).await;
    let before = all_of(&first).await;
    assert!(before.values().all(|rows| rows.len() == ROWS as usize), "{before:?}");

    let moved = first.move_to(server.address()).await.unwrap();
    assert_eq!(moved.len(), TABLES.len());
    assert!(moved.iter().all(|table| table.rows == ROWS), "{moved:?}");
    let error = first.set_host_precedence("fair").await.unwrap_err();
    assert!(matches!(error, StateError::Moved { .. }), "{error}");
    assert!(matches!(first.move_to(server.address()).await.unwrap_err(), StateError::Moved { .. }));
    assert_eq!(all_of(&first).await, before, "it can still be read");
    first.close().await;
    let error = State::open_at(file.address()).await.unwrap_err();
    assert!(matches!(error, StateError::MovedAway { .. }), "{error}");

    let second = server.open().await;
    assert_eq!(all_of(&second).await, before);
    // Numbers go on.
    let next = second.audit_begins(&crate::state::AuditRow::default()).await.unwrap();
    assert_eq!(next, ROWS + 5);
    second.set_host_precedence("fair").await.unwrap();
    let changed = all_of(&second).await;
    second.move_to(file.address()).await.unwrap();
    second.close().await;

    let third = file.open().await;
    assert_eq!(all_of(&third).await, changed, "what was left there is replaced");
    assert_eq!(third.audit_begins(&crate::state::AuditRow::default()).await.unwrap(), ROWS + 6);
}

#[tokio::test]
async fn a_database_that_is_not_empty_or_cannot_be_had_changes_nothing() {
    let Some(server) = TestDatabase::postgres().await else { return };
    let (origin, file) = (TestDatabase::file(), TestDatabase::file());
    let source = origin.open().await;
    fill(&source).await;
    let there = server.open().await;
    there.set_host_precedence("fair").await.unwrap();
    let error = source.move_to(server.address()).await.unwrap_err().to_string();
    assert!(error.contains("another farsided"), "{error}");
    there.close().await;
    let error = source.move_to(server.address()).await.unwrap_err().to_string();
    assert!(error.contains("not empty") && error.contains("settings"), "{error}");
    let error = source.move_to(file.address()).await.unwrap_err().to_string();
    assert!(error.contains("already"), "of files there is one: {error}");
    source.set_host_precedence("off").await.unwrap();
}

/// A longer table than one portion, and numbers of which some are gone.
#[tokio::test]
async fn a_long_history_goes_along() {
    let Some(server) = TestDatabase::postgres().await else { return };
    let file = TestDatabase::file();
    let source = file.open().await;
    let mut transaction = source.writer.begin().await.unwrap();
    let log = TABLES.iter().find(|table| table.name == "log").unwrap();
    let row = |row| log.columns.iter().map(|column| sample("log", *column, row)).collect();
    let rows: Vec<Vec<Value>> = (1..=PORTION as i64 * 3).filter(|number| number % 3 != 0).map(row).collect();
    insert(log, rows, &mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    let before = all_of(&source).await;
    source.move_to(server.address()).await.unwrap();
    assert_eq!(all_of(&server.open().await).await, before);
}

/// A table or column that a migration adds is carried, too.
#[tokio::test]
async fn the_tables_are_those_of_both_databases() {
    let known: BTreeSet<(String, String, String)> = TABLES
        .iter()
        .flat_map(|table| {
            table.columns.iter().map(|(column, kind)| {
                let kind = match kind {
                    Kind::Integer => "bigint",
                    Kind::Bool => "boolean",
                    Kind::Text => "text",
                    Kind::Bytes => "bytea",
                };
                (table.name.to_owned(), (*column).to_owned(), kind.to_owned())
            })
        })
        .collect();
    let names = |all: &BTreeSet<(String, String, String)>| -> BTreeSet<(String, String)> {
        all.iter().map(|(table, column, _)| (table.clone(), column.clone())).collect()
    };
    let database = TestDatabase::file();
    let file = database.open().await;
    let found: Vec<(String, String)> = query_as(
        "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table' \
         AND t.name NOT LIKE 'sqlite_%' AND t.name <> '_sqlx_migrations'",
    )
    .fetch_all(&file.readers)
    .await
    .unwrap();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names(&known));
    let Some(server) = TestDatabase::postgres().await else { return };
    let found: Vec<(String, String, String)> = query_as(
        "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
         WHERE table_schema = 'public' AND table_name NOT IN \
         ('owner', 'daemons', 'daemon_invitations', 'cluster_clients', '_sqlx_migrations')",
    )
    .fetch_all(&server.open().await.readers)
    .await
    .unwrap();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), known);
}

#[test]
fn a_state_that_was_not_moved_says_what_is_safe_and_what_to_type() {
    let address = || String::from("postgres://far@db/far");
    let reason = || String::from("connection refused");
    let all = [
        StateError::OpenServer { address: address(), reason: reason() },
        StateError::Away { address: address(), reason: reason() },
        StateError::Server { address: address(), reason: reason() },
        StateError::Open { path: "/d/farside.db".into(), reason: reason() },
        StateError::InUse { address: address(), of: String::new() },
        StateError::NewerServer { address: address(), found: 99, known: 24 },
    ];
    for error in all {
        let said = not_moved(error).to_string();
        assert!(said.starts_with("the state was not moved: "), "{said}");
        assert!(said.contains("Nothing was changed, and the daemon goes on"), "{said}");
        assert!(
            said.contains("farside site move-state again") || said.contains("Name an empty database"),
            "{said}"
        );
        // These are words for a daemon that is to be started.
        for other in ["start again", "farside pool import", "What was asked for is not kept"] {
            assert!(!said.contains(other), "{said}");
        }
    }
}
