//! A link behind a box takes smaller packets than hosts know: routers say so to the address that a box's socket speaks with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod boxes;

use std::time::{Duration, Instant};

use boxes::space::Space;
use boxes::{Line, beyond_a_small_link, noise};

#[test]
fn a_smaller_link_behind_either_box_is_noticed_by_the_box() {
    let Some(line) = Line::new() else { return };
    // client ══ a router ── the client, and server ══ a router ── the server.
    let (_router, client) = beyond_a_small_link(&line.client, 5);
    let (_other, server) = beyond_a_small_link(&line.server, 7);
    let via = |space: &Space, networks: &[u8], v4: &str, v6: &str| {
        for network in networks {
            space
                .ip(&format!(
                    "route add 10.{network}.0.0/24 via {v4}\nroute add fd00:{network}::/64 via {v6}"
                ))
                .unwrap();
        }
    };
    via(&line.near, &[5, 6], "10.1.0.2", "fd00:1::2");
    via(&line.far, &[5, 6], "10.9.0.1", "fd00:9::1");
    via(&line.far, &[7, 8], "10.2.0.3", "fd00:2::3");
    line.meet(&[&client], &["10.8.0.2:9", "[fd00:8::2]:9"]);
    let (near, far) = line.both();
    let noise = noise(2_000_000);
    for (number, at) in (1..).zip(["10.8.0.2:8000", "[fd00:8::2]:8000"]) {
        let server = line.serve(&server, at);
        // The probe of the first finds the box; its bytes go plainly.
        line.exchange_from(&client, server, b"a few");
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        // The server sends back what it gets: both boxes send to a smaller link.
        line.exchange_from(&client, server, &noise);
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
