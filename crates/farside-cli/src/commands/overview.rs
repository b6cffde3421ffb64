//! `farside status`: one page about this site; `farside top`: the same again and again.
//!
//! What is on the page is pure ([`page`]): what needs somebody first, then the mirrors whose data is nearest to being too old. So
//! the first screen of a thousand mirrors has those that matter.

use std::time::{Duration, Instant};

use console::Term;
use farside_api::{
    ErrorBody, Mirror, MirrorState, Peer, PeerState, Pool, PoolState, Role, SiteStatus, Split, splits,
};
use serde::Serialize;

use super::context::Context;
use crate::output::{one_line, print};
use crate::progress;
use crate::quantities::{duration, rate, size};

/// What a terminal has that does not say.
const SIZE_DEFAULT: (u16, u16) = (24, 80);
/// Most that a name takes of a line.
const NAME_MAX: usize = 28;

/// All that the page is made of.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Overview {
    site: SiteStatus,
    pools: Vec<Pool>,
    peers: Vec<Peer>,
    mirrors: Vec<Mirror>,
}

/// Bytes a second of this site since the page before.
#[derive(Clone, Copy, Default, Debug)]
struct Rates {
    received: f64,
    sent: f64,
}

pub(super) async fn status(context: Context) -> Result<(), ErrorBody> {
    let overview = look(&context).await?;
    // Whole lines: why something is wrong stands at their end.
    context.show(&overview, |overview| page(overview, None, usize::MAX, usize::MAX).join("\n") + "\n");
    Ok(())
}

/// Until Ctrl-C. Where nobody looks at a screen it is shown once.
pub(super) async fn top(context: Context, every: Duration) -> Result<(), ErrorBody> {
    let screen = Term::stdout();
    if context.json || !screen.is_term() {
        return status(context).await;
    }
    let mut before: Option<(Instant, u64, u64)> = None;
    let shown = loop {
        let now = Instant::now();
        let overview = match look(&context).await {
            Ok(overview) => overview,
            Err(error) => break Err(error),
        };
        let SiteStatus { received_bytes, sent_bytes, .. } = overview.site;
        let rates = before.map(|(at, received, sent)| {
            let seconds = now.duration_since(at).as_secs_f64().max(0.001);
            let of = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            Rates { received: of(received_bytes, received), sent: of(sent_bytes, sent) }
        });
        before = Some((now, received_bytes, sent_bytes));
        let (rows, columns) = screen.size_checked().unwrap_or(SIZE_DEFAULT);
        // The last line stays free: text that fills it would scroll the screen.
        let lines = page(&overview, rates, usize::from(rows).saturating_sub(1), usize::from(columns));
        // One write: a screen that is drawn in pieces flickers. Each line ends with what clears its rest.
        let text: String = lines.iter().map(|line| format!("{line}\u{1b}[K\n")).collect();
        print(&format!("\u{1b}[H{text}\u{1b}[J"));
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = tokio::signal::ctrl_c() => break Ok(()),
        }
    };
    print("\n");
    shown
}

async fn look(context: &Context) -> Result<Overview, ErrorBody> {
    let client = &context.client;
    let (site, pools, peers, mirrors) = tokio::join!(
        client.get(&["site", "status"]),
        client.get(&["pools"]),
        client.get(&["peers"]),
        client.get(&["mirrors"])
    );
    Ok(Overview { site: site?, pools: pools?, peers: peers?, mirrors: mirrors? })
}

