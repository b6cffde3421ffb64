//! Three daemons of one site, with volumes on the cluster: whichever dies or hangs in the middle of a transfer, another goes on.

use std::time::{Duration, Instant};

use crate::cluster::cluster;
use crate::keeper::{Keeper, Kind, MIB};
use crate::support::database_server::DatabaseServer;
use crate::support::several::{Several, leader_of};
use crate::support::{Site, eventually, status};

const SIZE: u64 = 64 * MIB;
/// A dead daemon's work goes on within this.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(15);

fn leading(all: &Several, asked: usize) -> usize {
    let mut leads = None;
    eventually("somebody leads", || {
        leads =
            leader_of(&all.daemons[asked]).and_then(|name| all.names.iter().position(|known| *known == name));
        leads.is_some()
    });
    leads.unwrap()
}

/// Waits until another than `before` leads.
fn followed(all: &Several, asked: usize, before: usize) -> usize {
    let began = Instant::now();
    loop {
        let leads =
            leader_of(&all.daemons[asked]).and_then(|name| all.names.iter().position(|known| *known == name));
        match leads {
            Some(leads) if leads != before => return leads,
            _ => assert!(began.elapsed() < FOLLOWED_WITHIN, "nobody follows"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn random_bytes(seed: u64) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut bytes = vec![0; (SIZE / 2) as usize];
    rand::rngs::StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Both ways: the site is source of one mirror and destination of another. A transfer each is cut by a death, then by a hang.
#[test]
fn a_transfer_goes_on_with_another_daemon() {
    let Some(conf) = cluster() else { return };
    let Some(server) = DatabaseServer::start(&["near"]) else { return };
    let seed = rand::random::<u64>();
    eprintln!("seed {seed}");
    let root = tempfile::tempdir().unwrap();
    let mut all = Several::start(root.path(), &server, 3);
    let far = Site::start(root.path(), "far");
    let near = Keeper::make(&all.daemons[0], Kind::Rbd, "ceph", &conf);
    let vault = Keeper::make(&far, Kind::Embedded, "vault", &conf);
    std::fs::write(root.path().join("code"), all.daemons[1].ok("peer invite")).unwrap();
    let code = root.path().join("code");
    far.ok(&format!("peer join {} --code-file {}", all.peer_address(0), code.display()));
    eventually("the peer knows the others", || far.log().contains("the peer's site has other daemons there"));

    near.rbd(&["create", "--size", &format!("{}M", SIZE / MIB), &near.image("out")]);
    far.ok(&format!("volume create vault/in --size {SIZE}"));
    all.daemons[2].ok("peer allow far ceph/out");
    far.ok("peer allow near vault/in");
    far.ok("mirror create near:ceph/out vault/out");
    all.daemons[1].ok("mirror create far:vault/in ceph/in");
    far.ok("mirror initialize vault/out");
    all.daemons[1].ok("mirror initialize ceph/in");
    assert_eq!(status(&all.daemons[2], "ceph/in")["owner"], "alpha");

    for (round, hangs) in [false, true].into_iter().enumerate() {
        let bytes = random_bytes(seed ^ round as u64);
        near.write(&far, "out", SIZE, &[(0, &bytes)]);
        vault.write(&far, "in", SIZE, &[(0, &bytes)]);
        let led = leading(&all, 0);
        let next = (led + 1) % 3;
        // Slow enough to be cut in the middle.
        all.daemons[led].ok("site set --throttle-out 4MB/s --throttle-in 4MB/s");
        far.ok("mirror update vault/out --no-wait");
        all.daemons[led].ok("mirror update ceph/in --no-wait");
        let under_way = |site: &Site, volume: &str| {
            status(site, volume)["transfer"]["wire_bytes"].as_u64().is_some_and(|sent| sent > 4 * MIB)
        };
        eventually("both are under way", || {
            under_way(&far, "vault/out") && under_way(&all.daemons[led], "ceph/in")
        });
        let began = Instant::now();
        match hangs {
            false => all.daemons[led].kill(),
            true => all.daemons[led].freeze(),
        }
        let leads = followed(&all, next, led);
        eprintln!(
            "{} follows {} after {:.1} s",
            all.names[leads],
            all.names[led],
            began.elapsed().as_secs_f64()
        );
        all.daemons[next].ok("site set --throttle-out unlimited --throttle-in unlimited");
        if hangs {
            // It wakes while the other is at work.
            std::thread::sleep(Duration::from_millis(500));
            all.daemons[led].thaw();
        }
        // An update that was cut goes on where it was; one that is asked for again does, too.
        eventually("both are updated", || {
            far.farside("mirror update vault/out").status.success()
                && all.daemons[next].farside("mirror update ceph/in").status.success()
        });
        assert!(vault.bytes(&far, "out")[..bytes.len()] == bytes, "what went out, round {round}");
        assert!(near.bytes(&far, "in")[..bytes.len()] == bytes, "what came in, round {round}");
        match hangs {
            false => all.daemons[led].restart(),
            true => {
                eventually("it stands by", || leader_of(&all.daemons[led]) == Some(all.names[leads].clone()))
            }
        }
    }
    assert!(all.daemons.iter().any(|daemon| daemon.log().contains("is on the cluster's blocklist now")));
    for daemon in &all.daemons {
        daemon.ok("mirror status");
    }
}
