//! What was asked for through the API: written before it begins, bounded by age and number, and shortened by nothing else.

use farside_platform::Timestamp;

use super::rows::{from_row, nanoseconds};
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AuditRow {
    /// Its number; what begins has none yet.
    pub(crate) id: i64,
    pub(crate) at: i64,
    pub(crate) who: String,
    pub(crate) role: Option<String>,
    pub(crate) origin: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) request: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) message: Option<String>,
    /// Nanoseconds.
    pub(crate) duration: Option<i64>,
}
from_row!(AuditRow { id, at, who, role, origin, method, path, request, outcome, message, duration });

/// Which entries are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AuditWanted {
    /// Older than this one.
    pub(crate) before: Option<i64>,
    /// Of this somebody.
    pub(crate) who: Option<String>,
    /// At this moment or later, nanoseconds.
    pub(crate) since: Option<i64>,
    pub(crate) limit: u32,
}

impl State {
    /// Keeps what is about to begin; its number. It is on disk when this returns.
    pub(crate) async fn audit_begins(&self, row: &AuditRow) -> Result<i64, StateError> {
        query_scalar(
            "INSERT INTO audit (at, who, role, origin, method, path, request) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id",
        )
        .bind(row.at)
        .bind(&row.who)
        .bind(&row.role)
        .bind(&row.origin)
        .bind(&row.method)
        .bind(&row.path)
        .bind(&row.request)
        .fetch_one(&self.writer)
        .await
    }

    /// Keeps what came of it.
    pub(crate) async fn audit_ends(
        &self,
        id: i64,
        outcome: &str,
        message: Option<&str>,
        duration: i64,
    ) -> Result<(), StateError> {
        query("UPDATE audit SET outcome = $1, message = $2, duration = $3 WHERE id = $4")
            .bind(outcome)
            .bind(message)
            .bind(duration)
            .bind(id)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Newest first.
    pub(crate) async fn audit(&self, wanted: &AuditWanted) -> Result<Vec<AuditRow>, StateError> {
        query_as(
            "SELECT id, at, who, role, origin, method, path, request, outcome, message, duration FROM audit \
             WHERE id < $1 AND ($2 IS NULL OR who = $2) AND at >= $3 ORDER BY id DESC LIMIT $4",
        )
        .bind(wanted.before.unwrap_or(i64::MAX))
        .bind(&wanted.who)
        .bind(wanted.since.unwrap_or(0))
        .bind(wanted.limit)
        .fetch_all(&self.readers)
        .await
    }

    /// Forgets what is older than this moment, and the oldest of more than `kept_max`; how many went for their number.
    pub(crate) async fn prune_audit(&self, before: Timestamp, kept_max: i64) -> Result<u64, StateError> {
        query("DELETE FROM audit WHERE at < $1").bind(nanoseconds(before)).execute(&self.writer).await?;
        query("DELETE FROM audit WHERE id <= (SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET $1)")
            .bind(kept_max)
            .execute(&self.writer)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::test_databases::databases;

    #[tokio::test]
    async fn what_is_old_or_too_many_goes_and_no_number_comes_twice() {
        for database in databases().await {
            let state = database.open().await;
            for at in 1..=10 {
                let row = AuditRow { at, who: format!("uid {}", at % 2), ..AuditRow::default() };
                assert_eq!(state.audit_begins(&row).await.unwrap(), at);
            }
            state.audit_ends(3, "done", None, 7).await.unwrap();
            let ids = async |wanted: AuditWanted| -> Vec<i64> {
                state.audit(&wanted).await.unwrap().iter().map(|row| row.id).collect()
            };
            let all = AuditWanted { limit: 100, ..AuditWanted::default() };
            assert_eq!(ids(AuditWanted { limit: 2, before: Some(9), ..all.clone() }).await, [8, 7]);
            assert_eq!(
                ids(AuditWanted { who: Some("uid 1".into()), since: Some(6), ..all.clone() }).await,
                [9, 7]
            );
            assert_eq!(state.prune_audit(Timestamp(3), 100).await.unwrap(), 0);
            assert_eq!(state.prune_audit(Timestamp(3), 4).await.unwrap(), 4);
            assert_eq!(ids(all.clone()).await, [10, 9, 8, 7]);
            assert_eq!(state.prune_audit(Timestamp(100), 4).await.unwrap(), 0);
            assert_eq!(ids(all).await, [] as [i64; 0]);
            assert_eq!(state.audit_begins(&AuditRow::default()).await.unwrap(), 11);
        }
    }
}
