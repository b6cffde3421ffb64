//! `farside mirror resync --group`: what of a group is broken off follows again, and all of it shows one moment at the end.
//!
//! All are begun before the first is waited for: from then on hosts write to none of them. What has failed is named, and the same command
//! goes on with it.

use std::time::Duration;

use farside_api::split::Split;
use farside_api::{
    ErrorBody, ErrorCode, Mirror, Operation, OperationState, ResyncMirror, Role, Timestamp, Volume,
};
use serde::Serialize;

use super::members::{Group, Member, members, volumes_of};
use super::named::Verb;
use super::set_aside::{left_as, moment_of_others, one_name};
use super::steps::{Step, consent, refuse_losses};
use super::{forgotten, one_moment, told, whereabouts};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::commands::mirror::outcomes::{advice_after_resync, outcome};
use crate::commands::mirror::right_back;
use crate::progress;

/// How long a plan waits to be told what it is about.
const PLAN_PATIENCE: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Serialize)]
struct Resynced {
    group: String,
    operations: Vec<Operation>,
    /// The update that has brought the group to one moment; none if there was none.
    common: Option<Operation>,
}

pub(crate) async fn resync(
    context: &Context,
    group: &str,
    request: &ResyncMirror,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let patience = request.timeout_seconds.map_or(Duration::ZERO, Duration::from_secs_f64);
    let patience = if destructive.plan { patience.min(PLAN_PATIENCE) } else { patience };
    let of_group = told::members_and_taken_over(context, group, patience).await?;
    let all = &of_group.members;
    let again: Vec<&Member> = all.iter().filter(|m| is_meant(m, request.whole)).collect();
    let forgotten = forgotten::note(group, &forgotten::of(context, group, all).await);
    let note = forgotten.clone() + &of_group.note(group);
    if again.is_empty() {
        return nothing_to_do(context, group, all, &forgotten);
    }
    if !destructive.plan {
        nobody_writes(context, group, &again).await?;
    }
    let mut steps = Vec::new();
    // All that is set aside has one name, by which it can be gone back to, also what a command before this one has begun with.
    let now = Timestamp::now();
    let began = again.iter().filter_map(|member| member.mirror.broken_off_at).max();
    let others = all.iter().filter(|member| !is_meant(member, request.whole)).map(|member| &member.mirror);
    let before = moment_of_others(others, began).filter(|at| is_recent(*at, now));
    let request = ResyncMirror { set_aside_at: before.or(Some(now)), ..request.clone() };
    for member in &again {
        let from = member.is_taken_over().then(|| member.mirror.source.clone());
        steps.push(Step {
            path: member.path("resync")?.to_vec(),
            body: Some(ResyncMirror { from, ..request.clone() }),
        });
    }
    let then = match all.iter().any(Member::is_valid_original) {
        true => "the group stays split: no update brings it to one moment before all are on one side",
        false => "then one update brings the group to one moment",
    };
    let headline = format!(
        "group {group}: {} of {} {} again; {then}\n{}{note}",
        again.len(),
        volumes_of(all.len()),
        if again.len() == 1 { "follows" } else { "follow" },
        left_as_they_are(all, &again),
    );
    if context.json {
        note.lines().for_each(|line| eprintln!("farside: {line}"));
    }
    let command = format!("farside mirror resync --group {group} ");
    refuse_losses(context, again.iter().copied(), &steps, destructive).await?;
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    let (operations, failed) = carry_out(context, &again, &steps).await;
    let said: String = operations.iter().map(outcome).collect();
    if !failed.is_empty() {
        // What went well is told as well: its side branches have names.
        said.lines().for_each(|line| eprintln!("farside: {line}"));
        return Err(not_all(group, again.len(), &failed));
    }
    // What follows is that by now, and shows a version of its source.
    let now = members(context, group, Verb::Resync).await?;
    let originals = now.members.iter().any(Member::is_valid_original);
    let common = match originals {
        true => Err(ErrorBody::new(ErrorCode::Refused, String::new())),
        false => to_one_moment(context, &again, request.timeout_seconds).await,
    };
    let names: Vec<&str> = all.iter().map(|m| m.mirror.name.as_str()).collect();
    let then = match &common {
        Ok(_) => format!(
            "{} {} one moment since\n",
            names.join(", "),
            if names.len() == 1 { "shows" } else { "show" }
        ),
        // No update brings an original and a replica to one moment.
        Err(_) if originals => half_turned(group, &now),
        Err(why) => format!(
            "the group shows no moment in common since then: {}. farside mirror update --group {group} brings it to one\n",
            why.message
        ),
    };
    let kept_as: Vec<Option<String>> =
        operations.iter().map(kept_as).chain(kept_before(all, &again, began)).collect();
    let one_name = one_name(kept_as.iter().map(Option::as_deref)).filter(|_| !originals);
    let back = one_name.map_or_else(|| each_back(&kept_as), |name| {
        format!(
            "to take this back, with what hosts wrote here: farside mirror break --group {group} --at {name}\n"
        )
    });
    let advice = if context.json { String::new() } else { advice(context, &again).await };
    if common.is_err() && context.json {
        then.lines().for_each(|line| eprintln!("farside: {line}"));
    }
    let done = Resynced { group: group.to_owned(), operations, common: common.ok() };
    context.show(&done, |_| said + &then + &back + &advice + &left_as_they_are(all, &again) + &note);
    Ok(())
}

