use farside_transfer::{Level, Levels};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use super::*;

const MB: f64 = 1e6;
/// A volume of 100 GB.
const VOLUME: u64 = 100_000_000_000;

/// A report of an update that began at this second, changed so much and saved so much of it.
fn update(second: f64, bytes: f64, saving: f64) -> TransferReport {
    let started_at = Timestamp(1_700_000_000_000_000_000 + (second * 1e9) as u64);
    let level = Level { in_bytes: bytes as u64, out_bytes: (bytes * (1.0 - saving)) as u64 };
    TransferReport {
        id: Uuid::from_u128(second as u128),
        kind: TransferKind::Update,
        result: TransferResult::Ok,
        reason: None,
        started_at,
        ended_at: Timestamp(started_at.0 + 500_000_000),
        duration_seconds: 0.5,
        base: None,
        incremental: Some(format!("s{second}")),
        content_root: None,
        resumed: false,
        snapshots: 1,
        changed_bytes: bytes as u64,
        resumed_bytes: 0,
        deallocated_bytes: 0,
        source_read_bytes: 0,
        base_read_bytes: 0,
        levels: Some(Levels { compressed: level, ..Levels::default() }),
        referenced_bytes: None,
        delta_bytes: 0,
        literal_bytes: 0,
        wire_bytes_sent: 0,
        wire_bytes_received: level.out_bytes,
        scan_seconds: 0.0,
        set_aside: Vec::new(),
        let_go: Vec::new(),
    }
}

