//! Alarms, bounded in number and age, and what of them is still to be posted.

use farside_platform::Timestamp;

use super::rows::{from_row, nanoseconds, time};
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};

/// Cleared alarms that are kept; the oldest go first.
const CLEARED_MAX: i64 = 10_000;

/// An alarm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AlarmRow {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) subject: String,
    pub(crate) severity: String,
    pub(crate) raised_at: i64,
    pub(crate) cleared_at: Option<i64>,
    pub(crate) acknowledged_at: Option<i64>,
    pub(crate) message: String,
    pub(crate) hint: String,
}
from_row!(AlarmRow { id, kind, subject, severity, raised_at, cleared_at, acknowledged_at, message, hint });

/// What is still to be posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NoticeRow {
    pub(crate) sequence: i64,
    pub(crate) queued_at: i64,
    pub(crate) document: String,
}
from_row!(NoticeRow { sequence, queued_at, document });

impl State {
    /// Those that are raised, oldest first.
    pub(crate) async fn open_alarms(&self) -> Result<Vec<AlarmRow>, StateError> {
        query_as(
            "SELECT id, kind, subject, severity, raised_at, cleared_at, acknowledged_at, message, hint FROM alarms \
             WHERE cleared_at IS NULL ORDER BY id",
        )
        .fetch_all(&self.readers)
        .await
    }

    /// Those that were cleared, oldest first.
    pub(crate) async fn cleared_alarms(&self) -> Result<Vec<AlarmRow>, StateError> {
        query_as(
            "SELECT id, kind, subject, severity, raised_at, cleared_at, acknowledged_at, message, hint FROM alarms \
             WHERE cleared_at IS NOT NULL ORDER BY id",
        )
        .fetch_all(&self.readers)
        .await
    }

    /// When a person has last acknowledged an alarm of this kind and subject that is over.
    pub(crate) async fn acknowledged_until(
        &self,
        kind: &str,
        subject: &str,
    ) -> Result<Option<Timestamp>, StateError> {
        let at: Option<i64> = query_scalar(
            "SELECT max(acknowledged_at) FROM alarms WHERE kind = $1 AND subject = $2 AND cleared_at IS NOT NULL",
        )
        .bind(kind)
        .bind(subject)
        .fetch_one(&self.readers)
        .await?;
        Ok(at.map(time))
    }

    /// The first number that no alarm here has, or had.
    pub(crate) async fn next_alarm_id(&self) -> Result<i64, StateError> {
        let last: Option<i64> = query_scalar("SELECT max(id) FROM alarms").fetch_one(&self.readers).await?;
        Ok(last.unwrap_or(0).saturating_add(1))
    }

