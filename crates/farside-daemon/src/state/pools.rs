//! Which pools the daemon opens when it starts.

use farside_platform::Timestamp;

use super::rows::{from_row, nanoseconds};
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
        Ok(sqlx::query_as("SELECT name, path FROM pools ORDER BY name").fetch_all(&self.readers).await?)
    }

    /// Remembers a pool. One of the same name is replaced.
    pub(crate) async fn remember_pool(&self, row: &PoolRow, now: Timestamp) -> Result<(), StateError> {
        sqlx::query("INSERT OR REPLACE INTO pools (name, path, added_at) VALUES (?, ?, ?)")
            .bind(&row.name)
            .bind(&row.path)
            .bind(nanoseconds(now))
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// A pool is somewhere else now.
    pub(crate) async fn move_pool(&self, name: &str, path: &str) -> Result<(), StateError> {
        sqlx::query("UPDATE pools SET path = ? WHERE name = ?")
            .bind(path)
            .bind(name)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Forgets a pool; its file is not touched.
    pub(crate) async fn forget_pool(&self, name: &str) -> Result<(), StateError> {
        sqlx::query("DELETE FROM pools WHERE name = ?").bind(name).execute(&self.writer).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pools_are_remembered_across_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        let row = |name: &str| PoolRow { name: name.into(), path: format!("/srv/{name}") };
        let state = State::open(&path).await.unwrap();
        state.remember_pool(&row("q"), Timestamp(1)).await.unwrap();
        state.remember_pool(&row("p"), Timestamp(2)).await.unwrap();
        state.forget_pool("q").await.unwrap();
        state.close().await;
        let state = State::open(&path).await.unwrap();
        assert_eq!(state.pools().await.unwrap(), vec![row("p")]);
    }
}
