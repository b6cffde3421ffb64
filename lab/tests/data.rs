//! Data sets through the program: what a manifest says is computed again by other means, what promises to be the same is
//! made twice, and what is killed leaves nothing that looks whole.
//!
//! Sets are as small as they can be. Making needs root and /dev/net/tun (the sandbox), and each set its programs and
//! packages (`scripts/install-lab-tools`); what is missing is said and skipped, or a failure with
//! `FARSIDE_REQUIRE_LAB_DATA=1`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use farside_lab::data::{BLOCK_BYTES, Generation, Manifest, Volume};
use tempfile::TempDir;

/// Of everything drawn by chance in these tests.
const SEED: u64 = 7;

/// A set, the size it is tested with, and the programs without which it cannot be made.
const SETS: [(&str, &str, &[&str]); 12] = [
    ("random", "2MiB", &[]),
    ("sqlite", "16MiB", &["sqlite3"]),
    ("tree", "16MiB", &["rsync", "dpkg-deb"]),
    ("mail", "64MiB", &[]),
    ("sequences", "10MiB", &[]),
    ("sequences-gz", "10MiB", &["gzip"]),
    ("machines", "32MiB", &["sfdisk", "dpkg-deb"]),
    ("iso", "8MiB", &["xorriso", "dpkg"]),
    ("tar", "8MiB", &["tar", "dpkg"]),
    ("fleet", "176MiB", &["rsync", "dpkg-deb"]),
    ("postgres", "80MiB", &["/usr/lib/postgresql/15/bin/pgbench"]),
    ("encrypted", "84MiB", &["/usr/lib/postgresql/15/bin/pgbench", "qemu-img"]),
];

/// Sets whose recipe is that of one above but for a word.
const VARIANTS: [(&str, &str, &[&str]); 2] = [
    ("tree-replaced", "16MiB", &["rsync", "dpkg-deb"]),
    ("large-tail", "112MiB", &["/usr/lib/postgresql/15/bin/pgbench"]),
];

/// A cache for one test, with the packages that this machine has.
struct Cache {
    dir: TempDir,
}

impl Cache {
    fn new() -> Self {
        let dir =
            tempfile::Builder::new().prefix("farside-lab-data").tempdir().expect("a directory for the test");
        let cache = Self { dir };
        fs::create_dir(cache.data()).expect("the data's directory");
        if packages().is_dir() {
            std::os::unix::fs::symlink(packages(), cache.data().join("packages"))
                .expect("a link to the packages");
        }
        cache
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
        command.arg("--cache").arg(self.dir.path()).arg("data").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Makes a set; its directory and manifest.
    fn make(&self, set: &str, size: &str) -> (PathBuf, Manifest) {
        let output = self.order(set, size).output().expect("farside-lab runs");
        let manifest = manifest_of(&output);
        let (size_bytes, version, generator) = (manifest.size_bytes, manifest.version, manifest.generator);
        (self.data().join(format!("{set}-{size_bytes}-{SEED}-v{version}.{generator}")), manifest)
    }

    fn order(&self, set: &str, size: &str) -> Command {
        self.command(&[set, "--size", size, "--seed", &SEED.to_string(), "--json"])
    }

    /// What lies in the cache besides locks and packages.
    fn content(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.data())
            .expect("the data's directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| !name.ends_with(".lock") && name != "packages")
            .collect();
        names.sort();
        names
    }
}

fn packages() -> PathBuf {
    let cache = std::env::var_os("FARSIDE_LAB_CACHE").unwrap_or_else(|| "/var/cache/farside-lab".into());
    Path::new(&cache).join("data/packages")
}

fn manifest_of(output: &Output) -> Manifest {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).expect("a manifest as JSON")
}

/// Says what is missing here for making data at all, or for one set.
fn skipped(set: &str, programs: &[&str]) -> bool {
    let found = |program: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Path::new(program).is_absolute() && Path::new(program).exists()
            || std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    let mut missing: Vec<String> = programs
        .iter()
        .chain(["mke2fs", "e2fsck", "debugfs", "zstd", "sha256sum"].iter())
        .filter(|program| !found(program))
        .map(ToString::to_string)
        .collect();
    if !nix::unistd::geteuid().is_root() {
        missing.push("root".to_owned());
    }
    if fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        missing.push("/dev/net/tun".to_owned());
    }
    if matches!(set, "tree" | "tree-replaced" | "fleet" | "machines" | "iso" | "tar") && !packages().is_dir()
    {
        missing.push(format!("packages in {}", packages().display()));
    }
    if missing.is_empty() {
        return false;
    }
    let missing = missing.join(", ");
    assert!(std::env::var_os("FARSIDE_REQUIRE_LAB_DATA").is_none(), "{set} is missing: {missing}");
    eprintln!("SKIPPED: {set} is missing: {missing}");
    true
}

fn output_of(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::inherit()).output().expect("the program runs");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    output.stdout
}

fn sha256(path: &Path) -> String {
    let said = String::from_utf8(output_of(Command::new("sha256sum").arg(path))).expect("text");
    said.split_whitespace().next().expect("a sum").to_owned()
}

