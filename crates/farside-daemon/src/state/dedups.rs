//! Deduplication of each volume: whether it is wanted, and where it is.

use super::rows::from_row;
use super::statement::{query, query_as};
use super::{State, StateError};

/// A volume's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DedupRow {
    /// The pool's name.
    pub(crate) pool: String,
    /// The volume's identity.
    pub(crate) volume: String,
    /// As `dedups.rs` writes it.
    pub(crate) document: String,
}
from_row!(DedupRow { pool, volume, document });

impl State {
    /// All that are known.
    pub(crate) async fn dedups(&self) -> Result<Vec<DedupRow>, StateError> {
        query_as("SELECT pool, volume, document FROM dedups").fetch_all(&self.readers).await
    }

    /// Keeps what is wanted, and how far it is.
    pub(crate) async fn keep_dedup(&self, row: &DedupRow) -> Result<(), StateError> {
        query(
            "INSERT INTO dedups (pool, volume, document) VALUES ($1, $2, $3) \
             ON CONFLICT (pool, volume) DO UPDATE SET document = excluded.document",
        )
        .bind(&row.pool)
        .bind(&row.volume)
        .bind(&row.document)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Forgets it, with its volume.
    pub(crate) async fn forget_dedup(&self, pool: &str, volume: &str) -> Result<(), StateError> {
        let delete = query("DELETE FROM dedups WHERE pool = $1 AND volume = $2").bind(pool).bind(volume);
        delete.execute(&self.writer).await?;
        Ok(())
    }

    /// Forgets those of a pool, with it.
    pub(crate) async fn forget_dedups(&self, pool: &str) -> Result<(), StateError> {
        query("DELETE FROM dedups WHERE pool = $1").bind(pool).execute(&self.writer).await?;
        Ok(())
    }
}
