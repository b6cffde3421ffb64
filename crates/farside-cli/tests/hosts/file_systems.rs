//! A file system exerciser on ext4 and XFS on a volume, with a snapshot every second: files are written, cut, punched, renamed,
//! linked and copied at random, and what they hold is known. It is compared while it runs, after another mount, and on
//! the snapshots: of one that was taken while nobody wrote each byte, of one in the middle of it that the file system
//! recovers and is sound by its own checker.
//!
//! Mounts are in a namespace of the test's own. It needs root, FUSE, loop devices, nbdfuse and nbdcopy.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::mounted::{FileSystem, Mounted, Namespace, has_tool, look_at_image};
use crate::support::{Site, check_pool, seed};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::fs::{FallocateFlags, fallocate};

const FILES_MAX: usize = 40;
const FILE_BYTES_MAX: usize = 512 << 10;
/// Snapshots that are kept: older ones are deleted on the way, so that what only they had is given out again.
const KEPT: usize = 20;
/// Snapshots that are looked at in the end.
const LOOKED_AT: usize = 4;

type Files = BTreeMap<String, Vec<u8>>;

struct Exerciser {
    random: StdRng,
    root: PathBuf,
    files: Files,
    names: u64,
    operations: u64,
}

impl Exerciser {
    fn pick(&mut self) -> Option<String> {
        if self.files.is_empty() {
            return None;
        }
        let at = self.random.random_range(0..self.files.len());
        self.files.keys().nth(at).cloned()
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        format!("{}/f{}", self.random.random_range(0..4), self.names)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        if self.random.random_ratio(7, 8) {
            self.random.fill_bytes(&mut bytes);
        }
        bytes
    }

    fn open(&self, name: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.root.join(name)).unwrap()
    }

    fn step(&mut self) {
        self.operations += 1;
        let Some(name) = self.pick().filter(|_| self.random.random_ratio(11, 12)) else {
            return if self.files.len() < FILES_MAX { self.create() } else { self.remove() };
        };
        let length = self.files[&name].len();
        match self.random.random_range(0..20) {
            0..7 => {
                let at = self.random.random_range(0..=length.min(FILE_BYTES_MAX - 1));
                let count = self.random.random_range(1..=(FILE_BYTES_MAX - at).min(60_000));
                let bytes = self.bytes(count);
                self.open(&name).write_all_at(&bytes, at as u64).unwrap();
                let model = self.files.get_mut(&name).unwrap();
                model.resize(length.max(at + count), 0);
                model[at..at + count].copy_from_slice(&bytes);
            }
            7 | 8 => {
                let to = self.random.random_range(0..FILE_BYTES_MAX);
                self.open(&name).set_len(to as u64).unwrap();
                self.files.get_mut(&name).unwrap().resize(to, 0);
            }
            9 | 10 if length > 0 => {
                let at = self.random.random_range(0..length);
                let count = self.random.random_range(1..=length - at);
                let how = match self.random.random_bool(0.5) {
                    true => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    false => FallocateFlags::ZERO_RANGE,
                };
                fallocate(self.open(&name), how, at as u64, count as u64).unwrap();
                self.files.get_mut(&name).unwrap()[at..at + count].fill(0);
            }
            11 => {
                let to = self.pick().unwrap();
                std::fs::rename(self.root.join(&name), self.root.join(&to)).unwrap();
                let bytes = self.files.remove(&name).unwrap();
                self.files.insert(to, bytes);
            }
            12 => {
                let to = self.fresh_name();
                std::fs::rename(self.root.join(&name), self.root.join(&to)).unwrap();
                let bytes = self.files.remove(&name).unwrap();
                self.files.insert(to, bytes);
            }
            13 if self.files.len() < FILES_MAX => {
                // With the kernel's own copying, which shares blocks where the file system can.
                let to = self.fresh_name();
                std::fs::copy(self.root.join(&name), self.root.join(&to)).unwrap();
                let bytes = self.files[&name].clone();
                self.files.insert(to, bytes);
            }
            14 => self.open(&name).sync_all().unwrap(),
            15 => self.remove(),
            _ => self.compare_one(&self.root.clone(), &name),
        }
    }

    fn create(&mut self) {
        let name = self.fresh_name();
        let count = self.random.random_range(0..100_000);
        let bytes = self.bytes(count);
        File::create_new(self.root.join(&name)).unwrap().write_all(&bytes).unwrap();
        self.files.insert(name, bytes);
    }

    fn remove(&mut self) {
        let Some(name) = self.pick() else { return };
        std::fs::remove_file(self.root.join(&name)).unwrap();
        self.files.remove(&name);
    }

    fn compare_one(&self, root: &Path, name: &str) {
        compare_one(root, name, &self.files[name]);
    }
}

fn compare_one(root: &Path, name: &str, expected: &[u8]) {
    let mut found = Vec::new();
    File::open(root.join(name)).unwrap().read_to_end(&mut found).unwrap();
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{name}: {} bytes instead of {}, first other one at {at:?}", found.len(), expected.len());
    }
}

