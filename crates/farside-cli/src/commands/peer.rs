//! `farside peer`.

use std::time::{Duration, Instant};

use farside_api::{
    AccessRole, CreateInvitation, ErrorBody, ErrorCode, Invitation, JoinPeer, OpenInvitation, PathState,
    PathsMode, Peer, PeerPath, PeerRights, PeerState, PeerStatus, Plan, RekeyPeer, SetPeer, SiteStatus,
    is_code,
};
use reqwest::Method;

use super::codes;
use super::context::Context;
use super::present;
use super::site::{throttle, throttle_now};
use crate::arguments::names::VolumeName;
use crate::arguments::peer::{self as arguments, Peer as Verb};
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, details, one_line, or_dash, table};
use crate::quantities::{duration, rate, size, time};

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    match verb {
        Verb::Invite { list: true, .. } => {
            let open: Vec<OpenInvitation> = context.client.get(&["invitations"]).await?;
            context.show(&open, |open| codes::open(open));
        }
        Verb::Invite { cancel: Some(id), .. } => {
            let over: OpenInvitation =
                context.client.request(Method::DELETE, &["invitations", &id], &[], None::<&()>).await?;
            context.show(&over, |over| format!("invitation {} is taken back; nobody can use it\n", over.id));
        }
        Verb::Invite { valid, .. } => {
            let request = CreateInvitation { valid_seconds: valid.as_secs_f64() };
            let invitation: Invitation = context.client.post(&["invitations"], &request).await?;
            if !context.json {
                eprintln!(
                    "valid until {}, once; on the other site: farside peer join HOST:PORT. To take it back: farside peer invite \
                     --cancel {}",
                    time(invitation.expires_at),
                    invitation.id
                );
            }
            context.show(&invitation, |invitation| format!("{}\n", invitation.code));
        }
        Verb::Join { address, code_file, name, if_absent } => {
            if is_code(&address) {
                return Err(code_for_address());
            }
            let there = if if_absent { paired(&context, &address, name.as_deref()).await? } else { None };
            if let Some(peer) = there {
                let what = format!("the pairing with {}", peer.name);
                present::show(&context, Some(true), &peer, &what, |_| String::new());
                return Ok(());
            }
            let wanted = name.clone();
            let request = JoinPeer { address, code: codes::code(code_file.as_deref())?, name };
            let peer: Peer = context.client.post(&["peers"], &request).await?;
            if let Some(wanted) = wanted.filter(|wanted| *wanted != peer.name && !context.json) {
                eprintln!(
                    "note: another peer is called {wanted} here, so this one is {0}. If it is the same site with another key: farside peer \
                     rekey {wanted} {0}. If nobody needs the other: farside peer remove {wanted}, then farside peer set {0} --name {wanted}",
                    peer.name
                );
            }
            let here: Result<SiteStatus, _> = context.client.get(&["site", "status"]).await;
            if !context.json && here.is_ok_and(|here| here.name == peer.name) {
                eprintln!(
                    "note: both sites are called {0}. To call the other one something else here: farside peer set {0} --name NAME",
                    peer.name
                );
            }
            present::show(&context, if_absent.then_some(false), &peer, "", |peer| {
                format!("paired with {} ({})\n", peer.name, peer.id)
            });
        }
        Verb::List => {
            let peers: Vec<Peer> = context.client.get(&["peers"]).await?;
            context.show(&peers, |peers| listing(peers));
        }
        Verb::Status { peer } => {
            let peer: PeerStatus = context.client.get(&["peers", &peer]).await?;
            context.show(&peer, status);
        }
        Verb::Set {
            peer,
            address,
            name,
            path,
            paths: mode,
            dscp,
            rate,
            keepalive,
            throttle_in,
            throttle_out,
            role,
        } => {
            let address = address.map(|address| if address == "off" { String::new() } else { address });
            let mode = mode.map(|mode| match mode {
                arguments::PathsMode::Multiplex => PathsMode::Multiplex,
                arguments::PathsMode::Failover => PathsMode::Failover,
            });
            let paths = match &path[..] {
                [] => None,
                [off] if off == "off" => Some(Vec::new()),
                _ => Some(path),
            };
            let keepalive_seconds = keepalive.map(|keepalive| keepalive.as_secs_f64());
            let request = SetPeer {
                address,
                name,
                paths,
                mode,
                dscp,
                rate,
                keepalive_seconds,
                throttle_in,
                throttle_out,
                role,
            };
            let set: PeerStatus = context.client.post(&["peers", &peer, "set"], &request).await?;
            context.show(&set, |set| changed(set, &request));
        }
        Verb::Remove { peer, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &["peers", &peer],
                body: None::<&()>,
                impact: Impact::Service,
            };
            // What depends on it is said afterwards, too: a script is not asked.
            let plan: Result<Plan, _> = context
                .client
                .request(Method::DELETE, &["peers", &peer], &[("plan", "true")], None::<&()>)
                .await;
            if let Some(peer) = carry_out::<Peer>(&context.client, request, destructive, context.json).await?
            {
                context.show(&peer, |peer| {
                    let would = plan.map(|plan| plan.would).unwrap_or_default();
                    let lines = would.iter().map(|line| format!("  {line}\n")).collect::<String>();
                    format!("peer {} removed\n{lines}", peer.name)
                });
            }
        }
        Verb::Rekey { peer, with, destructive } => {
            let request = DestructiveRequest {
                method: Method::POST,
                path: &["peers", &peer, "rekey"],
                body: Some(&RekeyPeer { with }),
                impact: Impact::Service,
            };
            let done = carry_out::<PeerStatus>(&context.client, request, destructive, context.json).await?;
            if let Some(peer) = done {
                context.show(&peer, status);
            }
        }
        Verb::Allow { peer, volumes, reverse, fence } => {
            let given = PeerRights { volumes: names(&volumes), reverse, fence };
            let before: PeerStatus = context.client.get(&["peers", &peer]).await?;
            let after = rights(&context, &peer, "allow", &given).await?;
            context.show(&after, |after| allowed(&before, after, &given.volumes));
        }
        Verb::Deny { peer, volumes } => {
            let request = PeerRights { volumes: names(&volumes), reverse: false, fence: false };
            let after = rights(&context, &peer, "deny", &request).await?;
            context.show(&after, |after| {
                let name = &after.peer.name;
                let line = |volume: &String| format!("{name} may not mirror {volume}\n");
                request.volumes.iter().map(line).collect::<String>() + &notes(after)
            });
        }
    }
    Ok(())
}

