//! A copy of a living site is started beside it: the replica goes on following the one it followed, and both sides say what is wrong.

use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{Pair, Site, eventually};

const BYTES: usize = 1 << 20;

fn fill(site: &Site, volume: &str, byte: u8) {
    let mut host = site.nbd(volume);
    host.write(0, &vec![byte; BYTES]).unwrap();
    host.flush().unwrap();
    drop(host);
    eventually("the host is gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

fn shows(site: &Site, volume: &str) -> u8 {
    let all = site.nbd(volume).read_all();
    assert!(all.iter().all(|byte| *byte == all[0]), "a mixture");
    all[0]
}

/// A copy of the site, which is stopped, with a pool file of its own. A machine of its own would have that at the same place; here the
/// copy's database has another path of the same length.
fn copy(site: &Site, root: &Path) -> Site {
    let dir = root.join("copy");
    std::fs::create_dir(&dir).unwrap();
    let (pool, copied) = (root.join("p.pool"), root.join("c.pool"));
    std::fs::copy(&pool, &copied).unwrap();
    let (pool, copied) = (pool.into_os_string().into_vec(), copied.into_os_string().into_vec());
    let mut renamed = 0;
    for file in std::fs::read_dir(&site.dir).unwrap().map(|file| file.unwrap()) {
        if file.file_type().unwrap().is_file() && file.file_name() != "log" {
            let mut bytes = std::fs::read(file.path()).unwrap();
            let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&pool)).collect();
            for at in &places {
                bytes[*at..*at + copied.len()].copy_from_slice(&copied);
            }
            renamed += places.len();
            let to = dir.join(file.file_name());
            // With its mode: a key that others may read is refused.
            std::fs::copy(file.path(), &to).unwrap();
            std::fs::write(to, bytes).unwrap();
        }
    }
    assert!(renamed > 0, "the database knows the pool");
    Site::new(&dir, "a")
}

#[test]
fn the_replica_goes_on_following_the_site_it_followed_and_both_peer_statuses_tell() {
    let mut pair = Pair::start();
    pair.mirror(BYTES as u64);
    fill(&pair.a, "p/v", 1);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror set q/v --every 1s");
    assert_eq!(pair.a.stop(), Some(0));
    let mut copy = copy(&pair.a, pair.root.path());
    pair.a.restart();
    let (a, b) = (&pair.a, &pair.b);
    eventually("the replica follows", || b.json("peer status a")["state"] == "connected");
    fill(a, "p/v", 2);
    eventually("it has arrived", || shows(b, "q/v") == 2);

    copy.restart();
    fill(&copy, "p/v", 99);
    let why = |site: &Site, peer: &str| {
        site.json(&format!("peer status {peer}"))["why"].as_str().unwrap_or_default().to_owned()
    };
    eventually("the copy is told", || why(&copy, "b").contains("another living site uses this site's key"));
    eventually("so is the peer", || why(b, "a").contains("another living site uses this peer's key"));
    for (site, peer) in [(&copy, "b"), (b, "a")] {
        let why = why(site, peer);
        for part in ["127.0.0.1", "farsided --isolated", "guides/copies"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(site.ok(&format!("peer status {peer}")).contains("another living site"));
        let metrics = site.http("/metrics");
        let metric = format!("farside_peer_key_conflicts_total{{peer=\"{peer}\"}} ");
        let line =
            metrics.lines().find(|line| line.starts_with(&metric)).unwrap_or_else(|| panic!("{metrics}"));
        assert!(!line.ends_with(" 0"), "{line}");
    }
    // All the while the original is what is mirrored.
    for byte in 3..9 {
        fill(a, "p/v", byte);
        eventually("it has arrived", || {
            let shown = shows(b, "q/v");
            assert!(shown == byte || shown == byte - 1, "{shown} at {byte}");
            shown == byte
        });
        std::thread::sleep(Duration::from_secs(1));
    }
    let session = |site: &Site, peer: &str| site.json(&format!("peer status {peer}"))["state"].clone();
    assert_eq!(
        (session(b, "a"), session(a, "b"), session(&copy, "b")),
        ("connected".into(), "connected".into(), "disconnected".into())
    );
    assert!(why(a, "b").is_empty());
    let snapshots = b.ok("snapshot list q/v");
    assert!(!snapshots.contains("rescue"), "{snapshots}");
    let lines = |site: &Site| {
        let log = site.log();
        log.lines().filter(|line| line.contains("WARN") && line.contains("another living site")).count()
    };
    assert_eq!((lines(b), lines(&copy)), (1, 1), "once, not each time it is tried");

    // A restart of the original lets nobody in between.
    assert_eq!(pair.a.stop(), Some(0));
    std::thread::sleep(Duration::from_secs(2));
    pair.a.restart();
    let (a, b) = (&pair.a, &pair.b);
    fill(a, "p/v", 50);
    eventually("it has arrived", || {
        let shown = shows(b, "q/v");
        assert_ne!(shown, 99);
        shown == 50
    });
    assert_eq!(copy.stop(), Some(0));
}
