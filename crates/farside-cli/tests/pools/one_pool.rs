//! One pool among others: it is opened again without a restart, deleted and copied without touching what is not it.

use std::io::Write;

use crate::support::small::Small;
use crate::support::{Pair, Site, check_pool, eventually, status};

#[test]
fn a_pool_without_room_below_says_so_and_goes_on_by_itself() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("small"), "24m") else { return };
    let mut site = Site::start(root.path(), "a");
    let path = small.0.join("p.pool");
    site.ok(&format!("pool create p --path {} --size 256M", path.display()));
    site.ok(&format!("pool create other --path {} --size 64M", root.path().join("other.pool").display()));
    site.ok("volume create p/v --size 128M");
    site.ok("volume create other/v --size 1M");
    site.ok("snapshot create p/v@early");
    let (mut host, mut neighbour) = (site.nbd("p/v"), site.nbd("other/v"));
    let mut reader = site.nbd("p/v@early");
    host.write(64 << 20, &[1; 65536]).unwrap();
    (0..8).for_each(|at| host.write(at << 20, &vec![7; 1 << 20]).unwrap());
    host.flush().unwrap();

    // The file system below the thin file has no room left.
    let fill = small.0.join("fill");
    let mut file = std::fs::File::create(&fill).unwrap();
    for part in [1 << 20, 4096] {
        while file.write_all(&vec![1; part]).is_ok() {}
    }
    let mut at = 8 << 20;
    while host.write(at, &vec![2; 1 << 20]).is_ok() {
        at += 1 << 20;
        assert!(at < 100 << 20, "it never fails");
    }
    // No harm is done, and it goes on; but somebody is told.
    let pool = site.json("pool status p");
    assert!(pool["error"].as_str().is_some_and(|e| e.contains("refuses data")), "{pool}");
    assert_eq!(pool["state"], "open");
    assert!(site.http("/healthz").contains("refuses data"));
    // Changes that need no data come to a consistency point, which cannot be made. Nothing is in doubt by that.
    let mut block = 0;
    while host.trim(block * 4096, 4096).and_then(|()| host.flush()).is_ok() {
        block += 1;
        assert!(block < 4000, "no consistency point is refused");
    }
    let pool = site.json("pool status p");
    assert_eq!(pool["state"], "open", "{pool}");
    assert!(pool["error"].as_str().is_some_and(|e| e.contains("refuses data")), "{pool}");
    assert_eq!(site.nbd("p/v").bytes(64 << 20, 65536).unwrap(), vec![1; 65536], "it can be read");
    // It would fail again at once, and says what it needs; so does the plan of what changes something.
    let said = site.fails(4, "pool reopen p");
    assert!(said.contains("free at least") && said.contains("df "), "{said}");
    assert!(site.ok("snapshot rollback p/v@early --plan").contains("refuses data"));
    assert!(site.fails(4, "pool reopen other").contains("accepts changes"));

    std::fs::remove_file(&fill).unwrap();
    drop(file);
    eventually("it goes on by itself", || {
        host.write(1 << 20, &[4; 65536]).and_then(|()| host.flush()).is_ok()
    });
    eventually("nothing is wrong any more", || site.http("/healthz").contains("200 OK"));
    neighbour.write(0, &[3; 4096]).unwrap();
    neighbour.flush().unwrap();
    assert_eq!(host.bytes(64 << 20, 65536).unwrap(), vec![1; 65536]);
    assert!(reader.bytes(0, 4096).is_ok(), "connections stay");
    let pool = site.json("pool status p");
    assert!(pool["state"] == "open" && pool["error"].is_null(), "{pool}");
    drop((host, reader));
    assert_eq!(site.stop(), Some(0));
    check_pool(&path);
    drop(small);
}

