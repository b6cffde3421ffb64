//! Where a pool is, and one that is open.

use std::sync::Arc;

use super::ceph::{Connection, Failed, Pool};
use super::room::Told;
use crate::EngineError;

/// Where a pool's images are, and as whom they are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RbdPool {
    /// The pool of Ceph.
    pub rbd_pool: String,
    /// A namespace in it; empty for none.
    pub namespace: String,
    /// The cluster's configuration file, which says where the keyring is.
    pub conf: String,
    /// The user, without `client.`.
    pub user: String,
    /// Seconds that the cluster has to answer a single request. Less than a failed OSD takes to be noticed (20 s) has mirrors fail
    /// where they could wait.
    pub timeout_seconds: u32,
}

impl RbdPool {
    /// A pool of the cluster that this machine is set up for, as `client.farside`.
    pub fn new(rbd_pool: &str) -> RbdPool {
        RbdPool {
            rbd_pool: rbd_pool.into(),
            namespace: String::new(),
            conf: "/etc/ceph/ceph.conf".into(),
            user: "farside".into(),
            timeout_seconds: 30,
        }
    }
}

/// A pool that was added.
pub(super) struct OpenPool {
    pub(super) name: String,
    pub(super) options: RbdPool,
    pub(super) fsid: String,
    pub(super) ceph: Arc<Pool>,
    pub(super) room: Told,
}

/// Connects to the cluster of a pool, and opens it.
pub(super) fn open(name: &str, options: RbdPool) -> Result<OpenPool, EngineError> {
    let RbdPool { rbd_pool, namespace, conf, user, timeout_seconds } = &options;
    let connected = Connection::open(conf, user, *timeout_seconds).map_err(EngineError::Io)?;
    let cannot = |what: &str, failed: Failed| {
        EngineError::Io(format!(
            "pool {name}: {what} ({}: {}). Nothing was changed. What is there: ceph --conf {conf} --id {user} -s, rbd ls {rbd_pool}",
            failed.call,
            std::io::Error::from_raw_os_error(failed.errno)
        ))
    };
    let connection = connected.map_err(|failed| {
        cannot(&format!("the cluster of {conf} cannot be reached as client.{user}"), failed)
    })?;
    let connection = Arc::new(connection);
    let fsid = connection.fsid().map_err(|failed| cannot("the cluster does not say which it is", failed))?;
    let opened = Pool::open(Arc::clone(&connection), rbd_pool, namespace);
    let within =
        if namespace.is_empty() { String::new() } else { format!(", or its namespace {namespace},") };
    let ceph = opened
        .map_err(|failed| cannot(&format!("Ceph's pool {rbd_pool}{within} cannot be opened"), failed))?;
    Ok(OpenPool { name: name.into(), options, fsid, ceph: Arc::new(ceph), room: Told::default() })
}
