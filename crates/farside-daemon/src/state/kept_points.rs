//! The moments for which points count that retention keeps: of mirrors, and of timetables of snapshots.

use farside_mirror::retention::KeptPoint;
use uuid::Uuid;

use super::rows::{nanoseconds, time, uuid};
use super::statement::{query, query_as};
use super::{State, StateError};

impl State {
    /// Those of one relationship.
    pub(crate) async fn kept_points(&self, keeper: Uuid) -> Result<Vec<KeptPoint>, StateError> {
        let rows: Vec<(Vec<u8>, i64, i64)> = query_as(
            "SELECT snapshot, at, noted_at FROM kept_points WHERE relationship = $1 ORDER BY noted_at",
        )
        .bind(keeper.as_bytes().as_slice())
        .fetch_all(&self.readers)
        .await?;
        let point = |(snapshot, at, noted_at): (Vec<u8>, i64, i64)| {
            Ok(KeptPoint { snapshot: uuid(&snapshot)?, at: time(at), noted_at: time(noted_at) })
        };
        rows.into_iter().map(point).collect()
    }

    /// Remembers those of new points: all of them or none.
    pub(crate) async fn note_kept(&self, keeper: Uuid, noted: &[KeptPoint]) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        for point in noted {
            query(
                "INSERT INTO kept_points (relationship, snapshot, at, noted_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (relationship, snapshot) DO UPDATE SET at = excluded.at, noted_at = excluded.noted_at",
            )
                .bind(keeper.as_bytes().as_slice())
                .bind(point.snapshot.as_bytes().as_slice())
                .bind(nanoseconds(point.at))
                .bind(nanoseconds(point.noted_at))
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await
    }

    /// Forgets those of points that are gone.
    pub(crate) async fn forget_kept(&self, keeper: Uuid, gone: &[Uuid]) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        for snapshot in gone {
            query("DELETE FROM kept_points WHERE relationship = $1 AND snapshot = $2")
                .bind(keeper.as_bytes().as_slice())
                .bind(snapshot.as_bytes().as_slice())
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await
    }

    /// Forgets all of a relationship.
    pub(crate) async fn forget_all_kept(&self, keeper: Uuid) -> Result<(), StateError> {
        query("DELETE FROM kept_points WHERE relationship = $1")
            .bind(keeper.as_bytes().as_slice())
            .execute(&self.writer)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_platform::Timestamp;

    use super::*;
    use crate::state::test_databases::databases;

    #[tokio::test]
    async fn points_come_back_as_they_were() {
        for database in databases().await {
            let state = database.open().await;
            let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
            let point = |number: u64| KeptPoint {
                snapshot: Uuid::from_u128(u128::from(number)),
                at: Timestamp(number),
                noted_at: Timestamp(number + 100),
            };
            let three = [point(1), point(2), point(3)];
            state.note_kept(one, &three).await.unwrap();
            state.note_kept(other, &three[..1]).await.unwrap();
            assert_eq!(state.kept_points(one).await.unwrap(), three);
            state.forget_kept(one, &[point(2).snapshot, Uuid::from_u128(9)]).await.unwrap();
            assert_eq!(state.kept_points(one).await.unwrap(), [point(1), point(3)]);
            state.forget_all_kept(one).await.unwrap();
            assert_eq!(
                (state.kept_points(one).await.unwrap().len(), state.kept_points(other).await.unwrap().len()),
                (0, 1)
            );
        }
    }
}
