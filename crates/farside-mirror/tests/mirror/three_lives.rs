//! Random lives of three sites, in fan-out and in cascade: whatever was decided, in the end all of them hold what one of them
//! does, each by a difference. And two that follow one source have a point in common, so that it could be lost.

use farside_engine::SnapshotOwner;
use farside_mirror::State;
use farside_transfer::TransferResult;
use rand::Rng;
use rand::seq::IndexedRandom;

use crate::directions::until;
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{self, PATIENCE, Storage, seeds};
use crate::support::trio::{A, B, C, Trio};

const SIZE: u64 = 2 << 20;
const SITES: [usize; 3] = [A, B, C];
const STEPS: usize = 40;
/// Something that all have, as whoever runs three sites sees to.
const FIRST: &str = "first";

struct Life<S> {
    trio: Trio<S>,
    /// What each site's volume follows, or followed before it was broken off.
    source: [Option<usize>; 3],
    /// All have a named snapshot that nobody deletes; otherwise persons delete none.
    has_first: bool,
    named: usize,
    /// Sites that have had an update from what they follow since anything was decided there or about them.
    updated: [bool; 3],
    /// Pairs that must have a point in common: both followed one source, and each had an update. It stays so when one of them is
    /// broken off, and until something else is decided, or a person deletes a snapshot, at one of them.
    related: Vec<(usize, usize)>,
}

impl<S: Storage> Life<S> {
    async fn new(seed: u64, has_first: bool) -> Life<S> {
        let mut trio = Trio::<S>::new(seed, SIZE).await;
        SITES.iter().for_each(|at| trio.fence(*at));
        if has_first {
            trio.snapshot(A, FIRST);
        }
        let middle = if trio.rng.random_bool(0.5) { A } else { B };
        println!("c follows {middle}");
        trio.copy(B, A).await;
        trio.copy(C, middle).await;
        let source = [None, Some(A), Some(middle)];
        let mut life = Life { trio, source, has_first, named: 0, updated: [false; 3], related: Vec::new() };
        life.has_update(B, A);
        life.has_update(C, middle);
        life
    }

    /// `at` has what `from` shows now.
    fn has_update(&mut self, at: usize, from: usize) {
        self.updated[at] = true;
        for other in SITES {
            if other != at && self.updated[other] && self.follows(other) == Some(from) {
                self.related.retain(|pair| *pair != (at.min(other), at.max(other)));
                self.related.push((at.min(other), at.max(other)));
            }
        }
    }

    /// Of which site something is decided: whoever follows it begins anew.
    fn is_decided(&mut self, at: usize) {
        self.updated[at] = false;
        for other in SITES {
            if self.source[other] == Some(at) {
                self.updated[other] = false;
            }
        }
        let updated = self.updated;
        self.related.retain(|(one, other)| *one != at && *other != at && (updated[*one] || updated[*other]));
    }

    /// Two that should have a point in common and have none. What all have by name does not count, unless a mirror keeps it.
    fn strangers(&self) -> Option<(usize, usize)> {
        let are_strangers =
            |(one, other): &&(usize, usize)| self.trio.in_common_but(*one, *other, FIRST).is_empty();
        self.related.iter().find(are_strangers).copied()
    }

    fn check_related(&self) {
        if let Some((one, other)) = self.strangers() {
            panic!(
                "{one} and {other} have nothing in common: {:?}, {:?}",
                self.trio.snapshots(one),
                self.trio.snapshots(other)
            );
        }
    }

    fn follows(&self, at: usize) -> Option<usize> {
        self.source[at].filter(|_| !self.is_writable(at))
    }

    fn is_writable(&self, at: usize) -> bool {
        let engine = self.trio.sites[at].disk.engine.engine();
        !engine.volume(&self.trio.volumes[at]).unwrap().is_replica
    }

    /// Whether `from` follows `at`, over however many sites.
    fn would_be_a_circle(&self, at: usize, from: usize) -> bool {
        let mut next = from;
        for _ in SITES {
            if next == at {
                return true;
            }
            match self.follows(next) {
                Some(source) => next = source,
                None => return false,
            }
        }
        true
    }

    fn persons(&self, at: usize) -> Vec<(uuid::Uuid, String)> {
        let engine = self.trio.sites[at].disk.engine.engine();
        let line = engine.snapshots(&self.trio.volumes[at]).unwrap();
        let is_persons =
            |s: &farside_engine::SnapshotInfo| s.owner == SnapshotOwner::Person && s.pinned_by.is_empty();
        line.into_iter().filter(is_persons).map(|s| (s.uuid, s.name)).collect()
    }

