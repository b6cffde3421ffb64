//! `encrypted`: the volume of a host that encrypts, as LUKS of the images of [`super::postgres`].
//!
//! Both generations have the same master key: B's plain image is written through the encryption over A's, as the host
//! would. So blocks that did not change stay as they are, and nothing can be compressed, not even what was zero.

use std::path::Path;
use std::process::Command;

use super::error::DataError;
use super::making::Making;
use super::set::MIB;
use super::{cache, postgres, program};

/// LUKS keeps its header and key slots in front: 2 MiB with one of QEMU's. The rest of these stays zero at the end.
const HEADER_BYTES: u64 = 4 * MIB;

/// The image while it is written; without a path, because a path could hold characters that QEMU's options give a meaning.
const IMAGE: &str = "encrypted.luks";

/// Protects nothing: the master key is chance, and this only opens it.
const SECRET: &str = "secret,id=key,data=farside-lab";

/// What qemu-img says where a first round of key derivation took less processor time than the kernel's clock shows: on quick
/// processors one time in six, whatever `iter-time` is.
const TOO_QUICK: &str = "Unable to get accurate CPU usage";
const ATTEMPTS_MAX: u32 = 50;

pub(super) const DEFAULT_BYTES: u64 = 160 * MIB + HEADER_BYTES;
pub(super) const MINIMUM_BYTES: u64 = postgres::MINIMUM_BYTES + HEADER_BYTES;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    making.program("qemu-img", Command::new("qemu-img").arg("--version"))?;
    let plain_bytes = making.volume_bytes() - HEADER_BYTES;
    let plain = cache::other(making, &postgres::SET, plain_bytes)?;
    let scratch = making.scratch().to_owned();
    making.step("making an encrypted volume")?;
    let mut create = Command::new("qemu-img");
    // Ten milliseconds of key derivation: the default is two seconds, and the secret is no secret.
    create.args([
        "create",
        "-q",
        "-f",
        "luks",
        "--object",
        SECRET,
        "-o",
        "key-secret=key,iter-time=10",
        IMAGE,
    ]);
    create.arg(plain_bytes.to_string()).current_dir(&scratch);
    let mut attempts = 1;
    loop {
        match program::run("qemu-img create", &mut create) {
            Ok(_) => break,
            Err(DataError::Program { said, .. }) if said.contains(TOO_QUICK) && attempts < ATTEMPTS_MAX => {
                attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
    for generation in &plain.manifest.generations {
        making.step(&format!("encrypting generation {}", generation.name))?;
        let from = plain.generation_dir(generation).join("0.img");
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-q", "-n", "-f", "raw", "--object", SECRET]).arg(absolute(&from)?);
        convert.arg("--target-image-opts");
        convert.arg(format!("driver=luks,key-secret=key,file.driver=file,file.filename={IMAGE}"));
        program::run("qemu-img convert", convert.current_dir(&scratch))?;
        making.begin(&generation.name)?;
        making.capture(&scratch.join(IMAGE))?;
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<std::path::PathBuf, DataError> {
    std::path::absolute(path).map_err(DataError::io("find", path))
}
