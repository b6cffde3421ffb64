//! What this side holds of the same peer's other volumes, offered to the source as bases: a frame may be coded against it.
//!
//! Offered is, of each other mirror from the same peer into the same pool, the version that its replica published last: that
//! came from this very source, which keeps it as that mirror's base. It is kept readable from the offer until the source lets
//! go of it, at the latest until the stream ends: then a frame that names it can be decoded whatever becomes of that mirror.
//! That is in nobody's way: it can be deleted, and so can its volume. Of one that was deleted with its mirror the space is not
//! withheld for long: the source hears of it, and lets go; if it does not in time, this side gives up what it offered.
//! Nothing of it is durable, and nothing depends on it: if a frame names what was given up, the step is asked for again from
//! what has arrived, with what there is to offer then, and costs more bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_engine::{Engine, EngineError, OpenSnapshot, VolumeName};
use farside_wire::OTHERS_MAX;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::MirrorError;
use crate::limits::{OTHERS_KEPT_MAX, OTHERS_LOOKED_AT_MAX};
use crate::protocol::short_identity;
use crate::store::Relationship;

/// What is offered, to one stream.
#[derive(Default)]
pub(super) struct Others {
    /// As the header of the stream names them.
    offered: Vec<u64>,
    bases: Mutex<Bases>,
}

#[derive(Default)]
struct Bases {
    /// By the number that the stream has for each.
    all: Vec<Base>,
    /// A frame has named what this side had given up.
    was_missed: bool,
}

enum Base {
    Kept(Box<OtherBase>),
    /// The source names it no more.
    LetGo,
    /// Somebody wanted it gone, and the source has not let go of it in time.
    GivenUp(VolumeName),
}

struct OtherBase {
    of: Relationship,
    open: Arc<dyn OpenSnapshot>,
    /// When it was first found deleted together with its mirror.
    unwanted_since: Option<Instant>,
}

impl OtherBase {
    /// Whether it was deleted, and its mirror does not go on: an update deletes the version before as well, of which the source
    /// knows by itself.
    fn is_unwanted(&self, engine: &dyn Engine) -> bool {
        !matches!(self.open.is_deleted(), Ok(false)) && !matches!(is_replica(engine, &self.of), Ok(true))
    }

    /// How long it has been unwanted.
    fn unwanted_for(&mut self, engine: &dyn Engine) -> Option<Duration> {
        match self.unwanted_since {
            Some(since) => Some(since.elapsed()),
            None if self.is_unwanted(engine) => {
                self.unwanted_since = Some(Instant::now());
                Some(Duration::ZERO)
            }
            None => None,
        }
    }
}

impl Others {
    /// Those of the mirrors `all` that may serve one of `own`'s transfers; if there are too many, those whose names are next to
    /// its own. Blocks.
    pub(super) fn find(engine: &dyn Engine, own: &Relationship, all: Vec<Relationship>) -> Others {
        let is_other = |r: &Relationship| {
            r.id != own.id && r.peer == own.peer && r.destination.pool == own.destination.pool
        };
        let mut offered = Vec::new();
        let mut bases = Bases::default();
        let others = all.into_iter().filter(is_other).collect();
        for of in next_to(&own.destination, others, |of| &of.destination).take(OTHERS_LOOKED_AT_MAX) {
            match open(engine, &of) {
                Ok(Some((snapshot, open))) => {
                    offered.push(short_identity(snapshot));
                    bases.all.push(Base::Kept(Box::new(OtherBase { of, open, unwanted_since: None })));
                }
                Ok(None) => {}
                // Its own mirror may have let it go just now.
                Err(error) => tracing::debug!(volume = %of.destination, "not offered as a base: {error}"),
            }
            if offered.len() >= OTHERS_MAX.into() {
                break;
            }
        }
        Others { offered, bases: Mutex::new(bases) }
    }

    fn bases(&self) -> MutexGuard<'_, Bases> {
        // Every change is of one place: a panic in between leaves nothing half done.
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing was offered.
    pub(super) fn is_empty(&self) -> bool {
        self.offered.is_empty()
    }

    /// Whether a frame has named what this side had given up.
    pub(super) fn was_missed(&self) -> bool {
        self.bases().was_missed
    }

    /// As the header of the stream names them.
    pub(super) fn offered(&self) -> &[u64] {
        &self.offered
    }

    /// The source does not name these any more.
    pub(super) fn let_go(&self, numbers: &[u8]) -> Result<(), MirrorError> {
        let mut bases = self.bases();
        for number in numbers {
            let base = bases.all.get_mut(usize::from(*number)).ok_or_else(|| {
                MirrorError::Protocol("the source lets go of a base that nobody has offered".into())
            })?;
            *base = Base::LetGo;
        }
        Ok(())
    }

    /// Gives up what has been unwanted for too long; to be called now and then, whether anything arrives or not. Blocks.
    pub(super) fn look(&self, engine: &dyn Engine) {
        for base in &mut self.bases().all {
            if let Base::Kept(kept) = base
                && kept.unwanted_for(engine).is_some_and(|time| time >= OTHERS_KEPT_MAX)
            {
                let volume = kept.of.destination.clone();
                tracing::debug!(%volume, "was deleted, and serves as base no more");
                *base = Base::GivenUp(volume);
            }
        }
    }

    /// Reads ranges of one of them, (first block, blocks) each.
    pub(super) fn read(&self, number: u8, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<(), String> {
        let mut bases = self.bases();
        match bases.all.get(usize::from(number)) {
            Some(Base::Kept(base)) => {
                let read = base.open.read_ranges(ranges, buffer);
                read.map_err(|error| format!("{}: {error}", base.of.destination))
            }
            Some(Base::GivenUp(volume)) => {
                let why = format!("{volume}, which a frame names, was deleted");
                bases.was_missed = true;
                Err(why)
            }
            Some(Base::LetGo) => Err("the source names another volume that it had let go".into()),
            None => Err("nobody has offered such a volume".into()),
        }
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
