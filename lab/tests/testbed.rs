//! The test bed as a person meets it, through the program: packets from end to end and what the counters say of them, what
//! is left after kills, two laboratories at once, and what it refuses. Needs root and `/dev/net/tun`.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

#[path = "testbed/place.rs"]
mod place;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use place::{LIMIT, Place, eventually, wait_within};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

/// IP and ICMP headers and the 56 bytes that ping sends.
const PING_BYTES: u64 = 84;

/// Packets that went in, their bytes, and packets that came out.
fn passed(direction: &Value) -> (u64, u64, u64) {
    let number = |name: &str| direction[name].as_u64().unwrap_or(0); // what is zero is not written
    assert_eq!(number("lost") + number("dropped_queue") + number("device_drops"), 0, "{direction}");
    (number("packets_in"), number("bytes_in"), number("packets_out"))
}

fn pings(count: u64) -> (u64, u64, u64) {
    (count, count * PING_BYTES, count)
}

/// A script of so many pings to ADDRESS. The last goes alone and its answer is waited for: of several, ping gives up the
/// last two round trips after it was sent, and the counters would miss an answer that comes later.
fn ping(count: u64, address: &str) -> String {
    format!("ping -q -c {} -i 0.01 {address}; ping -q -c 1 -W {} {address}", count - 1, LIMIT.as_secs())
}

#[test]
fn sites_ping_each_other_and_the_counters_have_these_packets_alone() {
    let Some(place) = Place::with_root() else { return };
    let counters = place.wan("--rtt 4ms", &ping(13, "$B_ADDR"));
    assert_eq!(passed(&counters[0]["forward"]), pings(13));
    assert_eq!(passed(&counters[0]["back"]), pings(13));
    let counters = place.wan("--rtt 4ms --at b", &ping(3, "$A_ADDR"));
    assert_eq!(passed(&counters[0]["back"]), pings(3));
    place.assert_nothing_left(&[]);
}

#[test]
fn a_place_may_have_a_name_that_needs_quotes_everywhere() {
    if Place::with_root().is_none() {
        return;
    }
    let place = Place { dir: tempfile::Builder::new().prefix("a b'c").tempdir().unwrap() };
    let counters = place.wan("--rtt 4ms", &ping(2, "$B_ADDR"));
    assert_eq!(passed(&counters[0]["back"]), pings(2));
}

#[test]
fn each_of_two_paths_carries_what_is_sent_to_its_address() {
    let Some(place) = Place::with_root() else { return };
    let script = format!("set -- $B_ADDRS; {}; {}", ping(5, "$1"), ping(9, "$2"));
    let counters = place.wan("--paths 2", &script);
    assert_eq!(passed(&counters[0]["forward"]), pings(5));
    assert_eq!(passed(&counters[1]["forward"]), pings(9));
    assert_eq!(passed(&counters[1]["back"]), pings(9));
}

#[test]
fn hosts_behind_the_sites_reach_each_other_over_the_link_and_the_sites_forward() {
    let Some(place) = Place::with_root() else { return };
    let script = format!(
        "exec nsenter --net=$CLIENT_NETNS sh -ec '{}; ping -q -c 1 -W 10 198.19.2.1'",
        ping(7, "$SERVER_ADDR")
    );
    let counters = place.wan("--hosts --rtt 4ms", &script);
    // From the client behind b to the server behind a; what goes to its own router is not on the link.
    assert_eq!(passed(&counters[0]["back"]), pings(7));
    assert_eq!(passed(&counters[0]["forward"]), pings(7));
    place.assert_nothing_left(&[]);
}

#[test]
fn hosts_have_the_congestion_control_and_the_buffers_that_were_asked_for() {
    let Some(place) = Place::with_root() else { return };
    // Whatever the machine's default is, a connection over the link uses the one that was named, at both ends.
    for congestion in ["reno", "cubic"] {
        let script = format!(
            "nsenter --net=$B_NETNS nc -l 9000 >/dev/null & server=$!\n\
             until nsenter --net=$B_NETNS ss -ltnH | grep -q :9000; do sleep 0.01; done\n\
             sleep 1000 | nc $B_ADDR 9000 & \n\
             until ss -tinH | grep -q {congestion}; do sleep 0.01; done\n\
             until nsenter --net=$B_NETNS ss -tinH | grep -q {congestion}; do sleep 0.01; done\n\
             test $(cut -f 3 /proc/sys/net/ipv4/tcp_rmem) = 9000000\n\
             test $(cut -f 3 /proc/sys/net/ipv4/tcp_wmem) = 7000000\n\
             test $(cat /proc/sys/net/ipv4/tcp_no_metrics_save) = 1"
        );
        if place.has_tools(&["nc", "ss"]) {
            place.wan(
                &format!("--congestion {congestion} --tcp-rmem-max 9MB --tcp-wmem-max 7MB"),
                &format!("timeout {} bash -euc '{script}'", LIMIT.as_secs()),
            );
        }
    }
    let refused = place.command("wan --congestion nosuch -- true").output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("no congestion control nosuch") && said.contains("reno"), "{said}");
    place.assert_nothing_left(&[]);
}

