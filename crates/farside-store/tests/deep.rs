//! Deep and wide trees: sparse volumes up to 64 TiB, resizes over the borders of tree levels, clones of clones, staged
//! versions on old bases, and reaping in steps of a few nodes with everything else in between.
//!
//! What must hold: every version's content root, allocation and bytes are the model's; the checker finds nothing; once
//! everything is deleted and reaped, every block is free again.

mod sparse;

use sparse::{SparseRun, seeds};

/// Blocks in use once the pool is empty: fixed areas, catalog and free map.
fn in_use(run: &SparseRun) -> u64 {
    farside_check::check(&run.disk, &farside_check::CheckOptions::default()).expect("it runs").blocks_in_use
}

/// A volume shrinks, a point is made, and it grows again: what growth unmapped lay past the tree that an opening knows.
const SHRUNK_AND_GROWN: u64 = 158_423_343_738_258;

#[test]
fn random_histories_over_deep_trees() {
    for seed in seeds(6, 1).chain([SHRUNK_AND_GROWN]) {
        println!("seed {seed}");
        let mut run = SparseRun::new(seed, 192 << 20);
        run.create("warm", 100);
        run.empty();
        let (free, used) = (run.pool.status().free_bytes + run.pool.status().reserved_bytes, in_use(&run));
        run.create("wide", 2_621_440);
        run.create("deep", 1 << 34);
        for step in 0..700 {
            run.step();
            if step % 70 == 69 {
                run.compare(false);
            }
            if step % 230 == 229 {
                run.reopen();
                run.compare(true);
            }
        }
        assert_eq!(run.refused, 0, "the pool is large enough for this history");
        run.pool.reap_all().expect("reaping");
        run.compare(true);
        run.pool.consistency_point().expect("a point");
        run.check(&run.disk, "at the end");
        run.empty();
        run.check(&run.disk, "emptied");
        let status = run.pool.status();
        assert_eq!(in_use(&run), used, "seed {seed}: blocks that nothing refers to are still in use");
        assert_eq!(
            status.free_bytes + status.reserved_bytes,
            free,
            "seed {seed}: free space did not come back"
        );
    }
}