/// What takes over a replica needs little, and has a reserve for it.
#[test]
fn a_replica_is_taken_over_though_the_file_system_below_is_full() {
    let pair = Pair::start();
    let Some(small) = Small::at(&pair.root.path().join("small"), "48m") else { return };
    let (a, b) = (&pair.a, &pair.b);
    let path = small.0.join("s.pool");
    b.ok(&format!("pool create s --path {} --size 64M", path.display()));
    a.ok("volume create p/v --size 32M");
    a.ok("peer allow b p/v");
    let mut host = a.nbd("p/v");
    host.write(0, &vec![1; 1 << 20]).and_then(|()| host.flush()).unwrap();
    b.ok("mirror create a:p/v s/v");
    b.ok("mirror initialize s/v");
    let fill = small.0.join("fill");
    let mut file = std::fs::File::create(&fill).unwrap();
    for part in [1 << 20, 4096] {
        while file.write_all(&vec![1; part]).is_ok() {}
    }
    // Scattered, so that it waits in memory where it arrives; and more each time, until what the file had used before is used again.
    let mut shown = vec![1; 1 << 20];
    for round in 1.. {
        let mut next = shown.clone();
        for at in 0..512 {
            let offset = at * 40960 + round * 4096;
            host.write(offset as u64, &[round as u8 + 1; 4096]).unwrap();
            if let Some(block) = next.get_mut(offset..offset + 4096) {
                block.fill(round as u8 + 1);
            }
        }
        host.flush().unwrap();
        b.ok("mirror update s/v --no-wait");
        let last = || b.json("mirror history s/v")[0].clone();
        eventually("it has ended", || b.json("mirror history s/v").as_array().unwrap().len() == round + 1);
        match last()["result"].as_str().unwrap() {
            "ok" => shown = next,
            _ => break,
        }
        assert!(round < 9, "all of it fits below");
    }
    b.ok("mirror break s/v --yes");
    assert_eq!(status(b, "s/v")["state"], "broken-off");
    assert_eq!(b.json("pool status s")["state"], "open");
    assert!(b.nbd("s/v").bytes(0, 1 << 20).unwrap() == shown, "what had arrived whole");
    drop((host, file, small));
}

#[test]
fn a_full_pool_is_made_larger_while_its_host_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    let path = root.path().join("p.pool");
    site.ok(&format!("pool create p --path {} --size 64M", path.display()));
    site.ok("volume create p/v --size 1G");
    let mut host = site.nbd("p/v");
    let megabyte = |at: u64| -> Vec<u8> {
        let words = (0..131_072u64).map(|i| (at * 131_072 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        words.flat_map(u64::to_le_bytes).collect()
    };
    let fill = |host: &mut crate::support::nbd::Client, from: u64| {
        (from..).find(|at| host.write(at << 20, &megabyte(*at)).is_err()).unwrap()
    };
    let full = fill(&mut host, 0);
    for (code, arguments, said) in [
        (4, "pool grow p", "name the new size"),
        (4, "pool grow p --size 63M", "never shrinks"),
        (3, "pool grow q --size 1G", "pool q does not exist"),
    ] {
        let text = site.fails(code, arguments);
        assert!(text.contains(said), "{arguments}: {text}");
    }
    site.ok("pool grow p --size 64M");
    let said = site.ok("pool grow p --size 128M");
    assert!(said.contains("pool p has 128.0 MiB now"), "{said}");
    let more = fill(&mut host, full);
    assert!(more > full + 50, "of 64 MiB more only {} MiB are used", more - full);
    assert_eq!(site.json("pool status p")["size_bytes"], 128 << 20);
    // By hand first, as with a raw device.
    std::fs::File::options().write(true).open(&path).unwrap().set_len((192 << 20) + 100).unwrap();
    assert_eq!(site.json("pool grow p")["size_bytes"], 192 << 20);
    host.write(more << 20, &megabyte(more)).unwrap();
    host.flush().unwrap();
    site.kill();
    site.restart();
    let mut host = site.nbd("p/v");
    for at in 0..=more {
        assert!(host.bytes(at << 20, 1 << 20).unwrap() == megabyte(at), "MiB {at}");
    }
    drop(host);
    assert_eq!(site.stop(), Some(0));
    check_pool(&path);
}

#[test]
fn a_plan_of_a_pool_says_what_would_be_refused() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    let (path, taken) = (root.path().join("p.pool").display().to_string(), root.path().display().to_string());
    site.ok(&format!("pool create taken --path {} --size 64M", root.path().join("t.pool").display()));
    for (arguments, said) in [
        (format!("taken --path {path} --size 64M"), "already exists"),
        (format!("p --path {path}"), "--size"),
        (format!("p --path {path} --size 1000"), "multiple of 4096"),
        (format!("p --path {taken} --size 64M"), "exists"),
        (format!("p --path {taken}/no/p.pool --size 64M"), "does not exist"),
    ] {
        let plan = site.json(&format!("pool create {arguments} --plan"));
        assert!(
            plan["refused"].as_str().is_some_and(|refused| refused.contains(said)),
            "{arguments}: {plan}"
        );
        assert!(!site.farside(&format!("pool create {arguments}")).status.success(), "{arguments}");
    }
    assert!(site.json(&format!("pool create p --path {path} --size 64M --plan"))["refused"].is_null());
}