/// Whether it is to follow again. What follows already is compared as a whole only when that is asked for.
fn is_meant(member: &Member, whole: bool) -> bool {
    (member.is_broken_off() || whole) && !member.is_valid_original()
}

/// So long is a moment good for what is set aside now.
const RECENT_SECONDS: f64 = 3000.0;

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    (0.0..RECENT_SECONDS).contains(&now.duration_since(at).as_secs_f64())
}

/// As hosts left those that follow already, each of them, `POOL/VOL@SNAP`: what takes back the command takes back the whole.
fn kept_before(all: &[Member], again: &[&Member], began: Option<Timestamp>) -> Vec<Option<String>> {
    let is_again = |member: &&Member| again.iter().any(|of| of.mirror.name == member.mirror.name);
    let others = all.iter().filter(|member| !is_again(member) && !member.is_valid_original());
    let of = |mirror: &Mirror| Some(format!("{}@{}", mirror.name, left_as(mirror, began?)?));
    others.map(|member| of(&member.mirror)).collect()
}

/// Begins all, then waits for all. What has failed, with its name.
async fn carry_out<'a>(
    context: &Context,
    again: &[&'a Member],
    steps: &[Step<'_, ResyncMirror>],
) -> (Vec<Operation>, Vec<(&'a str, ErrorBody)>) {
    let mut begun = Vec::new();
    for step in steps {
        let started: Result<Operation, ErrorBody> = context.client.post(&step.path, &step.body).await;
        begun.push(started);
    }
    let all: Vec<&str> = again.iter().map(|member| member.mirror.name.as_str()).collect();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (member, started) in again.iter().zip(begun) {
        let ended = async { progress::watch_among(&context.client, started?, &all).await };
        let unknown = || ErrorBody::new(ErrorCode::Failed, "the resync failed");
        let name = member.mirror.name.as_str();
        match ended.await {
            Ok(ended) if ended.state == OperationState::Failed => {
                failed.push((name, ended.error.clone().unwrap_or_else(unknown)));
            }
            Ok(ended) => done.push(ended),
            Err(error) => failed.push((name, error)),
        }
    }
    (done, failed)
}

/// What takes back each by itself.
fn each_back(kept_as: &[Option<String>]) -> String {
    let lines = kept_as.iter().flatten().filter_map(|kept_as| {
        let (volume, name) = kept_as.split_once('@')?;
        Some(format!(
            "to take this back, with what hosts wrote here: farside mirror break {volume} --at {name}\n"
        ))
    });
    lines.collect()
}

/// What it set aside last, `POOL/VOL@SNAP`.
fn kept_as(of: &Operation) -> Option<String> {
    let name = of.record.as_ref()?.set_aside.last()?;
    Some(format!("{}@{name}", of.volume))
}

/// A host that writes keeps its volume from being a replica. It is looked for before the others are none any more.
async fn nobody_writes(context: &Context, group: &str, again: &[&Member]) -> Result<(), ErrorBody> {
    let mut busy = Vec::new();
    for member in again {
        let (pool, volume) = member.split()?;
        let volume: Volume = context.client.get(&["volumes", pool, volume]).await?;
        if volume.writers > 0 {
            busy.push(volume.name);
        }
    }
    if busy.is_empty() {
        return Ok(());
    }
    let message =
        format!("group {group}: hosts that may write have {} open. Nothing was changed", busy.join(", "));
    Err(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "stop or disconnect them (farside volume status {} shows who they are), then the same command",
        busy[0]
    )))
}

/// What is not begun `again`, a line each: it follows already, or is the original here.
fn left_as_they_are(all: &[Member], again: &[&Member]) -> String {
    let is_left = |m: &&Member| again.iter().all(|one| one.mirror.name != m.mirror.name);
    all.iter()
        .filter(is_left)
        .map(|m| match m.is_valid_original() {
            true => format!("{} is the original here: it is left as it is\n", m.mirror.name),
            false => format!("{} follows {} already: it is left as it is\n", m.mirror.name, m.mirror.source),
        })
        .collect()
}

/// That a group of which a part has changed roles shows no moment in common, and what brings it to one side.
fn half_turned(group: &str, now: &Group) -> String {
    let is = now
        .split
        .as_ref()
        .map_or_else(|| format!("group {group}: {}", whereabouts::of(&now.members).join("; ")), Split::said);
    format!("{is}. Once all are on one side, an update brings their replicas to one moment\n")
}

