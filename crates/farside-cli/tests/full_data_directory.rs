//! A data directory that was full for a moment: it is told, and it is over when there is room again. On a small file system of its
//! own; needs root. Where that cannot be had the test says that it is skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use std::io::Write;

use support::small::Small;
use support::{Pair, Site, eventually};

#[test]
fn rights_log_and_health_come_back_with_the_room() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("b"), "12m") else { return };
    let pair = Pair { a: Site::start(root.path(), "a"), b: Site::start(root.path(), "b"), root };
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("pool create p --path {} --size 64M", pair.root.path().join("p.pool").display()));
    b.ok(&format!("pool create q --path {} --size 64M", pair.root.path().join("q.pool").display()));
    pair.pair_at(&a.published("peer.addr"));
    pair.mirror(1 << 20);
    b.ok("mirror initialize q/v");
    b.ok("peer allow a q/kept");
    let well = || b.http("/healthz").contains("200 OK");
    assert!(well());

    let fill = small.0.join("fill");
    let mut file = std::fs::File::create(&fill).unwrap();
    for part in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; part]).is_ok() {}
    }
    drop(file);
    // Until what the database has allocated is used up.
    let names = |round: usize| -> String { (0..200).map(|n| format!(" q/{round}-{n}")).collect() };
    let mut refused = None;
    for round in 0..100 {
        let output = b.farside(&format!("peer allow a{}", names(round)));
        if !output.status.success() {
            refused = Some(support::text(&output.stderr));
            break;
        }
    }
    let refused = refused.expect("it is full");
    assert!(refused.contains("full"), "{refused}");
    eventually("health tells", || !well());
    // What is safe goes on, and leaves more transactions that fail.
    b.ok("mirror update q/v");
    b.fails(1, "peer allow a q/one-more-with-a-long-name");
    // Nobody is told that a right is gone which is there again after a restart, nor that it stays while it is gone.
    let has_right = || b.json("peer status a")["rights"].to_string().contains("\"q/kept\"");
    assert!(has_right());
    let denied = b.fails(1, "peer deny a q/kept");
    assert!(denied.contains("nothing has changed") && has_right(), "{denied}");

    std::fs::remove_file(&fill).unwrap();
    // A pool that cannot be remembered is not made; nothing of it is left.
    let path = pair.root.path().join("new.pool");
    let made = b.farside(&format!("pool create new --path {} --size 64M", path.display()));
    assert_eq!(path.exists(), made.status.success(), "{}", support::text(&made.stderr));
    assert_eq!(b.json("pool list").as_array().unwrap().len(), 1 + usize::from(made.status.success()));
    let log = b.json("mirror log q/v");
    let until = log.as_array().and_then(|lines| lines.last()).unwrap()["at"].as_str().unwrap().to_owned();
    b.ok("peer allow a q/after");
    b.ok("peer deny a q/after");
    b.ok("peer deny a q/kept");
    assert!(!has_right());
    eventually("health tells", well);
    let before = b.json("mirror history q/v").as_array().unwrap().len();
    b.ok("mirror update q/v");
    assert_eq!(b.json("mirror history q/v").as_array().unwrap().len(), before + 1);
    let log = b.json("mirror log q/v");
    let last = log.as_array().and_then(|lines| lines.last()).unwrap();
    assert_eq!(last["event"], "end", "{log}");
    assert!(last["at"].as_str() > Some(until.as_str()), "{log}");
    drop(pair);
    drop(small);
}