/// Length under `zstd -3`, of a file read from a pipe as the manifest's is.
fn zstd3_bytes(path: &Path) -> u64 {
    let file = fs::File::open(path).expect("a file");
    let mut cat = Command::new("cat").stdin(file).stdout(Stdio::piped()).spawn().expect("cat runs");
    let pipe = cat.stdout.take().expect("a pipe");
    let packed = output_of(Command::new("zstd").args(["-3", "-q", "-c"]).stdin(pipe)).len();
    assert!(cat.wait().expect("cat ends").success());
    packed as u64
}

/// Copies the files out of an image, without mounting it.
fn dump(image: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory to dump into");
    let request = format!("rdump / {}", to.display());
    output_of(Command::new("debugfs").args(["-R", &request]).arg(image).stderr(Stdio::null()));
    let found = to.join("lost+found");
    if found.exists() {
        fs::remove_dir(found).expect("an empty lost+found");
    }
}

fn assert_same_files(one: &Path, other: &Path) {
    let mut diff = Command::new("diff");
    assert!(output_of(diff.args(["-r", "--no-dereference"]).arg(one).arg(other)).is_empty());
}

/// Compares a volume with what its manifest says, block by block.
fn assert_volume_is_true(dir: &Path, generation: &Generation, before: Option<&Generation>, number: usize) {
    let volume: &Volume = &generation.volumes[number];
    let path = dir.join(&generation.name).join(&volume.file);
    assert_eq!(volume.file, format!("{number}.img"));
    assert_eq!(volume.sha256, sha256(&path), "{}", path.display());
    assert_eq!(volume.zstd3_bytes, zstd3_bytes(&path), "{}", path.display());
    let content = fs::read(&path).expect("the image");
    assert_eq!(volume.size_bytes, content.len() as u64);
    let block = BLOCK_BYTES as usize;
    let zero = vec![0; block];
    let data = content.chunks(block).filter(|block| **block != zero).count() as u64;
    assert_eq!(volume.data_bytes, data * BLOCK_BYTES, "{}", path.display());
    let old =
        before.map(|before| fs::read(dir.join(&before.name).join(&volume.file)).expect("the image before"));
    let counted = old.map(|old| {
        let pairs = || old.chunks(block).zip(content.chunks(block)).filter(|(old, new)| old != new);
        (pairs().count() as u64, pairs().filter(|(old, _)| **old == zero).count() as u64)
    });
    let told = volume.changed.as_ref().map(|changed| (changed.blocks, changed.blocks_from_zero));
    assert_eq!(told, counted, "{}", path.display());
    // Every later generation has something to bring over.
    assert!(counted.is_none_or(|(blocks, _)| blocks > 0), "{} did not change", path.display());
    // Blocks that are zero take no room.
    let taken = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&path).expect("the image")) * 512;
    assert!(taken <= volume.data_bytes + 1024 * 1024, "{}: {taken} bytes on disk", path.display());
}

#[test]
fn every_set_is_what_its_manifest_says_and_what_should_be_the_same_is() {
    look_at(&SETS);
}

#[test]
#[ignore = "a minute more for two sets that are made as two others are"]
fn variants_of_sets_are_what_their_manifests_say() {
    look_at(&VARIANTS);
}

/// Makes sets and compares what lies there with what is told of them.
fn look_at(sets: &[(&str, &str, &[&str])]) {
    println!("seed {SEED}");
    let cache = Cache::new();
    for &(set, size, programs) in sets {
        if skipped(set, programs) {
            continue;
        }
        let begun = Instant::now();
        let (dir, manifest) = cache.make(set, size);
        let made = begun.elapsed();
        let kept: Manifest =
            serde_json::from_slice(&fs::read(dir.join("manifest.json")).expect("a manifest"))
                .expect("its JSON");
        assert_eq!(kept, manifest);
        let mut before = None;
        for generation in &manifest.generations {
            // Of many volumes the first and the last: they are captured alike.
            let last = generation.volumes.len() - 1;
            for number in [0, last].into_iter().take(last + 1) {
                assert_volume_is_true(&dir, generation, before, number);
            }
            if generation.tree.is_some() {
                let dumped = cache.dir.path().join("dumped");
                dump(&dir.join(&generation.name).join("0.img"), &dumped);
                assert_same_files(&dir.join(&generation.name).join("tree"), &dumped);
                fs::remove_dir_all(&dumped).expect("the dump goes");
            }
            before = Some(generation);
        }
        assert_made_again_is_the_same(set, size, (&dir, &manifest));
        println!("{set}: made in {made:?}, looked at in {:?}", begun.elapsed() - made);
        // postgres stays for the sets that are made of it.
        if set != "postgres" {
            fs::remove_dir_all(&dir).expect("the set goes");
        }
    }
}

/// Of `random`, 2 MiB, seed 7: A and B. What the generator draws is the same for ever: figures of other years can be compared.
const RANDOM_SHA256: [&str; 2] = [
    "04842393b5231abf9a4d47f249ff879bbac7463faaea09e055b3e8e1410edf4b",
    "7d66547c2032c1cadc3388959a1b996c33ab20148a6689a553635d78e567502d",
];

