//! The place of a pool is that pool's, also while its file is away.

use std::path::Path;

use farside_api::{ErrorBody, ErrorCode};

use super::{Pools, place};

impl Pools {
    /// Refuses a place that is another pool's, be its file there or not: that one is opened there again, at the next start at the
    /// latest, and would be taken for the new one, or the new one for it.
    pub(crate) fn refuse_anothers_place(&self, name: &str, path: &str) -> Result<(), ErrorBody> {
        let known: Vec<_> =
            self.slots.read().iter().map(|(of, slot)| (of.clone(), slot.path.clone())).collect();
        let Some((other, _)) = known.iter().find(|(of, at)| of != name && is_same_place(at, path)) else {
            return Ok(());
        };
        Err(ErrorBody::new(
            ErrorCode::Exists,
            format!(
                "{path} is the place of pool {other}, which this site knows, whether or not its file is there now. Nothing was made or \
                 opened"
            ),
        )
        .hint(format!(
            "choose another path. farside pool status {other} says what is wrong with {other}, if anything, and how to get it back; only \
             if nobody needs what is in it any more: farside pool delete {other}, then this again"
        )))
    }
}

/// Whether two paths are those of one file or device, be it there or not. Pools of Ceph are told apart elsewhere.
fn is_same_place(a: &str, b: &str) -> bool {
    if place::is_rbd(a) || place::is_rbd(b) {
        return false;
    }
    let (a, b) = (Path::new(a), Path::new(b));
    // Only of those that may be one the file system is asked: it may not answer.
    let directory = |path: &Path| path.parent().and_then(|at| at.canonicalize().ok());
    a == b || (a.file_name() == b.file_name() && directory(a).is_some_and(|at| Some(at) == directory(b)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farside_platform::{OsRandomness, SystemClock};

    use super::*;
    use crate::pools::Manner;

    #[test]
    fn no_pool_is_made_or_opened_at_the_place_of_another_whose_file_is_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tank.pool");
        let at = path.to_str().unwrap();
        let pools = Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness), "test");
        pools.create("tank", at, Some(64 << 20), false).unwrap();
        let aside = directory.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        let refused = pools.create("fresh", at, Some(64 << 20), false).err().unwrap();
        assert!(refused.message.contains("place of pool tank"), "{refused:?}");
        assert!(
            pools.would_not_make("fresh", at, Some(64 << 20)).is_some_and(|why| why.contains("pool tank"))
        );
        assert!(!path.exists());
        // Nor by another way to it, nor opened there.
        let way = directory.path().join("way");
        std::os::unix::fs::symlink(directory.path(), &way).unwrap();
        let other = way.join("tank.pool");
        let refused = pools.create("fresh", other.to_str().unwrap(), Some(64 << 20), false).err().unwrap();
        assert!(refused.message.contains("place of pool tank"), "{refused:?}");
        std::fs::write(&path, "something else").unwrap();
        let refused = pools.open("fresh", at, Manner::default(), |_| {}).err().unwrap();
        assert!(refused.message.contains("place of pool tank"), "{refused:?}");
        assert!(pools.status("fresh").is_err());
        // One that is forgotten has no place any more.
        pools.remove("tank").unwrap();
        std::fs::rename(&aside, &path).unwrap();
        pools.open("fresh", at, Manner::default(), |_| {}).unwrap();
        assert!(!is_same_place("/a/x", "/b/x") && is_same_place("/a/x", "/a/x"));
        pools.close_all();
    }
}
