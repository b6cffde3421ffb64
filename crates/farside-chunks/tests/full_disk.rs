//! A store on a disk that is full: a small file system of its own for each site, in a mount namespace of the test's own.
//! Where that cannot be had, the test says on stderr that it is skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use farside_chunks::store::STORE_MIN;
use farside_chunks::{ChunkError, ChunkStore, StoreSettings, StreamEncoder, StreamSettings};
use farside_platform::{ManualClock, Timestamp};
use pair::{BULK, Cost, Pair, Site, bytes};

/// Set in the process that has the file systems: where they are.
const INSIDE: &str = "FARSIDE_CHUNKS_SMALL_DISKS";
/// Less than a store may have, so that it is the disk that ends first: three containers and a half.
const MOUNT: &str = r#"
    for disk in a b; do
        mkdir "$1/$disk" && mount -t tmpfs -o size=56m,mode=700 farside-test "$1/$disk" || exit 77
    done
    shift
    exec "$@"
"#;
const NO_MOUNT: i32 = 77;

#[test]
fn a_full_disk_costs_bytes_and_nothing_else() {
    if let Some(root) = std::env::var_os(INSIDE) {
        return streams_go_on(Path::new(&root));
    }
    let root = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh"]).arg(root.path()).arg(test);
    command.args(["--exact", "a_full_disk_costs_bytes_and_nothing_else", "--nocapture"]);
    let why = match command.env(INSIDE, root.path()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("{}", String::from_utf8_lossy(&output.stdout));
            match output.status.code() {
                Some(0) => return,
                Some(NO_MOUNT) => said,
                // It is unshare itself that refuses.
                Some(1) if said.starts_with("unshare:") => said,
                _ => panic!("{}: {said}", output.status),
            }
        }
        Err(error) => format!("unshare: {error}"),
    };
    assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "no file system of its own: {why}");
    eprintln!("**** skipped, no file system of its own: {why}");
}

fn open(directory: &Path, clock: &Arc<ManualClock>) -> Result<ChunkStore, ChunkError> {
    ChunkStore::open_with_clock(directory, StoreSettings { bytes: STORE_MIN }, clock.clone())
}

/// Somebody else who takes all the disk there is.
struct Others(Vec<(PathBuf, File)>);

impl Others {
    fn on(disks: &[PathBuf]) -> Others {
        let files = disks.iter().map(|disk| disk.join("others"));
        Others(files.map(|path| (path.clone(), File::create(path).unwrap())).collect())
    }

    fn fill(&mut self) {
        for (_, file) in &mut self.0 {
            for part in [1 << 20, 4096] {
                while file.write_all(&vec![1; part]).is_ok() {}
            }
        }
    }

    fn go(self) {
        self.0.into_iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    }
}

const PART: usize = 4 << 20;

fn part(number: u64) -> Vec<u8> {
    bytes(1000 + number, PART, false)
}

fn is_warm(cost: Cost) -> bool {
    cost.asked == 0 && cost.wire < PART / 20
}

fn streams_go_on(root: &Path) {
    let disks = ["a", "b"].map(|disk| root.join(disk));
    let clock = Arc::new(ManualClock::new(Timestamp(0)));
    let [a, b] = disks.clone().map(|disk| Site::of(open(&disk.join("store"), &clock).unwrap()));
    let evicted = |site: &Site| site.store.stats().evicted;

    // More than the disks have room for, and nobody else is there: older containers give way, without a clock that moves.
    let mut rests = StreamEncoder::new(a.realm.clone(), a.known.clone(), StreamSettings::default());
    for number in 0..30 {
        Pair::send(&a, &b, &part(number), &BULK);
        if number == 4 {
            // A stream that stands in a container that has gone keeps none of its bytes on the disk.
            let mut block = Vec::new();
            assert!(rests.encode(&part(0), true, &mut block).referred > 0);
        }
    }
    for site in [&a, &b] {
        let stats = site.store.stats();
        assert!(stats.evicted >= 4 && stats.containers >= 2 && stats.bytes < STORE_MIN, "{stats:?}");
        assert_eq!(stats.damaged, 0);
    }
    for number in 24..30 {
        let cost = Pair::send(&a, &b, &part(number), &BULK);
        assert!(is_warm(cost), "part {number}: {cost:?}");
    }
    assert!(!is_warm(Pair::send(&a, &b, &part(0), &BULK)), "what came first has gone");

    // Somebody else takes what is left, and what becomes free. One container goes in a second.
    let mut others = Others::on(&disks);
    clock.advance(Duration::from_secs(1));
    for number in 100..106 {
        let before = [evicted(&a), evicted(&b)];
        others.fill();
        Pair::send(&a, &b, &part(number)[..PART / 4], &BULK);
        let went = [evicted(&a) - before[0], evicted(&b) - before[1]];
        assert!(went.iter().all(|went| *went == u64::from(number == 100)), "{number}: {went:?}");
    }
    // In the end nothing is left of the stores, and streams go on.
    for number in 200..212 {
        others.fill();
        clock.advance(Duration::from_secs(1));
        let cost = Pair::send(&a, &b, &part(number)[..PART / 4], &BULK);
        assert!(cost.wire < PART / 4 * 101 / 100, "{cost:?}");
    }
    others.fill();
    let new = open(&disks[1].join("new"), &clock);
    assert!(matches!(new, Err(ChunkError::Directory { .. })), "{new:?}");
    // One that is there can be opened.
    drop(b);
    let b = Site::of(open(&disks[1].join("store"), &clock).unwrap());
    a.known.lock().clear();
    a.realm.begin_anew();
    while b.store.load_next() {}
    Pair::send(&a, &b, &part(300), &BULK);

    // And when there is room again, all is well.
    others.go();
    assert!(fs::read_dir(&disks[0]).unwrap().all(|entry| entry.unwrap().file_name() == OsStr::new("store")));
    clock.advance(Duration::from_secs(1));
    for number in 400..405 {
        Pair::send(&a, &b, &part(number), &BULK);
    }
    for number in 400..405 {
        let cost = Pair::send(&a, &b, &part(number), &BULK);
        assert!(is_warm(cost), "part {number}: {cost:?}");
    }
    for site in [&a, &b] {
        assert_eq!(site.store.stats().damaged, 0, "{:?}", site.store.stats());
    }
}
