//! The scrub of each pool: where it is, and what it has found.

use super::rows::from_row;
use super::statement::{query, query_as};
use super::{State, StateError};

/// A pool's scrub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScrubRow {
    /// The pool's name.
    pub(crate) pool: String,
    /// As `scrubs.rs` writes it.
    pub(crate) document: String,
}
from_row!(ScrubRow { pool, document });

impl State {
    /// All that are known.
    pub(crate) async fn scrubs(&self) -> Result<Vec<ScrubRow>, StateError> {
        query_as("SELECT pool, document FROM scrubs").fetch_all(&self.readers).await
    }

    /// Keeps how far one is.
    pub(crate) async fn keep_scrub(&self, row: &ScrubRow) -> Result<(), StateError> {
        query(
            "INSERT INTO scrubs (pool, document) VALUES ($1, $2) ON CONFLICT (pool) DO UPDATE SET document = excluded.document",
        )
            .bind(&row.pool)
            .bind(&row.document)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Forgets it, with its pool.
    pub(crate) async fn forget_scrub(&self, pool: &str) -> Result<(), StateError> {
        query("DELETE FROM scrubs WHERE pool = $1").bind(pool).execute(&self.writer).await?;
        Ok(())
    }
}
