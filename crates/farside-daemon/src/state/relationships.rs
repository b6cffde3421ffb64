//! Relationships of both sides.

use async_trait::async_trait;
use farside_engine::{ContentRoot, VolumeName};
use farside_link::{Priority, Rules, Window};
use farside_mirror::{
    Ending, EndingStore, LogEntry, MirrorError, MirrorOptions, Overtaken, Past, Relationship,
    RelationshipStore, Released, Retention, Schedule, SourceRelationship, SourceStore, SwapMark,
    retention::KeptPoint,
};
use farside_transfer::TransferReport;
use farside_transfer::protocol::convert::Upstream;
use uuid::Uuid;

use super::rows::{from_row, nanoseconds, peer_id, time, uuid};
use super::statement::{Executor, query, query_as, query_scalar};
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

/// In the place of a schedule: there was one, in a database that was lost.
const SCHEDULE_LOST: &str = "lost";

struct Row {
    id: Vec<u8>,
    peer: Vec<u8>,
    source: String,
    pool: String,
    volume: String,
    schedule: Option<String>,
    quiesced: bool,
    broken_off_at: Option<i64>,
    resync_pending: bool,
    swap: Option<String>,
    swap_with: Option<Vec<u8>>,
    swap_ended: Option<String>,
    role_change: i64,
    throttle: Option<String>,
    window: Option<i64>,
    low_priority: bool,
    paths: String,
    origin: Option<Vec<u8>>,
    told: bool,
    ended_there: bool,
    retention: Option<String>,
    past: Option<Vec<u8>>,
    mirror_group: Option<String>,
}
from_row!(Row {
    id,
    peer,
    source,
    pool,
    volume,
    schedule,
    quiesced,
    broken_off_at,
    resync_pending,
    swap,
    swap_with,
    swap_ended,
    role_change,
    throttle,
    window,
    low_priority,
    paths,
    origin,
    told,
    ended_there,
    retention,
    past,
    mirror_group
});

impl Row {
    fn relationship(self) -> Result<Relationship, StateError> {
        Ok(Relationship {
            id: uuid(&self.id)?,
            peer: peer_id(&self.peer)?,
            source: volume_name(&self.source)?,
            schedule_lost: self.schedule.as_deref() == Some(SCHEDULE_LOST),
            schedule: schedule(self.schedule.as_deref(), &self.pool, &self.volume),
            retention: retention(self.retention.as_deref(), &self.pool, &self.volume),
            group: self.mirror_group,
            past: self.past.as_deref().map(Past::from_bytes).unwrap_or_default(),
            options: MirrorOptions {
                throttle: throttle(self.throttle.as_deref(), &self.pool, &self.volume),
                window: self.window.map_or(Window::Auto, |bytes| Window::Bytes(bytes.unsigned_abs())),
                priority: if self.low_priority { Priority::Low } else { Priority::Normal },
                paths: self
                    .paths
                    .split_ascii_whitespace()
                    .map(|path| {
                        path.parse().map_err(|_| StateError::Row("invalid path in the state database"))
                    })
                    .collect::<Result<_, _>>()?,
            },
            destination: VolumeName { pool: self.pool, volume: self.volume },
            quiesced: self.quiesced,
            broken_off_at: self.broken_off_at.map(time),
            resync_pending: self.resync_pending,
            swap: swap_mark(self.swap.as_deref(), self.swap_with.as_deref(), self.swap_ended.as_deref())?,
            role_change: u64::try_from(self.role_change)
                .map_err(|_| StateError::Row("the number of a role change is negative"))?,
            upstream: upstream(self.origin.as_deref()),
            told: self.told,
            ended_there: self.ended_there,
        })
    }
}

/// Where the source stands, as its row has it. One that cannot be read is told again with the next transfer.
fn upstream(bytes: Option<&[u8]>) -> Upstream {
    bytes.and_then(Upstream::from_bytes).unwrap_or_default()
}

