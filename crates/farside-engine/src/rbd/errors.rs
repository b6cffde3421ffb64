//! What a call of Ceph that failed means to whoever runs farside: what happened, what is safe, what to do.

use super::ceph::Failed;
use super::pool::OpenPool;
use crate::EngineError;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ESHUTDOWN: i32 = 108;
const ETIMEDOUT: i32 = 110;
const EDQUOT: i32 = 122;

/// Whether a call failed because what it names is not there.
pub(super) fn is_absent(failed: Failed) -> bool {
    failed.errno == ENOENT
}

/// Whether a call failed because somebody has the thing in use.
pub(super) fn is_busy(failed: Failed) -> bool {
    failed.errno == EBUSY
}

/// For a call whose failure means that `what` could not be done in `pool`; `needed_bytes` is what it would have taken, if it wrote.
pub(super) fn explained(pool: &OpenPool, what: &str, failed: Failed, needed_bytes: u64) -> EngineError {
    let Failed { call, errno } = failed;
    let (name, rbd_pool, user) = (&pool.name, &pool.options.rbd_pool, &pool.options.user);
    let said = std::io::Error::from_raw_os_error(errno);
    match errno {
        ENOENT => EngineError::NotFound { what: what.to_string() },
        EEXIST => EngineError::Exists { what: what.to_string() },
        ENOSPC | EDQUOT => EngineError::NoSpace { pool: name.clone(), needed_bytes, available_bytes: 0 },
        EPERM | EACCES => EngineError::Io(format!(
            "{what}: the cluster does not let client.{user} do this ({call}: {said}). Nothing was changed. What farside needs: \
             ceph auth caps client.{user} mon 'profile rbd' osd 'profile rbd pool={rbd_pool}'"
        )),
        ESHUTDOWN => EngineError::Io(format!(
            "{what}: this daemon's client was put on the cluster's blocklist ({call}): somebody took its volumes over. It changes \
             nothing any more, and what is published is safe. If that was a mistake: farside restarted has a new client"
        )),
        EROFS | EBUSY => EngineError::Refused(format!(
            "{what}: another client has the image for itself ({call}: {said}). Nothing was changed. Who it is: rbd lock ls, rbd status"
        )),
        ETIMEDOUT => EngineError::Io(format!(
            "{what}: the cluster did not answer within {} s ({call}): it is away, or full. What is published is safe; mirrors go on when it \
             answers. How it is: ceph -s",
            pool.options.timeout_seconds
        )),
        _ => EngineError::Io(format!(
            "{what}: {call} failed: {said}. What is published is safe. How the cluster is: ceph -s"
        )),
    }
}
