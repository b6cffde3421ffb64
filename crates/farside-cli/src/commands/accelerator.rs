//! `farside accel`.

mod files;
mod preposition;

use farside_api::{
    AcceleratedApplication, AcceleratedConnection, Acceleration, AcceleratorCache, AcceleratorForward,
    AcceleratorPeer, AcceleratorPeerState, AcceleratorPlan, AcceleratorPolicy, AcceleratorState,
    AcceleratorStatus, AcceleratorTimes, ClearCache, Demotion, ErrorBody, PolicyOrigin, Preposition,
    ResetConnection, SetAcceleratorPolicy, StartAccelerator, Timestamp,
};
use reqwest::Method;

use super::context::Context;
use crate::arguments::accelerator::{
    Accelerator as Verb, AcceleratorCache as Cache, AcceleratorPolicyVerb as PolicyVerb, ActionWord,
};
use crate::output::{Column, details, or_dash, table};
use crate::progress::reduction;
use crate::quantities::{duration, size};

/// Takes a setting back.
const OFF: &str = "off";

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    let client = &context.client;
    match verb {
        Verb::Up { lan, wan, bridge, store_size, listen, forward_to, dry_run } => {
            let words = StartAccelerator {
                lan: list(lan),
                wan: wan.map(|wan| if wan == OFF { String::new() } else { wan }),
                bridge,
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
            let all: Vec<AcceleratorPolicy> = client.post(&["accelerator", "reload"], &()).await?;
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
            let now: Option<AcceleratorStatus> = match context.json {
                true => None,
                false => client.get(&["accelerator"]).await.ok(),
            };
            let is_off = now.is_some_and(|now| now.state == AcceleratorState::Off);
            context.show(&made, |made| {
                let AcceleratorForward { listen, destination, peer } = made;
                match is_off {
                    true => format!(
                        "that {listen} is forwarded to {destination} at {peer} is remembered; the accelerator is off, and nothing listens \
                         until farside accel up\n"
                    ),
                    false => format!("{listen} is forwarded to {destination} at {peer}\n"),
                }
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
    let most = or_dash(status.store_size_bytes, size);
    let store = match (status.store_bytes, &status.cache) {
        (Some(bytes), Some(cache)) => {
            let oldest =
                cache.oldest_seconds.map(|age| format!(", the oldest of it {}", duration(age as f64)));
            format!("{} of at most {most}{}", size(bytes), oldest.unwrap_or_default())
        }
        (Some(bytes), None) => format!("{} of at most {most}", size(bytes)),
        (None, _) => format!("at most {most}"),
    };
    let mut rows = vec![
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
        ("bytes", became(status.original_bytes, status.wire_bytes)),
        ("chunk store", store),
        ("added latency", or_dash(status.block_wait.as_ref(), times)),
        ("restarts", status.restarts.to_string()),
    ];
    if status.prepositioned_original_bytes > 0 {
        let bytes = became(status.prepositioned_original_bytes, status.prepositioned_wire_bytes);
        rows.insert(rows.len() - 1, ("prepositioned", bytes));
    }
    let mut text = details(&rows);
    for warning in &status.warnings {
        text += &format!("warning: {warning}\n");
    }
    if let Some(error) = &status.forwards_error {
        text += &format!("not every forward works: {error}\n");
    }
    if !status.peers.is_empty() {
        text += &format!("\n{}", peers(&status.peers, Timestamp::now()));
    }
    if !status.applications.is_empty() {
        text += &format!("\n{}", applications(&status.applications));
    }
    text
}

/// What so many bytes were on the link: `1.2 GiB became 120 MiB on the link: 10.2x fewer, 90 % saved`.
fn became(original: u64, wire: u64) -> String {
    if original == 0 {
        return String::from("-");
    }
    let mut text = format!("{} became {} on the link", size(original), size(wire));
    if wire < original
        && let Some(reduction) = reduction(original, wire)
    {
        let saved = (original - wire) as f64 * 100.0 / original as f64;
        text += &format!(": {reduction} fewer, {saved:.0} % saved");
    }
    text
}

/// `half within 0.25 ms, 99 in 100 within 1 ms`.
fn times(of: &AcceleratorTimes) -> String {
    let within = |seconds: Option<f64>| match (seconds, of.bounds_seconds.last()) {
        (Some(seconds), _) => format!("within {} ms", seconds * 1000.0),
        (None, Some(last)) => format!("more than {} ms", last * 1000.0),
        (None, None) => String::from("-"),
    };
    if of.count == 0 {
        return String::from("-");
    }
    format!("half {}, 99 in 100 {}", within(of.p50_seconds), within(of.p99_seconds))
}

fn applications(all: &[AcceleratedApplication]) -> String {
    let columns = [
        Column::Left("application"),
        Column::Right("now"),
        Column::Right("optimized"),
        Column::Right("passed"),
        Column::Right("before"),
        Column::Right("on the link"),
        Column::Right("fewer"),
    ];
    let rows = all.iter().map(|of| {
        let original = of.sent_original_bytes + of.received_original_bytes;
        let wire = of.sent_wire_bytes + of.received_wire_bytes;
        vec![
            of.application.clone(),
            of.optimized_connections.to_string(),
            of.taken_connections.to_string(),
            of.passed_through_connections.to_string(),
            size(original),
            size(wire),
            or_dash(reduction(original, wire), |times| times),
        ]
    });
    table(&columns, rows.collect(), "no connections yet")
}

fn cache(cache: &AcceleratorCache) -> String {
    let hits = match cache.hit_ratio {
        None => String::from("-"),
        Some(ratio) => {
            format!("{} of {} questions ({:.0} %)", cache.hits, cache.lookups, ratio * 100.0)
        }
    };
    let full = match cache.size_bytes {
        0 => String::new(),
        most => format!(" ({:.0} %)", cache.bytes as f64 * 100.0 / most as f64),
    };
    let mut text = details(&[
        ("size", format!("{} of at most {}{full}", size(cache.bytes), size(cache.size_bytes))),
        ("oldest", or_dash(cache.oldest_seconds, |age| format!("{} ago", duration(age as f64)))),
        ("chunks", cache.chunks.to_string()),
        ("index in memory", size(cache.index_bytes)),
        ("found", hits),
        ("made room", format!("{} containers", cache.evicted_containers)),
        ("damaged", format!("{} containers", cache.damaged_containers)),
    ]);
    if cache.not_loaded_containers > 0 {
        text += &format!(
            "{} containers of an earlier time are still being read; what is in them is found afterwards\n",
            cache.not_loaded_containers
        );
    }
    if let Some(trouble) = &cache.trouble {
        text += &format!("warning: {trouble}\n");
    }
    text
}

fn peers(peers: &[AcceleratorPeer], now: Timestamp) -> String {
    let columns = [
        Column::Left("peer"),
        Column::Left("state"),
        Column::Right("for"),
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
            or_dash(peer.since, |since| duration(now.duration_since(since).as_secs_f64().max(0.0))),
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
        Column::Right("on the link"),
        Column::Right("fewer"),
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
            or_dash(reduction(connection.original_bytes, connection.wire_bytes), |times| times),
            duration(age),
        ]
    });
    let none = "no connections; farside accel status shows whether the accelerator works";
    let mut text = table(&columns, rows.collect(), none);
    let mut explained = Vec::new();
    for demotion in all.iter().filter_map(|connection| connection.reason) {
        if !explained.contains(&demotion) {
            explained.push(demotion);
            text += &format!(
                "{}{}: {}\n",
                if explained.len() == 1 { "\n" } else { "" },
                reason(demotion),
                why(demotion)
            );
        }
    }
    text
}

/// A reason for somebody who sees it for the first time, and what to look at.
fn why(of: Demotion) -> &'static str {
    match of {
        Demotion::NoPeer => {
            "no paired accelerator was found on the way to the server; if there is one, is the server behind its LAN interfaces?"
        }
        Demotion::PeerLost => "the peer's accelerator could not be reached; farside accel status says why",
        Demotion::NoAnswer => {
            "the server did not answer the peer's accelerator: it is down, or its answers take another way"
        }
        Demotion::BoxInBetween => "another pair of accelerators optimizes it",
        Demotion::Encrypted => {
            "it is encrypted: nothing repeats and nothing gets smaller; it gains from the transport alone"
        }
        Demotion::Incompressible => "it gets no smaller; what has passed before is still referred to",
        Demotion::Overload => "there were as many connections as the accelerator takes",
        Demotion::StoreUnusable => "the chunk store takes nothing; farside accel cache status says why",
    }
}

/// Of a list in a table.
const LISTED: usize = 5;

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
    // Fifteen ports in a row would push everything else off the screen; --json has them all.
    let any = |list: &[String]| match list {
        [] => String::from("any"),
        [first @ .., _, _] if first.len() > LISTED => {
            format!("{} and {} more", list[..LISTED].join(", "), list.len() - LISTED)
        }
        list => list.join(", "),
    };
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
        for line in &lines[1..3] {
            assert!(line[at..].starts_with("postgresql"), "{text}");
            assert!(line.ends_with("4.0 KiB      1.0 KiB   4.0x  42 s"), "{text}");
        }
        assert!(lines[1].contains("pass-through  no-peer"), "{text}");
        assert!(lines[3].is_empty() && lines[4].starts_with("no-peer: no paired accelerator"), "{text}");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn what_was_saved_is_said_so_that_it_can_be_read() {
        assert_eq!(
            became(1200 << 20, 120 << 20),
            "1.2 GiB became 120.0 MiB on the link: 10.0x fewer, 90 % saved"
        );
        assert_eq!(became(1000, 1004), "1000 B became 1004 B on the link");
        assert_eq!(became(0, 0), "-");
        let times_of = |p50, p99| AcceleratorTimes {
            count: 2,
            p50_seconds: p50,
            p99_seconds: p99,
            sum_seconds: 1.0,
            bounds_seconds: vec![0.00025, 2.5],
            counts: vec![1, 1, 0],
        };
        assert_eq!(times(&times_of(Some(0.00025), None)), "half within 0.25 ms, 99 in 100 more than 2500 ms");
    }

    #[test]
    fn off_takes_a_list_back() {
        let words = |words: &[&str]| list(words.iter().map(ToString::to_string).collect());
        assert_eq!(words(&[]), None);
        assert_eq!(words(&["off"]), Some(Vec::new()));
        assert_eq!(words(&["eth1", "eth2"]).unwrap().len(), 2);
    }
}
