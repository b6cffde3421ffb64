//! Limits as an administrator sets them: said, shown, refused in words, kept, and heeded by transfers under way.

use std::time::{Duration, Instant};

use crate::support::{Pair, Site, eventually, seed, status};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

#[test]
fn limits_are_shown_refused_in_words_and_kept() {
    let mut pair = Pair::start();
    pair.a.ok("volume create p/v --size 4M");
    pair.a.ok("peer allow b p/v");
    let open = json!({"rules": "unlimited", "bytes_per_second": null});
    let site = pair.b.json("site status");
    assert_eq!((&site["throttle_in"], &site["throttle_out"]), (&open, &open), "nothing limits by default");
    let made = pair.b.json("mirror create a:p/v q/v --throttle 4MB/s --window 72K --priority low");
    assert_eq!(made["throttle"], 4_000_000);
    let link = json!({"throttle": "4MB/s", "window_bytes": 73_728, "low_priority": true, "paths": []});
    assert_eq!(made["link"], link);

    for arguments in [
        "site set",
        "site set --throttle-in fast",
        "site set --throttle-out 4MB",
        "site set --throttle-out 1kB/s",
        "site set --throttle-in 8MB/s --throttle-out 4MB/s,noon=1MB/s",
        "peer set a --throttle-in 4MB/s,8-18=1MB/s",
        "peer set a --throttle-out 4MB/s,mon=1MB/s,zone=Nowhere/Land",
        "mirror set q/v --throttle 4MB/s,1MB/s",
        "mirror set q/v --window 1K",
        "mirror set q/v --window 1G",
        "mirror set q/v --window fast",
        "mirror set q/v --priority high",
        "mirror set q/v --path eth0=a:7440",
    ] {
        pair.b.fails(2, arguments);
    }
    let said = pair.b.fails(2, "site set --throttle-in 4MB");
    assert!(said.contains("4MB/s") && said.contains("unlimited"), "{said}");
    assert_eq!(pair.b.json("site status")["throttle_in"], open, "what was refused changed nothing");
    assert_eq!(status(&pair.b, "q/v")["link"], link);

    let rules = "4MB/s,mon-sun@00:00-24:00=1MB/s,zone=Europe/Berlin";
    let site = pair.b.json(&format!("site set --throttle-in 10Mbit/s --throttle-out {rules}"));
    assert_eq!(site["throttle_in"], json!({"rules": "10Mbit/s", "bytes_per_second": 1_250_000}));
    let kept = "4MB/s,00:00-24:00=1MB/s,zone=Europe/Berlin";
    assert_eq!(site["throttle_out"], json!({"rules": kept, "bytes_per_second": 1_000_000}));
    assert!(pair.b.ok("site status").contains("(now "));
    let peer = pair.b.json("peer set a --throttle-in 2MB/s --throttle-out unlimited");
    assert_eq!(peer["throttle_in"]["bytes_per_second"], 2_000_000);
    assert_eq!(peer["throttle_out"], open);
    let peer = pair.b.json("peer set a --rate 10Mb/s");
    assert_eq!(peer["link"]["rate_bytes_per_second"], 1_250_000);
    let committed = json!({"rules": "unlimited", "bytes_per_second": 1_250_000});
    assert_eq!(peer["throttle_out"], committed, "what holds now is the committed rate");
    assert_eq!(peer["throttle_in"]["bytes_per_second"], 2_000_000);
    let said = pair.b.ok("peer status a");
    assert!(said.contains("committed rate (CIR): 10 Mb/s") && said.contains("unlimited (now "), "{said}");
    let peer = pair.b.json("peer set a --throttle-out 1MB/s");
    assert_eq!(peer["throttle_out"], json!({"rules": "1MB/s", "bytes_per_second": 1_000_000}));
    pair.b.ok("peer set a --throttle-out unlimited");
    assert_eq!(pair.b.json("site status")["throttle_out"]["bytes_per_second"], 1_000_000, "the site's own");
    let port = pair.b.json("peer list")[0]["address"].as_str().unwrap().to_owned();
    let set = pair.b.json(&format!("mirror set q/v --window auto --priority normal --path 127.0.0.1={port}"));
    let link = json!({
        "throttle": "4MB/s", "window_bytes": null, "low_priority": false, "paths": [format!("127.0.0.1={port}")],
    });
    assert_eq!(set["link"], link, "what was not said stays");

    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    let site = pair.b.json("site status");
    assert_eq!(site["throttle_in"]["rules"], "10Mbit/s");
    assert_eq!(site["throttle_out"]["rules"], kept);
    let peer = pair.b.json("peer status a");
    assert_eq!(peer["throttle_in"]["rules"], "2MB/s");
    assert_eq!(peer["throttle_out"], committed);
    assert_eq!(pair.b.json("peer set a --rate unlimited")["throttle_out"], open);
    assert_eq!(status(&pair.b, "q/v")["link"], link);
    assert_eq!(pair.b.json("mirror set q/v --path off")["link"]["paths"], json!([]));
    assert_eq!(pair.b.json("mirror set q/v --throttle unlimited")["throttle"], Value::Null);
    pair.b.ok("mirror initialize q/v");
}

