//! Timetables of snapshots.

use super::rows::from_row;
use super::statement::{query, query_as};
use super::{State, StateError};

/// A volume's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotScheduleRow {
    /// The pool's name.
    pub(crate) pool: String,
    /// The volume's identity.
    pub(crate) volume: String,
    /// As `snapshot_schedules.rs` writes it.
    pub(crate) document: String,
}
from_row!(SnapshotScheduleRow { pool, volume, document });

impl State {
    /// All that are known.
    pub(crate) async fn snapshot_schedules(&self) -> Result<Vec<SnapshotScheduleRow>, StateError> {
        let all = query_as("SELECT pool, volume, document FROM snapshot_schedules");
        all.fetch_all(&self.readers).await
    }

    /// Keeps one.
    pub(crate) async fn keep_snapshot_schedule(&self, row: &SnapshotScheduleRow) -> Result<(), StateError> {
        query(
            "INSERT INTO snapshot_schedules (pool, volume, document) VALUES ($1, $2, $3) \
             ON CONFLICT (pool, volume) DO UPDATE SET document = excluded.document",
        )
        .bind(&row.pool)
        .bind(&row.volume)
        .bind(&row.document)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Keeps one instead of that of `before`, which is gone.
    pub(crate) async fn move_snapshot_schedule(
        &self,
        before: &str,
        row: &SnapshotScheduleRow,
    ) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        // What the new volume had gives way, if there is something to take its place.
        query(
            "DELETE FROM snapshot_schedules WHERE pool = $1 AND volume = $2 AND volume <> $3 \
             AND EXISTS (SELECT 1 FROM snapshot_schedules AS before WHERE before.pool = $1 AND before.volume = $3)",
        )
        .bind(&row.pool)
        .bind(&row.volume)
        .bind(before)
        .execute(&mut transaction)
        .await?;
        query("UPDATE snapshot_schedules SET volume = $1, document = $2 WHERE pool = $3 AND volume = $4")
            .bind(&row.volume)
            .bind(&row.document)
            .bind(&row.pool)
            .bind(before)
            .execute(&mut transaction)
            .await?;
        transaction.commit().await
    }

    /// Forgets it.
    pub(crate) async fn forget_snapshot_schedule(&self, pool: &str, volume: &str) -> Result<(), StateError> {
        query("DELETE FROM snapshot_schedules WHERE pool = $1 AND volume = $2")
            .bind(pool)
            .bind(volume)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Forgets those of a pool, with it.
    pub(crate) async fn forget_snapshot_schedules(&self, pool: &str) -> Result<(), StateError> {
        query("DELETE FROM snapshot_schedules WHERE pool = $1").bind(pool).execute(&self.writer).await?;
        Ok(())
    }
}
