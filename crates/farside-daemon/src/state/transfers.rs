//! History: transfers that have ended, bounded for each relationship.

use std::sync::Arc;

use farside_api::TransferRecord;
use farside_transfer::TransferReport;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::ended_transfers::EndedTransfer;
use super::log::LOST_LINES;
use super::rows::nanoseconds;
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};
use crate::convert;

/// Transfers kept for each relationship, and up to 255 more; the oldest go first. A mirror that is updated every second writes as many
/// in under three hours, and some 10 MB of rows.
const HISTORY_MAX: i64 = 10_000;

impl State {
    /// Follows transfers that end: those that come after this call.
    pub(crate) fn transfers_ended(&self) -> broadcast::Receiver<EndedTransfer> {
        self.transfers_ended.subscribe()
    }

    /// Tells who follows them of one that has ended.
    pub(crate) fn tell_of_transfer(&self, relationship: Uuid, report: &TransferReport) {
        // An error means that nobody does.
        let _ = self.transfers_ended.send(EndedTransfer { relationship, report: Arc::new(report.clone()) });
    }

    /// Adds a transfer; now and then the oldest go in the same transaction.
    pub(crate) async fn append_transfer(
        &self,
        relationship: Uuid,
        report: &TransferReport,
    ) -> Result<(), StateError> {
        let record = serde_json::to_string(&convert::record(report))
            .map_err(|_| StateError::Row("a transfer cannot be written as JSON"))?;
        let written = self.write_transfer(relationship, report, record).await;
        if written.is_err() {
            metrics::counter!(LOST_LINES).increment(1);
        }
        written
    }

    async fn write_transfer(
        &self,
        relationship: Uuid,
        report: &TransferReport,
        record: String,
    ) -> Result<(), StateError> {
        let mut transaction = self.line_writer.begin().await?;
        query(
            "INSERT INTO transfers (relationship, volume, ended_at, record) VALUES ($1, \
             coalesce((SELECT pool || '/' || volume FROM relationships WHERE id = $1), ''), $2, $3)",
        )
        .bind(relationship.as_bytes().as_slice())
        .bind(nanoseconds(report.ended_at))
        .bind(record)
        .execute(&mut transaction)
        .await?;
        if self.lines.transfers.is_pruned_at(&relationship) {
            query(
                "DELETE FROM transfers WHERE relationship = $1 AND sequence <= \
                 (SELECT sequence FROM transfers WHERE relationship = $1 ORDER BY sequence DESC LIMIT 1 OFFSET $2)",
            )
            .bind(relationship.as_bytes().as_slice())
            .bind(HISTORY_MAX)
            .execute(&mut transaction)
            .await?;
        }
        transaction.commit().await
    }

    /// The newest `limit` of one relationship, newest first.
    pub(crate) async fn transfers_of(
        &self,
        relationship: Uuid,
        limit: usize,
    ) -> Result<Vec<TransferReport>, StateError> {
        let records: Vec<String> = query_scalar(
            "SELECT record FROM transfers WHERE relationship = $1 ORDER BY sequence DESC LIMIT $2",
        )
        .bind(relationship.as_bytes().as_slice())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&self.readers)
        .await?;
        let reports = records.iter().map(|text| convert::report(&parse(text)?).ok_or(UNREADABLE));
        reports.collect()
    }

    /// The newest `limit` of one volume here, or of all, newest first; those of ended relationships too.
    pub(crate) async fn transfers(
        &self,
        volume: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TransferRecord>, StateError> {
        // Two statements: one with a choice in it is served by no index.
        let query = match volume {
            Some(volume) => query_as(
                "SELECT volume, record FROM transfers WHERE volume = $1 ORDER BY sequence DESC LIMIT $2",
            )
            .bind(volume),
            None => query_as("SELECT volume, record FROM transfers ORDER BY sequence DESC LIMIT $1"),
        };
        let rows: Vec<(String, String)> = query.bind(limit).fetch_all(&self.readers).await?;
        let record = |(volume, text): (String, String)| {
            let volume = Some(volume).filter(|volume| !volume.is_empty());
            Ok(TransferRecord { volume, ..parse(&text)? })
        };
        rows.into_iter().map(record).collect()
    }
}

