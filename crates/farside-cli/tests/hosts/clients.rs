//! Hosts over the network: who may open what, with the programs that hosts have.

use std::os::unix::fs::PermissionsExt;

use crate::support::host::{Host, run, run_fails, run_ok, serving, serving_with};
use crate::support::{Site, eventually, text};

/// What `host status` says that a host may open.
fn rights(site: &Site, host: &str) -> Vec<(String, bool)> {
    let rights = site.json(&format!("host status {host}"))["rights"].clone();
    let right = |right: &serde_json::Value| {
        (right["volume"].as_str().unwrap().to_owned(), right["read_only"].as_bool().unwrap())
    };
    rights.as_array().unwrap().iter().map(right).collect()
}

#[test]
fn a_host_opens_what_it_may_and_learns_nothing_of_the_rest() {
    let root = tempfile::tempdir().unwrap();
    let mut site = serving(root.path());
    for volume in ["p/web", "p/logs", "p/secret"] {
        site.ok(&format!("volume create {volume} --size 4M"));
    }
    site.nbd("p/web").write(0, &[7; 4096]).unwrap();
    site.ok("snapshot create p/web@monday p/secret@monday");
    let web = Host::add(&site, root.path(), "web1");
    for name in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
        let mode = std::fs::metadata(web.directory.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let key = std::fs::read_to_string(web.directory.join("client-key.pem")).unwrap();
    let key_lines: Vec<&str> = key.lines().filter(|line| !line.starts_with("---")).collect();
    for file in std::fs::read_dir(&site.dir).unwrap() {
        let path = file.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { continue };
        assert!(!text(&bytes).contains(key_lines[0]), "{} holds the host's key", path.display());
    }
    assert!(web.open("p/web").unwrap_err().to_string().contains("there is no export"));
    site.ok("host allow web1 p/web");
    site.ok("host allow web1 p/logs --read-only");
    assert_eq!(rights(&site, "web1"), [("p/logs".into(), true), ("p/web".into(), false)]);
    let status = site.json("volume status p/logs");
    assert_eq!(status["hosts"], serde_json::json!([{"host": "web1", "read_only": true}]));

    let mut client = web.open("p/web").unwrap();
    assert!(!client.read_only);
    assert_eq!(client.bytes(0, 4096).unwrap(), [7; 4096]);
    client.write(4096, &[8; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(site.nbd("p/web").bytes(4096, 4096).unwrap(), [8; 4096]);
    let mut logs = web.open("p/logs").unwrap();
    assert!(logs.read_only);
    assert!(logs.write(0, &[1; 4096]).is_err());
    assert!(web.open("p/web@monday").unwrap().read_only);
    let opened = site.json("host status web1")["opened"].to_string();
    assert!(opened.contains("p/logs") && opened.contains("p/web"), "{opened}");

    // What is there and what is not: one answer.
    let say = |name: &str| web.open(name).map(drop).unwrap_err().to_string().replace(name, "NAME");
    let nothing = say("p/nothing");
    for name in ["p/secret", "p/secret@monday", "p/nothing@monday", "q/secret"] {
        assert_eq!(say(name), nothing, "{name}");
    }
    if let Some(list) = run_ok("nbdinfo", &["--list", &web.uri("")]) {
        assert!(
            list.contains("\"p/web\"") && list.contains("\"p/web@monday\"") && list.contains("\"p/logs\""),
            "{list}"
        );
        assert!(!list.contains("secret"), "{list}");
    }
    // Another host has nothing of it.
    let other = Host::add(&site, root.path(), "other");
    assert_eq!(other.open("p/web").map(drop).unwrap_err().to_string().replace("p/web", "NAME"), nothing);

    // The right is one on the volume, whatever it is called, also after a restart.
    drop((client, logs));
    site.ok("volume rename p/web p/www");
    site.ok("volume create p/web --size 4M");
    assert_eq!(say("p/web"), nothing);
    assert_eq!(web.open("p/www").unwrap().bytes(4096, 1).unwrap(), [8]);
    assert_eq!(site.stop(), Some(0));
    site.restart();
    let web = Host { address: site.published("nbd.addr"), ..web };
    assert_eq!(web.open("p/www").unwrap().bytes(4096, 1).unwrap(), [8]);
    assert!(web.open("p/web").is_err());
    // It ends with the volume, and a volume that gets the name is another.
    eventually("nobody has it open", || site.json("volume status p/www")["writers"] == 0);
    let plan = site.json("volume delete p/www --plan");
    assert!(plan["would"].to_string().contains("hosts lose their right to open it: web1"), "{plan}");
    site.ok("volume delete p/www --yes");
    assert_eq!(rights(&site, "web1"), [("p/logs".into(), true)]);
    site.ok("volume create p/www --size 4M");
    assert!(web.open("p/www").is_err());
    assert!(!site.log().contains(key_lines[0]), "the log holds the host's key");
    let page = site.http("/metrics");
    assert!(page.contains("farside_nbd_host_connections{host=\"web1\"}"), "{page}");
    assert!(page.contains("farside_nbd_hosts_refused_total{reason=\"no-right\"}"), "{page}");
}

/// However a host calls what it may not have, and whatever it asks of it.
#[test]
fn no_name_and_no_option_leads_past_a_right() {
    let root = tempfile::tempdir().unwrap();
    let site = serving(root.path());
    for volume in ["p/web", "p/Web", "p/logs", "p/secret"] {
        site.ok(&format!("volume create {volume} --size 4M"));
    }
    site.ok("snapshot create p/secret@monday");
    site.nbd("p/logs").write(0, &[7; 65536]).unwrap();
    let web = Host::add(&site, root.path(), "web1");
    site.ok("host allow web1 p/web");
    site.ok("host allow web1 p/logs --read-only");
    let nothing = web.open("p/none").unwrap_err().to_string().replace("p/none", "NAME");
    for name in [
        "p/Web",
        "P/web",
        "p/WEB",
        "p/web ",
        " p/web",
        "p/web/",
        "p//web",
        "./p/web",
        "p/../p/secret",
        "p/web\0",
        "p/we\u{200b}b",
        "p/w\u{ff45}b",
        "p/web@",
        "p/web@monday",
        "p/secret",
        "p/secret@monday",
        "",
        "p",
        "p/",
        "/web",
        "secret",
        "*",
    ] {
        let said = web.open(name).unwrap_err().to_string();
        assert!(!said.contains("secret") || name.contains("secret"), "{name:?}: {said}");
    }
    // What is there and what is not are answered alike.
    let said = web.open("p/secret").unwrap_err().to_string().replace("p/secret", "NAME");
    assert_eq!(said, nothing);
    // Whatever changes something, of what may only be read.
    let mut logs = web.open("p/logs").unwrap();
    assert!(logs.read_only);
    assert!(logs.write(0, &[1; 4096]).is_err());
    assert!(logs.trim(0, 4096).is_err());
    assert!(logs.zero(0, 4096).is_err());
    assert_eq!(site.nbd("p/logs").bytes(0, 65536).unwrap(), [7; 65536]);
    // A right that is taken while another connection of the host goes on.
    let mut kept = web.open("p/web").unwrap();
    site.ok("host deny web1 p/logs");
    assert!(logs.bytes(0, 1).is_err());
    kept.write(0, &[3; 4096]).unwrap();
}

#[test]
fn what_is_taken_from_a_host_is_cut_at_once() {
    let root = tempfile::tempdir().unwrap();
    let mut site = serving(root.path());
    site.ok("volume create p/web --size 4M");
    site.ok("volume create p/logs --size 4M");
    let web = Host::add(&site, root.path(), "web1");
    site.ok("host allow web1 p/web p/logs");
    let mut logs = web.open("p/logs").unwrap();

    let mut client = web.open("p/web").unwrap();
    client.write(0, &[1; 4096]).unwrap();
    site.ok("host deny web1 p/web");
    assert!(client.write(0, &[2; 4096]).is_err(), "the connection goes on");
    assert_eq!(site.json("volume status p/web")["writers"], 0);
    assert!(web.open("p/web").is_err());
    logs.write(0, &[3; 4096]).unwrap();
    assert_eq!(site.nbd("p/web").bytes(0, 1).unwrap(), [1]);

    // From writing to reading: cut, and only reads from then on.
    site.ok("host allow web1 p/logs --read-only");
    assert!(logs.write(0, &[4; 4096]).is_err());
    let mut logs = web.open("p/logs").unwrap();
    assert!(logs.read_only);

    // A removed host: what it has open, what it is about to open, and whatever it tries later.
    let mut greeted = web.connect().unwrap();
    eventually("both are in", || site.json("host list")[0]["connections"] == 2);
    let plan = site.json("host remove web1 --plan");
    assert!(plan["would"].to_string().contains("2 connections are cut"), "{plan}");
    site.ok("host remove web1 --yes");
    assert!(logs.bytes(0, 1).is_err());
    assert!(crate::support::nbd::option(&mut *greeted, crate::support::host::OPT_LIST, &[]).is_err());
    assert!(web.open("p/logs").is_err());
    assert_eq!(site.json("host list"), serde_json::json!([]));
    if let Some(said) = run_fails("nbdinfo", &[web.uri("p/logs")]) {
        println!("nbdinfo of a removed host: {said}");
    }
    // One of the same name is another, and its old certificate stays worthless, also after a restart.
    std::fs::rename(&web.directory, root.path().join("old")).unwrap();
    let again = Host::add(&site, root.path(), "web1");
    site.ok("host allow web1 p/logs");
    assert_eq!(site.stop(), Some(0));
    site.restart();
    let address = site.published("nbd.addr");
    let again = Host { address: address.clone(), ..again };
    again.open("p/logs").unwrap();
    assert!(
        Host { address, directory: root.path().join("old"), name: "web1".into() }.open("p/logs").is_err()
    );
}

#[test]
fn a_rollback_does_not_wait_for_hosts_that_only_read() {
    let root = tempfile::tempdir().unwrap();
    let site = serving(root.path());
    site.ok("volume create p/web --size 4M");
    site.ok("snapshot create p/web@before");
    site.nbd("p/web").write(0, &[1; 4096]).unwrap();
    let web = Host::add(&site, root.path(), "web1");
    site.ok("host allow web1 p/web --read-only");
    let mut reader = web.open("p/web").unwrap();
    assert_eq!(reader.bytes(0, 1).unwrap(), [1]);
    eventually("the writer is gone", || site.json("volume status p/web")["writers"] == 0);
    assert_eq!(site.json("volume status p/web")["readers"], 1);
    site.ok("snapshot rollback p/web@before --yes");
    assert!(reader.bytes(0, 1).is_err(), "the volume changes under nobody");
    assert_eq!(web.open("p/web").unwrap().bytes(0, 1).unwrap(), [0]);
}

#[test]
fn programs_that_hosts_have_open_volumes_over_tls() {
    let root = tempfile::tempdir().unwrap();
    let site = serving(root.path());
    site.ok("volume create p/web --size 8M");
    let web = Host::add(&site, root.path(), "web1");
    let reader = Host::add(&site, root.path(), "reader");
    site.ok("host allow web1 p/web");
    site.ok("host allow reader p/web --read-only");
    let image: Vec<u8> =
        (0..8 << 20_u32).map(|at| if at % 3_000_000 < 1_000_000 { (at / 4096) as u8 } else { 0 }).collect();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    std::fs::write(&from, &image).unwrap();
    let (from, to) = (from.display().to_string(), to.display().to_string());

    if let Some(info) = run_ok("nbdinfo", &[web.uri("p/web")]) {
        assert!(info.contains("with TLS") && info.contains("is_read_only: false"), "{info}");
        run_ok("nbdcopy", &["--flush", "--connections=4", &from, &web.uri("p/web")]);
        run_ok("nbdcopy", &["--connections=4", &reader.uri("p/web"), &to]);
        assert!(std::fs::read(&to).unwrap() == image, "what comes back is not what was copied in");
        let refused = run_fails("nbdcopy", &[&from, &reader.uri("p/web")]).unwrap();
        assert!(refused.contains("read-only") || refused.contains("readonly"), "{refused}");
        // By a name, which is checked: the certificate bears whatever the client calls the site.
        let (_, port) = web.address.rsplit_once(':').unwrap();
        let by_name = web.uri("p/web").replace(&web.address, &format!("localhost:{port}"));
        run_ok("nbdinfo", &["--size", &by_name]);
        // What a stranger's first bytes are is no line of a library's: it would be one for each connection.
        assert!(!site.log().contains("rustls::"), "{}", site.log());
    }
    let [object, credentials] = web.qemu();
    let arguments = ["info", &object, &credentials, "--image-opts", &web.qemu_image("p/web")];
    if let Some(info) = run_ok("qemu-img", &arguments) {
        assert!(info.contains("8 MiB"), "{info}");
        let target = format!("{},discard=unmap", web.qemu_image("p/web"));
        let target = target.as_str();
        let convert =
            ["convert", "-n", &object, &credentials, "--target-image-opts", "-f", "raw", &from, target];
        run_ok("qemu-img", &convert);
        let compare = [
            "compare",
            &object,
            &credentials,
            "--image-opts",
            &web.qemu_image("p/web"),
            &format!("driver=raw,file.filename={from}"),
        ];
        run_ok("qemu-img", &compare);
    }
    let io = [
        "-c",
        "write -P 9 64k 64k",
        "-c",
        "flush",
        "-c",
        "read -P 9 64k 64k",
        &object,
        &credentials,
        "--image-opts",
        &web.qemu_image("p/web"),
    ];
    if let Some(said) = run_ok("qemu-io", &io) {
        assert!(!said.contains("failed"), "{said}");
    }
    if let Some(info) = run(
        "openssl",
        &[
            "x509",
            "-noout",
            "-subject",
            "-enddate",
            "-fingerprint",
            "-sha256",
            "-in",
            &web.directory.join("client-cert.pem").display().to_string(),
        ],
    ) {
        let said = text(&info.stdout).replace(':', "").to_lowercase();
        let known = site.json("host status web1")["fingerprint"].as_str().unwrap().to_owned();
        assert!(said.contains(&known) && said.contains("web1"), "{said}");
    }
}

#[test]
fn certificates_may_come_from_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).display().to_string();
    let key = || rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let named = |name: &str| {
        let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters
    };
    let mut authority = named("our company");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = key();
    let ca = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let issue = |name: &str| {
        let key = key();
        (named(name).signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, server_key) = issue("server");
    for (name, pem) in [("ca.pem", &ca), ("server.pem", &certificate), ("server-key.pem", &server_key)] {
        std::fs::write(path(name), pem).unwrap();
    }
    let lines = format!(
        "certificate = \"{}\"\nkey = \"{}\"\nclient_ca = \"{}\"\n",
        path("server.pem"),
        path("server-key.pem"),
        path("ca.pem")
    );
    let site = serving_with(root.path(), &lines);
    assert!(!site.dir.join("nbd-authority.pem").exists());
    site.ok("volume create p/web --size 4M");
    let host = |name: &str| {
        let directory = root.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let (certificate, key) = issue(name);
        for (file, pem) in [("ca-cert.pem", &ca), ("client-cert.pem", &certificate), ("client-key.pem", &key)]
        {
            std::fs::write(directory.join(file), pem).unwrap();
        }
        Host { name: name.into(), directory, address: site.published("nbd.addr") }
    };
    let (web, stranger) = (host("web1"), host("stranger"));
    assert!(web.open("p/web").is_err(), "signed, and not known");
    let said = site.ok(&format!("host add web1 --directory {}", path("none")));
    assert!(said.contains("your authority"), "{said}");
    assert!(!root.path().join("none").exists(), "nothing is written");
    site.ok("host allow web1 p/web");
    web.open("p/web").unwrap().write(0, &[1; 4096]).unwrap();
    assert!(stranger.open("p/web").is_err());
    site.ok("host remove web1 --yes");
    assert!(web.open("p/web").is_err());
}

#[test]
fn without_tls_only_this_machine_is_served() {
    let root = tempfile::tempdir().unwrap();
    let site = serving_with(root.path(), "tls = \"off\"\n");
    site.ok("volume create p/web --size 4M");
    site.has_logged("every user of this machine");
    let mut stream = crate::support::host::connected(&site.published("nbd.addr")).unwrap();
    crate::support::nbd::greeted(&mut stream).unwrap();
    crate::support::nbd::Client::go(Box::new(stream), "p/web").unwrap().write(0, &[1; 4096]).unwrap();

    let open = root.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::write(open.join("farside.toml"), "[nbd]\nlisten = \"0.0.0.0:0\"\ntls = \"off\"\n").unwrap();
    let refused = std::process::Command::new(crate::support::FARSIDED)
        .args(["--peer-listen", "off", "--http", "off", "--data-dir"])
        .arg(&open)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("loopback"), "{}", text(&refused.stderr));
}

#[test]
fn a_host_that_cannot_be_written_down_is_not_added() {
    let root = tempfile::tempdir().unwrap();
    let site = serving(root.path());
    let taken = root.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("client-key.pem"), "another's").unwrap();
    let said = site.fails(1, &format!("host add web1 --directory {}", taken.display()));
    assert!(said.contains("client-key.pem is there already"), "{said}");
    assert_eq!(site.json("host list"), serde_json::json!([]));
    let missing = root.path().join("no/such/place");
    site.fails(1, &format!("host add web1 --directory {}", missing.display()));
    let good = root.path().join("good");
    let added = site.json(&format!("host add web1 --directory {}", good.display()));
    assert!(added.get("files").is_none() && !added.to_string().contains("PRIVATE"), "{added}");
    // One that is there is, whatever lies in the directory.
    for directory in [&good, &missing] {
        let said = site.fails(4, &format!("host add web1 --directory {}", directory.display()));
        assert!(said.contains("host web1 exists already"), "{said}");
    }
    let again = site.json("host add web1 --if-absent");
    assert_eq!((&again["existed"], &again["fingerprint"]), (&true.into(), &added["fingerprint"]));
    assert!(site.ok("host add web1 --if-absent").contains("host web1 is there, as asked for"));
    let said = site.fails(3, "host allow web1 p/none");
    assert!(said.contains("does not exist"), "{said}");
    site.fails(3, "host status nobody");
}

