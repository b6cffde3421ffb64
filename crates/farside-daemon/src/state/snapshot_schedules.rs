//! Timetables of snapshots.

use super::rows::from_row;
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
        let all = sqlx::query_as("SELECT pool, volume, document FROM snapshot_schedules");
        Ok(all.fetch_all(&self.readers).await?)
    }

    /// Keeps one.
    pub(crate) async fn keep_snapshot_schedule(&self, row: &SnapshotScheduleRow) -> Result<(), StateError> {
        sqlx::query("INSERT OR REPLACE INTO snapshot_schedules (pool, volume, document) VALUES (?, ?, ?)")
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
        sqlx::query(
            "UPDATE OR REPLACE snapshot_schedules SET volume = ?, document = ? WHERE pool = ? AND volume = ?",
        )
        .bind(&row.volume)
        .bind(&row.document)
        .bind(&row.pool)
        .bind(before)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Forgets it.
    pub(crate) async fn forget_snapshot_schedule(&self, pool: &str, volume: &str) -> Result<(), StateError> {
        sqlx::query("DELETE FROM snapshot_schedules WHERE pool = ? AND volume = ?")
            .bind(pool)
            .bind(volume)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Forgets those of a pool, with it.
    pub(crate) async fn forget_snapshot_schedules(&self, pool: &str) -> Result<(), StateError> {
        sqlx::query("DELETE FROM snapshot_schedules WHERE pool = ?").bind(pool).execute(&self.writer).await?;
        Ok(())
    }
}
