//! Contender files: read strictly, checked completely, and every complaint names file, line and what to write.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::record::result::Role;

use super::{Carries, Contender, FigureScript, Phase, Program, Ready, Service, Site, Steps};

/// A contender file that cannot be used. Nothing has been run.
#[derive(Debug, Error)]
pub enum ContenderError {
    /// The file cannot be read.
    #[error("{}: cannot read the contender's file: {source}", path.display())]
    Unreadable {
        /// The file, or the directory of all of them.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the file says is wrong.
    #[error("{}:{line}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what to write.
        what: String,
    },
    /// There is no such contender.
    #[error("there is no contender {name:?}: {} would be its file; these are there: {}", path.display(), known.join(", "))]
    Unknown {
        /// As it was asked for.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
        /// Those that are there.
        known: Vec<String>,
    },
}

/// Reads all contenders of a directory, by name.
///
/// # Errors
///
/// When the directory or a file in it cannot be read, and for the first file that is wrong.
pub fn load_all(directory: &Path) -> Result<Vec<Contender>, ContenderError> {
    names(directory)?.iter().map(|name| Contender::load(directory, name)).collect()
}

fn names(directory: &Path) -> Result<Vec<String>, ContenderError> {
    let unreadable = |source| ContenderError::Unreadable { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

impl Contender {
    /// Reads the contender `name` from its file in `directory`.
    ///
    /// # Errors
    ///
    /// When there is no such file, it cannot be read, or what it says is wrong.
    pub fn load(directory: &Path, name: &str) -> Result<Self, ContenderError> {
        let path = directory.join(format!("{name}.toml"));
        match fs::read_to_string(&path) {
            Ok(text) => {
                let mut contender = Self::parse(&path, text)?;
                contender.text.push_str(&shared_functions(directory, &path, &contender.text)?);
                Ok(contender)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ContenderError::Unknown { name: name.to_owned(), path, known: names(directory)? })
            }
            Err(source) => Err(ContenderError::Unreadable { path, source }),
        }
    }

    /// The same under another name and with settings, which are part of its text.
    #[must_use]
    pub fn with_settings(mut self, name: &str, settings: BTreeMap<String, String>) -> Self {
        name.clone_into(&mut self.name);
        for (key, value) in &settings {
            self.text.push_str(&format!("\n# setting {key}={value}\n"));
            self.about.push_str(&format!(", {key} = {value}"));
        }
        self.settings = settings;
        self
    }

    /// Reads a contender from the text of its file; `path` gives it its name and stands in errors.
    ///
    /// # Errors
    ///
    /// When what it says is wrong.
    pub fn parse(path: &Path, text: String) -> Result<Self, ContenderError> {
        let wrong = |(at, what): Complaint| ContenderError::Wrong {
            path: path.to_owned(),
            line: line_of(&text, at),
            what,
        };
        let raw: RawContender = toml::from_str(&text).map_err(|error| {
            wrong((error.span().map_or(0, |span| span.start), error.message().to_owned()))
        })?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut contender = raw.check(&stem).map_err(wrong)?;
        contender.path = path.to_owned();
        contender.text = text;
        Ok(contender)
    }
}

/// How files name shell functions that they share, in the contenders' directory: `. "$CONTENDERS/rsync.sh"`.
const SHARED: &str = "$CONTENDERS/";

/// The text of all files of functions that `text` uses, and that these use in turn.
fn shared_functions(directory: &Path, path: &Path, text: &str) -> Result<String, ContenderError> {
    let mut functions = String::new();
    let mut seen = BTreeSet::new();
    let mut unread = vec![(path.to_owned(), text.to_owned())];
    while let Some((path, text)) = unread.pop() {
        for (at, _) in text.match_indices(SHARED) {
            let name = text[at + SHARED.len()..].split(['"', '\n']).next().unwrap_or_default();
            if !seen.insert(name.to_owned()) {
                continue;
            }
            let used = directory.join(name);
            let shared = fs::read_to_string(&used).map_err(|error| ContenderError::Wrong {
                path: path.clone(),
                line: line_of(&text, at),
                what: format!(
                    "cannot read the functions {}: {error}; write a file that is there",
                    used.display()
                ),
            })?;
            functions.push_str(&shared);
            unread.push((used, shared));
        }
    }
    Ok(functions)
}

/// Counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Where in the text, and what is wrong there.
type Complaint = (usize, String);

fn complain<T, U>(at: &Spanned<T>, what: impl Into<String>) -> Result<U, Complaint> {
    Err((at.span().start, what.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawContender {
    name: Spanned<String>,
    about: Spanned<String>,
    packages: Spanned<Vec<Spanned<String>>>,
    role: Option<Spanned<Role>>,
    carries: Spanned<Vec<Carries>>,
    phases: Option<Spanned<Vec<Phase>>>,
    versions: Spanned<Vec<RawProgram>>,
    #[serde(default)]
    serve: BTreeMap<Site, RawService>,
    #[serde(default)]
    prepare: BTreeMap<Site, Spanned<String>>,
    #[serde(default)]
    change: BTreeMap<Site, Spanned<String>>,
    initial: Option<Spanned<RawSteps>>,
    again: Option<Spanned<RawSteps>>,
    update: Option<Spanned<RawSteps>>,
    measure: Option<Spanned<RawSteps>>,
    verify: Option<Spanned<RawVerify>>,
    #[serde(default)]
    figures: BTreeMap<Spanned<String>, RawFigure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProgram {
    name: Spanned<String>,
    command: Spanned<String>,
    pinned: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawService {
    run: Spanned<String>,
    #[serde(default)]
    ready: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSteps {
    a: Option<Spanned<String>>,
    b: Option<Spanned<String>>,
    client: Option<Spanned<String>>,
    server: Option<Spanned<String>>,
    #[serde(default)]
    ready: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVerify {
    run: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    #[serde(default = "at_b")]
    site: Site,
    run: Spanned<String>,
    unit: Spanned<String>,
}

fn at_b() -> Site {
    Site::B
}

impl RawContender {
    /// Checks what serde cannot. The path and the text stay empty.
    fn check(self, stem: &str) -> Result<Contender, Complaint> {
        check_name(&self.name, "a contender's name")?;
        if self.name.get_ref() != stem {
            return complain(
                &self.name,
                format!(
                    "the file is {stem}.toml: write name = {stem:?}, or name the file {}.toml",
                    self.name.get_ref()
                ),
            );
        }
        let about = self.about.get_ref().trim();
        if about.is_empty() || about.contains('\n') {
            return complain(
                &self.about,
                "write one line that tells a person what this does, with its settings",
            );
        }
        for package in self.packages.get_ref() {
            check_name(package, "a Debian package's name")?;
        }
        let carries = self.carries.get_ref();
        let probes = carries.contains(&Carries::Link);
        if carries.is_empty() || (probes && carries.len() > 1) {
            return complain(
                &self.carries,
                "write \"image\", \"tree\" or both, or \"link\" alone for a probe of the link",
            );
        }
        let role = check_role(probes, self.role)?;
        let programs = check_programs(&self.versions)?;
        let steps = [
            (Phase::Initial, self.initial),
            (Phase::Again, self.again),
            (Phase::Update, self.update),
            (Phase::Measure, self.measure),
        ];
        let phases = check_phases(probes, &self.carries, self.phases, steps)?;
        let verify = match (self.verify, probes) {
            (Some(verify), true) => {
                return complain(&verify, "a probe of the link brings nothing over: leave [verify] out");
            }
            (None, false) => {
                return complain(
                    &self.name,
                    "a copy that nobody compares does not count: write [verify] with run = a script that ends with \
                     status 0 only if the copy at b equals $NEW",
                );
            }
            (Some(verify), false) => Some(script(verify.into_inner().run)?),
            (None, true) => None,
        };
        Ok(Contender {
            name: self.name.into_inner(),
            about: about.to_owned(),
            packages: self.packages.into_inner().into_iter().map(Spanned::into_inner).collect(),
            role,
            carries: self.carries.into_inner(),
            programs,
            serve: self
                .serve
                .into_iter()
                .map(|(site, raw)| Ok((site, service(raw)?)))
                .collect::<Result<_, _>>()?,
            prepare: scripts(self.prepare)?,
            change: scripts(self.change)?,
            phases,
            verify,
            figures: self.figures.into_iter().map(figure).collect::<Result<_, _>>()?,
            settings: BTreeMap::new(),
            path: PathBuf::new(),
            text: String::new(),
        })
    }
}

fn check_name(name: &Spanned<String>, what: &str) -> Result<(), Complaint> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.+".contains(&byte);
    let text = name.get_ref();
    if text.is_empty() || !text.bytes().all(fits) || text.starts_with(['-', '.', '+']) {
        return complain(name, format!("{text:?} is not {what}: write lower-case letters, digits and -"));
    }
    Ok(())
}

fn check_role(probes: bool, role: Option<Spanned<Role>>) -> Result<Role, Complaint> {
    match role {
        None if probes => Ok(Role::Probe),
        None => Ok(Role::Peer),
        Some(role) if probes || *role.get_ref() == Role::Probe => {
            complain(&role, "what carries \"link\" is a probe, and nothing else is: leave role out")
        }
        Some(role) => Ok(role.into_inner()),
    }
}

fn check_programs(versions: &Spanned<Vec<RawProgram>>) -> Result<Vec<Program>, Complaint> {
    let mut programs: Vec<Program> = Vec::new();
    for raw in versions.get_ref() {
        let name = raw.name.get_ref();
        check_name(&raw.name, "a program's name")?;
        if programs.iter().any(|program| program.name == *name) {
            return complain(&raw.name, format!("{name:?} has a version already: leave one out"));
        }
        if let Some(pinned) = &raw.pinned
            && (pinned.get_ref().trim().is_empty() || pinned.get_ref().contains('\n'))
        {
            return complain(pinned, "write the version as the command prints it, or leave pinned out");
        }
        programs.push(Program {
            name: name.clone(),
            command: script(raw.command.clone())?,
            pinned: raw.pinned.as_ref().map(|pinned| pinned.get_ref().trim().to_owned()),
        });
    }
    if programs.is_empty() {
        return complain(
            versions,
            "write one [[versions]] for each program that takes part: it stands in the records",
        );
    }
    Ok(programs)
}

fn check_phases(
    probes: bool,
    carries: &Spanned<Vec<Carries>>,
    named: Option<Spanned<Vec<Phase>>>,
    steps_of: [(Phase, Option<Spanned<RawSteps>>); 4],
) -> Result<BTreeMap<Phase, Steps>, Complaint> {
    let possible: &[Phase] =
        if probes { &[Phase::Measure] } else { &[Phase::Initial, Phase::Again, Phase::Update] };
    let usual: &[Phase] = if probes { possible } else { &[Phase::Initial, Phase::Update] };
    let wanted = named.as_ref().map_or(usual, |named| named.get_ref().as_slice());
    let at = named.as_ref().map_or(carries.span().start, |named| named.span().start);
    if wanted.is_empty() || wanted.iter().any(|phase| !possible.contains(phase)) {
        let possible = possible.iter().map(|phase| format!("{:?}", phase.as_str())).collect::<Vec<_>>();
        return Err((
            at,
            format!("what it carries allows these phases: write some of {}", possible.join(", ")),
        ));
    }
    let mut phases = BTreeMap::new();
    for (phase, raw) in steps_of {
        match (raw, wanted.contains(&phase)) {
            (None, false) => {}
            (None, true) => {
                return Err((
                    at,
                    format!("it has the phase {phase}: write [{phase}] with scripts, or phases without it"),
                ));
            }
            (Some(raw), false) => {
                return complain(
                    &raw,
                    format!("its phases are without {phase}: leave [{phase}] out, or write phases with it"),
                );
            }
            (Some(raw), true) => {
                phases.insert(phase, steps(phase, raw)?);
            }
        }
    }
    Ok(phases)
}

fn scripts(raw: BTreeMap<Site, Spanned<String>>) -> Result<BTreeMap<Site, String>, Complaint> {
    raw.into_iter().map(|(site, run)| Ok((site, script(run)?))).collect()
}

fn script(run: Spanned<String>) -> Result<String, Complaint> {
    if run.get_ref().trim().is_empty() {
        return complain(&run, "an empty script does nothing: write one for bash, or leave it out");
    }
    Ok(run.into_inner())
}

fn signs(ready: &[Spanned<String>]) -> Result<Vec<Ready>, Complaint> {
    ready.iter().map(|sign| sign.get_ref().parse().or_else(|what: String| complain(sign, what))).collect()
}

fn service(raw: RawService) -> Result<Service, Complaint> {
    Ok(Service { ready: signs(&raw.ready)?, run: script(raw.run)? })
}

fn steps(phase: Phase, raw: Spanned<RawSteps>) -> Result<Steps, Complaint> {
    let at = raw.span().start;
    let raw = raw.into_inner();
    let by_site =
        [(Site::A, raw.a), (Site::B, raw.b), (Site::Client, raw.client), (Site::Server, raw.server)];
    let scripts = scripts(by_site.into_iter().filter_map(|(site, run)| Some((site, run?))).collect())?;
    match (scripts.len(), raw.ready.first()) {
        (0, _) => {
            Err((at, format!("[{phase}] does nothing: write a script for a site (a, b, client, server)")))
        }
        (1, Some(sign)) => complain(sign, "one script alone has nobody who waits for it: leave ready out"),
        _ => Ok(Steps { scripts, ready: signs(&raw.ready)? }),
    }
}

fn figure((name, raw): (Spanned<String>, RawFigure)) -> Result<(String, FigureScript), Complaint> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if name.get_ref().is_empty() || !name.get_ref().bytes().all(fits) {
        let what =
            format!("{:?} is not a figure's name: write lower-case letters, digits, - and _", name.get_ref());
        return complain(&name, what);
    }
    if raw.unit.get_ref().trim().is_empty() {
        return complain(&raw.unit, "write the figure's unit as a table's head shows it: \"MB\", \"ms\"");
    }
    Ok((
        name.into_inner(),
        FigureScript { site: raw.site, run: script(raw.run)?, unit: raw.unit.into_inner() },
    ))
}

#[cfg(test)]
mod tests;
