//! The store against what its users rely on: right bytes or none, a bounded size, and what survives what.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use farside_chunks::container::{CHUNKS_PER_CONTAINER, CONTAINER_BYTES};
use farside_chunks::store::STORE_MIN;
use farside_chunks::{
    ChunkError, ChunkName, ChunkStore, ContainerName, KnownAtPeer, OriginId, Realm, RealmId, StoreSettings,
};

const REALM: RealmId = RealmId([1; 16]);
const OTHER_REALM: RealmId = RealmId([2; 16]);

/// Chunk `number`: always the same bytes, 4 to 12 KiB.
fn chunk(number: u64) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; 4096 + (number as usize * 2654435761) % 8192];
    reader.fill(&mut bytes);
    bytes
}

fn open(path: &Path) -> ChunkStore {
    ChunkStore::open(path, StoreSettings { bytes: STORE_MIN }).unwrap()
}

fn load(store: &ChunkStore) {
    while store.load_next() {}
    assert_eq!(store.stats().not_loaded, 0);
}

fn keep(realm: &Realm, number: u64) -> ChunkName {
    let bytes = chunk(number);
    realm.keep(&realm.fingerprint(&bytes), &bytes).unwrap()
}

fn find(realm: &Realm, number: u64) -> Option<ChunkName> {
    realm.find(&realm.fingerprint(&chunk(number)), |_| true).map(|cursor| cursor.name())
}