fn seeded() -> StdRng {
    let seed =
        std::env::var("FARSIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    println!("FARSIDE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Spread as what hosts write is: mostly little, seldom much.
fn spread(random: &mut StdRng, median: f64) -> f64 {
    let normal: f64 = (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0;
    median * (0.6 * normal).exp()
}

/// What a volume is used for.
#[derive(Clone, Copy)]
struct Use {
    every: f64,
    rate: f64,
    saving: f64,
}

impl Use {
    fn any(random: &mut StdRng) -> Use {
        Use {
            every: [10.0, 60.0, 900.0][random.random_range(0..3)],
            rate: MB * [0.05, 0.3, 1.5][random.random_range(0..3)],
            saving: random.random_range(0.4..0.9),
        }
    }

    /// An ordinary update.
    fn ordinary(self, random: &mut StdRng, second: f64) -> TransferReport {
        let bytes = spread(random, self.rate * self.every);
        update(second, bytes, (self.saving + random.random_range(-0.08..0.08)).min(0.99))
    }

    /// A mirror with so many ordinary updates behind it, and when the next one is due.
    fn watched(self, random: &mut StdRng, updates: u32) -> (Watch, f64) {
        let mut watch = Watch::default();
        for number in 0..updates {
            let report = self.ordinary(random, f64::from(number) * self.every);
            assert_eq!(watch.note(&report, VOLUME), None, "update {number}");
        }
        (watch, f64::from(updates) * self.every)
    }
}

#[test]
fn an_encryptor_is_seen_within_two_updates() {
    let mut random = seeded();
    for round in 0..500 {
        let volume = Use::any(&mut random);
        let (mut watch, mut now) = volume.watched(&mut random, 60);
        let speed = random.random_range(30.0..400.0) * MB;
        // It begins somewhere between two updates; hosts do meanwhile what they always do.
        let mut share = random.random_range(0.05..1.0);
        let mut seen = None;
        for number in 1..=2 {
            let (theirs, ordinary) = (speed * volume.every * share, volume.rate * volume.every);
            let bytes = theirs + ordinary;
            let saving = ordinary * volume.saving / bytes;
            let first = update(now, bytes, saving);
            if let Some(suspicion) = watch.note(&first, VOLUME) {
                seen = Some((number, suspicion));
                break;
            }
            (now, share) = (now + volume.every, 1.0);
        }
        let Some((number, suspicion)) = seen else { panic!("round {round}: not seen, {speed} B/s") };
        assert!(suspicion.updates <= number, "{suspicion:?}");
        assert!(watch.is_suspected());
        // Until somebody has decided nothing is told again, and it does not become usual.
        for _ in 0..100 {
            now += volume.every;
            assert_eq!(watch.note(&update(now, speed * volume.every, 0.0), VOLUME), None);
        }
        watch.settle();
        assert_eq!(
            watch.note(&update(now + volume.every, speed * volume.every, 0.0), VOLUME),
            None,
            "now it is"
        );
    }
}

#[test]
fn bursts_that_save_what_such_data_saves_are_never_suspected() {
    let mut random = seeded();
    for _ in 0..300 {
        let volume = Use::any(&mut random);
        let (mut watch, mut now) = volume.watched(&mut random, 60);
        for _ in 0..200 {
            let report = match random.random_range(0..10) {
                // A VACUUM FULL, a restore, an upgrade: up to 1000 times as much, which saves a little more or less.
                0 => {
                    let bytes = volume.rate * volume.every * random.random_range(10.0..1000.0);
                    update(now, bytes, volume.saving * random.random_range(0.6..1.1))
                }
                // An upgrade: packages that are compressed already, and what they unpack to.
                1 => update(now, 2e9, volume.saving * random.random_range(0.45..0.7)),
                _ => volume.ordinary(&mut random, now),
            };
            assert_eq!(watch.note(&report, VOLUME), None, "{report:?}");
            now += volume.every * if random.random_ratio(1, 50) { 500.0 } else { 1.0 };
        }
    }
}

#[test]
fn a_volume_that_was_always_incompressible_is_never_suspected() {
    let mut random = seeded();
    let volume = Use { every: 60.0, rate: MB, saving: 0.05 };
    let mut watch = Watch::default();
    for number in 0..400 {
        let bytes = volume.rate * volume.every * if number % 50 == 49 { 300.0 } else { 1.0 };
        let report =
            update(f64::from(number) * 60.0, spread(&mut random, bytes), random.random_range(0.0..0.1));
        assert_eq!(watch.note(&report, VOLUME), None);
    }
}

#[test]
fn what_happens_each_night_is_unusual_once() {
    let mut random = seeded();
    let volume = Use { every: 900.0, rate: 0.1 * MB, saving: 0.6 };
    let (mut watch, mut now) = volume.watched(&mut random, 60);
    let mut raised = 0;
    for _night in 0..20 {
        for _ in 0..95 {
            assert_eq!(watch.note(&volume.ordinary(&mut random, now), VOLUME), None);
            now += 900.0;
        }
        // 30 GB of archives.
        if watch.note(&update(now, 30e9 * random.random_range(0.8..1.2), 0.0), VOLUME).is_some() {
            raised += 1;
            watch.settle();
        }
        now += 900.0;
    }
    assert_eq!(raised, 1);
}

#[test]
fn what_travelled_as_it_is_because_the_line_is_fast_is_no_ciphertext() {
    let mut random = seeded();
    let volume = Use { every: 3.0, rate: 1.3 * MB, saving: 0.94 };
    let (watch, now) = volume.watched(&mut random, 60);
    // As it was seen: a VACUUM FULL of 100 MB on a busy machine beside a link that is faster than its compressor.
    let raw = |second: f64, bytes: f64, noise: Option<f64>| {
        let mut report = update(second, bytes, 0.0);
        let level = Level { in_bytes: bytes as u64, out_bytes: bytes as u64 };
        let noise_bytes = noise.map(|noise| noise as u64);
        report.levels = Some(Levels { raw: level, noise_bytes, ..Levels::default() });
        report
    };
    let mut busy = watch.clone();
    for number in 0..40 {
        assert_eq!(busy.note(&raw(now + f64::from(number) * 3.0, 100e6, Some(0.0)), VOLUME), None);
    }
    // It does not hide an encryptor that comes later and is no faster, nor one that goes on beside it.
    let then = now + 120.0;
    let told = |watch: &mut Watch, part: f64| {
        (0..3)
            .any(|n| watch.note(&raw(then + f64::from(n) * 3.0, 150e6, Some(150e6 * part)), VOLUME).is_some())
    };
    assert!(told(&mut busy.clone(), 1.0) && told(&mut busy, 0.6));
    // Of records that do not say what it was it is feared.
    let mut before = watch;
    assert!((0..3).any(|n| before.note(&raw(now + f64::from(n) * 3.0, 100e6, None), VOLUME).is_some()));
}

#[test]
fn a_small_backup_does_not_make_an_encryptor_usual() {
    let mut random = seeded();
    let volume = Use { every: 3.0, rate: 1.3 * MB, saving: 0.94 };
    let (mut watch, mut now) = volume.watched(&mut random, 60);
    // As it was seen: what gzip makes of a dump comes as fast as an encryptor's work.
    for _ in 0..3 {
        assert_eq!(watch.note(&update(now, 27e6, 0.1), VOLUME), None);
        assert_eq!(watch.note(&volume.ordinary(&mut random, now + 3.0), VOLUME), None);
        now += 6.0;
    }
    // A run of 256 MiB is suspected, as if there had been no backup.
    let told = (0..11).find(|n| watch.note(&update(now + f64::from(*n) * 3.0, 27e6, 0.1), VOLUME).is_some());
    assert_eq!(told, Some(9));
}

#[test]
fn a_little_that_cannot_be_made_smaller_is_nothing() {
    let mut random = seeded();
    let volume = Use { every: 60.0, rate: 0.02 * MB, saving: 0.7 };
    let (mut watch, mut now) = volume.watched(&mut random, 60);
    for number in 0..200 {
        // Attachments of mails, a few photographs: 20 MB at once, now and then.
        let report = match number % 7 {
            0 => update(now, 20e6, 0.01),
            _ => volume.ordinary(&mut random, now),
        };
        assert_eq!(watch.note(&report, VOLUME), None, "{number}");
        now += 60.0;
    }
}

#[test]
fn what_is_judged_and_against_what() {
    let mut random = seeded();
    let volume = Use { every: 60.0, rate: MB, saving: 0.6 };
    let cipher = |now| update(now, 4e9, 0.0);
    // Too little is known.
    let (mut watch, now) = volume.watched(&mut random, UPDATES_LEAST as u32);
    assert_eq!(
        watch.clone().note(&cipher(now), VOLUME),
        None,
        "the first update has nothing before it, so seven are known"
    );
    assert_eq!(watch.note(&volume.ordinary(&mut random, now), VOLUME), None);
    let suspicion = watch.clone().note(&cipher(now + 60.0), VOLUME).unwrap();
    assert!((suspicion.usual_saving - 0.6).abs() < 0.1 && suspicion.saving.abs() < 1e-6, "{suspicion:?}");
    assert!(suspicion.rate / suspicion.usual_rate > 10.0, "{suspicion:?}");
    assert_eq!(suspicion.since.snapshot, Some(format!("s{}", now + 60.0)));
    assert_eq!(suspicion.since.good_until, volume.ordinary(&mut random, now).ended_at);
    // First copies, resyncs and what failed are no updates.
    for report in [
        TransferReport { kind: TransferKind::Resync, ..cipher(now + 60.0) },
        TransferReport { kind: TransferKind::Initialize, ..cipher(now + 60.0) },
        TransferReport { result: TransferResult::Failed, ..cipher(now + 60.0) },
    ] {
        assert_eq!(watch.clone().note(&report, VOLUME), None);
    }
    // After a night without a link all of it comes at once: at the usual rate.
    assert_eq!(watch.clone().note(&update(now + 60_000.0, 60e9, 0.0), VOLUME), None);
    // What had to be brought twice is no loss of reduction.
    let twice = TransferReport { wire_bytes_received: 4_000_000_000, ..update(now + 60.0, 4e9, 0.6) };
    assert_eq!(watch.clone().note(&twice, VOLUME), None);
    // Of a report that does not count levels the wire bytes say the same.
    let plain = TransferReport { levels: None, ..cipher(now + 60.0) };
    assert!(watch.clone().note(&plain, VOLUME).is_some());
}

#[test]
fn an_unusual_run_counts_together_and_small_updates_do_not_end_it() {
    let mut random = seeded();
    let volume = Use { every: 10.0, rate: 0.1 * MB, saving: 0.6 };
    let (mut watch, now) = volume.watched(&mut random, 60);
    // 10 MB/s: 100 MB with each update, of which three are 256 MiB.
    assert_eq!(watch.note(&update(now, 100e6, 0.0), VOLUME), None);
    assert_eq!(watch.note(&update(now + 10.0, 100_000.0, 0.5), VOLUME), None);
    assert_eq!(watch.note(&update(now + 20.0, 100e6, 0.0), VOLUME), None);
    let mut interrupted = watch.clone();
    let suspicion = watch.note(&update(now + 30.0, 100e6, 0.0), VOLUME).unwrap();
    assert_eq!((suspicion.updates, suspicion.since.snapshot), (3, Some(format!("s{now}"))));
    assert_eq!(interrupted.note(&volume.ordinary(&mut random, now + 30.0), VOLUME), None);
    assert_eq!(
        interrupted.note(&update(now + 40.0, 100e6, 0.0), VOLUME),
        None,
        "it has been like this before"
    );
    assert_eq!(suspected_bytes(1 << 20), 16 << 20);
    assert_eq!(suspected_bytes(10 << 30), (10 << 30) / 100);
    assert_eq!(suspected_bytes(u64::MAX), 256 << 20);
}

#[test]
fn a_restart_forgets_nothing() {
    let mut random = seeded();
    let volume = Use { every: 60.0, rate: MB, saving: 0.6 };
    let mut reports: Vec<TransferReport> =
        (0..60).map(|n| volume.ordinary(&mut random, f64::from(n) * 60.0)).collect();
    let cipher = |n: u32| update(f64::from(n) * 60.0, 4e9, 0.0);
    let (mut watch, nothing) = Watch::from_history(&reports, VOLUME, Timestamp(0));
    assert_eq!(nothing, None);
    let told = watch.note(&cipher(60), VOLUME);
    assert!(told.is_some());
    reports.push(cipher(60));
    reports.push(volume.ordinary(&mut random, 3660.0));
    // Whether it was told or not: it is found, is suspected, and not usual.
    let (mut watch, found) = Watch::from_history(&reports, VOLUME, Timestamp(0));
    assert_eq!(found, told);
    assert!(watch.is_suspected());
    assert_eq!(watch.note(&cipher(62), VOLUME), None);
    assert!(watch.history.iter().all(|figures| figures.saving.is_none_or(|saving| saving > 0.3)));
    // A person has said that it is.
    let (mut watch, nothing) = Watch::from_history(&reports, VOLUME, cipher(60).ended_at);
    assert_eq!(nothing, None);
    assert!(!watch.is_suspected());
    assert_eq!(watch.note(&cipher(62), VOLUME), None);
    assert_eq!((watch.history.len(), watch.run.len()), (61, 1));
}
