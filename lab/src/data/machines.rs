//! `machines`: two virtual machines' disks that began as one: a partition table and ext4 at 1 MiB, root file systems
//! unpacked from Debian packages.
//!
//! Both are clones of a disk with the base packages; each then got its own packages, configuration and logs. B is both after
//! an upgrade of some of these packages, and some more log. Which packages: the
//! repository's `lab/data-packages`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::{Rng, RngCore};

use super::error::DataError;
use super::filesystem::{Content, FileSystem};
use super::making::Making;
use super::packages::Package;
use super::set::MIB;
use super::text::Vocabulary;
use super::{packages, program, seeded};

/// Where partitions begin, on every disk made since 2010.
const PARTITION_AT_BYTES: u64 = MIB;

/// How much of a disk the packages may take at first, by their own account. An upgraded file stands there twice for a moment.
const FILL: f64 = 0.6;

/// What the journal and tables take of even the smallest disk.
const TABLES_BYTES: u64 = 6 * MIB;

/// Lines of log: what a machine writes in some weeks, and in a day.
const LOG_LINES_PER_MIB: u64 = 400;
const LOG_LINES_PER_MIB_LATER: u64 = 30;

/// Two disks of 16 MiB.
pub(super) const MINIMUM_BYTES: u64 = 32 * MIB;

/// What is installed on a machine: package by package, the file of the version.
type Installed = BTreeMap<String, PathBuf>;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    making.program("dpkg-deb", Command::new("dpkg-deb").arg("--version"))?;
    making.program("sfdisk", Command::new("sfdisk").arg("--version"))?;
    let available = packages::all_of(making.cache(), "machines")?;
    let mut room = (making.volume_bytes().saturating_sub(TABLES_BYTES) as f64 * FILL) as u64;
    let mut chosen: [Vec<Package>; 3] = Default::default();
    for package in available {
        let role = match package.role.as_str() {
            "base" => 0,
            "first" => 1,
            _ => 2,
        };
        // Of a small disk, the packages of the list that still fit.
        let bytes = installed_bytes(&package.first)?;
        if bytes <= room {
            // First and second are on different disks.
            room -= if role == 2 { 0 } else { bytes };
            for file in [Some(&package.first), package.upgrade.as_ref()].into_iter().flatten() {
                making.input(file)?;
            }
            chosen[role].push(package);
        }
    }
    let [base, first, second] = chosen;
    let own = [first, second];

    making.step("unpacking the base packages")?;
    let disk = |number: usize| format!("machine-{number}.img");
    let golden = making.scratch().join("golden.img");
    partition(&golden, making.volume_bytes(), making.seed())?;
    let file_system = FileSystem::create_in(making, &golden, PARTITION_AT_BYTES, 0, Content::Small)?;
    let mounted = file_system.mount()?;
    let mut installed = Installed::new();
    for package in &base {
        install(mounted.root(), &package.name, &package.first, &mut installed)?;
    }
    mounted.unmount()?;

    let vocabulary = Vocabulary::new(making.seed());
    let mut machines = Vec::new();
    making.begin("A")?;
    for (number, own) in own.iter().enumerate() {
        making.step(&format!("cloning machine {number}"))?;
        let image = making.scratch().join(disk(number));
        program::run("cp", Command::new("cp").arg("--sparse=always").arg(&golden).arg(&image))?;
        let file_system = file_system.clone_in(&image);
        let mut installed = installed.clone();
        let mounted = file_system.mount()?;
        for package in own {
            install(mounted.root(), &package.name, &package.first, &mut installed)?;
        }
        configure(mounted.root(), making.seed(), number)?;
        write_status(mounted.root(), &installed)?;
        let lines = making.volume_bytes() / MIB * LOG_LINES_PER_MIB;
        write_log(mounted.root(), &vocabulary, making.seed(), (number, 0), lines)?;
        mounted.unmount()?;
        making.capture(&image)?;
        machines.push((file_system, installed));
    }
    making.begin("B")?;
    for (number, (file_system, mut installed)) in machines.into_iter().enumerate() {
        making.step(&format!("upgrading machine {number}"))?;
        let mounted = file_system.mount()?;
        for package in base.iter().chain(&own[number]) {
            if let Some(upgrade) = &package.upgrade {
                install(mounted.root(), &package.name, upgrade, &mut installed)?;
            }
        }
        write_status(mounted.root(), &installed)?;
        let lines = making.volume_bytes() / MIB * LOG_LINES_PER_MIB_LATER;
        write_log(mounted.root(), &vocabulary, making.seed(), (number, 1), lines)?;
        mounted.unmount()?;
        making.capture(file_system.image())?;
    }
    Ok(())
}

