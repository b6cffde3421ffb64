//! What requests see: on, off, remembered, forwards.

use std::sync::Arc;
use std::time::Duration;

use farside_accel::control::Interception;
use farside_api::{
    Acceleration, AcceleratorForward, AcceleratorPolicy, AcceleratorState, AcceleratorStatus, ErrorCode,
    PolicyOrigin, SetAcceleratorPolicy, StartAccelerator,
};
use farside_link::LinkOptions;
use farside_peer::{PeerId, PeerRecord, PeerRegistry};
use farside_platform::{SystemClock, Timestamp};

use super::super::handle::{Accelerator, AcceleratorParts};
use super::super::settings::AcceleratorConfig;
use super::fake::{Fake, PATIENCE, eventually};
use crate::options::LogFormat;
use crate::state::State;

struct Site {
    fake: Fake,
    state: State,
}

impl Site {
    async fn new(mode: &str) -> Site {
        let fake = Fake::new(mode);
        let state = State::open(&fake.path().join("farside.db")).await.unwrap();
        Site { fake, state }
    }

    /// As at the daemon's start.
    async fn accelerator(&self, config: &AcceleratorConfig) -> Arc<Accelerator> {
        let parts = AcceleratorParts {
            config,
            isolated: false,
            reread: Box::new(|| Ok(AcceleratorConfig::default())),
            site_name: "a",
            log: "info",
            log_format: LogFormat::Json,
            clock: Arc::new(SystemClock::default()),
            data_dir: self.fake.path(),
            state: &self.state,
            program: self.fake.program(),
        };
        let accelerator = Arc::new(Accelerator::load(parts).await.unwrap());
        let following = Arc::clone(&accelerator);
        tokio::spawn(async move { following.follow_peers().await });
        accelerator
    }

    async fn pins(&self, name: &str) {
        let record = PeerRecord {
            id: PeerId([7; 32]),
            name: name.to_owned(),
            address: Some("north.example:7440".to_owned()),
            link: LinkOptions::default(),
            added_at: Timestamp(0),
        };
        self.state.pin(record).await.unwrap();
    }

    fn was_told(&self, words: &str) -> bool {
        self.fake.requests().iter().any(|line| line.contains(words))
    }
}

fn state_of(status: &AcceleratorStatus) -> (AcceleratorState, Option<&str>) {
    (status.state, status.why.as_deref())
}

fn forward(listen: &str) -> AcceleratorForward {
    AcceleratorForward { listen: listen.into(), destination: "10.2.0.5:5432".into(), peer: "north".into() }
}