fn swap_mark(
    word: Option<&str>,
    with: Option<&[u8]>,
    ended: Option<&str>,
) -> Result<Option<SwapMark>, StateError> {
    let with = with.map(uuid).transpose()?;
    Ok(match (word, with, ended) {
        (None, ..) => None,
        (Some("swapping"), Some(reverse), None) => Some(SwapMark::Swapping { reverse }),
        (Some("swapping"), Some(reverse), Some("taken-over")) => Some(SwapMark::TakenOver { reverse }),
        (Some("swapping"), Some(reverse), Some("given-up")) => Some(SwapMark::GivenUp { reverse }),
        (Some("prepared"), Some(of), _) => Some(SwapMark::Prepared { of, is_new: false }),
        (Some("prepared-new"), Some(of), _) => Some(SwapMark::Prepared { of, is_new: true }),
        _ => return Err(StateError::Row("a role change is neither swapping nor prepared")),
    })
}

/// A schedule as its row has it. One that cannot be read must not keep the mirror from being broken off: it is logged,
/// and the mirror waits to be asked.
fn schedule(text: Option<&str>, pool: &str, volume: &str) -> Schedule {
    let text = text.filter(|text| *text != SCHEDULE_LOST);
    text.map_or(Ok(Schedule::OnRequest), str::parse).unwrap_or_else(|error| {
        tracing::error!(
            volume = %format_args!("{pool}/{volume}"), schedule = text, %error,
            "the stored schedule is invalid: this mirror has no scheduled updates. The replica is unchanged. Set it \
             again: farside mirror set"
        );
        Schedule::OnRequest
    })
}

/// A throttle as its row has it; one that cannot be read does not keep the mirror from anything.
fn throttle(text: Option<&str>, pool: &str, volume: &str) -> Rules {
    text.map_or(Ok(Rules::default()), str::parse).unwrap_or_else(|error| {
        tracing::error!(
            volume = %format_args!("{pool}/{volume}"), throttle = text, %error,
            "the stored throttle is invalid: this mirror is not limited. Set it again: farside mirror set"
        );
        Rules::default()
    })
}

/// Retention as its row has it; with one that cannot be read nothing that is kept goes.
fn retention(text: Option<&str>, pool: &str, volume: &str) -> Retention {
    text.map_or(Ok(Retention::default()), str::parse).unwrap_or_else(|error| {
        tracing::error!(
            volume = %format_args!("{pool}/{volume}"), retention = text, %error,
            "the stored retention is invalid: what is kept stays, and new points are not kept. Set it again: farside mirror set"
        );
        Retention::default()
    })
}

fn volume_name(text: &str) -> Result<VolumeName, StateError> {
    text.parse().map_err(|_| StateError::Row("a volume's name is not POOL/VOL"))
}

fn content_root(bytes: &[u8]) -> Result<ContentRoot, StateError> {
    bytes.try_into().map(ContentRoot).map_err(|_| StateError::Row("a content root has not 16 bytes"))
}

/// A state that was moved refuses, and its words say what to do; whatever else is wrong is a failure.
impl From<StateError> for MirrorError {
    fn from(error: StateError) -> MirrorError {
        match error {
            StateError::Moved { .. } => MirrorError::State(error.to_string()),
            other => MirrorError::Store(other.to_string()),
        }
    }
}

fn failed(error: StateError) -> MirrorError {
    error.into()
}

impl State {
    /// The relationships whose replica is at this site, by name of the replica; of one pool, or of all.
    pub(crate) async fn relationships(&self, pool: Option<&str>) -> Result<Vec<Relationship>, StateError> {
        let rows: Vec<Row> = query_as(
            "SELECT id, peer, source, pool, volume, schedule, quiesced, broken_off_at, resync_pending, swap, \
             swap_with, swap_ended, role_change, throttle, \"window\", low_priority, paths, origin, told, ended_there, retention, mirror_group, past \
             FROM relationships WHERE $1 IS NULL OR pool = $1 ORDER BY pool, volume",
        )
        .bind(pool)
        .fetch_all(&self.readers)
        .await?;
        rows.into_iter().map(Row::relationship).collect()
    }

