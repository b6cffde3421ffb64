//! `farside mirror break --group`.

use farside_api::{BreakMirror, ErrorBody, Mirror, Plan, Timestamp};
use reqwest::Method;
use serde::Serialize;

use super::abort::{give_up, lines, names, refused_break, with_given_up};
use super::members::{Group, Member, members, mirrors_of};
use super::moments::{Instant, Line, decided, instant_of, known};
use super::named::Verb;
use super::set_aside::{kept, moment_of, one_name};
use super::since::{self, Since};
use super::since_swap::{self, Whole};
use super::steps::{Step, consent, gone_since, plans_of};
use super::{former_source, own_state};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::commands::mirror::warnings::{WARNING_WITHIN, warnings_of};
use crate::confirm::{DestructiveRequest, Impact, carry_out, is_interactive};
use crate::quantities::{duration, time};

/// What came of it.
#[derive(Serialize)]
struct Broken {
    group: String,
    created_at: Timestamp,
    mirrors: Vec<Mirror>,
    /// Those that were broken off before, and that hosts have written to since, as far as is known: these are not as of that moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed_since: Vec<String>,
}

pub(crate) async fn break_off(
    context: &Context,
    group: &str,
    at: Option<String>,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let of_group = members(context, group, Verb::Break).await?;
    let all = names(&of_group.members);
    let of_group = match of_group.replicas(group) {
        Ok(of_group) => of_group,
        Err(error) => return Err(refused_break(context, &all, destructive.plan, error).await),
    };
    let Group { members, .. } = &of_group;
    if let Some(unfit) = former_source::left_behind(context, group, members, at.as_deref()).await? {
        return Err(refused_break(context, &all, destructive.plan, unfit).await);
    }
    // As hosts here left them they are newer than any moment that their sources have.
    if at.is_none() && !own_state::pending(members).is_empty() {
        return own_state::give_back(context, group, &of_group, destructive).await;
    }
    let prepared = match prepare(context, group, at.as_deref(), &of_group).await {
        Ok(prepared) => prepared,
        Err(error) => return Err(refused_break(context, &all, destructive.plan, error).await),
    };
    let Prepared { instant, left, steps, note, changed } = prepared;
    let originals = &of_group.originals;
    let moment = with_age(instant.created_at, Timestamp::now());
    let headline = format!(
        "group {group}: {} to break off, {}\n{note}",
        mirrors_of(left.len()),
        as_of(&moment, left.len(), changed.is_empty()),
    );
    context.aside(&note);
    let command = format!("farside mirror break --group {group} ");
    let is_asked = destructive.plan || (!destructive.yes && is_interactive());
    if !is_asked {
        let plans = tokio::time::timeout(WARNING_WITHIN, plans_of(context, steps.iter())).await;
        let plans: Vec<Plan> = plans.unwrap_or_default().into_iter().flatten().collect();
        warnings_of(group, &plans).lines().for_each(|line| eprintln!("farside: {line}"));
    }
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    // Those that are broken off stay so: what waits to have them follow again is given up.
    let given_up = give_up(context, &names(members)).await;
    context.aside(&lines(&given_up));
    let mut mirrors: Vec<Mirror> = Vec::new();
    for (at, (step, (member, _))) in steps.iter().zip(&left).enumerate() {
        let (path, impact) = (&step.path[..], Impact::Service);
        // All that this command sets aside has one moment, by which it can be gone back to.
        let set_aside_at = mirrors.iter().find_map(|mirror| moment_of(mirror.kept_as.as_deref()?));
        let body = step.body.clone().map(|body| BreakMirror { set_aside_at, ..body });
        let one = DestructiveRequest { method: Method::POST, path, body: body.as_ref(), impact };
        let done =
            carry_out::<Mirror>(&context.client, one, Destructive { plan: false, yes: true }, context.json);
        let done = done.await.map_err(|error| {
            let message = format!(
                "{} of {} of group {group} {} broken off, as of {moment}; {} is not: {}",
                members.len() - left.len() + at,
                mirrors_of(members.len()),
                if members.len() - left.len() + at == 1 { "is" } else { "are" },
                member.mirror.name,
                error.message
            );
            let error = ErrorBody::new(error.code, message)
                .hint("the same command goes on with the others, at the same instant");
            with_given_up(error, &given_up)
        })?;
        mirrors.extend(done);
    }
    let done =
        Broken { group: group.to_owned(), created_at: instant.created_at, mirrors, changed_since: changed };
    let gone = gone_since(context, left.iter().map(|(member, _)| *member)).await;
    context.aside(&gone);
    context.show(&done, |done| {
        let kept = kept(done.mirrors.iter().map(|mirror| mirror.kept_as.as_deref()));
        let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
        let stays = |name: &&str| !done.changed_since.iter().any(|changed| changed == *name);
        let still: Vec<&str> = names.iter().copied().filter(stays).collect();
        // The originals have been found as they were then.
        let is_whole = done.changed_since.is_empty() && (originals.is_empty() || !left.is_empty());
        let refused: String = done
            .mirrors
            .iter()
            .filter_map(|m| {
                Some(format!("but hosts' writes to {} fail for now: {}\n", m.name, m.hosts_refused.as_ref()?))
            })
            .collect();
        let kept_as = || done.mirrors.iter().map(|mirror| mirror.kept_as.as_deref());
        let newer = match one_name(kept_as().filter(Option::is_some)) {
            Some(name) => {
                format!("to have what is newer after all: farside snapshot rollback --group {group} --at {name}\n")
            }
            None => kept_as()
                .flatten()
                .map(|kept_as| format!("to have what is newer after all: farside snapshot rollback {kept_as}\n"))
                .collect(),
        };
        let site = members.first().and_then(|m| m.mirror.source.split_once(':')).map_or("the other site", |(site, _)| site);
        let here = format!("to go on here: as soon as {site} is there, farside mirror resync --group {group} at {site} has all of it \
             follow\n");
        let back = here + &format!(
            "to take this back: farside mirror resync --group {group}; what hosts write here until then stays as side \
             branches\n"
        );
        writable(&names, &still, &moment, is_whole) + &refused + &kept + &gone + &note + &lines(&given_up) + &newer + &back
    });
    Ok(())
}

