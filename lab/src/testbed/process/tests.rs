use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;

/// More than any of these takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

fn start(script: &str, log: &Path, interrupt: &Interrupt) -> Running {
    let mut command = Command::new("bash");
    command.args(["-c", script]);
    let label = Label::new(script, "a", log.parent().unwrap().to_owned());
    let log = Log::to_file(log).unwrap();
    command.stderr(log.writer().unwrap());
    Running::start(command, label, None, interrupt.clone(), log).unwrap()
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; whoever is its parent now has not looked yet.
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn stop_ends_what_a_script_started_and_what_does_not_listen() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let script = "(trap '' TERM; echo $BASHPID >deaf; while :; do sleep 0.1; done) & cd .; wait";
    let script = format!("cd {}; {script}", dir.path().display());
    let mut running = start(&script, &dir.path().join("log"), &interrupt);
    let sign = Ready::File("deaf".into());
    running.wait_ready(&sign, LIMIT).unwrap();
    let deaf = loop {
        // The file is there before its content.
        let text = fs::read_to_string(dir.path().join("deaf")).unwrap();
        if text.ends_with('\n') {
            break text.trim().to_owned();
        }
    };
    assert!(lives(&deaf));
    running.stop_within(Duration::from_millis(200));
    assert!(!lives(&deaf), "what ignores SIGTERM is killed");
    assert!(!running.ended().unwrap().unwrap().status.success());
}

#[test]
fn a_script_that_takes_too_long_is_ended_and_its_last_words_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let mut running = start("echo began; sleep 1000", &dir.path().join("log"), &interrupt);
    running.wait_ready(&Ready::File("log".into()), LIMIT).unwrap();
    let error = running.wait(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, TestBedError::TooLong { .. }), "{error}");
    assert!(error.to_string().contains("echo began; sleep 1000"), "{error}");
    assert!(running.ended().unwrap().is_some(), "it has been ended");
}

#[test]
fn the_first_failure_ends_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let log = |name: &str| dir.path().join(name);
    let mut both = [
        start("sleep 1000", &log("patient"), &interrupt),
        start("echo no route >&2; exit 3", &log("hasty"), &interrupt),
    ];
    let error = wait_all(&mut both, LIMIT).unwrap_err().to_string();
    assert!(error.contains("status 3") && error.contains("no route"), "{error}");
    assert!(both[0].ended().unwrap().is_some(), "the other one has been ended");
    let mut both = [start("exit 0", &log("x"), &interrupt), start("sleep 0.05", &log("y"), &interrupt)];
    assert_eq!(wait_all(&mut both, LIMIT).unwrap().len(), 2);
}

#[test]
fn a_request_to_stop_ends_every_wait() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let mut running = start("sleep 1000", &dir.path().join("log"), &interrupt);
    let asker = interrupt.clone();
    let asking = thread::spawn(move || asker.ask(Signal::SIGTERM as i32));
    let error = running.wait(LIMIT).unwrap_err();
    assert!(matches!(error, TestBedError::Interrupted), "{error}");
    asking.join().unwrap();
    let ready = running.wait_ready(&Ready::File("never".into()), LIMIT).unwrap_err();
    assert!(matches!(ready, TestBedError::Failed { .. } | TestBedError::Interrupted), "{ready}");
}

#[test]
fn a_server_that_ends_before_it_is_ready_is_reported_with_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let mut running = start("echo address in use; exit 1", &dir.path().join("log"), &interrupt);
    let error = running.wait_ready(&Ready::Tcp(1), LIMIT).unwrap_err().to_string();
    assert!(error.contains("address in use"), "{error}");
}

#[test]
fn a_listening_port_is_seen_without_a_packet() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut running = start("sleep 1000", &dir.path().join("log"), &interrupt);
    running.wait_ready(&Ready::Tcp(port), LIMIT).unwrap();
    listener.set_nonblocking(true).unwrap();
    let error = listener.accept().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "nobody has connected");
}

/// A control group for one test, where this process may make one; says so where not.
fn group(name: &str) -> Option<Cgroup> {
    let made = cgroup::mount_point().ok().flatten().ok_or_else(|| io::Error::other("no cgroup2")).and_then(
        |mounted| Cgroup::create(mounted.join(format!("farside-lab-test-{}-{name}", std::process::id()))),
    );
    if let Err(error) = &made {
        assert!(std::env::var("FARSIDE_REQUIRE_LAB").as_deref() != Ok("1"), "no control group: {error}");
        eprintln!("**** skipped, no control group can be made: {error}");
    }
    made.ok()
}

#[test]
fn a_daemon_that_left_its_process_group_is_ended_and_what_it_cost_stays_known() {
    let Some(site) = group("site") else { return };
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let script = site.child("0").unwrap();
    // Its own session, deaf to SIGTERM, and busy.
    let deaf = "trap \"\" TERM; while :; do :; done";
    let words =
        format!("echo 0 >{}/cgroup.procs; setsid -f bash -c '{deaf}'; exit 0", script.path().display());
    let mut command = Command::new("bash");
    command.args(["-c", &words]);
    let label = Label::new("daemon", "a", dir.path().to_owned());
    let log = Log::in_memory().unwrap();
    let mut running = Running::start(command, label, Some(script), interrupt, log).unwrap();
    assert!(running.wait(LIMIT).unwrap().success());
    assert!(cgroup::is_populated(site.path()).unwrap(), "the daemon goes on");
    let deadline = Instant::now() + LIMIT;
    while site.cpu_seconds().unwrap() < 0.05 {
        assert!(Instant::now() < deadline, "the daemon uses no processor time");
        thread::sleep(READY_POLL);
    }
    running.stop_within(Duration::from_millis(100));
    assert!(!cgroup::is_populated(site.path()).unwrap(), "the daemon has been ended");
    assert!(!site.path().join("0").exists());
    assert!(site.cpu_seconds().unwrap() >= 0.05, "what it cost is still the site's");
    let path = site.path().to_owned();
    drop(site);
    assert!(!path.exists());
}
