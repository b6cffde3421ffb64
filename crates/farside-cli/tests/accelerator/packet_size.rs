//! A path whose MTU shrinks in the middle of a transfer, while its ICMP is filtered: full packets vanish, small ones pass. As a
//! tunnel that takes over does it.
//!
//! ```text
//! a eth0 ── west router east ── eth0 b
//! 10.1.0.2     .1      10.2.0.1     .2
//! ```

use std::io;
use std::time::{Duration, Instant};

use crate::space::{Space, join};
use crate::support::{POOL_BYTES, Site, eventually, seed, status};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

const MIB: usize = 1 << 20;
const VOLUME_BYTES: usize = 16 * MIB;
/// Data stands for 10 s until it is known why, and what is left takes 5 s more. A machine may be busy.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// What the path takes from then on.
const NARROW: &str = "1280";

struct Bed {
    router: Space,
    a: Site,
    b: Site,
    _root: tempfile::TempDir,
}

impl Bed {
    /// Two sites of which one dials the other; `None`, with a line, where namespaces cannot be had.
    fn new(dialler: &str) -> Option<Bed> {
        match Bed::lay(dialler) {
            Ok(bed) => Some(bed),
            Err(error) => {
                let required = std::env::var_os("FARSIDE_REQUIRE_LAB").is_some();
                assert!(!required, "no network namespaces: {error}");
                eprintln!("skipped: no network namespaces (root, iproute2 and nftables are needed): {error}");
                None
            }
        }
    }

    fn lay(dialler: &str) -> io::Result<Bed> {
        let [near, router, far] = [Space::new()?, Space::new()?, Space::new()?];
        join((&near, "eth0"), (&router, "west"), 1, (2, 1))?;
        join((&router, "east"), (&far, "eth0"), 2, (1, 2))?;
        near.ip("route add default via 10.1.0.1")?;
        far.ip("route add default via 10.2.0.1")?;
        router.sysctl("net/ipv4/ip_forward", "1")?;
        // What would tell the two of it.
        router.nft(
            "table inet silent { chain out { type filter hook output priority 0; \
             icmp type destination-unreachable drop; }; }",
        )?;
        for space in [&near, &far] {
            space.sysctl("net/ipv4/tcp_mtu_probing", "0")?;
        }
        let root = tempfile::tempdir()?;
        let site = |name: &str, space: &Space, address: &str| {
            let mut site = Site::new(&root.path().join(name), name);
            site.peer_address = Some(if name == dialler { "off".into() } else { format!("{address}:7440") });
            space.inside(|| site.restart());
            site
        };
        let (a, b) = (site("a", &near, "10.1.0.2"), site("b", &far, "10.2.0.2"));
        a.ok(&format!("pool create p --path {} --size {POOL_BYTES}", root.path().join("p.pool").display()));
        b.ok(&format!("pool create q --path {} --size {POOL_BYTES}", root.path().join("q.pool").display()));
        let (inviter, joiner) = if dialler == "a" { (&b, &a) } else { (&a, &b) };
        let code = root.path().join("code");
        std::fs::write(&code, inviter.ok("peer invite"))?;
        let address = inviter.peer_address.as_ref().unwrap();
        joiner.ok(&format!("peer join {address} --code-file {}", code.display()));
        Ok(Bed { router, a, b, _root: root })
    }

    fn narrow(&self) {
        self.router.ip(&format!("link set west mtu {NARROW}\nlink set east mtu {NARROW}")).unwrap();
    }
}

fn overwrite(site: &Site, random: &mut StdRng, bytes: usize) {
    let mut data = vec![0; bytes];
    random.fill_bytes(&mut data);
    let mut client = site.nbd("p/v");
    for (number, part) in data.chunks(MIB).enumerate() {
        client.write((number * MIB) as u64, part).unwrap();
    }
    client.flush().unwrap();
}

/// Starts with what a command waits for, and returns how long it took.
fn ends(site: &Site, arguments: &str, meanwhile: impl FnOnce()) -> Duration {
    let mut child = site.command(arguments).spawn().unwrap();
    meanwhile();
    let began = Instant::now();
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success(), "farside {arguments}");
            return began.elapsed();
        }
        if began.elapsed() > ENDS_WITHIN {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("farside {arguments} stands after {ENDS_WITHIN:?}: {:#}", status(site, "q/v"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn goes_on_over_a_path_that_has_shrunk(dialler: &str) {
    let mut random = StdRng::seed_from_u64(seed());
    let Some(bed) = Bed::new(dialler) else { return };
    let Bed { a, b, .. } = &bed;
    a.ok(&format!("volume create p/v --size {VOLUME_BYTES}"));
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v --throttle 3MB/s");
    overwrite(a, &mut random, VOLUME_BYTES);
    let took = ends(b, "mirror initialize q/v", || {
        let done = || status(b, "q/v")["transfer"]["done_bytes"].as_u64().unwrap_or(0);
        eventually("some has arrived", || done() > 3 * MIB as u64);
        bed.narrow();
        let why = |site: &Site, peer: &str| {
            let status = site.json(&format!("peer status {peer}"));
            assert_eq!(status["state"], "connected", "small packets pass: {status:#}");
            status["why"].as_str().unwrap_or_default().contains("large packets do not pass")
        };
        eventually("both sites say what it is", || why(a, "b") && why(b, "a"));
    });
    println!("dialled by {dialler}: {took:?} more once it was known");
    for site in [a, b] {
        let said = site.log().lines().filter(|line| line.contains("large packets do not pass")).count();
        assert_eq!(said, 1, "{} warns once", site.name);
    }
    assert!(a.nbd("p/v").read_all() == b.nbd("q/v").read_all(), "the replica differs");

    // What is known of the path holds for what comes next.
    overwrite(a, &mut random, 2 * MIB);
    let took = ends(b, "mirror update q/v", || {});
    assert!(took < Duration::from_secs(9), "{took:?}: it did not stand again");
    let paths = b.json("peer status a")["paths"].clone();
    assert_eq!(paths[0]["state"], "up", "{paths:#}");
    assert!(paths[0]["mss_bytes"].as_u64().unwrap() <= 1200, "{paths:#}");
    assert!(paths[0]["why"].as_str().unwrap().contains("tcp_mtu_probing"), "{paths:#}");
}

#[test]
fn a_transfer_goes_on_where_the_destination_dials() {
    goes_on_over_a_path_that_has_shrunk("b");
}

#[test]
fn a_transfer_goes_on_where_the_source_dials() {
    goes_on_over_a_path_that_has_shrunk("a");
}
