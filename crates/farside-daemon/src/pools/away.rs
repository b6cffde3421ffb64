//! Open pools whose path leads elsewhere by now: their file was removed, moved or replaced under the daemon. What is open stays what it
//! is and hosts notice nothing, so somebody must say it: the next start finds nothing there, and a file without a name is gone with
//! whoever had it open last.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode};
use farside_platform::{AtPath, FileDevice, Found};
use parking_lot::Mutex;

use super::{Content, Opened, Pools, Slot};

/// How often it is looked where the paths of pools lead.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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
    is_looking: AtomicBool,
}

impl Watch {
    pub(super) fn seen(&self) -> Option<Away> {
        self.seen.lock().clone()
    }

    /// Notes what is so by now, and writes it to the log when it is something else than before.
    fn note(&self, pool: &str, path: &str, now: Option<Away>) {
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

impl Pools {
    /// Looks where the paths of open pools lead, for as long as the site lives.
    pub(crate) async fn keep_looking_at_paths(self: Arc<Self>) {
        loop {
            self.look_at_paths();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Has each be looked at by a thread of its own: one whose file system does not answer holds up no other, nor the stop.
    fn look_at_paths(&self) {
        for (name, path, Opened { device, watch, .. }) in self.all_opened() {
            if watch.is_looking.swap(true, Ordering::AcqRel) {
                continue;
            }
            let of_thread = Arc::clone(&watch);
            // Who waits for a file system must not keep a pool's device open that is closed meanwhile.
            let device = Arc::downgrade(&device);
            let look = move || {
                let found = Found::at(Path::new(&path));
                if let Some(device) = device.upgrade() {
                    match found.and_then(|found| device.compared_with(&found)) {
                        Ok(at_path) => of_thread.note(&name, &path, away(&path, &device, &at_path)),
                        // Nobody knows then.
                        Err(error) => {
                            tracing::debug!(pool = name, "cannot look where its path leads: {error}")
                        }
                    }
                }
                of_thread.is_looking.store(false, Ordering::Release);
            };
            if std::thread::Builder::new().name("pool-path".to_owned()).spawn(look).is_err() {
                watch.is_looking.store(false, Ordering::Release);
            }
        }
    }

    /// Refuses to close a pool that could not be opened again, since its path does not lead to it.
    pub(crate) fn refuse_if_away(&self, name: &str) -> Result<(), ErrorBody> {
        let slots = self.slots.read();
        let Some(Slot { path, content: Content::Open(opened) }) = slots.get(name) else { return Ok(()) };
        let (path, device) = (path.clone(), Arc::clone(&opened.device));
        drop(slots);
        match device.at_path().ok().and_then(|at_path| away(&path, &device, &at_path)) {
            None => Ok(()),
            Some(Away { error, advice }) => Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("pool {name} is not opened again, because it would not be found: {error}"),
            )
            .hint(advice)),
        }
    }

    fn all_opened(&self) -> Vec<(String, String, Opened)> {
        let slots = self.slots.read();
        let open = slots.iter().filter_map(|(name, slot)| match &slot.content {
            Content::Open(opened) => Some((name.clone(), slot.path.clone(), opened.clone())),
            Content::Opening { .. } | Content::Failed(_) => None,
        });
        open.collect()
    }
}

/// What is wrong, in words; none if the path leads to the pool.
fn away(path: &str, device: &FileDevice, at_path: &AtPath) -> Option<Away> {
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

#[cfg(test)]
mod tests {
    use farside_platform::{OsRandomness, SystemClock};

    use super::*;

    #[test]
    fn a_pool_that_would_not_be_found_again_is_not_closed_to_be_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("p.pool"), directory.path().join("moved"));
        let pools = Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness));
        pools.create("p", path.to_str().unwrap(), Some(64 << 20), false).unwrap();
        assert!(pools.refuse_if_away("p").is_ok() && pools.refuse_if_away("q").is_ok());
        std::fs::rename(&path, &moved).unwrap();
        let refused = pools.refuse_if_away("p").err().unwrap();
        assert!(refused.message.contains("lies in"), "{refused:?}");
        std::fs::remove_file(&moved).unwrap();
        let refused = pools.refuse_if_away("p").err().unwrap();
        assert!(refused.message.contains("without a name"), "{refused:?}");
        assert!(refused.hint.unwrap().contains("do not stop farsided"));
    }
}
