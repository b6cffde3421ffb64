//! Where a pool is: an absolute path of a file or device, or a pool of Ceph, written as `qemu-img` and its kin do:
//! `rbd:POOL[/NAMESPACE]:id=USER:conf=FILE`. Pure.

use farside_api::{ErrorBody, ErrorCode, PoolEngine};
use farside_engine::rbd::RbdPool;

/// What a pool of Ceph begins with.
const RBD: &str = "rbd:";

/// Whether this is said of a pool of Ceph, well or not.
pub(crate) fn is_rbd(path: &str) -> bool {
    path.starts_with(RBD)
}

/// The pool of Ceph that this says; an error says what is wrong with it.
pub(crate) fn parse_rbd(path: &str) -> Result<RbdPool, String> {
    let wrong = |what: &str| {
        format!(
            "{path} names no pool of Ceph: {what}. Write rbd:POOL[/NAMESPACE]:id=USER:conf=/ABSOLUTE/FILE"
        )
    };
    let mut parts = path.strip_prefix(RBD).ok_or_else(|| wrong("it does not begin with rbd:"))?.split(':');
    let named = parts.next().unwrap_or_default();
    let (pool, namespace) = named.split_once('/').unwrap_or((named, ""));
    if named.ends_with('/') {
        return Err(wrong("its namespace is empty"));
    }
    let is_plain = |name: &str| {
        !name.is_empty() && !name.contains(['/', '@', ':', '=']) && !name.chars().any(char::is_control)
    };
    if !is_plain(pool) || !(namespace.is_empty() || is_plain(namespace)) {
        return Err(wrong("a pool or namespace has no / @ : = in its name, and is not empty"));
    }
    let mut place = RbdPool { namespace: namespace.to_owned(), ..RbdPool::new(pool) };
    for part in parts {
        match part.split_once('=') {
            Some(("id", user)) if is_plain(user) => place.user = user.to_owned(),
            Some(("conf", conf)) if conf.starts_with('/') => place.conf = conf.to_owned(),
            _ => return Err(wrong(&format!("{part:?} is not understood"))),
        }
    }
    Ok(place)
}

/// As it is written in full: what [`parse_rbd`] reads.
pub(crate) fn of_rbd(place: &RbdPool) -> String {
    let within = if place.namespace.is_empty() { String::new() } else { format!("/{}", place.namespace) };
    format!("{RBD}{}{within}:id={}:conf={}", place.rbd_pool, place.user, place.conf)
}

/// Which engine a path is of.
pub(super) fn engine_of(path: &str) -> PoolEngine {
    if is_rbd(path) { PoolEngine::Rbd } else { PoolEngine::Embedded }
}

/// Why what works with an embedded pool does not work with this.
pub(super) fn not_embedded(name: &str) -> ErrorBody {
    ErrorBody::new(
        ErrorCode::Refused,
        format!("pool {name} is of Ceph RBD, and this is there for embedded pools only. Nothing was done"),
    )
    .hint(
        "volumes are made, listed and mirrored as in any pool; hosts open their images in the cluster (rbd map, librbd). What works with \
         which engine: the manual, \"Volumes on Ceph RBD\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_full_is_read_again() {
        for place in [
            RbdPool::new("rbd"),
            RbdPool {
                namespace: "far".into(),
                user: "mirror".into(),
                conf: "/srv/ceph.conf".into(),
                ..RbdPool::new("p q")
            },
        ] {
            assert_eq!(parse_rbd(&of_rbd(&place)), Ok(place));
        }
        assert_eq!(parse_rbd("rbd:rbd"), Ok(RbdPool::new("rbd")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (path, what) in [
            ("rbd:", "is not empty"),
            ("rbd:p/", "namespace is empty"),
            ("rbd:p/n/image", "has no /"),
            ("rbd:p@snap", "has no /"),
            ("rbd:p:key=secret", "not understood"),
            ("rbd:p:conf=ceph.conf", "not understood"),
            ("rbd:p:id=", "not understood"),
            ("/dev/vdb", "does not begin"),
        ] {
            let error = parse_rbd(path).unwrap_err();
            assert!(error.contains(what), "{path}: {error}");
        }
    }
}
