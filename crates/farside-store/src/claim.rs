//! A pool is open in one place only. The kernel's locks and its exclusive open see to that where they can; they know nothing of
//! another host on the same LUN or network file system, nor of another path to it: a block device that was made of the pool's
//! file. So a *claim* lies beside the superblocks: whoever has the pool open writes it anew at intervals, and reads it
//! before it does. Who opens the pool watches a claim that looks alive, and takes one that does not. A holder whose claim
//! was taken latches its pool before it writes anything more.
//!
//! Most claims need no watching: the holder has closed the pool, or was a process of this kernel that has ended, or had the
//! lock of a file that the opener has by now. So an opening after a crash of the machine waits for nothing where a pool lies
//! in a file of a local file system.
//!
//! Whatever claims say, each consistency point looks at both superblocks before it writes one (`alone.rs`): that holds
//! against whoever knows no claims.

use std::sync::Arc;
use std::time::Duration;

use farside_format::claim::{CLAIM_PLACE, Claim as Note};
use farside_platform::{BLOCK_BYTES, BlockBuffer, BlockDevice, ProcessIdentity, Randomness};
use parking_lot::{Condvar, Mutex};
use uuid::Uuid;

use crate::error::{Result, StoreError};

const AT: u64 = CLAIM_PLACE * BLOCK_BYTES as u64;
/// Intervals for which a claim is watched: its holder may be slow.
const WATCHED_FOR: u32 = 5;
/// Intervals that a holder has to see that its claim was taken, before the pool is touched.
const HEARD_WITHIN: u32 = 2;

/// How a pool is claimed.
#[derive(Clone, Debug)]
pub struct ClaimOptions {
    /// This process.
    pub process: ProcessIdentity,
    /// This machine's name, for whoever meets the claim.
    pub host: String,
    /// Time from one writing to the next.
    pub interval: Duration,
    /// Takes the pool even from a holder that lives.
    pub force: bool,
    /// This process has the pool's file locked, on a file system that no other machine has.
    pub has_lock: bool,
}

impl ClaimOptions {
    /// Those of this process: a writing each second.
    pub fn of_this_process(force: bool, has_lock: bool) -> ClaimOptions {
        ClaimOptions {
            process: ProcessIdentity::this(),
            host: farside_platform::host_name(),
            interval: Duration::from_secs(1),
            force,
            has_lock,
        }
    }
}

/// A claim that was taken. Given back when it is dropped: the opening failed.
pub(crate) struct Claim {
    pub(crate) note: Note,
    pub(crate) interval: Duration,
    pub(crate) doubted: Option<Note>,
    device: Arc<dyn BlockDevice>,
    pub(crate) is_kept: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = give_back(&*self.device, &mut self.note);
        }
    }
}

