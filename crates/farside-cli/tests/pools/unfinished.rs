//! A daemon that is killed while it makes a pool leaves nothing that keeps the pool from being made, or taken over.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use crate::support::hang::Hang;
use crate::support::{Site, check_pool};

fn begin_to_make(site: &Site, pool: &Path) -> Child {
    let mut command = site.command(&format!("pool create p --path {} --size 64M", pool.display()));
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
}

fn names_in(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_pool_whose_making_was_killed_is_made_under_the_same_name() {
    // Its file is opened when it is made, and when it is opened to be written.
    for opened_before in 0..2 {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("pools");
        std::fs::create_dir(&directory).unwrap();
        let pool = directory.join("p.pool");
        let mut site = Site::start(root.path(), "a");
        let Some(hang) = Hang::in_directory(&directory) else { return };
        let mut making = begin_to_make(&site, &pool);
        (0..opened_before).for_each(|_| hang.let_one_go());
        hang.has_one();
        site.kill();
        drop(hang);
        assert!(!making.wait().unwrap().success());
        let left = names_in(&directory);
        assert!(left.len() == 1 && left[0] != pool, "{left:?}");

        site.restart();
        assert_eq!(site.json("pool list").as_array().map(Vec::len), Some(0));
        site.ok(&format!("pool create p --path {} --size 64M", pool.display()));
        site.has_logged("left of a pool that was not made to the end");
        site.ok("volume create p/v --size 1M");
        site.nbd("p/v").write(0, &[7; 4096]).unwrap();
        assert_eq!(site.stop(), Some(0));
        check_pool(&pool);
        assert_eq!(names_in(&directory).len(), 2, "nothing is removed that might be somebody's");
    }
}

#[test]
fn whenever_the_daemon_is_killed_the_pool_can_be_made_or_taken_over() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    for (round, micros) in [0, 3000, 6000, 9000, 12_000, 16_000, 24_000, 40_000].into_iter().enumerate() {
        let pool = root.path().join(format!("{round}.pool"));
        let mut making = begin_to_make(&site, &pool);
        std::thread::sleep(Duration::from_micros(micros));
        site.kill();
        let _ = making.wait();
        site.restart();
        if site.json("pool list").as_array().map(Vec::len) == Some(0) {
            match pool.exists() {
                true => site.ok(&format!("pool import p --path {}", pool.display())),
                false => site.ok(&format!("pool create p --path {} --size 64M", pool.display())),
            };
        }
        site.ok("volume create p/v --size 1M");
        site.ok("pool delete p --yes");
    }
}
