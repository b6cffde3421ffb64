//! The API over HTTPS: who may do what, and what nobody may.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::support::api::{Answer, Api};
use crate::support::{Site, eventually, text};
use serde_json::Value;

/// The site's own certificate.
const OWN: &str = "api-certificate.pem";
const PASSWORD: &str = "correct horse battery";

/// A site that serves the API over HTTPS, with a pool `p`, a volume `p/v` and a snapshot of it.
fn site(root: &Path, more: &str) -> (Site, Api) {
    let mut site = Site::new(&root.join("a"), "a");
    Api::configure(&site, more);
    site.restart();
    site.ok(&format!("pool create p --path {} --size 64M", root.join("p.pool").display()));
    site.ok("volume create p/v --size 4M");
    site.ok("snapshot create p/v@s");
    let api = Api::of(&site, OWN);
    (site, api)
}

/// A token of this role, by the command line at the site itself.
fn token(site: &Site, name: &str, role: &str) -> String {
    let secret = site.ok(&format!("token create {name} --role {role}"));
    let secret = secret.strip_suffix('\n').unwrap();
    assert!(secret.starts_with("farside_") && secret.len() == 72, "{secret}");
    secret.to_owned()
}

/// The secret in a file that its owner alone may read.
fn file(root: &Path, name: &str, secret: &str) -> PathBuf {
    let path = root.join(name);
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Every request of the document: method, path with names filled in, and the role that it needs.
fn requests(document: &Value) -> Vec<(String, String, Option<String>)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let filled = path.replace("{pool}", "p").replace("{volume}", "v").replace("{snapshot}", "s");
            let filled = filled.replace("{token}", "viewer").replace(['{', '}'], "");
            let role = operation["x-role"].as_str().map(str::to_owned);
            all.push((method.to_ascii_uppercase(), filled, role));
        }
    }
    assert!(all.len() > 100, "{}", all.len());
    all
}

/// What a change would show in.
fn state(site: &Site) -> Vec<Value> {
    let listings = [
        "pool list",
        "volume list",
        "snapshot list p/v",
        "peer list",
        "host list",
        "mirror status",
        "account list",
    ];
    let kept = |value: &Value| {
        let fields = [
            "name",
            "uuid",
            "size_bytes",
            "state",
            "held",
            "quota_bytes",
            "reserve_bytes",
            "autogrow",
            "role",
        ];
        fields.map(|field| value[field].clone()).into_iter().collect::<Value>()
    };
    listings.map(|listing| site.json(listing).as_array().unwrap().iter().map(kept).collect()).into()
}

#[test]
fn a_viewers_token_changes_nothing_by_any_route() {
    let root = tempfile::tempdir().unwrap();
    let (mut site, api) = site(root.path(), "");
    let (viewer, operator) = (token(&site, "viewer", "viewer"), token(&site, "operator", "operator"));
    let document = api.ask("GET", "/api/v1/openapi.json", &[], None).json();
    let (before, changes) = (state(&site), site.json("audit").as_array().unwrap().len());
    let mut refused = 0;
    for (method, path, role) in requests(&document) {
        let body = (method != "GET").then_some("{}");
        let is_open = role.is_none();
        let answer = api.ask(&method, &path, &[], body);
        assert_eq!(answer.status == 401, !is_open, "{method} {path} by nobody: {answer:?}");
        if path == "/api/v1/events" {
            // It has no end, and changes nothing.
            continue;
        }
        let answer = api.with(&viewer, &method, &path, body);
        let may = is_open || role.as_deref() == Some("viewer");
        assert_eq!(answer.status != 403, may, "{method} {path} by a viewer: {answer:?}");
        // To end one's own session is all that a viewer does beside reading; a token has none.
        assert!(method == "GET" || !may || path == "/api/v1/session", "{method} {path} is open to viewers");
        refused += u32::from(answer.status == 403);
        if role.as_deref() == Some("administrator") {
            let answer = api.with(&operator, &method, &path, body);
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "forbidden"),
                "{method} {path} by an operator"
            );
        }
    }
    // The same by other words for the method, which a program might send.
    for path in document["paths"].as_object().unwrap().keys() {
        for word in ["PUT", "post"] {
            let answer = api.with(&viewer, word, &path.replace(['{', '}'], ""), None);
            assert!(matches!(answer.status, 400 | 403 | 405), "{word} {path} by a viewer: {answer:?}");
        }
    }
    println!("{refused} requests are refused to a viewer");
    assert!(refused > 50);
    assert_eq!(state(&site), before);
    assert!(site.ok("pool status p").contains("open"));
    let audit = site.json("audit --limit 1000");
    let by_viewer = |entry: &&Value| entry["who"] == "token viewer" && entry["path"] != "/api/v1/session";
    assert_eq!(audit.as_array().unwrap().iter().filter(by_viewer).count(), 0, "{audit}");
    assert!(audit.as_array().unwrap().len() < changes + 10);
    assert_eq!(site.stop(), Some(0));
}

