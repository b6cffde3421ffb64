//! Two living sites with one key: a machine was cloned, or its data directory copied, and both run.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::log;
use super::site::{PATIENCE, Plan, Site, b_dials_a_on, dialler};
use crate::error::SessionError;
use crate::hello::Role;
use crate::limits::{OTHER_SITE_WAITS, SILENCE_MAX};
use farside_link::limits::REDIAL_MAX;
use farside_link::{LinkSettings, SimulatedNetwork};

fn wan(seed: u64) -> SimulatedNetwork {
    println!("seed {seed}");
    let latency = Duration::from_millis(50);
    SimulatedNetwork::new(seed, LinkSettings { latency, ..LinkSettings::default() })
}

/// A copy of `original` that runs at another host, and dials `a` too.
async fn copy_of(original: &Site, a: &Site, network: &SimulatedNetwork) -> Site {
    let mut plan = Plan::simulated(network, "copy");
    plan.identity = original.identity.clone();
    plan.knows(a.id(), "a", Some(a.address())).await.start().await
}

fn other_site(a: &Site) -> Option<String> {
    a.node.peers()[0].other_site.clone()
}

/// Where the session comes from that `a` has.
fn followed(a: &Site, b: &Site) -> Option<String> {
    Some(a.node.link_stats(b.id())?.paths.first()?.path.remote.clone())
}

#[tokio::test(start_paused = true)]
async fn the_one_that_is_there_stays_the_other_is_refused_and_both_say_so() {
    let network = wan(21);
    let (a, b) = b_dials_a_on(&network).await;
    let link = a.link(&b).await;
    let copy = copy_of(&b, &a, &network).await;
    let state = copy.wait_state(a.id(), |s| s.last_error.is_some()).await;
    let why = state.last_error.unwrap();
    for part in [
        "another living site uses this site's key",
        "connects from b,",
        "a:7440",
        "--isolated",
        "guides/copies",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // It goes on trying, and is not let in; the other's session goes on.
    assert!(timeout(Duration::from_secs(300), link.closed()).await.is_err());
    assert!(copy.node.link(a.id()).is_none());
    a.proves_alive(&b).await;
    assert_eq!(followed(&a, &b).as_deref(), Some("b"));
    let why = other_site(&a).expect("it is told");
    for part in ["another living site uses this peer's key", "from copy,", "the one at b.", "--isolated"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let conflicts = |site: &Site| site.node.peers()[0].key_conflicts;
    assert!(conflicts(&a) >= 5 && conflicts(&copy) >= 5 && conflicts(&b) == 0);
    let id = format!("{:?}", b.id());
    assert_eq!(log::count(&["WARN", &id, "another living site uses this peer's key"]), 1);
    assert_eq!(log::count(&["WARN", "cannot connect", &format!("{:?}", a.id()), "uses this site's key"]), 1);

    // The copy is stopped: that is said no more.
    copy.node.shutdown().await;
    sleep(OTHER_SITE_WAITS).await;
    assert_eq!(other_site(&a), None);
}

#[tokio::test(start_paused = true)]
async fn the_copy_gets_in_neither_by_a_pause_of_the_link_nor_by_a_restart() {
    let network = wan(22);
    let (a, b) = b_dials_a_on(&network).await;
    let copy = copy_of(&b, &a, &network).await;
    copy.wait_state(a.id(), |s| s.last_error.is_some()).await;
    network.black_hole("a", "b");
    a.wait_state(b.id(), |s| !s.connected).await;
    let mut state = a.node.watch(b.id()).unwrap();
    assert!(timeout(Duration::from_secs(120), state.wait_for(|s| s.connected)).await.is_err());
    network.heal("a", "b");
    a.wait_state(b.id(), |s| s.connected).await;
    assert_eq!(followed(&a, &b).as_deref(), Some("b"));

    let (identity, registry) = (b.identity.clone(), Arc::clone(&b.registry));
    b.node.shutdown().await;
    drop(b);
    sleep(Duration::from_secs(30)).await;
    let mut plan = Plan::simulated(&network, "b");
    (plan.identity, plan.registry) = (identity, registry);
    let b = plan.start().await;
    a.wait_state(b.id(), |s| s.connected).await;
    assert_eq!(followed(&a, &b).as_deref(), Some("b"));

    // The original is gone for good, and the copy takes its place without a word of anybody.
    network.kill("b");
    a.wait_state(b.id(), |s| !s.connected).await;
    let most = SILENCE_MAX + OTHER_SITE_WAITS + REDIAL_MAX + Duration::from_secs(10);
    timeout(most, async {
        while followed(&a, &b).as_deref() != Some("copy") {
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await
    .expect("it is taken");
    a.proves_alive(&copy).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_hello_of_an_old_life_evicts_nobody() {
    let network = wan(23);
    let b = Plan::simulated(&network, "b");
    let a = Plan::simulated(&network, "a").knows(b.identity.id(), "b", None).await.start().await;
    // The old life: it has a session, and dies.
    let old = dialler(&b.identity, network.host("b0"));
    let dial = || old.dial(a.address(), a.id(), Role::Control, [9; 16], &[]);
    let _ghost = dial().await.unwrap();
    network.black_hole("a", "b0");
    let b = b.knows(a.id(), "a", Some(a.address())).await.start().await;
    let link = b.link(&a).await;
    assert_eq!(followed(&a, &b).as_deref(), Some("b"));
    // What it had sent before comes only now; the newer one does not even answer at the moment.
    network.heal("a", "b0");
    network.black_hole("a", "b");
    assert!(matches!(dial().await, Err(SessionError::KeyInUse(_))));
    sleep(Duration::from_secs(3)).await;
    network.heal("a", "b");
    assert!(timeout(Duration::from_secs(60), link.closed()).await.is_err());
    assert_eq!(other_site(&a), None, "it was its last word");
}

#[tokio::test(start_paused = true)]
async fn an_answer_behind_much_data_is_waited_for() {
    let network = wan(24);
    let (a, b) = b_dials_a_on(&network).await;
    let slow = LinkSettings { bytes_per_second: Some(20_000), ..LinkSettings::default() };
    network.set_link("a", "b", slow);
    let link = a.link(&b).await;
    let call = tokio::spawn({
        let link = Arc::clone(&link);
        async move { link.call(Bytes::from(vec![5; crate::CALL_BYTES_MAX]), None).await }
    });
    // The answer has begun to come; pongs are behind it.
    sleep(Duration::from_secs(70)).await;
    let copy = copy_of(&b, &a, &network).await;
    let mut state = copy.node.watch(a.id()).unwrap();
    assert!(timeout(Duration::from_secs(20), state.wait_for(|s| s.connected)).await.is_err());
    assert_eq!(followed(&a, &b).as_deref(), Some("b"));
    assert!(timeout(PATIENCE, call).await.unwrap().unwrap().is_ok());
}
