//! One run of one cell: sites and links laid anew, the contender's scripts run in their order, what the link carried and
//! what it cost counted phase by phase, the copy proved. Nothing of a run is left for the next one.
//!
//! A run that goes wrong is a record like any other, with the phase and the reason in `failed`; the logs of its scripts
//! stay. Only being asked to stop leaves no record.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::file::DataKind;
use super::machine::ProcessorTime;
use super::plan::PlannedRun;
use super::slowness::slowness;
use crate::contender::{Carries, Contender, Environment, Phase, Site};
use crate::data::{Generation, Prepared};
use crate::link::Link;
use crate::record::{PhaseRecord, RECORD_VERSION, RunRecord, flow};
use crate::testbed::{Hosts, Laid, Running, TestBed, TestBedError};

mod count;
mod script;
mod series;

use series::Sampler;

/// A service that is not ready by then does not come: borg and databases take seconds on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// Figures read a log or count files.
const FIGURE_LIMIT: Duration = Duration::from_secs(120);

/// Where things are on this machine.
#[derive(Clone, Debug)]
pub struct Places {
    /// Directory of contender files and of what their scripts share.
    pub contenders: PathBuf,
    /// Directory of `farside` and `farsided`.
    pub farside_bin: PathBuf,
    /// This program.
    pub lab: PathBuf,
    /// Logs of failed runs stay below it.
    pub logs: PathBuf,
}

/// A run and all that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The laboratory's namespaces.
    pub test_bed: &'a TestBed,
    /// Where things are.
    pub places: &'a Places,
    /// Which run.
    pub run: &'a PlannedRun,
    /// What it is of.
    pub digest: &'a str,
    /// Parallel links.
    pub paths: u32,
    /// The link.
    pub link: &'a Link,
    /// What is set in every host.
    pub hosts: &'a Hosts,
    /// The data and what of it the contender gets; nothing for probes.
    pub data: Option<(&'a Prepared, DataKind)>,
    /// How much of it is to be brought over, bytes; absent: all.
    pub portion: Option<u64>,
    /// Length of the intervals in which the record tells what came out of the link; absent: it does not.
    pub series: Option<Duration>,
    /// The contender.
    pub contender: &'a Contender,
    /// Versions of what takes part.
    pub versions: &'a BTreeMap<String, String>,
    /// How long one phase may take.
    pub limit: Duration,
}

/// Why a run does not count.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("{step}: {source}")]
    TestBed { step: String, source: TestBedError },
    #[error("{step}: {path}: {source}", path = path.display())]
    Directory { step: String, path: PathBuf, source: std::io::Error },
    #[error("the link's script: {0}")]
    Script(crate::emulator::EmulatorError),
    #[error("figure {name} after {phase}: its script printed {printed:?}, not one number")]
    Figure { name: String, phase: Phase, printed: String },
}

