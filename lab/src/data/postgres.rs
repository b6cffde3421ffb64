//! `postgres`: a PostgreSQL cluster under its own benchmark, on ext4.
//!
//! A is the cluster after `pgbench -i`, B after a fixed number of transactions of one client (a shuffled read, three
//! updates, an insert each) with checkpoints, and a vacuum. Both are taken after a clean stop of the server and an unmount. Autovacuum is
//! off, because when it runs depends on the clock.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use rand::RngCore;

use super::error::DataError;
use super::filesystem::{Content, FileSystem};
use super::making::Making;
use super::set::MIB;
use super::set::{SET as TEMPLATE, Set};
use super::{program, seeded};

/// Debian keeps the programs of each major version apart.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The server does not run as root.
const USER: &str = "postgres";

/// What a new cluster takes before anything is in it (22 MiB), the file system itself (its journal and inodes, 10 MiB),
/// and room that stays free, as on every volume.
const CLUSTER_BYTES: u64 = 42 * MIB;

/// One unit of pgbench's scale: 100 000 accounts with their index are 15 MiB; the rest is for what transactions add.
const SCALE_BYTES: u64 = 20 * MIB;

/// From this size on the write-ahead log has segments of 16 MiB, as servers have; smaller images have 1 MiB.
const USUAL_LOG_FROM_BYTES: u64 = 128 * MIB;

/// Transactions between A and B for each unit of scale: with full-page writes in the log they change about a quarter of
/// all blocks at 160 MiB.
const TRANSACTIONS_PER_SCALE: u64 = 420;

/// Every so many transactions there is a checkpoint. A server would make them by the clock or by the log's length; both
/// would fall before or after a transaction by chance, and what a checkpoint makes the log repeat is a tenth of an image.
/// A transaction logs up to 9 KiB (a whole page): the log stays below its bound, where the server itself would act.
const TRANSACTIONS_PER_CHECKPOINT: u64 = 1500;
const TRANSACTIONS_PER_CHECKPOINT_SMALL: u64 = 350;

/// How long the server may take to come up or to stop on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What it is.
pub(super) const SET: Set = Set {
    name: "postgres",
    about: "PostgreSQL under pgbench on ext4; B after transactions that change a quarter of the blocks",
    default_bytes: 160 * MIB,
    minimum_bytes: MINIMUM_BYTES,
    generator: 3,
    make,
    ..TEMPLATE
};

/// What the manifest and `minimum_bytes` promise room for.
pub(super) const MINIMUM_BYTES: u64 = 80 * MIB;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let bytes = making.volume_bytes();
    let usual_log = bytes >= USUAL_LOG_FROM_BYTES;
    let (segment_mib, log_mib, round) = if usual_log {
        (16, 48, TRANSACTIONS_PER_CHECKPOINT)
    } else {
        (1, 8, TRANSACTIONS_PER_CHECKPOINT_SMALL)
    };
    let scale = (bytes.saturating_sub(CLUSTER_BYTES + log_mib * MIB) / SCALE_BYTES).max(1);

    making.program("postgres", Command::new(format!("{PROGRAMS}/postgres")).arg("--version"))?;
    if !matches!(User::from_name(USER), Ok(Some(_))) {
        return Err(DataError::Missing {
            what: format!("the user `{USER}`, which PostgreSQL's package brings,"),
        });
    }
    making.step("making an empty cluster")?;
    let file_system = FileSystem::create(making, "postgres.img", 0, Content::Large)?;
    let mounted = file_system.mount()?;
    let directory = mounted.root().join("postgresql");
    std::fs::create_dir(&directory).map_err(DataError::io("create", &directory))?;
    program::run("chown", Command::new("chown").arg(format!("{USER}:")).arg(&directory))?;
    let cluster = Cluster { data: directory.join("15-main"), log: making.scratch().join("server.log") };
    cluster.initialise(segment_mib, log_mib)?;

    making.step(&format!("filling it, scale {scale}"))?;
    let server = cluster.start()?;
    server.client("pgbench", &["-i", "-q", "-s", &scale.to_string()])?;
    server.stop()?;
    mounted.unmount()?;
    making.step("keeping generation A")?;
    making.begin("A")?;
    making.capture(file_system.image())?;

    let transactions = scale * TRANSACTIONS_PER_SCALE;
    making.step(&format!("running {transactions} transactions"))?;
    let mounted = file_system.mount()?;
    let server = cluster.start()?;
    let mut done = 0;
    while done < transactions {
        let count = round.min(transactions - done).to_string();
        // pgbench takes seeds of 31 bits; every round draws other accounts.
        let seed = (seeded::stream(making.seed(), "pgbench", done).next_u32() >> 1).to_string();
        server.client("pgbench", &["-n", "-c", "1", "-t", &count, "--random-seed", &seed])?;
        server.client("psql", &["-q", "-c", "CHECKPOINT"])?;
        done += round;
        making.share(done as f64 / transactions as f64)?;
    }
    server.client("psql", &["-q", "-c", "VACUUM"])?;
    server.stop()?;
    mounted.unmount()?;
    making.step("keeping generation B")?;
    making.begin("B")?;
    making.capture(file_system.image())
}