/// What a break of the group is to do.
struct Prepared<'a> {
    instant: Instant,
    /// Those that are not broken off yet, and what the moment is called in each.
    left: Vec<(&'a Member, String)>,
    steps: Vec<Step<'a, BreakMirror>>,
    note: String,
    changed: Vec<String>,
}

/// Looks at everything, and changes nothing.
///
/// # Errors
/// If the members cannot be broken off at one moment.
async fn prepare<'a>(
    context: &Context,
    group: &str,
    at: Option<&str>,
    of_group: &'a Group,
) -> Result<Prepared<'a>, ErrorBody> {
    let Group { members, originals, .. } = of_group;
    if let Some(error) = of_two_histories(group, of_group) {
        return Err(error);
    }
    // What was broken off already decides.
    let before = decided(members).map_err(|why| {
        ErrorBody::new(farside_api::ErrorCode::Refused, format!("group {group}: {why}. Nothing was changed"))
            .hint(format!("farside snapshot rollback --group {group} --at SNAP takes volumes that are broken off to one moment"))
    })?;
    if let Some(at) = at {
        known(group, members, at)?;
    }
    if let Some(at) = at
        && members.iter().all(Member::is_broken_off)
        && instant_of(group, members, Some(at), before, Line::Main).is_err()
    {
        return Err(already(group, at));
    }
    // What a resync or a rollback has set aside lies beside what each shows now.
    let beside = || instant_of(group, members, at, before, Line::Any).ok().filter(|_| at.is_some());
    let instant =
        instant_of(group, members, at, before, Line::Main).or_else(|error| beside().ok_or(error))?;
    let names = instant.names.iter().cloned();
    let left: Vec<(&Member, String)> =
        members.iter().zip(names).filter(|(m, _)| !m.is_broken_off()).collect();
    // Of what was broken off before, only that counts which it is now.
    let earlier = since::since_break(context, members).await?;
    let others: Vec<(&str, &str)> =
        left.iter().map(|(member, name)| (member.mirror.name.as_str(), name.as_str())).collect();
    if let Some(refused) = since::refused(group, instant.created_at, &earlier, &others) {
        return Err(refused);
    }
    // Nor do those that are in use here already fit by themselves.
    let turned = since_swap::look(context, originals, instant.created_at).await?;
    let whole = whole(group, of_group, before);
    if let Some(refused) = since_swap::refused(group, instant.created_at, &turned, &others, whole.as_ref()) {
        return Err(refused);
    }
    let note = since::note(instant.created_at, &earlier) + &of_group.note(group);
    let changed: Vec<String> = earlier
        .iter()
        .filter(|(_, _, since)| *since != Since::Nothing)
        .map(|(name, ..)| (*name).to_owned())
        .collect();
    let mut steps = Vec::new();
    for (member, name) in &left {
        let body = Some(BreakMirror { at: Some(name.clone()), set_aside_at: None });
        steps.push(Step { path: member.path("break")?.to_vec(), body });
    }
    Ok(Prepared { instant, left, steps, note, changed })
}

