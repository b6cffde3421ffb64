//! An experiment from its file to its result, as a person runs it: killed in the middle, gone on with, stopped by Ctrl-C,
//! with contenders that fail. Counts and bytes are asserted, never seconds.
//!
//! Needs root, `/dev/net/tun` and what the smoke experiment's contenders need (zstd, nc, tar, jq). Without them the tests
//! say that they are skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use farside_lab::experiment::journal::read_records;
use farside_lab::experiment::outputs;
use farside_lab::record::RunRecord;
use farside_lab::record::result::ExperimentResult;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far longer than all runs of a test take on a machine that hardly runs.
const PATIENCE: Duration = Duration::from_secs(240);

const PROGRAMS: [&str; 7] = ["ip", "nsenter", "losetup", "bash", "zstd", "nc", "tar"];

/// Two links, a probe and a tool, noise to carry: a dozen runs of about a second.
const EXPERIMENT: &str = r#"
title = "Killed and gone on with"
contenders = ["probe", "zstd"]
repetitions = 3
seed = 11

[[link]]
name = "near"
rate = "100Mbit"
rtt = "2ms"

[[link]]
name = "lossy"
rate = "20Mbit"
rtt = "6ms"
loss = "1%"
parallel = 2

[[data]]
name = "noise"
set = "random"
size = "1MiB"

[[expect]]
contender = "probe"
links = ["near"]
figure = "answered"
of = 20
within = { absolute = 0 }

[[expect]]
contender = "zstd"
links = ["lossy"]
phase = "initial"
figure = "forward_loss_percent"
of = "link.loss_percent"
within = { sampling = "forward_loss_trials" }
"#;

/// Pings until 20 are answered, and counts these: with `-w`, ping does not give up an answer that comes late.
const PROBE: &str = r#"
name = "probe"
about = "twenty answers"
packages = ["iputils-ping"]
carries = ["link"]

[[versions]]
name = "ping"
command = "ping -V | awk 'NR == 1 { print $3, $4 }'"

[measure]
a = '''ping -q -c 20 -i 0.01 -w 200 "$B_ADDR" >"$HERE/ping.txt" || true'''

[figures.answered]
site = "a"
run = '''awk '/received/ { print $4 }' "$HERE/ping.txt"'''
unit = "answers"
"#;

/// A copy of the laboratory's files with an experiment of the test's own.
struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    /// None if something that it needs is missing.
    fn new() -> Option<Self> {
        if let Err(missing) = tools() {
            assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "missing: {missing}");
            eprintln!("skipped: {missing}");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let contenders = directory.path().join("contenders");
        fs::create_dir(&contenders).expect("make a directory");
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("contenders");
        for entry in fs::read_dir(project).expect("the project's contenders") {
            let path = entry.expect("an entry").path();
            fs::copy(&path, contenders.join(path.file_name().expect("a name"))).expect("copy");
        }
        let lab = Self { directory };
        lab.write("contenders/probe.toml", PROBE);
        lab.write("experiments/x.toml", EXPERIMENT);
        Some(lab)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("write");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
        command.arg("--cache").arg(self.path("cache")).arg("run").arg(self.path("experiments/x.toml"));
        command.arg("--out").arg(self.out()).args(arguments).stdin(Stdio::null());
        command
    }

    fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Runs to the end.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output: Output = self.command(arguments).output().expect("the laboratory starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{said}");
        (output.status.code(), said)
    }

    /// Starts it in a process group of its own.
    fn start(&self) -> Child {
        let mut command = self.command(&[]);
        command.stdout(Stdio::null()).process_group(0);
        command.spawn().expect("the laboratory starts")
    }

    /// What the journal has; nothing before it is there.
    fn records(&self) -> Vec<RunRecord> {
        read_records(&self.out()).unwrap_or_default()
    }

    fn wait_for_records(&self, child: &mut Child, count: usize) {
        let begun = Instant::now();
        while self.records().len() < count {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended with {ended:?} after {} runs", self.records().len());
            assert!(begun.elapsed() < PATIENCE, "only {} runs were recorded", self.records().len());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn result(&self) -> ExperimentResult {
        outputs::read(&self.out()).expect("a result")
    }

    /// Nothing of a run is left on disk.
    fn assert_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.path("cache/work")).expect("the work directory").collect();
        assert!(
            left.iter().flatten().all(|entry| entry.file_name().as_encoded_bytes().starts_with(b".")),
            "{left:?}"
        );
    }
}

