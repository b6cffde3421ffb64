//! Relationships of both sides.

use std::time::Duration;

use async_trait::async_trait;
use farside_engine::VolumeName;
use farside_mirror::{
    MirrorError, Relationship, RelationshipStore, Schedule, SourceRelationship, SourceStore, TransferReport,
};
use uuid::Uuid;

use super::rows::{nanoseconds, peer_id, time, uuid};
use super::{State, StateError};
use crate::metrics;

/// The relationships whose replica is in one pool. A pool's mirrors are driven while it is open, so that a pool that
/// cannot be opened, or is taken away, leaves the others alone.
#[derive(Clone, Debug)]
pub(crate) struct PoolRelationships {
    state: State,
    pool: String,
}

impl PoolRelationships {
    /// Those of `pool`.
    pub(crate) fn new(state: State, pool: &str) -> Self {
        PoolRelationships { state, pool: pool.to_owned() }
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Vec<u8>,
    peer: Vec<u8>,
    source: String,
    pool: String,
    volume: String,
    every_nanoseconds: Option<i64>,
    quiesced: bool,
}

impl Row {
    fn relationship(self) -> Result<Relationship, StateError> {
        let interval = self.every_nanoseconds.map(|n| Duration::from_nanos(u64::try_from(n).unwrap_or(0)));
        Ok(Relationship {
            id: uuid(&self.id)?,
            peer: peer_id(&self.peer)?,
            source: volume_name(&self.source)?,
            destination: VolumeName { pool: self.pool, volume: self.volume },
            schedule: Schedule::every(interval)
                .map_err(|_| StateError::Row("an interval is out of range"))?,
            quiesced: self.quiesced,
        })
    }
}

fn volume_name(text: &str) -> Result<VolumeName, StateError> {
    text.parse().map_err(|_| StateError::Row("a volume's name is not POOL/VOL"))
}

fn failed(error: impl std::fmt::Display) -> MirrorError {
    MirrorError::Store(error.to_string())
}

impl State {
    /// The relationships whose replica is at this site, by name of the replica; of one pool, or of all.
    pub(crate) async fn relationships(&self, pool: Option<&str>) -> Result<Vec<Relationship>, StateError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, peer, source, pool, volume, every_nanoseconds, quiesced FROM relationships \
             WHERE ?1 IS NULL OR pool = ?1 ORDER BY pool, volume",
        )
        .bind(pool)
        .fetch_all(&self.readers)
        .await?;
        rows.into_iter().map(Row::relationship).collect()
    }

    /// Adds or replaces one.
    pub(crate) async fn save_relationship(&self, relationship: &Relationship) -> Result<(), StateError> {
        let every = relationship.schedule.interval().map(|i| i64::try_from(i.as_nanos()).unwrap_or(i64::MAX));
        sqlx::query(
            "INSERT OR REPLACE INTO relationships (id, peer, source, pool, volume, every_nanoseconds, quiesced) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(relationship.id.as_bytes().as_slice())
        .bind(relationship.peer.0.as_slice())
        .bind(relationship.source.to_string())
        .bind(&relationship.destination.pool)
        .bind(&relationship.destination.volume)
        .bind(every)
        .bind(relationship.quiesced)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Forgets one; its history stays.
    pub(crate) async fn remove_relationship(&self, id: Uuid) -> Result<(), StateError> {
        sqlx::query("DELETE FROM relationships WHERE id = ?")
            .bind(id.as_bytes().as_slice())
            .execute(&self.writer)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl RelationshipStore for PoolRelationships {
    async fn relationships(&self) -> Result<Vec<Relationship>, MirrorError> {
        self.state.relationships(Some(&self.pool)).await.map_err(failed)
    }

    async fn save(&self, relationship: &Relationship) -> Result<(), MirrorError> {
        self.state.save_relationship(relationship).await.map_err(failed)
    }

    async fn remove(&self, id: Uuid) -> Result<(), MirrorError> {
        self.state.remove_relationship(id).await.map_err(failed)
    }

    async fn append_history(&self, id: Uuid, report: &TransferReport) -> Result<(), MirrorError> {
        if let Some(relationship) = self.relationships().await?.iter().find(|r| r.id == id) {
            metrics::transfer_ended(relationship, report);
        }
        self.state.append_transfer(id, report).await.map_err(failed)
    }

    async fn history(&self, id: Uuid, limit: usize) -> Result<Vec<TransferReport>, MirrorError> {
        self.state.transfers_of(id, limit).await.map_err(failed)
    }
}

#[derive(sqlx::FromRow)]
struct SourceRow {
    id: Vec<u8>,
    peer: Vec<u8>,
    source: String,
    destination: String,
    base: Option<Vec<u8>>,
    since: Option<i64>,
}

impl SourceRow {
    fn relationship(self) -> Result<SourceRelationship, StateError> {
        Ok(SourceRelationship {
            id: uuid(&self.id)?,
            peer: peer_id(&self.peer)?,
            source: volume_name(&self.source)?,
            destination: volume_name(&self.destination)?,
            base: self.base.as_deref().map(uuid).transpose()?,
            since: self.since.map(time),
        })
    }
}

#[async_trait]
impl SourceStore for State {
    async fn source_relationships(&self) -> Result<Vec<SourceRelationship>, MirrorError> {
        let rows: Vec<SourceRow> =
            sqlx::query_as("SELECT id, peer, source, destination, base, since FROM source_relationships")
                .fetch_all(&self.readers)
                .await
                .map_err(failed)?;
        rows.into_iter().map(|row| row.relationship().map_err(failed)).collect()
    }

    async fn save_source(&self, relationship: &SourceRelationship) -> Result<(), MirrorError> {
        sqlx::query(
            "INSERT OR REPLACE INTO source_relationships (id, peer, source, destination, base, since) \
             VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(relationship.id.as_bytes().as_slice())
        .bind(relationship.peer.0.as_slice())
        .bind(relationship.source.to_string())
        .bind(relationship.destination.to_string())
        .bind(relationship.base.map(|base| base.as_bytes().to_vec()))
        .bind(relationship.since.map(nanoseconds))
        .execute(&self.writer)
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn remove_source(&self, id: Uuid) -> Result<(), MirrorError> {
        sqlx::query("DELETE FROM source_relationships WHERE id = ?")
            .bind(id.as_bytes().as_slice())
            .execute(&self.writer)
            .await
            .map_err(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_platform::Timestamp;
    use farside_session::PeerId;

    use super::*;

    fn relationship(id: u128, destination: &str) -> Relationship {
        Relationship {
            id: Uuid::from_u128(id),
            peer: PeerId([3; 32]),
            source: "a/v".parse().unwrap(),
            destination: destination.parse().unwrap(),
            schedule: Schedule::Every(Duration::from_millis(1500)),
            quiesced: false,
        }
    }

    #[tokio::test]
    async fn each_pool_sees_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let (p, q) = (PoolRelationships::new(state.clone(), "p"), PoolRelationships::new(state.clone(), "q"));
        let mut first = relationship(1, "p/v");
        p.save(&first).await.unwrap();
        q.save(&relationship(2, "q/v")).await.unwrap();
        first.quiesced = true;
        first.schedule = Schedule::OnRequest;
        p.save(&first).await.unwrap();
        assert_eq!(p.relationships().await.unwrap(), vec![first.clone()]);
        assert_eq!(state.relationships(None).await.unwrap(), vec![first, relationship(2, "q/v")]);
        p.remove(Uuid::from_u128(1)).await.unwrap();
        assert_eq!(p.relationships().await.unwrap(), vec![]);
    }

    #[tokio::test]
    async fn sources_come_back_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let mut source = SourceRelationship {
            id: Uuid::from_u128(1),
            peer: PeerId([3; 32]),
            source: "a/v".parse().unwrap(),
            destination: "b/v".parse().unwrap(),
            base: None,
            since: None,
        };
        state.save_source(&source).await.unwrap();
        source.base = Some(Uuid::from_u128(9));
        source.since = Some(Timestamp(5));
        state.save_source(&source).await.unwrap();
        assert_eq!(state.source_relationships().await.unwrap(), vec![source]);
        state.remove_source(Uuid::from_u128(1)).await.unwrap();
        assert_eq!(state.source_relationships().await.unwrap(), vec![]);
    }
}
