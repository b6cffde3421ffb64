//! The log of mirrors, bounded for each volume.

use farside_engine::VolumeName;
use farside_mirror::{LogEntry, LogEvent};

use super::rows::{from_row, nanoseconds, time, uuid};
use super::{State, StateError};

/// Lines kept for each volume; the oldest go first. A mirror that is updated every second writes three for each update,
/// so this is some three hours of it, and 3 MB of rows.
const LOG_MAX: i64 = 30_000;

struct Row {
    relationship: Vec<u8>,
    volume: String,
    at: i64,
    event: String,
    detail: Option<String>,
    kind: Option<String>,
    transfer: Option<Vec<u8>>,
}
from_row!(Row { relationship, volume, at, event, detail, kind, transfer });

impl Row {
    fn entry(self) -> Result<LogEntry, StateError> {
        let unreadable = || StateError::Row("a line of the log cannot be read");
        Ok(LogEntry {
            at: time(self.at),
            relationship: uuid(&self.relationship)?,
            volume: self.volume.parse().map_err(|_| unreadable())?,
            event: LogEvent::parse(&self.event, self.detail.as_deref()).ok_or_else(unreadable)?,
            kind: self.kind.map(|kind| kind.parse().map_err(|()| unreadable())).transpose()?,
            transfer: self.transfer.as_deref().map(uuid).transpose()?,
        })
    }
}

impl State {
    /// Adds a line, in the same transaction releasing the oldest of its volume.
    pub(crate) async fn append_log(&self, entry: &LogEntry) -> Result<(), StateError> {
        let volume = entry.volume.to_string();
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query(
            "INSERT INTO log (relationship, volume, at, event, detail, kind, transfer) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(entry.relationship.as_bytes().as_slice())
        .bind(&volume)
        .bind(nanoseconds(entry.at))
        .bind(entry.event.name())
        .bind(entry.event.detail())
        .bind(entry.kind.map(|kind| kind.to_string()))
        .bind(entry.transfer.map(|transfer| transfer.as_bytes().to_vec()))
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "DELETE FROM log WHERE volume = ?1 AND sequence <= \
             (SELECT sequence FROM log WHERE volume = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)",
        )
        .bind(&volume)
        .bind(LOG_MAX)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }

    /// The newest `limit` lines about one replica, or about all, newest first.
    pub(crate) async fn log(
        &self,
        volume: Option<&VolumeName>,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StateError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT relationship, volume, at, event, detail, kind, transfer FROM log \
             WHERE ?1 IS NULL OR volume = ?1 ORDER BY sequence DESC LIMIT ?2",
        )
        .bind(volume.map(ToString::to_string))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&self.readers)
        .await?;
        rows.into_iter().map(Row::entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use farside_mirror::RequestedBy;
    use farside_platform::Timestamp;
    use farside_transfer::TransferKind;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn lines_come_back_as_they_were_newest_first() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let line = |number: u64, event, volume: &str| LogEntry {
            at: Timestamp(number),
            relationship: Uuid::from_u128(7),
            volume: volume.parse().unwrap(),
            event,
            kind: Some(TransferKind::Resync),
            transfer: (number > 1).then(|| Uuid::from_u128(9)),
        };
        let lines = [
            line(1, LogEvent::Request { by: RequestedBy::Person }, "q/r"),
            line(2, LogEvent::End { bytes: 5 }, "q/r"),
            line(3, LogEvent::Abort { reason: "no".into() }, "q/other"),
        ];
        for entry in &lines {
            state.append_log(entry).await.unwrap();
        }
        let of = lines[0].volume.clone();
        assert_eq!(state.log(Some(&of), 10).await.unwrap(), [lines[1].clone(), lines[0].clone()]);
        assert_eq!(state.log(None, 1).await.unwrap(), [lines[2].clone()]);
    }
}
