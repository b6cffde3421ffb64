//! Who is pinned.

use std::time::Duration;

use async_trait::async_trait;
use farside_link::{LinkOptions, PathsMode};
use farside_peer::{PeerId, PeerRecord, PeerRegistry, SessionError};

use sqlx::AssertSqlSafe;

use super::rows::{from_row, nanoseconds, peer_id, time};
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};
use crate::peers::is_peer_name;

/// [`PathsMode`] as the table has it.
const MULTIPLEX: &str = "multiplex";
const FAILOVER: &str = "failover";

struct Row {
    id: Vec<u8>,
    name: String,
    address: Option<String>,
    added_at: i64,
    paths: String,
    paths_mode: String,
    dscp: Option<i64>,
    rate: Option<i64>,
    keepalive: Option<i64>,
    other_addresses: String,
}
from_row!(Row { id, name, address, added_at, paths, paths_mode, dscp, rate, keepalive, other_addresses });

/// The columns of a [`Row`].
const COLUMNS: &str =
    "id, name, address, added_at, paths, paths_mode, dscp, rate, keepalive, other_addresses";

impl Row {
    fn record(self) -> Result<PeerRecord, StateError> {
        Ok(PeerRecord {
            id: peer_id(&self.id)?,
            name: self.name,
            address: self.address,
            link: LinkOptions {
                paths: self
                    .paths
                    .split_ascii_whitespace()
                    .map(|path| {
                        path.parse().map_err(|_| StateError::Row("invalid path in the state database"))
                    })
                    .collect::<Result<_, _>>()?,
                mode: match self.paths_mode.as_str() {
                    MULTIPLEX => PathsMode::Multiplex,
                    FAILOVER => PathsMode::Failover,
                    _ => return Err(StateError::Row("invalid path mode in the state database")),
                },
                dscp: self
                    .dscp
                    .map(|dscp| u8::try_from(dscp).map_err(|_| StateError::Row("a DSCP beyond 255")))
                    .transpose()?,
                rate: self
                    .rate
                    .map(|rate| u64::try_from(rate).map_err(|_| StateError::Row("a negative rate")))
                    .transpose()?,
                keepalive: self
                    .keepalive
                    .map(|milliseconds| {
                        u64::try_from(milliseconds).map_err(|_| StateError::Row("a negative keepalive"))
                    })
                    .transpose()?
                    .map(Duration::from_millis),
                others: self.other_addresses.split_ascii_whitespace().map(str::to_owned).collect(),
            },
            added_at: time(self.added_at),
        })
    }
}

fn local(error: impl std::fmt::Display) -> SessionError {
    SessionError::Local(error.to_string())
}

/// The name, made into one that can be said on the command line: a peer calls itself what it likes.
fn printable(name: &str, id: PeerId) -> String {
    if is_peer_name(name) {
        return name.to_owned();
    }
    let letter = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '-' };
    let said: String = name.chars().map(letter).collect();
    let said = said.trim_start_matches(['-', '.']);
    if is_peer_name(said) { said.to_owned() } else { format!("peer-{id:?}") }
}

#[async_trait]
impl PeerRegistry for State {
    async fn list(&self) -> Result<Vec<PeerRecord>, SessionError> {
        let rows: Vec<Row> = query_as(AssertSqlSafe(format!("SELECT {COLUMNS} FROM peers ORDER BY id")))
            .fetch_all(&self.readers)
            .await
            .map_err(local)?;
        rows.into_iter().map(|row| row.record().map_err(local)).collect()
    }

    async fn lookup(&self, id: PeerId) -> Result<Option<PeerRecord>, SessionError> {
        let row: Option<Row> = query_as(AssertSqlSafe(format!("SELECT {COLUMNS} FROM peers WHERE id = $1")))
            .bind(id.0.as_slice())
            .fetch_optional(&self.readers)
            .await
            .map_err(local)?;
        row.map(|row| row.record().map_err(local)).transpose()
    }

