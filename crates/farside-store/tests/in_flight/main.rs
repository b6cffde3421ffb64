//! Every order in which what is in flight can reach the medium, in a small world: two blocks that are written a few times, data that
//! waits in memory, journal batches, flushes, points, syncs that fail, places that are used again, and a power failure after each
//! step that keeps, loses or tears each write that no sync vouches for; then a second life on what is left.
//!
//! What is told here anew, as small as it gets, is the protocol of `write_behind.rs`, `pool.rs` (flush, spill), `point.rs`,
//! `allocator.rs` (two points before reuse) and `recovery.rs`. In each world that can be reached an opening must succeed, with both
//! superblocks and with either alone; it shows the writes up to one that is not before the last acknowledged; and each block reads
//! as what was written. Each sabotage of the protocol is found.

mod medium;
mod steps;
mod world;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use medium::Stamp;
use world::{Bounds, World};

/// What a mistake in the protocol would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sabotage {
    None,
    /// A flush syncs when its batch is written, whether or not the data is.
    SyncsBeforeData,
    /// A flush answers before it syncs.
    AnswersBeforeSync,
    /// What a point has freed is used again once that point is there.
    ReusesAfterOnePoint,
    /// An opening believes a batch that no sync vouches for, without looking at its data.
    BelievesUnproven,
    /// A batch says of those before it that they were synced.
    ProvesTooMuch,
    /// A failed sync is tried again.
    SyncsAgain,
    /// A point writes its superblock without a sync before it.
    FlipsUnsynced,
    /// What waits is taken for written when it is on its way.
    ForgetsTooEarly,
}

/// Every world within the bounds; how many, or the first in which something is lost, and how it came to it.
fn explore(bounds: Bounds) -> Result<(usize, usize), String> {
    let first = World::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut failures: HashSet<u64> = HashSet::new();
    let mut media: HashSet<u64> = HashSet::new();
    let hash = |thing: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        thing(&mut hasher);
        hasher.finish()
    };
    // The way to a world, as an index into what came before.
    let mut ways: Vec<(usize, String)> = vec![(0, "the beginning".into())];
    let mut open = vec![(first, 0)];
    while let Some((world, way)) = open.pop() {
        let mut unsynced = world.unsynced();
        unsynced.sort();
        let promises = (world.acknowledged, world.written, world.lives, world.points);
        let is_new = failures.insert(hash(&|h| (&world.medium, &unsynced, promises).hash(h)));
        let left = if is_new { world.crashes(&unsynced) } else { Vec::new() };
        for medium in left {
            if !media.insert(hash(&|h| (&medium, promises).hash(h))) {
                continue;
            }
            let found = world.check(&medium, bounds.sabotage).map_err(|error| {
                let mut steps = vec![error];
                let mut at = way;
                while at != 0 {
                    steps.push(ways[at].1.clone());
                    at = ways[at].0;
                }
                steps.reverse();
                steps.join("\n")
            })?;
            if world.lives < bounds.lives {
                let reborn = world.reborn(medium, &found);
                if seen.insert(hash(&|h| reborn.hash(h))) {
                    ways.push((way, "the power fails".into()));
                    open.push((reborn, ways.len() - 1));
                }
            }
        }
        for (name, next) in world.steps(bounds) {
            if seen.insert(hash(&|h| next.hash(h))) {
                ways.push((way, name));
                open.push((next, ways.len() - 1));
            }
        }
    }
    Ok((seen.len(), media.len()))
}

fn holds_within(all: &[(Stamp, u8, u8)]) {
    for &(writes, points, lives) in all {
        let bounds = Bounds { writes, points, lives, sabotage: Sabotage::None };
        let (worlds, media) = explore(bounds).unwrap_or_else(|how| panic!("{how}"));
        println!("{writes} writes, {points} points, {lives} lives: {worlds} worlds, {media} media");
        assert!(worlds > 1000, "{worlds}");
    }
}

#[test]
fn whatever_is_in_flight_what_was_acknowledged_is_there() {
    holds_within(&[(2, 1, 1), (2, 1, 2), (2, 2, 1), (3, 1, 1)]);
}

#[test]
#[ignore = "minutes"]
fn the_same_with_more_of_everything() {
    holds_within(&[(3, 2, 1), (3, 1, 2), (4, 1, 1), (2, 2, 2)]);
}

#[test]
fn every_sabotage_is_found() {
    for sabotage in [
        Sabotage::SyncsBeforeData,
        Sabotage::AnswersBeforeSync,
        Sabotage::ReusesAfterOnePoint,
        Sabotage::BelievesUnproven,
        Sabotage::ProvesTooMuch,
        Sabotage::SyncsAgain,
        Sabotage::FlipsUnsynced,
        Sabotage::ForgetsTooEarly,
    ] {
        match explore(Bounds { writes: 4, points: 2, lives: 1, sabotage }) {
            Err(how) => println!("{sabotage:?}: {}", how.lines().last().unwrap_or_default()),
            Ok((worlds, _)) => panic!("{sabotage:?} does no harm in {worlds} worlds"),
        }
    }
}
