//! Several sites in one view: a peer's API, asked over the session.

use crate::support::{Pair, Site, eventually};
use serde_json::Value;

fn seen(site: &Site, name: &str) -> Value {
    let sites = site.json("site list");
    sites.as_array().unwrap().iter().find(|site| site["name"] == name).unwrap().clone()
}

#[test]
fn a_site_shows_those_that_let_it_look_and_steers_those_that_let_it_do_more() {
    let mut pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    a.ok("volume create p/v --size 4M");
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v");
    b.ok("mirror initialize q/v");

    // Nothing is given by a pairing alone.
    assert_eq!((&seen(a, "a")["state"], &seen(a, "b")["state"]), (&"here".into(), &"closed".into()));
    let said = a.fails(1, "--site b mirror status");
    assert!(
        said.contains("does not let your site look") && said.contains("peer set a --role viewer"),
        "{said}"
    );
    assert!(b.fails(2, "peer set a --role administrator").contains("operator at most"));
    assert!(b.fails(2, "peer set a --role king").contains("viewer or operator"));

    // A viewer sees everything and changes nothing.
    b.ok("peer set a --role viewer");
    assert_eq!(b.json("peer status a")["role"], "viewer");
    let there = seen(a, "b");
    assert_eq!((&there["state"], &there["role"]), (&"seen".into(), &"viewer".into()), "{there}");
    assert_eq!(there["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(there["status"]["name"], "b");
    assert_eq!(a.json("--site b mirror status")[0]["name"], "q/v");
    assert!(a.ok("--site b status").contains("q/v"));
    assert!(a.fails(1, "--site b mirror update q/v").contains("needs operator"));
    assert!(a.fails(1, "--site b token list").contains("needs administrator"));
    assert!(a.fails(3, "--site c mirror status").contains('c'));
    // What b may see elsewhere is for its own people.
    assert!(a.fails(1, "--site b site list").contains("not served"));

    // Nor does what a viewer is refused fill the audit log there.
    assert!(
        b.json("audit --limit 1000")
            .as_array()
            .unwrap()
            .iter()
            .all(|entry| { !entry["who"].as_str().unwrap().starts_with("peer a") })
    );

    // An operator runs what is there.
    b.ok("peer set a --role operator");
    a.ok("--site b mirror update q/v");
    assert!(a.fails(1, "--site b mirror delete q/v --yes").contains("needs administrator"));
    let audit = b.json("audit --limit 1");
    assert_eq!(audit[0]["path"], "/api/v1/mirrors/q/v/update");
    let who = audit[0]["who"].as_str().unwrap();
    assert!(who.starts_with("peer a (uid ") && audit[0]["role"] == "operator", "{audit}");
    assert!(audit[0]["from"].as_str().unwrap().starts_with("session with"), "{audit}");
    let here = a.json("audit --limit 2");
    let paths: Vec<_> =
        here.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths[1], "/api/v1/sites/b/mirrors/q/v/update", "{here}");
    assert_eq!(
        (&here[0]["outcome"], &here[1]["outcome"]),
        (&"peer-refused".into(), &"done".into()),
        "{here}"
    );
    // Long lists come whole.
    for n in 0..300 {
        b.ok(&format!("volume create q/{n:0100} --size 4K"));
    }
    assert_eq!(a.json("--site b volume list"), b.json("volume list"));

    // A site that is away says when it was seen; nothing is lost with the one that looks.
    let at = seen(a, "b")["seen_at"].clone();
    pair.b.kill();
    eventually("it is away", || seen(&pair.a, "b")["state"] == "away");
    let away = seen(&pair.a, "b");
    assert!(away["seen_at"].as_str() >= at.as_str() && away["why"].is_string(), "{away}");
    assert!(pair.a.fails(1, "--site b mirror status").contains("cannot be asked"));
    pair.b.restart();
    pair.a.kill();
    pair.a.restart();
    eventually("it is seen again", || seen(&pair.a, "b")["state"] == "seen");

    // What was given is taken.
    pair.b.ok("peer set a --role none");
    assert_eq!(seen(&pair.a, "b")["state"], "closed");
    pair.b.ok("peer set a --role viewer");
    pair.b.ok("peer remove a --yes");
    eventually("it is away", || seen(&pair.a, "b")["state"] == "away");
    for site in [&mut pair.a, &mut pair.b] {
        assert_eq!(site.stop(), Some(0));
    }
}