/// The ranges that a client is told have the context's flag 1, joined; none where nbdinfo is not installed.
fn marked(uri: &str, context: &str) -> Option<Vec<(u64, u64)>> {
    let said = run_ok("nbdinfo", &["--json", &format!("--map={context}"), uri])?;
    let extents: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    let mut at = 0;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for extent in &extents {
        let number = |key: &str| extent[key].as_u64().unwrap();
        assert_eq!(number("offset"), at, "no gap");
        at += number("length");
        match (number("type"), ranges.last_mut()) {
            (0, _) => {}
            (1, Some((from, length))) if *from + *length == number("offset") => *length += number("length"),
            (1, _) => ranges.push((number("offset"), number("length"))),
            (other, _) => panic!("flags {other}"),
        }
    }
    Some(ranges)
}

/// What `snapshot diff` says, joined: data and what was deallocated.
fn difference(site: &Site, from: &str, to: &str) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for extent in site.json(&format!("snapshot diff {from} {to}")).as_array().unwrap() {
        let (offset, length) = (extent["offset"].as_u64().unwrap(), extent["length"].as_u64().unwrap());
        match ranges.last_mut() {
            Some((from, before)) if *from + *before == offset => *before += length,
            _ => ranges.push((offset, length)),
        }
    }
    ranges
}