/// The page, of at most so many lines and columns.
fn page(overview: &Overview, rates: Option<Rates>, lines: usize, columns: usize) -> Vec<String> {
    let Overview { site, pools, peers, mirrors } = overview;
    let mut page = vec![head(overview)];
    page.extend(rates.map(|rates| format!("link     in {}, out {}", rate(rates.received), rate(rates.sent))));
    page.extend(site.reasons.iter().map(|reason| format!("!! {reason}")));
    page.extend(site.warnings.iter().map(|warning| format!("!  {warning}")));
    let splits = splits(mirrors);
    page.extend(splits.iter().map(|split| format!("!! {}", split.said())));
    page.extend(waits_for_peers(overview));
    if let Some(held_back) = &site.held_back {
        page.push(format!("   hosts come first: transfers use {} % of a processor", held_back.share_percent));
    }
    page.push(String::new());
    for pool in pools {
        page.push(pool_line(pool));
    }
    for peer in peers {
        page.push(peer_line(peer));
    }
    if !(pools.is_empty() && peers.is_empty()) {
        page.push(String::new());
    }
    let rows = mirror_rows(mirrors, &splits);
    let name_width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).clamp(4, NAME_MAX);
    if mirrors.is_empty() {
        page.push("no mirrors; make one with farside mirror create".into());
    } else {
        page.push(format!(
            "{:name_width$}  {:17} {:>9} {:>9} {:>12} {:>9}  WHY",
            "MIRROR", "STATE", "LAG", "AT MOST", "RATE", "LEFT"
        ));
    }
    let room = lines.saturating_sub(page.len());
    let shown = if rows.len() > room { room.saturating_sub(1) } else { rows.len() };
    page.extend(rows[..shown].iter().map(|row| row.line(name_width)));
    let hidden = rows.len() - shown;
    if hidden > 0 {
        let bad = rows[shown..].iter().filter(|row| row.urgency >= URGENT).count();
        let whose =
            if bad == 0 { "nearer to their sources".to_owned() } else { format!("{bad} of them late too") };
        page.push(format!("… {hidden} more, {whose}"));
    }
    page.truncate(lines);
    page.iter().map(|line| cut(one_line(line).trim_end(), columns)).collect()
}

fn head(overview: &Overview) -> String {
    let Overview { site, peers, mirrors, .. } = overview;
    let connected = peers.iter().filter(|peer| peer.state == PeerState::Connected).count();
    let awake = farside_api::awake(mirrors);
    // What was broken off is nobody's replica, and not yet anybody's original.
    let is_broken_off =
        |mirror: &&&Mirror| mirror.role == Role::Destination && mirror.state == MirrorState::BrokenOff;
    let broken_off = awake.iter().filter(is_broken_off).count();
    let replicas = awake.iter().filter(|mirror| mirror.role == Role::Destination).count() - broken_off;
    let beside = if broken_off == 0 { String::new() } else { format!(", {broken_off} broken off") };
    let of = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}   {connected} of {} peers   {}, {}{beside}   transfers {} of {}, {} wait",
        site.name,
        peers.len(),
        of(replicas, "replica"),
        of(awake.len() - replicas - broken_off, "original"),
        site.transfers_under_way,
        site.transfer_size,
        site.transfers_waiting
    )
}

/// Replicas that wait for a session: the queue of transfers has none of them.
fn waits_for_peers(overview: &Overview) -> Option<String> {
    let is_away = |mirror: &&Mirror| {
        let (name, _) = mirror.source.split_once(':')?;
        let peer = overview.peers.iter().find(|peer| peer.name == name)?;
        Some(peer.state == PeerState::Disconnected)
    };
    let waits = |mirror: &&Mirror| mirror.role == Role::Destination && mirror.state == MirrorState::Queued;
    let awake = farside_api::awake(&overview.mirrors).into_iter();
    match awake.filter(waits).filter(|mirror| is_away(mirror).unwrap_or(false)).count() {
        0 => None,
        1 => Some("   1 replica waits for its peer".to_owned()),
        many => Some(format!("   {many} replicas wait for their peers")),
    }
}

fn pool_line(pool: &Pool) -> String {
    let name = &pool.name;
    match (pool.size_bytes, pool.used_bytes, &pool.error) {
        (Some(all), Some(used), None) => {
            let percent = (used as f64 * 100.0 / all.max(1) as f64).round();
            let volumes = match pool.volumes.unwrap_or_default() {
                1 => "1 volume".to_owned(),
                volumes => format!("{volumes} volumes"),
            };
            // Before the pool itself is full, the file system that its file lies on may be.
            let below = pool.file_system.as_ref().map(|below| {
                format!(
                    "; the file system of {} has {} free, and the pool may still take {} of it",
                    pool.path,
                    size(below.free_bytes),
                    size(below.may_take_bytes)
                )
            });
            let below = below.unwrap_or_default();
            format!("pool {name}: {} of {} used ({percent:.0} %), {volumes}{below}", size(used), size(all))
        }
        (_, _, None) if pool.state == PoolState::Open => {
            format!("pool {name}: open; its cluster says how much room there is (ceph df)")
        }
        (_, _, error) => format!("pool {name}: {}", error.clone().unwrap_or_else(|| "not open".into())),
    }
}

fn peer_line(peer: &Peer) -> String {
    let state = match peer.state {
        PeerState::Connected => "connected",
        PeerState::NotAnswering => "not answering",
        PeerState::Disconnected => "not connected",
    };
    let trip = peer.rtt_seconds.filter(|_| peer.state == PeerState::Connected);
    let trip = trip.map(|seconds| format!(", {:.0} ms away", seconds * 1000.0)).unwrap_or_default();
    let why = peer.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("peer {}: {state}{trip}{why}", peer.name)
}

