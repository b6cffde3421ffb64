//! A link behind a box takes smaller packets than its neighbours know: routers say so to the address that a box's socket speaks with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod boxes;

use std::time::{Duration, Instant};

use boxes::{Line, join, noise};

/// `server` is the router before `behind`; a second client is behind `client`, which is a router for it.
#[test]
fn a_smaller_link_behind_either_box_is_noticed_by_the_box() {
    let Some(line) = Line::new() else { return };
    let inner = boxes::space::Space::new().unwrap();
    join((&line.client, "eth1"), (&inner, "eth0"), 5, (1, 7)).unwrap();
    inner.ip("route add default via 10.5.0.1\nroute add ::/0 via fd00:5::1").unwrap();
    for path in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        line.client.sysctl(path, "1").unwrap();
    }
    for link in ["all", "eth0", "eth1"] {
        line.client.sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "0").unwrap();
    }
    let via = |space: &boxes::space::Space, v4: &str, v6: &str| {
        space.ip(&format!("route add 10.5.0.0/24 via {v4}\nroute add fd00:5::/64 via {v6}")).unwrap();
    };
    via(&line.near, "10.1.0.2", "fd00:1::2");
    via(&line.far, "10.9.0.1", "fd00:9::1");
    via(&line.server, "10.2.0.1", "fd00:2::1");
    // Only the routers before the small links know. The hosts behind them may say that they take more, as a host on a jumbo or
    // ordinary link does.
    for (router, link) in [(&line.server, "eth1"), (&line.client, "eth1")] {
        router.ip(&format!("link set {link} mtu 1300")).unwrap();
    }
    let (near, far) = line.both();
    let noise = noise(2_000_000);
    for at in ["10.4.0.4:8000", "[fd00:4::4]:8000"] {
        let server = line.serve(&line.behind, at);
        // The probe of the first finds the box; its bytes go plainly.
        line.exchange_from(&inner, server, b"a few");
        std::thread::sleep(Duration::from_millis(300));
        let before = (near.taken(), far.taken());
        let began = Instant::now();
        // The server sends back what it gets: both boxes send to a smaller link.
        line.exchange_from(&inner, server, &noise);
        assert_eq!((near.taken(), far.taken()), (before.0 + 1, before.1 + 1), "{at}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
