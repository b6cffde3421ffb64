//! The random histories of the crash test on a real file, through io_uring and without it: what a pool reads of the file is what it
//! wrote, at every read, and it shows what the model does.

mod model;

use std::sync::Arc;

use farside_platform::{BlockDevice, DeviceError, FileDevice, SimulatedDisk};
use model::Run;

/// A file, and beside it a disk in memory that gets the same requests. Each read of the file is compared with it.
struct Doubled {
    file: FileDevice,
    disk: SimulatedDisk,
}

impl Doubled {
    fn compare(
        &self,
        reads: &mut [(u64, &mut [u8])],
        read: impl FnOnce(&FileDevice, &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>>,
    ) -> Vec<Result<(), DeviceError>> {
        let mut all: Vec<(u64, Vec<u8>)> =
            reads.iter().map(|(offset, buffer)| (*offset, vec![0; buffer.len()])).collect();
        let of_disk: Vec<_> =
            all.iter_mut().map(|(offset, expected)| self.disk.read_at(*offset, expected)).collect();
        let of_file = read(&self.file, reads);
        for ((outcome, (offset, buffer)), (_, expected)) in of_file.iter().zip(reads).zip(&all) {
            outcome.as_ref().expect("a file reads");
            assert!(**buffer == **expected, "{} bytes at {offset}", buffer.len());
        }
        of_disk
    }
}

impl BlockDevice for Doubled {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        // First, for the sake of failures that the history makes.
        let mut expected = vec![0; buffer.len()];
        self.disk.read_at(offset, &mut expected)?;
        self.file.read_at(offset, buffer)?;
        assert!(buffer == expected, "{} bytes at {offset}", buffer.len());
        Ok(())
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        self.compare(reads, FileDevice::read_many)
    }
    fn read_many_remembering(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        self.compare(reads, FileDevice::read_many_remembering)
    }
    fn read_remembered(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        self.file.read_remembered(reads)
    }
    fn overlaps_reads(&self) -> bool {
        self.file.overlaps_reads()
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, bytes)?;
        self.file.write_at(offset, bytes)
    }
    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, &pieces.concat())?;
        self.file.write_pieces_at(offset, pieces)
    }
    fn write_many(&self, writes: &[(u64, Vec<&[u8]>)]) -> Vec<Result<(), DeviceError>> {
        let of_disk: Vec<_> =
            writes.iter().map(|(offset, pieces)| self.disk.write_at(*offset, &pieces.concat())).collect();
        let done: Vec<(u64, Vec<&[u8]>)> = writes
            .iter()
            .zip(&of_disk)
            .filter(|(_, outcome)| outcome.is_ok())
            .map(|(write, _)| write.clone())
            .collect();
        assert!(self.file.write_many(&done).iter().all(Result::is_ok), "a file takes writes");
        of_disk
    }
    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        self.disk.grow(bytes)?;
        self.file.grow(bytes)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()?;
        self.file.sync()
    }
    fn name(&self) -> String {
        self.file.name()
    }
}

fn histories_on(make: fn(FileDevice) -> FileDevice, seeds: std::ops::Range<u64>) {
    let first = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(seeds, |first| first..first + 1) {
        println!("seed {seed}");
        let directory = tempfile::tempdir().expect("a directory");
        let file = FileDevice::create(&directory.path().join("pool"), 24 << 20).expect("a file");
        let disk = SimulatedDisk::new("disk", 24 << 20);
        let device = Doubled { file: make(file), disk: disk.clone() };
        let mut run = Run::on(seed, disk, Arc::new(device));
        for operation in 1..=120 {
            run.step();
            if operation == 40 || operation == 80 {
                run.grow(8 << 8);
            }
            if operation % 25 == 0 {
                run.restart();
            }
        }
        run.finish();
        let file = FileDevice::open_read_only(&directory.path().join("pool")).expect("it opens");
        let report = farside_check::check(&file, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "seed {seed}: {report}");
    }
}

#[test]
fn with_io_uring_where_it_is() {
    let allowed = |device: FileDevice| {
        println!("io_uring: {}, direct: {}", device.uses_io_uring(), device.is_direct());
        device
    };
    histories_on(allowed, 1..4);
}

#[test]
fn without_io_uring() {
    histories_on(FileDevice::without_io_uring, 1..4);
}
