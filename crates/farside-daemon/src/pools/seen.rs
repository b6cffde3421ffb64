//! The volumes of a pool as mirrors look at them when it is opened, whatever engine it is of.

use farside_engine::{Engine, EngineError, ReplicaRecord};
use farside_store::Pool;
use uuid::Uuid;

/// A volume of a pool.
#[derive(Clone, Debug)]
pub(crate) struct VolumeSeen {
    /// Its name in the pool.
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    pub(crate) replica: Option<ReplicaRecord>,
}

/// Those of an embedded pool, which need not be served yet.
pub(crate) fn of_store(pool: &Pool) -> Vec<VolumeSeen> {
    let seen = |volume: farside_store::VolumeStatus| VolumeSeen {
        name: volume.name,
        uuid: volume.uuid,
        replica: volume.replica.map(|replica| ReplicaRecord {
            relationship: replica.relationship,
            peer: replica.peer,
            source: replica.source,
            broken_off: replica.broken_off,
        }),
    };
    pool.volumes().into_iter().map(seen).collect()
}

/// Those of any other pool. One that goes meanwhile is not among them.
///
/// # Errors
/// The pool cannot be reached, or what it says of a volume cannot be read.
pub(crate) fn of_engine(engine: &dyn Engine, pool: &str) -> Result<Vec<VolumeSeen>, EngineError> {
    let mut all = Vec::new();
    for name in engine.volumes_of(pool)? {
        let look = || Ok((engine.volume(&name)?, engine.replica_record(&name)?));
        match look() {
            Ok((info, replica)) => all.push(VolumeSeen { name: name.volume, uuid: info.uuid, replica }),
            Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