/// A destructive request that names what it is about.
fn confirmed(api: &Api, token: &str, method: &str, path: &str, thing: &str, body: Option<&str>) -> Answer {
    let bearer = format!("Bearer {token}");
    api.ask(method, path, &[("Authorization", &bearer), ("X-Farside-Confirm", thing)], body)
}

/// `farside` at another machine: all that it knows is the address, the certificate and the token's file.
fn remote(api: &Api, identity: &[&str], token: &Path, arguments: &str) -> Output {
    std::process::Command::new(crate::support::FARSIDE)
        .args(["--api", &format!("https://{}", api.address), "--token-file"])
        .arg(token)
        .args(identity)
        .args(arguments.split_whitespace())
        .env_remove("FARSIDE_SOCKET")
        .output()
        .unwrap()
}

#[test]
fn the_command_line_steers_a_site_from_elsewhere_as_far_as_its_token_goes() {
    let root = tempfile::tempdir().unwrap();
    let (site, api) = site(root.path(), "");
    let fingerprint = site.json("config show")["api_fingerprint"].as_str().unwrap().to_owned();
    let identity = ["--fingerprint", fingerprint.as_str()];
    let secret = token(&site, "backup", "operator");
    let kept = file(root.path(), "token", &secret);
    let ask = |arguments: &str| remote(&api, &identity, &kept, arguments);

    let listed = ask("volume list --json");
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(text(&listed.stdout).contains("\"p/v\""));
    assert!(ask("volume create p/w --size 4M").status.success());
    assert!(ask("snapshot create p/w@one").status.success());
    let refused = ask("pool delete p --yes");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("token backup is operator here, and this needs administrator"));
    assert!(!ask("token list").status.success());

    // Who is at the other end is looked at before anything is sent.
    let wrong = "00".repeat(32);
    let other = remote(&api, &["--fingerprint", &wrong], &kept, "volume list");
    assert_eq!(other.status.code(), Some(5));
    assert!(text(&other.stderr).contains("another certificate"), "{}", text(&other.stderr));
    let unknown = remote(&api, &[], &kept, "volume list");
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown.stderr));
    let ca = site.dir.join(OWN).display().to_string();
    let signed = remote(&api, &["--ca-file", &ca], &kept, "volume list");
    assert!(signed.status.success(), "{}", text(&signed.stderr));

    // Over, revoked, made up.
    site.ok("token revoke backup --yes");
    let revoked = ask("volume list");
    assert_eq!(revoked.status.code(), Some(1));
    assert!(text(&revoked.stderr).contains("not known here, or was revoked"), "{}", text(&revoked.stderr));
    let short = site.ok("token create short --role viewer --valid 1s");
    eventually("a token ends", || api.with(short.trim(), "GET", "/api/v1/volumes", None).status == 401);
    assert_eq!(api.with("farside_00", "GET", "/api/v1/volumes", None).status, 401);
    assert!(site.json("token list").as_array().unwrap().iter().any(|token| token["expired"] == true));

    // The secret is nowhere but with its owner.
    let digits = &secret["farside_".len()..];
    for entry in std::fs::read_dir(&site.dir).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(bytes) = std::fs::read(&path) {
            assert!(!bytes.windows(64).any(|window| window == digits.as_bytes()), "{}", path.display());
        }
    }
    assert!(!site.ok("audit --json").contains(digits) && !site.ok("token list --json").contains(digits));
}

