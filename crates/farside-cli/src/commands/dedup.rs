//! `farside volume dedup`.

use std::time::Duration;

use farside_api::{Dedup, DedupPhase, DedupState, ErrorBody, ErrorCode, StartDedup, Timestamp};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Method;

use super::context::{Context, Failed};
use crate::arguments::names::VolumeName;
use crate::arguments::volume::Dedup as Verb;
use crate::client::Client;
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, details, or_dash, table};
use crate::quantities::{self, size};

/// How often the daemon is asked how far it is.
const POLL: Duration = Duration::from_millis(100);
/// Positions of the bar.
const BAR: u64 = 10_000;

pub(super) async fn run(context: &Context, verb: Verb) -> Result<(), Failed> {
    let client = &context.client;
    match verb {
        Verb::Status { name: Some(name) } => {
            let dedup: Dedup = client.get(&path(&name)).await?;
            context.show(&dedup, described);
        }
        Verb::Status { name: None } => {
            let all: Vec<Dedup> = client.get(&["dedups"]).await?;
            context.show(&all, |all| listing(all));
        }
        Verb::Start { name, rate, anew, no_wait } => {
            let begun = client.post(&path(&name), &StartDedup { rate, anew }).await?;
            ended(context, &name, begun, no_wait).await?;
        }
        Verb::Stop { name } => {
            let stopped: Dedup = client.request(Method::DELETE, &path(&name), &[], None::<&()>).await?;
            context.show(&stopped, |dedup| {
                format!("deduplication of {} is off; what is shared stays so\n", dedup.volume)
            });
        }
        Verb::Undo { name, rate, no_wait, destructive } => {
            let request = DestructiveRequest {
                method: Method::POST,
                path: &["volumes", &name.pool, &name.volume, "dedup", "undo"],
                body: Some(&StartDedup { rate, anew: false }),
                impact: Impact::Service,
            };
            if let Some(begun) = carry_out::<Dedup>(client, request, destructive, context.json).await? {
                ended(context, &name, begun, no_wait).await?;
            }
        }
    }
    Ok(())
}

fn path(name: &VolumeName) -> [&str; 4] {
    ["volumes", &name.pool, &name.volume, "dedup"]
}

/// Shows what was begun, once it has ended unless nobody waits.
async fn ended(context: &Context, name: &VolumeName, begun: Dedup, no_wait: bool) -> Result<(), Failed> {
    let shown = if no_wait { begun } else { watch(&context.client, name, begun).await? };
    context.show(&shown, described);
    match &shown.why {
        Some(why) if !no_wait => {
            let said = format!("deduplication of {} does not go on: {why}", shown.volume);
            Err(Failed {
                error: ErrorBody::new(ErrorCode::Failed, said),
                is_printed: context.json,
                exit_code: None,
            })
        }
        _ => Ok(()),
    }
}

/// Waits until it rests; a bar on a terminal.
async fn watch(client: &Client, name: &VolumeName, mut dedup: Dedup) -> Result<Dedup, ErrorBody> {
    let bar = ProgressBar::with_draw_target(Some(BAR), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{wide_bar}] {percent:>3}%  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(dedup.volume.clone());
    while dedup.state == DedupState::Running {
        bar.set_position((dedup.done.unwrap_or(0.0) * BAR as f64) as u64);
        bar.set_message(figures(&dedup));
        tokio::time::sleep(POLL).await;
        dedup = client.get(&path(name)).await?;
    }
    bar.finish_and_clear();
    Ok(dedup)
}

/// What it is at, what it has shared, its rate, and the time that remains.
fn figures(dedup: &Dedup) -> String {
    let what = if dedup.phase == Some(DedupPhase::Undoing) { "copied" } else { "shared" };
    let mut text = format!("{}  {} {what}", dedup.phase.map_or("", phase), size(dedup.shared_bytes));
    if let Some(rate) = dedup.rate_bytes_per_second {
        text += &format!("  {}", quantities::rate(rate));
    }
    if let Some(eta) = dedup.eta_seconds {
        text += &format!("  ETA {}", quantities::duration(eta));
    }
    text
}

fn phase(phase: DedupPhase) -> &'static str {
    match phase {
        DedupPhase::Waiting => "waiting for other volumes",
        DedupPhase::Learning => "looking up what the volumes hold",
        DedupPhase::Sharing => "sharing",
        DedupPhase::Counting => "counting what it saves",
        DedupPhase::Undoing => "undoing",
    }
}

fn state(dedup: &Dedup) -> &'static str {
    match dedup.state {
        DedupState::Off => "off",
        DedupState::Running => "running",
        DedupState::Idle => "idle",
    }
}

fn described(dedup: &Dedup) -> String {
    let time = |t: Timestamp| t.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    let limit = dedup.limit_bytes_per_second.map_or("none".into(), |limit| quantities::rate(limit as f64));
    let held = match dedup.held_by_snapshots_bytes {
        0 => String::from("-"),
        bytes => format!("{} of it: comes free as they go", size(bytes)),
    };
    let doing = match (dedup.phase, dedup.done) {
        (Some(at), Some(done)) => format!("{}, {:.0} %", phase(at), done * 100.0),
        (Some(at), None) => phase(at).to_owned(),
        (None, _) => String::from("-"),
    };
    let mut rows = vec![
        ("volume", dedup.volume.clone()),
        ("deduplication", state(dedup).into()),
        ("doing", doing),
        ("saved", size(dedup.saved_bytes)),
        ("saved in the pool", or_dash(dedup.pool_saved_bytes, size)),
        ("last pass looked at", size(dedup.scanned_bytes)),
        ("and shared", size(dedup.shared_bytes)),
        ("held by snapshots", held),
        ("limit", limit),
        ("rate", or_dash(dedup.rate_bytes_per_second, quantities::rate)),
        ("eta", or_dash(dedup.eta_seconds, quantities::duration)),
        ("started", or_dash(dedup.started_at, time)),
        ("ended", or_dash(dedup.completed_at, time)),
        ("next", or_dash(dedup.next_at, time)),
    ];
    if dedup.limited_blocks > 0 {
        rows.push(("blocks with 256 owners", format!("{} stay beside them", dedup.limited_blocks)));
    }
    if dedup.damaged_blocks > 0 {
        rows.push(("damaged blocks", format!("{}; farside pool scrub names them", dedup.damaged_blocks)));
    }
    rows.push(("why", or_dash(dedup.why.clone(), |why| why)));
    details(&rows)
}

fn listing(all: &[Dedup]) -> String {
    let columns = [
        Column::Left("volume"),
        Column::Left("state"),
        Column::Right("saved"),
        Column::Left("doing, or why not"),
    ];
    let rows = all.iter().map(|dedup| {
        let doing = dedup.phase.map(|_| figures(dedup)).or_else(|| dedup.why.clone());
        vec![
            dedup.volume.clone(),
            state(dedup).into(),
            size(dedup.saved_bytes),
            or_dash(doing, |doing| doing),
        ]
    });
    table(&columns, rows.collect(), "no volume has deduplication; farside volume dedup start begins it")
}
