//! A laboratory's place for one test, laboratories that run in it, and what is left of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_farside-lab");
/// Far more than anything here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);

/// The work of one test; removed with it.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

/// Kernel objects of a run, as `/proc` shows them: namespaces of its own.
pub(crate) type Inside = Vec<String>;

impl Place {
    /// None, and a word about it, where the test bed cannot be laid.
    pub(crate) fn with_root() -> Option<Self> {
        let lacks = if !nix::unistd::geteuid().is_root() {
            Some("root".to_owned())
        } else {
            fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/net/tun")
                .err()
                .map(|error| format!("/dev/net/tun: {error}"))
        };
        if let Some(lacks) = lacks {
            skip(&lacks);
            return None;
        }
        let place = Self { dir: tempfile::tempdir().unwrap() };
        // Somebody else than root must see that it may not.
        fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        place.has_tools(&["ping", "ip", "nsenter"]).then_some(place)
    }

    /// Whether all of them are installed; says which are not.
    pub(crate) fn has_tools(&self, tools: &[&str]) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let missing =
            tools.iter().find(|tool| !std::env::split_paths(&path).any(|dir| dir.join(tool).exists()));
        missing.map(|tool| skip(tool)).is_none()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// `farside-lab WORDS` with this place.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(words.split_whitespace()).env("FARSIDE_LAB_CACHE", self.dir.path());
        command
    }

    /// The same by somebody who may nothing.
    pub(crate) fn as_nobody(&self, words: &str) -> Command {
        // Where the build lies others may have no way to.
        let copy = self.dir.path().join("farside-lab");
        fs::copy(PROGRAM, &copy).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy);
        command.args(words.split_whitespace()).env("FARSIDE_LAB_CACHE", self.dir.path());
        command
    }

    /// Lays a link, runs a shell script on it, which must succeed, and returns the links' counters.
    pub(crate) fn wan(&self, flags: &str, script: &str) -> Value {
        let mut command = self.command(&format!("wan --json {flags} -- sh -c"));
        let output = command.arg(script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{flags} {script}: {}\n{said}\n{stdout}", output.status);
        serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
    }

    /// Starts one with all that a run can have: processes at both sites, in process groups and sessions of their own, and
    /// a mounted loop device.
    pub(crate) fn start_with_everything(&self) -> Lab<'_> {
        let script = r#"
            files=$(dirname "$A_NETNS")/../files
            if command -v mkfs.ext4 >/dev/null; then
                truncate -s 8M "$files/image"
                mkfs.ext4 -q -F "$files/image"
                mkdir "$files/mounted"
                device=$(losetup -f --show "$files/image")
                mount "$device" "$files/mounted"
            fi
            setsid -f sleep 1000
            setsid -f nsenter --net="$B_NETNS" sleep 1000
            touch "$files/up"
            exec sleep 1000
        "#;
        let mut command = self.command("wan --json -- bash -euc");
        let child = command.arg(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        self.watch(child)
    }

    pub(crate) fn watch(&self, child: Child) -> Lab<'_> {
        Lab { place: self, child, said: Vec::new() }
    }

    /// Names of the runs that have a directory.
    pub(crate) fn runs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.work()).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        names.filter(|name| name.starts_with("farside-lab-")).collect()
    }

    /// Namespaces of the processes that say that they belong to a run here.
    pub(crate) fn inside_of_runs(&self) -> Inside {
        let own = namespaces("self");
        let mut inside = BTreeSet::new();
        for (pid, _) in self.processes_of_runs() {
            inside.extend(namespaces(&pid).difference(&own).cloned());
        }
        inside.into_iter().collect()
    }

    /// A signal to the processes that do the work of the runs here.
    pub(crate) fn send_to_workers(&self, signal: Signal) {
        let mut workers = self.processes_of_runs();
        workers.retain(|(_, zeroth)| zeroth.starts_with("farside-lab-inner:"));
        assert!(!workers.is_empty());
        for (pid, _) in workers {
            send(pid.parse().unwrap(), signal);
        }
    }

    /// Processes, with their zeroth argument, that say by it that they belong to a run here.
    fn processes_of_runs(&self) -> Vec<(String, String)> {
        let work = self.work().display().to_string();
        let with_zeroth = processes().into_iter().map(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let zeroth = words.split(|byte| *byte == 0).next().unwrap_or_default();
            (pid, String::from_utf8_lossy(zeroth).into_owned())
        });
        with_zeroth.filter(|(_, zeroth)| zeroth.contains(&work)).collect()
    }

    /// That nothing of any run here is on the machine: no process in its namespaces, no control group, no loop device, no
    /// mount, no directory.
    pub(crate) fn assert_nothing_left(&self, inside: &[String]) {
        eventually("no process is in the run's namespaces", || {
            processes().iter().all(|pid| namespaces(pid).iter().all(|namespace| !inside.contains(namespace)))
        });
        assert_eq!(self.runs(), [""; 0]);
        let place = self.dir.path().display().to_string();
        for pid in processes() {
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            assert!(!mounts.contains(&place), "mounts of {pid}: {mounts}");
        }
        for device in fs::read_dir("/sys/block").unwrap() {
            let backing = device.unwrap().path().join("loop/backing_file");
            let backing = fs::read_to_string(backing).unwrap_or_default();
            assert!(!backing.contains(&place), "{backing}");
        }
    }

    /// The same after the next start, and that no control group of a run that was here is left.
    pub(crate) fn assert_gone_after_next_start(&self, inside: &[String]) {
        let runs = self.runs();
        self.wan("", "true");
        self.assert_nothing_left(inside);
        for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            for run in &runs {
                assert!(!PathBuf::from(mount).join(run).exists(), "{mount}/{run}");
            }
        }
    }
}