#[test]
fn a_person_logs_in_by_a_browser_and_no_other_page_does_it_for_them() {
    let root = tempfile::tempdir().unwrap();
    let (site, api) = site(root.path(), "names = [\"san.example\"]\n");
    let kept = file(root.path(), "password", &format!("{PASSWORD}\n"));
    site.ok(&format!("account create ann --role administrator --password-file {}", kept.display()));
    let short = file(root.path(), "short", "too short");
    let said =
        site.fails(2, &format!("account create bob --role viewer --password-file {}", short.display()));
    assert!(said.contains("12 to 256"), "{said}");

    let session = "/api/v1/session";
    let login = format!("{{\"name\":\"ann\",\"password\":\"{PASSWORD}\"}}");
    let own = format!("https://{}", api.address);
    let from_evil = api.ask("POST", session, &[("Origin", "https://evil.example")], Some(&login));
    assert_eq!((from_evil.status, from_evil.header("set-cookie")), (403, None));
    let answer = api.ask("POST", session, &[("Origin", &own)], Some(&login));
    assert_eq!((answer.status, answer.json()["role"].as_str()), (200, Some("administrator")));
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    for flag in ["__Host-farside=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(flag), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let asked = |method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>| {
        let mut all = vec![("Cookie", cookie.as_str())];
        all.extend(headers);
        api.ask(method, path, &all, body)
    };
    let who = asked("GET", session, &[], None);
    assert_eq!(who.json()["who"], "account ann");
    assert_eq!(site.json("account list")[0]["sessions"], 1);

    // A change needs the page's own origin; a form of another page cannot say that.
    let volume = "{\"name\":\"p/w\",\"size_bytes\":4194304}";
    for origin in [None, Some("https://evil.example"), Some("null"), Some("http://san.example")] {
        let headers: Vec<_> = origin.map(|origin| ("Origin", origin)).into_iter().collect();
        let answer = asked("POST", "/api/v1/volumes", &headers, Some(volume));
        assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{origin:?}");
    }
    assert_eq!(asked("POST", "/api/v1/volumes", &[("Origin", &own)], Some(volume)).status, 200);

    // A name that is not this daemon's, though it leads here: a page has rebound it.
    for host in ["evil.example", "evil.example:7443", "", "localhost.evil.example"] {
        assert_eq!(asked("GET", "/api/v1/volumes", &[("Host", host)], None).status, 403, "{host}");
    }
    for host in ["san.example", "SAN.example:7443", "localhost", "[::1]:1"] {
        assert_eq!(asked("GET", "/api/v1/volumes", &[("Host", host)], None).status, 200, "{host}");
    }

    // No frame, no guessing of types, no copies on the way, no other page that reads it.
    let page = api.ask("GET", "/api/v1/docs", &[], None);
    for answer in [&page, &who] {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    assert!(
        page.body.contains("<title>farside API</title>") && !page.body.contains("http"),
        "it asks nobody else"
    );

    // The end: by oneself, and by an administrator.
    assert_eq!(asked("DELETE", session, &[("Origin", &own)], None).status, 200);
    assert_eq!(asked("GET", session, &[], None).status, 401);
    let answer = api.ask("POST", session, &[], Some(&login));
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(api.ask("GET", session, &[("Cookie", &cookie)], None).status, 200);
    site.ok("account set ann --role viewer");
    assert_eq!(api.ask("GET", session, &[("Cookie", &cookie)], None).status, 401, "its role has changed");
    site.ok("account remove ann --yes");

    let listed = site.ok("audit --json");
    assert!(!listed.contains(PASSWORD) && listed.contains("***"), "{listed}");
    assert!(!site.log().contains(PASSWORD));
}

#[test]
fn passwords_cannot_be_tried_at_will() {
    let root = tempfile::tempdir().unwrap();
    let (site, api) = site(root.path(), "");
    let kept = file(root.path(), "password", PASSWORD);
    site.ok(&format!("account create ann --role operator --password-file {}", kept.display()));
    let login = |name: &str, password: &str| {
        api.ask(
            "POST",
            "/api/v1/session",
            &[],
            Some(&format!("{{\"name\":\"{name}\",\"password\":\"{password}\"}}")),
        )
    };
    let (wrong, nobody) = (login("ann", "something else"), login("nobody", "something else"));
    assert_eq!((wrong.status, nobody.status), (401, 401));
    assert_eq!(wrong.body, nobody.body, "it does not say which of them is wrong");
    let tries: Vec<u16> = (0..10).map(|n| login("ann", &format!("guess number {n}")).status).collect();
    println!("{tries:?}");
    assert!(tries.contains(&429), "{tries:?}");
    assert_eq!(login("ann", PASSWORD).code(), "too-many-requests", "the right one waits, too");
    // Who has a token, or is at the site, is not concerned.
    let secret = token(&site, "t", "viewer");
    assert_eq!(api.with(&secret, "GET", "/api/v1/volumes", None).status, 200);
    let audit = site.json("audit");
    let failed =
        audit.as_array().unwrap().iter().filter(|entry| entry["outcome"] == "unauthenticated").count();
    assert!((1..=5).contains(&failed), "{audit}");
    assert!(audit.as_array().unwrap().iter().all(|entry| entry["who"] != "account nobody"));
    eventually("it is counted", || {
        site.http("/metrics").contains("farside_api_refused_total{reason=\"throttled\"}")
    });
}

#[test]
fn every_change_is_written_down_with_who_and_what_came_of_it() {
    let root = tempfile::tempdir().unwrap();
    let (mut site, api) = site(root.path(), "");
    let secret = token(&site, "robot", "administrator");
    assert_eq!(
        api.with(&secret, "POST", "/api/v1/volumes", Some("{\"name\":\"p/w\",\"size_bytes\":4194304}"))
            .status,
        200
    );
    assert_eq!(confirmed(&api, &secret, "DELETE", "/api/v1/volumes/p/absent", "p/absent", None).status, 404);
    assert_eq!(api.with(&secret, "DELETE", "/api/v1/volumes/p/w?plan=true", None).status, 200);
    assert_eq!(api.with(&secret, "GET", "/api/v1/volumes", None).status, 200);
    assert_eq!(
        api.with(
            &secret,
            "POST",
            "/api/v1/peers",
            Some("{\"address\":\"127.0.0.1:1\",\"code\":\"a-secret\"}")
        )
        .status
            / 100,
        4
    );
    let by_robot = site.json("audit --limit 3");
    let told = |entry: &Value| {
        ["who", "role", "from", "method", "path", "outcome"]
            .map(|field| entry[field].as_str().unwrap_or("-").to_owned())
            .join(" ")
    };
    let lines: Vec<String> = by_robot.as_array().unwrap().iter().map(told).collect();
    assert_eq!(lines[2], "token robot administrator 127.0.0.1 POST /api/v1/volumes done");
    assert_eq!(lines[1], "token robot administrator 127.0.0.1 DELETE /api/v1/volumes/p/absent not-found");
    assert!(lines[0].starts_with("token robot administrator 127.0.0.1 POST /api/v1/peers "), "{lines:?}");
    assert_eq!(by_robot[0]["request"]["code"], "***");
    assert_eq!(by_robot[2]["request"]["name"], "p/w");
    assert!(by_robot[1]["message"].as_str().unwrap().contains("absent"));
    let uid = rustix::process::getuid().as_raw();
    let own = site.json(&format!("audit --who uid{uid}"));
    assert_eq!(own, Value::Array(Vec::new()), "names are whole");
    let own = site.command("audit --json --who").arg(format!("uid {uid}")).output().unwrap();
    assert!(
        text(&own.stdout).contains("/api/v1/pools") && text(&own.stdout).contains("\"socket\""),
        "{}",
        text(&own.stdout)
    );

    // No word of the API takes an entry away, and none is lost by a kill.
    let before = site.json("audit --limit 1000");
    for method in ["DELETE", "POST", "PUT", "PATCH"] {
        assert_eq!(api.with(&secret, method, "/api/v1/audit", Some("{}")).status, 405, "{method}");
    }
    site.kill();
    site.restart();
    assert_eq!(site.json("audit --limit 1000"), before);
    assert!(
        before.as_array().unwrap().windows(2).all(|pair| pair[0]["id"].as_i64() > pair[1]["id"].as_i64())
    );
    let paged = Api::of(&site, OWN).with(&secret, "GET", "/api/v1/audit?limit=2", None).json();
    assert_eq!(paged["entries"].as_array().unwrap().len(), 2);
    let next = format!("/api/v1/audit?limit=2&before={}", paged["next"]);
    assert_eq!(Api::of(&site, OWN).with(&secret, "GET", &next, None).json()["entries"][0], before[2]);
}

#[test]
fn what_takes_data_away_names_it_and_waits_if_the_site_says_so() {
    let root = tempfile::tempdir().unwrap();
    let (mut site, api) = site(root.path(), "");
    let secret = token(&site, "robot", "administrator");
    let volumes = |site: &Site| site.json("volume list").as_array().unwrap().len();
    let volume = |name: &str| format!("/api/v1/volumes/p/{name}");
    for name in ["w", "x", "y", "z"] {
        site.ok(&format!("volume create p/{name} --size 4M"));
    }

    // Without its name, and with another's, nothing happens; a plan needs none.
    let answer = api.with(&secret, "DELETE", &volume("w"), None);
    assert_eq!((answer.status, answer.code().as_str()), (428, "unconfirmed"), "{answer:?}");
    assert!(
        answer.json()["error"]["hint"].as_str().unwrap().contains("x-farside-confirm: p/w"),
        "{answer:?}"
    );
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("w"), "p/x", None).status, 428);
    assert_eq!(api.with(&secret, "DELETE", &format!("{}?plan=true", volume("w")), None).status, 200);
    assert_eq!(api.with(&secret, "DELETE", &format!("{}?plan=false", volume("w")), None).status, 428);
    assert_eq!(volumes(&site), 5);
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("w"), "p/w", None).status, 200);
    let snapshot = format!("{}/snapshots/s", volume("v"));
    assert_eq!(confirmed(&api, &secret, "DELETE", &snapshot, "p/v", None).status, 428);
    assert_eq!(confirmed(&api, &secret, "DELETE", &snapshot, "p/v@s", None).status, 200);
    assert_eq!(volumes(&site), 4);

    // They wait: by a token, by the command line at another machine; not at the site itself.
    let restarted = |site: &mut Site, delay: &str| {
        assert_eq!(site.stop(), Some(0));
        Api::configure(site, &format!("delay = \"{delay}\"\n"));
        site.restart();
        Api::of(site, OWN)
    };
    let api = restarted(&mut site, "1h");
    site.ok("volume create p/v2 --size 4M");
    site.ok("volume delete p/v2 --yes");
    let answer = confirmed(&api, &secret, "DELETE", &volume("x"), "p/x", None);
    assert_eq!((answer.status, answer.code().as_str()), (202, "delayed"), "{answer:?}");
    let again = confirmed(&api, &secret, "DELETE", &volume("x"), "p/x", None);
    assert_eq!(again.json()["delayed"], answer.json()["delayed"], "it waits once");
    let kept = file(root.path(), "robot.token", &secret);
    let fingerprint = site.json("config show")["api_fingerprint"].as_str().unwrap().to_owned();
    let said = remote(&api, &["--fingerprint", &fingerprint], &kept, "volume delete p/y --yes");
    assert_eq!(said.status.code(), Some(4));
    assert!(
        text(&said.stderr).contains("nothing is changed yet") && text(&said.stderr).contains("delayed stop")
    );
    // What has other rules take data away later waits, too; what keeps it does not.
    site.ok("snapshot create p/z@s");
    let hold = format!("{}/snapshots/s/hold", volume("z"));
    assert_eq!(api.with(&secret, "POST", &hold, Some("{\"held\":true}")).status, 200);
    assert_eq!(api.with(&secret, "POST", &hold, Some("{\"held\":false}")).status, 202);
    let waiting = site.json("delayed list");
    let things: Vec<_> =
        waiting.as_array().unwrap().iter().map(|one| one["thing"].as_str().unwrap()).collect();
    assert_eq!(things, ["p/x", "p/y", "p/z@s"]);
    assert_eq!((volumes(&site), &waiting[0]["who"]), (4, &Value::from("token robot")));
    eventually("somebody is told", || {
        let alarms = site.json("alarm list");
        let told = |alarm: &Value| alarm["kind"] == "destructive-delayed" && alarm["subject"] == "p/x";
        alarms.as_array().unwrap().iter().any(told)
    });
    // Read by position it could say anything, and what is not there cannot wait.
    assert_eq!(api.with(&secret, "POST", &hold, Some("[false]")).status, 400);
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("typo"), "p/typo", None).status, 404);
    // Nor does what is refused as things stand.
    let host = site.nbd("p/z");
    let in_use = confirmed(&api, &secret, "DELETE", &volume("z"), "p/z", None);
    assert_eq!(in_use.code(), "refused", "{in_use:?}");
    drop(host);
    // Nor what is wrong already with asking: there is no such mirror at this site.
    for (method, path, body) in
        [("DELETE", "/api/v1/mirrors/p/z", None), ("POST", "/api/v1/mirrors/p/z/resync", Some("{}"))]
    {
        let answer = confirmed(&api, &secret, method, path, "p/z", body);
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
        assert!(["refused", "not-found"].contains(&answer.code().as_str()), "{path}: {answer:?}");
    }
    assert_eq!(site.json("delayed list").as_array().unwrap().len(), 3);
    // Another administrator stops one; it can be stopped once.
    let other = token(&site, "other", "administrator");
    let one = format!("/api/v1/delayed/{}", waiting[0]["id"].as_str().unwrap());
    let operator = token(&site, "operator", "operator");
    assert_eq!(api.with(&operator, "DELETE", &one, None).status, 403);
    assert_eq!(api.with(&other, "DELETE", &one, None).status, 200);
    assert_eq!(api.with(&other, "DELETE", &one, None).status, 404);
    site.ok(&format!("delayed stop {}", waiting[1]["id"].as_str().unwrap()));
    let audit = site.ok("audit --json --limit 1000");
    assert!(audit.contains("\"delayed\"") && audit.contains(&one), "{audit}");
    // A daemon that ends forgets what waits, and has done nothing of it.
    let api = restarted(&mut site, "2s");
    assert_eq!((site.json("delayed list"), volumes(&site)), (Value::Array(Vec::new()), 4));

    // It runs when its time has come; if who asked for it may still do that.
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("x"), "p/x", None).status, 202);
    assert_eq!(volumes(&site), 4);
    eventually("it runs", || volumes(&site) == 3);
    let last = &site.json("audit --limit 1")[0];
    assert_eq!((&last["who"], &last["outcome"]), (&"token robot".into(), &"done".into()), "{last}");
    // What has its name meanwhile is another. While a snapshot of it is held it would be refused at once.
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("z"), "p/z", None).code(), "refused");
    site.ok("snapshot unhold p/z@s");
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("z"), "p/z", None).status, 202);
    site.ok("volume rename p/z p/other");
    site.ok("volume create p/z --size 4M");
    eventually("its time is over", || site.json("delayed list").as_array().unwrap().is_empty());
    eventually("it is said", || {
        let last = &site.json("audit --limit 1")[0];
        last["outcome"] == "refused" && last["message"].as_str().unwrap().contains("another now")
    });
    site.ok("volume delete p/z --yes");
    site.ok("volume rename p/other p/z");
    assert_eq!(confirmed(&api, &secret, "DELETE", &volume("y"), "p/y", None).status, 202);
    site.ok("token revoke robot --yes");
    // Its time has come and was looked at: only then is it worth looking whether the volume is there.
    eventually("it is said", || site.json("audit --limit 1")[0]["outcome"] == "forbidden");
    assert_eq!(
        (site.json("delayed list"), volumes(&site)),
        (Value::Array(Vec::new()), 3),
        "its token was revoked"
    );
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn another_certificate_is_taken_up_without_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![String::from("localhost")])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let pem = certificate.pem() + &key.serialize_pem();
        file(root.path(), name, &pem);
        pem
    };
    let (first, second) = (made("first.pem"), made("second.pem"));
    let mut site = Site::new(&root.path().join("a"), "a");
    Api::configure(
        &site,
        "certificate = \"api.pem\"\nkey = \"api.pem\"\n"
            .replace("api.pem", &site.dir.join("api.pem").display().to_string())
            .as_str(),
    );
    std::fs::write(site.dir.join("api.pem"), &first).unwrap();
    site.restart();
    let secret = token(&site, "t", "viewer");
    let old = Api::of(&site, "api.pem");
    let mut open = old.connect().unwrap();
    let shown = |site: &Site| site.json("config show")["api_fingerprint"].as_str().unwrap().to_owned();
    let before = shown(&site);

    // Damaged: it stays as it is, and the log says why.
    std::fs::write(site.dir.join("api.pem"), &first[..200]).unwrap();
    site.hang_up();
    eventually("the log tells of it", || site.log().contains("the certificate of the API is not changed"));
    assert_eq!(
        (shown(&site), old.with(&secret, "GET", "/api/v1/volumes", None).status),
        (before.clone(), 200)
    );

    std::fs::write(site.dir.join("api.pem"), &second).unwrap();
    site.hang_up();
    eventually("another is shown", || shown(&site) != before);
    assert!(old.connect().is_err(), "who trusts the first alone does not get in");
    assert_eq!(Api::of(&site, "api.pem").with(&secret, "GET", "/api/v1/volumes", None).status, 200);
    // Who was connected stays so.
    let request = format!(
        "GET /api/v1/volumes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n\r\n"
    );
    open.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 15];
    open.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert_eq!(site.stop(), Some(0));
}

