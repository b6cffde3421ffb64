//! Every kind of pool mirrored to every kind: the whole life of a mirror, with the same writes in each cell. What is shown must be the
//! same, and what travels nearly so.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::cluster::cluster;
use crate::keeper::{Keeper, Kind, MIB, pair};
use crate::support::{Site, eventually, seed, status};

const SIZE: u64 = 96 * MIB;
/// What hosts have at first.
const FILLED: u64 = 24 * MIB;
const UPDATES: usize = 5;
/// A break is over within this, whatever is staged.
const BREAK_WITHIN: Duration = Duration::from_secs(5);

/// What went over the wire for the first copy and each update, and the content root after each.
#[derive(Debug, Default)]
struct Told {
    wire_bytes: Vec<u64>,
    roots: Vec<String>,
}

/// Words, as text has them: it compresses.
fn words(random: &mut StdRng, bytes: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes as usize + 16);
    while (text.len() as u64) < bytes {
        text.extend_from_slice(
            format!("row {:06} of {:04}; ", random.random_range(0..900_000), random.random_range(0..50))
                .as_bytes(),
        );
    }
    text.truncate(bytes as usize);
    text
}

/// The model of a volume: what hosts wrote.
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, keeper: &Keeper, site: &Site, pieces: &[(u64, Vec<u8>)]) {
        for (offset, bytes) in pieces {
            self.0[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let pieces: Vec<(u64, &[u8])> = pieces.iter().map(|(offset, bytes)| (*offset, &bytes[..])).collect();
        keeper.write(site, "v", SIZE, &pieces);
    }

    fn is_shown(&self, keeper: &Keeper, site: &Site, when: &str) {
        assert!(
            keeper.bytes(site, "v") == self.0,
            "{:?} at {} shows something else {when}",
            keeper.kind,
            site.name
        );
    }
}

/// The last update that ended, as history has it.
fn last_wire_bytes(site: &Site, volume: &str) -> u64 {
    let history = site.json(&format!("mirror history {volume}"));
    let newest = history
        .as_array()
        .unwrap()
        .iter()
        .max_by_key(|entry| entry["started_at"].as_str().unwrap().to_owned());
    let newest = newest.unwrap();
    newest["wire_bytes_sent"].as_u64().unwrap() + newest["wire_bytes_received"].as_u64().unwrap()
}

fn life(conf: &str, from: Kind, to: Kind, seed: u64) -> Told {
    println!("{from:?} to {to:?}");
    let began = Instant::now();
    let step = |what: &str| println!("  {:6.1} s  {what}", began.elapsed().as_secs_f64());
    let mut random = StdRng::seed_from_u64(seed);
    let mut told = Told::default();
    let root = tempfile::tempdir().unwrap();
    // An effort that follows the load of the machine has the bytes follow it, too.
    for site in ["a", "b"] {
        std::fs::create_dir(root.path().join(site)).unwrap();
        std::fs::write(root.path().join(site).join("farside.toml"), "[wire]\neffort = \"standard\"\n")
            .unwrap();
    }
    let (mut a, mut b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let (p, q) = (Keeper::make(&a, from, "p", conf), Keeper::make(&b, to, "q", conf));
    pair(root.path(), &a, &b);
    a.ok(&format!("volume create p/v --size {SIZE}"));
    let mut model = Model(vec![0; SIZE as usize]);
    let first = words(&mut random, FILLED);
    model.write(&p, &a, &[(0, first)]);
    a.ok("peer allow b p/v --reverse");
    b.ok("mirror create a:p/v q/v");
    b.ok("mirror initialize q/v");
    let mut note = |model: &Model, what: &str| {
        told.wire_bytes.push(last_wire_bytes(&b, "q/v"));
        let root = status(&b, "q/v")["content_root"].as_str().unwrap().to_owned();
        let base = &a.json("mirror destinations p/v")[0]["content_root"];
        assert_eq!(base.as_str(), Some(&root[..]), "roots of both sides {what}");
        told.roots.push(root);
        model.is_shown(&q, &b, what);
    };
    note(&model, "after the first copy");
    step("the first copy");
    for update in 0..UPDATES {
        let piece = |random: &mut StdRng| {
            let block = random.random_range(0..SIZE / 4096);
            (block * 4096, words(random, 4096))
        };
        let pieces: Vec<(u64, Vec<u8>)> = (0..64).map(|_| piece(&mut random)).collect();
        model.write(&p, &a, &pieces);
        b.ok("mirror update q/v");
        note(&model, &format!("after update {update}"));
    }
    step("five updates");

    // A cut: what has come and was made durable, every two seconds, is not brought again.
    let mut much = vec![0; (24 * MIB) as usize];
    random.fill_bytes(&mut much);
    model.write(&p, &a, &[(40 * MIB, much)]);
    b.ok("mirror set q/v --throttle 4MiB/s");
    b.ok("mirror update q/v --no-wait");
    let come =
        |site: &Site, volume: &str| status(site, volume)["transfer"]["done_bytes"].as_u64().unwrap_or(0);
    eventually("most of it has come", || come(&b, "q/v") >= 18 * MIB);
    b.kill();
    b.restart();
    b.ok("mirror set q/v --throttle unlimited");
    // It goes on by itself, since a person asked for it; or is asked for again.
    b.ok("mirror update q/v");
    eventually("it is all here", || status(&b, "q/v")["transfer"].is_null());
    model.is_shown(&q, &b, "after a cut");
    let again = last_wire_bytes(&b, "q/v");
    assert!(again <= 16 * MIB, "{again} bytes after a cut at 18 MiB of 24");
    step("a cut, and on from there");

    // A break in mid-transfer: the last version, whole, at once.
    let mut lost = vec![0; (16 * MIB) as usize];
    random.fill_bytes(&mut lost);
    let at_source = {
        let mut at_source = Model(model.0.clone());
        at_source.write(&p, &a, &[(70 * MIB, lost)]);
        at_source
    };
    b.ok("mirror set q/v --throttle 4MiB/s");
    b.ok("mirror update q/v --no-wait");
    eventually("some of it has come", || come(&b, "q/v") >= 4 * MIB);
    let asked = Instant::now();
    b.ok("mirror break q/v --yes");
    let took = asked.elapsed();
    model.is_shown(&q, &b, "after a break in mid-transfer");
    assert!(took < BREAK_WITHIN, "the break took {took:?}");
    let row = words(&mut random, 4096);
    Model(model.0.clone()).write(&q, &b, &[(0, row)]);
    step(&format!("broken off in {:.2} s", took.as_secs_f64()));

    // The original counts: the replica follows again.
    b.ok("mirror set q/v --throttle unlimited");
    b.ok("mirror resync q/v --yes");
    let mut model = at_source;
    model.is_shown(&q, &b, "after a resync");
    step("resync");

    // The other way, and back.
    b.ok("mirror swap q/v --yes");
    let row = (8 * MIB, words(&mut random, 8192));
    model.write(&q, &b, &[row]);
    a.ok("mirror update p/v");
    model.is_shown(&p, &a, "after a swap");
    if from == Kind::Rbd {
        let refused = p.try_write("v", SIZE, &[(0, &[1; 4096])]);
        assert!(!refused.status.success(), "a host wrote into a replica");
    }
    a.ok("mirror swap p/v --yes");
    let row = (9 * MIB, words(&mut random, 8192));
    model.write(&p, &a, &[row]);
    b.ok("mirror update q/v");
    model.is_shown(&q, &b, "after the way back");
    step("swap, and back");

    // The source's side is lost with its state.
    a.kill();
    b.ok("mirror break q/v --yes");
    model.is_shown(&q, &b, "with the source dead");
    let row = (0, words(&mut random, 4096));
    model.write(&q, &b, &[row]);
    a.restart();
    step("the end");
    told
}

#[test]
fn every_kind_of_pool_is_mirrored_to_every_kind() {
    let Some(conf) = cluster() else { return };
    let seed = seed();
    let kinds = [Kind::Embedded, Kind::Rbd];
    let cells: Vec<_> = kinds.iter().flat_map(|from| kinds.iter().map(move |to| (*from, *to))).collect();
    let told: Vec<Told> = cells.iter().map(|(from, to)| life(&conf, *from, *to, seed)).collect();
    for ((from, to), told) in cells.iter().zip(&told) {
        println!("{from:?} to {to:?}: wire bytes {:?}", told.wire_bytes);
    }
    for (cell, of_cell) in cells.iter().zip(&told).skip(1) {
        assert_eq!(of_cell.roots, told[0].roots, "{cell:?}: equal bytes have equal roots");
        for (step, (wire, first)) in of_cell.wire_bytes.iter().zip(&told[0].wire_bytes).enumerate() {
            let ratio = *wire as f64 / *first as f64;
            assert!(
                (0.95..=1.05).contains(&ratio),
                "{cell:?}, step {step}: {wire} bytes, and {first} between embedded pools"
            );
        }
    }
}
