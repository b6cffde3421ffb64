//! A power failure in the opening that follows another one: what the first left beyond the journal's end must not close the pool.

mod sparse;

use std::sync::Arc;

use farside_format::journal::{BatchHeader, Record, decode_batch_header, seal_batch};
use farside_format::{Birth, Superblock};
use farside_platform::{BLOCK_BYTES, CrashFate, SimulatedDisk};
use farside_store::Pool;
use sparse::{BLOCK, content, options};

fn newest(disk: &SimulatedDisk) -> Superblock {
    let slots =
        [0, 256 * BLOCK].map(|at| Superblock::decode(&disk.peek(at, BLOCK_BYTES)).expect("a superblock"));
    slots.into_iter().max_by_key(|s| s.generation).expect("two")
}

/// A batch with these records, as it follows `before`.
fn batch(before: &BatchHeader, skipped: u64, proven: u64, records: &[Record]) -> Vec<u8> {
    let mut payload = Vec::new();
    records.iter().for_each(|record| record.encode(&mut payload));
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes[128..128 + payload.len()].copy_from_slice(&payload);
    let header = BatchHeader {
        payload_bytes: payload.len(),
        pool: before.pool,
        open_epoch: before.open_epoch,
        sequence: before.sequence + 1 + skipped,
        position: before.position + (1 + skipped) * BLOCK,
        proven,
        records: records.len() as u32,
        previous: before.checksum,
        checksum: [0; 16],
    };
    seal_batch(&mut bytes, payload.len(), &header);
    bytes
}

fn point_of(generation: u64, birth_epoch: u64) -> Record {
    Record::Point { generation, birth_epoch: Birth(birth_epoch) }
}

/// A point that was synced, and whose superblock was not: its record is the last of the journal. Of two batches after it, neither of
/// them synced, the nearer one is torn and the other one says that the point's batch was.
#[test]
fn a_point_that_a_batch_beyond_the_end_proves_keeps_its_place() {
    let disk = SimulatedDisk::new("twice", 48 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    pool.create_volume("v", 64 * BLOCK).expect("a volume");
    pool.consistency_point().expect("a point");
    let start = newest(&disk);
    let place = |position: u64| (512 + position / BLOCK % start.journal_blocks) * BLOCK;
    let handle = pool.open_volume("v").expect("it opens");
    for block in 0..3 {
        handle.write(block * BLOCK, &content(60 + block)).expect("a write");
        handle.flush().expect("a flush");
    }
    drop((handle, pool));
    let mut last =
        decode_batch_header(&disk.peek(place(start.journal_position), BLOCK_BYTES)).expect("a batch");
    while let Ok(next) = decode_batch_header(&disk.peek(place(last.position + BLOCK), BLOCK_BYTES)) {
        last = next;
    }
    let of_point = batch(&last, 0, last.sequence, &[point_of(start.generation + 1, start.birth_epoch + 1)]);
    disk.damage(place(last.position + BLOCK), &of_point);
    let of_point = decode_batch_header(&of_point).expect("whole");
    let mut torn =
        batch(&of_point, 0, last.sequence, &[point_of(start.generation + 2, start.birth_epoch + 2)]);
    torn[130] ^= 1;
    disk.damage(place(of_point.position + BLOCK), &torn);
    let beyond = batch(&of_point, 1, of_point.sequence, &[]);
    disk.damage(place(of_point.position + 2 * BLOCK), &beyond);

    let shows_all = |disk: &SimulatedDisk, what: &str| {
        let pool = Pool::open(Arc::new(disk.clone()), options(6)).unwrap_or_else(|e| panic!("{what}: {e}"));
        for block in 0..3 {
            let mut bytes = vec![0; BLOCK as usize];
            pool.open_volume("v").expect("it opens").read(block * BLOCK, &mut bytes).expect("it reads");
            assert!(bytes == content(60 + block), "{what}: block {block}");
        }
        drop(pool);
        let report = farside_check::check(disk, &farside_check::CheckOptions::default()).expect("it runs");
        assert!(report.is_clean(), "{what}: {report}");
    };
    let opened = disk.image();
    shows_all(&opened, "after one power failure");
    // A write that the power cuts off may leave a block that the medium cannot read. Then what is proven would end before its end.
    let again = opened.writes_touching(place(of_point.position));
    assert!(again.is_empty(), "what is proven is written over, by events {again:?} of the opening");
    for events in 0..=opened.events() {
        for fate in (0..8).map(CrashFate::Random).chain([CrashFate::DropUnsynced, CrashFate::KeepUnsynced]) {
            shows_all(&opened.crash_at(events, fate), &format!("{events} events of the opening, {fate:?}"));
        }
    }
}
