//! Data that is found by its content, for engines that do.

use super::fixture::Fixture;
use super::reference;
use super::world::{MIRROR, PEER, World, at, bytes, mirrors, name, record, staged_for};
use crate::{
    BLOCK_BYTES, EngineError, Fingerprint, KnownDataScope, ReplicaRecord, VolumeName, Wanted, short,
};

/// What a peer sent is found for that peer, as a block and as a leaf of 128; never what hosts wrote, nor what another peer sent.
pub fn what_the_peer_sent_is_found_and_nothing_else<F: Fixture>() {
    const STRANGER: [u8; 32] = [2; 32];
    let mut world = World::<F>::new(81, 512);
    let engine = world.engine.clone();
    let Some(known) = engine.known_data(&world.volume.pool) else { return };
    world.write(0, 4, 9);
    let replica = |volume: &str, peer: [u8; 32], number: u128, content: &[u8]| {
        let volume: VolumeName = name(volume);
        engine.create_volume(&volume, at(256)).unwrap();
        let record = ReplicaRecord { peer, ..record(MIRROR, false) };
        engine.set_replica_record(&volume, Some(record)).unwrap();
        let staged = engine.stage(&volume, None, at(256), staged_for(number)).unwrap();
        staged.write(at(128), content).unwrap();
        staged.commit(&mirrors("s", number)).unwrap();
    };
    // A leaf of 128 blocks that all differ.
    let leaf: Vec<u8> = (0..128_u64)
        .flat_map(|n| bytes(1, n as u8 | 1).into_iter().map(move |b| b ^ (n / 2) as u8))
        .collect();
    replica("a", PEER, 1, &leaf);
    replica("b", STRANGER, 2, &bytes(1, 0xee));

    let staged = world.stage(None, 512, 3);
    let fingerprints = reference::fingerprints(&leaf);
    let node = reference::subtrees(&leaf, 1)[0];
    let wanted = |level, position, fingerprint| Wanted { level, position, short: short(fingerprint) };
    let of_byte = |byte| Fingerprint::of_block(&bytes(1, byte));
    let asked = [
        wanted(0, 7, fingerprints[5]),
        wanted(0, 8, of_byte(9)),
        wanted(0, 9, of_byte(0xee)),
        wanted(1, 2, node),
        wanted(0, 10, of_byte(0x77)),
    ];
    let ours = KnownDataScope { peer: PEER };
    assert!(known.may_hold(&ours), "there is a replica of that peer");
    let answered = known.adopt(&*staged, &ours, &asked).unwrap();
    assert_eq!(answered, [Some(fingerprints[5]), None, None, Some(node), None]);
    let expected =
        [bytes(7, 0), leaf[at(5) as usize..at(6) as usize].to_vec(), bytes(248, 0), leaf, bytes(128, 0)];
    let mut found = bytes(512, 0xff);
    staged.read(0, &mut found).unwrap();
    assert!(found == expected.concat(), "what is not known changed nothing");
    let theirs = known.adopt(&*staged, &KnownDataScope { peer: STRANGER }, &asked).unwrap();
    assert_eq!(theirs, [None, None, Some(of_byte(0xee)), None, None]);
    let past = known.adopt(&*staged, &ours, &[wanted(0, 512, fingerprints[5])]);
    assert!(matches!(past, Err(EngineError::Invalid(_))), "{past:?}");
    assert!(known.adopt(&*staged, &ours, &[]).unwrap().is_empty());
    let mut block = vec![0; BLOCK_BYTES as usize];
    staged.read(at(9), &mut block).unwrap();
    assert!(block == bytes(1, 0xee));
}
