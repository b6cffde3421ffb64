//! Which pools the daemon opens when it starts.

use farside_platform::Timestamp;

use super::rows::{from_row, nanoseconds};
use super::statement::{query, query_as};
use super::{State, StateError};

/// A pool that is opened at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolRow {
    /// Its name.
    pub(crate) name: String,
    /// Its file or device.
    pub(crate) path: String,
}
from_row!(PoolRow { name, path });

impl State {
    /// All pools, by name.
    pub(crate) async fn pools(&self) -> Result<Vec<PoolRow>, StateError> {
        query_as("SELECT name, path FROM pools ORDER BY name").fetch_all(&self.readers).await
    }

    /// Remembers a pool. One of the same name is replaced, and one in the same place.
    pub(crate) async fn remember_pool(&self, row: &PoolRow, now: Timestamp) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        query("DELETE FROM pools WHERE path = $1 AND name <> $2")
            .bind(&row.path)
            .bind(&row.name)
            .execute(&mut transaction)
            .await?;
        query(
            "INSERT INTO pools (name, path, added_at) VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE SET path = excluded.path, added_at = excluded.added_at",
        )
        .bind(&row.name)
        .bind(&row.path)
        .bind(nanoseconds(now))
        .execute(&mut transaction)
        .await?;
        transaction.commit().await
    }

    /// A pool is somewhere else now.
    pub(crate) async fn move_pool(&self, name: &str, path: &str) -> Result<(), StateError> {
        query("UPDATE pools SET path = $1 WHERE name = $2")
            .bind(path)
            .bind(name)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Forgets a pool; its file is not touched.
    pub(crate) async fn forget_pool(&self, name: &str) -> Result<(), StateError> {
        query("DELETE FROM pools WHERE name = $1").bind(name).execute(&self.writer).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::test_databases::databases;

    #[tokio::test]
    async fn pools_are_remembered_across_a_restart() {
        let row = |name: &str| PoolRow { name: name.into(), path: format!("/srv/{name}") };
        for database in databases().await {
            let state = database.open().await;
            state.remember_pool(&row("q"), Timestamp(1)).await.unwrap();
            state.remember_pool(&row("p"), Timestamp(2)).await.unwrap();
            state.forget_pool("q").await.unwrap();
            state.close().await;
            let state = database.open().await;
            assert_eq!(state.pools().await.unwrap(), vec![row("p")]);
            let moved = PoolRow { name: "r".into(), ..row("p") };
            state.remember_pool(&moved, Timestamp(3)).await.unwrap();
            assert_eq!(state.pools().await.unwrap(), vec![moved], "of a place there is one");
        }
    }
}
