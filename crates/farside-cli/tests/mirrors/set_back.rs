//! A pool that is put back to an older copy of itself while others have more of it: both sites say so by themselves, until a person
//! has seen to it.

use crate::support::{Pair, Site, eventually, status};
use serde_json::Value;

fn alarm(site: &Site, kind: &str) -> Option<Value> {
    let open = site.json("alarm list");
    open.as_array().unwrap().iter().find(|alarm| alarm["kind"] == kind).cloned()
}

#[test]
fn an_original_whose_pool_was_set_back_is_told_at_both_sites_until_somebody_knows() {
    let mut pair = Pair::dialled_by_b();
    pair.mirror(1 << 20);
    // Of this both will have something.
    pair.a.ok("snapshot create p/v@before");
    pair.b.ok("mirror initialize q/v");
    let (pool, older) = (pair.root.path().join("p.pool"), pair.root.path().join("older"));
    assert_eq!(pair.a.stop(), Some(0));
    std::fs::copy(&pool, &older).unwrap();
    pair.a.restart();
    assert!(
        alarm(&pair.a, "pool-set-back").is_none(),
        "what is as it was is no older copy: {}",
        pair.a.log()
    );
    let mut host = pair.a.nbd("p/v");
    host.write(0, &[7; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    eventually("the sites meet", || pair.b.farside("mirror update q/v").status.success());
    assert_eq!(pair.b.nbd("q/v").bytes(0, 4096).unwrap(), vec![7; 4096]);

    assert_eq!(pair.a.stop(), Some(0));
    std::fs::copy(&older, &pool).unwrap();
    pair.a.restart();
    eventually("the source's site tells", || alarm(&pair.a, "pool-set-back").is_some());
    let told = alarm(&pair.a, "pool-set-back").unwrap();
    assert_eq!((&told["subject"], &told["severity"]), (&"p".into(), &"critical".into()), "{told}");
    assert!(pair.a.ok("status").contains("older copy of itself"), "{}", pair.a.ok("status"));
    // A restart makes it no news, and no past.
    assert_eq!(pair.a.stop(), Some(0));
    pair.a.restart();
    assert_eq!(alarm(&pair.a, "pool-set-back").unwrap()["id"], told["id"]);

    eventually("the sites meet", || pair.b.farside("mirror update q/v").status.success());
    eventually("the replica's site tells", || alarm(&pair.b, "source-went-back").is_some());
    let told = alarm(&pair.b, "source-went-back").unwrap();
    assert_eq!((&told["subject"], &told["severity"]), (&"q/v".into(), &"critical".into()), "{told}");
    assert!(told["message"].as_str().unwrap().contains("q/v@rescue-source-"), "{told}");
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    eventually("its mirror runs", || pair.b.json("mirror status")[0]["state"] == "mirrored");
    assert_eq!(alarm(&pair.b, "source-went-back").unwrap()["id"], told["id"]);

    // Persons see to it.
    assert!(pair.b.fails(1, "mirror check").contains("source-went-back"));
    assert!(pair.a.fails(1, "mirror check").contains("pool-set-back"));
    eventually("it is over at the replica's site", || {
        // Not at once: whoever asks a moment after it was found has not seen it.
        pair.b.farside("mirror update q/v").status.success() && alarm(&pair.b, "source-went-back").is_none()
    });
    pair.b.ok("mirror check");
    let id = alarm(&pair.a, "pool-set-back").unwrap()["id"].as_str().unwrap().to_owned();
    pair.a.ok(&format!("alarm ack {id}"));
    eventually("it is over at the source's site", || alarm(&pair.a, "pool-set-back").is_none());
    assert_eq!(pair.a.stop(), Some(0));
    pair.a.restart();
    assert!(alarm(&pair.a, "pool-set-back").is_none(), "{}", pair.a.log());
}

/// The pool of an original by swap is put back to what it was before the roles changed: each of the two is a replica of the other.
#[test]
fn two_that_follow_each_other_are_told_at_both_sites_and_nothing_goes_between_them() {
    let mut pair = Pair::dialled_by_b();
    pair.mirror(1 << 20);
    pair.a.ok("peer allow b p/v --reverse");
    pair.b.ok("peer allow a q/v --reverse");
    pair.b.ok("mirror set q/v --every 1s --keep last=3");
    pair.b.ok("mirror initialize q/v");
    let (pool, older) = (pair.root.path().join("q.pool"), pair.root.path().join("older"));
    assert_eq!(pair.b.stop(), Some(0));
    std::fs::copy(&pool, &older).unwrap();
    pair.b.restart();
    eventually("the roles change", || pair.b.farside("mirror swap q/v --yes").status.success());
    // With this there is a base that both would take.
    pair.a.ok("mirror set p/v --keep last=3");
    let mut host = pair.b.nbd("q/v");
    host.write(0, &[7; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    pair.a.ok("mirror update p/v");

    assert_eq!(pair.b.stop(), Some(0));
    std::fs::copy(&older, &pool).unwrap();
    pair.b.restart();
    let stopped = |site: &Site, volume: &str| {
        let all = site.json(&format!("mirror status {volume}"));
        let of = all.as_array().unwrap().iter().find(|m| m["role"] == "destination").cloned().unwrap();
        // Its schedule tries each second, and is refused.
        assert!(["mirrored", "transferring"].contains(&of["state"].as_str().unwrap()), "{of}");
        of["stopped"] == "no-original"
    };
    eventually("it is told where the newer is", || stopped(&pair.a, "p/v"));
    eventually("and where the older is", || stopped(&pair.b, "q/v"));
    for (site, volume, peer) in [(&pair.a, "p/v", "b:q/v"), (&pair.b, "q/v", "a:p/v")] {
        let said = site.fails(1, "mirror check");
        assert!(said.contains(&format!("{volume} is ")) && said.contains("neither is an original"), "{said}");
        assert!(site.ok("status").contains(&format!("{volume} gets nothing any more")), "{peer}");
    }
    assert_eq!(pair.a.nbd("p/v").bytes(0, 4096).unwrap(), vec![7; 4096], "nothing has taken its place");

    // As it says.
    let said = pair.a.ok("mirror break p/v --yes");
    assert!(!said.contains("mirror swap"), "{said}");
    pair.b.ok("mirror resync q/v --whole --yes");
    assert_eq!(pair.b.nbd("q/v").bytes(0, 4096).unwrap(), vec![7; 4096]);
    pair.b.ok("mirror update q/v");
    pair.a.ok("mirror check");
}

/// Nothing can be fetched of a volume whose pool the site has forgotten, and nobody can write to it.
#[test]
fn a_pool_that_is_forgotten_fails_the_check_and_is_no_second_original() {
    let mut pair = Pair::dialled_by_b();
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.a.ok("mirror check");
    let (pool, moved) = (pair.root.path().join("p.pool"), pair.root.path().join("moved"));
    assert_eq!(pair.a.stop(), Some(0));
    std::fs::rename(&pool, &moved).unwrap();
    pair.a.restart();
    let said = pair.a.fails(1, "mirror check");
    assert!(said.contains("b:q/v of p/v gets nothing any more") && said.contains("pool status p"), "{said}");
    pair.a.ok("pool delete p --yes");
    let said = pair.a.fails(1, "mirror check");
    assert!(
        said.contains("there is no pool p here any more") && said.contains("pool import p --path"),
        "{said}"
    );
    pair.b.ok("mirror break q/v --yes");
    eventually("the break is heard", || status(&pair.a, "p/v")["overtaken"].is_object());
    // It would be raised after 10 s.
    std::thread::sleep(std::time::Duration::from_secs(13));
    assert!(alarm(&pair.a, "two-originals").is_none(), "{:?}", alarm(&pair.a, "two-originals"));
    let said = pair.a.fails(1, "mirror check");
    assert!(said.contains("there is no pool p here any more") && !said.contains("hosts may write"), "{said}");

    // Found again, it is one.
    pair.a.ok(&format!("pool import p --path {}", moved.display()));
    eventually("two originals are told", || alarm(&pair.a, "two-originals").is_some());
}