#[test]
fn any_nbd_client_sees_what_changed_since_a_snapshot() {
    let root = tempfile::tempdir().unwrap();
    let site = serving(root.path());
    site.ok("volume create p/web --size 64M");
    site.ok("volume create p/other --size 4M");
    let mut volume = site.nbd("p/web");
    for block in 0..2000_u64 {
        volume.write(block * 8192, &[1; 4096]).unwrap();
    }
    site.ok("snapshot create p/web@monday");
    // Scattered, so that one question does not answer it all; deallocations; and what is written as it was.
    for block in (0..16_000_u64).step_by(3) {
        volume.write(block * 4096, &[2; 4096]).unwrap();
    }
    volume.trim(4 << 20, 1 << 20).unwrap();
    volume.write(8192, &[1; 4096]).unwrap();
    site.ok("snapshot create p/web@tuesday");
    volume.write(60 << 20, &[3; 4096]).unwrap();
    volume.flush().unwrap();
    let uri = |export: &str| format!("nbd+unix:///{export}?socket={}", site.nbd_socket().display());

    let expected = difference(&site, "p/web@monday", "p/web@tuesday");
    assert!(expected.len() > 3000, "{}", expected.len());
    let Some(changed) = marked(&uri("p/web@tuesday"), "farside:changed:monday") else { return };
    assert!(changed == expected, "{} ranges instead of {}", changed.len(), expected.len());
    let since = marked(&uri("p/web"), "farside:changed:tuesday").unwrap();
    assert_eq!(since, [(60 << 20, 4096)]);
    assert_eq!(marked(&uri("p/web@tuesday"), "farside:changed:tuesday").unwrap(), []);
    // Backwards too: what the older one has otherwise.
    let back = marked(&uri("p/web@monday"), "farside:changed:tuesday").unwrap();
    assert!(back == difference(&site, "p/web@tuesday", "p/web@monday"));

    let info = run_ok("nbdinfo", &[&uri("p/web")]).unwrap();
    for context in ["base:allocation", "farside:changed:monday", "farside:changed:tuesday"] {
        assert!(info.contains(context), "{info}");
    }
    assert!(!run_ok("nbdinfo", &[&uri("p/other")]).unwrap().contains("farside:changed"));
    run_fails("nbdinfo", &["--map=farside:changed:sunday", &uri("p/web")]);

    // A host makes an incremental backup of what it may read.
    let backup = Host::add(&site, root.path(), "backup");
    site.ok("host allow backup p/web --read-only");
    let mut copy = backup.open("p/web@monday").unwrap().read_all();
    let mut source = backup.open("p/web@tuesday").unwrap();
    for (offset, length) in marked(&backup.uri("p/web@tuesday"), "farside:changed:monday").unwrap() {
        let range = offset as usize..(offset + length) as usize;
        for (index, part) in copy[range].chunks_mut(1 << 20).enumerate() {
            source.read(offset + ((index as u64) << 20), part).unwrap();
        }
    }
    assert!(copy == source.read_all(), "the copy is tuesday");
    // And is told nothing of what it may not.
    run_fails("nbdinfo", &["--map=farside:changed:monday", &backup.uri("p/other")]);
}

