//! A site whose state is in PostgreSQL: it mirrors, survives the end of daemon and server, is one daemon's, and its state moves from
//! one database to another and back. Without PostgreSQL the tests say that they are skipped; `FARSIDE_REQUIRE_TOOLS=1` makes that a
//! failure.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::database_server::{DatabaseServer, PASSWORD};
use crate::support::{FARSIDED, Pair, Site, eventually, status, text};

/// What a site is told of its database.
fn configure(dir: &Path, database: &str, password: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let lines = format!("database = \"{database}\"\ndatabase_password_file = \"{}\"\n", password.display());
    std::fs::write(dir.join("farside.toml"), lines).unwrap();
}

/// A site with a destination whose state is in `site_b` of the server.
fn pair_on(server: &DatabaseServer) -> Pair {
    let root = tempfile::tempdir().unwrap();
    let mut b = Site::new(&root.path().join("b"), "b");
    configure(&b.dir, &server.url("site_b"), &server.password_file());
    b.restart();
    let pair = Pair { a: Site::start(root.path(), "a"), b, root };
    for (site, pool) in [(&pair.a, "p"), (&pair.b, "q")] {
        let path = pair.root.path().join(format!("{pool}.pool"));
        site.ok(&format!("pool create {pool} --path {} --size 64M", path.display()));
    }
    pair.pair_at(&pair.a.published("peer.addr"));
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror set q/v --every 1s");
    pair
}

/// What is written at A now comes to B by itself.
#[track_caller]
fn goes_on(pair: &Pair, byte: u8) {
    let mut host = pair.a.nbd("p/v");
    host.write(0, &[byte; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    eventually("the mirror goes on", || {
        pair.b.nbd("q/v").bytes(0, 4096).is_ok_and(|read| read == [byte; 4096])
    });
}

/// A daemon that does not come to be ready.
fn does_not_start(dir: &Path) -> Output {
    let mut command = Command::new(FARSIDED);
    command.arg("--data-dir").arg(dir).args(["--name", "b", "--http", "off", "--peer-listen", "off"]);
    command.output().unwrap()
}

fn history(site: &Site) -> usize {
    site.json("mirror history q/v").as_array().unwrap().len()
}

#[test]
fn a_site_on_postgres_outlives_its_daemon_and_its_server_and_is_one_daemons() {
    let Some(server) = DatabaseServer::start(&["site_b"]) else { return };
    let mut pair = pair_on(&server);
    goes_on(&pair, 1);
    assert!(!pair.b.dir.join("farside.db").exists(), "there is no second database");

    // A second daemon is refused, whatever directory it has.
    let other = pair.root.path().join("other");
    configure(&other, &server.url("site_b"), &server.password_file());
    let refused = does_not_start(&other);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("another farsided runs on the state database"), "{said}");

    // The daemon dies.
    let before = history(&pair.b);
    pair.b.kill();
    pair.b.restart();
    assert!(history(&pair.b) >= before, "nothing of the history is lost");
    goes_on(&pair, 2);

    // The server dies.
    server.crash();
    let said_by = |site: &Site| site.http("/healthz");
    eventually("the health page says so", || said_by(&pair.b).contains("cannot be reached"));
    assert!(said_by(&pair.b).starts_with("HTTP/1.1 503"), "{}", said_by(&pair.b));
    let said = pair.b.fails(1, "peer allow a q/w");
    assert!(said.contains("cannot be reached") && said.contains("Volumes are served"), "{said}");
    assert_eq!(pair.b.nbd("q/v").bytes(0, 4096).unwrap(), [2; 4096], "a host reads on");
    goes_on(&pair, 22);
    server.go_on();
    eventually("the health page says so", || !pair.b.http("/healthz").contains("cannot be reached"));
    goes_on(&pair, 3);
    pair.b.ok("peer allow a q/w");

    // A daemon that finds no server says what to do.
    assert_eq!(pair.b.stop(), Some(0));
    server.crash();
    let failed = does_not_start(&pair.b.dir);
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot open the state database") && said.contains("start again"), "{said}");
    server.go_on();
    pair.b.restart();
    goes_on(&pair, 4);

    // The worst day: B takes over, though its database is away.
    server.crash();
    pair.b.ok("mirror break q/v");
    let mut host = pair.b.nbd("q/v");
    host.write(0, &[9; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    pair.b.kill();
    server.go_on();
    pair.b.restart();
    assert_eq!(status(&pair.b, "q/v")["state"], "broken-off");
    assert_eq!(pair.b.nbd("q/v").bytes(0, 4096).unwrap(), [9; 4096]);
    for site in [&pair.a, &pair.b] {
        assert!(!site.log().contains(PASSWORD), "no log shows a password");
    }
}

#[test]
fn a_state_moves_to_postgres_and_back_while_the_mirror_goes_on() {
    let Some(server) = DatabaseServer::start(&["site_b", "third"]) else { return };
    let mut pair = pair_on(&server);
    goes_on(&pair, 1);

    // A password belongs into a file, and an address that has one is not kept anywhere.
    let said = pair.b.fails(2, "site move-state postgres://farside:hunter2@localhost/third");
    assert!(said.contains("holds no password"), "{said}");

    // To the file of the data directory.
    let before = history(&pair.b);
    let accounts = pair.b.dir.join("accounts.json");
    std::fs::write(&accounts, r#"{"gone":{}}"#).unwrap();
    let moved = pair.b.json("site move-state sqlite:");
    assert_eq!(moved["to"], "sqlite:");
    let said = pair.b.fails(4, "peer allow a q/w");
    assert!(said.contains("was moved to") && said.contains("farside.toml"), "{said}");
    for refused in ["peer remove a --yes", "mirror set q/v --every 2s"] {
        let said = pair.b.fails(4, refused);
        assert!(said.contains("was moved to"), "{said}");
    }
    assert_eq!(std::fs::read(&accounts).unwrap(), b"{}", "no old account comes back");
    pair.b.fails(4, "site move-state sqlite:");
    assert_eq!(pair.b.stop(), Some(0));
    // Whoever forgets to change the configuration does not go on with what is old.
    let failed = does_not_start(&pair.b.dir);
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("was moved from") && said.contains("sqlite:"), "{said}");
    std::fs::remove_file(pair.b.dir.join("farside.toml")).unwrap();
    pair.b.restart();
    assert!(history(&pair.b) >= before, "history came along");
    goes_on(&pair, 2);

    // And back, into what it was moved away from.
    let password = server.password_file().display().to_string();
    let to = server.url("site_b");
    pair.b.ok(&format!("site move-state {to} --database-password-file {password}"));
    assert!(!accounts.exists());
    assert_eq!(pair.b.stop(), Some(0));
    configure(&pair.b.dir, &to, &server.password_file());
    pair.b.restart();
    assert!(history(&pair.b) > before, "history came along");
    goes_on(&pair, 3);
    pair.b.ok("peer allow a q/w");

    let audit = pair.b.ok("audit --json");
    assert!(!audit.contains(PASSWORD) && !audit.contains("hunter2"), "{audit}");
    assert!(!pair.b.log().contains(PASSWORD) && !pair.b.log().contains("hunter2"));
}