fn names(volumes: &[VolumeName]) -> Vec<String> {
    volumes.iter().map(ToString::to_string).collect()
}

async fn rights(
    context: &Context,
    peer: &str,
    verb: &str,
    request: &PeerRights,
) -> Result<PeerStatus, ErrorBody> {
    context.client.post(&["peers", peer, verb], request).await
}

/// What is to be known of what was just done.
fn notes(peer: &PeerStatus) -> String {
    peer.notes.iter().map(|note| format!("{note}\n")).collect()
}

/// What a peer may do now with volumes, and what it might before and may not any more.
fn allowed(before: &PeerStatus, after: &PeerStatus, volumes: &[String]) -> String {
    let name = &after.peer.name;
    let line = |volume: &String| {
        let right = |of: &PeerStatus| of.rights.iter().find(|right| right.volume == *volume).cloned();
        let (was, now) = (right(before), right(after));
        let Some(now) = now else { return String::new() };
        let mut text = format!("{name} may mirror {volume}");
        if now.reverse {
            text += ", and the way back";
        }
        if now.fence {
            text += "; it is fenced here once it is taken over there";
        }
        text.push('\n');
        if was.as_ref().is_some_and(|was| was.reverse) && !now.reverse {
            text += "  the way back, which it had, is taken back; to give it again: --reverse\n";
        }
        if was.as_ref().is_some_and(|was| was.fence) && !now.fence {
            text += "  the fence, which there was, is taken back; to have it again: --fence\n";
        }
        text
    };
    volumes.iter().map(line).collect::<String>() + &notes(after)
}