#[test]
fn the_commands_status_and_input_pass_and_orphans_go() {
    let Some(place) = Place::with_root() else { return };
    for (script, status) in [("exit 7", 7), ("kill -9 $$", 128 + 9), ("exit 0", 0)] {
        let ended = place.command("wan --json -- sh -c").arg(script).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{script}");
    }
    let mut child = place.command("wan -- cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"through");
    // What the command leaves in a session of its own ends with the run.
    place.wan("", "setsid -f sleep 1000; echo done");
    place.assert_nothing_left(&[]);
}

#[test]
fn a_signal_stops_it_in_order_and_nothing_is_left() {
    let Some(place) = Place::with_root() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut lab = place.start_with_everything();
        let inside = lab.wait_until_up();
        lab.signal(signal);
        let status = wait_within(&mut lab.child, LIMIT);
        // The command was ended by SIGTERM; the laboratory told its counters afterwards.
        assert_eq!(status.code(), Some(128 + 15), "{signal}");
        assert!(lab.output().contains("lateness"), "{signal}");
        place.assert_nothing_left(&inside);
    }
    // Without a command, the signal is the way to end it.
    let child = place.command("wan --json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lab = place.watch(child);
    let told = lab.read_line_with("nsenter");
    let inside = lab.inside();
    // What it tells about the way into site a is true: a command put in the shell's place runs there.
    let entrance = told[told.find("nsenter").unwrap()..].trim().strip_suffix(" bash").unwrap();
    let entered = std::process::Command::new("sh")
        .args(["-c", &format!("{entrance} ip -br address")])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&entered.stdout).contains("198.18.0.1 peer 198.18.0.2"), "{entered:?}");
    lab.signal(Signal::SIGINT);
    assert_eq!(wait_within(&mut lab.child, LIMIT).code(), Some(0));
    assert!(lab.output().contains("lateness"));
    place.assert_nothing_left(&inside);
}

#[test]
fn two_at_once_do_not_see_each_other_and_a_start_leaves_the_living_alone() {
    let Some(place) = Place::with_root() else { return };
    // Each waits for the other to be up, so that they are there at the same time, with the same addresses.
    let script = |own: &str, other: &str, count: u64| {
        let dir = place.dir.path().display();
        format!(
            "touch {dir}/{own}; until test -e {dir}/{other}; do sleep 0.01; done; \
             {} && touch {dir}/{own}-done; until test -e {dir}/end; do sleep 0.01; done",
            ping(count, "$B_ADDR")
        )
    };
    thread::scope(|scope| {
        let one = scope.spawn(|| place.wan("--rtt 4ms", &script("one", "two", 11)));
        let two = scope.spawn(|| place.wan("--rtt 4ms", &script("two", "one", 17)));
        eventually("both have pinged", || {
            ["one-done", "two-done"].iter().all(|name| place.dir.path().join(name).exists())
        });
        assert_eq!(place.runs().len(), 2);
        let clean = place.command("clean --json").output().unwrap();
        let removed = String::from_utf8(clean.stdout).unwrap();
        assert!(place.runs().iter().all(|run| !removed.contains(run)), "of the living: {removed}");
        place.wan("", "true");
        assert_eq!(place.runs().len(), 2, "and only the third has gone");
        fs::write(place.dir.path().join("end"), "").unwrap();
        assert_eq!(passed(&one.join().unwrap()[0]["forward"]), pings(11));
        assert_eq!(passed(&two.join().unwrap()[0]["forward"]), pings(17));
    });
    place.assert_nothing_left(&[]);
}

/// Which of the three processes is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Outer,
    Init,
    Inner,
}

