//! `farside mirror`.

mod answers;
mod check;
mod destinations;
mod drill;
pub(super) mod group;
mod history;
mod import;
mod levels;
mod listing;
mod outcomes;
mod right_back;
pub(super) mod side_branches;
mod wait;
mod warnings;

use std::time::Duration;

use farside_api::split::{splits, with_splits};
use farside_api::{
    Alarm, BreakMirror, CreateMirror, ErrorBody, ErrorCode, LogLine, Mirror, MirrorDestination, MirrorState,
    Operation, Peer, PeerState, PeerStatus, Plan, RequestedBy, ResyncMirror, Role, SetMirror, SiteStatus,
    SourceHeard, StartTransfer, Timestamp, TransferRecord, awake,
};
use reqwest::Method;

pub(super) use check::most_of as lag_at_most;
pub(super) use listing::{lag, state};

use self::listing::{detail, listing};
use self::outcomes::{advice_after_resync, advice_after_swap, name_of};
use self::side_branches::{gone_since, has_side_branches, side_branches};
use self::wait::show_end;
use self::warnings::{WARNING_WITHIN, warnings};
use super::context::{Context, Failed};
use super::present;
use crate::arguments::destructive::Destructive;
use crate::arguments::mirror::{Every, Mirror as Verb, TransferArguments};
use crate::arguments::names::VolumeName;
use crate::confirm::{DestructiveRequest, Impact, ask, carry_out, carry_out_if_lost, is_interactive};
use crate::output::{self, Column, or_dash, print, table};
use crate::progress;
use crate::quantities::time;

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Create { source, destination, every, timetable, policy, link, no_reverse, if_absent, yes } => {
            let of = destination.to_string();
            let there =
                present::is_there::<Vec<Mirror>>(&context, if_absent, &["mirrors"], &[("volume", &of)])
                    .await?;
            let request = CreateMirror {
                if_absent,
                source: source.to_string(),
                destination: destination.to_string(),
                every_seconds: every.map(Every::seconds),
                no_reverse,
                copy_of_own: yes,
                schedule: timetable.schedule,
                time_zone: timetable.time_zone,
                rpo_seconds: policy.rpo.map(|rpo| rpo.as_secs_f64()),
                retention: policy.keep,
                group: policy.group.filter(|group| group != "none"),
                link: link.request(),
            };
            let mirror = match create(&context, &source.peer, &request).await {
                Err(error) if error.code == ErrorCode::Unconfirmed && is_interactive() => {
                    if !ask(&format!("{}\n{}\n", error.message, error.hint.unwrap_or_default())) {
                        return Err(ErrorBody::new(ErrorCode::Failed, "cancelled; nothing was made").into());
                    }
                    create(&context, &source.peer, &CreateMirror { copy_of_own: true, ..request }).await?
                }
                made => made?,
            };
            if let Some(taken) = mirror.taken_over.filter(|_| !context.json) {
                print(&answers::taken_over(&mirror, &own_name(&context).await, taken, no_reverse));
                return Ok(());
            }
            let here = match mirror.way_back == Some(false) && !context.json {
                true => own_name(&context).await,
                false => String::new(),
            };
            present::show(&context, there, &mirror, &format!("the mirror of {of}"), |m| {
                let updates = m.schedule.as_ref().map(|s| format!(", updated {s}"));
                let updates = updates.unwrap_or_else(|| ", updated only when you ask".into());
                let next = answers::next(m);
                let (resized, first_copy) = (answers::resized(m), answers::first_copy(m));
                let chained = answers::chained_group(m);
                let back = answers::no_way_back(m, &here, no_reverse);
                format!(
                    "{} mirrors {}{updates}\n{resized}{first_copy}{chained}{back}{next}",
                    m.name, m.source
                )
            });
        }
        Verb::Import(import) => import::run(&context, import).await?,
        Verb::Set { volume, every, timetable, policy, link, destructive } => {
            let every_seconds = every.map(Every::seconds);
            let request = SetMirror {
                every_seconds,
                schedule: timetable.schedule,
                time_zone: timetable.time_zone,
                rpo_seconds: policy.rpo.map(|rpo| rpo.as_secs_f64()),
                retention: policy.keep,
                group: policy.group.map(|group| if group == "none" { String::new() } else { group }),
                link: link.request(),
            };
            if request == SetMirror::default() {
                return Err(ErrorBody::new(ErrorCode::WrongUsage, "nothing to change")
                    .hint(
                        "give --every, --schedule, --rpo, --keep, --group, --throttle, --window, --priority or --path",
                    )
                    .into());
            }
            if request.retention.is_none() && !destructive.plan {
                let mirror: Mirror = context.client.post(&path(&volume, "set"), &request).await?;
                context.show(&mirror, |m| answers::set(m, &request));
                return Ok(());
            }
            // A smaller retention lets points go.
            let asked = DestructiveRequest {
                method: Method::POST,
                path: &path(&volume, "set"),
                body: Some(&request),
                impact: Impact::Data,
            };
            let set: Option<Mirror> =
                carry_out_if_lost(&context.client, asked, destructive, context.json).await?;
            if let Some(mirror) = set {
                context.show(&mirror, |m| answers::set(m, &request));
            }
        }
        Verb::Initialize { group: Some(group), no_wait, timeout, if_absent, plan, .. } => {
            let asked = group::initialize::Asked { timeout, no_wait, if_absent, plan };
            group::initialize::initialize(&context, &group, asked).await?;
        }
        Verb::Initialize { volume: None, .. } => {}
        Verb::Initialize { volume: Some(volume), plan: true, no_wait, timeout, .. } => {
            let arguments = TransferArguments { volume, no_wait, timeout };
            let request = StartTransfer { timeout_seconds: None };
            let destructive = Destructive { plan: true, yes: false };
            start(&context, "initialize", &arguments, &request, destructive, false).await?;
        }
        Verb::Initialize { volume: Some(volume), no_wait, timeout, if_absent, .. } => {
            let arguments = TransferArguments { volume, no_wait, timeout };
            if if_absent && is_copied(&context, &arguments.volume).await? {
                let text = format!("the first copy of {} is there\n", arguments.volume);
                context.show(&serde_json::json!({ "existed": true }), |_| text);
            } else {
                let there = if_absent.then_some(false);
                let request = StartTransfer { timeout_seconds: Some(arguments.timeout.as_secs_f64()) };
                let at = path(&arguments.volume, "initialize");
                let started: Operation = context.client.post(&at, &request).await?;
                follow(&context, "initialize", &arguments, there, started).await?;
            }
        }
        Verb::Update { volume, group, no_wait, timeout } => {
            // Whichever of a group is updated, all are.
            let volume = match (&volume, &group) {
                (Some(volume), _) => volume.clone(),
                (None, group) => group::to_update(&context, group.as_deref().unwrap_or_default()).await?,
            };
            let of = volume.to_string();
            transfer(&context, "update", TransferArguments { volume, no_wait, timeout }).await?;
            if group.is_some() && !no_wait && !context.json {
                print(&answers::others_of_group(&at_rest(&context, &of).await?, &of));
            }
        }
        Verb::Wait { volume } => wait::run(&context, &volume).await?,
        Verb::Quiesce { volume } => act(&context, &volume, "quiesce", answers::quiesced).await?,
        Verb::Resume { volume } => act(&context, &volume, "resume", answers::resumed).await?,
        Verb::Abort { group: Some(group), .. } => group::abort::abort(&context, &group).await?,
        Verb::Abort { volume: None, .. } => {}
        Verb::Abort { volume: Some(volume), .. } => act(&context, &volume, "abort", answers::aborted).await?,
        Verb::Destinations { volume } => {
            let volume = volume.map(|v| v.to_string());
            let query: Vec<_> = volume.iter().map(|v| ("volume", v.as_str())).collect();
            let held: Vec<MirrorDestination> = context.client.get_with(&["destinations"], &query).await?;
            context.show(&held, |held| destinations::text(held, volume.as_deref()));
        }
        Verb::Release { volume, peer, destructive } => {
            let request = DestructiveRequest {
                method: Method::POST,
                path: &["mirrors", &volume.pool, &volume.volume, "release", &peer],
                body: None::<&()>,
                impact: Impact::Service,
            };
            let released: Option<Vec<MirrorDestination>> =
                carry_out(&context.client, request, destructive, context.json).await?;
            if let Some(released) = released {
                context
                    .show(&released, |released| destinations::released(released, &volume.to_string(), &peer));
            }
        }
        Verb::Resync { volume, group, no_wait, timeout, from, whole, every, timetable, destructive } => {
            let request = ResyncMirror {
                from: from.map(|from| from.to_string()),
                whole,
                every_seconds: every.map(Every::seconds),
                schedule: timetable.schedule,
                time_zone: timetable.time_zone,
                timeout_seconds: Some(timeout.as_secs_f64()),
                set_aside_at: None,
            };
            let volume = match (volume, group) {
                (Some(volume), _) => volume,
                (None, group) => {
                    group::resync::resync(&context, &group.unwrap_or_default(), &request, destructive)
                        .await?;
                    return Ok(());
                }
            };
            let transfer = TransferArguments { volume, no_wait, timeout };
            let is_plan = destructive.plan;
            start(&context, "resync", &transfer, &request, destructive, request.from.is_some()).await?;
            if !is_plan && !context.json {
                advise(&context, &transfer.volume).await;
            }
        }
        Verb::Swap { group: Some(group), timeout, destructive, .. } => {
            group::swap::swap(&context, &group, timeout, destructive).await?;
        }
        Verb::Swap { volume: None, .. } => {}
        Verb::Swap { volume: Some(volume), no_wait, timeout, destructive, .. } => {
            let transfer = TransferArguments { volume, no_wait, timeout };
            let request = StartTransfer { timeout_seconds: Some(transfer.timeout.as_secs_f64()) };
            let is_shown = !destructive.plan && !context.json;
            // Before: afterwards it is no replica any more.
            let before = if is_shown { replica(&context, &transfer.volume).await } else { None };
            start(&context, "swap", &transfer, &request, destructive, false).await?;
            if let Some(advice) = before.as_ref().and_then(advice_after_swap) {
                print(&advice);
            }
        }
        Verb::Break { group: Some(group), at, destructive, .. } => {
            let at = at.map(|at| at.name().to_owned());
            group::break_off::break_off(&context, &group, at, destructive).await?;
        }
        Verb::Break { volume: None, .. } => {}
        Verb::Break { volume: Some(volume), at, destructive, .. } => {
            let at = at.map(|at| at.of(&volume)).transpose();
            let at = at.map_err(|why| ErrorBody::new(ErrorCode::WrongUsage, why))?;
            // Only such a break sets something aside, and no other waits for the list.
            let before = match at.is_some() && !destructive.plan {
                true => side_branches(&context, &volume).await,
                false => Vec::new(),
            };
            let request = BreakMirror { at, set_aside_at: None };
            let request = DestructiveRequest {
                method: Method::POST,
                path: &path(&volume, "break"),
                body: Some(&request),
                impact: Impact::Service,
            };
            warn_unasked(&context, &request, destructive).await;
            let broken: Option<Mirror> =
                carry_out(&context.client, request, destructive, context.json).await?;
            if let Some(broken) = broken {
                let gone = gone_since(&context, &volume, &before).await;
                context.aside(&gone);
                let rest = match context.json {
                    true => String::new(),
                    false => group::rest_after_break(&context, &broken).await,
                };
                context.show(&broken, |m| answers::broken_off(m, &rest) + &gone);
            }
        }
        Verb::Drill(arguments) => {
            return match arguments.volume.clone() {
                Some(replica) => drill::run(&context, &replica, arguments).await,
                None => group::drill::run(&context, arguments).await,
            };
        }
        Verb::Status { volume: None, all } => {
            let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
            context.show(&mirrors, |mirrors| {
                let shown: Vec<Mirror> =
                    if all { mirrors.to_vec() } else { awake(mirrors).into_iter().cloned().collect() };
                let asleep = mirrors.len() - shown.len();
                let shown = with_splits(shown, &splits(mirrors));
                let note = match asleep {
                    0 => String::new(),
                    1 => "one direction that is kept for the way back is not shown; --all shows it\n".into(),
                    _ => format!(
                        "{asleep} directions that are kept for the way back are not shown; --all shows them\n"
                    ),
                };
                listing(&shown) + &note
            });
        }
        Verb::Status { volume: Some(volume), all } => {
            // One document shape with or without a volume: a list.
            let query = [("volume", volume.to_string())];
            let query = query.each_ref().map(|(name, value)| (*name, value.as_str()));
            let mirrors: Vec<Mirror> = context.client.get_with(&["mirrors"], &query).await?;
            // Whether its group is split, the other members say. It is for people: what cannot be asked is nothing.
            let split = match context.json || mirrors.iter().all(|m| m.group.is_none()) {
                true => Vec::new(),
                false => splits(&context.client.get::<Vec<Mirror>>(&["mirrors"]).await.unwrap_or_default()),
            };
            context.show(&mirrors, |mirrors| {
                let shown = if all { mirrors.iter().collect() } else { awake(mirrors) };
                let shown = with_splits(shown.into_iter().cloned().collect(), &split);
                shown.iter().map(detail).collect::<Vec<_>>().join("\n")
            });
        }
        Verb::Check { volumes, max_lag } => {
            let found = tokio::try_join!(context.client.get(&["mirrors"]), context.client.get(&["peers"]));
            let (mirrors, peers): (Vec<Mirror>, Vec<Peer>) =
                found.map_err(|error| check::untold(error, context.json))?;
            // Since when it could have heard of its peers. An older daemon does not say.
            let site: Option<SiteStatus> = context.client.get(&["site", "status"]).await.ok();
            let started_at = site.and_then(|site| site.started_at);
            let asked: Vec<String> = volumes.iter().map(ToString::to_string).collect();
            let most = max_lag.map(|most| most.as_secs_f64());
            let silent = check::silent(&peers, most, started_at, Timestamp::now());
            // Whoever may not read them, or asks an older daemon, has what the mirrors themselves say.
            let alarms: Vec<Alarm> = context.client.get(&["alarms"]).await.unwrap_or_default();
            let judged = check::judged(&mirrors, &silent, &asked, most);
            match check::with_alarms(judged, &alarms, &mirrors, &asked) {
                Ok(found) => {
                    let document = serde_json::json!({ "checked": true, "message": found, "problems": [] });
                    context.show(&document, |_| format!("{found}\n"));
                }
                Err(wrong) => {
                    if context.json {
                        let document = serde_json::json!({
                            "checked": true, "message": wrong.error.message, "problems": wrong.problems, "error": wrong.error
                        });
                        output::json(&document);
                    }
                    return Err(Failed { error: wrong.error, is_printed: true, exit_code: None });
                }
            }
        }
        Verb::History { volume, levels } => {
            let volume = volume.map(|v| v.to_string());
            let query: Vec<_> = volume.iter().map(|v| ("volume", v.as_str())).collect();
            let records: Vec<TransferRecord> = context.client.get_with(&["history"], &query).await?;
            let elsewhere = match records.is_empty() && !context.json {
                true => elsewhere(&context, volume.as_deref(), "history").await,
                false => None,
            };
            context.show(&records, |records| match elsewhere {
                Some(elsewhere) => elsewhere,
                None if levels => levels::of_transfers(records, volume.is_none()),
                None => history::text(records, volume.is_none()),
            });
        }
        Verb::Log { volume, limit } => {
            let (volume, limit) = (volume.map(|v| v.to_string()), limit.to_string());
            let mut query = vec![("limit", limit.as_str())];
            query.extend(volume.iter().map(|v| ("volume", v.as_str())));
            let lines: Vec<LogLine> = context.client.get_with(&["log"], &query).await?;
            let elsewhere = match lines.is_empty() && !context.json {
                true => elsewhere(&context, volume.as_deref(), "log").await,
                false => None,
            };
            context.show(&lines, |lines| elsewhere.unwrap_or_else(|| log(lines)));
        }
        Verb::Delete { volume, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &path(&volume, "")[..3],
                body: None::<&()>,
                impact: Impact::Service,
            };
            // Of a site that is not paired any more only its key is known, which no line takes.
            let source =
                replica(&context, &volume).await.map_or_else(|| "PEER:POOL/VOL".into(), |m| m.source);
            let source = match is_paired(&context, &source).await {
                true => source,
                false => source.split_once(':').map_or(source.clone(), |(_, of)| format!("PEER:{of}")),
            };
            end(&context, request, destructive, |m| {
                if m.source_heard == Some(SourceHeard::Follows) {
                    return answers::way_back_forgotten(m);
                }
                format!(
                    "the mirror of {0} has ended; the volume stays. To have it follow again, once the sites are paired and {0} may follow: farside \
                     mirror resync {0} --from {1} --whole, which brings what was written since the newest snapshot that both hold, and where there is \
                     none compares everything\n",
                    m.name, source
                )
            })
            .await?;
        }
    }
    Ok(())
}