#[test]
fn an_idle_host_costs_little_memory() {
    let root = tempfile::tempdir().unwrap();
    let site = serving(root.path());
    site.ok("volume create p/web --size 4M");
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", site.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let hosts: Vec<Host> = ["a", "b", "c", "d"].map(|name| Host::add(&site, root.path(), name)).into();
    hosts.iter().for_each(|host| drop(site.ok(&format!("host allow {} p/web", host.name))));
    // What is made once is not counted.
    let first: Vec<_> = hosts.iter().map(|host| host.open("p/web").unwrap()).collect();
    let before = resident();
    let idle: Vec<_> = (0..200).map(|at| hosts[at % 4].open("p/web").unwrap()).collect();
    let each = resident().saturating_sub(before) / idle.len() as u64;
    println!("an idle connection under TLS: {each} KiB");
    assert!(each < 150, "{each} KiB each");
    assert_eq!(site.json("volume status p/web")["writers"], 204);
    drop((first, idle));
    eventually("all have left", || site.json("volume status p/web")["writers"] == 0);
}

/// A site that was restored without its authority for hosts says so: every host is locked out, and nothing else shows it.
#[test]
fn an_authority_that_is_missing_though_hosts_are_known_is_told() {
    let root = tempfile::tempdir().unwrap();
    let mut site = serving(root.path());
    site.ok("volume create p/web --size 4M");
    let _web = Host::add(&site, root.path(), "web1");
    assert!(!site.http("/readyz").contains("authority for hosts"));
    assert_eq!(site.stop(), Some(0));
    std::fs::remove_file(site.dir.join("nbd-authority.pem")).unwrap();
    site.restart();
    let ready = site.http("/readyz");
    assert!(
        ready.contains("503") && ready.contains("authority for hosts (nbd-authority.pem) was not there"),
        "{ready}"
    );
}