/// A database cluster's directory.
struct Cluster {
    data: PathBuf,
    log: PathBuf,
}

impl Cluster {
    fn initialise(&self, segment_mib: u64, log_mib: u64) -> Result<(), DataError> {
        let mut command = as_user("initdb");
        command.args(["--no-locale", "-E", "UTF8", "-A", "trust", "--no-sync"]);
        command.arg(format!("--wal-segsize={segment_mib}")).arg("-D").arg(&self.data);
        program::run("initdb", &mut command)?;
        // A checkpoint is made at once, not spread over time, and not before the log has its whole length.
        // The log's segments are used again, never removed and made anew: a new one is 16 MiB of zeros.
        // The image is taken after a clean stop and unmount: syncing on the way would only cost time.
        let settings = format!(
            "listen_addresses = ''\n\
             unix_socket_directories = '{}'\n\
             autovacuum = off\n\
             fsync = off\n\
             shared_buffers = 32MB\n\
             max_wal_size = {log_mib}MB\n\
             min_wal_size = {log_mib}MB\n\
             checkpoint_timeout = 1h\n\
             checkpoint_completion_target = 0\n\
             log_timezone = 'UTC'\n\
             timezone = 'UTC'\n",
            socket(),
        );
        let path = self.data.join("postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(&path).map_err(DataError::io("open", &path))?;
        file.write_all(settings.as_bytes()).map_err(DataError::io("write", &path))
    }

    /// Starts the server and waits until it answers.
    fn start(&self) -> Result<Server, DataError> {
        let log = File::create(&self.log).map_err(DataError::io("create", &self.log))?;
        let mut command = as_user("postgres");
        command.arg("-D").arg(&self.data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = Server { child: program::spawn("postgres", &mut command)?, log: self.log.clone() };
        let asked = Instant::now();
        while program::run("pg_isready", as_user("pg_isready").args(["-q", "-h", &socket()])).is_err() {
            if asked.elapsed() > PATIENCE || server.has_ended() {
                return Err(server.failed("did not come up"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

/// A running server; killed if dropped.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Runs one of its clients on the database `postgres`.
    fn client(&self, name: &str, arguments: &[&str]) -> Result<(), DataError> {
        program::run(name, as_user(name).args(["-h", &socket()]).args(arguments).arg("postgres"))?;
        Ok(())
    }

    /// The fast shutdown: a checkpoint, everything written, no recovery needed.
    fn stop(mut self) -> Result<(), DataError> {
        self.signal(Signal::SIGINT);
        let asked = Instant::now();
        while !self.has_ended() {
            if asked.elapsed() > PATIENCE {
                return Err(self.failed("did not stop"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.failed("stopped with an error")),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // An error means that it has ended, which waiting for it tells.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn failed(&self, status: &str) -> DataError {
        let said = std::fs::read(&self.log).unwrap_or_default();
        DataError::Program {
            what: "postgres".to_owned(),
            status: status.to_owned(),
            said: program::end_of(&said),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.has_ended() {
            // Immediate shutdown: the server ends its children, too.
            self.signal(Signal::SIGQUIT);
            let _ = self.child.wait();
        }
    }
}

/// One of PostgreSQL's programs as its own user, with nothing of our environment.
fn as_user(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    command.arg(Path::new(PROGRAMS).join(name)).current_dir("/");
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("TZ", "UTC")
        .env("LC_ALL", "C.UTF-8");
    command
}

/// A socket without a file: its name is known in our network namespace only, and is as short as sockets want it.
fn socket() -> String {
    format!("@farside-lab-{}", std::process::id())
}