/// Makes a set once more, and compares what the manual says is the same in every making.
fn assert_made_again_is_the_same(set: &str, size: &str, one: (&Path, &Manifest)) {
    let cache = Cache::new();
    let (one_dir, one) = one;
    let compared: &[&str] = match set {
        "sqlite" => &["B/0.img"],
        "random" | "sequences" | "iso" | "tar" => &[],
        // Of mail, which takes longest, a unit test looks at the messages.
        _ => return,
    };
    let (other_dir, other) = cache.make(set, size);
    if matches!(set, "random" | "iso" | "tar") {
        assert_eq!(*one, other);
    }
    if set == "random" {
        let sums: Vec<&str> =
            one.generations.iter().map(|generation| generation.volumes[0].sha256.as_str()).collect();
        assert_eq!(sums, RANDOM_SHA256);
    }
    // Archives with names, times and owners.
    for (one, other) in one.generations.iter().zip(&other.generations) {
        assert_eq!(one.tree, other.tree, "{set} {}", one.name);
    }
    for image in compared {
        let (one, again) = (cache.dir.path().join("one"), cache.dir.path().join("again"));
        dump(&one_dir.join(image), &one);
        dump(&other_dir.join(image), &again);
        assert_same_files(&one, &again);
        fs::remove_dir_all(&one).and_then(|()| fs::remove_dir_all(&again)).expect("the dumps go");
    }
}

#[test]
fn a_killed_making_leaves_nothing_that_looks_whole() {
    if skipped("random", &[]) {
        return;
    }
    let cache = Cache::new();
    // Large enough that it is killed long before its end.
    let mut killed = cache.order("random", "512MiB").spawn().expect("farside-lab runs");
    let begun = Instant::now();
    while cache.content().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(300), "nothing is made");
        assert!(killed.try_wait().expect("its state").is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().expect("it is killed");
    killed.wait().expect("it ends");
    let left = cache.content();
    assert!(!left.iter().any(|name| name.starts_with("random-")), "{left:?} looks whole");
    // The next one takes the lock and clears up.
    let (dir, manifest) = cache.make("random", "2MiB");
    assert_volume_is_true(&dir, &manifest.generations[0], None, 0);
    assert_eq!(cache.content().iter().map(|name| cache.data().join(name)).collect::<Vec<_>>(), [dir]);
}

#[test]
fn two_processes_share_a_cache() {
    if skipped("random", &[]) {
        return;
    }
    let cache = Cache::new();
    let both = [cache.order("random", "8MiB").spawn(), cache.order("random", "8MiB").spawn()];
    let [one, other] =
        both.map(|child| manifest_of(&child.expect("farside-lab runs").wait_with_output().expect("it ends")));
    assert_eq!(one, other);
    let name = format!("random-{}-{SEED}-v{}.{}", one.size_bytes, one.version, one.generator);
    assert_eq!(cache.content(), [name.as_str()]);
    // Whole already: the same files, not others of the same content.
    let image = cache.data().join(name).join("A/0.img");
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("the image"));
    let before = inode(&image);
    cache.make("random", "8MiB");
    assert_eq!(inode(&image), before);
    // An image cut short is no longer whole, and is made anew.
    fs::File::options()
        .write(true)
        .open(&image)
        .and_then(|file| file.set_len(4096))
        .expect("the image is cut");
    let (dir, manifest) = cache.make("random", "8MiB");
    assert_volume_is_true(&dir, &manifest.generations[0], None, 0);
}

#[test]
fn what_cannot_be_made_says_why_and_what_to_do() {
    let cache = Cache::new();
    let said = |command: &mut Command| {
        let output = command.output().expect("farside-lab runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = said(&mut cache.command(&["postgresql"]));
    assert!(
        unknown.contains("no data set `postgresql`") && unknown.contains("postgres, sqlite"),
        "{unknown}"
    );
    if skipped("random", &[]) {
        return;
    }
    let small = said(&mut cache.order("postgres", "1MiB"));
    assert!(small.contains("at least 80.0 MiB"), "{small}");
    if let Err(error) = fs::remove_file(cache.data().join("packages")) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
    let missing = said(&mut cache.order("tree", "16MiB"));
    assert!(missing.contains("linux-headers") && missing.contains("scripts/install-lab-tools"), "{missing}");
    assert!(cache.content().is_empty(), "{:?}", cache.content());

    // A disk of 24 MiB, in a mount namespace that ends with the command.
    let place = cache.dir.path().join("small disk");
    fs::create_dir(&place).expect("a mount point");
    let script = "mount -t tmpfs -o size=24m lab \"$1\" && { \"$2\" --cache \"$1\" data random --size 16MiB; \
                  ls \"$1\"/data; exit 1; }";
    let mut full = Command::new("unshare");
    full.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    let output = full.arg(&place).arg(env!("CARGO_BIN_EXE_farside-lab")).output().expect("unshare runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("has 2") && told.contains("free"), "{told}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "something was left");
}
