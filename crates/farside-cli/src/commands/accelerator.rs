//! `farside accel`.

mod files;
mod preposition;

use farside_api::{
    AcceleratedConnection, Acceleration, AcceleratorCache, AcceleratorForward, AcceleratorPeer,
    AcceleratorPeerState, AcceleratorPlan, AcceleratorPolicy, AcceleratorState, AcceleratorStatus,
    ClearCache, Demotion, ErrorBody, PolicyOrigin, Preposition, ResetConnection, SetAcceleratorPolicy,
    StartAccelerator, Timestamp,
};
use reqwest::Method;

use super::context::Context;
use crate::arguments::accelerator::{
    Accelerator as Verb, AcceleratorCache as Cache, AcceleratorPolicyVerb as PolicyVerb, ActionWord,
};
use crate::output::{Column, details, or_dash, table};
use crate::quantities::{duration, size};

/// Takes a setting back.
const OFF: &str = "off";

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    let client = &context.client;
    match verb {
        Verb::Up { lan, wan, store_size, listen, forward_to, dry_run } => {
            let words = StartAccelerator {
                lan: list(lan),
                wan: wan.map(|wan| if wan == OFF { String::new() } else { wan }),
                store_size_bytes: store_size,
                listen,
                forward_to: list(forward_to),
            };
            if dry_run {
                let plan: AcceleratorPlan = client.post(&["accelerator", "plan"], &words).await?;
                context.show(&plan, planned);
            } else {
                let now: AcceleratorStatus = client.post(&["accelerator", "up"], &words).await?;
                context.show(&now, |now| status(now) + explicit_only(now));
            }
        }
        Verb::Down => {
            let now: AcceleratorStatus = client.post(&["accelerator", "down"], &()).await?;
            context.show(&now, status);
        }
        Verb::Status => {
            let now: AcceleratorStatus = client.get(&["accelerator"]).await?;
            context.show(&now, |now| status(now) + explicit_only(now));
        }
        Verb::Connections => {
            let all: Vec<AcceleratedConnection> = client.get(&["accelerator", "connections"]).await?;
            context.show(&all, |all| connections(all, Timestamp::now()));
        }
        Verb::Policies => {
            let all: Vec<AcceleratorPolicy> = client.get(&["accelerator", "policies"]).await?;
            context.show(&all, |all| policies(all));
        }
        Verb::Policy(PolicyVerb::Set { application, action, ports, addresses, clients, servers, first }) => {
            let action = action_of(action);
            let request =
                SetAcceleratorPolicy { application, ports, addresses, clients, servers, action, first };
            let set: AcceleratorPolicy = client.post(&["accelerator", "policies"], &request).await?;
            context.show(&set, |set| policies(std::slice::from_ref(set)) + NEW_ONLY);
        }
        Verb::Policy(PolicyVerb::Remove { application }) => {
            let path = ["accelerator", "policies", application.as_str()];
            let left: Vec<AcceleratorPolicy> =
                client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context.show(&left, |_| format!("the policy {application} is removed\n{NEW_ONLY}"));
        }
        Verb::Policy(PolicyVerb::Reload) => {
            let all: Vec<AcceleratorPolicy> =
                client.post(&["accelerator", "policies", "reload"], &()).await?;
            context.show(&all, |all| policies(all) + NEW_ONLY);
        }
        Verb::Cache(Cache::Status) => {
            let now: AcceleratorCache = client.get(&["accelerator", "cache"]).await?;
            context.show(&now, cache);
        }
        Verb::Cache(Cache::Clear { peer }) => {
            let request = ClearCache { peer };
            let now: AcceleratorCache = client.post(&["accelerator", "cache", "clear"], &request).await?;
            context.show(&now, cache);
        }
        Verb::Forward { listen, destination, peer } => {
            let request = AcceleratorForward { listen: listen.to_string(), destination, peer };
            let made: AcceleratorForward = client.post(&["accelerator", "forwards"], &request).await?;
            context.show(&made, |made| {
                format!("{} is forwarded to {} at {}\n", made.listen, made.destination, made.peer)
            });
        }
        Verb::Preposition { target, peer } => preposition::run(&context, &target, peer).await?,
        Verb::Prepositions { cancel: Some(job) } => {
            let path = ["accelerator", "prepositions", job.as_str()];
            let ended: Vec<Preposition> = client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context
                .show(&ended, |_| format!("{job} is cancelled; what has come to the peer is kept there\n"));
        }
        Verb::Prepositions { cancel: None } => {
            let all: Vec<Preposition> = client.get(&["accelerator", "prepositions"]).await?;
            context.show(&all, |all| preposition::listed(all));
        }
        Verb::Forwards => {
            let all: Vec<AcceleratorForward> = client.get(&["accelerator", "forwards"]).await?;
            context.show(&all, |all| forwards(all));
        }
        Verb::Unforward { listen } => {
            let path = ["accelerator", "forwards", &listen.to_string()];
            let ended: AcceleratorForward = client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context.show(&ended, |ended| format!("{} is not forwarded any more\n", ended.listen));
        }
        Verb::Reset { client: from, server } => {
            let request = ResetConnection { client: from.to_string(), server: server.to_string() };
            let reset: ResetConnection =
                client.post(&["accelerator", "connections", "reset"], &request).await?;
            context.show(&reset, |reset| format!("{} to {} is reset\n", reset.client, reset.server));
        }
    }
    Ok(())
}

