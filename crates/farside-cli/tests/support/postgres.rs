//! A PostgreSQL on a file system on a volume, as a user has it. It needs root, FUSE, loop devices, and a PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::mounted::{FileSystem, Mounted, Namespace, has_tool};
use super::{Site, eventually, text};

/// As whom PostgreSQL runs: it refuses root.
pub const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// Where such a machine can be; none, loudly, where it cannot.
pub fn namespace(file_system: FileSystem) -> Option<Namespace> {
    let missing = ["postgres", "pgbench", "nbdfuse"].into_iter().find(|tool| !has_tool(tool));
    let missing = missing.map(|tool| format!("{tool} is missing")).or_else(|| file_system.is_missing());
    let namespace = if missing.is_none() { Namespace::new() } else { None };
    if namespace.is_none() {
        let why = missing.unwrap_or_else(|| "root or FUSE is missing".into());
        assert!(std::env::var_os("FARSIDE_REQUIRE_LAB_DATA").is_none(), "{why}");
        eprintln!("**** SKIPPED: {why}");
    }
    namespace
}

/// PostgreSQL runs as nobody, and looks at each directory on the way.
pub fn open_the_way(root: &Path) {
    assert!(Command::new("chmod").arg("755").arg(root).status().unwrap().success());
}

/// A volume with a file system, mounted, and a database on it.
pub struct Machine<'a> {
    pub mounted: Mounted<'a>,
    pub namespace: &'a Namespace,
    pub directory: PathBuf,
}

impl<'a> Machine<'a> {
    pub fn start(
        namespace: &'a Namespace,
        site: &Site,
        volume: &str,
        directory: &Path,
        file_system: (FileSystem, bool),
    ) -> Machine<'a> {
        Machine::start_on(namespace, &site.nbd_socket(), volume, directory, file_system)
    }

    /// The same on an export of whichever NBD server.
    pub fn start_on(
        namespace: &'a Namespace,
        socket: &Path,
        export: &str,
        directory: &Path,
        file_system: (FileSystem, bool),
    ) -> Machine<'a> {
        let mounted = Mounted::start(namespace, socket, export, directory, file_system);
        Machine { mounted, namespace, directory: directory.to_path_buf() }
    }

    pub fn postgres(&self, arguments: &str) -> Output {
        let at = self.directory.display();
        self.namespace.run(&format!(
            "cd /; {NOBODY} pg_ctl -D {at}/mounted/data -w -t 60 {arguments} >{at}/pg_ctl.log 2>&1"
        ))
    }

    /// An empty database cluster on it, not yet started.
    pub fn make_database(&self) {
        let at = self.directory.display();
        self.namespace
            .ok(&format!("mkdir {at}/mounted/data && chown 65534:65534 {at}/mounted {at}/mounted/data"));
        self.namespace
            .ok(&format!("cd /; {NOBODY} initdb -D {at}/mounted/data -A trust -U nobody >/dev/null"));
    }

    pub fn start_postgres(&self) {
        self.start_postgres_with("");
    }

    /// The same with further options of the server.
    pub fn start_postgres_with(&self, more: &str) {
        let at = self.directory.display();
        let options = format!("-k {at}/mounted -c listen_addresses= -c logging_collector=off {more}");
        let started = self.postgres(&format!("-l {at}/mounted/server.log -o '{options}' start"));
        let log = || self.namespace.ok(&format!("cat {at}/pg_ctl.log; tail -50 {at}/mounted/server.log"));
        assert!(started.status.success(), "{}", log());
    }

    /// Runs statements; what they answer is lost.
    pub fn execute(&self, statements: &str) {
        let at = self.directory.display();
        self.namespace.ok(&format!(
            "cd /; {NOBODY} psql -X -q -v ON_ERROR_STOP=1 -h {at}/mounted -d postgres -c \"{statements}\""
        ));
    }

    pub fn ask(&self, query: &str) -> i64 {
        let at = self.directory.display();
        let answer = format!("cd /; {NOBODY} psql -X -q -A -t -h {at}/mounted -d postgres -c \"{query}\"");
        self.namespace.ok(&answer).trim().parse().unwrap()
    }

    /// What the bank of pgbench must always show: money only moves.
    #[track_caller]
    pub fn books_balance(&self) -> i64 {
        let sums = ["accounts", "tellers", "branches"].map(|table| {
            self.ask(&format!("select coalesce(sum({}balance), 0) from pgbench_{table}", &table[..1]))
        });
        let moved = self.ask("select coalesce(sum(delta), 0) from pgbench_history");
        assert!(sums.iter().all(|sum| *sum == moved), "{sums:?}, {moved}");
        self.ask("select count(*) from pgbench_history")
    }

    /// The same for each teller, branch and account alone: what they have is what history says of them.
    #[track_caller]
    pub fn each_balance_is_its_history(&self) {
        for (table, id, balance) in
            [("tellers", "tid", "tbalance"), ("branches", "bid", "bbalance"), ("accounts", "aid", "abalance")]
        {
            let wrong = self.ask(&format!(
                "select count(*) from pgbench_{table} t left join (select {id}, sum(delta) as moved from pgbench_history group by {id}) h \
                 using ({id}) where t.{balance} <> coalesce(h.moved, 0)"
            ));
            assert_eq!(wrong, 0, "rows of {table} that differ from what history says of them");
        }
    }

    /// Everything away, whatever state it is in.
    pub fn clear(self) {
        let at = self.directory.display();
        let server = self.namespace.run(&format!("head -n 1 {at}/mounted/data/postmaster.pid"));
        let server = text(&server.stdout).trim().to_owned();
        let _ = self.postgres("-m immediate stop");
        if !server.is_empty() {
            self.namespace.run(&format!("pkill -9 -P {server}; kill -9 {server}"));
            eventually("the server is gone", || !Path::new(&format!("/proc/{server}")).exists());
        }
        self.mounted.tear_away();
    }
}