    async fn resync(&mut self, at: usize, from: usize) -> bool {
        match self.trio.resync(at, from).await {
            Ok(report) if report.result == TransferResult::Ok => {
                assert!(report.base.is_some(), "a whole copy");
                self.is_decided(at);
                self.is_decided(from);
                self.source[at] = Some(from);
                self.has_update(at, from);
                true
            }
            Ok(report) => panic!("the resync of {at} from {from} failed: {report:?}"),
            Err(error) => {
                println!("  refused: {error}");
                false
            }
        }
    }

    async fn step(&mut self, number: usize) {
        let at = self.trio.rng.random_range(0..3);
        let other = (at + self.trio.rng.random_range(1..3)) % 3;
        match self.trio.rng.random_range(0..20) {
            0..=4 if self.is_writable(at) => {
                let count = self.trio.rng.random_range(1..6);
                println!("{number}: {count} writes at {at}");
                self.trio.write(at, count);
            }
            5 | 6 => {
                println!("{number}: a snapshot of {at}");
                self.named += 1;
                self.trio.snapshot(at, &format!("n{}-{at}", self.named));
            }
            7 if self.has_first => {
                let persons: Vec<_> =
                    self.persons(at).into_iter().filter(|(_, name)| name != FIRST).collect();
                if let Some((uuid, name)) = persons.choose(&mut self.trio.rng) {
                    println!("{number}: {name} of {at} is deleted");
                    self.trio.delete_snapshot(at, *uuid);
                    self.related.retain(|(one, other)| *one != at && *other != at);
                }
            }
            8..=12 => {
                let Some(from) = self.follows(at) else { return };
                let before = self.trio.live[at].clone();
                println!("{number}: an update of {at} from {from}");
                let report = self.trio.mirror(at).update(PATIENCE).await.unwrap().ended().await.unwrap();
                if report.result == TransferResult::Ok {
                    self.trio.live[at] = self.trio.live[from].clone();
                    self.has_update(at, from);
                } else {
                    // Of an overtaken source nothing is brought.
                    let reason = report.reason.unwrap_or_default();
                    assert!(reason.contains("overtaken"), "{reason}");
                    self.trio.live[at] = before;
                }
            }
            13 | 14 if self.follows(at).is_some() => {
                println!("{number}: {at} is broken off");
                self.trio.break_off(at).await;
                self.updated[at] = false;
            }
            15 | 16 if self.source[at].is_some() && !self.would_be_a_circle(at, other) => {
                println!("{number}: {at} follows {other}");
                self.resync(at, other).await;
            }
            17 => {
                let Some(from) = self.follows(at).filter(|from| self.is_writable(*from)) else { return };
                println!("{number}: {at} and {from} change their roles");
                let swapped = self.trio.sites[at].destination.swap(&self.trio.volumes[at], PATIENCE).await;
                self.is_decided(at);
                self.is_decided(from);
                match swapped {
                    Ok(_) => {
                        self.trio.live[at] = self.trio.live[from].clone();
                        self.source[from] = Some(at);
                    }
                    Err(error) => {
                        println!("  refused: {error}");
                        // What was begun is taken back, and the peer told.
                        let mirror = self.trio.mirror(at);
                        until("the attempt is over", || mirror.status().relationship.swap.is_none()).await;
                        if self.trio.mirror(at).status().state == State::Mirrored {
                            self.trio.live[at] = self.trio.seen(at);
                        }
                    }
                }
            }
            18 if self.is_writable(at) => {
                let persons = self.persons(at);
                let Some((uuid, name)) = persons.choose(&mut self.trio.rng).cloned() else { return };
                println!("{number}: {at} is rolled back to {name}");
                let volume = &self.trio.volumes[at];
                site::roll_back(&*self.trio.sites[at].disk.engine.engine(), volume, uuid);
                self.trio.live[at] = self.trio.seen(at);
                self.is_decided(at);
                self.related.clear();
            }
            19 => {
                println!("{number}: power fails at {at}");
                self.trio.sites[at].disk.engine.flush();
                self.trio.crash(at, number as u64).await;
                self.trio.fence(at);
            }
            _ => {}
        }
        for at in SITES {
            self.trio.check(at);
        }
    }

    /// As the refusal says.
    async fn follow_by_the_third(&mut self, at: usize, counts: usize) {
        let third = SITES.into_iter().find(|third| ![at, counts].contains(third)).unwrap();
        println!("{at} follows {counts} by way of {third}");
        if self.follows(third) != Some(counts) {
            assert!(self.resync(third, counts).await, "{third} cannot follow {counts}");
        }
        assert!(self.resync(at, third).await, "{at} cannot follow {third}");
        assert!(self.resync(at, counts).await, "{at} cannot follow {counts} by way of {third}");
    }

