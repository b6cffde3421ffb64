//! What this side holds of the same peer's other volumes, offered to the source as bases: a frame may be coded against it.
//!
//! Offered is, of each other mirror from the same peer into the same pool, the version that its replica published last: that
//! came from this very source, which keeps it as that mirror's base. It is kept readable from the offer until the source lets
//! go of it, at the latest until the stream ends: then a frame that names it can be decoded whatever becomes of that mirror.
//! That is in nobody's way: it can be deleted, and so can its volume. Of one that was deleted with its mirror the space is not
//! withheld for long: the source hears of it, and withdraws it; if it does not in time, this side gives up what it offered.
//! Nothing of it is durable, and nothing depends on it: if a frame names what was given up, the step is asked for again from
//! what has arrived, with what there is to offer then, and costs more bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_engine::{Engine, EngineError, OpenSnapshot, VolumeName};
use farside_wire::OTHERS_MAX;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::TransferError;
use crate::limits::{CROSS_VOLUME_CHECKED_MAX, CROSS_VOLUME_KEPT_MAX};
use crate::protocol::short_identity;
use crate::replica::Replica;

/// What is offered, to one stream.
#[derive(Default)]
pub(crate) struct CrossVolume {
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
    Kept(Box<CrossVolumeBase>),
    /// The source names it no more.
    Withdrawn,
    /// Somebody wanted it gone, and the source has not withdrawn it in time.
    GivenUp(VolumeName),
}

struct CrossVolumeBase {
    of: Replica,
    open: Arc<dyn OpenSnapshot>,
    /// When it was first found deleted together with its mirror.
    unwanted_since: Option<Instant>,
}

impl CrossVolumeBase {
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

impl CrossVolume {
    /// Those of the mirrors `all` that may serve one of `own`'s transfers; if there are too many, those whose names are next to
    /// its own. Blocks.
    pub(crate) fn find(engine: &dyn Engine, own: &Replica, all: Vec<Replica>) -> CrossVolume {
        let is_other = |r: &Replica| {
            r.relationship != own.relationship
                && r.peer == own.peer
                && r.destination.pool == own.destination.pool
        };
        let mut offered = Vec::new();
        let mut bases = Bases::default();
        let cross_volume = all.into_iter().filter(is_other).collect();
        for of in next_to(&own.destination, cross_volume, |of| &of.destination).take(CROSS_VOLUME_CHECKED_MAX)
        {
            match open(engine, &of) {
                Ok(Some((snapshot, open))) => {
                    offered.push(short_identity(snapshot));
                    bases.all.push(Base::Kept(Box::new(CrossVolumeBase { of, open, unwanted_since: None })));
                }
                Ok(None) => {}
                // Its own mirror may have released it just now.
                Err(error) => tracing::debug!(volume = %of.destination, "not offered as a base: {error}"),
            }
            if offered.len() >= OTHERS_MAX.into() {
                break;
            }
        }
        CrossVolume { offered, bases: Mutex::new(bases) }
    }

    fn bases(&self) -> MutexGuard<'_, Bases> {
        // Every change is of one place: a panic in between leaves nothing half done.
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing was offered.
    pub(crate) fn is_empty(&self) -> bool {
        self.offered.is_empty()
    }

    /// Whether a frame has named what this side had given up.
    pub(crate) fn was_missed(&self) -> bool {
        self.bases().was_missed
    }

    /// As the header of the stream names them.
    pub(crate) fn offered(&self) -> &[u64] {
        &self.offered
    }

    /// The source does not name these any more.
    pub(crate) fn withdraw(&self, numbers: &[u8]) -> Result<(), TransferError> {
        let mut bases = self.bases();
        for number in numbers {
            let base = bases.all.get_mut(usize::from(*number)).ok_or_else(|| {
                TransferError::Protocol("the source withdrew a base that was not offered".into())
            })?;
            *base = Base::Withdrawn;
        }
        Ok(())
    }

    /// Gives up what has been unwanted for too long; to be called now and then, whether anything arrives or not. Blocks.
    pub(crate) fn look(&self, engine: &dyn Engine) {
        for base in &mut self.bases().all {
            if let Base::Kept(kept) = base
                && kept.unwanted_for(engine).is_some_and(|time| time >= CROSS_VOLUME_KEPT_MAX)
            {
                let volume = kept.of.destination.clone();
                tracing::debug!(%volume, "was deleted, and serves as base no more");
                *base = Base::GivenUp(volume);
            }
        }
    }

    /// Reads ranges of one of them, (first block, blocks) each.
    pub(crate) fn read(&self, number: u8, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<(), String> {
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
            Some(Base::Withdrawn) => Err("the source names another volume that it had withdrawn".into()),
            None => Err("such a volume was not offered".into()),
        }
    }
}

/// Whether the pool knows it as the replica of that relationship.
fn is_replica(engine: &dyn Engine, of: &Replica) -> Result<bool, EngineError> {
    let record = engine.replica_record(&of.destination)?;
    Ok(record.is_some_and(|r| r.relationship == of.relationship && r.peer == of.peer.0 && !r.broken_off))
}

/// A snapshot that is kept open, and its identity.
type Opened = (Uuid, Arc<dyn OpenSnapshot>);

/// The version that a replica published last.
fn open(engine: &dyn Engine, of: &Replica) -> Result<Option<Opened>, EngineError> {
    if !is_replica(engine, of)? {
        return Ok(None);
    }
    let snapshots = engine.snapshots(&of.destination)?;
    let Some(published) = snapshots.iter().rev().find(|s| s.pinned_by.contains(&of.relationship)) else {
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