/// Sets one limit to a rate.
type Limit<'a> = &'a dyn Fn(&str);

#[test]
fn a_quiet_session_asks_as_seldom_as_one_side_says() {
    let mut pair = Pair::dialled_by_b();
    let (a, b) = (&pair.a, &pair.b);
    assert_eq!(b.json("peer status a")["link"]["keepalive_seconds"], Value::Null);
    for text in ["1s", "11m", "0s", "often"] {
        b.fails(2, &format!("peer set a --keepalive {text}"));
    }
    let connected =
        || a.json("peer status b")["state"] == "connected" && b.json("peer status a")["state"] == "connected";
    eventually("the session is up", connected);
    let sent = || {
        [(a, "b"), (b, "a")]
            .map(|(site, peer)| site.json(&format!("peer status {peer}"))["sent_bytes"].as_u64().unwrap())
    };
    let in_seconds = |seconds| {
        let before = sent();
        std::thread::sleep(Duration::from_secs(seconds));
        let after = sent();
        [after[0] - before[0], after[1] - before[1]]
    };
    assert!(in_seconds(5).iter().all(|bytes| *bytes > 100), "each side is heard every 2 s");
    // The side that is dialled says it, and both keep to it.
    let set = a.json("peer set b --keepalive 5m");
    assert_eq!(set["link"]["keepalive_seconds"], 300.0);
    assert!(a.ok("peer status b").contains("every 5m00s"));
    // What answers the last ping.
    eventually("both are quiet", || in_seconds(5) == [0, 0]);
    assert!(connected());
    assert_eq!(pair.a.stop(), Some(0));
    pair.a.restart();
    assert_eq!(pair.a.json("peer status b")["link"]["keepalive_seconds"], 300.0, "over a restart");
    let back = pair.a.json("peer set b --keepalive 2s");
    assert_eq!(back["link"]["keepalive_seconds"], Value::Null);
}

/// Overwrites the volume `p/v` with what cannot be compressed.
fn overwrite(site: &Site, random: &mut StdRng) {
    fill(site, "p/v", random);
}

/// Overwrites a volume of 4 MiB.
fn fill(site: &Site, volume: &str, random: &mut StdRng) {
    let mut data = vec![0; 4 * MIB];
    random.fill_bytes(&mut data);
    let mut client = site.nbd(volume);
    for (number, part) in data.chunks(MIB).enumerate() {
        client.write((number * MIB) as u64, part).unwrap();
    }
    client.flush().unwrap();
}