    async fn pin(&self, record: PeerRecord) -> Result<PeerRecord, SessionError> {
        let name = printable(&record.name, record.id);
        let mut transaction = self.writer.begin().await.map_err(local)?;
        let taken: Option<Vec<u8>> = query_scalar("SELECT id FROM peers WHERE name = $1 AND id <> $2")
            .bind(&name)
            .bind(record.id.0.as_slice())
            .fetch_optional(&mut transaction)
            .await
            .map_err(local)?;
        // The key tells apart what the name does not.
        let name = if taken.is_some() { format!("{name}-{:?}", record.id) } else { name };
        let kept: Row = query_as(
            "INSERT INTO peers (id, name, address, added_at, paths, paths_mode, dscp, rate, keepalive, other_addresses) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO UPDATE SET name = $2, address = $3, \
             paths = $5, paths_mode = $6, dscp = $7, rate = $8, keepalive = $9, other_addresses = $10 \
             RETURNING id, name, address, added_at, paths, paths_mode, dscp, rate, keepalive, other_addresses",
        )
        .bind(record.id.0.as_slice())
        .bind(name)
        .bind(record.address)
        .bind(nanoseconds(record.added_at))
        .bind(record.link.paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        .bind(match record.link.mode {
            PathsMode::Multiplex => MULTIPLEX,
            PathsMode::Failover => FAILOVER,
        })
        .bind(record.link.dscp)
        // A rate beyond 2^63 bytes per second is no bound.
        .bind(record.link.rate.and_then(|rate| i64::try_from(rate).ok()))
        .bind(record.link.keepalive.and_then(|keepalive| u32::try_from(keepalive.as_millis()).ok()))
        .bind(record.link.others.join(" "))
        .fetch_one(&mut transaction)
        .await
        .map_err(local)?;
        transaction.commit().await.map_err(local)?;
        self.peers_changed.send_replace(());
        kept.record().map_err(local)
    }

    async fn unpin(&self, id: PeerId) -> Result<bool, SessionError> {
        let removed = query("DELETE FROM peers WHERE id = $1")
            .bind(id.0.as_slice())
            .execute(&self.writer)
            .await
            .map_err(local)?;
        self.peers_changed.send_replace(());
        Ok(removed > 0)
    }
}

#[cfg(test)]
mod tests {
    use farside_platform::Timestamp;

    use super::*;
    use crate::state::test_databases::databases;

    fn record(id: u8, name: &str, address: Option<&str>) -> PeerRecord {
        PeerRecord {
            id: PeerId([id; 32]),
            name: name.into(),
            address: address.map(Into::into),
            link: LinkOptions::default(),
            added_at: Timestamp(id.into()),
        }
    }

    #[tokio::test]
    async fn what_a_peer_calls_itself_can_be_said_on_the_command_line() {
        for database in databases().await {
            let book = database.open().await;
            let names =
                [".x", "@x", "a:b", "--yes", "..", "böse", "\u{202e}evil", "x\u{1b}[2J", "x/../y", ""];
            for (number, name) in names.into_iter().enumerate() {
                let kept = book.pin(record(number as u8, name, None)).await.unwrap();
                assert!(is_peer_name(&kept.name), "{name:?} became {:?}", kept.name);
            }
            let kept = book.list().await.unwrap();
            let of =
                |number: u8| kept.iter().find(|peer| peer.id == PeerId([number; 32])).unwrap().name.clone();
            assert_eq!((of(0).as_str(), of(2).as_str(), of(3).as_str()), ("x", "a-b", "yes"));
            assert!(of(1).starts_with("x-01"), "the second x: {}", of(1));
            assert!(of(4).starts_with("peer-04"), "{}", of(4));
        }
    }

    #[tokio::test]
    async fn a_name_is_made_unique_and_the_first_date_stays() {
        for database in databases().await {
            let book = database.open().await;
            assert_eq!(book.pin(record(1, "north", None)).await.unwrap(), record(1, "north", None));
            let second = book.pin(record(2, "north", None)).await.unwrap();
            assert!(second.name.starts_with("north-02"), "{}", second.name);
            let again = PeerRecord { added_at: Timestamp(99), ..record(1, "north", Some("h:1")) };
            assert_eq!(book.pin(again).await.unwrap(), record(1, "north", Some("h:1")));
            assert_eq!(book.list().await.unwrap().len(), 2);
            let changed = book.peers_changed();
            let mut linked = record(1, "north", Some("h:1"));
            linked.link = LinkOptions {
                paths: vec!["10.0.0.1=h:1".parse().unwrap(), "h2:1".parse().unwrap()],
                mode: PathsMode::Failover,
                dscp: Some(10),
                rate: Some(1_250_000),
                keepalive: Some(Duration::from_secs(30)),
                others: vec!["h3:1".into(), "h4:1".into()],
            };
            assert_eq!(book.pin(linked.clone()).await.unwrap(), linked);
            assert_eq!(book.lookup(PeerId([1; 32])).await.unwrap(), Some(linked));
            assert!(book.unpin(PeerId([1; 32])).await.unwrap());
            assert!(!book.unpin(PeerId([1; 32])).await.unwrap());
            assert!(changed.has_changed().unwrap(), "whoever follows the peers is told");
            assert_eq!(book.lookup(PeerId([1; 32])).await.unwrap(), None);
        }
    }
}
