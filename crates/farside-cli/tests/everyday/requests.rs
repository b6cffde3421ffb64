//! How soon the API answers while a first copy runs: 100 requests a second over HTTPS, each on a connection of its own, handshake
//! included. For figures build with `--release`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use crate::figures::quantile;
use crate::support::api::Api;
use crate::support::{Pair, seed, status};

const MIB: u64 = 1 << 20;
const VOLUME: u64 = 3 << 30;
/// More mirrors, so that lists are lists.
const MIRRORS: usize = 30;
const EACH_SECOND: u64 = 100;
const SECONDS: u64 = 30;

#[test]
#[ignore = "two minutes"]
fn the_api_answers_soon_beside_a_first_copy() {
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = Pair::with_pools(8 << 30, 8 << 30);
    pair.b.stop();
    Api::configure(&pair.b, "");
    pair.b.restart();
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("volume create p/v --size {VOLUME}"));
    let mut host = a.nbd("p/v");
    let mut piece = vec![0; MIB as usize];
    for at in 0..VOLUME / MIB {
        random.fill_bytes(&mut piece);
        host.write(at * MIB, &piece).unwrap();
    }
    host.flush().unwrap();
    drop(host);
    a.ok("peer allow b p/v");
    for number in 0..MIRRORS {
        a.ok(&format!("volume create p/n{number} --size 4M"));
        a.ok(&format!("peer allow b p/n{number}"));
        b.ok(&format!("mirror create a:p/n{number} q/n{number}"));
        b.ok(&format!("mirror initialize q/n{number}"));
    }
    b.ok("mirror create a:p/v q/v");
    let secret = b.ok("token create looks --role viewer");
    let secret = secret.trim();
    let api = Api::of(b, "api-certificate.pem");
    let paths = [
        "mirrors",
        "mirrors?volume=q%2Fv",
        "volumes",
        "volumes/q/v",
        "pools",
        "peers",
        "site/status",
        "alarms",
        "snapshots",
        "volumes/q/n0/snapshots",
        "history?volume=q%2Fn0",
        "operations",
        "sites",
    ];
    let asked = |seconds: u64| {
        let (next, took) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= seconds * EACH_SECOND {
                            break;
                        }
                        // What waits for a thread here waited for the daemon.
                        let due = began + Duration::from_millis(number * 1000 / EACH_SECOND);
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        let path = paths[number as usize % paths.len()];
                        let answer = api.with(secret, "GET", &format!("/api/v1/{path}"), None);
                        assert_eq!(answer.status, 200, "{path}: {answer:?}");
                        took.lock().unwrap().push((path, due.elapsed().as_secs_f64() * 1e3));
                    }
                });
            }
        });
        took.into_inner().unwrap()
    };
    let say = |what: &str, took: &[(&str, f64)]| {
        let all: Vec<f64> = took.iter().map(|(_, ms)| *ms).collect();
        let at = |part| quantile(&all, part);
        println!(
            "{what}: {} requests, median {:.2}, p99 {:.2}, most {:.2} ms",
            all.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
        for path in paths {
            let of: Vec<f64> = took.iter().filter(|(of, _)| *of == path).map(|(_, ms)| *ms).collect();
            println!("  {path}: median {:.2}, p99 {:.2} ms", quantile(&of, 0.5), quantile(&of, 0.99));
        }
    };
    asked(2);
    say("alone", &asked(10));
    b.ok("mirror initialize q/v --no-wait");
    std::thread::sleep(Duration::from_secs(1));
    let beside = asked(SECONDS);
    let during = status(b, "q/v");
    say("beside a first copy", &beside);
    println!("the copy at the end: {} {}", during["state"], during["transfer"]["done_bytes"]);
}
