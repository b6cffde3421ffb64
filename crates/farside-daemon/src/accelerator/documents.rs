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
pub(super) fn status(
    seen: &Seen,
    desired: Option<&Desired>,
    setup: &Setup,
    now: Timestamp,
) -> api::AcceleratorStatus {
    let Some(desired) = desired else { return off(seen, setup) };
    let bypass = |why: &str| (api::AcceleratorState::Bypass, Some(why.to_owned()));
    let waiting = || desired.peers.iter().map(waiting).collect();
    let (state, peers, running) = match &seen.phase {
        Phase::Running(status) => {
            let state = match &status.bypass {
                Some(why) => bypass(why),
                None => (api::AcceleratorState::Active, None),
            };
            (state, status.peers.iter().map(|of| peer(of, now)).collect(), Some(status))
        }
        // Just switched on: the supervisor has not seen it.
        Phase::Off | Phase::Starting => (bypass("its process is starting"), waiting(), None),
        Phase::Down { why } => (bypass(why), waiting(), None),
    };
    let store = running.and_then(|status| status.store.clone());
    let listen = running.and_then(|status| status.listen.clone());
    api::AcceleratorStatus {
        state: state.0,
        why: state.1,
        peers,
        optimized_connections: running.map_or(0, |status| status.optimized_connections),
        store_bytes: store.as_ref().map(|store| store.bytes),
        store_size_bytes: Some(store.as_ref().map_or(setup.store_size_bytes, |store| store.size_bytes)),
        listen: listen.or_else(|| Some(desired.listen.clone())),
        applications: running.map(|status| applications(status)).unwrap_or_default(),
        demotions: running.map(|status| demotions(status)).unwrap_or_default(),
        held_connections: running.map_or(0, |status| status.held_connections),
        block_wait: running.map(|status| times(&status.block_wait)),
        connection_hold: running.map(|status| times(&status.connection_hold)),
        warnings: warnings(seen, desired, running.map(|status| &**status)),
        cache: store.map(cache),
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
        warnings: Vec::new(),
        prepositioned_original_bytes: totals.prepositioned_original_bytes,
        prepositioned_wire_bytes: totals.prepositioned_wire_bytes,
        applications: Vec::new(),
        demotions: Vec::new(),
        held_connections: 0,
        block_wait: None,
        connection_hold: None,
        cache: None,
    }
}

/// What is wrong, each with what can be done.
fn warnings(seen: &Seen, desired: &Desired, running: Option<&control::Status>) -> Vec<String> {
    let mut said = Vec::new();
    if matches!(seen.phase, Phase::Down { .. }) {
        said.push(format!(
            "it is switched on and does not work, {} starts so far. It is tried again until it works, also after a restart of \
             farsided; farside accel down ends that",
            seen.restarts
        ));
    }
    if let Some(status) = running {
        let lost = status.peers.iter().filter(|peer| !peer.is_connected);
        let lost: Vec<_> = lost.map(|peer| peer.name.as_str()).collect();
        if !lost.is_empty() && lost.len() < status.peers.len() {
            let names = lost.join(", ");
            said.push(format!("connections to hosts behind {names} go their plain way: there is no session"));
        }
        if let Some(store) = &status.store {
            said.extend(store.trouble.clone());
            if store.damaged > 0 {
                said.push(format!(
                    "{} containers of the chunk store were damaged and removed; what was in them passes once more. If that \
                     goes on, the disk fails",
                    store.damaged
                ));
            }
        }
        if desired.interception.is_none() && desired.forwards.is_empty() && desired.forward_to.is_empty() {
            said.push(
                "it takes no connection: no LAN and WAN interface is set (farside accel up --lan IF --wan IF), and there is no \
                 forward (farside accel forward)"
                    .to_owned(),
            );
        }
    }
    said
}

fn applications(status: &control::Status) -> Vec<api::AcceleratedApplication> {
    let document = |of: &control::ApplicationFigures| api::AcceleratedApplication {
        application: of.application.clone(),
        optimized_connections: of.open,
        demoted_connections: of.demoted,
        taken_connections: of.taken,
        passed_through_connections: of.passed,
        sent_original_bytes: of.sent_original_bytes,
        sent_wire_bytes: of.sent_wire_bytes,
        received_original_bytes: of.received_original_bytes,
        received_wire_bytes: of.received_wire_bytes,
    };
    status.applications.iter().map(document).collect()
}

fn demotions(status: &control::Status) -> Vec<api::DemotedConnections> {
    let all = status.demotions.iter();
    all.map(|(reason, connections)| api::DemotedConnections {
        reason: demotion(*reason),
        connections: *connections,
    })
    .collect()
}

/// A histogram, and what is read off it.
fn times(of: &control::Histogram) -> api::AcceleratorTimes {
    let count: u64 = of.counts.iter().sum();
    let quantile = |per_cent: u64| {
        let wanted = (count * per_cent).div_ceil(100).max(1);
        let mut seen = 0;
        let at = of.counts.iter().position(|part| {
            seen += part;
            seen >= wanted
        });
        at.and_then(|at| of.bounds_seconds.get(at).copied())
    };
    api::AcceleratorTimes {
        count,
        p50_seconds: quantile(50),
        p99_seconds: quantile(99),
        sum_seconds: of.sum_seconds,
        bounds_seconds: of.bounds_seconds.clone(),
        counts: of.counts.clone(),
    }
}

fn peer(peer: &PeerStatus, now: Timestamp) -> api::AcceleratorPeer {
    let lasted = Duration::try_from_secs_f64(peer.for_seconds).unwrap_or_default();
    let lasted = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
    api::AcceleratorPeer {
        name: peer.name.clone(),
        state: if peer.is_connected {
            api::AcceleratorPeerState::Connected
        } else {
            api::AcceleratorPeerState::Disconnected
        },
        why: peer.error.clone().filter(|_| !peer.is_connected),
        since: Some(convert::time(Timestamp(now.0.saturating_sub(lasted)))),
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
        since: None,
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
        hit_ratio: (of.lookups > 0).then(|| of.hits as f64 / of.lookups as f64),
        oldest_seconds: of.oldest_seconds,
        not_loaded_containers: of.not_loaded,
        trouble: of.trouble,
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
