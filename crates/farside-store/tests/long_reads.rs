//! A read that takes long: of a medium that hangs, or of a walk over thousands of nodes. Hosts go on, the next consistency point
//! too, and nothing that the reader looks at is used again before it has gone (invariant S3).

mod sparse;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use farside_platform::{BlockDevice, DeviceError, SimulatedDisk};
use farside_store::Pool;
use sparse::{BLOCK, content, new_snapshot, options};

/// Longer than anything here takes that waits for nobody.
const PATIENCE: Duration = Duration::from_secs(20);
/// In it, what waits does not end.
const A_WHILE: Duration = Duration::from_millis(300);
const SLOW: &str = "slow";
/// One read of the pool: less than a MiB.
const BLOCKS: u64 = 200;

/// A device on which reads of one thread hang.
struct Hanging {
    disk: SimulatedDisk,
    hangs: Mutex<bool>,
    changed: Condvar,
    hung: std::sync::mpsc::Sender<()>,
}

impl Hanging {
    fn go_on(&self) {
        *self.hangs.lock().expect("held by nobody who failed") = false;
        self.changed.notify_all();
    }
}

impl BlockDevice for Hanging {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if thread::current().name() == Some(SLOW) {
            let hangs = self.hangs.lock().expect("held by nobody who failed");
            let _ = self.hung.send(());
            drop(self.changed.wait_while(hangs, |hangs| *hangs).expect("held by nobody who failed"));
        }
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

fn write_all(pool: &Arc<Pool>, stamp: u64) {
    let volume = pool.open_volume("v").expect("it opens");
    for block in 0..BLOCKS {
        volume.write(block * BLOCK, &content(stamp + block)).expect("a write");
    }
    pool.flush().expect("a flush");
}

/// Does it on a thread of its own, which tells when it has ended.
fn apart(work: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (ended, has_ended) = channel();
    thread::spawn(move || {
        work();
        let _ = ended.send(());
    });
    has_ended
}

#[test]
fn a_read_that_hangs_holds_up_no_host_and_keeps_its_places() {
    let disk = SimulatedDisk::new("hanging", 48 << 20).without_history();
    let (hung, has_hung) = channel();
    let device = Hanging { disk: disk.clone(), hangs: Mutex::new(true), changed: Condvar::new(), hung };
    let device = Arc::new(device);
    let pool = Pool::create(device.clone() as Arc<dyn BlockDevice>, options(1)).expect("a pool");
    pool.create_volume("v", BLOCKS * BLOCK).expect("a volume");
    write_all(&pool, 1000);
    pool.consistency_point().expect("a point");

    let reader = pool.clone();
    let slow = thread::Builder::new().name(SLOW.into()).spawn(move || {
        let mut bytes = vec![0; (BLOCKS * BLOCK) as usize];
        reader.open_volume("v").expect("it opens").read(0, &mut bytes).expect("it reads");
        bytes
    });
    has_hung.recv_timeout(PATIENCE).expect("it reads from the device");

    // All that it looks at is replaced; hosts write, read and take snapshots, and the point that tells of it is made.
    let others = pool.clone();
    let done = apart(move || {
        write_all(&others, 2000);
        others.consistency_point().expect("a point");
        write_all(&others, 3000);
        others.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot");
    });
    done.recv_timeout(PATIENCE).expect("nobody waits for the reader");

    // The point after it would give the places out.
    let others = pool.clone();
    let point = apart(move || others.consistency_point().expect("a point"));
    assert!(point.recv_timeout(A_WHILE).is_err(), "what a reader looks at is free");
    let others = pool.clone();
    let done = apart(move || {
        write_all(&others, 4000);
        let mut bytes = vec![0; BLOCK as usize];
        others.open_volume("v").expect("it opens").read(7 * BLOCK, &mut bytes).expect("it reads");
        assert_eq!(bytes, content(4007));
    });
    done.recv_timeout(PATIENCE).expect("hosts do not wait for a point that waits");

    device.go_on();
    point.recv_timeout(PATIENCE).expect("the reader has gone");
    let bytes = slow.expect("a thread").join().expect("it read");
    for (block, found) in (0..).zip(bytes.chunks(BLOCK as usize)) {
        assert!(found == content(1000 + block), "block {block} is not what it was when the read began");
    }
    assert_eq!(pool.counters.corrupt_blocks.load(std::sync::atomic::Ordering::Relaxed), 0);
    for _ in 0..2 {
        write_all(&pool, 5000);
        pool.consistency_point().expect("a point");
    }
    drop(pool);
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}