/// Said after a change.
const NEW_ONLY: &str = "connections that are open keep what they have\n";

fn action_of(word: ActionWord) -> Acceleration {
    match word {
        ActionWord::Full => Acceleration::Full,
        ActionWord::Dre => Acceleration::Dre,
        ActionWord::Lz => Acceleration::Lz,
        ActionWord::Transport => Acceleration::Transport,
        ActionWord::PassThrough => Acceleration::PassThrough,
    }
}

/// What was given; None: nothing was; empty: it was taken back.
fn list(given: Vec<String>) -> Option<Vec<String>> {
    match &given[..] {
        [] => None,
        [off] if off == OFF => Some(Vec::new()),
        _ => Some(given),
    }
}

/// The rules exactly as they would be installed.
fn planned(plan: &AcceleratorPlan) -> String {
    match &plan.rules {
        Some(rules) => rules.clone(),
        None => format!(
            "nothing would be intercepted and no privilege is needed: no LAN and WAN interface is set\nother accelerators would \
             connect to {}\n",
            plan.listen
        ),
    }
}

fn explicit_only(status: &AcceleratorStatus) -> &'static str {
    if status.state != AcceleratorState::Off && status.wan.is_none() {
        "explicit mode: no LAN and WAN interface is set, so only forwards are optimized (farside accel forward); this needs no \
         privilege\n"
    } else {
        ""
    }
}

fn status(status: &AcceleratorStatus) -> String {
    let state = match status.state {
        AcceleratorState::Active => "active",
        AcceleratorState::Bypass => "bypass: connections go their plain way",
        AcceleratorState::Off => "off",
    };
    let dashed = |list: &[String]| if list.is_empty() { String::from("-") } else { list.join(", ") };
    let saved = match (status.original_bytes, status.wire_bytes) {
        (original, wire) if original > 0 => format!(
            "{} became {} ({:.0} %)",
            size(original),
            size(wire),
            wire as f64 * 100.0 / original as f64
        ),
        _ => String::from("-"),
    };
    let most = or_dash(status.store_size_bytes, size);
    let store = match status.store_bytes {
        Some(bytes) => format!("{} of at most {most}", size(bytes)),
        None => format!("at most {most}"),
    };
    let mut text = details(&[
        ("state", state.into()),
        ("why", or_dash(status.why.clone(), |why| why)),
        ("lan", dashed(&status.lan)),
        ("wan", or_dash(status.wan.clone(), |wan| wan)),
        ("listens on", or_dash(status.listen.clone(), |listen| listen)),
        ("peers may reach", dashed(&status.forward_to)),
        (
            "connections",
            format!(
                "{} optimized now, {} since the start; {} passed through, {} reset",
                status.optimized_connections,
                status.taken_connections,
                status.passed_through_connections,
                status.reset_connections
            ),
        ),
        ("bytes", saved),
        ("chunk store", store),
        ("restarts", status.restarts.to_string()),
    ]);
    if let Some(error) = &status.forwards_error {
        text += &format!("not every forward works: {error}\n");
    }
    if !status.peers.is_empty() {
        text += &peers(&status.peers);
    }
    text
}

fn cache(cache: &AcceleratorCache) -> String {
    let hits = match cache.lookups {
        0 => String::from("-"),
        lookups => format!(
            "{} of {lookups} questions ({:.0} %)",
            cache.hits,
            cache.hits as f64 * 100.0 / lookups as f64
        ),
    };
    details(&[
        ("size", format!("{} of at most {}", size(cache.bytes), size(cache.size_bytes))),
        ("chunks", cache.chunks.to_string()),
        ("index in memory", size(cache.index_bytes)),
        ("found", hits),
        ("made room", format!("{} containers", cache.evicted_containers)),
        ("damaged", format!("{} containers", cache.damaged_containers)),
    ])
}

fn peers(peers: &[AcceleratorPeer]) -> String {
    let columns = [
        Column::Left("peer"),
        Column::Left("state"),
        Column::Right("rtt"),
        Column::Left("subnets"),
        Column::Left("why"),
    ];
    let rows = peers.iter().map(|peer| {
        let state = match peer.state {
            AcceleratorPeerState::Connected => "connected",
            AcceleratorPeerState::Disconnected => "disconnected",
        };
        vec![
            peer.name.clone(),
            state.into(),
            or_dash(peer.rtt_seconds, |rtt| format!("{:.1} ms", rtt * 1000.0)),
            if peer.subnets.is_empty() { String::from("-") } else { peer.subnets.join(", ") },
            or_dash(peer.why.clone(), |why| why),
        ]
    });
    table(&columns, rows.collect(), "no peers")
}