#[test]
fn after_kill_9_the_next_start_leaves_nothing_of_it() {
    let Some(place) = Place::with_root() else { return };
    let seed = std::env::var("FARSIDE_LAB_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| StdRng::from_os_rng().random());
    eprintln!("FARSIDE_LAB_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for victim in [Victim::Outer, Victim::Init, Victim::Inner] {
        for round in 0..4 {
            let begun = Instant::now();
            let mut lab = place.start_with_everything();
            // Half of them somewhere on the way up, which takes some 100 ms; half with everything there.
            let inside = if round % 2 == 0 {
                thread::sleep(Duration::from_millis(random.random_range(0..150)));
                lab.inside()
            } else {
                let inside = lab.wait_until_up();
                thread::sleep(Duration::from_millis(random.random_range(0..30)));
                inside
            };
            let Some(pid) = (match victim {
                Victim::Outer => Some(lab.child.id()),
                Victim::Init => lab.init(),
                Victim::Inner => lab.inner(),
            }) else {
                // Not there yet: the outer one then.
                lab.signal(Signal::SIGKILL);
                wait_within(&mut lab.child, LIMIT);
                place.assert_gone_after_next_start(&inside);
                continue;
            };
            place::send(pid, Signal::SIGKILL);
            let status = wait_within(&mut lab.child, LIMIT);
            match victim {
                Victim::Outer => assert_eq!(status.signal(), Some(9)),
                Victim::Init | Victim::Inner => {
                    assert_eq!(status.code(), Some(128 + 9), "{victim:?} round {round}")
                }
            }
            if !matches!(victim, Victim::Outer) {
                // The outer process was there to remove what is on disk.
                place.assert_nothing_left(&inside);
            }
            place.assert_gone_after_next_start(&inside);
            eprintln!("{victim:?} {round}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn clean_says_what_it_removed() {
    let Some(place) = Place::with_root() else { return };
    let mut lab = place.start_with_everything();
    let inside = lab.wait_until_up();
    let run = place.runs().pop().unwrap();
    lab.signal(Signal::SIGKILL);
    wait_within(&mut lab.child, LIMIT);
    let clean = place.command("clean --json").output().unwrap();
    assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stderr));
    let removed: Value = serde_json::from_slice(&clean.stdout).unwrap();
    let of = |what: &str| removed.as_array().unwrap().iter().filter(|one| one["what"] == what).count();
    assert_eq!(of("directory"), 1, "{removed}");
    assert!(removed.to_string().contains(&run), "{removed}");
    if place.has_tools(&["mkfs.ext4"]) {
        assert!(of("loop device") > 0, "{removed}");
    }
    place.assert_nothing_left(&inside);
    let again = place.command("clean").output().unwrap();
    assert!(again.status.success() && !String::from_utf8_lossy(&again.stdout).contains(&run));
}

#[test]
fn without_root_or_namespaces_it_says_what_is_missing_and_touches_nothing() {
    let Some(place) = Place::with_root() else { return };
    if !place.has_tools(&["setpriv"]) {
        return;
    }
    let said = |arguments: &str| {
        let refused = place.as_nobody(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        String::from_utf8(refused.stderr).unwrap()
    };
    for arguments in ["wan -- true", "clean"] {
        let said = said(arguments);
        assert!(said.contains("needs root") && said.contains("sudo"), "{said}");
    }
    assert!(!place.work().exists(), "nothing was made");
    let mut confined = std::process::Command::new("setpriv");
    confined.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]).arg(place::PROGRAM);
    let refused =
        confined.args(["wan", "--", "true"]).env("FARSIDE_LAB_CACHE", place.dir.path()).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("namespace of its own") && said.contains("--cap-add SYS_ADMIN"), "{said}");
    place.assert_nothing_left(&[]);
}

#[test]
fn a_terminal_is_still_one_inside() {
    let Some(place) = Place::with_root() else { return };
    if !place.has_tools(&["script"]) {
        return;
    }
    let mut script = std::process::Command::new("script");
    let inner =
        format!("{} wan -- sh -c 'test -t 0 && test -t 1 && test -t 2 && echo all three'", place::PROGRAM);
    let output = script
        .args(["-qec", &inner, "/dev/null"])
        .env("FARSIDE_LAB_CACHE", place.dir.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("all three"), "{output:?}");
    assert!(output.status.success());
}

#[test]
fn ctrl_c_on_a_terminal_stops_in_order_and_a_second_one_at_once() {
    let Some(place) = Place::with_root() else { return };
    if !place.has_tools(&["script"]) {
        return;
    }
    for (trap, twice) in [("exit 5", false), ("", true)] {
        let up = place.dir.path().join("up");
        let _: std::io::Result<()> = fs::remove_file(&up);
        // `trap ''` does not listen to the first one; the command would stay until it is ended.
        let command = format!("trap '{trap}' INT TERM; touch {}; while :; do sleep 0.05; done", up.display());
        let inner = format!("exec {} wan --json -- bash -c \"{command}\"", place::PROGRAM);
        let mut script = std::process::Command::new("script");
        script.args(["-qefc", &inner, "/dev/null"]).env("FARSIDE_LAB_CACHE", place.dir.path());
        let child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lab = place.watch(child);
        eventually("the command runs", || up.exists());
        let inside = place.inside_of_runs();
        // One that hangs is what the second one is for; and it cannot end in order before that is typed.
        if twice {
            place.send_to_workers(Signal::SIGSTOP);
        }
        // The terminal's line discipline makes a signal of it for everybody in the foreground.
        lab.type_in(b"\x03");
        if twice {
            // Two that nobody has looked at yet are one to the kernel.
            lab.read_until("Ctrl-C once more");
            lab.type_in(b"\x03");
        }
        let status = wait_within(&mut lab.child, LIMIT);
        if twice {
            assert_eq!(status.code(), Some(130));
            assert!(!lab.output().contains("lateness"), "it did not wait for the counters");
        } else {
            assert_eq!(status.code(), Some(5), "the command's own status");
            assert!(lab.output().contains("lateness"));
        }
        place.assert_nothing_left(&inside);
    }
}
