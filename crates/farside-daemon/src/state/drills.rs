//! Volumes of drills that go when their client does not renew them: (pool, identity of the volume).

use uuid::Uuid;

use super::rows::from_row;
use super::statement::{query, query_as};
use super::{State, StateError};

struct DrillRow {
    pool: String,
    volume: String,
}
from_row!(DrillRow { pool, volume });

impl State {
    /// All that are known.
    pub(crate) async fn drills(&self) -> Result<Vec<(String, Uuid)>, StateError> {
        let rows: Vec<DrillRow> =
            query_as("SELECT pool, volume FROM drills").fetch_all(&self.readers).await?;
        let drill = |row: DrillRow| {
            let volume =
                row.volume.parse().map_err(|_| StateError::Row("the volume of a drill has no id"))?;
            Ok((row.pool, volume))
        };
        rows.into_iter().map(drill).collect()
    }

    /// Keeps one.
    pub(crate) async fn keep_drill(&self, pool: &str, volume: Uuid) -> Result<(), StateError> {
        query("INSERT INTO drills (pool, volume) VALUES ($1, $2) ON CONFLICT (pool, volume) DO NOTHING")
            .bind(pool)
            .bind(volume.to_string())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Forgets one.
    pub(crate) async fn forget_drill(&self, volume: Uuid) -> Result<(), StateError> {
        query("DELETE FROM drills WHERE volume = $1").bind(volume.to_string()).execute(&self.writer).await?;
        Ok(())
    }
}
