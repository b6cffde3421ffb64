//! The room of a pool of Ceph: shown, told of when little is left, and what does not fit is refused. A quota stands for a full cluster.

use std::process::Command;

use crate::cluster::cluster;
use crate::keeper::{Keeper, Kind, MIB, pair};
use crate::support::{Site, eventually, status, text};

/// A pool of Ceph of this test's own, and its only user.
struct Small {
    conf: String,
    name: String,
    keyring: std::path::PathBuf,
}

impl Small {
    fn new(conf: &str) -> Small {
        let name = format!("room{:08x}", rand::random::<u32>());
        let keyring = std::path::Path::new(conf).with_file_name(format!("client.{name}.keyring"));
        let small = Small { conf: conf.into(), name, keyring };
        small.admin(&["osd", "pool", "create", &small.name, "4", "4"]);
        small.admin(&["osd", "pool", "application", "enable", &small.name, "rbd"]);
        // What the manual says, and no more.
        let osd = format!("profile rbd pool={}", small.name);
        let (user, keyring) = (format!("client.{}", small.name), small.keyring.display().to_string());
        small.admin(&["auth", "get-or-create", &user, "mon", "profile rbd", "osd", &osd, "-o", &keyring]);
        small
    }

    fn try_admin(&self, arguments: &[&str]) -> std::process::Output {
        let mut ceph = Command::new("ceph");
        ceph.args(["--conf", &self.conf, "--connect-timeout", "20"]).args(arguments).output().unwrap()
    }

    fn admin(&self, arguments: &[&str]) {
        let done = self.try_admin(arguments);
        assert!(done.status.success(), "ceph {arguments:?}: {}", text(&done.stderr));
    }

    fn set_quota(&self, bytes: u64) {
        self.admin(&["osd", "pool", "set-quota", &self.name, "max_bytes", &bytes.to_string()]);
    }

    fn write(&self, image: &str, bytes: &[u8]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut rbd = Command::new("rbd");
        rbd.args(["--conf", &self.conf, "--id", &self.name, "import", "--no-progress"]);
        let done = rbd.arg(file.path()).arg(format!("{}/{image}", self.name)).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ =
            self.try_admin(&["osd", "pool", "rm", &self.name, &self.name, "--yes-i-really-really-mean-it"]);
        let _ = self.try_admin(&["auth", "rm", &format!("client.{}", self.name)]);
        let _ = std::fs::remove_file(&self.keyring);
    }
}

fn raised(site: &Site, kind: &str) -> bool {
    let open = site.json("alarm list");
    open.as_array().unwrap().iter().any(|alarm| alarm["kind"] == kind)
}

#[test]
fn a_pool_of_ceph_shows_its_room_and_tells_when_little_is_left() {
    let Some(conf) = cluster() else { return };
    let small = Small::new(&conf);
    let root = tempfile::tempdir().unwrap();
    let far = Site::start(root.path(), "far");
    let dir = root.path().join("near");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("farside.toml"), "[alarms]\nclear_after = \"1s\"\n").unwrap();
    let near = Site::start(root.path(), "near");
    let tank = Keeper::make(&far, Kind::Embedded, "tank", &conf);
    let (pool, conf) = (&small.name, &*conf);
    near.ok(&format!("pool create ceph --engine rbd --rbd-pool {pool} --user {pool} --conf {conf}"));
    // The cluster is asked beside: whoever lists the pool in the next moment does not wait for its answer.
    eventually("the cluster has told its room", || near.json("pool status ceph")["room"] == "enough");
    let pool = near.json("pool status ceph");
    let figure =
        |pool: &serde_json::Value, name: &str| pool[name].as_u64().unwrap_or_else(|| panic!("{pool}"));
    assert_eq!(figure(&pool, "size_bytes"), figure(&pool, "used_bytes") + figure(&pool, "free_bytes"));
    assert!(figure(&pool, "room_bytes") > 1 << 30, "{pool}");
    assert_eq!(pool["room"], "enough");
    assert!(near.http("/metrics").contains("farside_pool_free_bytes{pool=\"ceph\"}"));
    let said = near.fails(4, "pool grow ceph");
    assert!(said.contains("grows with its cluster") && said.contains("set-quota"), "{said}");

    // A first copy: the plan names the room.
    pair(root.path(), &far, &near);
    far.ok(&format!("volume create tank/v --size {}", 64 * MIB));
    let bytes: Vec<u8> = (0..16 * MIB).map(|at| (at ^ (at >> 9) ^ (at >> 17)) as u8 | 1).collect();
    tank.write(&far, "v", 64 * MIB, &[(0, &bytes)]);
    far.ok("peer allow near tank/v");
    near.ok("mirror create far:tank/v ceph/v");
    let plan = near.json("mirror initialize ceph/v --plan");
    assert!(plan["room_bytes"].as_u64().unwrap() > plan["brings_bytes"].as_u64().unwrap(), "{plan}");

    // The pool fills up: 32 MiB are written, and 33.5 may be.
    small.write("theirs", &vec![7; 32 << 20]);
    small.set_quota(67 << 19);
    eventually("it is nearly full", || near.json("pool status ceph")["room"] == "nearly-full");
    assert!(near.ok("pool status ceph").contains("ceph osd pool set-quota"));
    assert!(near.http("/healthz").contains("pool ceph: "));
    eventually("it is an alarm", || raised(&near, "pool-nearly-full"));
    let plan = near.json("mirror initialize ceph/v --plan");
    assert!(plan.to_string().contains("it does not fit"), "{plan}");
    let refused = near.farside("mirror initialize ceph/v");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("Nothing of it was transferred"), "{said}");
    eventually("that it does not fit is an alarm", || raised(&near, "no-room"));

    // There is room again.
    small.set_quota(0);
    eventually("it has enough room", || near.json("pool status ceph")["room"] == "enough");
    eventually("the alarm is cleared", || !raised(&near, "pool-nearly-full"));
    near.ok("mirror initialize ceph/v");
    assert_eq!(status(&near, "ceph/v")["state"], "mirrored");
    assert!(figure(&near.json("pool status ceph"), "free_bytes") > 1 << 30);
}