/// None if it is not here; never other bytes.
fn read(realm: &Realm, name: ChunkName, number: u64) -> Option<()> {
    let mut bytes = Vec::new();
    match realm.read(name, &mut bytes) {
        Ok(()) => {
            assert!(bytes == chunk(number), "other bytes for chunk {number}");
            Some(())
        }
        Err(ChunkError::Missing) => None,
        Err(other) => panic!("{other}"),
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.path().extension().is_some_and(|e| e == "chunks") {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn what_was_kept_is_found_and_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    let names: Vec<ChunkName> = (0..5000).map(|number| keep(&realm, number)).collect();
    for (number, name) in names.iter().enumerate() {
        assert_eq!(find(&realm, number as u64), Some(*name));
        read(&realm, *name, number as u64).unwrap();
    }
    assert_eq!(find(&realm, 5000), None);
    assert!(names.last().unwrap().container.number >= 1, "several containers");
}

#[test]
fn a_stream_that_comes_again_asks_the_index_once_for_each_container() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    let names: Vec<ChunkName> = (0..5000).map(|number| keep(&realm, number)).collect();
    let before = store.stats().lookups;
    let mut cursor = None;
    for (number, name) in names.iter().enumerate() {
        let fingerprint = realm.fingerprint(&chunk(number as u64));
        let is_next = cursor.as_mut().is_some_and(|cursor| realm.follows(cursor, &fingerprint));
        if !is_next {
            cursor = realm.find(&fingerprint, |_| true);
        }
        assert_eq!(cursor.as_ref().unwrap().name(), *name);
    }
    let containers = names.last().unwrap().container.number + 1;
    assert_eq!(store.stats().lookups - before, containers);
}

#[test]
fn nothing_is_found_or_read_in_another_realm() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (realm, other) = (store.realm(REALM), store.realm(OTHER_REALM));
    let name = keep(&realm, 1);
    assert_eq!(find(&other, 1), None);
    assert_eq!(read(&other, name, 1), None);
    assert_ne!(realm.fingerprint(&chunk(1)), other.fingerprint(&chunk(1)));
    let kept = keep(&other, 1);
    assert_ne!(kept.container, name.container);
    store.clear(Some(OTHER_REALM));
    assert_eq!((find(&other, 1), find(&realm, 1)), (None, Some(name)));
    store.clear(None);
    assert_eq!((find(&realm, 1), store.stats().containers, store.stats().bytes), (None, 0, 0));
    assert_eq!(files(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_store_survives_a_restart_and_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let killed = tempfile::tempdir().unwrap();
    let names: Vec<ChunkName> = {
        let store = open(directory.path());
        let realm = store.realm(REALM);
        let names = (0..4000).map(|number| keep(&realm, number)).collect();
        // What the files are like when the process dies at this moment.
        copy(directory.path(), killed.path());
        assert!(matches!(
            ChunkStore::open(directory.path(), StoreSettings { bytes: 0 }),
            Err(ChunkError::InUse(_))
        ));
        names
    };
    // A process that is killed loses what it had not written yet, 64 KiB at most.
    for (path, most) in [(directory.path(), 0), (killed.path(), 64 << 10)] {
        let store = open(path);
        let realm = store.realm(REALM);
        let news = realm.listen();
        let kept = names.iter().enumerate().take_while(|(n, name)| read(&realm, **name, *n as u64).is_some());
        let kept = kept.count();
        let lost: usize = (kept..4000).map(|n| chunk(n as u64).len()).sum();
        assert!(lost <= most, "{lost} bytes in {} chunks", 4000 - kept);
        load(&store);
        assert!(names[..kept].iter().enumerate().all(|(n, name)| find(&realm, n as u64) == Some(*name)));
        let held: usize = news.take().0.iter().map(|(_, ranges)| ranges.places()).sum();
        assert_eq!(held, kept);
        let name = keep(&realm, 1_000_000);
        assert_ne!(name.container.origin, names[0].container.origin, "a name is never given twice");
    }
}

#[test]
fn a_damaged_container_costs_its_chunks_and_nothing_else() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 8] = [
        ("header", |bytes| bytes[20] ^= 1),
        ("a chunk", |bytes| bytes[5000] ^= 1),
        ("directory", |bytes| {
            let at = bytes.len() - 3000;
            bytes[at] ^= 1;
        }),
        ("trailer", |bytes| {
            let at = bytes.len() - 3;
            bytes[at] ^= 1;
        }),
        ("cut short", |bytes| bytes.truncate(bytes.len() / 2)),
        ("cut in the header", |bytes| bytes.truncate(40)),
        ("empty", Vec::clear),
        ("grown", |bytes| bytes.resize(20 << 20, 7)),
    ];
    for (what, damage) in damages {
        println!("{what}");
        let directory = tempfile::tempdir().unwrap();
        let names: Vec<ChunkName> = {
            let store = open(directory.path());
            let realm = store.realm(REALM);
            (0..6000).map(|number| keep(&realm, number)).collect()
        };
        let first = files(directory.path()).into_iter().find(|f| f.ends_with("0.chunks")).unwrap();
        let mut bytes = fs::read(&first).unwrap();
        damage(&mut bytes);
        fs::write(&first, bytes).unwrap();
        let store = open(directory.path());
        let realm = store.realm(REALM);
        load(&store);
        let (mut right, mut missing) = (0, 0);
        for (number, name) in names.iter().enumerate() {
            match read(&realm, *name, number as u64) {
                Some(()) => right += 1,
                None => {
                    missing += 1;
                    assert_eq!(name.container.number, 0, "of another container");
                }
            }
        }
        assert!(right > 0 && right + missing == 6000);
        if matches!(what, "directory" | "trailer") {
            assert_eq!(missing, 0, "the records tell what is there");
        } else {
            assert!(missing > 0);
        }
        // What is missing is kept again.
        for number in 0..6000 {
            if find(&realm, number).is_none_or(|name| read(&realm, name, number).is_none()) {
                keep(&realm, number);
            }
        }
        assert!((0..6000).all(|number| find(&realm, number).is_some()));
    }
}

#[test]
fn a_store_stays_within_its_size_and_what_is_asked_for_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let realm = store.realm(REALM);
    let mut named = KnownAtPeer::default();
    let news = realm.listen();
    let hot: Vec<ChunkName> = (0..100).map(|number| keep(&realm, number)).collect();
    for number in 100..40_000 {
        keep(&realm, number);
        if number % 500 == 0 {
            assert_eq!(find(&realm, number % 100), Some(hot[number as usize % 100]));
            named.heed(&news.take());
        }
        assert!(store.stats().bytes <= STORE_MIN);
    }
    let stats = store.stats();
    assert!(stats.evicted > 5 && stats.forgotten == 0, "{stats:?}");
    assert!((39_000..40_000).all(|number| find(&realm, number).is_some()), "the newest are there");
    assert!((5_000..6_000).all(|number| find(&realm, number).is_none()), "what nobody asked for is gone");
    assert_eq!(find(&realm, 50), Some(hot[50]), "its second chance");
    let on_disk: u64 = files(directory.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(on_disk <= STORE_MIN, "{on_disk}");
    // What has gone is not named any more.
    named.heed(&news.take());
    assert_eq!(named.containers() as u64, stats.containers);
    store.resize(4 * STORE_MIN);
    load(&store);
    for number in 40_000..50_000 {
        keep(&realm, number);
    }
    assert!((39_000..50_000).all(|number| find(&realm, number).is_some()));
    store.resize(0);
    load(&store);
    assert!(store.stats().bytes <= STORE_MIN && store.stats().limit_bytes == STORE_MIN);
    assert!((49_000..50_000).all(|number| find(&realm, number).is_some()));
}