#[test]
fn whoever_limits_a_transfer_under_way_heeds_it() {
    let mut random = StdRng::seed_from_u64(seed());
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    pair.mirror(4 << 20);
    b.ok("mirror initialize q/v");
    let of_mirror = |rate: &str| drop(b.ok(&format!("mirror set q/v --throttle {rate}")));
    let of_peer_in = |rate: &str| drop(b.ok(&format!("peer set a --throttle-in {rate}")));
    let of_site_in = |rate: &str| drop(b.ok(&format!("site set --throttle-in {rate}")));
    let of_peer_out = |rate: &str| drop(a.ok(&format!("peer set b --throttle-out {rate}")));
    let of_site_out = |rate: &str| drop(a.ok(&format!("site set --throttle-out {rate}")));
    let of_committed_rate = |rate: &str| drop(a.ok(&format!("peer set b --rate {rate}")));
    let limits: [(&str, Limit<'_>); 6] = [
        ("the mirror", &of_mirror),
        ("the peer, here", &of_peer_in),
        ("the site, here", &of_site_in),
        ("the peer, there", &of_peer_out),
        ("the site, there", &of_site_out),
        ("the committed rate, there", &of_committed_rate),
    ];
    for (who, limit) in limits {
        limit("200kB/s");
        overwrite(a, &mut random);
        let begun = Instant::now();
        b.ok("mirror update q/v --no-wait");
        let mut seen = 0;
        eventually("a part of it has come", || {
            let transfer = &status(b, "q/v")["transfer"];
            let Some(wire) = transfer["wire_bytes"].as_u64() else { return false };
            // However slow this machine is, time has passed by its clock. Beside the rate: what a limit may save up, and the
            // messages that do not wait.
            let most = (begun.elapsed().as_secs_f64() * 200_000.0) as u64 + 150_000;
            assert!(wire <= most, "{who}: {wire} bytes are more than {most}");
            seen = wire;
            wire >= 300_000
        });
        assert!(seen < 4 * MIB as u64, "{who}: the transfer is under way");
        limit("unlimited");
        eventually("it ends once it may", || status(b, "q/v")["transfer"].is_null());
        let last = &b.json("mirror history q/v")[0];
        assert_eq!(last["result"], "ok", "{who}: {last}");
        assert!(last["wire_bytes_received"].as_u64().unwrap() > 4 * MIB as u64, "{who}: {last}");
    }
}

#[test]
fn as_many_transfers_as_the_site_has_a_size_for_run_and_the_others_wait() {
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = Pair::start();
    let volumes = ["v0", "v1", "v2"];
    for volume in volumes {
        pair.a.ok(&format!("volume create p/{volume} --size 4M"));
        pair.a.ok(&format!("peer allow b p/{volume}"));
        pair.b.ok(&format!("mirror create a:p/{volume} q/{volume}"));
        fill(&pair.a, &format!("p/{volume}"), &mut random);
    }
    assert_eq!(pair.b.json("site status")["transfer_size"], 16);
    for size in ["0", "17", "all", "-1"] {
        pair.b.fails(2, &format!("site set --transfer-size {size}"));
    }
    let said = pair.b.fails(2, "site set --transfer-size 17");
    assert!(said.contains("1 to 16"), "{said}");
    // So slow that none of them ends by itself.
    let site = pair.b.json("site set --throttle-in 8kB/s --transfer-size 1");
    assert_eq!((&site["transfer_size"], &site["throttle_in"]["rules"]), (&json!(1), &json!("8kB/s")));
    let queue = |b: &Site| {
        let site = b.json("site status");
        ["transfers_under_way", "transfers_waiting"].map(|count| site[count].as_u64().unwrap())
    };
    let running = |b: &Site| volumes.map(|v| status(b, &format!("q/{v}"))["state"] == "initializing");
    for (waiting, volume) in volumes.iter().enumerate() {
        pair.b.ok(&format!("mirror initialize q/{volume} --no-wait"));
        eventually("it runs or waits", || queue(&pair.b) == [1, waiting as u64]);
    }
    eventually("one runs", || running(&pair.b) == [true, false, false]);
    assert_eq!(status(&pair.b, "q/v1")["state"], "queued");
    assert!(pair.b.ok("site status").contains("1 under way, 2 waiting"));
    let metrics = pair.b.http("/metrics");
    for figure in ["farside_transfers_under_way 1\n", "farside_transfers_waiting 2\n"] {
        assert!(metrics.contains(figure), "{figure}: {metrics}");
    }
    let path = pair.b.json("peer status a")["paths"][0].clone();
    let remote = path["remote"].as_str().unwrap();
    let name = path["local"].as_str().map_or_else(|| remote.to_owned(), |local| format!("{local}={remote}"));
    let up = format!("farside_path_up{{peer=\"a\",path=\"{name}\"}} 1\n");
    assert!(metrics.contains(&up), "{up}: {metrics}");
    let received =
        format!("farside_path_wire_bytes_total{{peer=\"a\",path=\"{name}\",direction=\"received\"}} ");
    let bytes = metrics.split(&received).nth(1).and_then(|rest| rest.lines().next()?.parse::<u64>().ok());
    assert!(bytes.is_some_and(|bytes| bytes > 0), "{received}: {metrics}");
    pair.b.ok("site set --transfer-size 2");
    eventually("the next begins", || queue(&pair.b) == [2, 1] && running(&pair.b) == [true, true, false]);
    pair.b.ok("site set --transfer-size 1");
    assert_eq!(queue(&pair.b), [2, 1], "what runs goes on");
    pair.b.ok("mirror abort q/v0");
    eventually("it has ended", || running(&pair.b) == [false, true, false]);
    assert_eq!(queue(&pair.b), [1, 1], "there are as many as may run");
    pair.b.ok("site set --throttle-in unlimited");
    eventually("all that were asked for and not given up end, one after the other", || {
        ["v1", "v2"].iter().all(|v| status(&pair.b, &format!("q/{v}"))["state"] == "mirrored")
    });
    assert_eq!(queue(&pair.b), [0, 0]);
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    assert_eq!(pair.b.json("site status")["transfer_size"], 1, "kept");
}

#[test]
fn how_far_hosts_go_before_transfers_is_shown_and_kept() {
    let mut pair = Pair::start();
    let site = pair.b.json("site status");
    assert_eq!((&site["host_precedence"], &site["held_back"]), (&json!("high"), &serde_json::Value::Null));
    let said = pair.b.fails(2, "site set --host-precedence most");
    assert!(said.contains("high (the default), fair or off"), "{said}");
    assert_eq!(pair.b.json("site set --host-precedence fair")["host_precedence"], "fair");
    assert!(pair.b.ok("site status").contains("fair"));
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    assert_eq!(pair.b.json("site status")["host_precedence"], "fair", "kept");
}

#[test]
fn a_limit_holds_over_a_restart_and_one_mirrors_is_not_the_others() {
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.a.ok("volume create p/w --size 4M");
    pair.a.ok("peer allow b p/w");
    pair.b.ok("mirror create a:p/w q/w");
    overwrite(&pair.a, &mut random);
    pair.b.ok("mirror set q/v --throttle 8kB/s");
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    let b = &pair.b;
    assert_eq!(status(b, "q/v")["throttle"], 8_000);
    let begun = Instant::now();
    b.ok("mirror initialize q/v --no-wait");
    b.ok("mirror initialize q/w");
    let wire = status(b, "q/v")["transfer"]["wire_bytes"].as_u64().unwrap();
    let most = (begun.elapsed().as_secs_f64() * 8_000.0) as u64 + 50_000;
    assert!(wire <= most, "{wire} bytes are more than {most}");
    b.ok("mirror set q/v --throttle unlimited");
    eventually("it ends once it may", || status(b, "q/v")["state"] == "mirrored");
}