fn compare(root: &Path, files: &Files) {
    for (name, expected) in files {
        compare_one(root, name, expected);
    }
    let directories = (0..4).map(|number| std::fs::read_dir(root.join(number.to_string())).unwrap().count());
    assert_eq!(directories.sum::<usize>(), files.len(), "files that should not be there");
}

/// Exercises for so many seconds.
fn exercise(file_system: FileSystem, seconds: u64) {
    let missing = ["nbdfuse", "nbdcopy"].into_iter().find(|tool| !has_tool(tool));
    let missing = missing.map(|tool| format!("{tool} is missing")).or_else(|| file_system.is_missing());
    let namespace = if missing.is_none() { Namespace::new() } else { None };
    let Some(namespace) = namespace else {
        let why = missing.unwrap_or_else(|| "root or FUSE is missing".into());
        assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "{why}");
        eprintln!("**** SKIPPED: {why}");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut site = Site::start(directory.path(), "a");
    let pool = directory.path().join("p.pool");
    site.ok(&format!("pool create p --path {} --size 2G", pool.display()));
    site.ok("volume create p/v --size 384M");
    let host = directory.path().join("host");
    let mounted = Mounted::start(&namespace, &site.nbd_socket(), "p/v", &host, (file_system, true));
    let root = namespace.reach(&host.join("mounted"));
    let random = StdRng::seed_from_u64(seed());
    let mut exerciser =
        Exerciser { random, root: root.clone(), files: Files::new(), names: 0, operations: 0 };
    for number in 0..4 {
        std::fs::create_dir(root.join(number.to_string())).unwrap();
    }
    let mut snapshots: Vec<(String, Option<Files>)> = Vec::new();
    let began = Instant::now();
    let mut next = Duration::from_secs(1);
    let mut taken = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        exerciser.step();
        if began.elapsed() < next {
            continue;
        }
        next = began.elapsed() + Duration::from_secs(1);
        taken += 1;
        let name = format!("s{taken}");
        // Every second one while nothing is on its way: then it has exactly what is known. The others are taken as they come.
        let quiet = taken % 2 == 0;
        if quiet {
            namespace.ok(&format!("sync -f {}/mounted", host.display()));
        }
        site.ok(&format!("snapshot create p/v@{name}"));
        snapshots.push((name, quiet.then(|| exerciser.files.clone())));
        if snapshots.len() > KEPT {
            let at = exerciser.random.random_range(0..snapshots.len() - 2);
            let (name, _) = snapshots.remove(at);
            site.ok(&format!("snapshot delete p/v@{name} --yes"));
        }
    }
    println!(
        "{file_system:?}: {} operations, {taken} snapshots in {} s, {} files in the end",
        exerciser.operations,
        began.elapsed().as_secs(),
        exerciser.files.len()
    );
    assert!(exerciser.operations > 100 && taken > 2, "{} operations", exerciser.operations);
    mounted.stop();
    // Killed, so that the journal is replayed.
    site.kill();
    site.restart();
    let mounted = Mounted::start(&namespace, &site.nbd_socket(), "p/v", &host, (file_system, false));
    compare(&root, &exerciser.files);
    mounted.stop();
    let step = (snapshots.len() / LOOKED_AT).max(1) | 1;
    for (name, files) in snapshots.iter().rev().step_by(step) {
        let image = directory.path().join("image");
        let uri = format!("nbd+unix:///p/v@{name}?socket={}", site.nbd_socket().display());
        namespace.ok(&format!("nbdcopy '{uri}' {}", image.display()));
        let at = directory.path().join("image-mounted");
        look_at_image(&namespace, &image, &at, file_system, |root| {
            if let Some(files) = files {
                compare(root, files);
            }
        });
        println!("{name}: {}", files.as_ref().map_or("recovered", |_| "each byte compared"));
        std::fs::remove_file(&image).unwrap();
    }
    assert_eq!(site.stop(), Some(0));
    check_pool(&pool);
}

#[test]
fn ext4_holds_what_was_written_and_so_do_its_snapshots() {
    exercise(FileSystem::Ext4, 15);
}

#[test]
fn xfs_holds_what_was_written_and_so_do_its_snapshots() {
    exercise(FileSystem::Xfs, 15);
}

fn long() -> u64 {
    std::env::var("FARSIDE_SECONDS").map_or(300, |seconds| seconds.parse().unwrap())
}

#[test]
#[ignore = "five minutes; FARSIDE_SECONDS says otherwise"]
fn ext4_holds_it_for_minutes() {
    exercise(FileSystem::Ext4, long());
}

#[test]
#[ignore = "five minutes; FARSIDE_SECONDS says otherwise"]
fn xfs_holds_it_for_minutes() {
    exercise(FileSystem::Xfs, long());
}