#[test]
fn both_sites_have_the_same_names_in_whatever_order_chunks_come() {
    let (at_a, at_b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (open(at_a.path()), open(at_b.path()));
    let (at_a, at_b) = (a.realm(REALM), b.realm(REALM));
    let news = at_b.listen();
    let mut known = KnownAtPeer::default();
    let names: Vec<ChunkName> = (0..3000).map(|number| keep(&at_a, number)).collect();
    // Two streams, one far ahead of the other; chunk 700 is lost.
    let order = (0..3000).filter(|n| n % 2 == 0).chain((0..3000).filter(|n| n % 2 == 1));
    for number in order.filter(|number| *number != 700) {
        assert!(at_b.keep_as(names[number as usize], &chunk(number)).unwrap());
        assert!(!at_b.keep_as(names[number as usize], &chunk(number)).unwrap(), "twice");
    }
    known.heed(&news.take());
    for (number, name) in names.iter().enumerate() {
        if number != 700 {
            assert_eq!(find(&at_b, number as u64), Some(*name));
        }
        if known.holds(*name) {
            read(&at_b, *name, number as u64).unwrap();
        }
    }
    assert!(known.holds(names[699]) && !known.holds(names[700]) && known.holds(names[701]));
    assert_eq!(read(&at_b, names[700], 700), None);
    assert!(at_b.keep_as(names[700], &chunk(700)).unwrap());
    known.heed(&news.take());
    assert!(known.holds(names[701]) && known.holds(names[1500]));
    known.forget(names[10]);
    assert!(known.holds(names[9]) && !known.holds(names[10]) && !known.holds(names[11]));
    assert!(known.holds(names[2999]), "of another container");
    // A's own containers are not filled by anybody else.
    assert!(!at_a.keep_as(ChunkName { place: 4000, ..names[2999] }, &chunk(1)).unwrap());
    // What the wire may bring that no chunk can be.
    let odd =
        |number, place| ChunkName { container: ContainerName { origin: OriginId([9; 16]), number }, place };
    assert!(!at_b.keep_as(odd(0, CHUNKS_PER_CONTAINER), &chunk(1)).unwrap());
    assert!(!at_b.keep_as(odd(0, u16::MAX), &chunk(1)).unwrap());
    assert!(!at_b.keep_as(odd(0, 0), &[]).unwrap());
    assert!(!at_b.keep_as(odd(0, 0), &vec![0; 40_000]).unwrap());
    assert!(at_b.keep_as(odd(u64::MAX, 7), &chunk(1)).unwrap());
    // Containers that nothing completes are closed, not collected.
    for number in 0..1000 {
        at_b.keep_as(odd(number, 5), &chunk(number)).unwrap();
    }
    assert!(!at_b.keep_as(odd(800, 6), &chunk(1)).unwrap(), "closed long ago");
    assert!(b.stats().containers <= STORE_MIN / (256 << 10), "{:?}", b.stats());
    assert!(b.stats().bytes < 2 * u64::from(CONTAINER_BYTES) + 30_000_000);
}

#[test]
fn many_threads_never_read_other_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let store = &store;
            scope.spawn(move || {
                let realm = store.realm(if thread % 3 == 0 { OTHER_REALM } else { REALM });
                for round in 0..4000u64 {
                    let number = (round * 7919 + thread * 104_729) % 9000;
                    match find(&realm, number) {
                        Some(name) => drop(read(&realm, name, number)),
                        None => drop(keep(&realm, number)),
                    }
                    match round % 1000 {
                        333 if thread == 1 => store.clear(Some(OTHER_REALM)),
                        666 if thread == 2 => store.resize(STORE_MIN + round * 1_000_000),
                        667.. if thread == 3 => drop(store.load_next()),
                        _ => {}
                    }
                }
            });
        }
    });
    load(&store);
    let stats = store.stats();
    assert!(stats.bytes <= stats.limit_bytes && stats.hits > 0, "{stats:?}");
}
