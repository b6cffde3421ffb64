//! A pool whose file is removed, moved or replaced under the running daemon: that is told, and what to do about it is right.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Pair, Site, check_pool, eventually, status};
use serde_json::Value;

struct Home {
    site: Site,
    root: tempfile::TempDir,
}

impl Home {
    /// One with pool `p`, and volume `p/v` in it.
    fn new() -> Home {
        let root = tempfile::tempdir().unwrap();
        let site = Site::start(root.path(), "a");
        let home = Home { site, root };
        home.site.ok(&format!("pool create p --path {} --size 64M", home.pool().display()));
        home.site.ok("volume create p/v --size 1M");
        home.put(1);
        home
    }

    fn pool(&self) -> PathBuf {
        self.root.path().join("p.pool")
    }

    fn put(&self, block: u8) {
        let mut host = self.site.nbd("p/v");
        host.write(u64::from(block) * 4096, &[block; 4096]).unwrap();
        host.flush().unwrap();
    }

    fn has(&self, block: u8) -> bool {
        self.site.nbd("p/v").bytes(u64::from(block) * 4096, 4096).unwrap() == vec![block; 4096]
    }

    fn listed(&self) -> Value {
        self.site.json("pool list")[0].clone()
    }

    fn says(&self, what: &str) -> bool {
        self.listed()["error"].as_str().is_some_and(|error| error.contains(what))
    }

    fn metric(&self) -> bool {
        self.site.http("/metrics").contains("farside_pool_path_lost{pool=\"p\"} 1")
    }

    fn is_well(&self) -> bool {
        self.listed()["error"].is_null() && !self.metric() && self.site.http("/healthz").contains("200 OK")
    }
}

/// A shell that does what the advice says: it keeps the file, and copies it once it is told to.
fn shell(open: &str, to: &Path) -> std::process::Child {
    let script = "exec 9<\"$1\"; echo; read go; cp -p --sparse=always /proc/self/fd/9 \"$2\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", open]).arg(to).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut held = [0];
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut held).unwrap();
    shell
}

/// Whether a line of the log is of who looks at the pools' files: the alarm that is raised says the same once more.
fn is_of_pools(line: &str) -> bool {
    line.contains("farside_daemon::pools")
}

#[test]
fn a_pool_file_that_is_removed_is_told_once_and_saved_as_the_advice_says() {
    let mut home = Home::new();
    std::fs::remove_file(home.pool()).unwrap();
    eventually("it is told", || home.says("was removed under the running daemon"));
    // Its place is kept: another pool there would be taken for it.
    let create = format!("pool create fresh --path {} --size 64M", home.pool().display());
    let said = home.site.fails(4, &create);
    assert!(said.contains("place of pool p") && said.contains("pool status p"), "{said}");
    assert!(home.site.ok(&format!("{create} --plan")).contains("place of pool p"));
    let listed = home.listed();
    assert_eq!((&listed["state"], &listed["path_lost"]), (&"open".into(), &true.into()), "{listed}");
    let health = home.site.http("/healthz");
    assert!(health.contains("503") && health.contains("do not stop farsided"), "{health}");
    assert!(home.site.ok("site status").contains("was removed under the running daemon"));
    assert!(home.site.ok("pool status p").contains("do not stop farsided"));
    assert!(home.metric());
    home.put(2);
    // The next look is no news.
    std::thread::sleep(Duration::from_secs(12));
    let lines = home
        .site
        .log()
        .lines()
        .filter(|l| is_of_pools(l) && l.contains("was removed under the running daemon"))
        .count();
    assert_eq!(lines, 1, "{}", home.site.log());

    let advice = listed["advice"].as_str().unwrap();
    let open = advice.split("exec 9<").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let mut shell = shell(open, &home.pool());
    home.put(3);
    assert_eq!(home.site.stop(), Some(0));
    shell.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(shell.wait().unwrap().success());
    check_pool(&home.pool());
    home.site.restart();
    assert!((1..=3).all(|block| home.has(block)), "nothing is lost");
    assert!(home.is_well());
}

#[test]
fn a_pool_file_that_is_moved_or_replaced_is_told_until_its_path_leads_to_it_again() {
    let home = Home::new();
    let elsewhere = home.root.path().join("elsewhere");
    std::fs::rename(home.pool(), &elsewhere).unwrap();
    eventually("it is told where it is", || home.says(&format!("lies in {}", elsewhere.display())));
    std::fs::write(home.pool(), b"a backup").unwrap();
    eventually("it is told that it is replaced", || home.says("something else has its name"));
    home.put(2);
    assert!(home.metric());
    std::fs::rename(&elsewhere, home.pool()).unwrap();
    eventually("all is well", || home.is_well());
    home.site.has_logged("the pool's path leads to it again");
    assert!(home.has(2));
    let told = home.site.log();
    assert_eq!(
        told.lines().filter(|l| is_of_pools(l) && l.contains("does not lead to it any more")).count(),
        2,
        "{told}"
    );
}

#[test]
fn a_pool_that_was_moved_while_the_site_was_off_is_imported_where_it_is_and_nothing_else_changes() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror set q/v --every 1h --keep last=5");
    let before = status(&pair.b, "q/v");
    pair.b.stop();
    let (old, new) = (pair.root.path().join("q.pool"), pair.root.path().join("elsewhere.pool"));
    std::fs::rename(&old, &new).unwrap();
    pair.b.restart();
    let b = &pair.b;
    assert!(b.json("pool list")[0]["error"].as_str().unwrap().contains("q.pool"));
    let import = |path: &Path| format!("pool import q --path {}", path.display());
    // A wrong path changes nothing, and what is there at the known one is not forgotten for another.
    b.fails(3, &import(&pair.root.path().join("nowhere.pool")));
    assert!(b.json("pool list")[0]["path"].as_str().unwrap().ends_with("/q.pool"));
    std::fs::write(&old, "something else").unwrap();
    let said = b.fails(4, &import(&new));
    assert!(
        said.contains("is known, in") && said.contains("move") && said.contains("pool import q --path"),
        "{said}"
    );
    std::fs::remove_file(&old).unwrap();
    b.ok(&import(&new));
    let after = status(b, "q/v");
    for key in ["id", "schedule", "retention", "source"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert!(after["schedule"] == "every 1h" && !after["retention"].is_null(), "{after}");
    b.ok("mirror update q/v");
    // And it stays there.
    pair.b.stop();
    pair.b.restart();
    pair.b.ok("mirror update q/v");
    pair.b.stop();
    check_pool(&new);
}