/// More than there are places.
const STRANGERS: usize = 300;

#[test]
fn strangers_at_the_door_hurt_nobody() {
    let root = tempfile::tempdir().unwrap();
    let (mut site, api) = site(root.path(), "");
    let secret = token(&site, "t", "viewer");
    let began = Instant::now();
    let mut standing = Vec::new();
    for number in 0..STRANGERS {
        let mut stream = TcpStream::connect(&api.address).unwrap();
        let words: &[u8] = match number % 4 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            2 => &[0x16, 0x03, 0x01, 0x40, 0x00],
            _ => &[0xff; 200],
        };
        let _ = stream.write_all(words);
        standing.push(stream);
        if number % 50 == 0 {
            assert_eq!(api.with(&secret, "GET", "/api/v1/volumes", None).status, 200, "after {number}");
        }
    }
    assert_eq!(api.with(&secret, "GET", "/api/v1/volumes", None).status, 200);
    site.ok("volume list");
    println!("{STRANGERS} strangers: {:?}", began.elapsed());

    // Past the handshake: a header without end, more bytes than a login has, a body for nobody.
    let endless = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(1 << 20));
    let said = api.say(endless.as_bytes()).unwrap_or_default();
    assert!(!said.contains("200 OK"), "{said}");
    let long = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        8 << 20,
        "x".repeat(1 << 20)
    );
    let said = api.say(long.as_bytes()).unwrap_or_default();
    assert!(!said.contains("200 OK"), "{said}");
    let files = "POST /api/v1/accelerator/prepositions?job=a&what=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1000000000\r\n\r\n";
    let began = Instant::now();
    let said = api.say(files.as_bytes()).unwrap_or_default();
    assert!(said.starts_with("HTTP/1.1 401"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(10), "it is not waited for what nobody wants");
    for rubbish in
        ["GET\r\n\r\n", "\0\0\0\0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        assert!(!api.say(rubbish.as_bytes()).unwrap_or_default().contains("200 OK"), "{rubbish:?}");
    }
    drop(standing);
    assert_eq!(api.with(&secret, "GET", "/api/v1/volumes", None).status, 200);
    assert_eq!(site.stop(), Some(0), "and nobody holds up the stop");
}

