//! What a recipe has in hand while it makes a set.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::capture::{Meter, VolumeWriter};
use super::error::DataError;
use super::manifest::{Generation, MANIFEST_VERSION, Manifest, Tree};
use super::progress::Progress;
use super::set::Set;
use super::{program, walk};
use crate::testbed::TestBed;

/// Bytes read at once: enough that progress and pipes cost nothing.
const PIECE_BYTES: usize = 1024 * 1024;

/// A set that is being made, in a directory that nobody takes for a whole set.
pub(super) struct Making<'a> {
    set: &'static Set,
    size_bytes: u64,
    seed: u64,
    cache: PathBuf,
    /// What becomes the set's directory.
    out: PathBuf,
    /// For what is not kept: images that programs work in, mount points.
    scratch: PathBuf,
    step: String,
    test_bed: &'a TestBed,
    progress: &'a mut dyn FnMut(Progress<'_>),
    programs: BTreeMap<String, String>,
    inputs: BTreeMap<String, String>,
    generations: Vec<Generation>,
}

impl<'a> Making<'a> {
    /// Begins in `dir`, which is empty.
    pub(super) fn new(
        set: &'static Set,
        size_bytes: u64,
        seed: u64,
        cache: &Path,
        dir: &Path,
        test_bed: &'a TestBed,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, DataError> {
        let (out, scratch) = (dir.join("out"), dir.join("scratch"));
        for dir in [&out, &scratch] {
            fs::create_dir(dir).map_err(DataError::io("create", dir))?;
        }
        Ok(Self {
            set,
            size_bytes,
            seed,
            cache: cache.to_owned(),
            out,
            scratch,
            step: String::new(),
            test_bed,
            progress,
            programs: BTreeMap::new(),
            inputs: BTreeMap::new(),
            generations: Vec::new(),
        })
    }

    /// Of everything drawn by chance.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Bytes of each volume.
    pub(super) fn volume_bytes(&self) -> u64 {
        self.size_bytes / u64::from(self.set.volumes)
    }

    /// Where packages and other sets lie.
    pub(super) fn cache(&self) -> &Path {
        &self.cache
    }

    /// A directory for what is not kept.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Where the set is put together.
    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    /// Says what is done now.
    ///
    /// # Errors
    ///
    /// `Interrupted`, as of [`Making::share`]: both are where making ends when it is asked to.
    pub(super) fn step(&mut self, step: &str) -> Result<(), DataError> {
        step.clone_into(&mut self.step);
        (self.progress)(Progress { step, share: None });
        Ok(self.test_bed.check()?)
    }

    /// Says how much of this step is done, 0 to 1.
    pub(super) fn share(&mut self, share: f64) -> Result<(), DataError> {
        (self.progress)(Progress { step: &self.step, share: Some(share) });
        Ok(self.test_bed.check()?)
    }

    /// Writes a program's version into the manifest.
    pub(super) fn program(&mut self, name: &str, command: &mut Command) -> Result<(), DataError> {
        let version = program::version(command)?;
        self.programs.insert(name.to_owned(), version);
        Ok(())
    }

    /// Writes a file that goes in into the manifest, by its content.
    pub(super) fn input(&mut self, path: &Path) -> Result<(), DataError> {
        let mut sha256 = Meter::sha256()?;
        read_through(path, |bytes, _| sha256.write(bytes))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.inputs.insert(name, sha256.finish()?.first_word());
        Ok(())
    }