const UNREADABLE: StateError = StateError::Row("a transfer of the history cannot be read");

fn parse(text: &str) -> Result<TransferRecord, StateError> {
    serde_json::from_str(text).map_err(|_| UNREADABLE)
}

#[cfg(test)]
pub(crate) mod tests {
    use farside_engine::ContentRoot;
    use farside_platform::Timestamp;
    use farside_transfer::{Level, Levels, TransferKind, TransferResult};

    use super::*;
    use crate::state::test_databases::databases;

    pub(crate) fn report(number: u64) -> TransferReport {
        TransferReport {
            id: Uuid::from_u128(u128::from(number)),
            kind: TransferKind::Update,
            result: TransferResult::Failed,
            reason: Some("the link went away".into()),
            started_at: Timestamp(1_700_000_000_123_456_789),
            ended_at: Timestamp(1_700_000_001_123_456_789),
            duration_seconds: 1.0,
            base: Some("s1".into()),
            incremental: Some("s2".into()),
            content_root: Some(ContentRoot([7; 16])),
            resumed: false,
            snapshots: 1,
            changed_bytes: number,
            resumed_bytes: 9,
            deallocated_bytes: 2,
            source_read_bytes: 3,
            base_read_bytes: 4,
            referenced_bytes: None,
            delta_bytes: 5,
            literal_bytes: 6,
            levels: Some(Levels {
                known: Level { in_bytes: 10, out_bytes: 1 },
                repeat: Level { in_bytes: 20, out_bytes: 2 },
                delta: Level { in_bytes: 30, out_bytes: 3 },
                compressed: Level { in_bytes: 40, out_bytes: 4 },
                raw: Level { in_bytes: 50, out_bytes: 5 },
                noise_bytes: Some(20),
            }),
            wire_bytes_sent: 7,
            wire_bytes_received: 8,
            scan_seconds: 0.25,
            set_aside: vec!["rescue-2027-01-15T08:00:00Z".into()],
            let_go: vec!["rescue-2026-12-15T08:00:00Z".into()],
        }
    }

    #[tokio::test]
    async fn history_is_kept_newest_first_and_whole() {
        for database in databases().await {
            let state = database.open().await;
            let relationship = Uuid::from_u128(77);
            for number in 0..3 {
                state.append_transfer(relationship, &report(number)).await.unwrap();
            }
            assert_eq!(state.transfers_of(relationship, 2).await.unwrap(), vec![report(2), report(1)]);
            assert_eq!(state.transfers_of(Uuid::from_u128(78), 2).await.unwrap(), vec![]);
            let records = state.transfers(None, 10).await.unwrap();
            assert_eq!(records.iter().map(|r| r.changed_bytes).collect::<Vec<_>>(), [2, 1, 0]);
            assert!(records.iter().all(|r| r.volume.is_none()), "of no mirror that is known");
        }
    }

    /// To look how many there are walks them all: a full history would cost more than the update that it tells of.
    #[tokio::test]
    async fn the_oldest_go_now_and_then_and_history_stays_bounded() {
        let database = crate::state::test_databases::TestDatabase::file();
        let state = database.open().await;
        let relationship = Uuid::from_u128(77);
        state.append_transfer(relationship, &report(0)).await.unwrap();
        let grow = "WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < 10300) \
             INSERT INTO transfers (relationship, volume, ended_at, record) \
             SELECT relationship, volume, ended_at, record FROM transfers, many";
        crate::state::statement::query(grow).execute(&state.line_writer).await.unwrap();
        let count = async || -> i64 {
            let all = query_scalar("SELECT count(*) FROM transfers");
            all.fetch_one(&state.readers).await.unwrap()
        };
        for number in 1..256 {
            state.append_transfer(relationship, &report(number)).await.unwrap();
        }
        assert_eq!(count().await, 10_301 + 255, "nobody looked");
        state.append_transfer(relationship, &report(256)).await.unwrap();
        assert_eq!(count().await, HISTORY_MAX);
        assert_eq!(state.transfers_of(relationship, 1).await.unwrap(), vec![report(256)]);
    }
}
