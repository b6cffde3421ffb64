//! Two engines side by side: equal bytes have equal roots and fingerprints, whichever engine has them and however they came there.

use std::sync::Arc;

use super::fixture::Fixture;
use super::world::{World, at, content, mirrors};
use crate::{BLOCK_BYTES, ChangeKind, Engine, VolumeName};

/// Hosts write to a volume of one engine; each snapshot of it is staged at the other from the difference alone.
pub fn equal_bytes_have_equal_roots<Source: Fixture, Destination: Fixture>() {
    let mut source = World::<Source>::new(111, 200);
    let destination = World::<Destination>::new(112, 1);
    destination.follow();
    let mut base = None;
    for round in 0..6_u128 {
        source.scribble([20, 3, 0, 8, 12, 1][round as usize]);
        match round {
            2 => source.resize(300),
            4 => source.resize(150),
            _ => {}
        }
        let taken = source.snapshot(&format!("s{round}"), round + 1);
        let blocks = taken.size_bytes / BLOCK_BYTES;
        let staged = destination.stage(base, blocks, round + 1);
        for extent in source.engine.changed_extents(&source.volume, base, taken.uuid).unwrap() {
            let extent = extent.unwrap();
            let length = extent.length.min(taken.size_bytes.saturating_sub(extent.offset));
            if length == 0 {
                continue;
            }
            if extent.kind == ChangeKind::Hole {
                staged.discard(extent.offset, length).unwrap();
                continue;
            }
            let mut bytes = vec![0xff; length as usize];
            source.engine.read_snapshot(&source.volume, taken.uuid, extent.offset, &mut bytes).unwrap();
            staged.write(extent.offset, &bytes).unwrap();
        }
        let root = |of: (&Arc<dyn Engine>, &VolumeName)| of.0.content_root(of.1, taken.uuid).unwrap();
        let expected = root((&source.engine, &source.volume));
        assert_eq!(staged.content_root().unwrap(), expected, "round {round}");
        // Known there by the same identity, as by a mirror.
        let named = mirrors(&format!("s{round}"), round + 1);
        staged.commit(&named).unwrap();
        assert_eq!(root((&destination.engine, &destination.volume)), expected, "round {round}");
        let found = content(&*destination.engine, &destination.volume, taken.uuid);
        assert!(found == source.live, "round {round}");
        let of =
            |engine: &Arc<dyn Engine>, volume| engine.fingerprints(volume, taken.uuid, 0, at(blocks) / at(1));
        let ours = of(&source.engine, &source.volume).unwrap();
        assert_eq!(of(&destination.engine, &destination.volume).unwrap(), ours, "round {round}");
        base = Some(taken.uuid);
    }
}
