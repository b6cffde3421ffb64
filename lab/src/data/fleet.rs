//! `fleet`: ten volumes that began as one, each with five percent of its own, and an eleventh that equals the first: what a
//! site with many machines of one kind mirrors.
//!
//! Common to all are the files of a package ([`super::tree`]) and a file of text. A volume's own are files that no other has,
//! and small pieces here and there in that file. B is the package's upgrade, in place, on each; and a day's own text.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rand::Rng;

use super::error::DataError;
use super::filesystem::{Content, FileSystem, set_time};
use super::making::Making;
use super::set::MIB;
use super::text::Vocabulary;
use super::{program, seeded, tree};

/// Those that differ; and the one that does not.
const DIFFERENT: u32 = 10;
pub(super) const VOLUMES: u32 = DIFFERENT + 1;

pub(super) const MINIMUM_BYTES: u64 = 16 * MIB * VOLUMES as u64;

/// What the package's share of a volume is reckoned with: the rest is for text, what is a volume's own, and the upgrade.
const PACKAGE_SHARE: (u64, u64) = (3, 4);

/// Bytes of the common file of text, as a share of the volume.
const COMMON_TEXT: u64 = 16;

/// Bytes of a volume's own files, as a share of the volume; what changes in pieces is as many blocks. Together five percent
/// of what is not zero.
const OWN: u64 = 64;

/// A volume's own text of a later day: a tenth of its first.
const OWN_LATER: u64 = 10 * OWN;

/// Sizes of a volume's own files, and of the pieces that differ in the common one.
const FILE_BYTES: std::ops::Range<usize> = 2_000..60_000;
const PIECE_BYTES: std::ops::Range<usize> = 40..400;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let packages = tree::packages(making)?;
    let package_bytes = making.volume_bytes() * PACKAGE_SHARE.0 / PACKAGE_SHARE.1;
    making.step("unpacking the packages")?;
    let trees = ["older", "newer"].map(|name| making.scratch().join(name));
    for (package, tree) in packages.iter().zip(&trees) {
        tree::unpack(making, package, tree, package_bytes)?;
    }
    let vocabulary = Vocabulary::new(making.seed());

    making.step("laying what all have in common")?;
    let common = FileSystem::create(making, "common.img", 0, Content::Small)?;
    let mounted = common.mount()?;
    program::run("cp", Command::new("cp").arg("-a").arg(&trees[0]).arg(mounted.root().join("package")))?;
    let mut chance = seeded::stream(making.seed(), "fleet common", 0);
    let text_bytes = making.volume_bytes() / COMMON_TEXT;
    write(&mounted.root().join("text"), &vocabulary.paragraphs(text_bytes as usize, &mut chance), 0)?;
    mounted.unmount()?;

    making.begin("A")?;
    let mut machines = Vec::new();
    for number in 0..DIFFERENT {
        making.step(&format!("writing volume {number}"))?;
        let image = making.scratch().join(format!("volume-{number}.img"));
        program::run("cp", Command::new("cp").arg("--sparse=always").arg(common.image()).arg(&image))?;
        let machine = common.clone_in(&image);
        let mounted = machine.mount()?;
        write_own(mounted.root(), &vocabulary, making, number)?;
        mounted.unmount()?;
        making.capture(&image)?;
        machines.push(machine);
    }
    making.capture(machines[0].image())?;

    making.begin("B")?;
    for (machine, number) in machines.iter().zip(0..) {
        making.step(&format!("upgrading volume {number}"))?;
        let mounted = machine.mount()?;
        tree::change_in_place(&trees[1], &mounted.root().join("package"))?;
        let mut chance = seeded::stream(making.seed(), "fleet later", number);
        let bytes = making.volume_bytes() / OWN_LATER;
        write(&mounted.root().join("own/later"), &vocabulary.paragraphs(bytes as usize, &mut chance), 1)?;
        mounted.unmount()?;
        making.capture(machine.image())?;
    }
    making.capture(machines[0].image())
}

/// Files that no other volume has, and pieces of the common text that no other has so.
fn write_own(
    root: &Path,
    vocabulary: &Vocabulary,
    making: &Making<'_>,
    number: u32,
) -> Result<(), DataError> {
    let mut chance = seeded::stream(making.seed(), "fleet own", number.into());
    let own = root.join("own");
    fs::create_dir(&own).map_err(DataError::io("create", &own))?;
    let wanted = making.volume_bytes() / OWN;
    let mut written = 0;
    for name in 0.. {
        if written >= wanted {
            break;
        }
        let text = vocabulary.paragraphs(chance.random_range(FILE_BYTES), &mut chance);
        write(&own.join(format!("{name}.txt")), &text, 0)?;
        written += text.len() as u64;
    }
    let path = root.join("text");
    let file = OpenOptions::new().write(true).open(&path).map_err(DataError::io("open", &path))?;
    let text_bytes = making.volume_bytes() / COMMON_TEXT;
    for _ in 0..wanted / 4096 {
        let piece = vocabulary.paragraphs(chance.random_range(PIECE_BYTES), &mut chance);
        let at = chance.random_range(0..text_bytes - piece.len() as u64);
        file.write_all_at(piece.as_bytes(), at).map_err(DataError::io("write", &path))?;
    }
    drop(file);
    set_time(&path, 0)?;
    set_time(&own, 0)
}

fn write(path: &Path, text: &str, day: u64) -> Result<(), DataError> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(DataError::io("write", path))?;
    set_time(path, day)
}
