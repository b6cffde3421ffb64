//! What goes wrong around Ceph RBD: libraries that are not there, and a cluster that does not answer, is full, or does not let us. The cluster
//! is one of this test's own.

mod ceph;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ceph::{MIB, Space, blocks, is_there, name, record, spec, staged_for};
use farside_engine::rbd::{RbdEngine, RbdPool};
use farside_engine::{BLOCK_BYTES, Engine, EngineError};

const CHILD_VARIABLE: &str = "FARSIDE_TEST_CHILD";

/// Not a test: says what comes of adding a pool.
#[test]
fn child() {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        println!(
            "said: {:?}",
            RbdEngine::new().add("p", RbdPool::new("rbd")).map_err(|error| error.to_string())
        );
    }
}

/// A library that is missing, or older than what is needed, is an error that names its package.
#[test]
fn a_library_that_cannot_be_used_names_its_package() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("librados.so.2");
    let says = |what: &str| {
        let done = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD_VARIABLE, "libraries")
            .env("LD_LIBRARY_PATH", directory.path())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains(what) && said.contains("apt-get install librados2"), "{said}");
    };
    std::fs::write(&library, "").expect("a file");
    says("librados.so.2 cannot be loaded");
    let source = directory.path().join("empty.c");
    std::fs::write(&source, "int nothing_at_all;\n").expect("a file");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.expect("cc runs").success());
    says("it is older than Ceph 16");
}

