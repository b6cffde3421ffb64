//! Pools that were set back behind the state database: their volumes are fenced before they are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_api::ErrorBody;
use farside_engine::VolumeName;
use farside_mirror::Relationship;
use farside_mirror::set_back::{self, PoolShows};
use farside_store::Pool;

use super::Mirrors;
use crate::failure::Failure;
use crate::peers;
use crate::plans::FenceAfter;
use crate::pools::seen::{self, VolumeSeen};

impl Mirrors {
    /// The mirrors whose replicas are in this pool, as the state database knows them.
    pub(crate) async fn rows_of(&self, pool: &str) -> Result<Vec<Relationship>, ErrorBody> {
        self.parts.state.relationships(Some(pool)).await.map_err(Failure::into_error_body)
    }

    /// What is to be seen of a pool before it is served: whether hosts must not write to one of its volumes.
    pub(crate) async fn look_before(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<impl FnOnce(&Pool) + Send + 'static, ErrorBody> {
        let rows = self.rows_of(name).await?;
        let (mirrors, name) = (Arc::clone(self), name.to_owned());
        Ok(move |pool: &Pool| mirrors.fence_what_was_set_back(&name, &seen::of_store(pool), &rows))
    }

    /// Notes which volumes of a pool that is being opened hosts must not write to, since the database knows more of them than the
    /// pool: until their mirrors start, this is all that is known of them. What was noted of a pool of that name before is over.
    pub(crate) fn fence_what_was_set_back(&self, name: &str, volumes: &[VolumeSeen], rows: &[Relationship]) {
        let source = &self.parts.source;
        let volumes: BTreeMap<String, Option<bool>> =
            volumes.iter().map(|v| (v.name.clone(), v.replica.as_ref().map(|r| r.broken_off))).collect();
        let shown = |volume: &VolumeName| match volumes.get(&volume.volume) {
            Some(broken_off) => PoolShows::volume(*broken_off),
            None => PoolShows::Nothing,
        };
        let is_behind = |row: &&Relationship| set_back::is_set_back(row, shown(&row.destination));
        let behind: BTreeMap<&VolumeName, &Relationship> =
            rows.iter().filter(is_behind).map(|row| (&row.destination, row)).collect();
        let before = source.set_back().into_keys().filter(|volume| volume.pool == name);
        for volume in before.filter(|volume| !behind.contains_key(volume)) {
            source.note_set_back(&volume, None);
        }
        for (volume, row) in behind {
            let from = format!("{}:{}", peers::name_of(&self.parts.node, row.peer), row.source);
            source.note_set_back(volume, Some(set_back::why(volume, &from)));
        }
        self.refresh_fences();
    }

    /// That a volume's pool was set back to before it followed, and what can be done.
    pub(crate) fn set_back_why(&self, volume: &VolumeName) -> Option<String> {
        self.parts.source.set_back().remove(volume)
    }

    /// What becomes of a volume's fence when its mirror is broken off or deleted.
    pub(crate) fn fence_after(&self, volume: &VolumeName) -> FenceAfter {
        let is_overtaken = self.parts.source.fenced().contains(volume);
        match self.parts.exports.fenced(volume) {
            None => FenceAfter::None,
            Some(_) if !is_overtaken => FenceAfter::Lifted,
            Some(why) => FenceAfter::Stays(why),
        }
    }
}
