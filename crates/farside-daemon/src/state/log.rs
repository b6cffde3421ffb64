//! The log of mirrors, bounded for each volume.

use farside_engine::VolumeName;
use farside_mirror::{LogEntry, LogEvent};
use farside_platform::Timestamp;
use sqlx::AssertSqlSafe;
use tokio::sync::oneshot;

use super::lines::Waiting;
use super::rows::{from_row, nanoseconds, time, uuid};
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};

/// Lines kept for each volume; the oldest go first. A mirror that is updated every second writes three for each update,
/// so this is some three hours of it, and 3 MB of rows.
const LOG_MAX: i64 = 30_000;
/// Rows deleted in one transaction.
const PORTION: usize = 1000;
/// Counts lines of log and history that could not be written.
pub(crate) const LOST_LINES: &str = "farside_state_lost_lines_total";
/// Lines of one volume, newest first.
const OF_ONE: &str = "SELECT relationship, volume, at, event, detail, kind, transfer FROM log \
     WHERE volume = $1 ORDER BY sequence DESC LIMIT $2";
/// Lines of all.
const OF_ALL: &str =
    "SELECT relationship, volume, at, event, detail, kind, transfer FROM log ORDER BY sequence DESC LIMIT $1";

struct Row {
    relationship: Vec<u8>,
    volume: String,
    at: i64,
    event: String,
    detail: Option<String>,
    kind: Option<String>,
    transfer: Option<Vec<u8>>,
}
from_row!(Row { relationship, volume, at, event, detail, kind, transfer });

impl Row {
    fn entry(self) -> Result<LogEntry, StateError> {
        let unreadable = || StateError::Row("a line of the log cannot be read");
        Ok(LogEntry {
            at: time(self.at),
            relationship: uuid(&self.relationship)?,
            volume: self.volume.parse().map_err(|_| unreadable())?,
            event: LogEvent::parse(&self.event, self.detail.as_deref()).ok_or_else(unreadable)?,
            kind: self.kind.map(|kind| kind.parse().map_err(|()| unreadable())).transpose()?,
            transfer: self.transfer.as_deref().map(uuid).transpose()?,
        })
    }
}

impl State {
    /// Adds a line. Those that come at the same time are written in one transaction.
    pub(crate) async fn append_log(&self, entry: &LogEntry) -> Result<(), StateError> {
        let (written, answer) = oneshot::channel();
        self.lines.waiting.lock().push((entry.clone(), written));
        // A task of its own: who waits may lose patience, and others' lines are among those.
        let state = self.clone();
        drop(tokio::spawn(async move { state.write_waiting().await }));
        let failed = |error| StateError::Statement(sqlx::Error::Protocol(error));
        answer.await.unwrap_or_else(|_| Err(String::from("the daemon is ending"))).map_err(failed)
    }

    async fn write_waiting(&self) {
        let _turn = self.lines.turn.lock().await;
        let batch = std::mem::take(&mut *self.lines.waiting.lock());
        if batch.is_empty() {
            return;
        }
        let outcome = self.write_lines(&batch).await.map_err(|error| error.to_string());
        if outcome.is_err() {
            metrics::counter!(LOST_LINES).increment(batch.len() as u64);
        }
        for (_, written) in batch {
            let _ = written.send(outcome.clone());
        }
    }