fn tools() -> Result<(), String> {
    if !nix::unistd::Uid::effective().is_root() {
        return Err("root".to_owned());
    }
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(|error| format!("/dev/net/tun: {error}"))?;
    let missing = PROGRAMS.iter().find(|program| !is_installed(program));
    missing.map_or(Ok(()), |program| Err((*program).to_owned()))
}

fn is_installed(program: &str) -> bool {
    let script = format!("PATH=$PATH:/usr/sbin:/sbin; command -v {program}");
    Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn an_experiment_that_is_killed_goes_on_where_it_was_and_ends_whole() {
    let Some(lab) = Lab::new() else { return };
    println!("seed 11");
    let mut child = lab.start();
    lab.wait_for_records(&mut child, 3);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).expect("kill -9");
    child.wait().expect("it is dead");
    // Its death takes everything down, and whoever comes next waits for that.
    let before = lab.records();
    assert!((3..12).contains(&before.len()), "{} runs before the kill", before.len());

    let (status, said) = lab.run(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(&format!("{} of 12 runs to make", 12 - before.len())), "{said}");
    let result = lab.result();
    assert_eq!((result.runs_left, result.runs.len(), result.cells.len()), (0, 12, 4));
    // The result says once what all runs have in common.
    let before: Vec<RunRecord> = before.iter().map(|run| outputs::published(run, &result)).collect();
    assert_eq!(&result.runs[..before.len()], &before[..], "runs made before the kill are kept as they were");
    for cell in &result.cells {
        assert_eq!((cell.planned, cell.counted, cell.failed), (3, 3, 0), "{}", cell.cell);
    }
    assert!(result.expectations.iter().all(|verdict| verdict.met), "{:?}", result.expectations);
    assert_eq!(result.expectations.len(), 2);

    // What went over the link is what had to: noise does not compress, and a megabyte is a megabyte.
    for run in result.runs.iter().filter(|run| run.cell.contender == "zstd") {
        let phases: Vec<(&str, Option<&str>)> =
            run.phases.iter().map(|phase| (phase.phase.as_str(), phase.generation.as_deref())).collect();
        assert_eq!(phases, [("initial", Some("A")), ("update", Some("B"))]);
        for phase in &run.phases {
            let bytes = phase.forward.bytes_in;
            assert!((1 << 20..1_400_000).contains(&bytes), "{}: {bytes} bytes", run.cell);
            assert!(
                phase.forward.packets_out + phase.forward.lost <= phase.forward.packets_in,
                "{:?}",
                phase.forward
            );
            assert_eq!(phase.forward.lost > 0, run.cell.link == "lossy", "{}: {:?}", run.cell, phase.forward);
        }
    }
    assert_eq!(result.versions["zstd"].split('.').count(), 3, "{:?}", result.versions);
    // A contender's runs of one repetition meet the same losses; other repetitions others.
    let records = lab.records();
    let seeds = |repetition| {
        let of = move |run: &&RunRecord| run.cell.link == "lossy" && run.repetition == repetition;
        records.iter().filter(of).map(|run| run.seed).collect::<Vec<u64>>()
    };
    assert!(seeds(1).iter().all(|seed| *seed == seeds(1)[0]) && seeds(1)[0] != seeds(2)[0]);

    for file in [outputs::RESULT_FILE, outputs::REPORT_FILE] {
        assert!(fs::metadata(lab.out().join(file)).expect(file).len() > 0, "{file}");
    }
    lab.assert_clean();

    // Nothing is left to do, and the second time changes nothing.
    let (status, said) = lab.run(&[]);
    assert_eq!((status, lab.records().len()), (Some(0), 12), "{said}");
    // Some of it anew: the old records stay beside the journal.
    let (status, said) = lab.run(&["--fresh", "--filter", "near/probe/*"]);
    assert_eq!((status, lab.records().len()), (Some(0), 12), "{said}");
    let aside = fs::read_to_string(lab.out().join("runs.jsonl.1")).expect("the old records");
    assert_eq!(aside.lines().count(), 3);
}