/// A mirror that is past its objective, or does nothing that it should.
const URGENT: f64 = 1.0;

struct Row {
    name: String,
    state: String,
    lag: String,
    most: String,
    rate: String,
    left: String,
    why: String,
    /// How much of its time has passed; above one it is late.
    urgency: f64,
}

impl Row {
    fn line(&self, name_width: usize) -> String {
        let Row { state, lag, most, rate, left, why, .. } = self;
        format!(
            "{:name_width$}  {state:17} {lag:>9} {most:>9} {rate:>12} {left:>9}  {why}",
            cut(&self.name, name_width)
        )
    }
}

/// The most urgent first.
fn mirror_rows(mirrors: &[Mirror], splits: &[Split]) -> Vec<Row> {
    let row = |mirror: &Mirror| {
        let row = mirror_row(mirror);
        match splits.iter().find(|split| split.has(&row.name)) {
            Some(split) => of_split(row, &split.group),
            None => row,
        }
    };
    let mut rows: Vec<Row> = farside_api::awake(mirrors).into_iter().map(row).collect();
    rows.sort_by(|a, b| b.urgency.total_cmp(&a.urgency).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// However near each is: together they are of no use.
fn of_split(row: Row, group: &str) -> Row {
    let why = format!("group {group} is split");
    let why = if row.why.is_empty() { why } else { format!("{why}; {}", row.why) };
    Row { why, urgency: row.urgency.max(URGENT), ..row }
}

fn mirror_row(mirror: &Mirror) -> Row {
    let transfer = mirror.transfer.as_ref();
    let most = super::mirror::lag_at_most(mirror);
    let urgency = match (mirror.state, mirror.lag_seconds) {
        (MirrorState::BrokenOff, _) if mirror.role == Role::Source => URGENT + 1.0,
        _ if mirror.shows_own_state => URGENT,
        (_, Some(lag)) => lag / most.max(0.001),
        // A replica that never was one, or an original, which knows nothing of its lag.
        (MirrorState::Uninitialized, None) if mirror.role == Role::Destination => URGENT,
        _ => 0.0,
    };
    let dash = || String::from("-");
    let is_replica = mirror.role == Role::Destination;
    Row {
        name: mirror.name.clone(),
        state: super::mirror::state(mirror),
        lag: super::mirror::lag(mirror),
        most: if is_replica { duration(most) } else { dash() },
        rate: transfer.and_then(|t| t.rate_bytes_per_second).map_or_else(dash, rate),
        left: transfer.and_then(|t| t.eta_seconds).map_or_else(dash, duration),
        why: mirror
            .why
            .clone()
            .or_else(|| transfer.map(|t| progress::phase(t.phase).to_owned()))
            .unwrap_or_default(),
        urgency,
    }
}

/// So much of a text that it takes no more than `columns`.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use farside_api::SourceHeard;
    use serde_json::json;

    use super::*;

    fn overview(mirrors: Vec<Mirror>) -> Overview {
        let throttle = json!({"rules": "unlimited", "bytes_per_second": null});
        let site = json!({
            "name": "south", "reasons": [], "warnings": ["pool vault: 96 % of it are taken"], "throttle_in": throttle,
            "throttle_out": throttle, "transfer_size": 16, "transfers_under_way": 3, "transfers_waiting": 7,
            "sent_bytes": 10, "received_bytes": 20
        });
        let peer = json!({
            "name": "north", "id": "00", "address": "north:7440", "state": "disconnected", "why": "connection\nrefused",
            "protocol": null, "rtt_seconds": null, "sent_bytes": 0, "received_bytes": 0
        });
        Overview {
            site: serde_json::from_value(site).unwrap(),
            pools: Vec::new(),
            peers: vec![serde_json::from_value(peer).unwrap()],
            mirrors,
        }
    }

    fn mirror(name: &str, lag: Option<f64>, objective: Option<f64>) -> Mirror {
        let document = json!({
            "id": "00000000-0000-0000-0000-000000000000", "name": name, "role": "destination", "source": "north:tank/v",
            "destination": name, "state": "mirrored", "why": null, "lag_seconds": lag, "objective_seconds": objective,
            "current_snapshot": null, "content_root": null, "base_snapshot": null, "last_proven_at": null,
            "schedule": null, "throttle": null, "transfer": null
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_pool_on_a_file_system_that_is_nearly_full_says_so() {
        let of = |below: serde_json::Value| {
            let pool = json!({
                "name": "p", "uuid": null, "path": "/srv/p.pool", "state": "open", "error": null, "size_bytes": 1 << 30,
                "used_bytes": 0, "free_bytes": 1 << 30, "volumes": 1, "file_system": below
            });
            pool_line(&serde_json::from_value(pool).unwrap())
        };
        let said = of(json!({ "free_bytes": 1 << 20, "may_take_bytes": 1 << 29 }));
        assert!(said.contains("1 volume; the file system of /srv/p.pool has"), "{said}");
        assert!(of(json!(null)).ends_with("1 volume"));
    }

    #[test]
    fn a_group_that_is_split_stands_on_the_first_page() {
        let of_shop = |name: &str, state, heard| Mirror {
            group: Some("shop".into()),
            state,
            source_heard: heard,
            ..mirror(name, Some(1.0), Some(30.0))
        };
        let turned = of_shop("q/a", MirrorState::BrokenOff, Some(SourceHeard::Follows));
        let back = Mirror {
            role: Role::Source,
            source: "q/a".into(),
            destination: "north:tank/v".into(),
            ..mirror("q/a", None, None)
        };
        let mirrors =
            vec![turned, back, of_shop("q/b", MirrorState::Mirrored, None), mirror("q/c", Some(9.0), None)];
        let page = page(&overview(mirrors), None, usize::MAX, usize::MAX);
        assert!(
            page.iter().any(|line| line.starts_with("!! group shop is split: q/a is the original here")),
            "{page:#?}"
        );
        let row = |name: &str| page.iter().find(|line| line.starts_with(name)).unwrap();
        for name in ["q/a", "q/b"] {
            assert!(row(name).ends_with("group shop is split"), "{page:#?}");
        }
        assert!(!row("q/c").contains("split"), "{page:#?}");
    }

    #[test]
    fn the_first_screen_of_a_thousand_mirrors_has_those_that_matter() {
        let mut all: Vec<Mirror> =
            (0..1000).map(|n| mirror(&format!("vault/v{n}"), Some(10.0), Some(30.0))).collect();
        all[700].lag_seconds = Some(45.0);
        all[701].lag_seconds = Some(600.0);
        all[702].state = MirrorState::Queued;
        let page = page(&overview(all), None, 23, 80);
        assert!(page.len() <= 23 && page.iter().all(|line| line.chars().count() <= 80), "{page:#?}");
        assert!(page[0].contains("0 of 1 peers") && page[0].contains("3 of 16, 7 wait"), "{}", page[0]);
        assert!(page[1].starts_with("!  pool vault"));
        assert_eq!(page[2], "   1 replica waits for its peer");
        let of = |name: &str| page.iter().position(|line| line.starts_with(name)).unwrap();
        assert!(of("vault/v701") < of("vault/v700") && of("vault/v700") < of("vault/v0"), "{page:#?}");
        assert!(page.last().unwrap().contains("more, nearer"), "{page:#?}");
        assert!(page.iter().any(|line| line == "peer north: not connected: connection refused"), "{page:#?}");
    }

    #[test]
    fn columns_align_whatever_is_in_them() {
        let mut waiting = mirror(&format!("vault/{}", "long".repeat(20)), None, None);
        waiting.state = MirrorState::Uninitialized;
        let page =
            page(&overview(vec![mirror("q/v", Some(3.0), Some(30.0)), waiting]), None, usize::MAX, 200);
        let head = page.iter().find(|line| line.starts_with("MIRROR")).unwrap();
        let lag_ends = head.find("LAG").unwrap() + 3;
        let chars = |line: &str| line.chars().take(lag_ends).collect::<String>();
        let row = page.iter().find(|line| line.starts_with("q/v")).unwrap();
        assert!(chars(row).ends_with("3.00 s"), "{page:#?}");
        let long = page.iter().find(|line| line.starts_with("vault/long")).unwrap();
        assert!(chars(long).ends_with('-') && long.contains('…'), "{page:#?}");
    }

    #[test]
    fn a_screen_too_small_for_anything_is_no_error() {
        for (lines, columns) in [(0, 0), (1, 5), (3, 1)] {
            let page =
                page(&overview(vec![mirror("q/v", None, None)]), Some(Rates::default()), lines, columns);
            assert!(page.len() <= lines && page.iter().all(|line| line.chars().count() <= columns.max(1)));
        }
    }
}