/// What `peer set` has changed, as it holds now.
fn changed(peer: &PeerStatus, request: &SetPeer) -> String {
    let name = &peer.peer.name;
    let mut said = Vec::new();
    if request.name.is_some() {
        said.push(format!("it is called {name}"));
    }
    if request.address.is_some() {
        let dialled = |address: String| format!("it is dialled at {address}");
        said.push(peer.peer.address.clone().map_or_else(|| "it is not dialled; it dials".into(), dialled));
    }
    if request.paths.is_some() || request.mode.is_some() {
        let mode = match peer.link.mode {
            PathsMode::Multiplex => "all at once",
            PathsMode::Failover => "the first that works",
        };
        let paths = peer.link.paths.join(", ");
        said.push(match paths.is_empty() {
            true => "it has no paths but its address".into(),
            false => format!("paths, {mode}: {paths}"),
        });
    }
    if request.dscp.is_some() {
        let marked = |dscp| format!("packets are marked DSCP {dscp}");
        said.push(peer.link.dscp.map_or_else(|| "packets are not marked".into(), marked));
    }
    if request.rate.is_some() {
        let committed = |bytes: u64| format!("committed rate {} Mb/s", bytes as f64 * 8.0 / 1e6);
        said.push(peer.link.rate_bytes_per_second.map_or_else(|| "no committed rate".into(), committed));
    }
    if request.keepalive_seconds.is_some() {
        said.push(format!("keepalive every {}", or_dash(peer.link.keepalive_seconds, duration)));
    }
    if request.throttle_in.is_some() {
        said.push(format!("throttle in {}", or_dash(peer.throttle_in.as_ref(), throttle_now)));
    }
    if request.throttle_out.is_some() {
        said.push(format!("throttle out {}", or_dash(peer.throttle_out.as_ref(), throttle_now)));
    }
    if request.role.is_some() {
        let may = peer.role.map_or("nothing here", AccessRole::name);
        said.push(format!("its people may: {may}"));
    }
    format!("{name}: {}\n", said.join("; "))
}

/// It stands among the arguments by now, which every user of the machine can read.
fn code_for_address() -> ErrorBody {
    let said = "this is the code, where the address of the site that made it belongs; nothing was sent, and the code is not used";
    ErrorBody::new(ErrorCode::WrongUsage, said).hint(
        "farside peer join HOST[:PORT] asks for the code. Arguments can be read by every user of this machine: to be sure, take that \
         code back (farside peer invite --list and --cancel ID at the site that made it) and make another",
    )
}

