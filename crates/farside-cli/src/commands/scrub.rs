//! `farside pool scrub`.

use std::time::Duration;

use farside_api::{
    ErrorBody, ErrorCode, Pool, PoolState, Scrub, ScrubDamage, ScrubDamageKind, ScrubState, StartScrub,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Method;

use super::context::{Context, Failed};
use crate::client::Client;
use crate::output::{details, or_dash};
use crate::quantities::{self, size};

/// How often the daemon is asked how far it is.
const POLL: Duration = Duration::from_millis(100);
/// Lines of damage shown at most; `--json` has all.
const LINES_MAX: usize = 20;
/// Snapshots named in a line.
const SNAPSHOTS_MAX: usize = 5;

/// What is wanted of a scrub.
pub(super) enum Wanted {
    Status,
    Stop,
    Start { request: StartScrub, waits: bool },
}

pub(super) async fn run(context: &Context, name: Option<&str>, wanted: Wanted) -> Result<(), Failed> {
    let client = &context.client;
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => open_pools(client).await?,
    };
    let mut found = Vec::new();
    for name in &names {
        let path = ["pools", name.as_str(), "scrub"];
        let scrub = match &wanted {
            Wanted::Status => client.get::<Option<Scrub>>(&path).await?,
            Wanted::Stop => match client.request(Method::DELETE, &path, &[], None::<&()>).await {
                Ok(scrub) => Some(scrub),
                // Of all pools those are stopped that have one.
                Err(ErrorBody { code: ErrorCode::Refused, .. }) if names.len() > 1 => None,
                Err(error) => return Err(error.into()),
            },
            Wanted::Start { request, waits } => {
                let scrub = client.post(&path, request).await?;
                Some(if *waits { watch(client, &path, scrub).await? } else { scrub })
            }
        };
        found.push((name, scrub));
    }
    let is_one = matches!(found.as_slice(), [_]) && name.is_some();
    if context.json {
        if is_one {
            context.show(&found[0].1, |_| String::new());
        } else {
            let all: Vec<&Scrub> = found.iter().filter_map(|(_, scrub)| scrub.as_ref()).collect();
            context.show(&all, |_| String::new());
        }
    } else {
        let text = |(name, scrub): &(&String, Option<Scrub>)| match scrub {
            Some(scrub) => described(scrub),
            None => format!("pool {name} has not been scrubbed\n"),
        };
        crate::output::print(&found.iter().map(text).collect::<Vec<_>>().join("\n"));
    }
    if let Wanted::Start { waits: true, .. } = wanted {
        let ill = found.iter().filter_map(|(_, scrub)| scrub.as_ref()).find_map(failure);
        if let Some(error) = ill {
            return Err(Failed { error, is_printed: context.json, exit_code: None });
        }
    }
    Ok(())
}

async fn open_pools(client: &Client) -> Result<Vec<String>, ErrorBody> {
    let pools: Vec<Pool> = client.get(&["pools"]).await?;
    Ok(pools.into_iter().filter(|pool| pool.state == PoolState::Open).map(|pool| pool.name).collect())
}

/// Why a scrub that ended is no success.
fn failure(scrub: &Scrub) -> Option<ErrorBody> {
    let Scrub { pool, damaged_blocks, .. } = scrub;
    if let Some(error) = &scrub.error {
        let said = format!("the scrub of pool {pool} could not go on: {error}");
        return Some(ErrorBody::new(ErrorCode::Failed, said));
    }
    if scrub.state == ScrubState::Stopped {
        let said = format!("the scrub of pool {pool} was stopped");
        return Some(
            ErrorBody::new(ErrorCode::Failed, said)
                .hint(format!("farside pool scrub {pool} goes on from there")),
        );
    }
    let is_ill = *damaged_blocks > 0 || !scrub.structures.is_empty();
    is_ill.then(|| {
        ErrorBody::new(ErrorCode::Failed, format!("pool {pool} has {damaged_blocks} damaged blocks"))
    })
}

/// Waits until it ends; a bar on a terminal.
async fn watch(client: &Client, path: &[&str], mut scrub: Scrub) -> Result<Scrub, ErrorBody> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{wide_bar}] {percent:>3}%  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(scrub.pool.clone());
    while matches!(scrub.state, ScrubState::Running | ScrubState::Waiting) {
        let total = scrub.total_bytes.max(scrub.read_bytes);
        bar.set_length(total.max(1));
        bar.set_position(scrub.read_bytes);
        bar.set_message(figures(&scrub));
        tokio::time::sleep(POLL).await;
        let newer: Option<Scrub> = client.get(path).await?;
        let Some(newer) = newer else { break };
        scrub = newer;
    }
    bar.finish_and_clear();
    Ok(scrub)
}

/// Done of all, rate, time that remains, and what is found so far.
fn figures(scrub: &Scrub) -> String {
    let total = scrub.total_bytes.max(scrub.read_bytes);
    let mut text = format!("{} / {}", size(scrub.read_bytes), size(total));
    if let Some(rate) = scrub.rate_bytes_per_second {
        text += &format!("  {}", quantities::rate(rate));
    }
    if let Some(eta) = scrub.eta_seconds {
        text += &format!("  ETA {}", quantities::duration(eta));
    }
    if scrub.damaged_blocks > 0 {
        text += &format!("  {} damaged", scrub.damaged_blocks);
    }
    text
}