fn acceleration(of: Acceleration) -> &'static str {
    match of {
        Acceleration::Full => "full",
        Acceleration::Dre => "dre",
        Acceleration::Lz => "lz",
        Acceleration::Transport => "transport",
        Acceleration::PassThrough => "pass-through",
    }
}

fn reason(of: Demotion) -> &'static str {
    match of {
        Demotion::NoPeer => "no-peer",
        Demotion::PeerLost => "peer-lost",
        Demotion::NoAnswer => "no-answer",
        Demotion::BoxInBetween => "box-in-between",
        Demotion::Encrypted => "encrypted",
        Demotion::Incompressible => "incompressible",
        Demotion::Overload => "overload",
        Demotion::StoreUnusable => "store-unusable",
    }
}

fn connections(all: &[AcceleratedConnection], now: Timestamp) -> String {
    let columns = [
        Column::Left("client"),
        Column::Left("server"),
        Column::Left("application"),
        Column::Left("configured"),
        Column::Left("peer's"),
        Column::Left("negotiated"),
        Column::Left("applied"),
        Column::Left("reason"),
        Column::Right("before"),
        Column::Right("after"),
        Column::Right("age"),
    ];
    let rows = all.iter().map(|connection| {
        // A clock that was set back makes no age.
        let age = now.duration_since(connection.opened_at).as_secs_f64().max(0.0);
        vec![
            connection.client.clone(),
            connection.server.clone(),
            connection.application.clone(),
            acceleration(connection.configured).into(),
            or_dash(connection.peer_policy, |policy| acceleration(policy).into()),
            acceleration(connection.negotiated).into(),
            acceleration(connection.applied).into(),
            or_dash(connection.reason, |demotion| reason(demotion).into()),
            size(connection.original_bytes),
            size(connection.wire_bytes),
            duration(age),
        ]
    });
    table(
        &columns,
        rows.collect(),
        "no connections; farside accel status shows whether the accelerator works",
    )
}

fn policies(all: &[AcceleratorPolicy]) -> String {
    let columns = [
        Column::Left("application"),
        Column::Left("action"),
        Column::Left("ports"),
        Column::Left("addresses"),
        Column::Left("clients"),
        Column::Left("servers"),
        Column::Left("from"),
    ];
    let any = |list: &[String]| if list.is_empty() { String::from("any") } else { list.join(", ") };
    let rows = all.iter().map(|policy| {
        let from = match policy.origin {
            PolicyOrigin::Set => "policy set",
            PolicyOrigin::Configured => "farside.toml",
            PolicyOrigin::Shipped => "shipped",
            PolicyOrigin::Otherwise => "where none fits",
        };
        vec![
            policy.application.clone(),
            acceleration(policy.action).into(),
            any(&policy.ports),
            any(&policy.addresses),
            any(&policy.clients),
            any(&policy.servers),
            from.into(),
        ]
    });
    table(&columns, rows.collect(), "no policies")
}

fn forwards(all: &[AcceleratorForward]) -> String {
    let columns = [Column::Left("listens on"), Column::Left("destination"), Column::Left("peer")];
    let rows = all
        .iter()
        .map(|forward| vec![forward.listen.clone(), forward.destination.clone(), forward.peer.clone()]);
    table(&columns, rows.collect(), "no forwards; farside accel forward makes one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_align_whatever_they_are() {
        let connection = |server: &str, reason| AcceleratedConnection {
            client: "10.1.0.7:51000".into(),
            server: server.into(),
            application: "postgresql".into(),
            configured: Acceleration::Full,
            peer_policy: None,
            negotiated: Acceleration::Full,
            applied: Acceleration::PassThrough,
            reason,
            original_bytes: 4096,
            wire_bytes: 1024,
            opened_at: "2026-11-21T20:00:00Z".parse().unwrap(),
            peer: None,
            client_is_here: true,
        };
        let all = [
            connection("10.2.0.9:5432", Some(Demotion::NoPeer)),
            connection("[2001:db8:1234:5678::9]:5432", None),
        ];
        let text = connections(&all, "2026-11-21T20:00:42Z".parse().unwrap());
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[0].find("APPLICATION").unwrap();
        for line in &lines[1..] {
            assert!(line[at..].starts_with("postgresql"), "{text}");
            assert!(line.ends_with("4.0 KiB  1.0 KiB  42 s"), "{text}");
        }
        assert!(lines[1].contains("pass-through  no-peer"), "{text}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn off_takes_a_list_back() {
        let words = |words: &[&str]| list(words.iter().map(ToString::to_string).collect());
        assert_eq!(words(&[]), None);
        assert_eq!(words(&["off"]), Some(Vec::new()));
        assert_eq!(words(&["eth1", "eth2"]).unwrap().len(), 2);
    }
}
