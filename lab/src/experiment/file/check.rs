//! What an experiment file must fulfil beyond its form: names that exist, numbers within limits.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{DataKind, Expectation, Experiment, LinkEntry, Target, Tolerance, Wrong};
use crate::data;
use crate::experiment::expect::PROPERTIES;
use crate::link::Link;

/// Repetitions of a cell; more would not narrow a median that anybody reads.
const REPETITIONS_MAX: u32 = 1000;

/// Parallel links: as many as can be laid.
const PATHS_MAX: u32 = crate::testbed::MAX_PATHS as u32;

/// Runs at once; each takes a namespace per site and its own copy of the data.
const PARALLEL_MAX: u32 = 24;

/// Fastest link, OC-3, beside whose runs others may go on: up to it two emulated links at once keep their packets on
/// time on two cores.
const PARALLEL_RATE_BITS_MAX: u64 = 155_520_000;

/// Intervals of a series: below, the machine's own pauses are all that is seen; above, a round trip is not.
const SERIES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);

/// Longest name of a link or data set: it stands in tables and file names.
const NAME_BYTES_MAX: usize = 40;

impl Experiment {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        within("repetitions", self.repetitions, REPETITIONS_MAX)?;
        within("paths", self.paths, PATHS_MAX)?;
        within("parallel", self.parallel, PARALLEL_MAX)?;
        some("contenders", self.contenders.is_empty())?;
        some("[hosts] congestion", self.hosts.congestion.is_empty())?;
        some("[[link]]", self.links.is_empty())?;
        unique("contenders", &self.contenders)?;
        unique("[hosts] congestion", &self.hosts.congestion)?;
        unique("[[link]]", self.links.iter().map(|link| &link.name))?;
        unique("[[data]]", self.data.iter().map(|data| &data.name))?;
        for name in self.links.iter().map(|link| &link.name).chain(self.data.iter().map(|data| &data.name)) {
            check_name(name)?;
        }
        if let Some(every) = self.series
            && !SERIES.contains(&every)
        {
            let what = format!("{every:?} is no interval to count in");
            return Err(Wrong::new("series", what, "write 10ms to 10s"));
        }
        for link in &self.links {
            self.check_link(link)?;
        }
        for entry in &self.data {
            let place = format!("[[data]] \"{}\"", entry.name);
            let set = data::set(&entry.set).map_err(|error| {
                Wrong::new(&place, error.to_string(), "`farside-lab data` lists the sets")
            })?;
            if entry.kind == DataKind::Tree && !set.has_tree {
                let what = format!("the set {} has volumes only, no tree of files", set.name);
                return Err(Wrong::new(place, what, "leave kind out, or take a set of files"));
            }
        }
        self.expectations.iter().try_for_each(|expectation| self.check_expectation(expectation))
    }

    fn check_link(&self, entry: &LinkEntry) -> Result<(), Wrong> {
        let place = format!("[[link]] \"{}\"", entry.name);
        if let Some(repetitions) = entry.repetitions {
            within(&format!("{place} repetitions"), repetitions, REPETITIONS_MAX)?;
        }
        let data: Vec<String> = self.data.iter().map(|data| data.name.clone()).collect();
        known(&place, "contender", entry.contenders.as_deref(), &self.contenders)?;
        known(&place, "data set", entry.data.as_deref(), &data)?;
        if entry.congestion.as_ref().is_some_and(Vec::is_empty) {
            return Err(Wrong::new(place, "its congestion is empty", "leave it out to have that of [hosts]"));
        }
        if let Some(path) =
            entry.script.iter().filter_map(|event| event.path).find(|path| *path >= self.paths)
        {
            let what = format!("its script changes path {path}, and there are {}", self.paths);
            return Err(Wrong::new(place, what, "paths are counted from 0"));
        }
        let link = entry.build()?;
        let parallel = entry.parallel.unwrap_or(self.parallel);
        within(&format!("{place} parallel"), parallel, PARALLEL_MAX)?;
        if parallel > 1 && fastest(&link) > PARALLEL_RATE_BITS_MAX {
            let what = format!(
                "{parallel} runs at once on a link of {} Mb/s would measure the machine",
                fastest(&link) / 1_000_000
            );
            return Err(Wrong::new(
                place,
                what,
                "say `parallel = 1` there; up to 155.52 Mb/s more are sensible",
            ));
        }
        Ok(())
    }

    fn check_expectation(&self, expectation: &Expectation) -> Result<(), Wrong> {
        let place = format!("[[expect]] of {} {}", expectation.contender, expectation.figure);
        let links: Vec<String> = self.links.iter().map(|link| link.name.clone()).collect();
        known(&place, "contender", Some(std::slice::from_ref(&expectation.contender)), &self.contenders)?;
        known(&place, "link", expectation.links.as_deref(), &links)?;
        let data: Vec<String> = self.data.iter().map(|data| data.name.clone()).collect();
        known(&place, "data set", expectation.data.as_deref(), &data)?;
        if let Target::Others(others) = &expectation.of {
            some(&format!("{place} best"), others.best.is_empty())?;
            known(&place, "contender", Some(&others.best), &self.contenders)?;
            if !(others.times.is_finite() && others.times > 0.0) {
                let what = format!("nothing is {} times as much", others.times);
                return Err(Wrong::new(place, what, "write a number above zero"));
            }
        }
        if let Target::Property(name) = &expectation.of
            && !PROPERTIES.iter().any(|(property, _)| property == name)
        {
            let names = PROPERTIES.map(|(property, _)| property).join(", ");
            return Err(Wrong::new(
                place,
                format!("links have no {name}"),
                format!("write a number or one of {names}"),
            ));
        }
        match expectation.within {
            Tolerance::Absolute(away) | Tolerance::Relative(away) if !(away.is_finite() && away >= 0.0) => {
                Err(Wrong::new(
                    place,
                    format!("it can never be within {away}"),
                    "write a number that is not negative",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn fastest(link: &Link) -> u64 {
    let script = link.script.iter().filter_map(|event| match event.change {
        crate::link::Change::Rate { rate_bits } => Some(rate_bits),
        _ => None,
    });
    script.chain([link.forward.rate_bits, link.back.rate_bits]).max().unwrap_or(0)
}

fn within(place: &str, value: u32, most: u32) -> Result<(), Wrong> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Wrong::new(place, format!("{value} is out of range"), format!("write 1 to {most}")))
}

fn some(place: &str, empty: bool) -> Result<(), Wrong> {
    if empty { Err(Wrong::new(place, "there is none", "give at least one")) } else { Ok(()) }
}

fn unique<'a>(place: &str, names: impl IntoIterator<Item = &'a String>) -> Result<(), Wrong> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => {
            Err(Wrong::new(place, format!("\"{twice}\" stands there twice"), "give each a name of its own"))
        }
    }
}

fn known(place: &str, what: &str, names: Option<&[String]>, all: &[String]) -> Result<(), Wrong> {
    match names.unwrap_or_default().iter().find(|name| !all.contains(name)) {
        None => Ok(()),
        Some(unknown) => Err(Wrong::new(
            place,
            format!("the experiment has no {what} \"{unknown}\""),
            format!("it has {}", all.join(", ")),
        )),
    }
}

fn check_name(name: &str) -> Result<(), Wrong> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+%".contains(c);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(allowed) && !name.starts_with('.')
    {
        return Ok(());
    }
    Err(Wrong::new(
        format!("name \"{name}\""),
        "it stands in cells (link/data/contender/congestion) and file names",
        format!("write up to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, - _ . + %, not beginning with a dot"),
    ))
}
