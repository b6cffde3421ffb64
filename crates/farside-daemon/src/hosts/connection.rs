//! What one connection of a host may open: a right is asked at each opening, and what is open ends with it.

use std::sync::Arc;

use farside_engine::VolumeName;
use farside_nbd::{Export, ExportDescription, ExportListing, ExportSource, NbdError};
use uuid::Uuid;

use super::book::Hosts;
use crate::exports::{Access, OpenExport, split, unknown};
use crate::metrics;
use crate::volume_ids::{Called, VolumeIds};

/// A connection of a host, from TLS to its end.
pub(super) struct HostConnection {
    pub(super) hosts: Arc<Hosts>,
    pub(super) host: i64,
    pub(super) number: u64,
}

impl Drop for HostConnection {
    fn drop(&mut self) {
        self.hosts.left(self.number);
    }
}

impl HostConnection {
    /// Opens what the host has a right to. What it has none to answers like what is not there.
    fn open_allowed(&self, name: &str, client: &str) -> Result<(OpenExport, Uuid, bool), NbdError> {
        let (volume, _) = split(name)?;
        let exports = &self.hosts.exports;
        let right = match exports.pools().called(&volume) {
            Called::Volume(id) => self.hosts.right(self.host, id).map(|read_only| (id, read_only)),
            Called::Nothing | Called::Unknown => None,
        };
        let Some((id, read_only)) = right else {
            metrics::host_refused("no-right");
            return Err(unknown(name));
        };
        let access = if read_only { Access::Reads } else { Access::Writes };
        let export = exports.open_export(name, access, client)?;
        // The name may have gone to another volume meanwhile.
        if export.volume_id() != Some(id) {
            return Err(unknown(name));
        }
        Ok((export, id, read_only))
    }
}

impl ExportSource for HostConnection {
    fn list(&self) -> Vec<ExportListing> {
        self.hosts.exports.listed(|_: &VolumeName, id| self.hosts.right(self.host, id).is_some())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, NbdError> {
        self.open_for(name, "")
    }

    fn open_for(&self, name: &str, client: &str) -> Result<Arc<dyn Export>, NbdError> {
        let (export, id, read_only) = self.open_allowed(name, client)?;
        if !self.hosts.note_open(self.host, self.number, name, id, read_only) {
            return Err(unknown(name));
        }
        Ok(Arc::new(export))
    }

    fn contexts(&self, name: &str, queries: &[String], set: bool) -> Result<Vec<String>, NbdError> {
        self.open_allowed(name, "")?;
        self.hosts.exports.contexts_of(name, queries, set)
    }

    fn describe(&self, name: &str) -> Result<ExportDescription, NbdError> {
        Ok(self.open_allowed(name, "")?.0.description())
    }
}