/// A disk with one partition.
fn partition(image: &Path, bytes: u64, seed: u64) -> Result<(), DataError> {
    let file = fs::File::create_new(image).map_err(DataError::io("create", image))?;
    file.set_len(bytes).map_err(DataError::io("set the length of", image))?;
    let mut command = Command::new("sfdisk");
    command.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(image);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program::spawn("sfdisk", &mut command)?;
    let id = seeded::stream(seed, "disk id", 0).next_u32();
    let script =
        format!("label: dos\nlabel-id: 0x{id:08x}\nstart={}, type=83, bootable\n", PARTITION_AT_BYTES / 512);
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).map_err(DataError::io("write to", "sfdisk".as_ref()))?;
    }
    program::finish("sfdisk", child)?;
    Ok(())
}

/// What a package takes on disk by its own account.
fn installed_bytes(package: &Path) -> Result<u64, DataError> {
    let said =
        program::run("dpkg-deb", Command::new("dpkg-deb").arg("-f").arg(package).arg("Installed-Size"))?;
    // Without the field it is a small one.
    Ok(String::from_utf8_lossy(&said).trim().parse::<u64>().unwrap_or_default() * 1024)
}

/// Unpacks a package over what is there. Every file becomes a new one, as with dpkg.
fn install(root: &Path, name: &str, package: &Path, installed: &mut Installed) -> Result<(), DataError> {
    program::run("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(package).arg(root))?;
    installed.insert(name.to_owned(), package.to_owned());
    Ok(())
}

/// The list of what is installed, written anew as dpkg does.
fn write_status(root: &Path, installed: &Installed) -> Result<(), DataError> {
    let mut status = Vec::new();
    for package in installed.values() {
        let said = program::run("dpkg-deb", Command::new("dpkg-deb").arg("-f").arg(package))?;
        status.extend_from_slice(&said);
        status.extend_from_slice(b"Status: install ok installed\n\n");
    }
    let place = root.join("var/lib/dpkg/status");
    put(&place.with_extension("new"), &status)?;
    fs::rename(place.with_extension("new"), &place).map_err(DataError::io("rename to", &place))
}

/// What makes the machine itself: its name, its keys, its users.
fn configure(root: &Path, seed: u64, number: usize) -> Result<(), DataError> {
    let mut chance = seeded::stream(seed, "machine", number as u64);
    let name = ["web", "database"][number];
    put(&root.join("etc/hostname"), format!("{name}\n").as_bytes())?;
    put(
        &root.join("etc/hosts"),
        format!("127.0.0.1 localhost\n192.0.2.{} {name}\n", 10 + number).as_bytes(),
    )?;
    let id = format!("{:016x}{:016x}\n", chance.next_u64(), chance.next_u64());
    put(&root.join("etc/machine-id"), id.as_bytes())?;
    for key in ["rsa", "ecdsa", "ed25519"] {
        let mut bytes = vec![0; 400];
        chance.fill_bytes(&mut bytes);
        put(&root.join(format!("etc/ssh/host_{key}.key")), &bytes)?;
    }
    let mut users = String::from("root:x:0:0:root:/root:/bin/bash\n");
    for user in 0..20 {
        // Writing to a String cannot fail.
        let _ =
            writeln!(users, "user{user}:x:{0}:{0}::/home/user{user}:/bin/bash", 1000 + user + 100 * number);
    }
    put(&root.join("etc/passwd"), users.as_bytes())
}

/// Appends to the machine's log; `(machine, time)` tells what.
fn write_log(
    root: &Path,
    vocabulary: &Vocabulary,
    seed: u64,
    (machine, time): (usize, u64),
    lines: u64,
) -> Result<(), DataError> {
    let mut chance = seeded::stream(seed, "machine log", machine as u64 * 2 + time);
    let mut log = String::new();
    let mut second = 1_704_153_600 + time * 30 * 24 * 3600;
    for _ in 0..lines {
        second += chance.random_range(1..200);
        // Writing to a String cannot fail.
        let _ = writeln!(
            log,
            "{second} {} {}[{}]: {}",
            ["web", "database"][machine],
            ["systemd", "sshd", "cron", "kernel"][chance.random_range(0..4)],
            chance.random_range(1..40_000),
            vocabulary.phrase(chance.random_range(4..14), &mut chance)
        );
    }
    let place = root.join("var/log/syslog");
    fs::create_dir_all(root.join("var/log")).map_err(DataError::io("create", &root.join("var/log")))?;
    let file = OpenOptions::new().append(true).create(true).open(&place);
    file.and_then(|mut file| file.write_all(log.as_bytes())).map_err(DataError::io("append to", &place))
}

/// Writes a file, with the directories above it.
fn put(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(DataError::io("create", parent))?;
    }
    fs::write(path, bytes).map_err(DataError::io("write", path))
}