impl Job<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// Only [`TestBedError::Interrupted`]: whatever else goes wrong is in the record.
    pub fn run(&self) -> Result<RunRecord, TestBedError> {
        let begun = Instant::now();
        let mut record = RunRecord {
            version: RECORD_VERSION,
            cell: self.run.cell.clone(),
            repetition: self.run.repetition,
            seed: self.run.seed,
            digest: self.digest.to_owned(),
            started: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            whole_seconds: 0.0,
            versions: self.versions.clone(),
            phases: Vec::new(),
            failed: None,
            slow: None,
        };
        let outcome = self.attempt(&mut record.phases);
        self.test_bed.check()?;
        record.whole_seconds = begun.elapsed().as_secs_f64();
        record.slow = slowness(&record.phases, self.link);
        match outcome {
            // Logs of a run that counts say nothing that its record does not.
            Ok(()) => drop(fs::remove_dir_all(self.logs())),
            Err(error) => record.failed = Some(format!("{error}; logs: {}", self.logs().display())),
        }
        Ok(record)
    }

    /// Below it are the logs of its scripts.
    fn logs(&self) -> PathBuf {
        let cell = self.run.cell.to_string().replace('/', "_");
        self.places.logs.join(format!("{cell}_{}", self.run.repetition))
    }

    fn attempt(&self, phases: &mut Vec<PhaseRecord>) -> Result<(), RunError> {
        let logs = self.logs();
        let _: std::io::Result<()> = fs::remove_dir_all(&logs); // of an earlier attempt
        make_directory(&logs)?;
        let directory = OwnDirectory::make(self.test_bed)?;
        // The link's script begins with the first counted phase; until then, it is as it was asked for.
        let steady = Link { script: Vec::new(), ..self.link.clone() };
        let links = vec![steady; self.paths as usize];
        let laid = self.test_bed.lay(&links, self.hosts, self.contender.has_hosts(), self.run.seed);
        let laid = laid.map_err(test_bed_error("lay the link"))?;
        thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            let (laid, script) = (&laid, &self.link.script);
            let player =
                (!script.is_empty()).then(|| scope.spawn(move || script::play(laid, script, &begun)));
            let mut stage = Stage { job: self, laid, here: &directory.path, logs: &logs, begin };
            let outcome = stage.play(phases);
            // The player ends when nobody is left to begin it or to wait for it.
            drop(stage);
            let played = player.map_or(Ok(()), |player| player.join().unwrap_or(Ok(())));
            outcome.and(played.map_err(RunError::Script))
        })
    }
}

/// A run's directory, with what is mounted below it; goes with the run.
struct OwnDirectory<'a> {
    test_bed: &'a TestBed,
    path: PathBuf,
}

impl<'a> OwnDirectory<'a> {
    /// Its name is a number: the path of a Unix socket has 107 bytes, and contenders put some below it.
    fn make(test_bed: &'a TestBed) -> Result<Self, RunError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = test_bed.work().join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
        make_directory(&path)?;
        Ok(Self { test_bed, path })
    }
}

impl Drop for OwnDirectory<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.test_bed.clear(&self.path) {
            eprintln!("farside-lab: {error}; the end of the experiment tries again");
        }
    }
}

/// A run while it goes on.
struct Stage<'a> {
    job: &'a Job<'a>,
    laid: &'a Laid,
    /// The run's directory; each site has its own below it.
    here: &'a Path,
    logs: &'a Path,
    /// Told when the first counted phase begins; the link's script ends when it is dropped.
    begin: mpsc::Sender<Instant>,
}

