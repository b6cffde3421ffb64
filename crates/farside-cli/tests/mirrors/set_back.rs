//! A pool that is put back to an older copy of itself while others have more of it: both sites say so by themselves, until a person
//! has seen to it.

use crate::support::{Pair, Site, eventually};
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