    async fn write_lines(&self, batch: &[Waiting]) -> Result<(), StateError> {
        let mut transaction = self.line_writer.begin().await?;
        let mut due = Vec::new();
        for (entry, _) in batch {
            let volume = entry.volume.to_string();
            query(
                "INSERT INTO log (relationship, volume, at, event, detail, kind, transfer) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            )
            .bind(entry.relationship.as_bytes().as_slice())
            .bind(&volume)
            .bind(nanoseconds(entry.at))
            .bind(entry.event.name())
            .bind(entry.event.detail())
            .bind(entry.kind.map(|kind| kind.to_string()))
            .bind(entry.transfer.map(|transfer| transfer.as_bytes().to_vec()))
            .execute(&mut transaction)
            .await?;
            if self.lines.of_volumes.is_pruned_at(&volume) {
                due.push(volume);
            }
        }
        for volume in due {
            query(
                "DELETE FROM log WHERE volume = $1 AND sequence <= \
                 (SELECT sequence FROM log WHERE volume = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2)",
            )
            .bind(&volume)
            .bind(LOG_MAX)
            .execute(&mut transaction)
            .await?;
        }
        transaction.commit().await
    }

    /// The newest `limit` lines about one replica, or about all, newest first.
    pub(crate) async fn log(
        &self,
        volume: Option<&VolumeName>,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StateError> {
        // Two statements: one with a choice in it is served by no index.
        let query = match volume {
            Some(volume) => query_as(OF_ONE).bind(volume.to_string()),
            None => query_as(OF_ALL),
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows: Vec<Row> = query.bind(limit).fetch_all(&self.readers).await?;
        rows.into_iter().map(Row::entry).collect()
    }

    /// Deletes lines and history of relationships that are no more, once they are older than `before`; how many rows. In
    /// portions: what must be written meanwhile waits for one of them at most.
    pub(crate) async fn prune_ended(&self, before: Timestamp) -> Result<u64, StateError> {
        let mut deleted = 0;
        for (table, time) in [("log", "at"), ("transfers", "ended_at")] {
            loop {
                let found = AssertSqlSafe(format!(
                    "SELECT sequence FROM {table} WHERE {time} < $1 \
                     AND relationship NOT IN (SELECT id FROM relationships UNION SELECT id FROM source_relationships) \
                     ORDER BY sequence LIMIT {PORTION}"
                ));
                let sequences: Vec<i64> =
                    query_scalar(found).bind(nanoseconds(before)).fetch_all(&self.readers).await?;
                if sequences.is_empty() {
                    break;
                }
                let mut transaction = self.line_writer.begin().await?;
                for sequence in &sequences {
                    let delete = AssertSqlSafe(format!("DELETE FROM {table} WHERE sequence = $1"));
                    query(delete).bind(sequence).execute(&mut transaction).await?;
                }
                transaction.commit().await?;
                deleted += sequences.len() as u64;
            }
        }
        Ok(deleted)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use farside_mirror::RequestedBy;
    use farside_transfer::TransferKind;
    use uuid::Uuid;

    use super::*;
    use crate::state::test_databases::databases;

    #[tokio::test]
    async fn lines_come_back_as_they_were_newest_first() {
        for database in databases().await {
            let state = database.open().await;
            let line = |number: u64, event, volume: &str| LogEntry {
                at: Timestamp(number),
                relationship: Uuid::from_u128(7),
                volume: volume.parse().unwrap(),
                event,
                kind: Some(TransferKind::Resync),
                transfer: (number > 1).then(|| Uuid::from_u128(9)),
            };
            let lines = [
                line(1, LogEvent::Request { by: RequestedBy::Person }, "q/r"),
                line(2, LogEvent::End { bytes: 5 }, "q/r"),
                line(3, LogEvent::Abort { reason: "no".into() }, "q/other"),
            ];
            for entry in &lines {
                state.append_log(entry).await.unwrap();
            }
            let of = lines[0].volume.clone();
            assert_eq!(state.log(Some(&of), 10).await.unwrap(), [lines[1].clone(), lines[0].clone()]);
            assert_eq!(state.log(None, 1).await.unwrap(), [lines[2].clone()]);
        }
    }

    pub(crate) fn line(number: u64, volume: &str) -> LogEntry {
        LogEntry {
            at: Timestamp(number),
            relationship: Uuid::from_u128(7),
            volume: volume.parse().unwrap(),
            event: LogEvent::End { bytes: 5 },
            kind: Some(TransferKind::Update),
            transfer: None,
        }
    }

    #[tokio::test]
    async fn lines_that_come_together_are_one_transaction_and_the_oldest_go_now_and_then() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        // One takes its turn; the others wait for it, and are written together.
        let turn = state.lines.turn.lock().await;
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..100 {
            let state = state.clone();
            waiting.spawn(async move { state.append_log(&line(number, "q/r")).await });
        }
        while state.lines.waiting.lock().len() < 100 {
            tokio::task::yield_now().await;
        }
        let mut witness = state.writer.sqlite_pool().unwrap().acquire().await.unwrap();
        let mut commits = async || -> i64 {
            sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut *witness).await.unwrap()
        };
        let before = commits().await;
        drop(turn);
        while let Some(written) = waiting.join_next().await {
            written.unwrap().unwrap();
        }
        assert_eq!(commits().await, before + 1, "one commit");
        assert_eq!(state.log(None, 1000).await.unwrap().len(), 100);
        let other = String::from("q/other");
        let looks = (0..1000).filter(|_| state.lines.of_volumes.is_pruned_at(&other)).count();
        assert_eq!(looks, 4);
    }

    #[tokio::test]
    async fn what_is_over_goes_after_a_while_and_what_lives_stays() {
        for database in databases().await {
            let state = database.open().await;
            let alive = Uuid::from_u128(8);
            query(
                "INSERT INTO source_relationships (id, peer, source, destination) VALUES ($1, $2, 'p/a', 'q/a')",
            )
            .bind(alive.as_bytes().as_slice())
            .bind([0; 32].as_slice())
            .execute(&state.writer)
            .await
            .unwrap();
            for number in 0..2500 {
                state.lines.waiting.lock().push((line(number, "q/r"), oneshot::channel().0));
            }
            state.append_log(&LogEntry { relationship: alive, ..line(1, "q/a") }).await.unwrap();
            assert_eq!(state.prune_ended(Timestamp(2200)).await.unwrap(), 2200);
            let left = state.log(None, 10_000).await.unwrap();
            assert_eq!(left.len(), 301);
            assert!(left.iter().all(|entry| entry.relationship == alive || entry.at >= Timestamp(2200)));
            assert_eq!(state.prune_ended(Timestamp(2200)).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn one_volume_is_found_by_the_index() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let plan: Vec<(i64, i64, i64, String)> =
            query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {OF_ONE}")))
                .bind("q/r")
                .bind(9_i64)
                .fetch_all(&state.readers)
                .await
                .unwrap();
        assert!(plan.iter().all(|step| step.3.contains("log_by_volume")), "{plan:?}");
    }
}
