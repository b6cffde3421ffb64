//! Open pools whose path leads elsewhere by now: their file was removed, moved or replaced under the daemon. What is open stays what it
//! is and hosts notice nothing, so somebody must say it: the next start finds nothing there, and a file without a name is gone with
//! whoever had it open last.

use std::sync::atomic::{AtomicBool, Ordering};

use farside_api::PoolFileSystem;
use farside_platform::{AtPath, FileDevice};
use farside_store::LacksRoomBelow;
use parking_lot::Mutex;

/// What is wrong with a pool's path, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Away {
    pub(super) error: String,
    pub(super) advice: String,
}

/// What was seen last.
#[derive(Default)]
pub(super) struct Watch {
    seen: Mutex<Option<Away>>,
    below: Mutex<Option<PoolFileSystem>>,
    lacks: Mutex<Option<LacksRoomBelow>>,
    is_looking: AtomicBool,
}

impl Watch {
    pub(super) fn seen(&self) -> Option<Away> {
        self.seen.lock().clone()
    }

    /// The file system below, if it has less left than the pool may take.
    pub(super) fn below(&self) -> Option<PoolFileSystem> {
        *self.below.lock()
    }

    pub(super) fn note_below(&self, now: Option<PoolFileSystem>) {
        *self.below.lock() = now;
    }

    /// What the pool lacks there to go on, if it does.
    pub(super) fn lacks(&self) -> Option<LacksRoomBelow> {
        *self.lacks.lock()
    }

    pub(super) fn note_lacks(&self, now: Option<LacksRoomBelow>) {
        *self.lacks.lock() = now;
    }

    /// Whether nobody is looking; who begins ends it.
    pub(super) fn begin(&self) -> bool {
        !self.is_looking.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end(&self) {
        self.is_looking.store(false, Ordering::Release);
    }

    /// Notes what is so by now, and writes it to the log when it is something else than before.
    pub(super) fn note(&self, pool: &str, path: &str, now: Option<Away>) {
        let mut seen = self.seen.lock();
        if *seen == now {
            return;
        }
        match &now {
            Some(Away { error, advice }) => tracing::error!(pool, path, "{error}. What to do: {advice}"),
            None => tracing::warn!(pool, path, "the pool's path leads to it again"),
        }
        *seen = now;
    }
}

/// What is wrong, in words; none if the path leads to the pool.
pub(super) fn away(path: &str, device: &FileDevice, at_path: &AtPath) -> Option<Away> {
    let what = if device.is_block_device() { "device" } else { "file" };
    let is_replaced = |replaced| if replaced { ", and something else has its name" } else { "" };
    let first =
        |replaced| if replaced { format!("move away what is at {path} now; then ") } else { String::new() };
    Some(match at_path {
        AtPath::Same => return None,
        AtPath::Removed { replaced } => Away {
            error: format!(
                "the pool's file {path} was removed under the running daemon{}. Hosts read and write on, in a file without a name: \
                 when farsided ends it is gone, with all that is in it",
                is_replaced(*replaced)
            ),
            advice: format!(
                "do not stop farsided yet. As root, in a shell that you keep open: exec 9<{open} (as long as that shell lives, the \
                 file does). There: stop farsided (systemctl stop farsided); {first}cp -p --sparse=always /proc/self/fd/9 \
                 {path}; farside pool check {path}; start farsided. The copy needs as much room as the pool uses. Hosts and mirrors go \
                 on until you stop it",
                open = device.path_of_what_is_open().display(),
                first = first(*replaced),
            ),
        },
        AtPath::Moved { to: Some(now), replaced } => Away {
            error: format!(
                "the pool's path {path} does not lead to it any more: it lies in {now} by now{}. Hosts read and write on, but the \
                 next start will not find it",
                is_replaced(*replaced),
                now = now.display(),
            ),
            advice: format!(
                "let {path} lead to it again before farsided ends: {first}mv {now} {path} (or a symbolic link). Hosts may write \
                 meanwhile",
                first = first(*replaced),
                now = now.display(),
            ),
        },
        AtPath::Moved { to: None, replaced } => Away {
            error: format!(
                "the pool's path {path} does not lead to its {what} any more{}. Hosts read and write on, but the next start will not \
                 find it",
                is_replaced(*replaced)
            ),
            advice: format!(
                "let {path} lead to it again before farsided ends. Where it is the kernel does not tell: under another name (a hard \
                 link), or below a file system that was mounted over its directory"
            ),
        },
    })
}

/// Whether a path leads to something else than the pool that was opened there.
pub(super) fn leads_elsewhere(path: &str, device: &FileDevice) -> Option<String> {
    match device.at_path() {
        Ok(AtPath::Same | AtPath::Removed { replaced: false }) => None,
        Ok(AtPath::Removed { replaced: true }) => Some(format!(
            "{path} is not the pool that was opened there: that file was removed, and something else has its name"
        )),
        Ok(AtPath::Moved { to: Some(now), .. }) => Some(format!(
            "{path} is not the pool that was opened there: that lies in {} by now. Move it back, or delete it there by hand",
            now.display()
        )),
        Ok(AtPath::Moved { to: None, .. }) => {
            Some(format!("{path} is not the pool that was opened there: that has another name by now"))
        }
        Err(error) => Some(error.to_string()),
    }
}