    /// The namespaces in which it is made.
    pub(super) fn test_bed(&self) -> &'a TestBed {
        self.test_bed
    }

    /// Who is told how far it is.
    pub(super) fn progress(&mut self) -> &mut dyn FnMut(Progress<'_>) {
        self.progress
    }

    /// Writes another set that this one is made of into the manifest.
    pub(super) fn made_of(&mut self, name: &str, other: &Manifest) {
        for generation in &other.generations {
            for volume in &generation.volumes {
                self.inputs
                    .insert(format!("{name}/{}/{}", generation.name, volume.file), volume.sha256.clone());
            }
        }
        self.programs.extend(other.programs.clone());
    }

    /// Begins the next generation; gives its directory.
    pub(super) fn begin(&mut self, name: &str) -> Result<PathBuf, DataError> {
        let dir = self.out.join(name);
        fs::create_dir(&dir).map_err(DataError::io("create", &dir))?;
        self.generations.push(Generation { name: name.to_owned(), volumes: Vec::new(), tree: None });
        Ok(dir)
    }

    /// The next volume of the generation that was begun last.
    pub(super) fn writer(&self) -> Result<VolumeWriter, DataError> {
        let mut latest = self.generations.iter().rev();
        let (name, file) = latest
            .next()
            .map(|generation| (generation.name.as_str(), format!("{}.img", generation.volumes.len())))
            .expect("a recipe begins a generation before it writes volumes");
        let before = latest.next().map(|generation| self.out.join(&generation.name).join(&file));
        VolumeWriter::create(&self.out.join(name).join(&file), self.volume_bytes(), before.as_deref())
    }

    /// Completes the volume that was written.
    pub(super) fn finish(&mut self, writer: VolumeWriter) -> Result<(), DataError> {
        let volume = writer.finish()?;
        if let Some(generation) = self.generations.last_mut() {
            generation.volumes.push(volume);
        }
        Ok(())
    }

    /// Keeps an image as the next volume of the generation that was begun last.
    pub(super) fn capture(&mut self, image: &Path) -> Result<(), DataError> {
        let mut writer = self.writer()?;
        self.copy_into(image, &mut writer)?;
        self.finish(writer)
    }

    /// Copies a file's content to where the volume's writing is, with progress.
    pub(super) fn copy_into(&mut self, from: &Path, writer: &mut VolumeWriter) -> Result<(), DataError> {
        let length = fs::metadata(from).map_err(DataError::io("look at", from))?.len().max(1);
        read_through(from, |bytes, end| {
            writer.write(bytes)?;
            self.share(end as f64 / length as f64)
        })
    }

    /// Tells in the manifest what `tree/` of the generation that was begun last holds.
    pub(super) fn measure_tree(&mut self) -> Result<(), DataError> {
        let Some(generation) = self.generations.last_mut() else { return Ok(()) };
        let dir = self.out.join(&generation.name).join("tree");
        let (files, _) = walk::walk(&dir)?;
        let mut bytes = 0;
        for file in &files {
            let path = dir.join(file);
            bytes += fs::metadata(&path).map_err(DataError::io("look at", &path))?.len();
        }
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", "-c", "-C"]);
        tar.arg(&dir).arg(".").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tar = program::spawn("tar", &mut tar)?;
        let (mut sha256, mut zstd) = (Meter::sha256()?, Meter::zstd()?);
        if let Some(mut archive) = tar.stdout.take() {
            read_all(&mut archive, Path::new("tar"), |bytes, _| {
                sha256.write(bytes)?;
                zstd.write(bytes)
            })?;
        }
        program::finish("tar", tar)?;
        generation.tree = Some(Tree {
            files: files.len() as u64,
            bytes,
            sha256: sha256.finish()?.first_word(),
            zstd3_bytes: zstd.finish()?.bytes,
        });
        Ok(())
    }

    /// What was made.
    pub(super) fn into_manifest(self) -> Manifest {
        let names: Vec<&str> = self.generations.iter().map(|generation| generation.name.as_str()).collect();
        assert_eq!(names, self.set.generations, "the recipe and the table of sets disagree");
        for generation in &self.generations {
            assert_eq!(generation.volumes.len(), self.set.volumes as usize, "volumes of {}", generation.name);
        }
        Manifest {
            version: MANIFEST_VERSION,
            set: self.set.name.to_owned(),
            size_bytes: self.size_bytes,
            seed: self.seed,
            generator: self.set.generator,
            programs: self.programs,
            inputs: self.inputs,
            generations: self.generations,
        }
    }
}

/// Gives a file's content piece by piece, each with the place where it ends.
fn read_through(path: &Path, take: impl FnMut(&[u8], u64) -> Result<(), DataError>) -> Result<(), DataError> {
    let mut file = File::open(path).map_err(DataError::io("open", path))?;
    read_all(&mut file, path, take)
}

fn read_all(
    from: &mut dyn Read,
    name: &Path,
    mut take: impl FnMut(&[u8], u64) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut end = 0;
    loop {
        let read = from.read(&mut buffer).map_err(DataError::io("read", name))?;
        if read == 0 {
            return Ok(());
        }
        end += read as u64;
        take(&buffer[..read], end)?;
    }
}
