//! Which volume has a name now.

use farside_engine::VolumeName;
use uuid::Uuid;

use crate::pools::Pools;

/// What has a name now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Called {
    /// Nobody knows: the pool is not open.
    Unknown,
    /// No volume.
    Nothing,
    /// This one.
    Volume(Uuid),
}

/// Looks up which volume has a name.
pub(crate) trait VolumeIds: Send + Sync + std::fmt::Debug {
    /// What is called so now.
    fn called(&self, name: &VolumeName) -> Called;
}

impl VolumeIds for Pools {
    fn called(&self, name: &VolumeName) -> Called {
        if self.is_clustered(&name.pool) {
            return match self.volume_id_there(name) {
                None => Called::Unknown,
                Some(id) => id.map_or(Called::Nothing, Called::Volume),
            };
        }
        match self.get(&name.pool) {
            Ok(pool) => pool.volume_id(&name.volume).map_or(Called::Nothing, Called::Volume),
            Err(_) => Called::Unknown,
        }
    }
}
