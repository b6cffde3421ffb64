//! A pool whose device does not answer holds up its own volumes, and nothing else. Opening its file waits in the kernel for somebody
//! who does not answer; needs root. Where that cannot be had the test says that it is skipped; `FARSIDE_REQUIRE_LAB=1` makes that a
//! failure.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::hang::Hang;
use crate::support::{Pair, eventually, nbd, status};

#[test]
fn a_pool_that_hangs_holds_up_neither_the_start_nor_other_pools_and_comes_back_fenced() {
    let mut pair = Pair::start();
    let (hanging, other) = (pair.root.path().join("p.pool"), pair.root.path().join("o.pool"));
    pair.a.ok(&format!("pool create o --path {} --size 64M", other.display()));
    pair.a.ok("volume create o/w --size 1M");
    for volume in ["v", "taken"] {
        pair.a.ok(&format!("volume create p/{volume} --size 1M"));
        pair.a.ok(&format!("peer allow b p/{volume} --reverse --fence"));
        pair.b.ok(&format!("mirror create a:p/{volume} q/{volume}"));
        pair.b.ok(&format!("mirror initialize q/{volume}"));
    }
    // One is overtaken while the site is down: the fence falls before the pool is served.
    assert_eq!(pair.a.stop(), Some(0));
    pair.b.ok("mirror break q/taken --yes");
    let Some(hang) = Hang::at(&hanging) else { return };
    let began = Instant::now();
    pair.a.restart();
    let took = began.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(30)).contains(&took), "{took:?}");
    let (a, b) = (&pair.a, &pair.b);

    let pools = a.json("pool list");
    let state = |name: &str| {
        let pools = a.json("pool list");
        let pool = pools.as_array().unwrap().iter().find(|pool| pool["name"] == name).cloned();
        pool.unwrap()["state"].as_str().unwrap().to_owned()
    };
    assert_eq!((state("p").as_str(), state("o").as_str()), ("opening", "open"), "{pools}");
    a.nbd("o/w").write(0, &[7; 4096]).unwrap();
    assert!(a.http("/healthz").contains("it has been being opened for"));
    for asked in ["volume create p/x --size 1M", "pool reopen p", "mirror set p/v --every 1s"] {
        let said = a.fails(4, asked);
        assert!(said.contains("pool p is being opened"), "{asked}: {said}");
    }
    assert!(a.ok("pool status p").contains("opens by itself"));
    // Its mirrors wait.
    assert!(!b.farside("mirror update q/v").status.success());
    eventually("the source has heard", || {
        let sources = a.json("mirror status p/taken");
        !sources[0]["overtaken"].is_null()
    });

    drop(hang);
    eventually("it is open", || state("p") == "open");
    assert!(a.nbd("p/taken").write(0, &[1; 4096]).is_err(), "it is fenced");
    a.nbd("p/v").write(0, &[9; 4096]).unwrap();
    b.ok("mirror update q/v");
    assert_eq!(status(b, "q/v")["state"], "mirrored");
    eventually("all is well", || a.http("/healthz").contains("200 OK"));
    a.has_logged("the pool is not open after 10 s");
}

#[test]
fn a_daemon_whose_pool_hangs_stops_and_the_pool_can_be_forgotten() {
    let mut pair = Pair::start();
    let hanging = pair.root.path().join("p.pool");
    for forgotten in [false, true] {
        assert_eq!(pair.a.stop(), Some(0));
        let Some(_hang) = Hang::at(&hanging) else { return };
        pair.a.restart();
        if forgotten {
            pair.a.ok("pool delete p --yes");
            assert_eq!(pair.a.json("pool list").as_array().map(Vec::len), Some(0));
        }
        let began = Instant::now();
        assert_eq!(pair.a.stop(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        pair.a.restart();
    }
    assert!(hanging.exists(), "nothing of it was touched");
}

/// Opens exports as fast as it can until it is dropped, and keeps count of those that could be written.
struct Knocking {
    stop: Arc<AtomicBool>,
    writable: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Knocking {
    fn at(socket: &Path, exports: &[&str]) -> Knocking {
        let (stop, writable) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let knock = |export: &&str| {
            let (stop, writable) = (Arc::clone(&stop), Arc::clone(&writable));
            let (socket, export) = (socket.to_owned(), (*export).to_owned());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if nbd::Client::open(&socket, &export).is_ok_and(|client| !client.read_only) {
                        writable.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let threads = exports.iter().map(knock).collect();
        Knocking { stop, writable, threads }
    }

    fn writable(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.writable.load(Ordering::Relaxed)
    }
}

#[test]
fn what_is_fenced_in_a_pool_that_opens_late_is_not_writable_for_a_moment() {
    let mut pair = Pair::start();
    let (pool, copy) = (pair.root.path().join("p.pool"), pair.root.path().join("copy"));
    for volume in ["v", "taken"] {
        pair.a.ok(&format!("volume create p/{volume} --size 1M"));
        pair.a.ok(&format!("peer allow b p/{volume} --reverse --fence"));
        pair.b.ok(&format!("mirror create a:p/{volume} q/{volume}"));
        pair.b.ok(&format!("mirror initialize q/{volume}"));
    }
    assert_eq!(pair.a.stop(), Some(0));
    std::fs::copy(&pool, &copy).unwrap();
    pair.a.restart();
    pair.b.ok("mirror swap q/v");
    eventually("a follows", || pair.a.nbd("p/v").read_only);
    pair.b.ok("mirror break q/taken --yes");
    eventually("the source has heard", || !status(&pair.a, "p/taken")["overtaken"].is_null());
    // The other volume shows a state of before it became a replica, and nobody is there to say so.
    assert_eq!((pair.a.stop(), pair.b.stop()), (Some(0), Some(0)));
    std::fs::copy(&copy, &pool).unwrap();
    let Some(hang) = Hang::at(&pool) else { return };
    pair.a.restart();
    let a = &pair.a;
    let knocking = Knocking::at(&a.nbd_socket(), &["p/v", "p/v", "p/taken", "p/v"]);
    std::thread::sleep(Duration::from_millis(200));
    drop(hang);
    eventually("it is open", || a.json("pool status p")["state"] == "open");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(knocking.writable(), 0);
    for volume in ["p/v", "p/taken"] {
        assert_eq!(a.nbd(volume).bytes(0, 4096).unwrap(), vec![0; 4096], "hosts may read");
    }
    assert!(status(a, "p/v")["why"].as_str().unwrap().contains("older copy"));
}
