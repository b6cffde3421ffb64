//! What a checked contender file says.

use super::Ready;
use crate::record::result::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

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
    /// The first generation once more, as if nobody had it: what a cache between the sites is worth.
    Again,
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
    /// A host behind b that knows nothing of what stands in its path.
    Client,
    /// A host behind a.
    Server,
}

impl Site {
    /// What listens is started before what connects.
    pub const START_ORDER: [Site; 4] = [Site::Server, Site::B, Site::A, Site::Client];
    /// Those that are there only for contenders that have scripts for them.
    pub const HOSTS: [Site; 2] = [Site::Server, Site::Client];
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

impl Contender {
    /// Whether it needs hosts behind the sites: a script of it runs at one of them.
    pub fn has_hosts(&self) -> bool {
        let steps = self.phases.values().flat_map(|steps| steps.scripts.keys());
        let sites = self.serve.keys().chain(self.prepare.keys()).chain(self.change.keys()).chain(steps);
        sites.chain(self.figures.values().map(|figure| &figure.site)).any(|site| Site::HOSTS.contains(site))
    }
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
            Phase::Again => "again",
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