    /// The replica of one; none: there is no such relationship. Of the others nothing is read: this is asked for with each update.
    async fn replica_of(&self, id: Uuid) -> Result<Option<String>, StateError> {
        query_scalar("SELECT pool || '/' || volume FROM relationships WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&self.readers)
            .await
    }

    /// Adds or replaces one.
    pub(crate) async fn save_relationship(&self, relationship: &Relationship) -> Result<(), StateError> {
        let schedule = match &relationship.schedule {
            Schedule::OnRequest if relationship.schedule_lost => Some(SCHEDULE_LOST.to_owned()),
            Schedule::OnRequest => None,
            schedule => Some(schedule.to_string()),
        };
        let options = &relationship.options;
        let (swap, swap_with, swap_ended) = match relationship.swap {
            None => (None, None, None),
            Some(SwapMark::Swapping { reverse }) => (Some("swapping"), Some(reverse), None),
            Some(SwapMark::TakenOver { reverse }) => (Some("swapping"), Some(reverse), Some("taken-over")),
            Some(SwapMark::GivenUp { reverse }) => (Some("swapping"), Some(reverse), Some("given-up")),
            Some(SwapMark::Prepared { of, is_new: false }) => (Some("prepared"), Some(of), None),
            Some(SwapMark::Prepared { of, is_new: true }) => (Some("prepared-new"), Some(of), None),
        };
        // Of a replica there is one.
        let mut transaction = self.writer.begin().await?;
        query("DELETE FROM relationships WHERE pool = $1 AND volume = $2 AND id <> $3")
            .bind(&relationship.destination.pool)
            .bind(&relationship.destination.volume)
            .bind(relationship.id.as_bytes().as_slice())
            .execute(&mut transaction)
            .await?;
        query(
            "INSERT INTO relationships (id, peer, source, pool, volume, schedule, quiesced, \
             broken_off_at, resync_pending, swap, swap_with, swap_ended, role_change, throttle, \"window\", low_priority, \
             paths, origin, told, ended_there, retention, mirror_group, past) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23) \
             ON CONFLICT (id) DO UPDATE SET peer = excluded.peer, source = excluded.source, pool = excluded.pool, volume = excluded.volume, \
             schedule = excluded.schedule, quiesced = excluded.quiesced, broken_off_at = excluded.broken_off_at, \
             resync_pending = excluded.resync_pending, swap = excluded.swap, swap_with = excluded.swap_with, \
             swap_ended = excluded.swap_ended, role_change = excluded.role_change, throttle = excluded.throttle, \
             \"window\" = excluded.\"window\", low_priority = excluded.low_priority, paths = excluded.paths, \
             origin = excluded.origin, told = excluded.told, ended_there = excluded.ended_there, retention = excluded.retention, \
             mirror_group = excluded.mirror_group, past = excluded.past",
        )
        .bind(relationship.id.as_bytes().as_slice())
        .bind(relationship.peer.0.as_slice())
        .bind(relationship.source.to_string())
        .bind(&relationship.destination.pool)
        .bind(&relationship.destination.volume)
        .bind(schedule)
        .bind(relationship.quiesced)
        .bind(relationship.broken_off_at.map(nanoseconds))
        .bind(relationship.resync_pending)
        .bind(swap)
        .bind(swap_with.map(|id| id.as_bytes().to_vec()))
        .bind(swap_ended)
        .bind(i64::try_from(relationship.role_change).unwrap_or(i64::MAX))
        .bind((options.throttle != Rules::default()).then(|| options.throttle.to_string()))
        .bind(match options.window {
            Window::Auto => None,
            Window::Bytes(bytes) => Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
        })
        .bind(options.priority == Priority::Low)
        .bind(options.paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        .bind(relationship.upstream.to_bytes())
        .bind(relationship.told)
        .bind(relationship.ended_there)
        .bind((!relationship.retention.is_none()).then(|| relationship.retention.to_string()))
        .bind(&relationship.group)
        .bind(relationship.past.to_bytes())
        .execute(&mut transaction)
        .await?;
        transaction.commit().await
    }

    /// Forgets one; its history stays.
    pub(crate) async fn remove_relationship(&self, id: Uuid) -> Result<(), StateError> {
        query("DELETE FROM relationships WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .execute(&self.writer)
            .await?;
        Ok(())
    }
}

impl State {
    /// Forgets a relationship, and remembers what its source is to be told: both or neither.
    async fn end_relationship(&self, ending: &Ending) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        query("DELETE FROM relationships WHERE id = $1")
            .bind(ending.relationship.as_bytes().as_slice())
            .execute(&mut transaction)
            .await?;
        put_ending(&mut transaction, ending).await?;
        transaction.commit().await
    }
}

async fn put_ending(on: impl Executor, ending: &Ending) -> Result<(), StateError> {
    query(
        "INSERT INTO endings (relationship, peer, at, request) VALUES ($1, $2, $3, $4) ON CONFLICT (relationship) \
         DO UPDATE SET peer = excluded.peer, at = excluded.at, request = excluded.request",
    )
    .bind(ending.relationship.as_bytes().as_slice())
    .bind(ending.peer.0.as_slice())
    .bind(nanoseconds(ending.at))
    .bind(ending.message_bytes())
    .execute(on)
    .await?;
    Ok(())
}

#[async_trait]
impl EndingStore for State {
    async fn endings(&self) -> Result<Vec<Ending>, MirrorError> {
        let rows: Vec<(Vec<u8>, Vec<u8>, i64, Vec<u8>)> =
            query_as("SELECT relationship, peer, at, request FROM endings ORDER BY at")
                .fetch_all(&self.readers)
                .await
                .map_err(failed)?;
        rows.into_iter()
            .map(|(relationship, peer, at, request)| {
                let message = Ending::message_of(&request);
                let message =
                    message.ok_or_else(|| failed(StateError::Row("an ending that is no request")))?;
                let relationship = uuid(&relationship).map_err(failed)?;
                Ok(Ending { relationship, peer: peer_id(&peer).map_err(failed)?, at: time(at), message })
            })
            .collect()
    }

    async fn keep_ending(&self, ending: &Ending) -> Result<(), MirrorError> {
        put_ending(&self.writer, ending).await.map_err(failed)
    }

    async fn remove_ending(&self, relationship: Uuid) -> Result<(), MirrorError> {
        query("DELETE FROM endings WHERE relationship = $1")
            .bind(relationship.as_bytes().as_slice())
            .execute(&self.writer)
            .await
            .map_err(failed)?;
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

    async fn knows(&self, id: Uuid) -> Result<bool, MirrorError> {
        Ok(self.state.replica_of(id).await.map_err(failed)?.is_some())
    }

    async fn forget(&self, id: Uuid) -> Result<(), MirrorError> {
        self.state.remove_relationship(id).await.map_err(failed)
    }

    async fn end(&self, ending: &Ending) -> Result<(), MirrorError> {
        self.state.end_relationship(ending).await.map_err(failed)
    }

    async fn kept_points(&self, id: Uuid) -> Result<Vec<KeptPoint>, MirrorError> {
        self.state.kept_points(id).await.map_err(failed)
    }

    async fn note_kept(&self, id: Uuid, noted: &[KeptPoint]) -> Result<(), MirrorError> {
        self.state.note_kept(id, noted).await.map_err(failed)
    }

    async fn forget_kept(&self, id: Uuid, gone: &[Uuid]) -> Result<(), MirrorError> {
        self.state.forget_kept(id, gone).await.map_err(failed)
    }

    async fn forget_all_kept(&self, id: Uuid) -> Result<(), MirrorError> {
        self.state.forget_all_kept(id).await.map_err(failed)
    }

    async fn append_history(&self, id: Uuid, report: &TransferReport) -> Result<(), MirrorError> {
        if let Some(replica) = self.state.replica_of(id).await.map_err(failed)? {
            metrics::transfer_ended(&replica, report);
        }
        // First: what the database does not take has ended all the same.
        self.state.tell_of_transfer(id, report);
        self.state.append_transfer(id, report).await.map_err(failed)
    }

    async fn history(&self, id: Uuid, limit: usize) -> Result<Vec<TransferReport>, MirrorError> {
        self.state.transfers_of(id, limit).await.map_err(failed)
    }

    async fn append_log(&self, entry: &LogEntry) -> Result<(), MirrorError> {
        metrics::log_line(entry);
        self.state.append_log(entry).await.map_err(failed)
    }

    async fn log(&self, volume: &VolumeName, limit: usize) -> Result<Vec<LogEntry>, MirrorError> {
        self.state.log(Some(volume), limit).await.map_err(failed)
    }
}

struct SourceRow {
    id: Vec<u8>,
    peer: Vec<u8>,
    source: String,
    destination: String,
    base: Option<Vec<u8>>,
    since: Option<i64>,
    overtaken_reported_at: Option<i64>,
    overtaken_broken_off_at: Option<i64>,
    overtaken_snapshot: Option<Vec<u8>>,
    overtaken_root: Option<Vec<u8>>,
    overtaken_fenced: bool,
    overtaken_ended: bool,
    overtaken_beyond: Option<String>,
    overtaken_follows: Option<Vec<u8>>,
    overtaken_group: Option<String>,
    overtaken_group_size: Option<i64>,
    released_at: Option<i64>,
    released_why: Option<String>,
}
from_row!(SourceRow {
    id,
    peer,
    source,
    destination,
    base,
    since,
    overtaken_reported_at,
    overtaken_broken_off_at,
    overtaken_snapshot,
    overtaken_root,
    overtaken_fenced,
    overtaken_ended,
    overtaken_beyond,
    overtaken_follows,
    overtaken_group,
    overtaken_group_size,
    released_at,
    released_why
});

impl SourceRow {
    fn relationship(self) -> Result<SourceRelationship, StateError> {
        Ok(SourceRelationship {
            id: uuid(&self.id)?,
            peer: peer_id(&self.peer)?,
            source: volume_name(&self.source)?,
            destination: volume_name(&self.destination)?,
            base: self.base.as_deref().map(uuid).transpose()?,
            since: self.since.map(time),
            overtaken: match self.overtaken_reported_at {
                None => None,
                Some(reported_at) => Some(Overtaken {
                    broken_off_at: self.overtaken_broken_off_at.map(time),
                    reported_at: time(reported_at),
                    snapshot: match (&self.overtaken_snapshot, &self.overtaken_root) {
                        (Some(snapshot), Some(root)) => Some((uuid(snapshot)?, content_root(root)?)),
                        _ => None,
                    },
                    fenced: self.overtaken_fenced,
                    ended: self.overtaken_ended,
                    beyond: self.overtaken_beyond,
                    follows: upstream(self.overtaken_follows.as_deref()).follows,
                    group: self.overtaken_group.map(|name| {
                        (name, self.overtaken_group_size.and_then(|n| n.try_into().ok()).unwrap_or(0))
                    }),
                }),
            },
            released: self
                .released_at
                .map(|at| Released { at: time(at), why: self.released_why.unwrap_or_default() }),
        })
    }
}

#[async_trait]
impl SourceStore for State {
    async fn source_relationships(&self) -> Result<Vec<SourceRelationship>, MirrorError> {
        let rows: Vec<SourceRow> =
            query_as("SELECT * FROM source_relationships").fetch_all(&self.readers).await.map_err(failed)?;
        rows.into_iter().map(|row| row.relationship().map_err(failed)).collect()
    }

    async fn save_source(&self, relationship: &SourceRelationship) -> Result<(), MirrorError> {
        let overtaken = relationship.overtaken.as_ref();
        let stands_on = overtaken.and_then(|o| o.snapshot);
        query(
            "INSERT INTO source_relationships (id, peer, source, destination, base, since, \
             overtaken_reported_at, overtaken_broken_off_at, overtaken_snapshot, overtaken_root, overtaken_fenced, overtaken_ended, \
             overtaken_beyond, overtaken_follows, overtaken_group, overtaken_group_size, released_at, released_why) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) \
             ON CONFLICT (id) DO UPDATE SET peer = excluded.peer, source = excluded.source, destination = excluded.destination, base = excluded.base, \
             since = excluded.since, overtaken_reported_at = excluded.overtaken_reported_at, \
             overtaken_broken_off_at = excluded.overtaken_broken_off_at, overtaken_snapshot = excluded.overtaken_snapshot, \
             overtaken_root = excluded.overtaken_root, overtaken_fenced = excluded.overtaken_fenced, \
             overtaken_ended = excluded.overtaken_ended, overtaken_beyond = excluded.overtaken_beyond, \
             overtaken_follows = excluded.overtaken_follows, overtaken_group = excluded.overtaken_group, overtaken_group_size = excluded.overtaken_group_size, released_at = excluded.released_at, \
             released_why = excluded.released_why",
        )
        .bind(relationship.id.as_bytes().as_slice())
        .bind(relationship.peer.0.as_slice())
        .bind(relationship.source.to_string())
        .bind(relationship.destination.to_string())
        .bind(relationship.base.map(|base| base.as_bytes().to_vec()))
        .bind(relationship.since.map(nanoseconds))
        .bind(overtaken.map(|o| nanoseconds(o.reported_at)))
        .bind(overtaken.and_then(|o| o.broken_off_at).map(nanoseconds))
        .bind(stands_on.map(|(snapshot, _)| snapshot.as_bytes().to_vec()))
        .bind(stands_on.map(|(_, root)| root.0.to_vec()))
        .bind(overtaken.is_some_and(|o| o.fenced))
        .bind(overtaken.is_some_and(|o| o.ended))
        .bind(overtaken.and_then(|o| o.beyond.as_ref()))
        .bind(overtaken.and_then(|o| Upstream { follows: o.follows.clone(), overtaken: None }.to_bytes()))
        .bind(overtaken.and_then(|o| o.group.as_ref()).map(|(name, _)| name))
        .bind(overtaken.and_then(|o| o.group.as_ref()).map(|(_, size)| i64::from(*size)))
        .bind(relationship.released.as_ref().map(|released| nanoseconds(released.at)))
        .bind(relationship.released.as_ref().map(|released| &released.why))
        .execute(&self.writer)
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn remove_source(&self, id: Uuid) -> Result<(), MirrorError> {
        query("DELETE FROM source_relationships WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .execute(&self.writer)
            .await
            .map_err(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farside_peer::PeerId;
    use farside_platform::Timestamp;

    use farside_transfer::protocol::convert::{Place, UpstreamOvertaken};
    use farside_transfer::protocol::{Body, Release};

    use super::*;
    use crate::state::test_databases::databases;

    fn relationship(id: u128, destination: &str) -> Relationship {
        Relationship::new(
            Uuid::from_u128(id),
            PeerId([3; 32]),
            "a/v".parse().unwrap(),
            destination.parse().unwrap(),
            Schedule::Every(Duration::from_millis(1500)),
        )
    }

    #[tokio::test]
    async fn each_pool_sees_its_own() {
        for database in databases().await {
            let state = database.open().await;
            let (p, q) =
                (PoolRelationships::new(state.clone(), "p"), PoolRelationships::new(state.clone(), "q"));
            let mut first = relationship(1, "p/v");
            p.save(&first).await.unwrap();
            q.save(&relationship(2, "q/v")).await.unwrap();
            first.quiesced = true;
            first.schedule = Schedule::objective(Duration::from_secs(30)).unwrap();
            p.save(&first).await.unwrap();
            assert_eq!(p.relationships().await.unwrap(), vec![first.clone()]);
            first.schedule = Schedule::cron("*/15 * * * *", "Europe/Berlin").unwrap();
            p.save(&first).await.unwrap();
            assert_eq!(p.relationships().await.unwrap(), vec![first.clone()]);
            first.schedule = Schedule::OnRequest;
            first.schedule_lost = true;
            first.broken_off_at = Some(Timestamp(77));
            first.resync_pending = true;
            first.role_change = 7;
            first.group = Some("shop".into());
            first.retention = "floor=2,hourly=24".parse().unwrap();
            let (reverse, of) = (Uuid::from_u128(8), Uuid::from_u128(9));
            for mark in [
                SwapMark::Prepared { of, is_new: true },
                SwapMark::Prepared { of, is_new: false },
                SwapMark::GivenUp { reverse },
                SwapMark::TakenOver { reverse },
                SwapMark::Swapping { reverse },
            ] {
                first.swap = Some(mark);
                p.save(&first).await.unwrap();
                assert_eq!(p.relationships().await.unwrap(), vec![first.clone()]);
            }
            assert_eq!(state.relationships(None).await.unwrap(), vec![first, relationship(2, "q/v")]);
            assert!(p.knows(Uuid::from_u128(2)).await.unwrap(), "a mirror of another pool");
            assert!(!p.knows(Uuid::from_u128(3)).await.unwrap());
            state.remove_relationship(Uuid::from_u128(1)).await.unwrap();
            assert_eq!(p.relationships().await.unwrap(), vec![]);
        }
    }

    /// Ten thousand others would be read with each update of one, and one of them that cannot be read would take its history.
    #[tokio::test]
    async fn history_of_a_mirror_looks_at_no_other_one() {
        for database in databases().await {
            let state = database.open().await;
            let of_pool = PoolRelationships::new(state.clone(), "p");
            of_pool.save(&relationship(1, "p/v")).await.unwrap();
            of_pool.save(&relationship(2, "p/w")).await.unwrap();
            let spoil = "UPDATE relationships SET source = 'nowhere' WHERE volume = 'w'";
            query(spoil).execute(&state.writer).await.unwrap();
            let ended = crate::state::transfers::tests::report(1);
            of_pool.append_history(Uuid::from_u128(1), &ended).await.unwrap();
            assert_eq!(of_pool.history(Uuid::from_u128(1), 9).await.unwrap(), vec![ended]);
            assert!(of_pool.knows(Uuid::from_u128(2)).await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_schedule_that_cannot_be_read_leaves_the_mirror() {
        for database in databases().await {
            let state = database.open().await;
            state.save_relationship(&relationship(1, "p/v")).await.unwrap();
            let spoil = "UPDATE relationships SET schedule = '0 0 * * * Gone/Land'";
            query(spoil).execute(&state.writer).await.unwrap();
            let read = state.relationships(None).await.unwrap();
            assert_eq!((read.len(), &read[0].schedule), (1, &Schedule::OnRequest));
        }
    }

    #[tokio::test]
    async fn a_mirror_that_ends_leaves_what_is_to_be_told() {
        for database in databases().await {
            let state = database.open().await;
            let of_pool = PoolRelationships::new(state.clone(), "p");
            let mut mirror = relationship(1, "p/v");
            mirror.upstream.overtaken =
                Some(UpstreamOvertaken { by: "b:q/v".into(), at: Timestamp(9), what: Some("a:p/v".into()) });
            mirror.upstream.follows = vec![Place { site: [4; 32], volume: "q/v".parse().unwrap() }];
            (mirror.told, mirror.ended_there) = (true, true);
            of_pool.save(&mirror).await.unwrap();
            assert_eq!(of_pool.relationships().await.unwrap(), vec![mirror.clone()]);
            let release = Release {
                relationship: mirror.id.as_bytes().to_vec(),
                volume: "a/v".into(),
                destination: "q/r".into(),
            };
            let ending = Ending {
                relationship: mirror.id,
                peer: mirror.peer,
                at: Timestamp(3),
                message: Body::Release(release),
            };
            of_pool.end(&ending).await.unwrap();
            assert_eq!(of_pool.relationships().await.unwrap(), vec![]);
            assert_eq!(state.endings().await.unwrap(), vec![ending]);
            state.remove_ending(mirror.id).await.unwrap();
            assert_eq!(state.endings().await.unwrap(), vec![]);
        }
    }

    #[tokio::test]
    async fn sources_come_back_as_they_were() {
        for database in databases().await {
            let state = database.open().await;
            let (volume, replica) = ("a/v".parse().unwrap(), "b/v".parse().unwrap());
            let mut source = SourceRelationship::new(Uuid::from_u128(1), PeerId([3; 32]), volume, replica);
            state.save_source(&source).await.unwrap();
            source.base = Some(Uuid::from_u128(9));
            source.since = Some(Timestamp(5));
            source.overtaken = Some(Overtaken {
                broken_off_at: None,
                reported_at: Timestamp(6),
                snapshot: Some((Uuid::from_u128(4), ContentRoot([9; 16]))),
                fenced: true,
                ended: true,
                beyond: Some("c:r/v".into()),
                follows: vec![Place { site: [4; 32], volume: "r/v".parse().unwrap() }],
                group: Some(("shop".into(), 3)),
            });
            source.released = Some(Released { at: Timestamp(7), why: "it was old".into() });
            state.save_source(&source).await.unwrap();
            assert_eq!(state.source_relationships().await.unwrap(), vec![source]);
            state.remove_source(Uuid::from_u128(1)).await.unwrap();
            assert_eq!(state.source_relationships().await.unwrap(), vec![]);
        }
    }
}