#[test]
fn one_that_could_not_be_opened_is_opened_later() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    let (path, away) = (root.path().join("p.pool"), root.path().join("away"));
    site.ok(&format!("pool create p --path {} --size 64M", path.display()));
    site.ok("volume create p/v --size 1M");
    assert_eq!(site.stop(), Some(0));
    std::fs::rename(&path, &away).unwrap();
    site.restart();
    assert_eq!(site.json("pool list")[0]["state"], "failed");
    assert!(site.http("/healthz").contains("farside pool reopen p"));
    site.fails(3, "pool reopen p");
    assert_eq!(site.json("pool list")[0]["state"], "failed", "it keeps its place");
    // Nor does it lose it to whoever tries another verb.
    let import = format!("pool import p --path {}", path.display());
    site.fails(3, &import);
    assert_eq!(site.json("pool list")[0]["state"], "failed", "it keeps its place");
    assert!(site.http("/healthz").contains("farside pool reopen p"));
    let other = root.path().join("other.pool");
    for at in [&path, &other] {
        let said = site.fails(4, &format!("pool create p --path {} --size 64M", at.display()));
        assert!(said.contains("farside pool reopen p"), "{said}");
        assert!(!at.exists());
    }
    std::fs::rename(&away, &path).unwrap();
    site.ok("pool reopen p");
    assert_eq!(site.json("volume list")[0]["name"], "p/v");
}

#[test]
fn delete_removes_what_was_open_and_not_what_has_its_name() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    let (path, moved) = (root.path().join("p.pool"), root.path().join("moved"));
    site.ok(&format!("pool create p --path {} --size 64M", path.display()));
    std::fs::rename(&path, &moved).unwrap();
    std::fs::write(&path, "the backup").unwrap();
    let said = site.fails(4, "pool delete p --yes");
    assert!(said.contains(&moved.display().to_string()), "{said}");
    assert!(site.json("pool delete p --plan")["refused"].is_string());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "the backup");
    assert_eq!(site.json("pool list")[0]["state"], "open");
    std::fs::rename(&moved, &path).unwrap();
    site.ok("pool delete p --yes");
    assert!(!path.exists());
}

#[test]
fn a_copy_is_not_opened_beside_its_original() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    let (path, copy) = (root.path().join("p.pool"), root.path().join("copy.pool"));
    site.ok(&format!("pool create p --path {} --size 64M", path.display()));
    assert_eq!(site.stop(), Some(0));
    std::fs::copy(&path, &copy).unwrap();
    site.restart();
    let before = std::fs::read(&copy).unwrap();
    let said = site.fails(4, &format!("pool import practice --path {}", copy.display()));
    assert!(said.contains("a copy of pool p") && said.contains("--as-copy"), "{said}");
    assert!(std::fs::read(&copy).unwrap() == before, "nothing was changed");
    assert_eq!(site.json("pool list").as_array().unwrap().len(), 1);
}

/// A copy of a site's pool, made while its daemon was down.
fn copied(site: &mut Site, pool: &std::path::Path) -> std::path::PathBuf {
    assert_eq!(site.stop(), Some(0));
    let copy = pool.with_extension("copy");
    std::fs::copy(pool, &copy).unwrap();
    site.restart();
    copy
}

