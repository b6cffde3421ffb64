//! What people who know only the manual stumbled over: commands given twice, at the wrong moment, or with a guess.

use std::time::Duration;

use crate::support::{Pair, Site, eventually, seed, status, text};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// A script that runs twice succeeds twice, says which of it was there, and names what differs.
#[test]
fn a_script_can_run_twice() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    let pool =
        format!("pool create more --path {} --size 64M --if-absent", pair.root.path().join("m").display());
    let made = [
        (a, pool.as_str()),
        (a, "volume create p/v --size 4M --if-absent"),
        (a, "volume create p/w --size 1M --quota 8M --if-absent"),
        (b, "mirror create a:p/w q/w --every 1h --keep last=3 --if-absent"),
    ];
    a.ok("peer allow b p/v p/w");
    for (site, command) in made {
        if command.starts_with("mirror") {
            a.ok("peer allow b p/w --reverse");
        }
        assert_eq!(site.json(command)["existed"], false, "{command}");
        assert_eq!(site.json(command)["existed"], true, "{command}");
        assert!(site.ok(command).contains("is there, as asked for"), "{command}");
        let plain = command.replace(" --if-absent", "");
        let refused = site.farside(&format!("{plain} --json"));
        assert!(
            refused.status.code() == Some(4) && text(&refused.stdout).contains("\"exists\""),
            "{refused:?}"
        );
    }
    let said = a.fails(4, "volume create p/w --size 2M --quota 8M --if-absent");
    assert!(said.contains("its size is 1048576 bytes, and not 2097152 bytes"), "{said}");
    let said = b.fails(4, "mirror create a:p/x q/w --every 2h --if-absent");
    assert!(said.contains("its source is a:p/w, and not a:p/x"), "{said}");
    assert!(said.contains("its schedule is every 1h, and not every 2h"), "{said}");
    b.ok("mirror create a:p/w q/w --if-absent");
    let said = b.fails(4, "mirror create a:p/w q/w --throttle 4MB/s --if-absent");
    assert!(said.contains("its throttle is unlimited, and not 4MB/s"), "{said}");
    let made = a.json("token create watch --role viewer --valid 30d --if-absent");
    assert!(made["existed"] == false && made["secret"].is_string(), "{made}");
    let there = a.json("token create watch --role viewer --valid 30d --if-absent");
    assert!(there["existed"] == true && there["secret"].is_null(), "{there}");
    assert_eq!(a.ok("token create watch --role viewer --if-absent"), "", "nothing that is no token");
    let said = a.fails(4, "token create watch --role operator --valid 90d --if-absent");
    assert!(said.contains("its role is viewer, and not operator; it was made for 30d"), "{said}");
    // What a first copy brings is said before its first byte.
    let mut host = a.nbd("p/v");
    host.write(0, &[7; 1 << 20]).unwrap();
    host.flush().unwrap();
    let mut bytes = vec![0; 1 << 20];
    StdRng::seed_from_u64(seed()).fill_bytes(&mut bytes);
    host.write(1 << 20, &bytes).unwrap();
    let made = b.json("mirror create a:p/v q/v");
    assert_eq!(made["first_copy_bytes"], 2 << 20, "{made}");
    assert!(made["room_bytes"].as_u64().unwrap() > 2 << 20, "{made}");
    let plan = b.json("mirror initialize q/v --plan");
    assert_eq!(
        (&plan["brings_bytes"], &plan["refused"]),
        (&(2_u64 << 20).into(), &serde_json::Value::Null),
        "{plan}"
    );
    assert_eq!(plan["room_bytes"], made["room_bytes"], "{plan}");
    let said = b.ok("mirror initialize q/v --plan");
    assert!(said.contains("comes: up to 2.0 MiB; the pool has room for"), "{said}");
    assert_eq!(b.json("mirror status q/v")[0]["state"], "uninitialized");
    b.ok("mirror initialize q/v");
    let said = b.ok("mirror initialize q/v --plan");
    assert!(
        said.contains("would be refused now: q/v has its first copy; farside mirror update q/v"),
        "{said}"
    );
    assert!(b.ok("mirror initialize q/w --if-absent").contains("q/w holds"));
    assert_eq!(b.json("mirror initialize q/w --if-absent")["existed"], true);
    let address = b.json("peer status a")["address"].as_str().unwrap().to_owned();
    assert_eq!(b.json(&format!("peer join {address} --if-absent"))["existed"], true);
    // What was begun without waiting can be waited for.
    b.ok("mirror update q/w --no-wait");
    assert!(b.ok("mirror wait q/w").contains("q/w holds"));
    assert!(a.fails(3, "mirror wait p/w").contains("nothing was asked for"));
}