    /// Keeps an alarm as it is now.
    pub(crate) async fn keep_alarm(&self, row: &AlarmRow) -> Result<(), StateError> {
        query(
            "INSERT INTO alarms (id, kind, subject, severity, raised_at, cleared_at, acknowledged_at, message, hint) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, \
             subject = excluded.subject, severity = excluded.severity, raised_at = excluded.raised_at, \
             cleared_at = excluded.cleared_at, acknowledged_at = excluded.acknowledged_at, message = excluded.message, \
             hint = excluded.hint",
        )
        .bind(row.id)
        .bind(&row.kind)
        .bind(&row.subject)
        .bind(&row.severity)
        .bind(row.raised_at)
        .bind(row.cleared_at)
        .bind(row.acknowledged_at)
        .bind(&row.message)
        .bind(&row.hint)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Forgets those that were cleared before this moment, and of the others the oldest that are too many. The newest of all stays:
    /// no number is given twice.
    pub(crate) async fn prune_alarms(&self, before: Timestamp) -> Result<(), StateError> {
        query(
            "DELETE FROM alarms WHERE cleared_at IS NOT NULL AND id < (SELECT max(id) FROM alarms) AND (cleared_at < $1 OR id <= \
             (SELECT id FROM alarms WHERE cleared_at IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET $2))",
        )
        .bind(nanoseconds(before))
        .bind(CLEARED_MAX)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// What is still to be posted, in order.
    pub(crate) async fn notices(&self) -> Result<Vec<NoticeRow>, StateError> {
        let notices = query_as("SELECT sequence, queued_at, document FROM alarm_notices ORDER BY sequence");
        notices.fetch_all(&self.readers).await
    }

    /// Adds something to post; its number.
    pub(crate) async fn add_notice(&self, queued_at: Timestamp, document: &str) -> Result<i64, StateError> {
        query_scalar("INSERT INTO alarm_notices (queued_at, document) VALUES ($1, $2) RETURNING sequence")
            .bind(nanoseconds(queued_at))
            .bind(document)
            .fetch_one(&self.writer)
            .await
    }

    /// It was posted, or is not tried any more.
    pub(crate) async fn remove_notice(&self, sequence: i64) -> Result<(), StateError> {
        query("DELETE FROM alarm_notices WHERE sequence = $1").bind(sequence).execute(&self.writer).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::test_databases::databases;

    fn row(id: i64, cleared_at: Option<i64>) -> AlarmRow {
        AlarmRow {
            id,
            kind: "peer-gone".into(),
            subject: "north".into(),
            severity: "warning".into(),
            raised_at: id,
            cleared_at,
            acknowledged_at: None,
            message: "m".into(),
            hint: "h".into(),
        }
    }

    #[tokio::test]
    async fn alarms_are_kept_until_they_are_old_or_too_many() {
        for database in databases().await {
            let state = database.open().await;
            assert_eq!(state.next_alarm_id().await.unwrap(), 1);
            for id in 1..=4 {
                state.keep_alarm(&row(id, None)).await.unwrap();
            }
            for id in [1, 2, 4] {
                state.keep_alarm(&row(id, Some(id * 10))).await.unwrap();
            }
            assert_eq!(state.open_alarms().await.unwrap(), [row(3, None)]);
            state.prune_alarms(Timestamp(20)).await.unwrap();
            assert_eq!(state.cleared_alarms().await.unwrap(), [row(2, Some(20)), row(4, Some(40))]);
            state.prune_alarms(Timestamp(100)).await.unwrap();
            assert_eq!(
                state.cleared_alarms().await.unwrap(),
                [row(4, Some(40))],
                "its number is not given again"
            );
            assert_eq!(state.open_alarms().await.unwrap(), [row(3, None)]);
            assert_eq!(state.next_alarm_id().await.unwrap(), 5);
            let known = AlarmRow { acknowledged_at: Some(35), ..row(4, Some(40)) };
            state.keep_alarm(&known).await.unwrap();
            let until = async |subject: &str| state.acknowledged_until("peer-gone", subject).await.unwrap();
            assert_eq!((until("north").await, until("south").await), (Some(Timestamp(35)), None));
        }
    }

    #[tokio::test]
    async fn of_too_many_the_oldest_go() {
        for database in databases().await {
            let state = database.open().await;
            let mut transaction = state.writer.begin().await.unwrap();
            for id in 1..=CLEARED_MAX + 5 {
                query("INSERT INTO alarms VALUES ($1, 'k', 's', 'warning', 1, 1, NULL, 'm', 'h')")
                    .bind(id)
                    .execute(&mut transaction)
                    .await
                    .unwrap();
            }
            transaction.commit().await.unwrap();
            state.prune_alarms(Timestamp(0)).await.unwrap();
            let left = state.cleared_alarms().await.unwrap();
            assert_eq!((left.len() as i64, left[0].id), (CLEARED_MAX, 6));
        }
    }

    #[tokio::test]
    async fn what_is_to_be_posted_waits_in_order() {
        for database in databases().await {
            let state = database.open().await;
            let first = state.add_notice(Timestamp(5), "{}").await.unwrap();
            let second = state.add_notice(Timestamp(6), "[]").await.unwrap();
            state.remove_notice(first).await.unwrap();
            let third = state.add_notice(Timestamp(7), "{}").await.unwrap();
            let notices = state.notices().await.unwrap();
            assert_eq!(notices.iter().map(|notice| notice.sequence).collect::<Vec<_>>(), [second, third]);
            assert_eq!((notices[0].queued_at, notices[0].document.as_str()), (6, "[]"));
        }
    }
}