/// Hosts went on here with a part, and the rest has what they wrote elsewhere since: no moment of the rest fits, however little was written.
fn of_two_histories(group: &str, of_group: &Group) -> Option<ErrorBody> {
    let split = of_group.split.as_ref().filter(|split| split.is_parted())?;
    let message = format!("{}. Nothing was changed", split.said());
    let error = ErrorBody::new(farside_api::ErrorCode::Refused, message);
    Some(match whole(group, of_group, None) {
        Some(whole) => error.hint(format!("or {}", whole.way_back(group))),
        None => error,
    })
}

/// The newest moment that all of the group have, also the originals, and what of them is to be broken off at it.
fn whole(group: &str, of_group: &Group, before: Option<Timestamp>) -> Option<Whole> {
    let all: Vec<Member> = of_group.members.iter().chain(&of_group.originals).cloned().collect();
    let instant = instant_of(group, &all, None, before, Line::Main).ok()?;
    Whole::of(&instant, &all, |member| !member.is_broken_off())
}

/// Which volumes hosts may write to, and which of them are as of the moment. `is_whole`: these are all of the group.
fn writable(names: &[&str], still: &[&str], moment: &str, is_whole: bool) -> String {
    let are = if names.len() == 1 { "is" } else { "are" };
    let all = names.join(", ");
    match still {
        [] => format!("{all} {are} writable\n"),
        _ if still.len() == names.len() => {
            format!("{all} {are} writable, {}\n", as_of(moment, names.len(), is_whole))
        }
        _ => format!("{all} {are} writable; {} as of {moment}\n", still.join(", ")),
    }
}

/// A moment, and how long ago that was: what was written since is not there, and nobody wants to work that out at night.
fn with_age(at: Timestamp, now: Timestamp) -> String {
    match now.duration_since(at).as_secs_f64() {
        ago if ago >= 0.0 => format!("{} ({} ago)", time(at), duration(ago)),
        _ => time(at),
    }
}

/// One moment is promised only of a whole group.
fn as_of(moment: &str, count: usize, is_whole: bool) -> String {
    let all = if is_whole && count > 1 { "all " } else { "" };
    format!("{all}as of {moment}")
}

/// All of the group are broken off, at another moment than the one that is wanted.
fn already(group: &str, at: &str) -> ErrorBody {
    let message = format!("group {group} is broken off already. Nothing was changed");
    ErrorBody::new(farside_api::ErrorCode::Refused, message).hint(format!(
        "farside snapshot rollback --group {group} --at {at} takes its volumes to that moment; what they hold now stays"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_is_lost_is_said_as_a_time() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (then, now) = (at("2026-11-26T12:00:00Z"), at("2026-11-26T12:04:12Z"));
        assert_eq!(with_age(then, now), "2026-11-26T12:00:00Z (4m12s ago)");
        assert_eq!(with_age(now, then), "2026-11-26T12:04:12Z", "clocks differ");
    }

    #[test]
    fn a_source_that_answers_is_named_once_and_for_the_whole_group() {
        let of = |volume: &str| Plan {
            would: vec![
                "hosts may write".into(),
                format!(
                    "a was heard a moment ago: if both sites run and the roles are only to change, farside mirror swap {volume} loses nothing"
                ),
            ],
            ..Plan::default()
        };
        assert_eq!(
            warnings_of("shop", &[of("q/a"), of("q/b")]),
            "a was heard a moment ago: if both sites run and the roles are only to change, farside mirror swap --group shop loses nothing\n"
        );
        assert_eq!(warnings_of("shop", &[]), "");
    }

    #[test]
    fn one_moment_is_said_only_of_what_has_it() {
        let moment = "2026-11-26T12:00:00Z";
        let of = |still: &[&str], is_whole| writable(&["q/a", "q/b"], still, moment, is_whole);
        assert_eq!(of(&["q/a", "q/b"], true), format!("q/a, q/b are writable, all as of {moment}\n"));
        assert_eq!(of(&["q/a", "q/b"], false), format!("q/a, q/b are writable, as of {moment}\n"));
        assert_eq!(of(&["q/a"], false), format!("q/a, q/b are writable; q/a as of {moment}\n"));
        assert_eq!(of(&[], false), "q/a, q/b are writable\n");
        assert_eq!(writable(&["q/a"], &["q/a"], moment, true), format!("q/a is writable, as of {moment}\n"));
    }
}