/// Events as they come, until one has all of these words; the id of the last.
#[track_caller]
fn followed(stream: &mut impl Read, words: &[&str]) -> (String, String) {
    let mut text = String::new();
    let mut piece = [0; 4096];
    loop {
        let all: Vec<&str> = text.split("\n\n").collect();
        if let Some(event) =
            all[..all.len() - 1].iter().find(|event| words.iter().all(|word| event.contains(word)))
        {
            let id = event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
            return (id.to_owned(), text.clone());
        }
        let read = stream.read(&mut piece).unwrap_or(0);
        assert!(read > 0, "{words:?} did not come: {text}");
        // The body comes in chunks; their lengths stand between the lines.
        text += &String::from_utf8_lossy(&piece[..read]).replace('\r', "");
    }
}

#[test]
fn whoever_follows_the_events_misses_nothing_by_being_cut_off() {
    let root = tempfile::tempdir().unwrap();
    let (mut site, api) = site(root.path(), "");
    let secret = token(&site, "t", "viewer");
    let follow = |last: Option<&str>| {
        let mut stream = api.connect().unwrap();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n{last}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let pool =
        |name: &str| format!("pool create {name} --path {} --size 64M", root.path().join(name).display());
    let mut stream = follow(None);
    followed(&mut stream, &["event: reset"]);
    site.ok(&pool("q"));
    let (id, _) = followed(&mut stream, &["event: pool", "\"name\":\"q\""]);
    drop(stream);

    site.ok(&pool("r"));
    site.ok("pool delete q --yes");
    let mut stream = follow(Some(&id));
    let (last, text) = followed(&mut stream, &["event: gone", "\"key\":\"q\""]);
    assert!(text.contains("\"name\":\"r\"") && !text.contains("event: reset"), "{text}");
    assert!(last > id, "{last} {id}");
    followed(&mut follow(Some("0000000000000000-1")), &["event: reset"]);

    // A token that is revoked hears nothing more, and who listens holds up no stop.
    let mut other = follow(None);
    followed(&mut other, &["event: reset"]);
    site.ok("token revoke t --yes");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let mut local = std::os::unix::net::UnixStream::connect(site.dir.join("farside.sock")).unwrap();
    local.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    followed(&mut local, &["event: reset"]);
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn long_lists_come_in_pages() {
    let root = tempfile::tempdir().unwrap();
    let (site, api) = site(root.path(), "");
    for number in 0..25 {
        site.ok(&format!("volume create p/n{number:02} --size 4M"));
    }
    for number in 0..12 {
        site.ok(&format!("snapshot create p/n00@z{} p/n01@z{number}", 50 - number));
    }
    let secret = token(&site, "t", "viewer");
    let names = |path: &str, limit: usize, total: &str| {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let answer = api.with(&secret, "GET", &format!("/api/v1/{path}?limit={limit}{after}"), None);
            assert_eq!(answer.header("x-farside-total"), Some(total));
            let page = answer.json();
            assert!(page.as_array().unwrap().len() <= limit);
            seen.extend(
                page.as_array().unwrap().iter().map(|thing| thing["name"].as_str().unwrap().to_owned()),
            );
            let Some(next) = answer.header("x-farside-next") else { break };
            after = format!("&after={}", next.replace('/', "%2F"));
        }
        seen
    };
    let seen = names("volumes", 10, "26");
    assert_eq!(seen.len(), 26);
    assert!(seen.is_sorted());
    // Oldest first, whatever they are called.
    let of_first: Vec<String> = (0..12).map(|number| format!("z{}", 50 - number)).collect();
    assert_eq!(names("volumes/p/n00/snapshots", 5, "12"), of_first);
    let of_second = (0..12).map(|number| format!("z{number}"));
    // One is of another volume.
    let of_both: Vec<String> = of_first.into_iter().chain(of_second).collect();
    assert_eq!(names("snapshots", 7, "25")[..24], of_both);
    let whole = api.with(&secret, "GET", "/api/v1/volumes/p/n01/snapshots", None).json();
    assert_eq!(whole.as_array().unwrap().len(), 12);
    assert_eq!(api.with(&secret, "GET", "/api/v1/volumes/p/none/snapshots", None).code(), "not-found");
    assert_eq!(
        api.with(&secret, "GET", "/api/v1/alarms?all=true&limit=3", None).json(),
        Value::Array(Vec::new())
    );
    assert_eq!(
        api.with(&secret, "GET", "/api/v1/mirrors?state=mirrored&search=x&limit=5", None).json(),
        Value::Array(Vec::new())
    );
    assert_eq!(api.with(&secret, "GET", "/api/v1/mirrors?state=nonsense", None).code(), "wrong-usage");
}

/// As a browser asks for a page.
const BROWSER: (&str, &str) = ("Accept-Encoding", "gzip, deflate, br");

#[test]
fn the_console_is_served_to_browsers_and_tells_nobody_anything_of_the_site() {
    let root = tempfile::tempdir().unwrap();
    let (site, api) = site(root.path(), "");
    let page = api.ask("GET", "/", &[BROWSER], None);
    assert_eq!((page.status, page.header("content-encoding")), (200, Some("br")), "{page:?}");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    let policy = page.header("content-security-policy").unwrap();
    for word in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(word), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("data:"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("access-control-allow-origin"), None);

    // The same page for each of its addresses, and for whoever has it already, only that.
    let etag = page.header("etag").unwrap();
    for path in ["/mirrors", "/mirrors/p/v", "/volumes/p/v", "/create/replica", "/login"] {
        let again = api.ask("GET", path, &[BROWSER], None);
        assert_eq!((again.status, again.header("etag")), (200, Some(etag)), "{path}");
    }
    let known = api.ask("GET", "/", &[BROWSER, ("If-None-Match", etag)], None);
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    assert_eq!(api.ask("HEAD", "/", &[BROWSER], None).status, 200);

    // What has a hash in its name stays as it is for ever.
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../console/dist/assets")).unwrap();
    let mut scripts = 0;
    for file in files {
        let name = file.unwrap().file_name().into_string().unwrap();
        let path = format!("/assets/{}", name.strip_suffix(".br").unwrap());
        let answer = api.ask("GET", &path, &[BROWSER], None);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("cache-control").unwrap().contains("immutable"), "{path}");
        scripts += u32::from(answer.header("content-type") == Some("text/javascript; charset=utf-8"));
    }
    assert!(scripts > 0);
    for path in ["/assets/none.js", "/assets/..%2Findex.html", "/assets/"] {
        assert!(matches!(api.ask("GET", path, &[BROWSER], None).status, 401 | 404), "{path}");
    }
    assert_eq!(api.ask("GET", "/assets/none.js", &[BROWSER], None).status, 404);

    // Nothing is changed there, no other name leads there, and a request that is wrong is no page.
    assert!(matches!(api.ask("POST", "/", &[BROWSER], None).status, 401 | 405));
    assert_eq!(api.ask("GET", "/", &[BROWSER, ("Host", "evil.example")], None).status, 403);
    assert_eq!(api.ask("GET", "/", &[BROWSER, ("Origin", "https://evil.example")], None).status, 403);
    assert_eq!(api.ask("GET", "/api/v1/no/such", &[BROWSER], None).status, 401);
    assert_eq!(api.ask("GET", "/wp-admin", &[BROWSER], None).status, 401);

    // Whoever cannot read it is told why.
    let plain = api.ask("GET", "/", &[], None);
    assert_eq!(plain.status, 406);
    assert!(plain.header("content-type").unwrap().starts_with("text/plain"));
    assert!(plain.body.contains("Accept-Encoding: br"), "{}", plain.body);

    // A viewer's token changes nothing of that, and the page and the API go together.
    let viewer = token(&site, "viewer", "viewer");
    assert_eq!(api.with(&viewer, "GET", "/api/v1/mirrors", None).json(), serde_json::json!([]));
}

#[test]
fn the_console_is_served_over_https_alone() {
    let root = tempfile::tempdir().unwrap();
    let (site, _) = site(root.path(), "");
    let ask = |stream: &mut dyn ReadWrite| {
        let words = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: br\r\nConnection: close\r\n\r\n";
        stream.write_all(words.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let mut socket = std::os::unix::net::UnixStream::connect(site.dir.join("farside.sock")).unwrap();
    let by_socket = ask(&mut socket);
    assert!(by_socket.starts_with("HTTP/1.1 404"), "{by_socket}");
    let mut metrics = TcpStream::connect(site.published("http.addr")).unwrap();
    let by_metrics = ask(&mut metrics);
    assert!(by_metrics.starts_with("HTTP/1.1 404"), "{by_metrics}");
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}
