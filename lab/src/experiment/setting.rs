//! An experiment with all that its file names: links, contenders, the plan, what each cell is of. Reads files, runs
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::digest::{self, Subject};
use super::file::{DataEntry, DataKind, Experiment, FileError, Wrong};
use super::plan::{self, Filter, PlannedRun};
use super::run::Places;
use super::summary;
use crate::contender::{Contender, ContenderError, inspect};
use crate::data::{self, DataError, Order, Prepared};
use crate::link::Link;
use crate::record::result::{DataFacts, GenerationFacts};
use crate::record::{Cell, RunRecord};
use crate::testbed::Hosts;

/// How much `zstd -3` saves of a data set that has not been made yet: databases and files of text lie between 4 and 16.
/// Only estimates are made of it.
const GUESSED_COMPRESSION: u64 = 6;

/// Share of the blocks that a generation changes, where the set has not been made yet: one of so many.
const GUESSED_CHANGES: u64 = 4;

/// Cells that an error names.
const NAMED_CELLS: usize = 5;

/// What scripts say when they use farside's programs.
const FARSIDE_VARIABLE: &str = "FARSIDE_BIN";

/// An experiment, ready to be run as far as files can tell.
#[derive(Debug)]
pub struct Setting {
    /// Its name: the file's, without directory and ending.
    pub name: String,
    /// What the file says.
    pub experiment: Experiment,
    /// Its links, in order.
    pub links: Vec<Link>,
    /// How many bytes of the data each link carries; all where nothing is said.
    pub portions: Vec<Option<u64>>,
    /// Its contenders, in order.
    pub contenders: Vec<Contender>,
    /// All runs that it wants.
    pub planned: Vec<PlannedRun>,
    /// Where things are.
    pub places: Places,
}

/// The data of an experiment: each set as it lies in the cache, or nothing where it has not been made.
pub type Data = Vec<Option<Prepared>>;

/// What each cell is of; without those whose data has not been made.
pub type Digests = BTreeMap<Cell, String>;

/// Why an experiment cannot begin. Nothing has been run, and earlier runs are as they were.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// Its file.
    #[error(transparent)]
    File(#[from] FileError),
    /// One of its links.
    #[error(transparent)]
    Link(#[from] Wrong),
    /// One of its contenders.
    #[error(transparent)]
    Contender(#[from] ContenderError),
    /// One of its data sets.
    #[error("data set {name}: {source}")]
    Data {
        /// Its name in the experiment.
        name: String,
        /// Why.
        source: DataError,
    },
    /// Farside's programs are not where they are looked for.
    #[error(
        "contender {contender} needs {path}, which cannot be read ({source}); build it (`cargo build --release`), or say \
         where it is with FARSIDE_BIN=DIRECTORY",
        path = path.display()
    )]
    Farside {
        /// Who needs it.
        contender: String,
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Contenders' programs are not installed.
    #[error("programs are missing:\n{}\nscripts/install-lab-tools installs all of them; --filter leaves cells out", .0.join("\n"))]
    Programs(Vec<String>),
    /// Nothing to do.
    #[error("{0}")]
    Empty(String),
    /// There are runs of something else than would be run now.
    #[error(
        "{count} recorded runs were of something else than what would run now: the link, the data, the contender's files \
         or farside itself has changed since. Cells: {cells}. They are not mixed with new ones. Repeat them with \
         --fresh (with --filter only some): the old records are kept beside the journal"
    )]
    Stale {
        /// How many.
        count: usize,
        /// Some of their cells.
        cells: String,
    },
}

