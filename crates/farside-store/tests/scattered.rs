//! Many blocks that lie apart, read at once: the same bytes as one after the other, whatever order they were written in; past the
//! end zeros; and damage is found and named.

mod sparse;

use std::sync::Arc;

use farside_platform::{BlockDevice, SimulatedDisk};
use farside_store::{Pool, StoreError};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot, options};

const BLOCKS: u64 = 4096;
const SEED: u64 = 20_261_123;

#[test]
fn many_ranges_read_as_they_do_one_by_one_and_damage_is_named() {
    let mut rng = SmallRng::seed_from_u64(SEED);
    println!("seed {SEED}");
    let disk = SimulatedDisk::new("scattered", 96 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume("v", BLOCKS * BLOCK).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    // Two thirds of it, in no order, so that neighbours in the volume are none on the device.
    let mut order: Vec<u64> = (0..BLOCKS).collect();
    order.shuffle(&mut rng);
    for block in &order[..2 * order.len() / 3] {
        handle.write(block * BLOCK, &content(block + 1)).expect("a write");
    }
    drop(handle);
    let uuid = pool.create_snapshots(&[("v".into(), new_snapshot("s", 1))]).expect("a snapshot")[0].uuid;
    let reader = pool.snapshot_reader("v", uuid).expect("there");
    for _ in 0..30 {
        let mut ranges = Vec::new();
        for _ in 0..rng.random_range(0..600) {
            ranges.push((rng.random_range(0..BLOCKS - 8), rng.random_range(0..8)));
        }
        let blocks: Vec<u64> = ranges.iter().flat_map(|(first, count)| *first..first + count).collect();
        let mut found = vec![0xAA; blocks.len() * BLOCK as usize];
        reader.read_ranges(&ranges, &mut found).expect("they read");
        let mut one = vec![0; BLOCK as usize];
        for (block, bytes) in blocks.iter().zip(found.chunks_exact(BLOCK as usize)) {
            reader.read(block * BLOCK, &mut one).expect("it reads");
            assert!(bytes == one, "block {block}");
        }
    }
    // Past the end, as far past it as can be said; and what does not fit is refused.
    let mut found = vec![0xAA; 4 * BLOCK as usize];
    reader.read_ranges(&[(BLOCKS - 1, 2), (u64::MAX / BLOCK, 1), (0, 1)], &mut found).expect("zeros");
    assert!(found[BLOCK as usize..3 * BLOCK as usize].iter().all(|byte| *byte == 0));
    for wrong in [&[(0, 3)][..], &[(0, u64::MAX), (0, 5)], &[]] {
        assert!(matches!(reader.read_ranges(wrong, &mut found), Err(StoreError::Invalid(_))), "{wrong:?}");
    }

    // One block of them is damaged where it lies.
    let hurt = order[7];
    let place = (0..disk.bytes() / BLOCK)
        .find(|place| {
            let mut bytes = vec![0; BLOCK as usize];
            disk.read_at(place * BLOCK, &mut bytes).expect("the disk reads");
            bytes == content(hurt + 1)
        })
        .expect("it lies somewhere");
    disk.write_at(place * BLOCK, &content(0)).expect("the disk writes");
    let all: Vec<(u64, u64)> = (0..BLOCKS).map(|block| (block, 1)).collect();
    let mut found = vec![0; (BLOCKS * BLOCK) as usize];
    match reader.read_ranges(&all, &mut found) {
        Err(StoreError::CorruptBlock { block, place: of, .. }) => assert_eq!((block, of), (hurt, place)),
        other => panic!("{other:?}"),
    }
    let others: Vec<(u64, u64)> = all.into_iter().filter(|(block, _)| *block != hurt).collect();
    reader.read_ranges(&others, &mut found[BLOCK as usize..]).expect("the others read");
}
