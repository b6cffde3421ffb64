//! What shows only where the two directions of a mirror, and all mirrors of a site, are seen together. Pure.

use std::collections::HashSet;

use farside_api::{self as api, MirrorState, Role};
use uuid::Uuid;

/// What shows only where all mirrors of a site are seen together.
pub(super) fn note_sleepers_and_splits(all: &mut [api::Mirror]) {
    let awake: HashSet<Uuid> = api::awake(all).into_iter().map(|mirror| mirror.id).collect();
    let splits = api::splits(all);
    for mirror in all {
        mirror.sleeping = mirror.role == Role::Destination && !awake.contains(&mirror.id);
        let of_split = splits.iter().find(|split| split.has(&mirror.name));
        mirror.group_split = of_split.map(api::Split::said);
    }
}

/// Why a direction sleeps, of which `back` is the other one.
pub(super) fn why_asleep(mirror: &api::Mirror, back: &api::Mirror) -> String {
    let api::Mirror { name, source, .. } = mirror;
    match back.overtaken {
        None => format!("sleeps: {name} is the original of {source} now, and the way back is kept here"),
        Some(_) => format!(
            "sleeps: {name} became the original of {source}, and was overtaken since; the other direction says what can be done"
        ),
    }
}

/// Whether `source` is what is left of the other direction of `mirror`: no base, and nothing that anybody must decide.
pub(super) fn is_left_over(source: &api::Mirror, mirror: &api::Mirror) -> bool {
    let is_reversed = mirror.name == source.name
        && mirror.source == source.destination
        && mirror.state != MirrorState::BrokenOff;
    is_reversed && source.state == MirrorState::Uninitialized && source.overtaken.is_none()
}
