//! The embedded no-overwrite store: pool, volumes, snapshots, block map, journal, consistency points.