#[test]
fn ctrl_c_throws_the_current_run_away_and_keeps_the_others() {
    let Some(lab) = Lab::new() else { return };
    // A contender that would take for ever.
    lab.write(
        "contenders/zstd.toml",
        &PROBE.replace("\"probe\"", "\"zstd\"").replace("ping -q -c 20", "sleep 1000; ping"),
    );
    lab.write("experiments/x.toml", EXPERIMENT.split("[[data]]").next().expect("the first part"));
    let mut child = lab.start();
    lab.wait_for_records(&mut child, 1);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("Ctrl-C");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let records = lab.records();
    assert!(
        records.iter().all(|record| record.cell.contender == "probe" && record.failed.is_none()),
        "{records:?}"
    );
    let result = lab.result();
    assert_eq!(result.runs_left as usize, 12 - records.len());
    lab.assert_clean();
}

#[test]
fn a_contender_that_fails_is_recorded_with_the_reason_and_given_up_after_three_times() {
    let Some(lab) = Lab::new() else { return };
    let broken = PROBE
        .replace("\"probe\"", "\"zstd\"")
        .replace("ping -q -c 20", "echo the disk is on fire >&2; exit 7; ping");
    lab.write("contenders/zstd.toml", &broken);
    lab.write("experiments/x.toml", EXPERIMENT.split("[[data]]").next().expect("the first part"));
    let (status, said) = lab.run(&["--repetitions", "4", "--filter", "near/*"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("failed three times"), "{said}");
    let (failed, good): (Vec<_>, Vec<_>) =
        lab.records().into_iter().partition(|record| record.failed.is_some());
    assert_eq!((failed.len(), good.len()), (3, 4), "{said}");
    let reason = failed[0].failed.as_deref().expect("a reason");
    for part in ["measure", "status 7", "the disk is on fire", "logs: "] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let log = lab.out().join("logs/near_zstd_cubic_1/measure-at-a.log");
    assert!(fs::read_to_string(log).expect("the log").contains("on fire"));
    let result = lab.result();
    let cell = result.cells.iter().find(|cell| cell.cell.to_string() == "near/zstd/cubic").expect("the cell");
    assert_eq!((cell.planned, cell.counted, cell.failed), (4, 0, 3));

    // Repaired, it is of something else: refused, with the way on.
    lab.write("contenders/zstd.toml", &PROBE.replace("\"probe\"", "\"zstd\""));
    let (status, said) = lab.run(&["--repetitions", "4"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("near/zstd/cubic") && said.contains("--fresh"), "{said}");
    assert_eq!(lab.records().len(), 7, "a refusal changes nothing");
}

/// farside's own programs, as `cargo test --workspace` leaves them beside the laboratory's.
fn farside() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_farside-lab")).parent().expect("a directory").to_owned();
    let directory = std::env::var_os("FARSIDE_BIN").map_or(beside, PathBuf::from);
    ["farside", "farsided"].iter().all(|program| directory.join(program).exists()).then_some(directory)
}

#[test]
fn the_smoke_experiment_has_every_part_work_together() {
    let Some(lab) = Lab::new() else { return };
    let programs = ["ping", "rsync", "jq", "nbdcopy"];
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(missing) =
        missing.copied().or_else(|| farside().is_none().then_some("farside and farsided beside the test"))
    {
        assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "missing: {missing}");
        eprintln!("skipped: {missing}");
        return;
    }
    let smoke = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/smoke.toml");
    lab.write("experiments/x.toml", &fs::read_to_string(smoke).expect("the smoke experiment"));
    let (status, said) = lab.run(&[]);
    assert_eq!(status, Some(0), "{said}");
    let result = lab.result();
    assert_eq!((result.runs_left, result.runs.len()), (0, 9));
    assert!(result.runs.iter().all(|run| run.failed.is_none()), "{said}");
    // Of ping, and of both phases of zstd.
    let verdicts: Vec<bool> = result.expectations.iter().map(|verdict| verdict.met).collect();
    assert_eq!(verdicts, [true, true, true], "{:?}", result.expectations);
    let runs = |link: &'static str| result.runs.iter().filter(move |run| run.cell.link == link);
    // Outages hit packets on their way, and everything arrives all the same.
    assert!(
        runs("broken").any(|run| run.phases.iter().any(|phase| phase.forward.dropped_down > 0)),
        "{said}"
    );
    assert!(runs("fast").all(|run| run.phases.iter().all(|phase| phase.forward.dropped_down == 0)));
    let farside = runs("fast").find(|run| run.cell.contender == "farside").expect("farside's run");
    let update = farside.phases.iter().find(|phase| phase.phase == "update").expect("its update");
    assert!(
        update.forward.bytes_in < 1_600_000,
        "an update of 43 % of 2 MiB took {} bytes",
        update.forward.bytes_in
    );
    lab.assert_clean();
}