/// A cluster of this test's own, which ends with it.
struct Cluster(PathBuf, #[expect(dead_code, reason = "it goes when this does")] tempfile::TempDir);

impl Cluster {
    fn start() -> Cluster {
        let directory = tempfile::tempdir().expect("a directory");
        let cluster = Cluster(directory.path().join("cluster"), directory);
        cluster.script("start");
        cluster
    }

    fn script(&self, verb: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ceph-cluster");
        let done = Command::new(script).arg(verb).arg(&self.0).output().expect("the script runs");
        assert!(done.status.success(), "{verb}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn conf(&self) -> String {
        self.0.join("ceph.conf").to_string_lossy().into_owned()
    }

    fn ceph(&self, arguments: &[&str]) {
        let conf = self.conf();
        let done = Command::new("timeout").args(["30", "ceph", "--conf", &conf]).args(arguments).output();
        let done = done.expect("ceph runs");
        assert!(done.status.success(), "ceph {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Sends one of its processes a signal.
    fn signal(&self, process: &str, signal: &str) {
        let pid =
            std::fs::read_to_string(self.0.join("run").join(format!("{process}.pid"))).expect("a process");
        assert!(Command::new("kill").args([signal, pid.trim()]).status().expect("kill runs").success());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in ["osd.0", "mon.a"] {
            if std::fs::exists(self.0.join("run").join(format!("{process}.pid"))).unwrap_or(false) {
                self.signal(process, "-CONT");
            }
        }
        self.script("stop");
    }
}

/// An error that says so, in time.
fn says<T: std::fmt::Debug>(what: &str, within: Duration, call: impl FnOnce() -> Result<T, EngineError>) {
    let began = Instant::now();
    let error = call().expect_err(what).to_string();
    println!("{what}, after {:?}: {error}", began.elapsed());
    assert!(error.contains(what), "{error}");
    assert!(began.elapsed() < within, "{:?}", began.elapsed());
}

/// Tries until it works.
fn works<T>(what: &str, call: impl Fn() -> Result<T, EngineError>) -> T {
    let began = Instant::now();
    loop {
        match call() {
            Ok(done) => {
                println!("{what} works after {:?}", began.elapsed());
                return done;
            }
            Err(error) => assert!(began.elapsed() < Duration::from_secs(180), "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn what_the_cluster_does_not_do_is_said_and_goes_on() {
    if !is_there() {
        return;
    }
    let cluster = Cluster::start();
    let mut space = Space::of(&cluster.conf());
    space.options.timeout_seconds = 3;
    let soon = Duration::from_secs(25);

    // Whom the cluster does not know, a pool that is not there.
    let add = |options: RbdPool| RbdEngine::new().add("p", options);
    let given = || space.options.clone();
    says("cannot be reached as client.nobody", soon, || add(RbdPool { user: "nobody".into(), ..given() }));
    says("pool nowhere", soon, || add(RbdPool { rbd_pool: "nowhere".into(), ..given() }));
    says("namespace nothing", soon, || add(RbdPool { namespace: "nothing".into(), ..given() }));

    let engine = space.engine(false);
    let volume = name("v");
    engine.create_volume(&volume, 16 * MIB).expect("a volume");
    engine.take_snapshot(&volume, &spec("base", 1)).expect("a snapshot");

    // A user that may read alone.
    let keyring = cluster.0.join("client.reader.keyring");
    let keyring = keyring.to_string_lossy();
    let caps = ["mon", "profile rbd", "osd", "profile rbd-read-only pool=rbd"];
    cluster.ceph(&[["auth", "get-or-create", "client.reader"].as_slice(), &caps, &["-o", &keyring]].concat());
    let reader = RbdEngine::new();
    reader.add("p", RbdPool { user: "reader".into(), ..given() }).expect("it is known");
    let before = space.header("v");
    assert_eq!(reader.snapshots(&volume).expect("it may look").len(), 1);
    says("ceph auth caps client.reader", soon, || reader.take_snapshot(&volume, &spec("s", 2)));
    says("ceph auth caps client.reader", soon, || reader.set_replica_record(&volume, record(false)));
    assert_eq!(space.header("v"), before);

    // No storage answers: everything ends in time, and goes on when it is back.
    engine.set_replica_record(&volume, record(false)).expect("a replica");
    let base = spec("", 1).uuid;
    let staged = engine.stage(&volume, Some(base), 16 * MIB, staged_for(2)).expect("staged");
    staged.write(0, &blocks(8, 1)).expect("a write");
    staged.checkpoint().expect("durable");
    cluster.signal("osd.0", "-STOP");
    let mut buffer = vec![0; BLOCK_BYTES as usize];
    says("did not answer", soon, || engine.read_snapshot(&volume, base, 0, &mut buffer));
    says("did not answer", soon, || {
        staged.write(8 * BLOCK_BYTES, &blocks(8, 2)).and_then(|()| staged.checkpoint())
    });
    says("did not answer", soon, || engine.volumes_of(&volume.pool));
    // Whoever asks for all of a site has those that can be reached.
    assert_eq!(engine.volumes().expect("a list"), []);
    cluster.signal("osd.0", "-CONT");
    let found = works("staged", || engine.staged(&volume)).pop().expect("it is found").1;
    works("a write", || {
        engine.staged(&volume)?;
        found.write(8 * BLOCK_BYTES, &blocks(8, 2))?;
        found.checkpoint()
    });
    let mut read = vec![0; 16 * BLOCK_BYTES as usize];
    found.read(0, &mut read).expect("it reads");
    assert!(read == [blocks(8, 1), blocks(8, 2)].concat());
    works("a commit", || match found.commit(&spec("next", 2)) {
        // Done, and not heard of.
        Err(EngineError::Exists { .. }) => Ok(()),
        done => done.map(drop),
    });

    // No monitor: a snapshot needs one.
    cluster.signal("mon.a", "-STOP");
    says("did not answer", soon, || engine.take_snapshot(&volume, &spec("s3", 3)));
    engine.read_snapshot(&volume, base, 0, &mut buffer).expect("what is there is read");
    cluster.signal("mon.a", "-CONT");
    works("a snapshot", || engine.take_snapshot(&volume, &spec("s4", 4)));

    // Full: nothing is written, and what is there is read.
    let staged = works("staged", || engine.stage(&volume, Some(base), 16 * MIB, staged_for(5)));
    for which in ["set-nearfull-ratio", "set-backfillfull-ratio", "set-full-ratio"] {
        cluster.ceph(&["osd", which, "0.000001"]);
    }
    let full = Instant::now();
    while staged.write(0, &blocks(1, 9)).and_then(|()| staged.checkpoint()).is_ok() {
        assert!(full.elapsed() < Duration::from_secs(60), "it does not get full");
        std::thread::sleep(Duration::from_millis(200));
    }
    says("full", soon, || {
        let found = engine.staged(&volume)?.pop().expect("it is found").1;
        found.write(0, &blocks(1, 9)).and_then(|()| found.checkpoint())
    });
    engine.read_snapshot(&volume, base, 0, &mut buffer).expect("what is there is read");
    for (which, ratio) in
        [("set-full-ratio", "0.95"), ("set-backfillfull-ratio", "0.9"), ("set-nearfull-ratio", "0.85")]
    {
        cluster.ceph(&["osd", which, ratio]);
    }
    works("a write", || {
        let found = engine.staged(&volume)?.pop().expect("it is found").1;
        found.write(0, &blocks(1, 9))?;
        found.checkpoint()
    });
    engine.abandon_staged(&volume).expect("thrown away");

    // On the blocklist, as by another daemon that took over.
    let next = space.engine(true);
    says("blocklist", soon, || engine.set_replica_record(&volume, None));
    next.set_replica_record(&volume, None).expect("the next one may");
}
