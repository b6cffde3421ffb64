//! What the pins of a snapshot mean: each is the id of somebody who needs it.
//!
//! A relationship pins by its own id what was published last and what is built upon. By further ids, which follow from that
//! one, it pins what it keeps for other reasons; each is its own inverse.

use uuid::Uuid;

/// Makes the id of what is kept in common of that of the relationship.
const COMMON: u128 = 0x51d7_0a6e_93c4_4b08_a7f2_18e5_c36b_9d40;
/// Makes the id of what retention keeps of that of the relationship, or of the volume if its timetable of snapshots keeps it.
const KEPT: u128 = 0x2e94_f1b7_605d_4c39_9a18_d3c0_7f5e_a826;

/// For whom a destination pins what it has in common with other destinations of the same volume, and a source what it has in
/// common with those that follow its destination: not for the relationship itself, whose pins say what was published last and what
/// is built upon.
pub fn common_of(relationship: Uuid) -> Uuid {
    Uuid::from_u128(relationship.as_u128() ^ COMMON)
}

/// By what a destination pins the points that its retention keeps, and may let go again. A timetable of snapshots does the same with
/// the id of its volume, so that it is known whatever becomes of the timetable.
pub fn kept_of(relationship_or_volume: Uuid) -> Uuid {
    Uuid::from_u128(relationship_or_volume.as_u128() ^ KEPT)
}

/// Whether a rotation lets go one day of what these `pins` keep: the timetable of the volume, or the retention of the mirror that it
/// follows, or was broken off from (`mirror`), which goes on once it follows again.
pub fn rotates(volume: Uuid, mirror: Option<Uuid>, pins: impl IntoIterator<Item = Uuid>) -> bool {
    let keepers = [Some(kept_of(volume)), mirror.map(kept_of)];
    pins.into_iter().any(|pin| keepers.contains(&Some(pin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_one_relationship_differ_and_lead_back() {
        let id = Uuid::from_u128(77);
        let all = [id, common_of(id), kept_of(id), kept_of(common_of(id))];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one));
        }
        assert_eq!((common_of(common_of(id)), kept_of(kept_of(id))), (id, id));
    }

    #[test]
    fn what_its_timetable_or_its_retention_keeps_rotates_and_nothing_else() {
        let (volume, mirror, other) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let of = |pin| rotates(volume, Some(mirror), [other, pin]);
        assert!(of(kept_of(volume)) && of(kept_of(mirror)));
        assert!(!of(mirror) && !of(common_of(mirror)) && !of(kept_of(other)));
        assert!(!rotates(volume, None, [kept_of(mirror)]) && !rotates(volume, Some(mirror), []));
    }
}
