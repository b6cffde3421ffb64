//! What the API shows of the accelerator.

use std::time::Duration;

use farside_accel::control::{self, Peer, PeerStatus};
use farside_accel::policy::{self, Action, OTHER, Policies, Policy, WrittenPolicy};
use farside_api as api;
use farside_platform::Timestamp;

use super::book::Book;
use super::desired::{Desired, Phase, Seen};
use super::remembered::Setup;
use super::settings::AcceleratorConfig;
use crate::convert;

/// How it goes.
pub(super) fn status(seen: &Seen, desired: Option<&Desired>, setup: &Setup) -> api::AcceleratorStatus {
    let Some(desired) = desired else { return off(seen, setup) };
    let bypass = |why: &str| (api::AcceleratorState::Bypass, Some(why.to_owned()));
    let waiting = || desired.peers.iter().map(waiting).collect();
    let (state, peers, running) = match &seen.phase {
        Phase::Running(status) => {
            let state = match &status.bypass {
                Some(why) => bypass(why),
                None => (api::AcceleratorState::Active, None),
            };
            (state, status.peers.iter().map(peer).collect(), Some(status))
        }
        // Just switched on: the supervisor has not seen it.
        Phase::Off | Phase::Starting => (bypass("its process is starting"), waiting(), None),
        Phase::Down { why } => (bypass(why), waiting(), None),
    };
    let store = running.and_then(|status| status.store);
    let listen = running.and_then(|status| status.listen.clone());
    api::AcceleratorStatus {
        state: state.0,
        why: state.1,
        peers,
        optimized_connections: running.map_or(0, |status| status.optimized_connections),
        store_bytes: store.map(|store| store.bytes),
        store_size_bytes: Some(store.map_or(setup.store_size_bytes, |store| store.size_bytes)),
        listen: listen.or_else(|| Some(desired.listen.clone())),
        ..off(seen, setup)
    }
}

/// The same while it is off: what was counted before.
fn off(seen: &Seen, setup: &Setup) -> api::AcceleratorStatus {
    let totals = seen.totals();
    let interception = setup.interception.as_ref();
    api::AcceleratorStatus {
        state: api::AcceleratorState::Off,
        why: None,
        peers: Vec::new(),
        optimized_connections: 0,
        passed_through_connections: totals.passed_through,
        original_bytes: totals.original_bytes,
        wire_bytes: totals.wire_bytes,
        store_bytes: None,
        store_size_bytes: Some(setup.store_size_bytes),
        taken_connections: totals.taken,
        reset_connections: totals.reset,
        restarts: seen.restarts,
        lan: interception.map(|interception| interception.lan.clone()).unwrap_or_default(),
        wan: interception.map(|interception| interception.wan.clone()),
        listen: None,
        forward_to: setup.forward_to.clone(),
        forwards_error: seen.forwards_error.clone(),
    }
}

fn peer(peer: &PeerStatus) -> api::AcceleratorPeer {
    api::AcceleratorPeer {
        name: peer.name.clone(),
        state: if peer.is_connected {
            api::AcceleratorPeerState::Connected
        } else {
            api::AcceleratorPeerState::Disconnected
        },
        why: peer.error.clone().filter(|_| !peer.is_connected),
        rtt_seconds: peer.rtt_seconds,
        subnets: peer.subnets.iter().map(ToString::to_string).collect(),
    }
}

/// A peer while there is no process that knows more.
fn waiting(peer: &Peer) -> api::AcceleratorPeer {
    api::AcceleratorPeer {
        name: peer.name.clone(),
        state: api::AcceleratorPeerState::Disconnected,
        why: None,
        rtt_seconds: None,
        subnets: peer.subnets.iter().map(ToString::to_string).collect(),
    }
}

/// How it goes with the chunk store.
pub(super) fn cache(of: control::StoreStatus) -> api::AcceleratorCache {
    api::AcceleratorCache {
        bytes: of.bytes,
        size_bytes: of.size_bytes,
        chunks: of.chunks,
        index_bytes: of.index_bytes,
        lookups: of.lookups,
        hits: of.hits,
        evicted_containers: of.evicted,
        damaged_containers: of.damaged,
    }
}

