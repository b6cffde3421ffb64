use std::time::Duration;

use sqlx::Connection;
use tokio::time::Instant;

use super::*;
use crate::state::test_databases::TestDatabase;
use crate::state::{PoolRow, State};

fn row(name: &str) -> PoolRow {
    PoolRow { name: name.into(), path: format!("/srv/{name}") }
}

async fn remembered(state: &State, name: &str) -> Result<(), StateError> {
    state.remember_pool(&row(name), farside_platform::Timestamp(1)).await
}

/// Ends all sessions of a database, as a restart of the server does.
async fn cut(database: &TestDatabase) {
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
        database.name()
    );
    database.execute_beside(cut).await;
}

async fn allow_connections(database: &TestDatabase, allowed: bool) {
    database.execute_beside(format!("ALTER DATABASE {} ALLOW_CONNECTIONS {allowed}", database.name())).await;
}

#[tokio::test]
async fn one_daemon_has_it() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let first = database.open().await;
    let refused = State::open_at(database.address()).await.unwrap_err();
    assert!(matches!(refused, StateError::InUse { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("another farsided") && said.contains("since 2"), "{said}");
    remembered(&first, "p").await.unwrap();
    first.close().await;
    let second = database.open().await;
    assert!(!second.was_new());
    assert_eq!(second.pools().await.unwrap(), [row("p")]);
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_anew() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let state = database.open().await;
    for name in ["p", "q", "r"] {
        assert!(state.pools().await.is_ok());
        cut(&database).await;
        remembered(&state, name).await.unwrap();
        cut(&database).await;
        state.probe().await.unwrap();
    }
    assert_eq!(state.pools().await.unwrap().len(), 3);
}

#[tokio::test]
async fn while_it_is_away_everything_fails_at_once_and_says_so() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let state = database.open().await;
    remembered(&state, "p").await.unwrap();
    allow_connections(&database, false).await;
    cut(&database).await;
    let began = Instant::now();
    for _ in 0..20 {
        let (read, written) = (state.pools().await.unwrap_err(), remembered(&state, "q").await.unwrap_err());
        for error in [read, written, state.probe().await.unwrap_err()] {
            assert!(matches!(error, StateError::Away { .. }), "{error:?}");
            assert!(error.to_string().contains("Volumes are served as before"), "{error}");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let started = State::open_at(database.address()).await.unwrap_err();
    assert!(matches!(started, StateError::OpenServer { .. }), "{started}");
    allow_connections(&database, true).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(state.pools().await.unwrap(), [row("p")]);
    remembered(&state, "q").await.unwrap();
}

#[tokio::test]
async fn whoever_was_replaced_while_its_connection_was_lost_writes_nothing() {
    let Some(database) = TestDatabase::postgres().await else { return };
    let first = database.open().await;
    remembered(&first, "p").await.unwrap();
    // In a statement's time another one comes and goes.
    cut(&database).await;
    let second = database.open().await;
    remembered(&second, "q").await.unwrap();
    let error = remembered(&first, "r").await.unwrap_err();
    assert!(matches!(error, StateError::TakenOver { .. }), "{error}");
    second.close().await;
    let error = remembered(&first, "r").await.unwrap_err();
    assert!(matches!(error, StateError::TakenOver { .. }), "{error}");
    assert_eq!(database.open().await.pools().await.unwrap().len(), 2);
}

#[tokio::test]
async fn one_of_a_newer_version_is_refused_and_left_alone() {
    let Some(database) = TestDatabase::postgres().await else { return };
    database.open().await.close().await;
    let mut beside = database.connection().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (99, 'tomorrow', true, ''::bytea, 1)";
    sqlx::raw_sql(newer).execute(&mut beside).await.unwrap();
    beside.close().await.unwrap();
    let error = State::open_at(database.address()).await.unwrap_err();
    assert!(matches!(error, StateError::NewerServer { found: 99, known: SCHEMA, .. }), "{error}");
}

#[tokio::test]
async fn what_begins_and_is_dropped_changes_nothing_and_a_statement_that_fails_fails_all() {
    use crate::state::statement::query;
    let Some(database) = TestDatabase::postgres().await else { return };
    let state = database.open().await;
    let insert = || query("INSERT INTO settings (name, value) VALUES ('x', 'y')");
    let mut transaction = state.writer.begin().await.unwrap();
    insert().execute(&mut transaction).await.unwrap();
    drop(transaction);
    let mut transaction = state.writer.begin().await.unwrap();
    insert().execute(&mut transaction).await.unwrap();
    insert().execute(&mut transaction).await.unwrap_err();
    transaction.commit().await.unwrap_err();
    let mut transaction = state.writer.begin().await.unwrap();
    insert().execute(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    // Who only reads cannot write.
    insert().execute(&state.readers).await.unwrap_err();
    // What is no text there is one all the same.
    state.set_host_precedence("a\0b").await.unwrap();
    assert_eq!(state.host_precedence().await.unwrap().as_deref(), Some("a\u{fffd}b"));
}