    /// One of them is the one that counts; the others follow it.
    async fn converge(&mut self) {
        let counts = self.trio.rng.random_range(0..3);
        println!("in the end {counts} counts");
        if self.follows(counts).is_some() {
            self.trio.break_off(counts).await;
        }
        for at in SITES.into_iter().filter(|at| *at != counts) {
            let follows = self.resync(at, counts).await;
            assert!(follows || !self.has_first, "{at} cannot follow {counts}");
            if !follows {
                self.follow_by_the_third(at, counts).await;
            }
        }
        self.trio.write(counts, 3);
        for at in SITES.into_iter().filter(|at| *at != counts) {
            let report = self.trio.update(at, counts).await;
            assert!(report.base.is_some());
        }
        assert!(SITES.iter().all(|at| self.trio.live[*at] == self.trio.live[counts]));
        // Nobody is left behind by what was decided: all of them follow one.
        let sites = &self.trio.sites;
        until("nobody is overtaken", || sites.iter().all(|site| site.source.overtaken().is_empty())).await;
        assert!(sites.iter().all(|site| site.source.fenced().is_empty()));
    }
}

pub(crate) async fn live<S: Storage>(seed: u64, has_first: bool) {
    let mut life = Life::<S>::new(seed, has_first).await;
    for number in 0..STEPS {
        life.step(number).await;
        life.check_related();
    }
    life.converge().await;
}

/// Retention that comes, changes and goes: whatever is decided, the sites converge, and what it kept is left to persons in the end.
async fn live_with_retention<S: Storage>(seed: u64) {
    let mut life = Life::<S>::new(seed, true).await;
    let mut keepers = Vec::new();
    for number in 0..STEPS {
        let at = life.trio.rng.random_range(0..3);
        if life.follows(at).is_some() && life.trio.rng.random_bool(0.3) {
            let retention =
                *["last=1", "last=3", "floor=2,hourly=2", "none"].choose(&mut life.trio.rng).unwrap();
            println!("{number}: {at} keeps {retention}");
            let mirror = life.trio.mirror(at);
            keepers.push(farside_transfer::bases::kept_of(mirror.status().relationship.id));
            mirror.set_retention(retention.parse().unwrap()).await.unwrap();
        }
        // Retention may let go what two had in common and a person had made: only `FIRST` is sure.
        life.step(number).await;
    }
    life.converge().await;
    for at in SITES {
        let volume = life.trio.volumes[at].clone();
        if life.source[at].is_some() && life.trio.sites[at].destination.mirror(&volume).is_ok() {
            life.trio.sites[at].destination.delete(&volume).await.unwrap();
        }
    }
    for at in SITES {
        let engine = life.trio.sites[at].disk.engine.engine();
        let all = engine.all_snapshots(&life.trio.volumes[at]).unwrap();
        let is_kept = |s: &farside_engine::SnapshotInfo| s.pinned_by.iter().any(|pin| keepers.contains(pin));
        assert!(!all.iter().any(is_kept), "{at} keeps what nobody lets go: {all:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_sites_converge_whatever_they_keep() {
    for seed in seeds(2400, 4) {
        live_with_retention::<MemoryEngine>(seed).await;
    }
    for seed in seeds(2450, 2) {
        live_with_retention::<Embedded>(seed).await;
    }
}

/// Where persons name nothing that all have, and delete nothing, each follows whichever counts, if need be by way of the third.
#[tokio::test(start_paused = true)]
async fn three_sites_converge_without_a_snapshot_that_all_have() {
    for seed in seeds(2300, 5) {
        live::<MemoryEngine>(seed, false).await;
    }
    for seed in seeds(2350, 1) {
        live::<Embedded>(seed, false).await;
    }
}

/// What the lives look for can be missed: where nobody brings what others hold, it is.
#[tokio::test(start_paused = true)]
async fn where_sites_share_nothing_replicas_have_nothing_in_common() {
    let mut strangers = 0;
    for seed in seeds(2200, 6) {
        let mut life = Life::<MemoryEngine>::new(seed, true).await;
        SITES.iter().for_each(|at| life.trio.shares_nothing(*at));
        for number in 0..STEPS {
            life.step(number).await;
            strangers += usize::from(life.strangers().is_some());
        }
    }
    assert!(strangers > 0);
}

#[tokio::test(start_paused = true)]
async fn three_sites_converge_after_whatever_was_decided() {
    for seed in seeds(2000, 6) {
        live::<MemoryEngine>(seed, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn three_sites_converge_on_the_embedded_store() {
    for seed in seeds(2100, 2) {
        live::<Embedded>(seed, true).await;
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "minutes: hundreds of random lives, for make test-full"]
async fn hundreds_of_random_lives_of_three_sites() {
    for seed in seeds(3000, 300) {
        live::<MemoryEngine>(seed, true).await;
    }
    for seed in seeds(3500, 200) {
        live::<MemoryEngine>(seed, false).await;
    }
    for seed in seeds(4000, 100) {
        live::<Embedded>(seed, true).await;
    }
}