/// One of two paths is cut while it runs, and stays so; the other one answers.
const LISTS: &str = r#"
title = "Links and contenders of lists"
paths = 2
series = "20ms"
report = { series = true }

[[variant]]
of = "probe"
name = "probe-{COUNT}"
settings = { COUNT = [3, 5] }

[[grid]]
profiles = ["10mb"]
rtt = ["2ms"]
loss = ["0"]
mtu = [1000]
portion = "1s"

[[link]]
name = "one-path"
rate = "10Mbit"
rtt = "2ms"
contenders = ["probe-3"]
script = [{ at = "200ms", path = 1, down = true }]
"#;

/// Waits until the second path is cut where that is going to happen, then counts answers on the first.
const PATHS: &str = r#"
name = "probe"
about = "answers over the first path"
packages = ["iputils-ping"]
carries = ["link"]

[[versions]]
name = "ping"
command = "ping -V | awk 'NR == 1 { print $3, $4 }'"

[measure]
a = '''
read -ra addresses <<<"$B_ADDRS"
if [ -z "$PORTION_BYTES" ]; then
    # Twice in a row: on a busy machine one answer may come too late.
    lost=0
    while [ "$lost" -lt 2 ]; do
        if ping -q -c 1 -W 1 "${addresses[1]}" >"$HERE/second.txt"; then lost=0; else lost=$((lost + 1)); fi
        sleep 0.05
    done
fi
ping -q -c "$COUNT" -i 0.01 -w 200 "${addresses[0]}" >"$HERE/ping.txt" || true
'''

[figures.answered]
site = "a"
run = '''awk '/received/ { print $4 }' "$HERE/ping.txt"'''
unit = "answers"

[figures.portion]
run = '''echo "${PORTION_BYTES:-0}"'''
unit = "bytes"
"#;

#[test]
fn lists_become_links_and_contenders_and_what_comes_out_is_told_over_time() {
    let Some(lab) = Lab::new() else { return };
    println!("seed 1");
    lab.write("contenders/probe.toml", PATHS);
    lab.write("experiments/x.toml", LISTS);
    let (status, said) = lab.run(&[]);
    assert_eq!(status, Some(0), "{said}");
    let mut told: Vec<(String, f64, f64)> = Vec::new();
    for run in &lab.result().runs {
        let phase = &run.phases[0];
        told.push((run.cell.to_string(), phase.figures["answered"].value, phase.figures["portion"].value));
        let series = phase.series.as_ref().expect("a series");
        assert_eq!(series.every_ms, 20);
        // All that ping sent had come out before it ended.
        assert_eq!(series.forward.iter().sum::<u64>(), phase.forward.bytes_out, "{}", run.cell);
        assert_eq!(phase.forward.dropped_down > 0, run.cell.link == "one-path", "{}", run.cell);
    }
    told.sort_by(|one, other| one.0.cmp(&other.0));
    // 10 Mb/s carry 1.3 MB in a second and 20 round trips of 2 ms.
    let portion = 1_310_720.0;
    assert_eq!(
        told,
        [
            ("10mb-2ms-0-1000/probe-3/cubic".to_owned(), 3.0, portion),
            ("10mb-2ms-0-1000/probe-5/cubic".to_owned(), 5.0, portion),
            ("one-path/probe-3/cubic".to_owned(), 3.0, 0.0),
        ]
    );
    lab.assert_clean();
}
