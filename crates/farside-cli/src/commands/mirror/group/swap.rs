//! `farside mirror swap --group`: one role change after the other.
//!
//! Each loses nothing by itself. Hosts that need several of the volumes are to be stopped before the first: the sources take no more writes
//! from then on, one by one.

use std::time::Duration;

use farside_api::split::Split;
use farside_api::{
    ErrorBody, ErrorCode, Mirror, Operation, OperationState, Peer, PeerState, Plan, Role, StartTransfer,
};
use reqwest::Method;
use serde::Serialize;

use super::members::{Group, Member, members, mirrors_of};
use super::named::Verb;
use super::steps::{Step, consent, plans_of};
use super::{forgotten, under_way, whereabouts};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::progress;

/// What came of it.
#[derive(Serialize)]
struct Swapped {
    group: String,
    operations: Vec<Operation>,
    /// The update that has brought the new replicas to one moment; none if it could not be asked for from here.
    common: Option<Operation>,
}

pub(crate) async fn swap(
    context: &Context,
    group: &str,
    timeout: Duration,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let of_group = members(context, group, Verb::Swap).await?;
    let Group { members, .. } = &of_group;
    // What has changed its role already is followed by its former source. What a person has broken off is not.
    let broken_off: Vec<&Member> =
        members.iter().filter(|m| m.is_broken_off() && !m.is_valid_original()).collect();
    if !broken_off.is_empty() {
        return Err(refused(context, group, members, &broken_off).await?);
    }
    if let Some(error) = under_way::refused(group, members) {
        return Err(error);
    }
    if let Some(split) = of_group.split.as_ref().filter(|split| split.is_parted()) {
        return Err(ErrorBody::new(ErrorCode::Refused, format!("{}. No role was changed", split.said())));
    }
    let fetched = under_way::elsewhere(context, group, &of_group, destructive.plan).await?;
    let forgotten = forgotten::of(context, group, members).await;
    if let Some(error) = forgotten::refused(group, &forgotten) {
        return Err(error);
    }
    let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
    let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
    if left.is_empty() {
        let done = Swapped { group: group.to_owned(), operations: Vec::new(), common: None };
        let text = format!(
            "group {group}: the roles have changed already: hosts may write to {}, their former sources follow them\n",
            names.join(", ")
        );
        context.show(&done, |_| text);
        return Ok(());
    }
    let request = StartTransfer { timeout_seconds: Some(timeout.as_secs_f64()) };
    let mut steps = Vec::new();
    for member in &left {
        steps.push(Step { path: member.path("swap")?.to_vec(), body: Some(request.clone()) });
    }
    let note = of_group.note(group) + &forgotten::unknown(group, &forgotten) + &fetched;
    let headline = format!(
        "group {group}: {} of {} change roles with their sources, one after the other\n{}{}{note}",
        left.len(),
        mirrors_of(members.len()),
        then_update(members),
        if left.len() < members.len() { half_turned(members) } else { String::new() },
    );
    if context.json {
        note.lines().for_each(|line| eprintln!("farside: {line}"));
    }
    let command = format!("farside mirror swap --group {group} ");
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    none_is_refused(context, group, &left, &steps).await?;
    let mut operations = Vec::new();
    for (at, (step, member)) in steps.iter().zip(&left).enumerate() {
        // Somebody at the other site may have taken back what has changed before: then this one would part from the rest.
        let is_to_come = |m: &&Member| left[at..].iter().any(|to_come| to_come.mirror.name == m.mirror.name);
        let turned: Vec<&Member> = members.iter().filter(|m| !is_to_come(m)).collect();
        if at > 0 {
            still_here(context, group, &turned).await?;
        }
        let done = async {
            let started: Operation = context.client.post(&step.path, &step.body).await?;
            let others: Vec<&str> = left[at + 1..].iter().map(|m| m.mirror.name.as_str()).collect();
            let ended = progress::watch_one(&context.client, started, &not_begun(group, &others)).await?;
            let unknown = || ErrorBody::new(ErrorCode::Failed, "the role change failed");
            match ended.state {
                OperationState::Failed => Err(ended.error.clone().unwrap_or_else(unknown)),
                _ => Ok(ended),
            }
        };
        match done.await {
            Ok(done) => operations.push(done),
            Err(error) => {
                let turned = members.len() - left.len() + at;
                return Err(
                    stopped(context, group, (turned, members.len()), &member.mirror.name, error).await
                );
            }
        }
    }
    let sources: Vec<&str> = members.iter().map(|m| m.mirror.source.as_str()).collect();
    let common = to_one_moment(context, group, &sources, timeout).await;
    // What was true when each had changed its role need not be by now.
    let all: Vec<&Member> = members.iter().collect();
    still_here(context, group, &all).await?;
    let done = Swapped { group: group.to_owned(), operations, common: common.as_ref().ok().cloned() };
    let had: Vec<(&str, Option<&str>)> =
        members.iter().map(|m| (m.mirror.source.as_str(), m.mirror.retention.as_deref())).collect();
    let then = match &common {
        Ok(_) => format!("{} show one moment since\n{}", sources.join(", "), left_behind(&had)),
        Err(why) => without_moment(group, &had, why),
    };
    if common.is_err() && context.json {
        then.lines().for_each(|line| eprintln!("farside: {line}"));
    }
    context.show(&done, |_| {
        let turned = format!(
            "the roles have changed: hosts may write to {}, their former sources follow them\n",
            names.join(", ")
        );
        turned + &then + &note
    });
    Ok(())
}