impl Stage<'_> {
    fn play(&mut self, phases: &mut Vec<PhaseRecord>) -> Result<(), RunError> {
        for site in Site::START_ORDER {
            make_directory(&self.here.join(site.as_str()).join("home"))?;
        }
        let generations: &[Generation] = self.job.data.map_or(&[], |(data, _)| &data.manifest.generations);
        let mut services = Vec::new();
        self.serve(generations, &mut services)?;
        self.each_in_turn("prepare", &self.job.contender.prepare, (None, generations.first()))?;
        if self.job.data.is_none() {
            self.counted(Phase::Measure, (None, None), phases)?;
        }
        for (position, generation) in generations.iter().enumerate() {
            let transition = (position.checked_sub(1).map(|before| &generations[before]), Some(generation));
            let phase = if position == 0 { Phase::Initial } else { Phase::Update };
            if position > 0 {
                self.each_in_turn("change", &self.job.contender.change, transition)?;
            }
            if self.job.contender.phases.contains_key(&phase) {
                self.counted(phase, transition, phases)?;
            }
            if position == 0 && self.job.contender.phases.contains_key(&Phase::Again) {
                self.counted(Phase::Again, transition, phases)?;
            }
        }
        services.iter_mut().for_each(Running::stop);
        Ok(())
    }

    /// Starts the services; each next one only when the one before is ready.
    fn serve(&self, generations: &[Generation], services: &mut Vec<Running>) -> Result<(), RunError> {
        let contender = self.job.contender;
        for site in Site::START_ORDER {
            let Some(step) = contender.serve.get(&site) else { continue };
            let name = format!("serve at {site}");
            let mut running = self.start(&name, site, &step.run, (None, generations.first()))?;
            for ready in &step.ready {
                running.wait_ready(ready, READY_LIMIT).map_err(test_bed_error(&name))?;
            }
            services.push(running);
        }
        Ok(())
    }

    /// Scripts that are not counted, site after site, each to its end.
    fn each_in_turn(
        &self,
        name: &str,
        scripts: &BTreeMap<Site, String>,
        transition: Transition<'_>,
    ) -> Result<(), RunError> {
        for site in Site::START_ORDER {
            if let Some(script) = scripts.get(&site) {
                self.to_its_end(&step_name(name, site, transition), site, script, transition)?;
            }
        }
        Ok(())
    }

    fn to_its_end(
        &self,
        step: &str,
        site: Site,
        script: &str,
        transition: Transition<'_>,
    ) -> Result<(), RunError> {
        let mut running = self.start(step, site, script, transition)?;
        let status = running.wait(self.job.limit).map_err(test_bed_error(step))?;
        // What it left in the background on purpose goes on until the run ends only if it is a service.
        running.stop();
        if status.success() { Ok(()) } else { Err(test_bed_error(step)(running.failed(status))) }
    }

    /// A counted phase, its figures and its proof.
    fn counted(
        &self,
        phase: Phase,
        transition: Transition<'_>,
        phases: &mut Vec<PhaseRecord>,
    ) -> Result<(), RunError> {
        let steps = &self.job.contender.phases[&phase];
        let name = phase.as_str();
        let failed = || test_bed_error(name);
        count::wait_quiet(self.laid, self.job.link).map_err(failed())?;
        let before = count::Before::now(self.laid).map_err(failed())?;
        // Nobody listens where the link has no script, or when it began with an earlier phase.
        let _ = self.begin.send(Instant::now());
        let time_before = ProcessorTime::now();
        let begun = Instant::now();
        let mut running: Vec<Running> = Vec::new();
        let (ended, looks) = thread::scope(|scope| {
            let sampler = self.job.series.map(|every| Sampler::start(scope, self.laid, every));
            for site in Site::START_ORDER {
                let Some(script) = steps.scripts.get(&site) else { continue };
                let mut started = self.start(&step_name(name, site, transition), site, script, transition)?;
                if running.is_empty() {
                    for ready in &steps.ready {
                        started.wait_ready(ready, READY_LIMIT).map_err(failed())?;
                    }
                }
                running.push(started);
            }
            let ended = crate::testbed::wait_all(&mut running, self.job.limit).map_err(failed())?;
            Ok((ended, sampler.map(Sampler::stop)))
        })?;
        let last = ended.iter().map(|ended| ended.at).max().unwrap_or(begun);
        let load = super::machine::load();
        let stolen_percent =
            ProcessorTime::now().zip(time_before).and_then(|(now, before)| now.stolen_percent_since(before));
        count::wait_quiet(self.laid, self.job.link).map_err(failed())?;
        let (forward, back, cpu_seconds) = before.until_now(self.laid).map_err(failed())?;
        drop(running);
        let series = looks.zip(self.job.series).map(|(looks, every)| series::by_intervals(&looks, every));
        let mut record = PhaseRecord {
            phase: name.to_owned(),
            generation: transition.1.map(|generation| generation.name.clone()),
            seconds: last.saturating_duration_since(begun).as_secs_f64(),
            forward,
            back,
            cpu_seconds,
            load,
            stolen_percent,
            series,
            figures: BTreeMap::new(),
        };
        let figures = self.figures(phase, transition, &mut record);
        let derived = flow::figures(&record, self.job.link);
        record.figures.extend(derived.into_iter().map(|(name, figure)| (name.to_owned(), figure)));
        phases.push(record);
        figures?;
        if let Some(verify) = &self.job.contender.verify {
            let step = format!("verify after {}", step_name(name, Site::B, transition));
            self.to_its_end(&step, Site::B, verify, transition)?;
        }
        Ok(())
    }

    fn figures(
        &self,
        phase: Phase,
        transition: Transition<'_>,
        record: &mut PhaseRecord,
    ) -> Result<(), RunError> {
        for (name, figure) in &self.job.contender.figures {
            let step = format!("figure {name} after {phase}");
            let site = self.laid.site(figure.site.as_str()).map_err(test_bed_error(&step))?;
            let environment = self.variables(figure.site, transition);
            let printed = site
                .output(&figure.run, &environment, &self.home(figure.site), FIGURE_LIMIT)
                .map_err(test_bed_error(&step))?;
            let value = printed.parse::<f64>().ok().filter(|value| value.is_finite());
            let value = value.ok_or_else(|| RunError::Figure { name: name.clone(), phase, printed })?;
            record.figures.insert(name.clone(), crate::record::Figure { value, unit: figure.unit.clone() });
        }
        Ok(())
    }

    fn start(
        &self,
        step: &str,
        at: Site,
        script: &str,
        transition: Transition<'_>,
    ) -> Result<Running, RunError> {
        let site = self.laid.site(at.as_str()).map_err(test_bed_error(step))?;
        let log = self.logs.join(format!("{}.log", step.replace(' ', "-")));
        site.run(script, &self.variables(at, transition), &self.home(at), &log).map_err(test_bed_error(step))
    }

    fn home(&self, site: Site) -> PathBuf {
        self.here.join(site.as_str())
    }

    fn variables(&self, site: Site, (old, new): Transition<'_>) -> Vec<(String, String)> {
        let addresses = |name: &str| {
            self.laid.sites().get(name).map(|site| site.addresses().to_vec()).unwrap_or_default()
        };
        let directory =
            |generation: &Generation| self.job.data.map(|(data, _)| data.generation_dir(generation));
        let link = self.job.link;
        let environment = Environment {
            run: self.here.to_owned(),
            a_addresses: addresses("a"),
            b_addresses: addresses("b"),
            server_addresses: addresses("server"),
            client_addresses: addresses("client"),
            old: old.and_then(directory),
            new: new.and_then(directory),
            generation: new.map(|generation| generation.name.clone()),
            kind: match self.job.data.map(|(_, kind)| kind) {
                None => Carries::Link,
                Some(DataKind::Image) => Carries::Image,
                Some(DataKind::Tree) => Carries::Tree,
            },
            volumes: new.map_or(0, |generation| u32::try_from(generation.volumes.len()).unwrap_or(u32::MAX)),
            rate_bits: link.forward.rate_bits,
            rtt_ms: (link.forward.delay + link.back.delay).as_secs_f64() * 1e3,
            loss: super::expect::loss_rate(&link.forward.loss),
            portion: self.job.portion,
            settings: self.job.contender.settings.clone(),
            farside_bin: self.job.places.farside_bin.clone(),
            lab: self.job.places.lab.clone(),
            contenders: self.job.places.contenders.clone(),
        };
        environment.variables(site)
    }
}

/// The generation that b has, and the one that it is to get.
type Transition<'a> = (Option<&'a Generation>, Option<&'a Generation>);

/// `update at a`, and which generation where there may be several: what errors and log files call a script.
fn step_name(name: &str, site: Site, (old, new): Transition<'_>) -> String {
    match (old, new) {
        (Some(_), Some(new)) => format!("{name} to {} at {site}", new.name),
        _ => format!("{name} at {site}"),
    }
}

fn test_bed_error(step: &str) -> impl FnOnce(TestBedError) -> RunError + use<> {
    let step = step.to_owned();
    |source| RunError::TestBed { step, source }
}

fn make_directory(path: &Path) -> Result<(), RunError> {
    fs::create_dir_all(path).map_err(|source| RunError::Directory {
        step: "make a directory".to_owned(),
        path: path.to_owned(),
        source,
    })
}