fn write(site: &Site, volume: &str, block: u64) {
    let mut host = site.nbd(volume);
    host.write(block * 4096, &[block as u8 + 1; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    eventually("the host is gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

#[test]
fn a_copy_beside_its_original_is_a_pool_of_its_own() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.a.ok("peer allow b p/v --reverse --fence");
    for block in 0..64 {
        write(&pair.a, "p/v", block);
    }
    pair.b.ok("mirror initialize q/v");
    pair.a.ok("snapshot create p/v@monday");
    pair.b.ok("mirror update q/v");
    // Without its rates, which sink with time.
    let held = |site: &Site| {
        let mut held = site.json("mirror destinations");
        held.as_array_mut().unwrap().iter_mut().for_each(|held| held["budgets"] = serde_json::Value::Null);
        held
    };
    let before = held(&pair.a);

    // Of a destination.
    let path = copied(&mut pair.b, &pair.root.path().join("q.pool"));
    let import = format!("pool import practice --path {} --as-copy", path.display());
    let bytes = std::fs::read(&path).unwrap();
    let plan = pair.b.json(&format!("{import} --plan"));
    assert!(plan["would"][1].as_str().unwrap().contains("its mirrors end"), "{plan}");
    assert!(std::fs::read(&path).unwrap() == bytes, "a plan changes nothing");
    pair.b.ok(&import);
    let id = |site: &Site, pool: &str| site.json(&format!("pool status {pool}"))["uuid"].clone();
    let volume = |site: &Site, name: &str| site.json(&format!("volume status {name}"))["uuid"].clone();
    let own = (id(&pair.b, "practice"), volume(&pair.b, "practice/v"));
    assert!(own.0 != id(&pair.b, "q") && own.1 != volume(&pair.b, "q/v"), "{own:?}");
    assert_eq!(pair.b.json("mirror status").as_array().unwrap().len(), 1, "that of the original");
    let snapshots = pair.b.ok("snapshot list practice/v");
    assert!(snapshots.contains("monday") && snapshots.contains("base-"), "{snapshots}");
    pair.b.fails(3, "mirror break practice/v --yes");
    pair.b.fails(3, "mirror delete practice/v --yes");
    write(&pair.b, "practice/v", 100);

    pair.b.kill();
    pair.b.restart();
    assert_eq!((id(&pair.b, "practice"), volume(&pair.b, "practice/v")), own);
    assert_eq!(pair.b.nbd("practice/v").bytes(100 * 4096, 4096).unwrap(), vec![101; 4096]);
    assert_eq!(held(&pair.a), before, "the source has not heard of it");
    eventually("the copy is nobody's any more", || {
        pair.b.farside("pool delete practice --yes").status.success()
    });
    write(&pair.a, "p/v", 200);
    pair.b.ok("mirror update q/v");
    let update = pair.b.json("mirror history q/v")[0].clone();
    assert!(update["base"].is_string() && update["changed_bytes"] == 4096, "{update}");
    assert_eq!(status(&pair.b, "q/v")["state"], "mirrored");
    assert!(status(&pair.a, "p/v")["overtaken"].is_null());
    write(&pair.a, "p/v", 201);

    // Of a source: nobody who may mirror the original may mirror the copy, and nothing is kept in it for anybody.
    let path = copied(&mut pair.a, &pair.root.path().join("p.pool"));
    pair.a.ok(&format!("pool import practice --path {} --as-copy", path.display()));
    let of_copy = |held: &serde_json::Value| {
        held.as_array().unwrap().iter().any(|held| held["volume"].as_str().unwrap().starts_with("practice/"))
    };
    assert!(!of_copy(&held(&pair.a)));
    eventually("there is a session", || pair.b.json("peer status a")["state"] == "connected");
    let refused = pair.b.farside("mirror create a:practice/v q/stolen");
    assert!(crate::support::text(&refused.stderr).contains("does not allow"), "{refused:?}");
    pair.b.ok("mirror update q/v");
    assert_eq!(pair.a.stop(), Some(0));
    check_pool(&path);
}
