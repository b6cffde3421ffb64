//! A PostgreSQL server of a test's own, on a Unix socket, with a password.

use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::text;

/// As whom it runs where the test runs as root: it refuses that.
const NOBODY: u32 = 65534;

/// What lets `farside` in.
pub const PASSWORD: &str = "a secret of the test";

/// A server; it ends with this.
pub struct DatabaseServer {
    directory: tempfile::TempDir,
}

impl DatabaseServer {
    /// One with these databases; none, loudly, where there is no PostgreSQL.
    pub fn start(databases: &[&str]) -> Option<DatabaseServer> {
        let missing = ["initdb", "postgres", "pg_ctl", "setpriv"].into_iter().find(|program| {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            !version.is_ok_and(|status| status.success())
        });
        if let Some(program) = missing {
            assert!(std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none(), "{program} is missing");
            eprintln!("**** SKIPPED: {program} is missing");
            return None;
        }
        let server = DatabaseServer { directory: tempfile::tempdir().unwrap() };
        let password = server.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        if rustix::process::geteuid().is_root() {
            for path in [server.path(), &password] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        server.run(
            "initdb",
            &["-A", "scram-sha-256", "-U", "farside", "--pwfile", "password", "-E", "UTF8"],
            "",
        );
        for database in databases {
            let create = format!("CREATE DATABASE {database}\n");
            server.run("postgres", &["--single", "postgres"], &create);
        }
        server.go_on();
        Some(server)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Whoever holds it keeps a file with the password there.
    pub fn password_file(&self) -> PathBuf {
        self.path().join("password")
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://farside@localhost/{database}?host={}", self.path().display())
    }

    /// Says something to a database of it, beside farside; what it answers, columns with a bar between them.
    #[track_caller]
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "farside",
            "-d",
            database,
            "-c",
            sql,
        ]);
        psql.arg("-h").arg(self.path()).env("PGPASSWORD", PASSWORD);
        let done = psql.output().unwrap();
        assert!(done.status.success(), "{sql}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    /// Ends it at once, as a power failure does.
    pub fn crash(&self) {
        self.run("pg_ctl", &["-m", "immediate", "-w", "stop"], "");
    }

    /// Starts it, again.
    pub fn go_on(&self) {
        let options = format!("-k {} -c listen_addresses=", self.path().display());
        self.run("pg_ctl", &["-w", "-t", "60", "-l", "log", "-o", &options, "start"], "");
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str], input: &str) {
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        }
        // A file, not a pipe: the server inherits it, and lives on.
        let said = std::fs::File::create(self.path().join("said")).unwrap();
        let mut child = command
            .arg(program)
            .args(arguments)
            .env("PGDATA", self.path().join("data"))
            .current_dir(self.path())
            .stdin(Stdio::piped())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let status = child.wait().unwrap();
        let said = text(&std::fs::read(self.path().join("said")).unwrap());
        let log = std::fs::read_to_string(self.path().join("log")).unwrap_or_default();
        assert!(status.success(), "{program} {arguments:?}: {said}{log}");
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        let id = std::fs::read_to_string(self.path().join("data/postmaster.pid")).unwrap_or_default();
        if let Some(id) = id.lines().next().and_then(|line| line.parse().ok()) {
            let id = rustix::process::Pid::from_raw(id).unwrap();
            let _ = rustix::process::kill_process(id, rustix::process::Signal::QUIT);
        }
    }
}
