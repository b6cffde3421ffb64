//! Several daemons as one site, on a real PostgreSQL: they join, one leads, another follows whatever happens to it, and nothing that they
//! are asked is lost on the way. Without PostgreSQL the tests say that they are skipped; `FARSIDE_REQUIRE_TOOLS=1` makes that a failure.
//! With volumes, on a cluster: `clusters/daemons.rs`.

use std::time::{Duration, Instant};

use crate::support::api::Api;
use crate::support::database_server::{DatabaseServer, PASSWORD};
use crate::support::several::{Several, leader_of};
use crate::support::{Site, eventually, text};

/// What a dead daemon's work may wait at most.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(15);

#[track_caller]
fn another_leads(all: &Several, asked: usize, before: usize) -> usize {
    let began = Instant::now();
    loop {
        match leader_of(&all.daemons[asked]) {
            Some(name) if name != all.names[before] => {
                let leads = all.names.iter().position(|known| *known == name).unwrap();
                assert!(began.elapsed() < FOLLOWED_WITHIN, "after {:?}", began.elapsed());
                return leads;
            }
            _ => assert!(began.elapsed() < FOLLOWED_WITHIN, "nobody follows"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn a_token(site: &Site) -> String {
    let made = site.json("token create robot --role administrator");
    made["secret"].as_str().unwrap().to_owned()
}

#[test]
fn one_leads_and_another_follows_whatever_happens_to_it() {
    let Some(server) = DatabaseServer::start(&["near"]) else { return };
    let root = tempfile::tempdir().unwrap();
    let mut all = Several::start(root.path(), &server, 3);
    let far = Site::start(root.path(), "far");
    let invited = all.daemons[1].ok("peer invite");
    std::fs::write(root.path().join("code"), invited).unwrap();
    let joins =
        format!("peer join {} --code-file {}", all.peer_address(0), root.path().join("code").display());
    far.ok(&joins);
    let token = a_token(&all.daemons[2]);

    let password = root.path().join("password");
    std::fs::write(&password, "a long one of the test").unwrap();
    let made = format!("account create ann --role viewer --password-file {}", password.display());
    all.daemons[1].ok(&made);
    assert!(all.daemons[0].http("/metrics").contains("farside_daemon_leads 1"));
    assert!(all.daemons[1].http("/metrics").contains("farside_daemon_leads 0"));

    // What one that stands by is asked, the one that leads does: by the socket, and over HTTPS for who has a token.
    let audited = all.daemons[0].json("audit");
    assert!(audited.to_string().contains("/tokens"), "{audited}");
    let by = Api::of(&all.daemons[1], "api-certificate.pem");
    assert_eq!(by.with(&token, "GET", "/api/v1/peers", None).status, 200);
    assert_eq!(by.with("nonsense", "GET", "/api/v1/peers", None).status, 401);
    assert_eq!(by.ask("GET", "/api/v1/peers", &[], None).status, 401);
    // Nobody is believed who says that he passes something on.
    let leading = Api::of(&all.daemons[0], "api-certificate.pem");
    let pretends = [("x-farside-pass", "x"), ("x-farside-from", "socket 0")];
    for api in [&by, &leading] {
        assert_eq!(api.ask("GET", "/api/v1/peers", &pretends, None).status, 401);
    }
    // Nor does one that stands by pass on what was asked of somebody else.
    let bearer = format!("Bearer {token}");
    for (host, status) in [("evil.example", 403), ("localhost", 200)] {
        let headers = [("Host", host), ("Authorization", bearer.as_str())];
        assert_eq!(by.ask("GET", "/api/v1/peers", &headers, None).status, status, "{host}");
    }
    // Whose file it is that is shown.
    assert_eq!(all.daemons[1].json("config show")["configuration"]["daemon"], "alpha");
    assert!(all.daemons[1].ok("config show").contains("alpha, which leads"));
    let listed = all.daemons[2].json("site status");
    let seen: Vec<_> = listed["daemons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["state"].clone(), d["leads"].clone()))
        .collect();
    assert_eq!(
        seen,
        [("active".into(), true.into()), ("active".into(), false.into()), ("active".into(), false.into())]
    );

    // The one that leads dies. Its peer learns where the others are, and finds the one that follows.
    eventually("the peer knows the others", || far.log().contains("the peer's site has other daemons there"));
    let known = far.json("peer status near");
    assert!(known["other_addresses"].as_array().is_some_and(|others| others.len() == 2), "{known}");
    assert!(far.ok("peer list").contains(" and 2 more"));
    all.daemons[0].kill();
    let second = another_leads(&all, 1, 0);
    eventually("the session is there again", || far.json("peer status near")["state"] == "connected");
    // Its process began anew: a peer may be there before its API is.
    let api = || Api::of(&all.daemons[second], "api-certificate.pem");
    eventually("its API is there", || api().connect().is_ok());
    assert_eq!(api().with(&token, "GET", "/api/v1/site", None).status, 200);
    assert!(all.daemons[1].json("account list").to_string().contains("ann"), "accounts are the site's");
    eventually("that one is gone is told", || {
        all.daemons[1].ok("site status").contains("the daemon alpha of this site is gone")
    });
    let gone = |all: &Several| -> Vec<String> {
        let open = all.daemons[1].json("alarm list");
        let gone = open.as_array().unwrap().iter().filter(|alarm| alarm["kind"] == "daemon-gone");
        gone.map(|alarm| alarm["subject"].as_str().unwrap().to_owned()).collect()
    };
    eventually("after a while it is an alarm", || gone(&all) == ["alpha"]);
    all.daemons[0].restart();
    assert!(all.daemons[0].ok("site status").contains("stands by"));
    eventually("the alarm is over", || gone(&all).is_empty());

    // The one that leads hangs. When it wakes another has its work, and it stands by.
    all.daemons[second].freeze();
    let third = another_leads(&all, 0, second);
    all.daemons[0].ok("peer set far --name distant");
    all.daemons[third].ok("peer set distant --name far");
    all.daemons[second].thaw();
    eventually("it stands by", || {
        let said = all.daemons[second].farside("site status");
        leader_of(&all.daemons[second]) == Some(all.names[third].clone()) && said.status.success()
    });
    all.daemons[second].ok("token list");

    // The one that leads is drained, and its process is the same.
    let pid = all.daemons[third].pid();
    all.daemons[second].ok(&format!("site drain {}", all.names[third]));
    let fourth = another_leads(&all, second, third);
    assert_eq!(all.daemons[third].pid(), pid);
    // One that stood by has done that itself, and it is in the audit log like the rest.
    let audited = all.daemons[second].json("audit").to_string();
    assert!(audited.contains(&format!("/site/daemons/{}/drain", all.names[third])), "{audited}");
    assert!(audited.contains(&format!("socket of {}", all.names[second])), "{audited}");
    eventually("it answers", || all.daemons[third].farside("site status").status.success());
    let said = all.daemons[second].fails(4, &format!("site remove {}", all.names[fourth]));
    assert!(said.contains("lives"), "{said}");
    all.daemons[second].ok(&format!("site remove {}", all.names[third]));
    eventually("the removed one ends and says why", || {
        all.daemons[third].log().contains("this one is not among them") || !all.daemons[third].runs()
    });

    // The database is away for longer than the lease: whoever led stops its work, and goes on when it is back.
    server.crash();
    eventually("it stops its work", || all.daemons[fourth].log().contains("the lease was not renewed for"));
    eventually("it stands by, and says so", || {
        let said = all.daemons[fourth].farside("peer list");
        let words = text(&said.stderr);
        said.status.code() == Some(5) && words.contains("stands by") && words.contains("Nothing was done")
    });
    server.go_on();
    let began = Instant::now();
    while leader_of(&all.daemons[fourth]).is_none() {
        assert!(began.elapsed() < FOLLOWED_WITHIN);
        std::thread::sleep(Duration::from_millis(100));
    }
    eventually("the session is there again", || far.json("peer status near")["state"] == "connected");
    // A database that was made anew under them is nobody's.
    server.sql("postgres", "DROP DATABASE near WITH (FORCE)");
    server.sql("postgres", "CREATE DATABASE near");
    eventually("it is seen", || {
        all.daemons.iter().any(|daemon| daemon.log().contains("is empty, though this daemon"))
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(server.sql("near", "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").trim(), "0");
    for site in &all.daemons {
        assert!(!site.log().contains(PASSWORD), "no log shows a password");
    }
}

#[test]
fn who_joins_is_invited_and_brings_nothing_along() {
    let Some(server) = DatabaseServer::start(&["near"]) else { return };
    let root = tempfile::tempdir().unwrap();
    // A site whose volumes lie on its machine stays one of one daemon.
    let alone = Site::start(root.path(), "alone");
    assert!(alone.fails(4, "site invite").contains("move-state"));
    let mut all = Several::start(root.path(), &server, 1);
    let first = &all.daemons[0];
    let pool = root.path().join("p.pool");
    first.ok(&format!("pool create p --path {} --size 64M", pool.display()));
    let said = first.fails(4, "site invite");
    assert!(said.contains("pool p lies at") && said.contains("Nothing was changed"), "{said}");
    first.ok("pool delete p --yes");

    // Codes that are wrong, used, or over.
    let url = server.url("near");
    let password = server.password_file();
    let code = root.path().join("code");
    let joins = |site: &Site| {
        site.farside(&format!(
            "site join {url} --database-password-file {} --code-file {}",
            password.display(),
            code.display()
        ))
    };
    let mut newcomer = Several::newcomer(root.path(), "second");
    newcomer.restart();
    std::fs::write(&code, "farside-daemon1_00").unwrap();
    let said = joins(&newcomer);
    assert_eq!(said.status.code(), Some(2), "{}", text(&said.stderr));
    std::fs::write(&code, all.daemons[0].ok("site invite --valid 1s")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    let said = joins(&newcomer);
    assert_eq!(said.status.code(), Some(4), "{}", text(&said.stderr));
    assert!(text(&said.stderr).contains("was used, or is over"));
    let first = &all.daemons[0];
    let invited = first.json("site invite");
    let (id, secret) = (invited["id"].as_str().unwrap(), invited["code"].as_str().unwrap());
    let open = first.json("site invite --list");
    assert!(open.as_array().unwrap().iter().any(|open| open["id"] == id), "{open}");
    assert!(!open.to_string().contains(secret), "the list tells no code");
    let cancel = format!("site invite --cancel {id}");
    assert!(first.ok(&cancel).contains("taken back"));
    assert!(first.fails(3, &cancel).contains("no invitation for a daemon is called"));
    assert!(first.ok("site invite --list").contains("no invitation"));
    std::fs::write(&code, secret).unwrap();
    assert!(text(&joins(&newcomer).stderr).contains("was used, or is over"));
    std::fs::write(&code, all.daemons[0].ok("site invite")).unwrap();
    // What is a site of its own does not become one of another.
    newcomer.ok(&format!("pool create q --path {} --size 64M", root.path().join("q.pool").display()));
    assert!(text(&joins(&newcomer).stderr).contains("would not come along"));
    newcomer.ok("pool delete q --yes");
    let joined = joins(&newcomer);
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    assert!(text(&joins(&newcomer).stderr).contains("was used, or is over"));
    let key = |site: &Site| std::fs::read(site.dir.join("identity.pem")).unwrap();
    assert_eq!(key(&newcomer), key(&all.daemons[0]));
    newcomer.stop();
    Several::configure(&newcomer, "second", Some(&server));
    newcomer.restart();
    all.push(newcomer, "second");
    eventually("it is seen", || all.daemons[0].json("site status")["daemons"].as_array().unwrap().len() == 2);

    // What would lie on one machine is refused from now on.
    let said = all.daemons[1].fails(4, &format!("pool create p --path {} --size 64M", pool.display()));
    assert!(said.contains("2 daemons") && said.contains("Nothing was changed"), "{said}");
    assert!(all.daemons[0].fails(4, "site move-state sqlite:").contains("2 daemons"));
    // A daemon that nobody invited.
    let stranger = Several::newcomer(root.path(), "stranger");
    Several::configure(&stranger, "stranger", Some(&server));
    let refused = stranger.does_not_start();
    assert_eq!(refused.status.code(), Some(6), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("farside site join"), "{}", text(&refused.stderr));
}
