//! Realms share a store: whoever brings more than its share pushes out its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use farside_chunks::container::{CHUNKS_PER_CONTAINER, CONTAINER_BYTES};
use farside_chunks::store::STORE_MIN;
use farside_chunks::{ChunkName, ChunkStore, ContainerName, OriginId, Realm, RealmId, StoreSettings};

const FIRST: RealmId = RealmId([1; 16]);
const SECOND: RealmId = RealmId([2; 16]);

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; length];
    reader.fill(&mut bytes);
    bytes
}

fn open(path: &Path) -> ChunkStore {
    ChunkStore::open(path, StoreSettings { bytes: STORE_MIN }).unwrap()
}

/// Chunks of 8 KiB that a realm keeps of its own: which, and how many.
fn keep(realm: &Realm, first: u64, count: u64) {
    for seed in first..first + count {
        let chunk = noise(seed, 8192);
        realm.keep(&realm.fingerprint(&chunk), &chunk).unwrap();
    }
}

/// How many of these are found, and read.
fn held(realm: &Realm, first: u64, count: u64) -> u64 {
    let (mut held, mut read) = (0, Vec::new());
    for seed in first..first + count {
        let chunk = noise(seed, 8192);
        if let Some(found) = realm.find(&realm.fingerprint(&chunk), |_| true) {
            realm.read(found.name(), &mut read).unwrap();
            assert!(read == chunk);
            held += 1;
        }
    }
    held
}

/// A peer sends chunks of so many bytes, in containers that it fills.
fn flood(realm: &Realm, bytes: usize, chunks: u64) {
    let per_container = u64::from(CHUNKS_PER_CONTAINER).min(u64::from(CONTAINER_BYTES) / (bytes as u64 + 24));
    for number in 0..chunks {
        let container = ContainerName { origin: OriginId([9; 16]), number: number / per_container };
        let name = ChunkName { container, place: (number % per_container) as u16 };
        assert!(realm.keep_as(name, &noise(1 << 32 | number, bytes)).unwrap());
    }
}

/// What the quiet realm has: 23 of its 32 MiB, in two containers.
const ITS_OWN: u64 = 3000;
/// The index of so small a store has a thousand buckets: of 60,000 chunks, under a key that is random, one or two may meet
/// two others with their tag in the same buckets, and one of the three is forgotten. That is no question of shares.
const ALIKE: u64 = 3;

#[test]
fn a_realm_that_floods_the_store_leaves_others_what_fits_their_share() {
    // Large chunks take the bytes of the store, small ones the room in the index.
    for (bytes, chunks) in [(30_000, 6000), (600, 60_000)] {
        for (quiet_id, flooding_id) in [(FIRST, SECOND), (SECOND, FIRST)] {
            let directory = tempfile::tempdir().unwrap();
            {
                let store = open(directory.path());
                let (quiet, flooding) = (store.realm(quiet_id), store.realm(flooding_id));
                keep(&quiet, 0, ITS_OWN);
                flood(&flooding, bytes, chunks);
                let stats = store.stats();
                assert!(
                    stats.evicted > 5 && stats.bytes <= STORE_MIN && stats.forgotten <= ALIKE,
                    "{stats:?}"
                );
                let held = held(&quiet, 0, ITS_OWN);
                assert!(
                    held >= ITS_OWN - ALIKE,
                    "{held} of {ITS_OWN}, after chunks of {bytes} bytes: {stats:?}"
                );
            }
            // Nor is anything lost to it as the store is opened again.
            let store = open(directory.path());
            while store.load_next() {}
            assert!(held(&store.realm(quiet_id), 0, ITS_OWN) >= ITS_OWN - ALIKE);
            assert!(store.stats().bytes > STORE_MIN / 3);
        }
    }
}

#[test]
fn a_realm_that_comes_late_gets_its_share() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (first, second) = (store.realm(FIRST), store.realm(SECOND));
    // All that there is, as long as nobody else asks.
    keep(&first, 0, 7000);
    assert!(held(&first, 0, 7000) == 7000);
    keep(&second, 0, ITS_OWN);
    assert_eq!(held(&second, 0, ITS_OWN), ITS_OWN);
    let newest = held(&first, 5000, 2000);
    assert!(held(&first, 0, 1000) == 0 && newest == 2000, "the oldest went: {newest}");
    // And when it goes, the other may have all again.
    store.clear(Some(SECOND));
    keep(&first, 10_000, 4000);
    assert_eq!(held(&first, 5000, 2000) + held(&first, 10_000, 4000), 6000);
}

#[test]
fn many_realms_share_what_there_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realms: Vec<Realm> = (0..8).map(|realm| store.realm(RealmId([10 + realm; 16]))).collect();
    for round in 0..40 {
        for (realm, seed) in realms.iter().zip((0..8).map(|realm| realm * 100_000)) {
            keep(realm, seed + round * 100, 100);
        }
        assert!(store.stats().bytes <= STORE_MIN);
    }
    // Each has 8 MiB, less than a container, and has begun anew more than once; it never was without any for long.
    let all: Vec<u64> = (0..8).map(|realm| held(&realms[realm as usize], realm * 100_000, 4000)).collect();
    assert!(all.iter().sum::<u64>() > 3000 && all.iter().filter(|held| **held > 0).count() >= 6, "{all:?}");
}
