//! A peer that is several daemons, which only this side can dial: another is found before the silence of the first has lasted its time.

use std::time::Duration;

use farside_link::{LinkOptions, LinkSettings, SimulatedNetwork};
use tokio::time::{Instant, sleep, timeout};

use super::site::{Plan, Site};
use crate::identity::Identity;
use crate::limits::{ELSEWHERE_AFTER, ELSEWHERE_AFTER_LANELESS, ELSEWHERE_EVERY, SILENCE_MAX};

fn wan(seed: u64) -> SimulatedNetwork {
    println!("seed {seed}");
    let latency = Duration::from_millis(50);
    SimulatedNetwork::new(seed, LinkSettings { latency, ..LinkSettings::default() })
}

/// A site that dials the daemon `one` of another, and knows that there may be one at `two`.
async fn dials_one(network: &SimulatedNetwork) -> (Site, Site) {
    let far = Plan::simulated(network, "far");
    let one = Plan::simulated(network, "one").knows(far.identity.id(), "far", None).await.start().await;
    let link = LinkOptions { others: vec!["two:7440".into()], ..LinkOptions::default() };
    let far = far.knows_over(one.id(), "near", Some("one:7440"), link).await.start().await;
    far.wait_state(one.id(), |s| s.connected).await;
    // Proved, so that nothing is said of a session that was never any good.
    sleep(Duration::from_secs(15)).await;
    (far, one)
}

async fn leads_at_two(network: &SimulatedNetwork, identity: &Identity, far: &Site) -> Site {
    let mut plan = Plan::simulated(network, "two");
    plan.identity = identity.clone();
    plan.knows(far.id(), "far", None).await.start().await
}

fn followed(far: &Site, near: &Site) -> Option<String> {
    let paths = far.node.link_stats(near.id())?.paths;
    Some(paths.first()?.path.remote.clone())
}

async fn until_followed(far: &Site, near: &Site, within: Duration) {
    let all = async {
        while followed(far, near).as_deref() != Some("two:7440") {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(within, all).await.expect("the other daemon is found");
}

#[tokio::test(start_paused = true)]
async fn another_daemon_is_found_as_soon_as_it_has_the_work() {
    for is_killed in [true, false] {
        let network = wan(31);
        let (far, one) = dials_one(&network).await;
        let began = Instant::now();
        match is_killed {
            true => network.kill("one"),
            false => network.black_hole("far", "one"),
        }
        // So long a lease lasts, and another daemon takes to lead.
        let leads_after = if is_killed { Duration::from_secs(5) } else { Duration::from_secs(9) };
        sleep(leads_after).await;
        let two = leads_at_two(&network, &one.identity, &far).await;
        until_followed(&far, &one, Duration::from_secs(3)).await;
        assert!(began.elapsed() < SILENCE_MAX, "{:?}", began.elapsed());
        far.proves_alive(&two).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_stands_still_ends_no_session_though_another_daemon_would_be_tried() {
    let network = wan(32);
    let (far, one) = dials_one(&network).await;
    let link = far.link(&one).await;
    // Nobody is there, and the link itself is down.
    network.black_hole("far", "one");
    network.black_hole("far", "two");
    sleep(ELSEWHERE_AFTER + Duration::from_secs(2)).await;
    network.heal("far", "one");
    network.heal("far", "two");
    assert!(timeout(Duration::from_secs(60), link.closed()).await.is_err(), "it goes on");
    // Short of that nobody looks, whoever would answer.
    let _two = leads_at_two(&network, &one.identity, &far).await;
    network.black_hole("far", "one");
    sleep(ELSEWHERE_AFTER - Duration::from_secs(3)).await;
    network.heal("far", "one");
    assert!(timeout(Duration::from_secs(60), link.closed()).await.is_err(), "it goes on");
    assert!(
        ELSEWHERE_AFTER_LANELESS < ELSEWHERE_AFTER && ELSEWHERE_AFTER + 4 * ELSEWHERE_EVERY < SILENCE_MAX
    );
}