/// One laboratory that runs.
pub(crate) struct Lab<'a> {
    place: &'a Place,
    pub(crate) child: Child,
    /// What was read of its standard output so far.
    said: Vec<u8>,
}

impl Lab<'_> {
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    pub(crate) fn type_in(&mut self, keys: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(keys).unwrap();
    }

    /// Reads its standard output up to where `words` stand.
    pub(crate) fn read_until(&mut self, words: &str) {
        let stdout = self.child.stdout.as_mut().unwrap();
        let timeout = PollTimeout::try_from(LIMIT).unwrap();
        while !String::from_utf8_lossy(&self.said).contains(words) {
            let said = String::from_utf8_lossy(&self.said);
            let readable = poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], timeout).unwrap();
            assert!(readable > 0, "not after {LIMIT:?}: {words}; but {said}");
            let mut buffer = [0; 4096];
            let count = stdout.read(&mut buffer).unwrap();
            assert!(count > 0, "ended without: {words}; but {said}");
            self.said.extend_from_slice(&buffer[..count]);
        }
    }

    /// What it printed; it has ended.
    pub(crate) fn output(&mut self) -> String {
        self.child.stdout.take().unwrap().read_to_end(&mut self.said).unwrap();
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// The first process of its namespaces, if it is there yet.
    pub(crate) fn init(&self) -> Option<u32> {
        children(self.child.id()).pop()
    }

    /// The process that does the work, if it is there yet.
    pub(crate) fn inner(&self) -> Option<u32> {
        children(self.init()?).into_iter().find(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|words| words.starts_with(b"farside-lab-inner:"))
        })
    }

    /// Namespaces of its own that it and what it started are in.
    pub(crate) fn inside(&self) -> Inside {
        let own = namespaces("self");
        let mut inside = BTreeSet::new();
        let mut pids = children(self.child.id());
        while let Some(pid) = pids.pop() {
            pids.extend(children(pid));
            inside.extend(namespaces(&pid.to_string()).difference(&own).cloned());
        }
        inside.into_iter().collect()
    }

    /// Waits until its command has made all that it makes.
    pub(crate) fn wait_until_up(&mut self) -> Inside {
        eventually("the laboratory is up", || {
            self.assert_lives();
            self.place.runs().iter().any(|run| self.place.work().join(run).join("files/up").exists())
        });
        // PID, mount and network of the run, and the network of each site.
        eventually("there are processes at both sites", || self.inside().len() >= 5);
        self.inside()
    }

    /// The first line on its standard error that contains `word`.
    pub(crate) fn read_line_with(&mut self, word: &str) -> String {
        let mut lines = BufReader::new(self.child.stderr.take().unwrap()).lines();
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains(word))).unwrap();
        // Whoever writes to it later must find somebody who reads.
        thread::spawn(move || lines.count());
        line
    }

    fn assert_lives(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended early with {ended:?}");
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        // A test that failed leaves nothing either.
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not after {LIMIT:?}: {what}");
        thread::sleep(POLL);
    }
}

pub(crate) fn wait_within(child: &mut Child, limit: Duration) -> ExitStatus {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "still runs after {limit:?}");
        thread::sleep(POLL);
    }
}

fn skip(lacks: &str) {
    assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none_or(|value| value != "1"), "missing: {lacks}");
    eprintln!("**** skipped, missing: {lacks}");
}

fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// Of a process that lives. A zombie has ended, however long the machine's init takes to look.
fn namespaces(pid: &str) -> BTreeSet<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X'])) {
        return BTreeSet::new();
    }
    let links = ["pid", "mnt", "net"].map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")));
    links.into_iter().flatten().map(|link| link.display().to_string()).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    let is_child = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').nth(1) == Some(&parent));
        fields == Some(true)
    };
    processes().into_iter().filter(is_child).filter_map(|pid| pid.parse().ok()).collect()
}