impl Claim {
    /// Takes the pool's claim, once nobody else who lives has it. Waits up to seven intervals where that is not known at once:
    /// the last holder did not close the pool, was no process of this kernel that has ended, and had no lock that is had here
    /// now.
    ///
    /// None where that cannot be written and the lock of the pool's file does for it: a file system that is full leaves the pool
    /// readable.
    pub(crate) fn take(
        device: &Arc<dyn BlockDevice>,
        pool: Uuid,
        options: ClaimOptions,
        randomness: &dyn Randomness,
    ) -> Result<Option<Claim>> {
        let has_lock = options.has_lock;
        match Self::take_or_fail(device, pool, options, randomness) {
            Err(StoreError::Device(error)) if has_lock => {
                tracing::warn!(
                    device = device.name(),
                    "the pool is opened without a claim, its file's lock alone keeps others out: {error}"
                );
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    fn take_or_fail(
        device: &Arc<dyn BlockDevice>,
        pool: Uuid,
        options: ClaimOptions,
        randomness: &dyn Randomness,
    ) -> Result<Claim> {
        let ClaimOptions { process, host, interval, force, has_lock } = options;
        let has_ended = |found: &Note| holder_of(found).has_ended() || (has_lock && found.has_lock);
        let found = read(&**device)?.filter(|found| found.is_open && !has_ended(found));
        if let Some(found) = &found
            && !force
        {
            tracing::warn!(
                device = device.name(),
                "{} had this pool open and did not close it; it is watched for {:?}",
                who(found),
                interval * WATCHED_FOR
            );
            for _ in 0..2 * WATCHED_FOR {
                std::thread::sleep(interval / 2);
                if let Some(now) = read(&**device)?.filter(|now| now != found && now.is_open) {
                    return Err(StoreError::OpenElsewhere { device: device.name(), by: who(&now) });
                }
            }
        }
        let note = Note {
            is_open: true,
            has_lock,
            pool,
            holder: Uuid::from_bytes(randomness.uuid_bytes()),
            beat: 0,
            boot: process.boot,
            pid_namespace: process.pid_namespace,
            pid: process.pid,
            began: process.began,
            host,
        };
        let mut claim = Claim { note, interval, doubted: None, device: Arc::clone(device), is_kept: false };
        write(&**device, &claim.note)?;
        device.sync()?;
        if let Some(found) = found {
            std::thread::sleep(interval * HEARD_WITHIN);
            if let Some(now) = read(&**device)?.filter(|now| *now != claim.note) {
                claim.is_kept = true;
                return Err(StoreError::OpenElsewhere { device: device.name(), by: who(&now) });
            }
            tracing::warn!(device = device.name(), "the pool was taken over from {}", who(&found));
        }
        Ok(claim)
    }

    /// Writes it anew. Refused if somebody has taken it meanwhile.
    pub(crate) fn renew(&mut self) -> Result<()> {
        match beat(&*self.device, &mut self.note, &mut self.doubted) {
            Ok(None) => return Ok(()),
            Err(StoreError::Device(_)) if self.note.has_lock => return Ok(()),
            Err(error) => return Err(error),
            Ok(Some(_)) => {}
        }
        // It is another's: nothing is given back.
        self.is_kept = true;
        let by = read(&*self.device)?.map_or_else(String::new, |found| who(&found));
        Err(StoreError::OpenElsewhere { device: self.device.name(), by })
    }
}

/// A claim that is written anew until it is given back.
pub(crate) struct Claimed {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
}

/// What a claim and the thread that renews it have in common.
pub(crate) struct Shared {
    pub(crate) note: Mutex<Kept>,
    pub(crate) ended: Condvar,
}

/// A claim that is kept.
pub(crate) struct Kept {
    pub(crate) note: Note,
    /// A writing that failed, and may have reached the device all the same.
    pub(crate) doubted: Option<Note>,
    pub(crate) is_ended: bool,
    /// Somebody else has it; it is not given back then.
    pub(crate) is_lost: bool,
}

impl Claimed {
    /// Says that the pool is closed.
    pub(crate) fn give_back(mut self) {
        self.end();
        let mut kept = self.shared.note.lock();
        if !kept.is_lost
            && let Err(error) = give_back(&*self.device, &mut kept.note)
        {
            tracing::warn!(
                device = self.device.name(),
                "the pool's claim was not given back, so the next opening watches it for a while: {error}"
            );
        }
    }

    fn end(&mut self) {
        self.shared.note.lock().is_ended = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says that the pool is closed, unless somebody else has it.
fn give_back(device: &dyn BlockDevice, note: &mut Note) -> Result<()> {
    if read(device)?.is_some_and(|found| found.holder != note.holder) {
        return Ok(());
    }
    note.is_open = false;
    note.beat += 1;
    write(device, note)?;
    Ok(device.sync()?)
}

/// One writing; what somebody else has written, if that is there.
pub(crate) fn beat(
    device: &dyn BlockDevice,
    note: &mut Note,
    doubted: &mut Option<Note>,
) -> Result<Option<String>> {
    match read(device)? {
        Some(found) if found != *note && Some(&found) != doubted.as_ref() => {
            Ok(Some(format!("{} has claimed the pool", who(&found))))
        }
        // A claim that is damaged, or gone, is nobody's.
        _ => {
            let next = Note { beat: note.beat + 1, ..note.clone() };
            *doubted = Some(next.clone());
            write(device, &next)?;
            (*note, *doubted) = (next, None);
            Ok(None)
        }
    }
}

fn read(device: &dyn BlockDevice) -> Result<Option<Note>> {
    let mut block = BlockBuffer::zeroed(1);
    device.read_at(AT, &mut block)?;
    Ok(Note::decode(&block).ok())
}

fn write(device: &dyn BlockDevice, note: &Note) -> Result<()> {
    Ok(device.write_at(AT, &BlockBuffer::copy_of(&*note.encode()))?)
}

fn holder_of(note: &Note) -> ProcessIdentity {
    ProcessIdentity { boot: note.boot, pid_namespace: note.pid_namespace, pid: note.pid, began: note.began }
}

fn who(note: &Note) -> String {
    let host = if note.host.is_empty() { "a machine without a name" } else { &note.host };
    format!("process {} of {host}", note.pid)
}