/// The peer that is paired under this name or at this address.
async fn paired(context: &Context, address: &str, name: Option<&str>) -> Result<Option<Peer>, ErrorBody> {
    let begun = Instant::now();
    let mut patience = DIALLED_WITHIN;
    loop {
        let found = known(context, address, name).await?;
        match found.as_ref().map(|peer| peer.state) {
            None | Some(PeerState::Connected) => return Ok(found),
            Some(PeerState::NotAnswering) => patience = TOLD_WITHIN,
            Some(PeerState::Disconnected) => {}
        }
        if begun.elapsed() >= patience {
            // Without a session nobody knows what is there: whoever joins is told.
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// So long a session is kept whose connections have ended, and what lies at its address is asked after that: until then nobody knows whether
/// that still is the site that was paired.
const TOLD_WITHIN: Duration = Duration::from_secs(15);
/// Within so long a site that is there is dialled again.
const DIALLED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The same, as far as it is known now.
async fn known(context: &Context, address: &str, name: Option<&str>) -> Result<Option<Peer>, ErrorBody> {
    let peers: Vec<Peer> = context.client.get(&["peers"]).await?;
    let is_called = |peer: &&Peer| name.is_some_and(|name| peer.name == name);
    let lies_there = |peer: &&Peer| peer.address.as_deref() == Some(address);
    let found = peers.iter().find(is_called).or_else(|| peers.iter().find(lies_there));
    let Some(peer) = found else { return Ok(None) };
    let wanted = name.unwrap_or(&peer.name);
    if peer.name != wanted || peer.address.as_deref().is_some_and(|known| known != address) {
        let known = peer.address.as_deref().unwrap_or("no address");
        let message = format!(
            "{} is paired, at {known}; asked for was {wanted} at {address}. Nothing was changed",
            peer.name
        );
        let hint = format!("farside peer set {} --address HOST:PORT --name NAME changes both", peer.name);
        return Err(ErrorBody::new(ErrorCode::Exists, message).hint(hint));
    }
    if let Some(why) = peer.why.as_ref().filter(|why| why.contains("is not the site it should be")) {
        let message =
            format!("{} is paired, and another site answers there: {why}. Nothing was changed", peer.name);
        let hint = format!(
            "if that is {0} with a new key: farside peer join under another name (--name), then farside peer rekey {0} NEW; else see \
             what listens there, or farside peer remove {0}",
            peer.name
        );
        return Err(ErrorBody::new(ErrorCode::Exists, message).hint(hint));
    }
    Ok(Some(peer.clone()).filter(|peer| !is_unknown_there(peer)))
}

/// Whether the other site has said that it does not know this one (any more): such a pairing is none, and only another makes it one
/// again.
fn is_unknown_there(peer: &Peer) -> bool {
    let says_so = |why: &String| why.contains("does not know this site's key");
    peer.state == PeerState::Disconnected && peer.why.as_ref().is_some_and(says_so)
}

fn state(state: PeerState) -> &'static str {
    match state {
        PeerState::Connected => "connected",
        PeerState::NotAnswering => "not answering",
        PeerState::Disconnected => "disconnected",
    }
}

/// The same in a list. That the peer has dialled is said where somebody might believe that its address works.
fn state_of(peer: &Peer) -> String {
    match peer.dialled_us && peer.address.is_some() {
        true => format!("{} (it dialled us)", state(peer.state)),
        false => state(peer.state).to_owned(),
    }
}

/// Where it is dialled, in a list.
fn addresses(peer: &Peer) -> String {
    match (&peer.address, peer.other_addresses.len()) {
        (address, 0) => or_dash(address.clone(), |address| address),
        (Some(address), others) => format!("{address} and {others} more"),
        (None, 1) => peer.other_addresses[0].clone(),
        (None, others) => format!("{} and {} more", peer.other_addresses[0], others - 1),
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1000.0)
}

/// How the clock of a peer differs from this site's; half of a round trip is not to be told from a difference.
fn clock(ahead_seconds: f64, rtt_seconds: Option<f64>) -> String {
    if ahead_seconds.abs() <= rtt_seconds.unwrap_or_default() / 2.0 {
        return "the same as here".to_owned();
    }
    let word = if ahead_seconds > 0.0 { "ahead" } else { "behind" };
    format!("{} {word}", duration(ahead_seconds.abs()))
}

fn listing(peers: &[Peer]) -> String {
    let columns = [
        Column::Left("name"),
        Column::Left("state"),
        Column::Left("address"),
        Column::Right("rtt"),
        Column::Right("sent"),
        Column::Right("received"),
        Column::Left("id"),
        Column::Left("why"),
    ];
    let rows = peers.iter().map(|peer| {
        vec![
            peer.name.clone(),
            state_of(peer),
            addresses(peer),
            or_dash(peer.rtt_seconds, milliseconds),
            size(peer.sent_bytes),
            size(peer.received_bytes),
            // Enough to tell peers apart; `peer status` and `--json` have all of it.
            peer.id.chars().take(16).collect(),
            or_dash(peer.why.as_deref(), |why| one_line(why).to_owned()),
        ]
    });
    table(&columns, rows.collect(), "no peers; pair with farside peer invite and farside peer join")
}

fn status(status: &PeerStatus) -> String {
    let peer = &status.peer;
    // Where there is a committed rate, what holds now may be that.
    let throttle_out = match status.link.rate_bytes_per_second {
        Some(_) => throttle_now,
        None => throttle,
    };
    let mut text = details(&[
        ("name", peer.name.clone()),
        ("id", peer.id.clone()),
        ("state", state_of(peer)),
        ("why", or_dash(peer.why.clone(), |w| w)),
        ("last heard", or_dash(peer.last_heard_at, time)),
        (
            "address",
            or_dash(peer.address.clone(), |address| match peer.dialled_us {
                true => format!("{address} (not used by this session)"),
                false => address,
            }),
        ),
        (
            "its other daemons",
            match peer.other_addresses.is_empty() {
                true => "none known".to_owned(),
                false => peer.other_addresses.join(", "),
            },
        ),
        ("protocol", or_dash(peer.protocol, |p| p.to_string())),
        ("rtt", or_dash(peer.rtt_seconds, milliseconds)),
        ("clock", or_dash(peer.clock_ahead_seconds, |ahead| clock(ahead, peer.rtt_seconds))),
        ("sent", size(peer.sent_bytes)),
        ("received", size(peer.received_bytes)),
        ("throttle in", or_dash(status.throttle_in.as_ref(), throttle)),
        ("throttle out", or_dash(status.throttle_out.as_ref(), throttle_out)),
        ("paired", or_dash(status.paired_at, time)),
        ("its people may", status.role.map_or("nothing here", AccessRole::name).to_owned()),
    ]);
    let link = &status.link;
    if !link.paths.is_empty() {
        let mode = match link.mode {
            PathsMode::Multiplex => "all at once",
            PathsMode::Failover => "the first that works",
        };
        text += &format!("paths, {mode}: {}\n", link.paths.join(", "));
    }
    if let Some(bytes) = link.rate_bytes_per_second {
        text +=
            &format!("committed rate (CIR): {} Mb/s for everything sent to it\n", bytes as f64 * 8.0 / 1e6);
    }
    if let Some(dscp) = link.dscp {
        text += &format!("packets are marked DSCP {dscp}\n");
    }
    if let Some(seconds) = link.keepalive_seconds {
        text += &format!("keepalive: a quiet session asks for a sign of life every {}\n", duration(seconds));
    }
    if !status.paths.is_empty() {
        text += &paths(&status.paths);
        let streams = &status.streams;
        text += &format!(
            "streams: {} open, {} idle connections, {} streams on reused connections, {} retransmitted\n",
            streams.open,
            streams.idle_lanes,
            streams.reused_lanes,
            size(streams.retransmitted_bytes)
        );
    }
    for right in &status.rights {
        text += &format!(
            "may mirror {}{}{}{}\n",
            right.volume,
            if right.reverse { ", both ways" } else { "" },
            if right.recorded { " (recorded for the way back, ends with the mirror)" } else { "" },
            if right.fence { ", fenced here once it is taken over there" } else { "" }
        );
    }
    text
}

/// The paths of a session, one in each line.
fn paths(paths: &[PeerPath]) -> String {
    let columns = [
        Column::Left("path"),
        Column::Left("state"),
        Column::Right("lanes"),
        Column::Left("congestion"),
        Column::Right("rtt"),
        Column::Right("mtu"),
        Column::Right("mss"),
        Column::Left("packets"),
        Column::Right("rate"),
        Column::Right("sent"),
        Column::Right("received"),
    ];
    let rows = paths.iter().map(|path| {
        let state = match path.state {
            PathState::Up => "up",
            PathState::Stalled => "stalled",
            PathState::Down => "down",
        };
        let state = match path.down_seconds {
            Some(seconds) => format!("{state} for {}", duration(seconds.floor())),
            None => state.to_owned(),
        };
        vec![
            path_name(path),
            state,
            path.lanes.to_string(),
            or_dash(path.congestion.clone(), |name| name),
            or_dash(path.rtt_seconds, milliseconds),
            or_dash(path.path_mtu_bytes, |mtu| mtu.to_string()),
            or_dash(path.mss_bytes, |mss| mss.to_string()),
            or_dash(path.jumbo, |jumbo| String::from(if jumbo { "jumbo" } else { "standard" })),
            or_dash(path.delivery_bytes_per_second, |bytes| rate(bytes as f64)),
            size(path.sent_bytes),
            size(path.received_bytes),
        ]
    });
    let mut text = table(&columns, rows.collect(), "no paths");
    for (path, why) in paths.iter().filter_map(|path| Some((path, path.why.as_ref()?))) {
        text += &format!("{}: {}\n", path_name(path), one_line(why));
    }
    text
}

fn path_name(path: &PeerPath) -> String {
    let local = path.local.as_ref();
    local.map_or_else(|| path.remote.clone(), |local| format!("{local}={}", path.remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_of_several_daemons_has_several_addresses() {
        let shown = |address: Option<&str>, others: &[&str]| {
            let peer = serde_json::json!({"name": "b", "id": "ab", "address": address, "other_addresses": others,
                "state": "connected", "protocol": 1, "rtt_seconds": null, "sent_bytes": 0, "received_bytes": 0});
            addresses(&serde_json::from_value(peer).expect("a peer"))
        };
        assert_eq!(shown(Some("a:7440"), &[]), "a:7440");
        assert_eq!(shown(Some("a:7440"), &["b:7440", "c:7440"]), "a:7440 and 2 more");
        assert_eq!(shown(None, &[]), "-");
        assert_eq!(
            (shown(None, &["b:1"]), shown(None, &["b:1", "c:1"])),
            ("b:1".into(), "b:1 and 1 more".into())
        );
    }
}