/// A connection; what opened before 1970 did so then.
pub(super) fn connection(of: control::Connection, now: Timestamp) -> api::AcceleratedConnection {
    let age = Duration::try_from_secs_f64(of.age_seconds).unwrap_or_default();
    let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    api::AcceleratedConnection {
        client: of.client.to_string(),
        server: of.server.to_string(),
        application: of.application,
        configured: acceleration(of.configured),
        peer_policy: of.peer_policy.map(acceleration),
        negotiated: acceleration(of.negotiated),
        applied: acceleration(of.applied),
        reason: of.reason.map(demotion),
        original_bytes: of.original_bytes,
        wire_bytes: of.wire_bytes,
        opened_at: convert::time(Timestamp(now.0.saturating_sub(age))),
        peer: of.peer,
        client_is_here: of.is_near,
    }
}

fn acceleration(action: Action) -> api::Acceleration {
    match action {
        Action::PassThrough => api::Acceleration::PassThrough,
        Action::Transport => api::Acceleration::Transport,
        Action::Lz => api::Acceleration::Lz,
        Action::Dre => api::Acceleration::Dre,
        Action::Full => api::Acceleration::Full,
    }
}

/// The same backwards.
pub(super) fn action(acceleration: api::Acceleration) -> Action {
    match acceleration {
        api::Acceleration::PassThrough => Action::PassThrough,
        api::Acceleration::Transport => Action::Transport,
        api::Acceleration::Lz => Action::Lz,
        api::Acceleration::Dre => Action::Dre,
        api::Acceleration::Full => Action::Full,
    }
}

fn demotion(demotion: policy::Demotion) -> api::Demotion {
    match demotion {
        policy::Demotion::NoPeer => api::Demotion::NoPeer,
        policy::Demotion::PeerLost => api::Demotion::PeerLost,
        policy::Demotion::NoAnswer => api::Demotion::NoAnswer,
        policy::Demotion::BoxInBetween => api::Demotion::BoxInBetween,
        policy::Demotion::Encrypted => api::Demotion::Encrypted,
        policy::Demotion::Incompressible => api::Demotion::Incompressible,
        policy::Demotion::Overload => api::Demotion::Overload,
        policy::Demotion::StoreUnusable => api::Demotion::StoreUnusable,
    }
}

/// All policies, in the order in which they are asked; last what is done where none fits.
pub(super) fn policies(book: &Book) -> Vec<api::AcceleratorPolicy> {
    // All were checked when they came in.
    let parsed = |of: &[WrittenPolicy]| -> Vec<Policy> {
        of.iter().filter_map(|policy| Policy::try_from(policy).ok()).collect()
    };
    let (mut own, of_file) = (parsed(&book.set), parsed(&book.file));
    let set_count = own.len();
    own.extend(of_file);
    let own_count = own.len();
    let otherwise = book.otherwise();
    let all = Policies::new(own, otherwise);
    let asked = all.iter().enumerate().map(|(at, policy)| {
        let origin = match at {
            at if at < set_count => api::PolicyOrigin::Set,
            at if at < own_count => api::PolicyOrigin::Configured,
            _ => api::PolicyOrigin::Shipped,
        };
        listed(WrittenPolicy::from(policy), origin)
    });
    let rest = WrittenPolicy {
        application: OTHER.to_owned(),
        ports: Vec::new(),
        addresses: Vec::new(),
        clients: Vec::new(),
        servers: Vec::new(),
        action: otherwise,
    };
    asked.chain([listed(rest, api::PolicyOrigin::Otherwise)]).collect()
}

fn listed(policy: WrittenPolicy, origin: api::PolicyOrigin) -> api::AcceleratorPolicy {
    api::AcceleratorPolicy {
        application: policy.application,
        ports: policy.ports,
        addresses: policy.addresses,
        clients: policy.clients,
        servers: policy.servers,
        action: acceleration(policy.action),
        origin,
    }
}

/// The file's table, for `config show`.
pub(super) fn configuration(
    config: &AcceleratorConfig,
    book: &Book,
    setup: &Setup,
) -> api::AcceleratorConfiguration {
    let interception = setup.interception.as_ref();
    api::AcceleratorConfiguration {
        lan: interception.map(|interception| interception.lan.clone()).unwrap_or_default(),
        wan: interception.map(|interception| interception.wan.clone()),
        listen: setup.listen.clone(),
        store_size_bytes: setup.store_size_bytes,
        forward_to: setup.forward_to.clone(),
        policies: book.file.len() as u64,
        otherwise: acceleration(book.otherwise()),
        peers: config.peers.keys().cloned().collect(),
    }
}
