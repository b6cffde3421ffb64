//! What this side holds of the same peer's other volumes, offered to the source as bases: a frame may be coded against it.
//!
//! Offered is, of each other mirror from the same peer into the same pool, the version that its replica published last: that
//! came from this very source, which keeps it as that mirror's base. It is kept open from the offer until the source lets go
//! of it, at the latest until the step is over: then a frame that names it can be decoded whatever becomes of that mirror.
//! Nothing of it is durable, and nothing depends on it: without it the step is asked for again, and costs more bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_engine::{BLOCK_BYTES, Engine, EngineError, OpenSnapshot};
use farside_wire::OTHERS_MAX;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::MirrorError;
use crate::limits::{OTHERS_LOOKED_AT_EVERY, OTHERS_LOOKED_AT_MAX};
use crate::protocol::short_identity;
use crate::store::Relationship;

/// What is offered, to the streams of one step.
#[derive(Default)]
pub(super) struct Others {
    bases: Mutex<Bases>,
}

#[derive(Default)]
struct Bases {
    /// By the number that the stream has for each; none once it was let go.
    all: Vec<Option<OtherBase>>,
    looked_at: Option<Instant>,
}

struct OtherBase {
    of: Relationship,
    snapshot: Uuid,
    open: Arc<dyn OpenSnapshot>,
}

impl Others {
    /// Those of the mirrors `all` that may serve one of `own`'s transfers; if there are too many, those whose names are next to
    /// its own. Blocks.
    pub(super) fn find(engine: &dyn Engine, own: &Relationship, all: Vec<Relationship>) -> Others {
        let is_other = |r: &Relationship| {
            r.id != own.id && r.peer == own.peer && r.destination.pool == own.destination.pool
        };
        let mut bases = Bases::default();
        let others = all.into_iter().filter(is_other).collect();
        for of in next_to(&own.destination, others, |of| &of.destination).take(OTHERS_LOOKED_AT_MAX) {
            match open(engine, &of) {
                Ok(found) => {
                    bases.all.extend(found.map(|(snapshot, open)| Some(OtherBase { of, snapshot, open })));
                }
                // Its own mirror may have let it go just now.
                Err(error) => tracing::debug!(volume = %of.destination, "not offered as a base: {error}"),
            }
            if bases.all.len() >= OTHERS_MAX.into() {
                break;
            }
        }
        Others { bases: Mutex::new(bases) }
    }

    fn bases(&self) -> MutexGuard<'_, Bases> {
        // Every change is of one place: a panic in between leaves nothing half done.
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing was offered.
    pub(super) fn is_empty(&self) -> bool {
        self.bases().all.is_empty()
    }

    /// As the header of a new stream names them; the numbers are of that stream.
    pub(super) fn offer(&self) -> Vec<u64> {
        let mut bases = self.bases();
        bases.all.retain(Option::is_some);
        bases.all.iter().flatten().map(|base| short_identity(base.snapshot)).collect()
    }

    /// The source does not name these any more.
    pub(super) fn let_go(&self, numbers: &[u8]) -> Result<(), MirrorError> {
        let mut bases = self.bases();
        for number in numbers {
            let base = bases.all.get_mut(usize::from(*number)).ok_or_else(|| {
                MirrorError::Protocol("the source lets go of a base that nobody has offered".into())
            })?;
            *base = None;
        }
        Ok(())
    }

    /// Lets go, now and then, of what is not a replica any more: a mirror that was broken off or deleted is its owner's, and a
    /// volume that is open cannot be deleted. Blocks.
    pub(super) fn look(&self, engine: &dyn Engine) {
        let mut bases = self.bases();
        if bases.looked_at.is_some_and(|at| at.elapsed() < OTHERS_LOOKED_AT_EVERY) {
            return;
        }
        bases.looked_at = Some(Instant::now());
        for base in &mut bases.all {
            base.take_if(|base| !matches!(is_replica(engine, &base.of), Ok(true)));
        }
    }

    /// Reads of one of them, from a block on.
    pub(super) fn read(&self, number: u8, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        let bases = self.bases();
        let base = bases.all.get(usize::from(number)).ok_or("nobody has offered such a volume")?;
        let base = base.as_ref().ok_or("the other volume that a frame names was let go")?;
        let read = base.open.read(position * BLOCK_BYTES, buffer);
        read.map_err(|error| format!("{}: {error}", base.of.destination))
    }
}

/// Whether the pool knows it as the replica of that relationship.
fn is_replica(engine: &dyn Engine, of: &Relationship) -> Result<bool, EngineError> {
    let record = engine.replica_record(&of.destination)?;
    Ok(record.is_some_and(|r| r.relationship == of.id && r.peer == of.peer.0 && !r.broken_off))
}

/// A snapshot that is kept open, and its identity.
type Opened = (Uuid, Arc<dyn OpenSnapshot>);

/// The version that a replica published last.
fn open(engine: &dyn Engine, of: &Relationship) -> Result<Option<Opened>, EngineError> {
    if !is_replica(engine, of)? {
        return Ok(None);
    }
    let snapshots = engine.snapshots(&of.destination)?;
    let Some(published) = snapshots.iter().rev().find(|s| s.pinned_by.contains(&of.id)) else {
        return Ok(None);
    };
    Ok(Some((published.uuid, engine.open_snapshot(&of.destination, published.uuid)?)))
}

/// All of `all`, from those whose names follow next before and after `own` in their order: what is named alike is alike.
fn next_to<T, N: Ord>(own: &N, mut all: Vec<T>, name: impl Fn(&T) -> &N) -> impl Iterator<Item = T> {
    all.sort_by(|a, b| name(a).cmp(name(b)));
    let mut after = all.split_off(all.partition_point(|other| name(other) < own)).into_iter();
    let mut before = all.into_iter().rev();
    std::iter::from_fn(move || Some([before.next(), after.next()]))
        .take_while(|pair| pair.iter().any(Option::is_some))
        .flatten()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_none_is_left_out() {
        let names = vec!["vm-4", "db", "vm-1", "vm-3", "web", "vm-5"];
        let ordered: Vec<_> = next_to(&"vm-2", names, |name| name).collect();
        assert_eq!(ordered, ["vm-1", "vm-3", "db", "vm-4", "vm-5", "web"]);
        assert_eq!(next_to(&"a", vec!["b"], |name| name).collect::<Vec<_>>(), ["b"]);
        assert_eq!(next_to(&"a", Vec::new(), |name| name).next(), None);
    }
}