async fn act(
    context: &Context,
    volume: &VolumeName,
    verb: &str,
    answer: fn(&Mirror) -> String,
) -> Result<(), ErrorBody> {
    let mirror: Mirror = context.client.post(&path(volume, verb), &serde_json::json!({})).await?;
    context.show(&mirror, answer);
    Ok(())
}

async fn end(
    context: &Context,
    request: DestructiveRequest<'_, impl serde::Serialize>,
    destructive: Destructive,
    text: impl FnOnce(&Mirror) -> String,
) -> Result<(), ErrorBody> {
    if let Some(mirror) = carry_out::<Mirror>(&context.client, request, destructive, context.json).await? {
        context.show(&mirror, text);
    }
    Ok(())
}

/// All mirrors once no other of the group is under way, or after a moment: what one record publishes for all is noted by one after the other.
async fn at_rest(context: &Context, updated: &str) -> Result<Vec<Mirror>, ErrorBody> {
    let until = tokio::time::Instant::now() + AT_REST_WITHIN;
    loop {
        let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
        if tokio::time::Instant::now() >= until || !answers::is_under_way(&mirrors, updated) {
            return Ok(mirrors);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Where updates never rest, nobody waits for that.
const AT_REST_WITHIN: Duration = Duration::from_secs(2);

/// Whether the mirror of a volume shows a point of its source.
async fn is_copied(context: &Context, volume: &VolumeName) -> Result<bool, ErrorBody> {
    let name = volume.to_string();
    let mirrors: Vec<Mirror> = context.client.get_with(&["mirrors"], &[("volume", &name)]).await?;
    Ok(mirrors.iter().any(|m| {
        m.role == Role::Destination && m.base_snapshot.is_some() && m.state != MirrorState::BrokenOff
    }))
}

/// How long the daemon waits for a session with the peer when a mirror is created.
const CREATE_WAIT: Duration = Duration::from_secs(15);
/// Longest answer to that: the wait, and what the peer takes for its answer.
const CREATE_WITHIN: Duration = Duration::from_secs(120);

/// Creates a mirror. If there is no session with its peer, that is what the daemon waits for, and whoever waits hears of it.
async fn create(context: &Context, peer: &str, request: &CreateMirror) -> Result<Mirror, ErrorBody> {
    let known: Result<PeerStatus, _> = context.client.get(&["peers", peer]).await;
    match known {
        Ok(known) if known.peer.state == PeerState::Disconnected => {
            let why = known.peer.why.as_deref();
            eprintln!("farside: {}", progress::waits_for_session(peer, why, Some(CREATE_WAIT)));
            context.client.post_within(CREATE_WITHIN, &["mirrors"], request).await
        }
        // What is wrong with the peer, or with the daemon, the request itself tells.
        _ => context.client.post(&["mirrors"], request).await,
    }
}

/// This site's name, as peers call it unless they have given it another. It is for advice: what cannot be asked is a word to fill in.
async fn own_name(context: &Context) -> String {
    let site: Result<SiteStatus, _> = context.client.get(&["site", "status"]).await;
    site.map_or_else(|_| "SITE".into(), |site| site.name)
}

/// Where what `verb` lists is kept, of volumes that are only sources here; none if a replica is here.
async fn elsewhere(context: &Context, volume: Option<&str>, verb: &str) -> Option<String> {
    let query: Vec<_> = volume.iter().map(|volume| ("volume", *volume)).collect();
    let mirrors: Vec<Mirror> = context.client.get_with(&["mirrors"], &query).await.ok()?;
    kept_elsewhere(&mirrors, verb)
}

fn kept_elsewhere(mirrors: &[Mirror], verb: &str) -> Option<String> {
    if mirrors.is_empty() || mirrors.iter().any(|m| m.role == Role::Destination) {
        return None;
    }
    let line = |m: &Mirror| {
        let (site, replica) = m.destination.split_once(':').unwrap_or(("the other site", &m.destination));
        format!(
            "{} is the source here; its replica is {}, and the {verb} is kept there: at {site}, farside mirror {verb} {replica}\n",
            m.name, m.destination
        )
    };
    Some(mirrors.iter().map(line).collect())
}

/// Starts a transfer and, unless told otherwise, stays until it ends. Interrupted, the daemon goes on.
async fn transfer(context: &Context, verb: &str, arguments: TransferArguments) -> Result<(), ErrorBody> {
    let request = StartTransfer { timeout_seconds: Some(arguments.timeout.as_secs_f64()) };
    let started: Operation = context.client.post(&path(&arguments.volume, verb), &request).await?;
    follow(context, verb, &arguments, None, started).await
}

/// The same for one that is planned and asked about first.
async fn start(
    context: &Context,
    verb: &str,
    arguments: &TransferArguments,
    request: &impl serde::Serialize,
    destructive: Destructive,
    is_source_named: bool,
) -> Result<(), ErrorBody> {
    let path = path(&arguments.volume, verb);
    // Of what goes for good its plan tells: old side branches, and points that retention has kept while nothing rotated. And of a
    // source that was named in place of another.
    let may_push_out = verb == "resync"
        && (is_source_named
            || has_side_branches(context, &arguments.volume).await
            || replica(context, &arguments.volume).await.is_some_and(|mirror| mirror.retention.is_some()));
    let impact = if may_push_out { Impact::AsPlanned } else { Impact::Service };
    let request = DestructiveRequest { method: Method::POST, path: &path, body: Some(request), impact };
    match carry_out::<Operation>(&context.client, request, destructive, context.json).await? {
        Some(started) => follow(context, verb, arguments, None, started).await,
        None => Ok(()),
    }
}

/// Of a break that nobody is asked about, those lines are said all the same, to whoever reads along. What its plan does not tell in a
/// moment it is not held up for.
async fn warn_unasked(
    context: &Context,
    request: &DestructiveRequest<'_, BreakMirror>,
    destructive: Destructive,
) {
    if destructive.plan || (!destructive.yes && is_interactive()) {
        return;
    }
    let (method, query) = (request.method.clone(), [("plan", "true")]);
    let plan = context.client.request::<Plan>(method, request.path, &query, request.body);
    if let Ok(Ok(plan)) = tokio::time::timeout(WARNING_WITHIN, plan).await {
        warnings(&plan).for_each(|line| eprintln!("farside: {line}"));
    }
}

/// Stays until an operation ends, and shows it. `there`: what `--if-absent` says of what was there before, if it was given.
async fn follow(
    context: &Context,
    verb: &str,
    arguments: &TransferArguments,
    there: Option<bool>,
    started: Operation,
) -> Result<(), ErrorBody> {
    if arguments.no_wait {
        present::show(context, there, &started, verb, |o| {
            format!(
                "started; farside mirror wait {} waits for it, farside mirror status shows its progress\n",
                o.volume
            )
        });
        return Ok(());
    }
    show_end(context, verb, there, started, Some(arguments.timeout)).await
}

fn path<'a>(volume: &'a VolumeName, verb: &'a str) -> [&'a str; 4] {
    ["mirrors", &volume.pool, &volume.volume, verb]
}

/// Whether the site of `PEER:POOL/VOL` is paired, as far as can be told.
async fn is_paired(context: &Context, source: &str) -> bool {
    let Ok(peers) = context.client.get::<Vec<Peer>>(&["peers"]).await else { return true };
    source.split_once(':').is_none_or(|(site, _)| peers.iter().any(|peer| peer.name == site))
}

/// The mirror whose replica a volume is. It is for advice: what cannot be asked is nothing.
async fn replica(context: &Context, volume: &VolumeName) -> Option<Mirror> {
    let name = volume.to_string();
    let mirrors: Vec<Mirror> = context.client.get_with(&["mirrors"], &[("volume", &name)]).await.ok()?;
    mirrors.into_iter().find(|m| m.role == Role::Destination)
}

/// A volume that follows another one only when asked, or that keeps no more than its newest point, is rarely what was meant after a
/// failover: what the other side had of both is not here.
async fn advise(context: &Context, volume: &VolumeName) {
    let Some(follower) = replica(context, volume).await else { return };
    let (used, is_followed) = group::in_use_beside(context, &follower).await;
    print(&outcomes::group_in_use(&follower, &used, is_followed));
    print(&advice_after_resync(&follower));
    print(&right_back::missing(context, &follower).await);
}

fn log(lines: &[LogLine]) -> String {
    let columns = [
        Column::Left("time"),
        Column::Left("mirror"),
        Column::Left("event"),
        Column::Left("kind"),
        Column::Right("bytes"),
        Column::Left("reason"),
    ];
    let rows = lines.iter().map(|line| {
        let asked = line.requested_by.map(|by| format!("asked for by {}", asker(by)));
        vec![
            time(line.at),
            line.mirror.clone(),
            name_of(&line.event),
            match line.requested_by {
                Some(RequestedBy::Swap) => "swap".into(),
                _ => or_dash(line.kind, |kind| name_of(&kind)),
            },
            or_dash(line.bytes, |bytes| bytes.to_string()),
            line.reason.clone().or(asked).unwrap_or_default(),
        ]
    });
    table(&columns, rows.collect(), "nothing has happened yet")
}

fn asker(by: RequestedBy) -> &'static str {
    match by {
        RequestedBy::Person => "a person",
        RequestedBy::Schedule => "the schedule",
        RequestedBy::Retry => "the mirror, after a lost session or a restart",
        RequestedBy::CatchUp => "the mirror, to catch up",
        RequestedBy::GaveWay => "the mirror, after it gave way",
        RequestedBy::Group => "its group",
        RequestedBy::Swap => "a person: the roles change after it",
    }
}

#[cfg(test)]
mod tests {
    use farside_api::TakenOver;
    use serde_json::json;

    use super::*;

    pub(super) fn mirror(role: &str, changes: serde_json::Value) -> Mirror {
        let mut document = json!({
            "id": uuid::Uuid::nil(), "name": "q/v", "role": role, "source": "north:p/v", "destination": "south:q/v", "state": "mirrored",
            "why": null, "lag_seconds": 1.0, "objective_seconds": null, "current_snapshot": "s", "content_root": null,
            "base_snapshot": null, "last_proven_at": null, "schedule": null, "throttle": null, "transfer": null,
        });
        for (field, value) in changes.as_object().expect("an object") {
            document[field] = value.clone();
        }
        serde_json::from_value(document).expect("a mirror")
    }

    #[test]
    fn who_asks_a_source_for_the_history_hears_where_it_is() {
        let source = mirror("source", json!({ "name": "p/v" }));
        let said = kept_elsewhere(std::slice::from_ref(&source), "history").unwrap();
        assert!(said.contains("p/v is the source here; its replica is south:q/v"), "{said}");
        assert!(said.contains("at south, farside mirror history q/v"), "{said}");
        assert_eq!(kept_elsewhere(&[source, mirror("destination", json!({}))], "log"), None);
        assert_eq!(kept_elsewhere(&[], "log"), None);
    }

    #[test]
    fn a_group_of_replicas_of_replicas_says_what_it_needs() {
        let chained = json!({ "group": "shop", "source_follows": "west:r/v" });
        let said = answers::chained_group(&mirror("destination", chained));
        assert!(said.contains("north:p/v is a replica itself, of west:r/v"), "{said}");
        assert!(said.contains("at north, farside mirror set p/v --group shop"), "{said}");
        assert_eq!(answers::chained_group(&mirror("destination", json!({ "group": "shop" }))), "");
    }

    #[test]
    fn what_comes_next_after_a_mirror_was_made_depends_on_what_was_there() {
        let new = mirror("destination", json!({ "current_snapshot": null, "state": "uninitialized" }));
        assert_eq!(answers::next(&new), "next: farside mirror initialize q/v\n");
        let bare = answers::next(&mirror("destination", json!({})));
        assert!(bare.contains("next: farside mirror set q/v --every TIME"), "{bare}");
        let set = mirror("destination", json!({ "schedule": "every 10s" }));
        let given = answers::taken_over(&set, "south", TakenOver { reverse: true }, false);
        assert!(given.contains("updated every 10s; its source's site may mirror it back"), "{given}");
        assert!(given.ends_with("farside mirror update q/v brings that now\n"), "{given}");
        let withheld = answers::taken_over(&set, "south", TakenOver { reverse: false }, false);
        assert!(withheld.contains("    farside peer allow north q/v --reverse\n"), "{withheld}");
        assert!(withheld.contains("    farside peer allow south p/v --reverse\n"), "{withheld}");
        assert!(
            !answers::taken_over(&set, "south", TakenOver { reverse: false }, true)
                .contains("mirror it back")
        );
    }

    #[test]
    fn a_volume_is_not_called_writable_where_its_pool_takes_nothing() {
        let said = answers::broken_off(&mirror("destination", json!({})), "");
        assert!(said.starts_with("q/v is writable, as of"), "{said}");
        let refused = "the file system has 0 MiB free: free at least 5 MiB there (df /srv/q.pool).";
        let said = answers::broken_off(&mirror("destination", json!({ "hosts_refused": refused })), "");
        assert!(!said.contains("is writable, as of") && said.contains(refused), "{said}");
        assert!(said.starts_with("q/v is broken off"), "{said}");
    }

    #[test]
    fn what_a_resync_has_not_reached_is_given_back_as_it_was() {
        let own = mirror("destination", json!({ "shows_own_state": true }));
        let said = answers::broken_off(&own, "");
        assert!(said.starts_with("q/v is writable, as hosts here left it: the resync"), "{said}");
        assert!(!said.contains("as of"), "{said}");
        assert_eq!(listing::lag(&own), "-");
    }

    #[test]
    fn a_new_mirror_without_a_way_back_says_so() {
        let said = |way_back, unwanted| {
            answers::no_way_back(&mirror("destination", json!({ "way_back": way_back })), "south", unwanted)
        };
        let none = said(json!(false), false);
        assert!(
            none.starts_with("no way back yet")
                && none.contains("    farside peer allow north q/v --reverse\n"),
            "{none}"
        );
        assert!(
            none.contains("    farside peer allow south p/v --reverse\n"),
            "whole, as it is typed: {none}"
        );
        assert_eq!(said(json!(true), false), "");
        assert_eq!(said(json!(null), false), "", "an older daemon does not say");
        assert_eq!(said(json!(false), true), "");
    }

    #[test]
    fn after_a_role_change_it_is_said_what_did_not_go_along() {
        let bare = advice_after_resync(&mirror("destination", json!({})));
        assert!(bare.contains("no schedule") && bare.contains("farside mirror set q/v --keep"), "{bare}");
        let set = json!({ "schedule": "every 10s", "retention": "last=3" });
        assert_eq!(advice_after_resync(&mirror("destination", set.clone())), "");
        let said = advice_after_swap(&mirror("destination", set)).unwrap();
        assert!(said.contains("at north: farside mirror status p/v says what that is"), "{said}");
        assert!(
            said.contains("if it keeps only its newest point: farside mirror set p/v --keep last=3\n"),
            "{said}"
        );
        assert!(said.contains("the retention (last=3) does not go along"), "{said}");
        assert_eq!(advice_after_swap(&mirror("destination", json!({ "group": "shop" }))), None);
    }
}