impl Setting {
    /// Reads the experiment and its contenders. `repetitions` takes the place of the file's own, of every link.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn read(file: &Path, repetitions: Option<u32>, places: Places) -> Result<Self, SettingError> {
        let mut experiment = Experiment::read(file)?;
        if let Some(repetitions) = repetitions {
            experiment.repetitions = repetitions;
            experiment.links.iter_mut().for_each(|link| link.repetitions = None);
        }
        let variants = experiment.written_variants()?;
        let load = |name: &String| match variants.iter().find(|variant| variant.name == *name) {
            None => Contender::load(&places.contenders, name),
            Some(variant) => Contender::load(&places.contenders, &variant.of)
                .map(|contender| contender.with_settings(name, variant.settings.clone())),
        };
        let contenders: Vec<Contender> = experiment.contenders.iter().map(load).collect::<Result<_, _>>()?;
        let abilities = contenders.iter().map(|c| (c.name.clone(), c.carries.clone())).collect();
        let planned = plan::plan(&experiment, &abilities);
        let idle = contenders.iter().find(|c| !planned.iter().any(|run| run.cell.contender == c.name));
        if let Some(idle) = idle {
            let carries: Vec<&str> = idle.carries.iter().map(|carries| carries.as_str()).collect();
            return Err(SettingError::Empty(format!(
                "{}: contender {} has nothing to do: it carries {}, and no link of the experiment has such data for it; take \
                 it out or add [[data]]",
                file.display(),
                idle.name,
                carries.join(" and ")
            )));
        }
        let links = experiment.build_links()?;
        Ok(Self {
            name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            portions: experiment.portions(&links),
            links,
            experiment,
            contenders,
            planned,
            places,
        })
    }

    /// What is set in every host under `congestion`.
    #[must_use]
    pub fn hosts(&self, congestion: &str) -> Hosts {
        Hosts {
            congestion: congestion.to_owned(),
            tcp_rmem_max_bytes: self.experiment.hosts.tcp_rmem_max,
            tcp_wmem_max_bytes: self.experiment.hosts.tcp_wmem_max,
        }
    }

    /// The contender of that name, which the plan has.
    ///
    /// # Panics
    /// If the experiment has no such contender.
    #[must_use]
    pub fn contender(&self, name: &str) -> &Contender {
        self.contenders
            .iter()
            .find(|contender| contender.name == name)
            .expect("the plan is made of the contenders")
    }

    /// What is ordered for the data set at `position`.
    #[must_use]
    pub fn order(&self, position: usize) -> Order {
        let entry = &self.experiment.data[position];
        Order { set: entry.set.clone(), size_bytes: entry.size, seed: self.experiment.seed_of(entry) }
    }

    /// The data sets that lie in `cache` already.
    ///
    /// # Errors
    /// [`SettingError::Data`].
    pub fn find_data(&self, cache: &Path) -> Result<Data, SettingError> {
        let find = |(position, entry): (usize, &DataEntry)| {
            data::find(&self.order(position), cache)
                .map_err(|source| SettingError::Data { name: entry.name.clone(), source })
        };
        self.experiment.data.iter().enumerate().map(find).collect()
    }

    /// Positions of the data sets that runs need which `filter` selects.
    #[must_use]
    pub fn needed_data(&self, filter: &Filter) -> BTreeSet<usize> {
        self.planned.iter().filter(|run| filter.selects(&run.cell)).filter_map(|run| run.data).collect()
    }

    /// What each data set is; guessed of one that has not been made.
    #[must_use]
    pub fn data_facts(&self, data: &Data) -> Vec<DataFacts> {
        let entries = self.experiment.data.iter().zip(data);
        entries
            .map(|(entry, prepared)| match prepared {
                Some(prepared) => summary::data_facts(&entry.name, entry.kind, &prepared.manifest),
                None => self.guessed(entry),
            })
            .collect()
    }

    fn guessed(&self, entry: &DataEntry) -> DataFacts {
        let set = data::set(&entry.set).ok();
        let size_bytes = entry.size.or(set.map(|set| set.default_bytes)).unwrap_or(0);
        let generation = |(position, name): (usize, &&str)| GenerationFacts {
            name: (*name).to_owned(),
            volumes: set.map_or(1, |set| set.volumes),
            size_bytes,
            data_bytes: size_bytes,
            changed_blocks: (position > 0).then_some(size_bytes / data::BLOCK_BYTES / GUESSED_CHANGES),
            zstd_bytes: size_bytes / GUESSED_COMPRESSION,
        };
        DataFacts {
            name: entry.name.clone(),
            set: entry.set.clone(),
            kind: entry.kind.as_str().to_owned(),
            seed: self.experiment.seed_of(entry),
            generations: set
                .map_or(&[][..], |set| set.generations)
                .iter()
                .enumerate()
                .map(generation)
                .collect(),
        }
    }

    /// What each cell is of.
    ///
    /// # Errors
    /// [`SettingError::Farside`].
    pub fn digests(&self, data: &Data) -> Result<Digests, SettingError> {
        let mut farside = None;
        for contender in &self.contenders {
            if farside.is_none() && contender.text.contains(FARSIDE_VARIABLE) {
                farside = Some(self.farside_digest(&contender.name)?);
            }
        }
        let mut digests = Digests::new();
        for run in self.planned.iter().filter(|run| run.repetition == 1) {
            let kind = run.data.map_or(DataKind::default(), |position| self.experiment.data[position].kind);
            let data = match run.data.map(|position| &data[position]) {
                None => None,
                Some(Some(prepared)) => Some((&prepared.manifest, kind)),
                Some(None) => continue,
            };
            let source = &self.contender(&run.cell.contender).text;
            let subject = Subject {
                paths: self.experiment.paths,
                link: &self.links[run.link],
                portion: self.portions[run.link],
                congestion: &run.cell.congestion,
                tcp_buffers: (self.experiment.hosts.tcp_rmem_max, self.experiment.hosts.tcp_wmem_max),
                data,
                contender: source,
                farside: farside.as_deref().filter(|_| source.contains(FARSIDE_VARIABLE)),
            };
            digests.insert(run.cell.clone(), subject.digest());
        }
        Ok(digests)
    }

    fn farside_digest(&self, contender: &str) -> Result<String, SettingError> {
        let mut hasher = blake3::Hasher::new();
        for program in ["farside", "farsided"] {
            let path = self.places.farside_bin.join(program);
            let copied = fs::File::open(&path).and_then(|mut file| io::copy(&mut file, &mut hasher));
            copied.map_err(|source| SettingError::Farside {
                contender: contender.to_owned(),
                path,
                source,
            })?;
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Versions of the programs of each contender of `runs`, with the laboratory's and the kernel's.
    ///
    /// # Errors
    /// [`SettingError::Programs`]: what is missing, with what brings it.
    pub fn versions(
        &self,
        runs: &[PlannedRun],
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, SettingError> {
        let wanted: BTreeSet<&str> = runs.iter().map(|run| run.cell.contender.as_str()).collect();
        let mut versions = BTreeMap::new();
        let mut missing = Vec::new();
        for contender in self.contenders.iter().filter(|contender| wanted.contains(contender.name.as_str())) {
            let inspection = inspect(contender, &self.places.farside_bin);
            let programs: Vec<&str> = inspection.missing().collect();
            if !programs.is_empty() {
                let packages = contender.packages.join(" ");
                missing.push(format!(
                    "  {}: {} (apt-get install {packages})",
                    contender.name,
                    programs.join(", ")
                ));
            }
            let found = inspection.programs.iter();
            let mut of_contender: BTreeMap<String, String> =
                found.filter_map(|found| Some((found.program.clone(), found.version.clone()?))).collect();
            of_contender.insert("farside-lab".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
            of_contender.insert("kernel".to_owned(), super::machine::describe().kernel);
            versions.insert(contender.name.clone(), of_contender);
        }
        if missing.is_empty() { Ok(versions) } else { Err(SettingError::Programs(missing)) }
    }

    /// Refuses records of something else than would be run now.
    ///
    /// # Errors
    /// [`SettingError::Stale`].
    pub fn refuse_stale(&self, records: &[RunRecord], digests: &Digests) -> Result<(), SettingError> {
        let stale: Vec<&RunRecord> = records
            .iter()
            .filter(|r| digests.get(&r.cell).is_some_and(|digest| *digest != r.digest))
            .collect();
        if stale.is_empty() {
            return Ok(());
        }
        let cells: BTreeSet<String> = stale.iter().map(|record| record.cell.to_string()).collect();
        let mut named: Vec<String> = cells.iter().take(NAMED_CELLS).cloned().collect();
        if cells.len() > NAMED_CELLS {
            named.push(format!("and {} more", cells.len() - NAMED_CELLS));
        }
        Err(SettingError::Stale { count: stale.len(), cells: named.join(", ") })
    }

    /// Digest of all that the experiment is of, as far as its data has been made.
    #[must_use]
    pub fn digest(&self, digests: &Digests) -> String {
        digest::of_all(digests.values().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RECORD_VERSION;

    const CONTENDER: &str = r#"
name = "NAME"
about = "sends"
packages = ["bash"]
carries = ["CARRIES"]
[[versions]]
name = "bash"
command = "echo 5"
[initial]
a = "true"
[update]
a = "USES"
[verify]
run = "true"
"#;

    /// An experiment with the contenders `one`, which uses farside, and `two`, in a directory as the project has it.
    fn lay(carries: &str) -> tempfile::TempDir {
        let lab = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = lab.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("write");
        };
        for (name, uses) in [("one", "$FARSIDE_BIN/farside"), ("two", "true")] {
            let text = CONTENDER.replace("NAME", name).replace("USES", uses).replace("CARRIES", carries);
            write(&format!("contenders/{name}.toml"), &text);
        }
        write(
            "experiments/x.toml",
            "title = \"t\"\ncontenders = [\"one\", \"two\"]\nrepetitions = 4\n[[link]]\nname = \"l\"\nrate = \"1Mbit\"\n\
             repetitions = 3\n[[data]]\nname = \"d\"\nset = \"random\"\nsize = \"1MiB\"\n",
        );
        write("bin/farside", "client");
        write("bin/farsided", "daemon");
        lab
    }

    fn read(lab: &Path, repetitions: Option<u32>) -> Result<Setting, SettingError> {
        let places = Places {
            contenders: lab.join("contenders"),
            farside_bin: lab.join("bin"),
            lab: PathBuf::new(),
            logs: PathBuf::new(),
        };
        Setting::read(&lab.join("experiments/x.toml"), repetitions, places)
    }

    /// The data as if it had been made.
    fn made(setting: &Setting) -> Data {
        let order = setting.order(0);
        let manifest = data::Manifest {
            version: data::MANIFEST_VERSION,
            set: order.set,
            size_bytes: order.size_bytes.expect("the file's size"),
            seed: order.seed,
            generator: 1,
            programs: BTreeMap::new(),
            inputs: BTreeMap::new(),
            generations: Vec::new(),
        };
        vec![Some(Prepared { dir: PathBuf::new(), manifest })]
    }

    #[test]
    fn repetitions_from_outside_hold_for_every_link() {
        let lab = lay("image");
        assert_eq!(read(lab.path(), None).expect("the setting").planned.len(), 6);
        assert_eq!(read(lab.path(), Some(1)).expect("the setting").planned.len(), 2);
    }

    #[test]
    fn a_contender_that_has_nothing_to_do_is_a_mistake() {
        let lab = lay("tree");
        let error = read(lab.path(), None).expect_err("idle").to_string();
        assert!(error.contains("contender one has nothing to do: it carries tree"), "{error}");
    }

    #[test]
    fn a_changed_contender_or_farside_spoils_its_own_runs_and_no_others() {
        let lab = lay("image");
        let setting = read(lab.path(), None).expect("the setting");
        assert!(setting.find_data(lab.path()).expect("a cache")[0].is_none());
        assert!(
            setting.digests(&vec![None]).expect("digests").is_empty(),
            "of data that is not there is no digest"
        );
        let data = made(&setting);
        let before = setting.digests(&data).expect("digests");
        let records: Vec<RunRecord> = setting
            .planned
            .iter()
            .map(|run| RunRecord {
                version: RECORD_VERSION,
                cell: run.cell.clone(),
                repetition: run.repetition,
                seed: run.seed,
                digest: before[&run.cell].clone(),
                started: String::new(),
                whole_seconds: 1.0,
                versions: BTreeMap::new(),
                phases: Vec::new(),
                failed: None,
                slow: None,
            })
            .collect();
        setting.refuse_stale(&records, &before).expect("nothing has changed");

        fs::write(lab.path().join("bin/farsided"), "another daemon").expect("write");
        let error =
            setting.refuse_stale(&records, &setting.digests(&data).expect("digests")).expect_err("stale");
        let text = error.to_string();
        assert!(matches!(error, SettingError::Stale { count: 3, .. }), "{text}");
        assert!(
            text.contains("l/d/one/cubic") && !text.contains("two") && text.contains("--fresh"),
            "{text}"
        );

        fs::write(lab.path().join("bin/farsided"), "daemon").expect("write");
        let path = lab.path().join("contenders/two.toml");
        let changed = fs::read_to_string(&path).expect("read").replace("sends", "sends otherwise");
        fs::write(&path, changed).expect("write");
        let again = read(lab.path(), None).expect("the setting");
        let text = again
            .refuse_stale(&records, &again.digests(&data).expect("digests"))
            .expect_err("stale")
            .to_string();
        assert!(text.contains("l/d/two/cubic") && !text.contains("l/d/one"), "{text}");
    }

    #[test]
    fn farsides_programs_are_asked_for_only_where_a_contender_uses_them() {
        let lab = lay("image");
        fs::remove_file(lab.path().join("bin/farside")).expect("remove");
        let setting = read(lab.path(), None).expect("the setting");
        let error = setting.digests(&vec![None]).expect_err("no farside").to_string();
        assert!(error.contains("contender one needs") && error.contains("FARSIDE_BIN="), "{error}");
    }
}
