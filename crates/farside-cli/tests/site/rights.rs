//! What a peer may do belongs to a volume, whatever names do.

use crate::support::{Pair, Site};

fn rights_of_b(a: &Site) -> Vec<String> {
    let rights = a.json("peer status b")["rights"].clone();
    let names = rights.as_array().unwrap().iter().map(|right| right["volume"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn a_name_that_is_used_again_gives_nobody_the_next_volume() {
    let mut pair = Pair::start();
    pair.a.ok("volume create p/mail --size 1M");
    pair.a.ok("peer allow b p/mail p/later");
    let plan = pair.a.json("volume delete p/mail --plan");
    assert!(plan["would"].to_string().contains("peers lose their right to mirror it: b"), "{plan}");
    assert_eq!(rights_of_b(&pair.a), ["p/later", "p/mail"]);
    assert!(pair.a.ok("volume delete p/mail --yes").contains("b"));
    assert_eq!(rights_of_b(&pair.a), ["p/later"]);
    pair.a.ok("volume create p/mail --size 1M");
    pair.a.nbd("p/mail").write(0, &[5; 4096]).unwrap();
    let said = pair.b.fails(1, "mirror create a:p/mail q/stolen");
    assert!(said.contains("allow"), "{said}");

    // Given beforehand, it is one on the first volume of that name, and goes where that goes.
    pair.a.ok("volume create p/later --size 1M");
    pair.a.ok("volume rename p/later p/letters");
    assert_eq!(rights_of_b(&pair.a), ["p/letters"]);
    pair.a.ok("volume create p/later --size 1M");
    pair.b.fails(1, "mirror create a:p/later q/stolen");
    // Also after a restart, which looks at the names anew.
    assert_eq!(pair.a.stop(), Some(0));
    pair.a.restart();
    crate::support::eventually("the session is back", || pair.b.json("peer list")[0]["state"] == "connected");
    pair.b.fails(1, "mirror create a:p/later q/stolen");
    pair.b.ok("mirror create a:p/letters q/letters");
    pair.b.ok("mirror initialize q/letters");
    pair.b.ok("mirror delete q/letters --yes");

    // A pool that goes takes its rights with it.
    let path = pair.root.path().join("other.pool").display().to_string();
    pair.a.ok(&format!("pool create other --path {path} --size 64M"));
    pair.a.ok("volume create other/v --size 1M");
    pair.a.ok("peer allow b other/v");
    let plan = pair.a.json("pool delete other --plan");
    assert!(plan["would"].to_string().contains("peers lose their right to mirror it: b"), "{plan}");
    pair.a.ok("pool delete other --yes");
    assert_eq!(rights_of_b(&pair.a), ["p/letters"]);
    pair.a.ok(&format!("pool create other --path {path} --size 64M"));
    pair.a.ok("volume create other/v --size 1M");
    pair.b.fails(1, "mirror create a:other/v q/stolen");
}

#[test]
fn a_right_on_what_is_not_there_is_given_and_said_to_wait() {
    let pair = Pair::start();
    let said = pair.a.ok("peer allow b p/later");
    assert!(said.contains("there is no volume p/later yet"), "{said}");
    // A pool may be imported later; whoever has mistyped it is told which there are, and how to take the right back.
    let said = pair.a.ok("peer allow b tnk/mail");
    assert!(said.contains("there is no pool tnk here (this site has p)"), "{said}");
    assert!(said.contains("farside peer deny b tnk/mail"), "{said}");
    let notes = pair.a.json("peer allow b tnk/mail")["notes"].to_string();
    assert!(notes.contains("there is no pool tnk here"), "{notes}");
    assert_eq!(rights_of_b(&pair.a), ["p/later", "tnk/mail"]);
    pair.a.ok("peer deny b tnk/mail");
    assert_eq!(rights_of_b(&pair.a), ["p/later"]);
}

#[test]
fn any_name_of_a_peer_or_a_pool_can_be_shown_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let (a, other) = (Site::start(root.path(), "a"), Site::start(root.path(), "invitations"));
    let code = root.path().join("code");
    std::fs::write(&code, a.ok("peer invite")).unwrap();
    other.ok(&format!("peer join {} --code-file {}", a.published("peer.addr"), code.display()));
    assert_eq!(a.json("peer status invitations")["name"], "invitations");
    a.ok("peer remove invitations --yes");
    assert_eq!(a.json("peer list"), serde_json::json!([]));
    for name in ["import", "imports", "staged", "grow"] {
        a.ok(&format!("pool create {name} --path {} --size 64M", root.path().join(name).display()));
        assert_eq!(a.json(&format!("pool status {name}"))["state"], "open");
        a.ok(&format!("pool delete {name} --yes"));
    }
}