#[test]
fn invitations_are_listed_and_taken_back() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    assert!(a.ok("peer invite --list").contains("no invitation"));
    let (first, second) = (a.json("peer invite"), a.json("peer invite --valid 1h"));
    let open = a.json("peer invite --list");
    let ids: Vec<_> = open.as_array().unwrap().iter().map(|open| open["id"].clone()).collect();
    assert_eq!(ids, [first["id"].clone(), second["id"].clone()]);
    let secret = first["code"].as_str().unwrap();
    assert!(!open.to_string().contains(secret), "the list tells no code");
    let cancel = format!("peer invite --cancel {}", first["id"].as_str().unwrap());
    assert!(a.ok(&cancel).contains("taken back"));
    assert!(a.fails(3, &cancel).contains("no invitation is called"));
    let join = |code: &str, status: i32| {
        let file = root.path().join("code");
        std::fs::write(&file, code).unwrap();
        let joined =
            b.farside(&format!("peer join {} --code-file {}", a.published("peer.addr"), file.display()));
        let said = text(&joined.stdout) + &text(&joined.stderr);
        assert_eq!(joined.status.code(), Some(status), "{said}");
        said
    };
    assert!(join(secret, 1).contains("took this invitation back"));
    join(second["code"].as_str().unwrap(), 0);
    // Once more, with a used code or a new one: it is said that there is nothing to do, and the new one stays good.
    eventually("they are connected", || b.json("peer status a")["state"] == "connected");
    let third = a.json("peer invite");
    for code in [&second, &third] {
        assert!(join(code["code"].as_str().unwrap(), 4).contains("a is paired already"));
    }
    assert_eq!(a.json("peer invite --list")[0]["id"], third["id"]);
    // Rights in a line each; a flag that was not given again is said to be gone.
    let said = b.ok("peer allow a q/v q/w --reverse --fence");
    // And two that say that the pool is not there.
    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(said.contains("a may mirror q/v, and the way back; it is fenced here"), "{said}");
    let said = b.ok("peer allow a q/v");
    assert!(said.contains("the way back, which it had, is taken back"), "{said}");
    assert!(b.ok("peer deny a q/v").contains("a may not mirror q/v"));
    let said = b.ok("site set --throttle-out 20Mbit/s,08:00-18:00=5Mbit/s");
    assert!(said.contains("20Mbit/s,08:00-18:00=5Mbit/s") && said.contains("bit/s)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// From the first moment without its peer to the last a mirror says the same word, since when and why.
#[test]
fn one_word_while_the_peer_is_away() {
    let mut pair = Pair::start();
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    assert!(pair.b.ok("mirror set q/v --every 1s").contains("q/v: updated every 1s"));
    assert!(pair.b.http("/readyz").contains("200 OK"));
    pair.a.kill();
    let killed = farside_api::Timestamp::now();
    let b = &pair.b;
    eventually("it is seen", || b.json("peer status a")["state"] == "disconnected");
    assert!(b.ok("peer list").contains("WHY"));
    // Since it was last heard, and not since it was given up.
    let heard = b.json("peer status a")["last_heard_at"].as_str().unwrap().to_owned();
    let heard: farside_api::Timestamp = heard.parse().unwrap();
    // What was in its sockets may be read a moment later.
    assert!(heard.as_second() <= killed.as_second() + 1, "heard at {heard}, killed at {killed}");
    let since = format!("no session with a since {}: ", heard.strftime("%Y-%m-%dT%H:%M:%SZ"));
    assert!(b.ok("status").contains("1 replica waits for its peer"), "{}", b.ok("status"));
    for _ in 0..30 {
        let mirror = status(b, "q/v");
        assert_eq!(mirror["state"], "queued", "{mirror}");
        assert!(mirror["why"].as_str().unwrap().starts_with(&since), "{mirror}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let page = b.http("/metrics");
    for series in [
        "farside_mirror_transfers_total{mirror=\"q/v\",result=\"failed\"}",
        "farside_mirror_transfers_total{mirror=\"q/v\",result=\"aborted\"} 0",
        "farside_mirror_copied{mirror=\"q/v\"} 1",
    ] {
        assert!(page.contains(series), "{series} in {page}");
    }
}

/// What a person asked for goes on after a restart, where no schedule takes it up; what a person ended does not.
#[test]
fn a_first_copy_that_a_restart_cut_goes_on() {
    const BYTES: u64 = 16 << 20;
    let (mut pair, relay) = Pair::through_relay();
    pair.mirror(BYTES);
    let mut bytes = vec![0; BYTES as usize];
    StdRng::seed_from_u64(seed()).fill_bytes(&mut bytes);
    let mut host = pair.a.nbd("p/v");
    host.write(0, &bytes[..BYTES as usize / 2]).unwrap();
    host.write(BYTES / 2, &bytes[BYTES as usize / 2..]).unwrap();
    host.flush().unwrap();
    drop(host);
    relay.limit(Some(4 << 20));
    let staged = |b: &Site| b.json("pool status q")["staged_bytes"].as_u64().unwrap_or(0);
    let begin = |pair: &Pair| {
        let already = staged(&pair.b);
        pair.b.ok("mirror initialize q/v --no-wait");
        eventually("some of it is staged", || staged(&pair.b) > already);
    };
    begin(&pair);
    pair.b.ok("mirror abort q/v");
    eventually("it has ended", || status(&pair.b, "q/v")["state"] == "uninitialized");
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    eventually("they meet", || pair.b.json("peer status a")["state"] == "connected");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(status(&pair.b, "q/v")["state"], "uninitialized", "a person has ended it");

    begin(&pair);
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    let history = pair.b.json("mirror history q/v");
    assert!(history[0]["reason"].as_str().unwrap().contains("the daemon was stopped"), "{history}");
    eventually("it goes on by itself", || status(&pair.b, "q/v")["state"] == "initializing");
    pair.b.kill();
    pair.b.restart();
    relay.limit(None);
    eventually("it is there", || status(&pair.b, "q/v")["state"] == "mirrored");
    assert!(pair.b.nbd("q/v").read_all() == bytes);
}

#[test]
fn what_stands_in_the_way_is_said_at_once_and_by_name() {
    let mut pair = Pair::start();
    pair.mirror(1 << 20);
    pair.a.ok("volume create p/w --size 1M");
    pair.a.ok("peer allow b p/w --reverse");
    pair.b.ok("mirror create a:p/w q/w");
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror initialize q/w");
    let host = pair.a.nbd("p/w");
    let said = pair.a.ok("pool delete p --plan");
    for part in ["p/v is mirrored by b", "p/w is mirrored by b", "1 NBD connection to its volumes", "uid "] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let said = pair.b.fails(4, "mirror swap q/w --yes");
    let of_this = format!("pid {}", std::process::id());
    assert!(said.contains("1 NBD connection that may write to p/w") && said.contains(&of_this), "{said}");
    drop(host);
    // A pool that is not there: nobody quiesced its mirrors, and it is forgotten, not deleted.
    assert_eq!(pair.b.stop(), Some(0));
    let (here, away) = (pair.root.path().join("q.pool"), pair.root.path().join("away.pool"));
    std::fs::rename(&here, &away).unwrap();
    pair.b.restart();
    let mirror = status(&pair.b, "q/v");
    assert_eq!(mirror["state"], "queued", "{mirror}");
    assert!(mirror["why"].as_str().unwrap().contains("it waits for pool q"), "{mirror}");
    assert!(pair.b.ok("volume list").contains("pool q is not open"));
    let said = pair.b.ok("pool delete q --plan");
    assert!(said.contains("forget pool q") && said.contains("schedules, retention and limits"), "{said}");
    assert!(said.contains("Nothing is at") && !said.contains("stays as it is"), "{said}");
    assert!(!pair.b.http("/metrics").contains("farside_mirror_copied"));
    pair.b.ok(&format!("pool import q --path {}", away.display()));
    assert!(pair.b.ok("volume list").contains("q/v"));
}

#[test]
fn a_configuration_is_checked_beside_a_daemon_that_runs() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    let check = |lines: &str| {
        std::fs::write(site.dir.join("farside.toml"), lines).unwrap();
        let checked = std::process::Command::new(env!("CARGO_BIN_EXE_farsided"))
            .args(["--check", "--data-dir"])
            .arg(&site.dir)
            .output()
            .unwrap();
        (checked.status.code(), text(&checked.stdout) + &text(&checked.stderr))
    };
    let (code, said) = check("[budgets]\nreserve_percent = 20\n");
    assert!(code == Some(0) && said.contains("is right"), "{said}");
    let (code, said) = check("[budgets]\nreserve_percentage = 20\n");
    assert!(code != Some(0) && said.contains("reserve_percentage"), "{said}");
    let (code, said) = check("[nbd]\nlisten = \"0.0.0.0:10809\"\ntls = \"off\"\n");
    assert!(code != Some(0) && said.contains("loopback addresses only"), "{said}");
    let (code, said) = check("[alarms]\ncommand = [\"/nowhere/tell\"]\n");
    assert!(
        code == Some(0) && said.contains("warning: [alarms]") && said.contains("/nowhere/tell"),
        "{said}"
    );
    site.ok("site status");
    // A directory that is mistyped has no configuration, and is not made.
    let absent = root.path().join("absent");
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_farsided"))
        .args(["--check", "--data-dir"])
        .arg(&absent)
        .output()
        .unwrap();
    let said = text(&checked.stdout) + &text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("does not exist") && !said.contains("is right") && !absent.exists(), "{said}");
}

/// What asks for a plan where there is none is not carried out, and neither is what nobody would read.
#[test]
fn a_request_with_a_parameter_that_nothing_reads_does_nothing() {
    let pair = Pair::start();
    pair.mirror(1 << 20);
    let post = |path: &str, body: &str| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--unix-socket"]).arg(pair.b.dir.join("farside.sock"));
        curl.args(["--json", body, &format!("http://localhost/api/v1{path}")]);
        text(&curl.output().unwrap().stdout)
    };
    let said = post("/mirrors/q/v/quiesce?plan=true", "{}");
    assert!(said.contains("this request has no plan; nothing was done"), "{said}");
    assert_eq!(status(&pair.b, "q/v")["state"], "uninitialized", "and not quiesced");
    let said = post("/mirrors/q/v/set?plan=true", "{\"every_seconds\":9}");
    assert!(said.contains("change q/v"), "{said}");
    assert!(status(&pair.b, "q/v")["schedule"].is_null());
    let said = post("/mirrors?dry_run=1", "{\"source\":\"a:p/v\",\"destination\":\"q/w\"}");
    assert!(said.contains("no parameter") && said.contains("dry_run"), "{said}");
    assert!(pair.b.json("volume list").as_array().unwrap().len() == 1);
    let said = post("/mirrors/q/v/break?plan=true", "{}");
    assert!(said.contains("would"), "{said}");
}

/// A plan calls lost what is gone once the mirror has had its next update.
#[test]
fn a_plan_does_not_count_on_what_a_mirror_lets_go() {
    let pair = Pair::start();
    pair.mirror(4 << 20);
    let mut host = pair.a.nbd("p/v");
    host.write(0, &[7; 1 << 20]).and_then(|()| host.write(3 << 20, &[9; 1 << 20])).unwrap();
    host.flush().unwrap();
    drop(host);
    pair.b.ok("mirror initialize q/v");
    let plan = pair.a.json("volume resize p/v --size 2M --plan");
    assert_eq!(plan["lost_bytes"], 1 << 20, "{plan}");
    pair.a.ok("snapshot create p/v@mine");
    let plan = pair.a.json("volume resize p/v --size 2M --plan");
    assert_eq!(plan["lost_bytes"], 0, "{plan}");
    // What somebody holds goes with no pool.
    pair.a.ok("snapshot hold p/v@mine");
    assert!(pair.a.ok("pool delete p --plan").contains("p/v@mine is held"));
    // The source says how old the replica is, and that nothing comes to it.
    let lag = status(&pair.a, "p/v")["lag_seconds"].as_f64().unwrap();
    assert!(lag > 0.0 && lag < 60.0, "{lag}");
    let said = pair.a.ok("mirror check");
    assert!(said.contains("furthest behind is b:q/v"), "{said}");
    assert!(
        pair.a
            .http("/metrics")
            .contains("farside_mirror_source_lag_seconds{mirror=\"p/v\",replica=\"b:q/v\"}")
    );
    assert!(pair.a.fails(1, "mirror check --max-lag 0.001s").contains("behind, more than"));
}

#[test]
fn what_was_never_copied_is_empty_and_who_goes_says_what_depended_on_it() {
    let pair = Pair::start();
    pair.mirror(1 << 20);
    let said = pair.b.ok("mirror promote q/v");
    assert!(said.contains("EMPTY") && said.contains("farside mirror delete q/v"), "{said}");
    pair.b.ok("mirror delete q/v");
    pair.b.ok("volume delete q/v --yes");
    pair.b.ok("mirror create a:p/v q/v --every 1s");
    pair.b.ok("mirror initialize q/v");
    let far = pair.a.fails(3, "mirror update q/v");
    assert!(far.contains("q/v is at b"), "{far}");
    let said = pair.b.ok("peer remove a");
    assert!(said.contains("peer a removed") && said.contains("q/v"), "{said}");
    let mirror = status(&pair.b, "q/v");
    assert!(mirror["why"].as_str().unwrap().contains("not paired any more"), "{mirror}");
    let said = pair.b.fails(4, "mirror update q/v");
    assert!(said.contains("not paired any more") && said.contains("farside peer rekey"), "{said}");
    pair.b.ok("mirror delete q/v");
    let said = pair.b.fails(3, "mirror create a:p/v q/v");
    assert!(said.contains("peer a does not exist"), "{said}");
}

/// A script that makes sure of an interval every few seconds does not put its mirror off for ever; and where nothing is updated, no answer
/// says that something is.
#[test]
fn what_is_set_again_goes_on_and_what_stands_still_is_not_said_to_be_updated() {
    let pair = Pair::start();
    pair.mirror(1 << 20);
    let b = &pair.b;
    let never = "nothing is updated until farside mirror initialize q/v";
    for command in ["mirror set q/v --every 1h", "mirror resume q/v"] {
        let said = b.ok(command);
        assert!(said.contains(never), "{said}");
    }
    b.ok("mirror initialize q/v");
    for _ in 0..10 {
        b.ok("mirror set q/v --every 2s");
        std::thread::sleep(Duration::from_millis(500));
    }
    let history = b.json("mirror history q/v");
    assert!(history.as_array().unwrap().len() > 1, "{history}");
    b.ok("mirror quiesce q/v");
    eventually("it is quiet", || status(b, "q/v")["state"] == "quiesced");
    let said = b.ok("mirror set q/v --every 1h");
    assert!(said.contains("updated every 1h") && said.contains("until farside mirror resume q/v"), "{said}");
    assert!(b.ok("mirror resume q/v").contains("q/v is updated again, every 1h"));
    b.ok("mirror break q/v --yes");
    let said = b.ok("mirror set q/v --every 2h");
    assert!(said.contains("until farside mirror resync q/v"), "{said}");
    let said = b.fails(4, "mirror resume q/v");
    assert!(said.contains("broken off") && said.contains("farside mirror resync"), "{said}");
    let said = b.fails(4, "mirror create a:p/v q/v --if-absent");
    assert!(said.contains("it is broken off from a:p/v"), "{said}");
    // That is said first also where settings differ, which a script would only set.
    let said = b.fails(4, "mirror create a:p/v q/v --every 5m --if-absent");
    let differs =
        "differs: it is broken off from a:p/v, and hosts may write to q/v; its schedule is every 2h";
    assert!(said.contains(differs) && said.contains("and not every 5m. Nothing was changed"), "{said}");
}

/// A pairing that the other side has ended is none: a script pairs anew, and what was said of the session goes when there is one.
#[test]
fn a_pairing_that_is_dead_is_made_anew() {
    let pair = Pair::dialled_by_b();
    pair.mirror(1 << 20);
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror initialize q/v");
    a.ok("peer remove b --yes");
    let why = |site: &Site, volume: &str| status(site, volume)["why"].as_str().unwrap_or_default().to_owned();
    assert!(why(a, "p/v").contains("its peer was removed here"), "{}", why(a, "p/v"));
    let knows = || b.json("peer status a")["why"].as_str().unwrap_or_default().contains("does not know");
    eventually("it is told", knows);
    b.fails(1, "mirror update q/v --timeout 1s");
    assert!(why(b, "q/v").contains("no session with the peer"), "{}", why(b, "q/v"));
    let said = b.fails(1, "mirror wait q/v");
    assert!(said.contains("the last update of q/v that was asked for failed at "), "{said}");
    let code = pair.root.path().join("code");
    std::fs::write(&code, a.ok("peer invite")).unwrap();
    let address = a.published("peer.addr");
    let joined = b.json(&format!("peer join {address} --if-absent --code-file {}", code.display()));
    assert_eq!(joined["existed"], false, "{joined}");
    eventually("they are connected", || b.json("peer status a")["state"] == "connected");
    assert_eq!(why(b, "q/v"), "");
}

/// Whoever gives up a first copy has taken nothing over: the original is nobody's, its hosts write on, and it can be mirrored again.
#[test]
fn a_first_copy_that_was_given_up_overtakes_nobody() {
    const BYTES: u64 = 8 << 20;
    let (pair, relay) = Pair::through_relay();
    pair.mirror(BYTES);
    pair.a.ok("peer allow b p/v --fence");
    let mut bytes = vec![0; BYTES as usize];
    StdRng::seed_from_u64(seed()).fill_bytes(&mut bytes);
    let mut host = pair.a.nbd("p/v");
    host.write(0, &bytes).unwrap();
    host.flush().unwrap();
    drop(host);
    relay.limit(Some(1 << 20));
    pair.b.ok("mirror initialize q/v --no-wait");
    eventually("some of it is staged", || pair.b.json("pool status q")["staged_bytes"].as_u64() > Some(0));
    // What is refused leaves nothing that a break would take for a version.
    let said = pair.b.fails(4, "mirror resync q/v --whole --yes");
    assert!(said.contains("farside mirror initialize"), "{said}");
    assert_eq!(pair.b.json("snapshot list q/v"), serde_json::json!([]));
    let said = pair.b.ok("mirror break q/v --yes");
    assert!(said.contains("EMPTY"), "{said}");
    relay.limit(None);
    let why = status(&pair.b, "q/v")["why"].to_string();
    assert!(why.contains("no copy of a:p/v had arrived whole"), "{why}");
    let plan = pair.b.json("mirror swap q/v --plan");
    assert!(plan["refused"].as_str().unwrap_or_default().contains("mirror delete q/v"), "{plan}");
    eventually("the source has let go", || pair.a.json("mirror destinations").as_array().unwrap().is_empty());
    assert!(!pair.a.nbd("p/v").read_only, "its hosts write on");
    pair.b.ok("mirror delete q/v");
    pair.b.ok("mirror create a:p/v q/v");
    pair.b.ok("mirror initialize q/v");
    assert!(status(&pair.a, "p/v")["overtaken"].is_null());
    // The other way round there would be no original.
    pair.a.ok("volume create p/empty --size 1M");
    pair.a.ok("peer allow b p/empty");
    pair.b.ok("mirror create a:p/empty q/empty");
    pair.b.ok("peer allow a q/empty");
    let said = text(&pair.a.farside("mirror create b:q/empty p/empty").stderr);
    assert!(said.contains("circle without an original") && said.contains("b:q/empty"), "{said}");
    assert!(!pair.a.nbd("p/empty").read_only);
    // Typed at the wrong site it would make a copy of that copy, beside the original.
    let said = pair.a.fails(2, "mirror create b:q/empty p/other");
    assert!(
        said.contains("b:q/empty is itself a replica of p/empty here") && said.contains("--yes"),
        "{said}"
    );
    pair.a.fails(3, "volume status p/other");
    pair.a.ok("mirror create b:q/empty p/other --yes");
}
