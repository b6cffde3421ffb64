//! `farside peer`.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use farside_api::{
    AccessRole, CreateInvitation, ErrorBody, ErrorCode, Invitation, JoinPeer, PathState, PathsMode, Peer,
    PeerPath, PeerRights, PeerState, PeerStatus, RekeyPeer, SetPeer,
};
use reqwest::Method;

use super::context::Context;
use super::site::{throttle, throttle_now};
use crate::arguments::names::VolumeName;
use crate::arguments::peer::{self as arguments, Peer as Verb};
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, details, one_line, or_dash, table};
use crate::quantities::{duration, rate, size, time};

/// A code is some hundred characters; what is longer is another file.
const CODE_BYTES_MAX: u64 = 4096;

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    match verb {
        Verb::Invite { valid } => {
            let request = CreateInvitation { valid_seconds: valid.as_secs_f64() };
            let invitation: Invitation = context.client.post(&["invitations"], &request).await?;
            if !context.json {
                eprintln!(
                    "valid until {}, once; on the other site: farside peer join HOST:PORT",
                    time(invitation.expires_at)
                );
            }
            context.show(&invitation, |invitation| format!("{}\n", invitation.code));
        }
        Verb::Join { address, code_file, name } => {
            let request = JoinPeer { address, code: code(code_file.as_deref())?, name };
            let peer: Peer = context.client.post(&["peers"], &request).await?;
            context.show(&peer, |peer| format!("paired with {} ({})\n", peer.name, peer.id));
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
            let peer: PeerStatus = context.client.post(&["peers", &peer, "set"], &request).await?;
            context.show(&peer, status);
        }
        Verb::Remove { peer, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &["peers", &peer],
                body: None::<&()>,
                impact: Impact::Service,
            };
            if let Some(peer) = carry_out::<Peer>(&context.client, request, destructive, context.json).await?
            {
                context.show(&peer, |peer| format!("peer {} removed\n", peer.name));
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
            rights(&context, &peer, "allow", PeerRights { volumes: names(&volumes), reverse, fence }).await?;
        }
        Verb::Deny { peer, volumes } => {
            let request = PeerRights { volumes: names(&volumes), reverse: false, fence: false };
            rights(&context, &peer, "deny", request).await?;
        }
    }
    Ok(())
}

fn names(volumes: &[VolumeName]) -> Vec<String> {
    volumes.iter().map(ToString::to_string).collect()
}

async fn rights(context: &Context, peer: &str, verb: &str, request: PeerRights) -> Result<(), ErrorBody> {
    let peer: PeerStatus = context.client.post(&["peers", peer, verb], &request).await?;
    context.show(&peer, |peer| {
        let notes = peer.notes.iter().map(|note| format!("\n{note}\n")).collect::<String>();
        status(peer) + &notes
    });
    Ok(())
}

/// The code of an invitation: from a file, a prompt, or stdin. Never from the arguments.
fn code(file: Option<&Path>) -> Result<String, ErrorBody> {
    let mut text = String::new();
    let read = match file {
        Some(path) => {
            std::fs::File::open(path).and_then(|f| f.take(CODE_BYTES_MAX).read_to_string(&mut text))
        }
        None if std::io::stdin().is_terminal() => {
            eprint!("code of the invitation: ");
            let _ = std::io::stderr().flush();
            std::io::stdin().read_line(&mut text)
        }
        None => std::io::stdin().take(CODE_BYTES_MAX).read_to_string(&mut text),
    };
    let origin = file.map_or_else(|| String::from("stdin"), |path| path.display().to_string());
    read.map_err(|e| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("cannot read the code from {origin}: {e}"))
    })?;
    match text.trim() {
        "" => Err(ErrorBody::new(ErrorCode::WrongUsage, format!("no code came from {origin}"))
            .hint("farside peer invite on the other site prints one")),
        code => Ok(code.to_owned()),
    }
}

fn state(state: PeerState) -> &'static str {
    match state {
        PeerState::Connected => "connected",
        PeerState::NotAnswering => "not answering",
        PeerState::Disconnected => "disconnected",
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
    ];
    let rows = peers.iter().map(|peer| {
        vec![
            peer.name.clone(),
            state(peer.state).into(),
            or_dash(peer.address.clone(), |a| a),
            or_dash(peer.rtt_seconds, milliseconds),
            size(peer.sent_bytes),
            size(peer.received_bytes),
            // Enough to tell peers apart; `peer status` and `--json` have all of it.
            peer.id.chars().take(16).collect(),
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
        ("state", state(peer.state).into()),
        ("why", or_dash(peer.why.clone(), |w| w)),
        ("address", or_dash(peer.address.clone(), |a| a)),
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