#[tokio::test]
async fn on_and_off_are_remembered_and_count_more_than_the_file() {
    let site = Site::new("work").await;
    let nothing = AcceleratorConfig::default();
    let accelerator = site.accelerator(&nothing).await;
    assert_eq!(state_of(&accelerator.status()), (AcceleratorState::Off, None));
    assert_eq!(accelerator.connections(Timestamp(1)).await.unwrap(), []);

    let words = StartAccelerator {
        listen: Some("127.0.0.1:0".into()),
        forward_to: Some(vec!["10.1.0.5:80".into()]),
        ..StartAccelerator::default()
    };
    let up = accelerator.up(words).await.unwrap();
    assert_eq!(state_of(&up), (AcceleratorState::Active, None), "what the process says");
    assert_eq!((up.taken_connections, up.optimized_connections, up.wan), (5, 2, None));
    assert_eq!(accelerator.connections(Timestamp(1)).await.unwrap(), []);
    let ends = ["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
    assert_eq!(accelerator.reset(ends[0], ends[1]).await.unwrap_err().code, ErrorCode::NotFound);
    accelerator.up(StartAccelerator::default()).await.unwrap();
    assert_eq!(site.fake.starts().len(), 1, "nothing new: the same process");
    accelerator.shut_down().await;

    // The next start.
    let accelerator = site.accelerator(&nothing).await;
    eventually("it is on again", || accelerator.status().state == AcceleratorState::Active).await;
    assert_eq!(accelerator.status().forward_to, ["10.1.0.5:80"]);
    let down = accelerator.down().await.unwrap();
    assert_eq!(state_of(&down), (AcceleratorState::Off, None));
    assert!(site.fake.ended_in_order());
    accelerator.shut_down().await;

    let by_file = AcceleratorConfig { listen: Some("127.0.0.1:0".into()), ..AcceleratorConfig::default() };
    let accelerator = site.accelerator(&by_file).await;
    assert_eq!(accelerator.status().state, AcceleratorState::Off, "somebody has switched it off");
    accelerator.shut_down().await;
    assert_eq!(site.fake.starts().len(), 2);
}

#[tokio::test]
async fn a_process_that_does_not_start_is_told_and_tried_again() {
    let site = Site::new("refuse").await;
    let accelerator = site.accelerator(&AcceleratorConfig::default()).await;
    let error = accelerator.up(StartAccelerator::default()).await.unwrap_err();
    assert!(error.message.contains("CAP_NET_ADMIN"), "{error:?}");
    let hint = error.hint.unwrap();
    assert!(hint.contains("accel down") && hint.contains("after a restart"), "{hint}");
    let status = accelerator.status();
    assert_eq!(status.state, AcceleratorState::Bypass);
    assert!(status.warnings[0].contains("accel down"), "{status:?}");
    site.fake.becomes("work");
    eventually("it works", || accelerator.status().state == AcceleratorState::Active).await;
    assert!(accelerator.status().restarts > 0);
    accelerator.shut_down().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let site = Site::new("work").await;
    let accelerator = site.accelerator(&AcceleratorConfig::default()).await;
    let up = |lan: &str, wan: Option<&str>| StartAccelerator {
        lan: Some(vec![lan.to_owned()]),
        wan: wan.map(str::to_owned),
        ..StartAccelerator::default()
    };
    let alone = accelerator.up(up("lo", None)).await.unwrap_err();
    assert!(alone.code == ErrorCode::WrongUsage && alone.message.contains("WAN interface"), "{alone:?}");
    let misspelt = accelerator.up(up("lo", Some("no-such-if"))).await.unwrap_err();
    assert!(misspelt.code == ErrorCode::NotFound && misspelt.message.contains("no-such-if"), "{misspelt:?}");
    let listen = StartAccelerator { listen: Some("7442".into()), ..StartAccelerator::default() };
    assert_eq!(accelerator.up(listen).await.unwrap_err().code, ErrorCode::WrongUsage);
    assert_eq!(accelerator.status().state, AcceleratorState::Off);
    assert_eq!(site.state.accelerator().await.unwrap(), None, "nothing is remembered");

    // What would be installed is shown for interfaces that are not there, too.
    let plan = accelerator.plan(up("eth1", Some("eth0"))).await.unwrap();
    let rules = plan.rules.unwrap();
    assert!(rules.contains("eth1") && rules.contains("table inet"), "{rules}");
    assert_eq!(accelerator.plan(StartAccelerator::default()).await.unwrap().rules, None);
    assert_eq!(site.fake.starts(), []);
    accelerator.shut_down().await;
}

#[tokio::test]
async fn forwards_are_remembered_and_follow_their_peer() {
    let site = Site::new("work").await;
    let accelerator = site.accelerator(&AcceleratorConfig::default()).await;
    let unknown = accelerator.forward(forward("127.0.0.1:1001")).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
    site.pins("north").await;
    // Off: it is remembered, and works later.
    accelerator.forward(forward("127.0.0.1:1001")).await.unwrap();
    accelerator.up(StartAccelerator::default()).await.unwrap();
    let told = "{\"forwards\":[{\"listen\":\"127.0.0.1:1001\"";
    eventually("the process is told", || site.was_told(told)).await;
    assert!(site.was_told("\"address\":\"north.example:7442\""), "of the peer, too");

    accelerator.forward(forward("127.0.0.1:1002")).await.unwrap();
    accelerator.forward(forward("127.0.0.1:1002")).await.unwrap();
    let other = AcceleratorForward { destination: "10.2.0.6:1".into(), ..forward("127.0.0.1:1002") };
    assert_eq!(accelerator.forward(other).await.unwrap_err().code, ErrorCode::Exists);
    for listen in ["127.0.0.1:0", "1003", "localhost:1003"] {
        assert_eq!(accelerator.forward(forward(listen)).await.unwrap_err().code, ErrorCode::WrongUsage);
    }
    let taken = accelerator.forward(forward("127.0.0.1:666")).await.unwrap_err();
    assert!(taken.message.contains("cannot listen"), "{taken:?}");
    assert!(site.fake.requests().last().unwrap().contains(":1002\""), "the others are as they were");
    let listed = accelerator.forwards().await.unwrap();
    assert_eq!(listed, [forward("127.0.0.1:1001"), forward("127.0.0.1:1002")]);

    site.pins("renamed").await;
    eventually("the process hears the new name", || site.was_told("\"peer\":\"renamed\"")).await;
    assert_eq!(accelerator.forwards().await.unwrap()[0].peer, "renamed");
    accelerator.unforward("127.0.0.1:1001").await.unwrap();
    assert_eq!(accelerator.unforward("127.0.0.1:1001").await.unwrap_err().code, ErrorCode::NotFound);
    accelerator.shut_down().await;

    let accelerator = site.accelerator(&AcceleratorConfig::default()).await;
    let listed = accelerator.forwards().await.unwrap();
    assert_eq!((listed.len(), listed[0].listen.as_str()), (1, "127.0.0.1:1002"));
    site.state.unpin(PeerId([7; 32])).await.unwrap();
    let forgotten = async {
        while site.state.accelerator_forwards().await.unwrap().as_deref() != Some("[]") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.expect("a forward ends with its peer");
    assert_eq!(accelerator.forwards().await.unwrap(), []);
    accelerator.shut_down().await;
}

#[tokio::test]
async fn policies_and_configuration_are_shown() {
    let site = Site::new("work").await;
    let config = AcceleratorConfig {
        interception: Some(Interception { lan: vec!["eth1".into()], wan: "eth0".into() }),
        policies: vec![
            serde_json::from_str(r#"{"application": "lab", "ports": ["81"], "action": "lz"}"#).unwrap(),
        ],
        ..AcceleratorConfig::default()
    };
    let parts = AcceleratorParts {
        config: &config,
        isolated: false,
        reread: Box::new(|| Err("line 3 makes no sense".to_owned())),
        site_name: "a",
        log: "info",
        log_format: LogFormat::Text,
        clock: Arc::new(SystemClock::default()),
        data_dir: site.fake.path(),
        state: &site.state,
        program: site.fake.program(),
    };
    let accelerator = Accelerator::load(parts).await.unwrap();
    let policies = accelerator.policies();
    assert_eq!((policies[0].application.as_str(), policies[0].origin), ("lab", PolicyOrigin::Configured));
    assert_eq!(policies[1].origin, PolicyOrigin::Shipped);
    let last = policies.last().unwrap();
    assert_eq!((last.application.as_str(), last.origin), ("other", PolicyOrigin::Otherwise));
    let error = accelerator.reload_policies().await.unwrap_err();
    assert!(error.message.contains("line 3") && error.hint.unwrap().contains("nothing was changed"));
    let shown = accelerator.configuration();
    assert_eq!((shown.lan, shown.policies, shown.store_size_bytes), (vec!["eth1".to_owned()], 1, 10 << 30));
    accelerator.shut_down().await;
}

#[tokio::test]
async fn policies_change_without_another_process_and_are_remembered() {
    let site = Site::new("work").await;
    let config = AcceleratorConfig {
        listen: Some("127.0.0.1:0".into()),
        policies: vec![serde_json::from_str(r#"{"application": "filed", "action": "lz"}"#).unwrap()],
        ..AcceleratorConfig::default()
    };
    let accelerator = site.accelerator(&config).await;
    eventually("it works", || accelerator.status().state == AcceleratorState::Active).await;
    let set = |application: &str, first| SetAcceleratorPolicy {
        application: application.into(),
        ports: vec!["7000-7009".into()],
        addresses: Vec::new(),
        clients: Vec::new(),
        servers: Vec::new(),
        action: Acceleration::Transport,
        first,
    };
    let one = accelerator.set_policy(set("one", false)).await.unwrap();
    assert_eq!((one.origin, one.action), (PolicyOrigin::Set, Acceleration::Transport));
    accelerator.set_policy(set("two", true)).await.unwrap();
    let order = |policies: Vec<AcceleratorPolicy>| {
        policies.iter().take(3).map(|policy| policy.application.clone()).collect::<Vec<_>>()
    };
    assert_eq!(order(accelerator.policies()), ["two", "one", "filed"]);
    let wrong = SetAcceleratorPolicy { ports: vec!["x".into()], ..set("one", false) };
    assert_eq!(accelerator.set_policy(wrong).await.unwrap_err().code, ErrorCode::WrongUsage);
    eventually("the process was told", || site.was_told(r#""policies":[{"application":"two""#)).await;
    accelerator.up(StartAccelerator::default()).await.unwrap();
    // The file has no policies now.
    accelerator.reload_policies().await.unwrap();
    accelerator.remove_policy("two").await.unwrap();
    assert_eq!(order(accelerator.policies())[..2], ["one", "farside"]);
    assert_eq!(site.fake.starts().len(), 1, "the same process all the while");
    accelerator.shut_down().await;

    let accelerator = site.accelerator(&config).await;
    assert_eq!(order(accelerator.policies())[..2], ["one", "filed"], "the next start");
    accelerator.shut_down().await;
}
