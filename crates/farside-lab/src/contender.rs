//! Contenders: farside and the tools that people use today, each told in a file how it does the same job.
//!
//! A file, `lab/contenders/NAME.toml`, holds shell scripts by *phase* and *site*. This room reads and checks the files
//! ([`Contender::load`], [`load_all`]), says what every script finds in its environment ([`Environment`]), when a
//! service is ready ([`Ready`]), and what is installed of what a contender needs ([`inspect()`]). It runs no script of a
//! phase; experiments do.
//!
//! Order of a run:
//!
//! 1. `serve`: the services are started, at every site, and stay until the run ends; the run goes on once each is ready.
//! 2. `prepare`: in [`Site::START_ORDER`], each to its end. The first generation is `NEW` already.
//! 3. For each generation, `change` (a's own copy becomes the new generation; from the second on), then the counted
//!    phase (`initial` for the first, `update` for later ones; a generation whose phase the contender does not do goes
//!    without), then `figures`, then `verify`. A probe of the link does `measure` and `figures` instead.
//!
//! The scripts of one counted phase run at the same time, started in [`Site::START_ORDER`]; when the first is started, its
//! signs of readiness ([`Steps::ready`]) are waited for. The phase is done when all are done, and each with status 0.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::record::result::Role;

mod blocks;
mod environment;
mod file;
mod inspect;
mod ready;

pub use blocks::{Copied, CopyError, copy_changed};
pub use environment::Environment;
pub use file::{ContenderError, load_all};
pub use inspect::{Inspection, Installed, inspect};
pub use ready::Ready;

/// A way to do the job: what a checked file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// As experiments, tables and the file itself are called.
    pub name: String,
    /// One line for a person.
    pub about: String,
    /// Debian packages that bring its programs.
    pub packages: Vec<String>,
    /// What its figures are compared as.
    pub role: Role,
    /// What it can bring over.
    pub carries: Vec<Carries>,
    /// The programs that take part, and the versions that published figures are made with.
    pub programs: Vec<Program>,
    /// Services, started first and stopped when the run ends.
    pub serve: BTreeMap<Site, Service>,
    /// Before anything is counted.
    pub prepare: BTreeMap<Site, String>,
    /// How the source's own copy becomes the new generation; not counted.
    pub change: BTreeMap<Site, String>,
    /// The counted phases, in their order in a run.
    pub phases: BTreeMap<Phase, Steps>,
    /// Run at b after each counted phase: status 0 means that the copy at b equals `NEW`. Absent for probes only.
    pub verify: Option<String>,
    /// What the contender measures itself, by the figure's name; run after each counted phase.
    pub figures: BTreeMap<String, FigureScript>,
    /// What scripts find in their environment beside the run's own: an experiment's variant of the file.
    pub settings: BTreeMap<String, String>,
    /// Where the file is.
    pub path: PathBuf,
    /// The whole file and the shell functions that it uses, for an experiment's digest.
    pub text: String,
}

/// What a contender can bring over.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carries {
    /// Volumes, as images.
    Image,
    /// Files.
    Tree,
    /// Nothing: a probe of the link itself.
    Link,
}

/// A counted phase.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The first copy.
    Initial,
    /// From one generation to the next.
    Update,
    /// A probe of the link.
    Measure,
}

/// Where a script runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Site {
    /// Where the data is.
    A,
    /// Where the copy goes.
    B,
    /// Beyond a, in the topology with boxes.
    Client,
    /// Beyond b, in the topology with boxes.
    Server,
}

impl Site {
    /// What listens is started before what connects.
    pub const START_ORDER: [Site; 4] = [Site::Server, Site::B, Site::A, Site::Client];
}

/// What runs until the run ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// For `bash -euo pipefail`; ends with `exec`, so that the service gets the signal that stops it.
    pub run: String,
    /// All of these must be met before the run goes on.
    pub ready: Vec<Ready>,
}

/// The scripts of a counted phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// For `bash -euo pipefail`; at least one.
    pub scripts: BTreeMap<Site, String>,
    /// What the site that is started first must show before the others are started.
    pub ready: Vec<Ready>,
}

/// A program that takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// As records name it.
    pub name: String,
    /// For `bash -euo pipefail`; its output is the installed version, nothing else.
    pub command: String,
    /// The version that published figures are made with; absent where any is: farside itself.
    pub pinned: Option<String>,
}

/// A number that the contender measured itself.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureScript {
    /// Where it runs.
    pub site: Site,
    /// For `bash -euo pipefail`; its output is one number.
    pub run: String,
    /// As a table's head shows it.
    pub unit: String,
}

impl Carries {
    /// As files write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Carries::Image => "image",
            Carries::Tree => "tree",
            Carries::Link => "link",
        }
    }
}

impl Phase {
    /// As files write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Initial => "initial",
            Phase::Update => "update",
            Phase::Measure => "measure",
        }
    }
}

impl Site {
    /// As files write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Site::A => "a",
            Site::B => "b",
            Site::Client => "client",
            Site::Server => "server",
        }
    }
}

impl fmt::Display for Carries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
