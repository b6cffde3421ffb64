//! What a recipe has in hand while it makes a set.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::capture::VolumeWriter;
use super::manifest::Generation;
use super::{DataError, Progress, Set, program};

/// A set that is being made, in a directory that nobody takes for a whole set.
pub(super) struct Making<'a> {
    set: &'static Set,
    size_bytes: u64,
    seed: u64,
    /// What becomes the set's directory.
    out: PathBuf,
    /// For what is not kept: images that programs work in, mount points.
    scratch: PathBuf,
    step: String,
    progress: &'a mut dyn FnMut(Progress<'_>),
    pub(super) programs: BTreeMap<String, String>,
    pub(super) inputs: BTreeMap<String, String>,
    generations: Vec<Generation>,
}

impl<'a> Making<'a> {
    /// Begins in `dir`, which is empty.
    pub(super) fn new(
        set: &'static Set,
        size_bytes: u64,
        seed: u64,
        dir: &Path,
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
            out,
            scratch,
            step: String::new(),
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

    /// A directory for what is not kept.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Where the set is put together.
    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    /// Says what is done now.
    pub(super) fn step(&mut self, step: &str) {
        step.clone_into(&mut self.step);
        (self.progress)(Progress { step, share: None });
    }

    /// Says how much of this step is done, 0 to 1.
    pub(super) fn share(&mut self, share: f64) {
        (self.progress)(Progress { step: &self.step, share: Some(share) });
    }

    /// Writes a program's version into the manifest.
    pub(super) fn program(&mut self, name: &str, command: &mut Command) -> Result<(), DataError> {
        let version = program::version(command)?;
        self.programs.insert(name.to_owned(), version);
        Ok(())
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
        let mut file = File::open(from).map_err(DataError::io("open", from))?;
        let length = file.metadata().map_err(DataError::io("look at", from))?.len();
        let mut buffer = vec![0; 1024 * 1024];
        let mut copied = 0u64;
        loop {
            let read = file.read(&mut buffer).map_err(DataError::io("read", from))?;
            if read == 0 {
                return Ok(());
            }
            writer.write(&buffer[..read])?;
            copied += read as u64;
            self.share(copied as f64 / length.max(1) as f64);
        }
    }

    /// What was made.
    pub(super) fn into_generations(
        self,
    ) -> (Vec<Generation>, BTreeMap<String, String>, BTreeMap<String, String>) {
        for generation in &self.generations {
            assert_eq!(generation.volumes.len() as u32, self.set.volumes, "volumes of {}", generation.name);
        }
        (self.generations, self.programs, self.inputs)
    }
}
