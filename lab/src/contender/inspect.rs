//! What is installed of what a contender needs.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::{Contender, Program};

/// A program that does not say its version within this is as good as missing; `borg`, in Python, takes half a second.
const VERSION_SECONDS_MAX: u32 = 30;

/// What was found of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Installed {
    /// As the contender's file calls it.
    pub program: String,
    /// The version found; absent when the program is missing or did not say.
    pub version: Option<String>,
}

/// What was found of a contender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// Its programs.
    pub programs: Vec<Installed>,
}

impl Inspection {
    /// Programs that are missing; nothing can run without them.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().filter(|found| found.version.is_none()).map(|found| found.program.as_str())
    }
}

/// Asks every program of `contender` for its version. `farside_bin` is the directory of `farside` and `farsided`.
pub fn inspect(contender: &Contender, farside_bin: &Path) -> Inspection {
    let programs = contender
        .programs
        .iter()
        .map(|program| Installed {
            program: program.name.clone(),
            version: installed_version(program, farside_bin),
        })
        .collect();
    Inspection { programs }
}

fn installed_version(program: &Program, farside_bin: &Path) -> Option<String> {
    let output = Command::new("timeout")
        .arg(VERSION_SECONDS_MAX.to_string())
        .args(["bash", "-euo", "pipefail", "-c", &program.command])
        .env("FARSIDE_BIN", farside_bin)
        .env("LC_ALL", "C.UTF-8")
        // Asked before a run has directories of its own: no program finds a home to write to.
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !version.is_empty() && !version.contains('\n')).then_some(version)
}
