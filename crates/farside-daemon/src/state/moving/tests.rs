use std::collections::{BTreeMap, BTreeSet};

use super::*;
use std::path::PathBuf;

use crate::state::statement::query_as;
use crate::state::test_databases::TestDatabase;
use farside_platform::private_file;

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

/// The file of accounts beside this database.
fn nobody(database: &TestDatabase) -> PathBuf {
    let DatabaseAddress::File(path) = database.address() else { panic!("a file") };
    path.with_file_name("accounts.json")
}

/// What mirrors and their pools ask for is refused like the rest.
#[test]
fn a_mirror_that_cannot_be_kept_after_the_move_is_refused() {
    use crate::failure::Failure;
    use farside_mirror::MirrorError;
    let moved = StateError::Moved { to: "postgres://db/far".into() };
    let body = MirrorError::from(moved).into_error_body();
    assert_eq!(body.code, farside_api::ErrorCode::Refused);
    assert!(body.message.contains("was moved to postgres://db/far") && body.message.contains("restart it"));
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
    let accounts = nobody(&file);
    let first = file.open().await;
    fill(&first).await;
    let before = all_of(&first).await;
    assert!(before.values().all(|rows| rows.len() == ROWS as usize), "{before:?}");

    let moved = first.move_to(server.address(), &accounts, None).await.unwrap();
    assert_eq!(moved.len(), TABLES.len() + 1);
    let (rows, accounts_moved) = moved.split_at(TABLES.len());
    assert!(rows.iter().all(|table| table.rows == ROWS), "{moved:?}");
    assert_eq!(accounts_moved, [MovedTable { name: "accounts", rows: 0 }]);
    let error = first.set_host_precedence("fair").await.unwrap_err();
    assert!(matches!(error, StateError::Moved { .. }), "{error}");
    assert!(matches!(
        first.move_to(server.address(), &accounts, None).await.unwrap_err(),
        StateError::Moved { .. }
    ));
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
    second.move_to(file.address(), &accounts, None).await.unwrap();
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
    let error = source.move_to(server.address(), &nobody(&file), None).await.unwrap_err().to_string();
    assert!(error.contains("another farsided"), "{error}");
    there.close().await;
    let error = source.move_to(server.address(), &nobody(&file), None).await.unwrap_err().to_string();
    assert!(error.contains("not empty") && error.contains("settings"), "{error}");
    let error = source.move_to(file.address(), &nobody(&file), None).await.unwrap_err().to_string();
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
    source.move_to(server.address(), &nobody(&file), None).await.unwrap();
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
        StateError::NewerServer { address: address(), found: 99, known: 25 },
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

/// An account that was removed, or a password that was changed, must not come back with an old file.
#[tokio::test]
async fn accounts_go_along_both_ways_and_no_old_ones_stay() {
    let Some(server) = TestDatabase::postgres().await else { return };
    let Some(other) = TestDatabase::postgres().await else { return };
    let file = TestDatabase::file();
    let accounts = nobody(&file);
    let first = file.open().await;
    private_file::store(&accounts, br#"{"ann":{},"bob":{}}"#).unwrap();
    let moved = first.move_to(server.address(), &accounts, None).await.unwrap();
    assert_eq!(moved.last(), Some(&MovedTable { name: "accounts", rows: 2 }));
    assert!(!accounts.exists(), "no old password stays");
    assert!(matches!(first.check_not_moved().await.unwrap_err(), StateError::Moved { .. }));
    // Whoever would go back at once is told where the state is.
    let error = first.move_to(file.address(), &accounts, None).await.unwrap_err();
    assert!(matches!(error, StateError::Moved { .. }), "{error}");
    first.close().await;

    let second = server.open().await;
    assert_eq!(second.accounts().await.unwrap().unwrap(), r#"{"ann":{},"bob":{}}"#);
    second.set_accounts(r#"{"ann":{"new":1}}"#).await.unwrap();
    let moved = second.move_to(other.address(), &accounts, None).await.unwrap();
    assert_eq!(moved.last(), Some(&MovedTable { name: "accounts", rows: 1 }));
    second.close().await;

    // A database takes back what it was left for, so it goes back the way it came.
    let third = other.open().await;
    third.move_to(server.address(), &accounts, None).await.unwrap();
    third.close().await;
    let third = server.open().await;
    // One that somebody left there.
    std::fs::write(&accounts, r#"{"bob":{}}"#).unwrap();
    third.move_to(file.address(), &accounts, None).await.unwrap();
    third.close().await;
    let kept = private_file::read(&accounts, 1000).unwrap().expect("only its owner may read it");
    assert_eq!(std::str::from_utf8(&kept).unwrap(), r#"{"ann":{"new":1}}"#);

    // Those that are in the database to which it goes back are old ones.
    let fourth = file.open().await;
    private_file::store(&accounts, b"{").unwrap();
    let error = fourth.move_to(server.address(), &accounts, None).await.unwrap_err().to_string();
    assert!(error.contains("accounts.json are damaged") && error.contains("move-state again"), "{error}");
    std::fs::remove_file(&accounts).unwrap();
    fourth.move_to(server.address(), &accounts, None).await.unwrap();
    fourth.close().await;
    assert_eq!(server.open().await.accounts().await.unwrap().unwrap(), "{}");
}

#[tokio::test]
async fn the_entry_of_a_move_that_is_over_says_so() {
    let Some(server) = TestDatabase::postgres().await else { return };
    let file = TestDatabase::file();
    let first = file.open().await;
    let number = first.audit_begins(&crate::state::AuditRow::default()).await.unwrap();
    first.move_to(server.address(), &nobody(&file), Some(number)).await.unwrap();
    let wanted = crate::state::AuditWanted { limit: 1, ..Default::default() };
    let entry = server.open().await.audit(&wanted).await.unwrap().remove(0);
    assert_eq!((entry.id, entry.outcome.as_deref()), (number, Some("done")));
    assert!(entry.duration.is_some());
}

#[tokio::test]
async fn nothing_is_made_where_somebody_else_has_tables() {
    let Some(server) = TestDatabase::postgres().await else { return };
    let mut connection = server.connection().await;
    sqlx::query("CREATE TABLE invoices (id bigint)").execute(&mut connection).await.unwrap();
    let file = TestDatabase::file();
    let source = file.open().await;
    let error = source.move_to(server.address(), &nobody(&file), None).await.unwrap_err().to_string();
    assert!(error.contains("is not empty") && error.contains("public.invoices"), "{error}");
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(tables, 1);
    source.set_host_precedence("off").await.unwrap();
}