/// All are asked before the first changes its role: what one of them would be refused for, a host that has it open as a rule, would
/// leave the group half swapped. Where a session is not up nobody can be asked; the first role change waits for it then.
async fn none_is_refused(
    context: &Context,
    group: &str,
    left: &[&Member],
    steps: &[Step<'_, StartTransfer>],
) -> Result<(), ErrorBody> {
    let peers: Vec<Peer> = context.client.get(&["peers"]).await?;
    let is_up = |member: &Member| {
        let site = member.mirror.source.split_once(':').map(|(site, _)| site);
        peers.iter().any(|peer| Some(&*peer.name) == site && peer.state == PeerState::Connected)
    };
    let asked: Vec<_> = steps.iter().zip(left).filter(|(_, member)| is_up(member)).collect();
    let plans = plans_of(context, asked.iter().map(|(step, _)| *step)).await;
    for (plan, (_, member)) in plans.into_iter().zip(asked) {
        if let Some(why) = plan?.refused {
            let name = &member.mirror.name;
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("group {group}: no role was changed, as {name} cannot change its own now: {why}"),
            ));
        }
    }
    Ok(())
}

/// # Errors
/// If one of these is not the original here any more.
async fn still_here(context: &Context, group: &str, turned: &[&Member]) -> Result<(), ErrorBody> {
    let now = members(context, group, Verb::Swap).await?;
    match gone_back(group, turned, &now) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// That the roles of some have changed again, where each is now, and what to type.
fn gone_back(group: &str, turned: &[&Member], now: &Group) -> Option<ErrorBody> {
    let is_gone = |member: &&&Member| {
        let is_it = |m: &&Member| m.mirror.name == member.mirror.name;
        now.members.iter().find(is_it).is_none_or(Member::is_none_any_more)
    };
    let gone: Vec<&str> = turned.iter().filter(is_gone).map(|m| m.mirror.name.as_str()).collect();
    if gone.is_empty() {
        return None;
    }
    let message = format!(
        "group {group}: {} changed roles, and {} not the original here any more: somebody has changed the roles again. {}",
        gone.join(", "),
        if gone.len() == 1 { "is" } else { "are" },
        whereabouts::of(&now.members).join(". ")
    );
    let error = ErrorBody::new(ErrorCode::Failed, message);
    let way_out = now.split.as_ref().map(Split::ways_out);
    Some(error.hint(match way_out {
        Some(way_out) => format!("start no hosts before all are on one side; {way_out}"),
        None => format!("farside mirror status shows the roles; farside mirror swap --group {group} here brings all here again"),
    }))
}

/// Whoever ends the command learns what of it goes on, and what not.
fn not_begun(group: &str, others: &[&str]) -> String {
    match others {
        [] => format!(
            "farside mirror swap --group {group} says whether all have changed roles; farside mirror status shows what the new replicas lack"
        ),
        [one] => {
            format!("{one} is not begun: farside mirror swap --group {group} at this site goes on with it")
        }
        all => {
            format!(
                "{} are not begun: farside mirror swap --group {group} at this site goes on with them",
                all.join(", ")
            )
        }
    }
}

/// What brings the new replicas to one moment. Whether it may be asked for from here is known only then.
fn then_update(members: &[Member]) -> String {
    let source = members.first().and_then(|m| m.mirror.source.split_once(':'));
    let (site, volume) = source.unwrap_or(("the other site", "POOL/VOL"));
    format!(
        "then {site} brings the new replicas to one moment by itself; where {site} lets this site ask for it, that is done from here (farside \
         mirror update {volume} there does the same)\n"
    )
}

/// Where each member of a group is, of which a part has changed its role before.
fn half_turned(members: &[Member]) -> String {
    whereabouts::of(members).iter().map(|line| format!("  now:   {line}\n")).collect()
}

/// That one has not changed its role, where each is now, and what to type. `turned`: how many have, of how many.
async fn stopped(
    context: &Context,
    group: &str,
    (turned, all): (usize, usize),
    name: &str,
    error: ErrorBody,
) -> ErrorBody {
    // As it is by now: what failed may have changed more than its answer says. What cannot be asked is left out.
    let now = members(context, group, Verb::Swap).await.map(|of_group| of_group.members).unwrap_or_default();
    let places: String = whereabouts::of(&now).iter().map(|line| format!(". {line}")).collect();
    let message = format!(
        "{turned} of {} of group {group} {} changed roles; {name} has not: {}{places}",
        mirrors_of(all),
        if turned == 1 { "has" } else { "have" },
        error.message
    );
    let hints = [
        error.hint,
        Some(format!(
            "farside mirror swap --group {group} at this site goes on with the others; start no hosts before all are on one side"
        )),
        whereabouts::back(&now).map(|back| format!("to take back what has changed, {back}")),
    ];
    let hints: Vec<String> = hints.into_iter().flatten().collect();
    ErrorBody::new(error.code, message).hint(hints.join("; "))
}

/// Why nothing was swapped: what the daemon says of each mirror that was broken off, and where the others are.
async fn refused(
    context: &Context,
    group: &str,
    members: &[Member],
    broken_off: &[&Member],
) -> Result<ErrorBody, ErrorBody> {
    let mut said = Vec::new();
    for member in broken_off {
        let request = StartTransfer { timeout_seconds: None };
        let path = member.path("swap")?;
        let plan: Result<Plan, ErrorBody> =
            context.client.request(Method::POST, &path, &[("plan", "true")], Some(&request)).await;
        let name = &member.mirror.name;
        said.push(match plan {
            Ok(plan) => plan.refused.unwrap_or_else(|| format!("{name} is broken off")),
            Err(error) if error.code == ErrorCode::Refused => error.message,
            Err(error) => return Err(error),
        });
    }
    let others: String = match broken_off.len() < members.len() {
        true => whereabouts::of(members).iter().map(|line| format!(". {line}")).collect(),
        false => String::new(),
    };
    let message = format!("group {group}: {}{others}. No role was changed", said.join("; "));
    let error = ErrorBody::new(ErrorCode::Refused, message);
    // Of a break that was meant for all the rest is to be broken off, too; else what is broken off follows first.
    Ok(match others.is_empty() {
        true => error,
        false => error.hint(format!(
            "if the group was to be taken over: farside mirror break --group {group} goes on with the others, as of the same moment. If \
             not: farside mirror resync --group {group} makes what is broken off follow again, then this again"
        )),
    })
}

/// The roles have changed one after the other, so the new replicas show a moment each: one update of their group, at their site and
/// where that lets this one ask for it, brings them to one again. The error says why there is none.
async fn to_one_moment(
    context: &Context,
    group: &str,
    sources: &[&str],
    timeout: Duration,
) -> Result<Operation, ErrorBody> {
    let not_named = || ErrorBody::new(ErrorCode::Failed, "the site of the new replicas is not known");
    let (site, _) = sources.first().and_then(|first| first.split_once(':')).ok_or_else(not_named)?;
    let there = context.client.of_peer(site).ok_or_else(not_named)?;
    let mirrors: Vec<Mirror> = there.get(&["mirrors"]).await?;
    let names: Vec<&str> = sources.iter().filter_map(|s| s.split_once(':').map(|(_, name)| name)).collect();
    let is_member = |name: &&str| {
        let in_group = |m: &&Mirror| m.group.as_deref() == Some(group) && m.role == Role::Destination;
        mirrors.iter().filter(in_group).any(|m| m.name == **name)
    };
    if let Some(outside) = names.iter().find(|name| !is_member(name)) {
        let message = format!(
            "{outside} is not in group {group} at {site}, where farside mirror set {outside} --group {group} puts it into that"
        );
        return Err(ErrorBody::new(ErrorCode::Refused, message));
    }
    let (pool, volume) = names.first().and_then(|name| name.split_once('/')).ok_or_else(not_named)?;
    let request = StartTransfer { timeout_seconds: Some(timeout.as_secs_f64()) };
    let started: Operation = there.post(&["mirrors", pool, volume, "update"], &request).await?;
    let ended = progress::watch(&there, started).await?;
    match &ended.error {
        Some(error) if ended.state == OperationState::Failed => Err(error.clone()),
        _ => Ok(ended),
    }
}

/// What the new replicas were not told: retention is said at their own site. A line to type for each that lacks it. `had`: what each new
/// replica is, and what the former one has kept.
fn left_behind(had: &[(&str, Option<&str>)]) -> String {
    let mut site = "the other site";
    let mut lines = Vec::new();
    for (source, keep) in had {
        let (of, name) = source.split_once(':').unwrap_or((site, source));
        site = of;
        lines.extend(keep.map(|keep| format!("  farside mirror set {name} --keep {keep}\n")));
    }
    let first = had.iter().find_map(|(source, keep)| keep.and(source.split_once(':'))).map(|(_, name)| name);
    first.map_or_else(String::new, |first| {
        format!(
            "retention does not go along with a swap. At {site}, farside mirror status {first}, and of each, shows what is set there (keeps); \
             where nothing is:\n{}",
            lines.concat()
        )
    })
}

/// What is left to be done at the site of the new replicas.
fn without_moment(group: &str, had: &[(&str, Option<&str>)], why: &ErrorBody) -> String {
    let first = had.first().map_or("POOL/VOL", |(source, _)| source);
    let (site, first) = first.split_once(':').unwrap_or(("the other site", first));
    format!(
        "the new replicas were not brought to one moment from here: {}\n{site} does that by itself within some seconds; farside mirror \
         status there says so if it has not, and then, at {site}: farside mirror update {first} brings all of group {group} to one\n{}",
        why.message,
        left_behind(had)
    )
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::{member, original, overtaken};
    use super::*;

    #[test]
    fn what_is_left_to_do_is_a_line_to_type() {
        let why = ErrorBody::new(ErrorCode::Refused, "nobody may ask there");
        let had = [("north:tank/a", Some("last=3")), ("north:tank/b", None)];
        let text = without_moment("shop", &had, &why);
        assert!(text.contains("at north: farside mirror update tank/a"), "{text}");
        assert!(text.contains("  farside mirror set tank/a --keep last=3\n"), "{text}");
        assert!(text.contains("nobody may ask there"), "{text}");
        let text = left_behind(&had);
        assert!(
            text.contains("At north, farside mirror status tank/a, and of each, shows")
                && text.contains(":\n  farside mirror set tank/a --keep last=3\n"),
            "{text}"
        );
        assert!(!text.contains("tank/b"), "{text}");
        assert_eq!(left_behind(&[("north:tank/b", None)]), "");
    }

    #[test]
    fn the_plan_says_where_to_bring_all_to_one_moment_and_an_end_what_is_not_begun() {
        let text = then_update(&[member("q/b", "mirrored", None, &[])]);
        assert!(text.contains("(farside mirror update p/v there does the same)"), "{text}");
        assert_eq!(
            not_begun("shop", &["q/b"]),
            "q/b is not begun: farside mirror swap --group shop at this site goes on with it"
        );
        assert!(not_begun("shop", &["q/b", "q/c"]).starts_with("q/b, q/c are not begun"));
        assert!(!not_begun("shop", &[]).contains("not begun"));
    }

    #[test]
    fn the_plan_of_a_group_that_is_half_turned_says_where_each_is() {
        let text = half_turned(&[original("q/a"), member("q/b", "mirrored", None, &[])]);
        assert!(text.contains("  now:   q/a is the original here"), "{text}");
        assert!(text.contains("  now:   q/b is the replica of a:p/v"), "{text}");
    }

    #[test]
    fn what_somebody_took_back_meanwhile_is_not_called_turned() {
        let turned = [original("q/a"), original("q/b")];
        let turned: Vec<&Member> = turned.iter().collect();
        let now = |members| Group { members, left_out: Vec::new(), originals: Vec::new(), split: None };
        assert!(gone_back("shop", &turned, &now(vec![original("q/a"), original("q/b")])).is_none());
        // One that its former source has not been told of yet is the original all the same.
        let untold = member("q/b", "broken-off", None, &[]);
        assert!(gone_back("shop", &turned, &now(vec![original("q/a"), untold])).is_none());
        let back = vec![member("q/a", "mirrored", None, &[]), original("q/b")];
        let said = gone_back("shop", &turned, &now(back)).unwrap();
        assert!(
            said.message.contains("q/a changed roles, and is not the original here any more"),
            "{said:?}"
        );
        assert!(said.message.contains("q/b is the original here"), "{said:?}");
        assert!(gone_back("shop", &turned[..1], &now(vec![overtaken(original("q/a"))])).is_some());
    }
}