fn nothing_to_do(context: &Context, group: &str, all: &[Member], forgotten: &str) -> Result<(), ErrorBody> {
    let (originals, follow): (Vec<&Member>, Vec<&Member>) = all.iter().partition(|m| m.is_valid_original());
    if follow.is_empty() {
        let back = whereabouts::back(all).unwrap_or_default();
        let message = format!(
            "group {group}: {}. Nothing was changed: what hosts wrote here since would be set aside",
            whereabouts::of(all).join("; ")
        );
        return Err(ErrorBody::new(ErrorCode::Refused, message)
            .hint(format!("to change the roles back without a loss, {back}")));
    }
    let done = Resynced { group: group.to_owned(), operations: Vec::new(), common: None };
    let troubled: String = follow
        .iter()
        .filter_map(|m| Some(format!("{}: {}\n", m.mirror.name, m.mirror.why.as_ref()?)))
        .collect();
    let then = match originals.is_empty() {
        true if troubled.is_empty() => {
            format!("farside mirror update --group {group} brings them to one moment\n")
        }
        // No update does before that is mended.
        true => troubled,
        false => String::new(),
    };
    if context.json {
        forgotten.lines().for_each(|line| eprintln!("farside: {line}"));
    }
    context.show(&done, |_| {
        format!("group {group}: nothing is broken off\n{}{then}{forgotten}", left_as_they_are(all, &[]))
    });
    Ok(())
}

/// What failed of it, member by member: none is passed over.
fn not_all(group: &str, asked: usize, failed: &[(&str, ErrorBody)]) -> ErrorBody {
    let each: Vec<String> = failed.iter().map(|(name, error)| format!("{name}: {}", error.message)).collect();
    let hints =
        failed.iter().filter_map(|(name, error)| error.hint.as_ref().map(|hint| format!("{name}: {hint}")));
    let then =
        "the same command goes on with what is broken off still; farside mirror status shows which that is";
    let hints: Vec<String> = hints.chain([then.to_owned()]).collect();
    let code = failed.first().map_or(ErrorCode::Failed, |(_, error)| error.code);
    let message = format!(
        "{} of {} of group {group} {} again; {} did not get so far: {}",
        asked - failed.len(),
        volumes_of(asked),
        if asked - failed.len() == 1 { "follows" } else { "follow" },
        failed.len(),
        each.join("; ")
    );
    ErrorBody::new(code, message).hint(hints.join("; "))
}

/// Each has come by itself, and shows a moment of its own: one update takes all of them to one.
async fn to_one_moment(
    context: &Context,
    again: &[&Member],
    timeout_seconds: Option<f64>,
) -> Result<Operation, ErrorBody> {
    let nobody = || ErrorBody::new(ErrorCode::Failed, "nothing of it follows");
    let (pool, volume) = again.first().ok_or_else(nobody)?.split()?;
    one_moment::update(context, pool, volume, timeout_seconds.map(Duration::from_secs_f64)).await
}

/// As after the resync of one.
async fn advice(context: &Context, again: &[&Member]) -> String {
    let Ok(now) = context.client.get::<Vec<Mirror>>(&["mirrors"]).await else { return String::new() };
    let is_it = |m: &&Mirror, member: &Member| m.role == Role::Destination && m.name == member.mirror.name;
    let mut advice = String::new();
    for member in again {
        let Some(follower) = now.iter().find(|m| is_it(m, member)) else { continue };
        advice += &advice_after_resync(follower);
        if member.is_taken_over() {
            advice += &right_back::missing(context, follower).await;
        }
    }
    advice
}

#[cfg(test)]
mod tests {

    use super::super::members::tests::{member, original, overtaken};
    use super::*;

    #[test]
    fn what_fails_is_named_and_the_others_are_counted() {
        let busy = ErrorBody::new(ErrorCode::Refused, "hosts have it open").hint("stop them");
        let away = ErrorBody::new(ErrorCode::PeerUnreachable, "no session");
        let said = not_all("shop", 3, &[("q/b", busy), ("q/c", away)]);
        assert_eq!(said.code, ErrorCode::Refused);
        assert_eq!(
            said.message,
            "1 of 3 volumes of group shop follows again; 2 did not get so far: q/b: hosts have it open; q/c: no session"
        );
        let hint = said.hint.unwrap();
        assert!(hint.contains("q/b: stop them") && hint.contains("the same command goes on"), "{hint}");
    }

    #[test]
    fn what_follows_or_is_the_original_is_left_as_it_is() {
        let all =
            [original("q/a"), member("q/b", "mirrored", None, &[]), member("q/c", "broken-off", None, &[])];
        let of = |all: &[Member], whole| all.iter().map(|m| is_meant(m, whole)).collect::<Vec<_>>();
        assert_eq!(of(&all, false), [false, false, true]);
        assert_eq!(of(&all, true), [false, true, true]);
        // Whoever was taken over since is to follow again.
        assert_eq!(of(&[overtaken(original("q/a"))], false), [true]);
        let said = left_as_they_are(&all, &[&all[2]]);
        assert!(said.contains("q/a is the original here"), "{said}");
        assert!(said.contains("q/b follows a:p/v already") && !said.contains("q/c"), "{said}");
        let now = Group { members: all.into(), left_out: Vec::new(), originals: Vec::new(), split: None };
        let half = half_turned("shop", &now);
        assert!(half.contains("q/b is the replica of a:p/v") && !half.contains("update --group"), "{half}");
    }
}