/// One line of it, for the status of its pool.
pub(super) fn summary(scrub: &Scrub) -> String {
    let found = match (scrub.damaged_blocks, scrub.structures.len(), scrub.rewritten_copies) {
        (0, 0, 0) => String::from("nothing damaged"),
        (0, 0, copies) => format!("nothing damaged, {copies} copies rewritten"),
        (blocks, ..) => format!("{blocks} damaged blocks"),
    };
    match scrub.state {
        ScrubState::Running => format!("running: {}; {found} so far", figures(scrub)),
        ScrubState::Waiting => {
            format!("waiting for the pool to open, after {}; {found}", size(scrub.read_bytes))
        }
        ScrubState::Stopped => format!("stopped after {}; {found}", size(scrub.read_bytes)),
        ScrubState::Failed => format!("failed after {}; {found}", size(scrub.read_bytes)),
        ScrubState::Done => {
            let ended = or_dash(scrub.ended_at, |t| t.strftime("%Y-%m-%d %H:%M:%SZ").to_string());
            format!("done {ended}: {} read, {found}", size(scrub.read_bytes))
        }
    }
}

fn described(scrub: &Scrub) -> String {
    let state = match scrub.state {
        ScrubState::Running => "running",
        ScrubState::Waiting => "waiting for the pool to open",
        ScrubState::Stopped => "stopped",
        ScrubState::Failed => "failed",
        ScrubState::Done => "done",
    };
    let time = |t: farside_api::Timestamp| t.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    let limit = scrub.limit_bytes_per_second.map_or("none".into(), |limit| quantities::rate(limit as f64));
    let text = details(&[
        ("pool", scrub.pool.clone()),
        ("scrub", state.into()),
        ("started", time(scrub.started_at)),
        ("ended", or_dash(scrub.ended_at, time)),
        (
            "read",
            format!("{} of about {}", size(scrub.read_bytes), size(scrub.total_bytes.max(scrub.read_bytes))),
        ),
        ("limit", limit),
        ("rate", or_dash(scrub.rate_bytes_per_second, quantities::rate)),
        ("eta", or_dash(scrub.eta_seconds, quantities::duration)),
        ("damaged blocks", scrub.damaged_blocks.to_string()),
        ("copies rewritten", scrub.rewritten_copies.to_string()),
        ("error", or_dash(scrub.error.clone(), |e| e)),
    ]);
    text + &damage(scrub)
}

/// A line for each damaged range and each copy that was rewritten, and what to do; empty if there are none.
pub(super) fn damage(scrub: &Scrub) -> String {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(scrub.damage.iter().map(|damage| range(&scrub.pool, damage)));
    lines.extend(scrub.structures.iter().cloned());
    let mut text = String::new();
    if !lines.is_empty() {
        text += "\ndamaged:\n";
        text += &listed(&lines);
        text += "a write of a whole block of 4 KiB heals the volume; snapshots keep what is damaged until they are deleted. The old \
                 content is in a replica, in a snapshot that does not share the block, or in a backup: see guides/repair of the manual.\n";
    }
    if !scrub.rewritten.is_empty() {
        text += "\nrewritten from the other copy; nothing is lost, but the medium loses data:\n";
        text += &listed(&scrub.rewritten);
    }
    text
}

fn listed(lines: &[String]) -> String {
    let mut text: String = lines.iter().take(LINES_MAX).map(|line| format!("  {line}\n")).collect();
    if lines.len() > LINES_MAX {
        text += &format!("  and {} more; --json has all\n", lines.len() - LINES_MAX);
    }
    text
}

fn range(pool: &str, damage: &ScrubDamage) -> String {
    let kind = match damage.kind {
        ScrubDamageKind::Data => "data",
        ScrubDamageKind::Map => "map",
    };
    let mut holders: Vec<String> = Vec::new();
    if damage.in_volume {
        holders.push("the volume".into());
    }
    if damage.in_staged {
        holders.push("what a transfer has staged".into());
    }
    holders.extend(damage.snapshots.iter().take(SNAPSHOTS_MAX).map(|name| format!("@{name}")));
    let more = damage.snapshots.len().saturating_sub(SNAPSHOTS_MAX) as u64 + damage.more_snapshots;
    if more > 0 {
        holders.push(format!("{more} more snapshots"));
    }
    format!(
        "{pool}/{}  {kind}, {} from byte {}, in {}",
        damage.volume,
        size(damage.length_bytes),
        damage.offset_bytes,
        holders.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(snapshots: usize) -> ScrubDamage {
        ScrubDamage {
            kind: ScrubDamageKind::Data,
            volume: "v".into(),
            offset_bytes: 8192,
            length_bytes: 4096,
            in_volume: true,
            in_staged: false,
            snapshots: (0..snapshots).map(|n| format!("s{n}")).collect(),
            more_snapshots: 0,
        }
    }

    #[test]
    fn a_range_names_who_has_it_within_bounds() {
        assert_eq!(range("p", &damaged(1)), "p/v  data, 4.0 KiB from byte 8192, in the volume, @s0");
        assert!(range("p", &damaged(9)).ends_with("@s4, 4 more snapshots"));
    }
}
