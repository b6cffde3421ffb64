//! The mirrors of a group, and the newest moment that all of them have. Which that is, is pure ([`choose`]).

use std::collections::BTreeSet;

use farside_api::split::{Split, group_of, overtaken};
use farside_api::{
    ErrorBody, ErrorCode, MadeBy, Mirror, MirrorState, Plan, Role, Snapshot, SourceHeard, Timestamp,
};
use reqwest::Method;
use serde::Serialize;

use super::halves;
use super::named::{Verb, is_empty, of_name};
use super::set_aside::moment_of_name;
use crate::arguments::destructive::Destructive;
use crate::arguments::names::VolumeName;
use crate::commands::context::Context;
use crate::commands::mirror::side_branches;
use crate::commands::mirror::warnings::{warnings, warnings_of};
use crate::confirm::{ask, describe, is_interactive, refuse, refuse_loss};
use crate::output::{json, print};

/// A mirror of the group, and the snapshots of its replica.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) mirror: Mirror,
    snapshots: Vec<Snapshot>,
    /// Its volume was the original, and another site has taken over since.
    is_overtaken: bool,
    /// Nothing here follows that site yet: it is of the group there.
    is_taken_over: bool,
}

impl Member {
    pub(super) fn split(&self) -> Result<(&str, &str), ErrorBody> {
        let name = &self.mirror.name;
        name.split_once('/')
            .ok_or_else(|| ErrorBody::new(ErrorCode::Failed, format!("{name:?} is no volume")))
    }

    /// The path of a request about the mirror.
    pub(super) fn path<'a>(&'a self, verb: &'a str) -> Result<[&'a str; 4], ErrorBody> {
        let (pool, volume) = self.split()?;
        Ok(["mirrors", pool, volume, verb])
    }

    /// Those of what was set aside of it, as they were when it was looked at.
    fn side_branches(&self) -> Vec<String> {
        side_branches::names_of(&self.snapshots)
    }

    /// One whose volume another site has taken over, and that does not follow there yet: the mirror as it will be.
    pub(super) fn taken_over(mirror: &Mirror, group: &str, snapshots: Vec<Snapshot>) -> Member {
        let mirror = Mirror {
            role: Role::Destination,
            state: MirrorState::BrokenOff,
            source: mirror.destination.clone(),
            destination: mirror.name.clone(),
            group: Some(group.to_owned()),
            overtaken: None,
            ..mirror.clone()
        };
        Member { mirror, snapshots, is_overtaken: true, is_taken_over: true }
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    pub(super) fn is_broken_off(&self) -> bool {
        self.mirror.state == MirrorState::BrokenOff
    }

    /// A resync of it is pending, and has brought nothing.
    pub(super) fn shows_own_state(&self) -> bool {
        self.mirror.shows_own_state
    }

    /// It is no original of the group here (any more), whatever it was when it was asked.
    pub(super) fn is_none_any_more(&self) -> bool {
        !self.is_broken_off() || self.is_overtaken
    }

    /// Its newest snapshot of what hosts see that is of this moment or older.
    pub(super) fn newest_by(&self, at: Timestamp) -> Option<&str> {
        let older = self.snapshots.iter().filter(|s| s.on_main_line && s.created_at <= at);
        older.max_by_key(|s| s.created_at).map(|s| s.name.as_str())
    }

    /// When the data of a snapshot was so, if it has one of this name.
    pub(super) fn created_at(&self, name: &str) -> Option<Timestamp> {
        self.snapshots.iter().find(|s| s.name == name).map(|s| s.created_at)
    }

    /// What it has gone on from ever since a moment at which it was a replica: its newest of then. None if it has moved meanwhile, or may
    /// have.
    pub(super) fn shows_since(&self, at: Timestamp) -> Option<&str> {
        let newest = self.newest_by(at)?;
        let newest_at = self.created_at(newest)?;
        let is_newer_aside = |s: &Snapshot| !s.on_main_line && s.created_at > newest_at && s.created_at <= at;
        let has_moved = self.mirror.current_snapshot.as_deref() != Some(newest)
            || self.snapshots.iter().any(is_newer_aside);
        (!has_moved).then_some(newest)
    }

    /// Its volume is the original of its former source, which follows it: what is in the group is the way back.
    pub(super) fn is_original(&self) -> bool {
        self.is_broken_off() && self.mirror.source_heard == Some(SourceHeard::Follows)
    }

    /// The same, and it counts: nobody has taken over from it since.
    pub(super) fn is_valid_original(&self) -> bool {
        self.is_original() && !self.is_overtaken
    }
}

/// What all members have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Instant {
    pub(super) created_at: Timestamp,
    /// What it is called in each member, in their order.
    pub(super) names: Vec<String>,
}

/// A destructive request to one of the members.
pub(super) struct Step<'a, Q> {
    pub(super) path: Vec<&'a str>,
    pub(super) body: Option<Q>,
}

/// So many plans are asked for at once.
const PLANS_AT_ONCE: usize = 16;

/// What each of the steps would do, in their order. Several are asked at once: while a source does not answer each of them waits for it.
pub(super) async fn plans_of<'a, Q: Serialize + 'a>(
    context: &Context,
    steps: impl Iterator<Item = &'a Step<'a, Q>>,
) -> Vec<Result<Plan, ErrorBody>> {
    let failed = |error: String| ErrorBody::new(ErrorCode::Failed, error);
    let ask = |step: &&Step<'a, Q>| {
        let client = context.client.clone();
        let path: Vec<String> = step.path.iter().map(|&part| part.to_owned()).collect();
        let body = step.body.as_ref().map(serde_json::to_value).transpose();
        tokio::spawn(async move {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let body = body.map_err(|error| failed(error.to_string()))?;
            client.request::<Plan>(Method::POST, &path, &[("plan", "true")], body.as_ref()).await
        })
    };
    let steps: Vec<_> = steps.collect();
    let mut plans = Vec::new();
    for some in steps.chunks(PLANS_AT_ONCE) {
        let asked: Vec<_> = some.iter().map(ask).collect();
        for plan in asked {
            plans.push(plan.await.map_err(|error| failed(error.to_string())).flatten());
        }
    }
    plans
}

/// Shows the plans of all steps, and asks once. Answers whether they are to be carried out.
///
/// Of `command`, which works on the whole group, the plans of its parts speak in vain: that is what was typed.
pub(super) async fn consent<Q: Serialize>(
    context: &Context,
    command: &str,
    headline: &str,
    steps: &[Step<'_, Q>],
    destructive: Destructive,
) -> Result<bool, ErrorBody> {
    if !destructive.plan && (destructive.yes || !is_interactive()) {
        return Ok(true);
    }
    let plans: Result<Vec<Plan>, ErrorBody> = plans_of(context, steps.iter()).await.into_iter().collect();
    let mut plans: Vec<Plan> = plans?.into_iter().map(|plan| without_advice(plan, command)).collect();
    let of_group = command.strip_prefix("farside mirror break --group ").map(str::trim_end);
    let warned = of_group.map(|group| warnings_of(group, &plans)).unwrap_or_default();
    if of_group.is_some() {
        for plan in &mut plans {
            let said: Vec<String> = warnings(plan).cloned().collect();
            plan.would.retain(|line| !said.contains(line) || context.json);
        }
    }
    let all = headline.to_owned() + &warned + &plans.iter().map(describe).collect::<String>();
    if destructive.plan {
        if context.json {
            json(&plans)
        } else {
            print(&all)
        }
        return Ok(false);
    }
    plans.iter().try_for_each(refuse)?;
    match ask(&all) {
        true => Ok(true),
        false => Err(ErrorBody::new(ErrorCode::Failed, "cancelled; nothing was changed")),
    }
}

/// Where nobody can be asked, what one of the steps would destroy for good is refused: the side branch that it makes may push an old
/// one out. Each step is one of a member.
pub(super) async fn refuse_losses<'a, Q: Serialize>(
    context: &Context,
    members: impl Iterator<Item = &'a Member>,
    steps: &[Step<'_, Q>],
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    if destructive.plan || destructive.yes || is_interactive() {
        return Ok(());
    }
    // Old side branches, and points that retention has kept while nothing rotated.
    let may_lose = |member: &Member| !member.side_branches().is_empty() || member.mirror.retention.is_some();
    let those = steps.iter().zip(members).filter(|(_, member)| may_lose(member)).map(|(step, _)| step);
    plans_of(context, those).await.into_iter().try_for_each(|plan| refuse_loss(&plan?))
}

/// A line for each side branch that a member had before the command and has no more.
pub(super) async fn gone_since<'a>(context: &Context, members: impl Iterator<Item = &'a Member>) -> String {
    let mut gone = String::new();
    for member in members {
        if let Ok(name) = member.mirror.name.parse::<VolumeName>() {
            gone += &side_branches::gone_since(context, &name, &member.side_branches()).await;
        }
    }
    gone
}

/// A plan without what points to this command.
fn without_advice(mut plan: Plan, command: &str) -> Plan {
    plan.would.retain(|line| !line.contains(command));
    plan
}

/// `1 mirror`, `2 mirrors`.
pub(super) fn mirrors_of(count: usize) -> String {
    format!("{count} mirror{}", if count == 1 { "" } else { "s" })
}

/// `1 volume`, `2 volumes`.
pub(super) fn volumes_of(count: usize) -> String {
    format!("{count} volume{}", if count == 1 { "" } else { "s" })
}

/// The mirrors of a group.
pub(super) struct Group {
    /// Those that hold a version.
    pub(super) members: Vec<Member>,
    /// Volumes that are in it and hold nothing yet: there is nothing of them to be used.
    pub(super) left_out: Vec<String>,
    /// Those whose volumes are the originals here: only the way back is in the group.
    pub(super) originals: Vec<Member>,
    /// A part of it has changed roles.
    pub(super) split: Option<Split>,
}

/// That all volumes of the group have changed roles.
fn swapped(group: &str, originals: &[Member]) -> ErrorBody {
    let names: Vec<&str> = originals.iter().map(|m| m.mirror.name.as_str()).collect();
    let (are, which) = match names.len() {
        1 => ("is the original", "the replica is"),
        _ => ("are the originals", "the replicas are"),
    };
    let site = originals.first().and_then(|m| m.mirror.source.split_once(':')).map(|(site, _)| site);
    let message = format!(
        "group {group}: {} {are} here already (swapped); there is nothing to take over",
        names.join(" and ")
    );
    ErrorBody::new(ErrorCode::Refused, message)
        .hint(format!("{which} at {}: the same command there", site.unwrap_or("the other site")))
}

impl Group {
    /// Those that are replicas, or were made writable by a person. What has changed roles is the original here and is not to be taken over.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn replicas(mut self, group: &str) -> Result<Group, ErrorBody> {
        let (originals, replicas): (Vec<Member>, Vec<Member>) =
            self.members.into_iter().partition(Member::is_original);
        if replicas.is_empty() {
            return Err(swapped(group, &originals));
        }
        self.members = replicas;
        self.originals = originals;
        Ok(self)
    }

    /// That some are left out, a line each.
    pub(super) fn note(&self, group: &str) -> String {
        let line =
            |name: &String| format!("{name} is in group {group} and holds nothing yet: it is left out\n");
        let original = |member: &Member| {
            format!("{} is the original here already (swapped): it is left as it is\n", member.mirror.name)
        };
        self.left_out.iter().map(line).chain(self.originals.iter().map(original)).collect()
    }

    /// The same for people who read along where a program reads the answer, whose form has no place for it.
    pub(super) fn note_aside(&self, context: &Context, group: &str) {
        if context.json {
            self.note(group).lines().for_each(|line| eprintln!("farside: {line}"));
        }
    }
}

/// The mirrors of the group, for a command that does this with them.
pub(super) async fn members(context: &Context, group: &str, verb: Verb) -> Result<Group, ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let overtaken: Vec<String> = mirrors.iter().filter_map(overtaken).map(|m| m.name.clone()).collect();
    let (with_version, left_out) = of_group(mirrors.clone(), group, verb)?;
    let split = halves::here(&mirrors, &with_version).filter(Split::is_half_swapped);
    let mut members = Vec::new();
    for mirror in with_version {
        let is_overtaken = overtaken.contains(&mirror.name);
        let mut member = Member { mirror, snapshots: Vec::new(), is_overtaken, is_taken_over: false };
        let (pool, volume) = member.split()?;
        member.snapshots = context.client.get(&["volumes", pool, volume, "snapshots"]).await?;
        members.push(member);
    }
    Ok(Group { members, left_out, originals: Vec::new(), split })
}

/// A replica of the group that holds a version: with its update the daemon updates all.
///
/// # Errors
/// If these are not all of the group: a part of it is used at another site.
pub(crate) async fn to_update(context: &Context, group: &str) -> Result<VolumeName, ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let (with_version, _) = of_group(mirrors.clone(), group, Verb::Update)?;
    if let Some(split) = halves::here(&mirrors, &with_version) {
        return Err(halves::no_update(&split.said(), &split, &with_version));
    }
    if let Some((site, split)) = halves::there(context, &with_version).await {
        return Err(halves::no_update(&halves::said_there(&site, &split), &split, &with_version));
    }
    if let Some(error) = none_follows(group, &with_version) {
        return Err(error);
    }
    // Of one that is broken off the daemon would say only that.
    let follows = with_version.iter().find(|m| m.state != MirrorState::BrokenOff);
    let one = follows.or(with_version.first()).map(|m| m.name.parse::<VolumeName>());
    match one {
        Some(Ok(name)) => Ok(name),
        _ => Err(ErrorBody::new(ErrorCode::Failed, format!("group {group}: its mirrors cannot be named"))),
    }
}

/// That there is nothing to update: hosts use all of the group here.
fn none_follows(group: &str, all: &[Mirror]) -> Option<ErrorBody> {
    if all.iter().any(|m| m.state != MirrorState::BrokenOff) {
        return None;
    }
    let is_original = |m: &Mirror| m.source_heard == Some(SourceHeard::Follows);
    let names = all.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ");
    let error = |what: &str| {
        ErrorBody::new(
            ErrorCode::Refused,
            format!("all of group {group} ({names}) {what}. Nothing was updated"),
        )
    };
    Some(match all.iter().all(is_original) {
        true => {
            let site = all.first().and_then(|m| m.source.split_once(':')).map_or("the other site", |(s, _)| s);
            error("are originals here: hosts write to them")
                .hint(format!("their replicas are at {site}: farside mirror update --group {group} there"))
        }
        false => error("is broken off, and hosts may write to it").hint(format!(
            "farside mirror resync --group {group} has them follow again; what hosts wrote here stays as a side branch of each"
        )),
    })
}

/// What takes over the rest of the group of a volume that was broken off by itself; nothing if there is no rest. It is for advice: of what
/// cannot be asked the group's own command says more.
pub(crate) async fn rest_after_break(context: &Context, of: &Mirror) -> String {
    let Some(group) = &of.group else { return String::new() };
    let of_group = members(context, group, Verb::Break).await.and_then(|all| all.replicas(group));
    let Ok(of_group) = of_group else { return String::new() };
    rest(group, &of_group.members)
}

fn rest(group: &str, members: &[Member]) -> String {
    let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
    if left.is_empty() {
        return String::new();
    }
    let at = decided(members).ok().flatten();
    let take_over = match choose(members, None, at, Line::Main) {
        Ok(_) => format!("To take over all of it: farside mirror break --group {group}"),
        Err(_) => each_alone(&left),
    };
    format!("it is of group {group}, of which nothing is updated from now on. {take_over}\n")
}

/// What takes over those that have no moment of the others.
fn each_alone(left: &[&Member]) -> String {
    let lines: Vec<String> = left.iter().map(|m| format!("farside mirror break {}", m.mirror.name)).collect();
    format!(
        "The rest has no snapshot of that moment, and can be taken over only as of another: {}",
        lines.join("; ")
    )
}

/// What else of its group hosts may write to here, and whether its former source follows that already. It is for advice: what cannot be asked
/// is nothing.
pub(crate) async fn in_use_beside(context: &Context, of: &Mirror) -> (Vec<String>, bool) {
    let Ok(mirrors) = context.client.get::<Vec<Mirror>>(&["mirrors"]).await else {
        return Default::default();
    };
    let group = group_of(of);
    let is_used = |m: &&Mirror| {
        m.role == Role::Destination
            && group.is_some()
            && group_of(m) == group
            && m.name != of.name
            && m.state == MirrorState::BrokenOff
            && m.source_heard != Some(SourceHeard::Released)
    };
    let used: Vec<&Mirror> = mirrors.iter().filter(is_used).collect();
    let is_followed = used.iter().any(|m| m.source_heard == Some(SourceHeard::Follows));
    (used.iter().map(|m| m.name.clone()).collect(), is_followed)
}

/// What whoever names a group that is not here may have meant.
fn groups_here(groups: &BTreeSet<String>) -> String {
    match groups.len() {
        0 => String::from(
            "there are no groups here; farside mirror set POOL/VOL --group NAME puts a mirror into one",
        ),
        _ => format!("groups here: {}", groups.iter().cloned().collect::<Vec<_>>().join(", ")),
    }
}

/// The replicas of the group that hold a version, and the names of those that do not: these are not updated with the others.
fn of_group(mirrors: Vec<Mirror>, group: &str, verb: Verb) -> Result<(Vec<Mirror>, Vec<String>), ErrorBody> {
    let groups: BTreeSet<String> =
        mirrors.iter().filter(|m| m.role == Role::Destination).filter_map(|m| m.group.clone()).collect();
    let all = of_name(mirrors, group, verb)?;
    let (empty, with_version): (Vec<Mirror>, Vec<Mirror>) = all.into_iter().partition(is_empty);
    match (with_version.is_empty(), empty.first()) {
        (false, _) => Ok((with_version, empty.into_iter().map(|m| m.name).collect())),
        (true, None) => {
            Err(ErrorBody::new(ErrorCode::NotFound, format!("no mirror here is in a group {group}"))
                .hint(groups_here(&groups)))
        }
        (true, Some(first)) => {
            if let Some((name, why)) = empty.iter().find_map(|m| Some((&m.name, m.why.as_ref()?))) {
                let message =
                    format!("group {group}: none of its mirrors has a copy that can be used; {name}: {why}");
                return Err(ErrorBody::new(ErrorCode::Refused, message)
                    .hint("farside mirror status says the same of each, with what to type"));
            }
            let message = match empty.len() {
                1 => format!("group {group}: its only mirror, {}, has no whole copy yet", first.name),
                count => format!("group {group}: none of its {count} mirrors has a whole copy yet"),
            };
            let (what, copies) = match empty.len() {
                1 => (first.name.clone(), "the first copy"),
                _ => (format!("--group {group}"), "the first copies"),
            };
            Err(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
                "farside mirror initialize {what} makes {copies}; farside mirror status shows how far it is"
            )))
        }
    }
}

/// The moment at which members of the group are broken off already, if some are.
pub(super) fn decided(members: &[Member]) -> Result<Option<Timestamp>, String> {
    let shows = |m: &Member| {
        let current = m.mirror.current_snapshot.as_deref()?;
        m.snapshots.iter().find(|s| s.name == current).map(|s| s.created_at)
    };
    let mut broken = members.iter().filter(|m| m.is_broken_off());
    let Some(first) = broken.next() else { return Ok(None) };
    let at = shows(first);
    match broken.find(|m| shows(m) != at) {
        None => Ok(at),
        Some(other) => Err(format!(
            "{} and {} are broken off already, at different points",
            first.mirror.name, other.mirror.name
        )),
    }
}

/// Where a moment may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// On what each volume shows, or has shown on the way there.
    Main,
    /// Also on side branches: what a break or a rollback has set aside.
    Any,
}

/// The newest instant that all members have: the one that a member calls `named`, or that is `decided`, where one is.
fn choose(
    members: &[Member],
    named: Option<&str>,
    decided: Option<Timestamp>,
    line: Line,
) -> Result<Instant, String> {
    let (Some(first), rest) = (members.first(), members.get(1..).unwrap_or_default()) else {
        return Err("it has no mirrors".into());
    };
    // A name can be given again: the moment says whether it is the same. What mirrors took is named by each.
    let is_same = |a: &Snapshot, b: &Snapshot| {
        // What was set aside of them by one command after the other has other names, and is of one moment still.
        let is_of_mirror = |s: &Snapshot| s.made_by != MadeBy::Person || s.taken_by.is_some();
        let are_mirrors = is_of_mirror(a) && is_of_mirror(b);
        // What one command set aside has one name. Of what hosts wrote that is all it has in common: each was frozen in its turn.
        let is_one_rescue = a.name == b.name && moment_of_name(&a.name).is_some();
        is_one_rescue || a.created_at == b.created_at && (a.name == b.name || are_mirrors)
    };
    let is_shown = |s: &&Snapshot| s.on_main_line || line == Line::Any;
    let in_member = |m: &Member, wanted: &Snapshot| {
        m.snapshots.iter().filter(is_shown).find(|s| is_same(s, wanted)).map(|s| s.name.clone())
    };
    let is_called = |at: Timestamp, name: &str| {
        members.iter().flat_map(|m| &m.snapshots).any(|s| s.created_at == at && s.name == name)
    };
    // What a resync has set aside may lie on the line, below what came since: nobody means that who names nothing.
    let is_aside = |s: &Snapshot| {
        named.is_none() && decided.is_none() && line == Line::Main && moment_of_name(&s.name).is_some()
    };
    let is_wanted = |s: &&Snapshot| {
        !is_aside(s)
            && decided.is_none_or(|at| s.created_at == at)
            && named.is_none_or(|name| is_called(s.created_at, name))
    };
    let instant = |s: &Snapshot| {
        let others: Option<Vec<String>> = rest.iter().map(|m| in_member(m, s)).collect();
        let names = std::iter::once(s.name.clone()).chain(others?).collect();
        Some(Instant { created_at: s.created_at, names })
    };
    let common = first.snapshots.iter().filter(is_shown).filter(is_wanted).filter_map(instant);
    common.max_by_key(|instant| instant.created_at).ok_or_else(|| match (named, decided) {
        (Some(named), Some(at)) => {
            format!("one is broken off already, as of {at}, and that is not the moment of {named}")
        }
        (Some(named), None) => format!("not all of its mirrors have a snapshot of the moment of {named}"),
        (None, Some(at)) => {
            format!("one is broken off already, as of {at}, and not all of the others have a snapshot of that moment")
        }
        (None, None) => "its mirrors have no snapshot of one moment in common".into(),
    })
}

/// # Errors
/// If no member has a snapshot of this name.
pub(super) fn known(group: &str, members: &[Member], named: &str) -> Result<(), ErrorBody> {
    if members.iter().flat_map(|m| &m.snapshots).any(|s| s.name == named) {
        return Ok(());
    }
    let first = members.first().map_or("POOL/VOL", |m| m.mirror.name.as_str());
    let message = format!("no replica of group {group} has a snapshot {named}. Nothing was changed");
    Err(ErrorBody::new(ErrorCode::Refused, message)
        .hint(format!("farside snapshot list {first} shows what is there")))
}

/// The same, with what to do where there is none.
pub(super) fn instant_of(
    group: &str,
    members: &[Member],
    named: Option<&str>,
    decided: Option<Timestamp>,
    line: Line,
) -> Result<Instant, ErrorBody> {
    if let Some(named) = named {
        known(group, members, named)?;
    }
    choose(members, named, decided, line).map_err(|why| {
        let lack = lacking(members, named, decided, line);
        let lack = if lack.is_empty() { lack } else { format!("; {lack}") };
        ErrorBody::new(ErrorCode::Refused, format!("group {group}: {why}{lack}. Nothing was changed"))
            .hint(instead(group, members, decided, line))
    })
}

/// Which members lack the moment that was asked for; nothing if none was, or it is not one.
fn lacking(members: &[Member], named: Option<&str>, decided: Option<Timestamp>, line: Line) -> String {
    let all = || members.iter().flat_map(|m| &m.snapshots);
    let moments: BTreeSet<Timestamp> = match (named, decided) {
        (Some(named), _) => all().filter(|s| s.name == named).map(|s| s.created_at).collect(),
        (None, Some(at)) => BTreeSet::from([at]),
        (None, None) => return String::new(),
    };
    let Some(at) = moments.first().filter(|_| moments.len() == 1) else { return String::new() };
    // What lies beside the line of one is not gone: who names it is not to believe that.
    let has = |m: &&Member| {
        let counts = |s: &Snapshot| s.on_main_line || line == Line::Any || named.is_some();
        m.snapshots.iter().any(|s| s.created_at == *at && counts(s))
    };
    let lack: Vec<&str> = members.iter().filter(|m| !has(m)).map(|m| m.mirror.name.as_str()).collect();
    match lack[..] {
        [] => String::new(),
        [one] => format!("{one} lacks it"),
        _ => format!("{} lack it", lack.join(", ")),
    }
}

/// What can be had instead: the newest moments that all have, by what to type.
pub(super) fn instead(group: &str, members: &[Member], decided: Option<Timestamp>, line: Line) -> String {
    let common = match newest_common(members, line) {
        // A rollback of all gets there.
        none if none.is_empty() && decided.is_some() => newest_common(members, Line::Any),
        common => common,
    };
    if common.is_empty() && decided.is_some() {
        let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
        return match left.is_empty() {
            true => "farside mirror status shows what each holds".into(),
            false => each_alone(&left),
        };
    }
    if common.is_empty() {
        return "an update brings all mirrors of a group to one moment, while their sources are there: farside mirror update POOL/VOL; \
                without --group each command works on one mirror by itself"
            .into();
    }
    let each: Vec<String> = named_first(members, &common)
        .into_iter()
        .filter_map(|instant| Some(format!("--at {} ({})", instant.names.first()?, instant.created_at)))
        .collect();
    let more = common.len() - each.len();
    let more = match (more, members.first()) {
        (0, _) | (_, None) => String::new(),
        (more, Some(first)) => format!(", and {more} more (farside snapshot list {})", first.mirror.name),
    };
    let have = format!("what all of them have, the newest first: {}{more}", each.join(", "));
    match decided {
        None => have,
        // Where one is broken off already, another moment is to be had for all only afterwards.
        Some(at) => {
            by_themselves(members, at).unwrap_or_default()
                + &format!(
                    "{have}: farside mirror break POOL/VOL breaks off each of the others, then farside snapshot rollback --group {group} with \
             one of these takes all of them to it"
                )
        }
    }
}

/// The newest moments that all members have.
fn newest_common(members: &[Member], line: Line) -> Vec<Instant> {
    let Some(first) = members.first() else { return Vec::new() };
    let is_shown = |s: &&Snapshot| s.on_main_line || line == Line::Any;
    let moments: BTreeSet<Timestamp> =
        first.snapshots.iter().filter(is_shown).map(|s| s.created_at).collect();
    let instants = moments.into_iter().rev().filter_map(|at| choose(members, None, Some(at), line).ok());
    instants.take(COMMON_MAX).collect()
}

/// So many are looked for.
const COMMON_MAX: usize = 256;
/// So many of them are named, and as many of those that a person has named.
const NEWEST_COMMON: usize = 3;

/// Which of the moments, the newest first, are named: the newest, and those to which a person has given a name.
fn named_first<'a>(members: &[Member], common: &'a [Instant]) -> Vec<&'a Instant> {
    let is_of_person = |instant: &&Instant| {
        let of_first = members.first().zip(instant.names.first());
        of_first.is_some_and(|(first, name)| {
            first
                .snapshots
                .iter()
                .any(|s| s.name == *name && s.made_by == MadeBy::Person && s.taken_by.is_none())
        })
    };
    let (newest, rest) = common.split_at(common.len().min(NEWEST_COMMON));
    newest.iter().chain(rest.iter().filter(is_of_person).take(NEWEST_COMMON)).collect()
}

/// Where what one went on from was set aside of it by itself, so was what the others would go on from, under other names: what to type for
/// each; none if it was not.
fn by_themselves(members: &[Member], decided: Timestamp) -> Option<String> {
    let is_rescue = |s: &Snapshot| s.created_at == decided && s.name.starts_with("rescue-");
    let is_it = |m: &&Member| m.is_broken_off() && m.snapshots.iter().any(&is_rescue);
    members.iter().find(is_it)?;
    let lines: Vec<String> = members
        .iter()
        .filter(|m| !m.is_broken_off())
        .map(|m| {
            Some(format!("farside mirror break {} --at {}", m.mirror.name, m.mirror.set_aside.as_ref()?.name))
        })
        .collect::<Option<_>>()?;
    Some(format!("to go on from what was set aside of each by itself: {}. Or ", lines.join("; ")))
}

#[cfg(test)]
pub(super) mod tests {
    use farside_api::TakenBy;
    use serde_json::json;

    use super::*;

    /// That the volume of a member was taken over by another site.
    pub(in crate::commands::mirror::group) fn overtaken(member: Member) -> Member {
        Member { is_overtaken: true, ..member }
    }

    impl Member {
        /// A snapshot of it lies on a side branch.
        pub(in crate::commands::mirror::group) fn aside(mut self, name: &str) -> Member {
            self.snapshots.iter_mut().filter(|s| s.name == name).for_each(|s| s.on_main_line = false);
            self
        }
    }

    /// One whose former source follows it.
    pub(in crate::commands::mirror::group) fn original(name: &str) -> Member {
        let mut member = member(name, "broken-off", None, &[]);
        member.mirror.source_heard = Some(SourceHeard::Follows);
        member
    }

    pub(in crate::commands::mirror::group) fn member(
        name: &str,
        state: &str,
        current: Option<&str>,
        snapshots: &[(&str, &str)],
    ) -> Member {
        let mirror = json!({
            "id": "00000000-0000-0000-0000-000000000000", "name": name, "role": "destination", "source": "a:p/v",
            "destination": name, "state": state, "why": null, "lag_seconds": null, "objective_seconds": null,
            "current_snapshot": current, "content_root": null, "base_snapshot": null, "last_proven_at": null,
            "schedule": null, "throttle": null, "transfer": null
        });
        let snapshot = |(name, at): &(&str, &str)| {
            let made_by = if name.starts_with("mirror-") { "mirror" } else { "person" };
            let document = json!({
                "made_by": made_by, "name": name, "volume": "q/v", "uuid": "00000000-0000-0000-0000-000000000000", "content_root": null,
                "created_at": format!("2026-11-26T{at}:00Z"), "held": false, "referenced_bytes": null, "unique_bytes": null
            });
            serde_json::from_value(document).unwrap()
        };
        Member {
            mirror: serde_json::from_value(mirror).unwrap(),
            snapshots: snapshots.iter().map(snapshot).collect(),
            is_overtaken: false,
            is_taken_over: false,
        }
    }

    #[test]
    fn the_newest_instant_that_all_have() {
        let a = member(
            "q/a",
            "mirrored",
            None,
            &[("s1", "10:00"), ("s2", "11:00"), ("mirror-1", "11:30"), ("s3", "12:00")],
        );
        let b = member("q/b", "transferring", None, &[("s1", "10:00"), ("s2", "11:00"), ("s3", "12:07")]);
        let both = [a, b];
        let names = |named| choose(&both, named, None, Line::Main).unwrap().names;
        assert_eq!(names(None), ["s2", "s2"], "s3 is of another moment in each");
        assert_eq!(names(Some("s1")), ["s1", "s1"]);
        assert!(choose(&both, Some("s3"), None, Line::Main).unwrap_err().contains("s3"));
        let c = member("q/c", "mirrored", None, &[("mirror-2", "11:30")]);
        let [a, b] = both;
        assert!(
            choose(&[a, b, c], None, None, Line::Main).unwrap_err().contains("no snapshot of one moment")
        );
        assert!(choose(&[], None, None, Line::Main).is_err());
    }

    #[test]
    fn what_mirrors_took_is_the_same_by_its_moment_alone() {
        let both = [
            member("q/a", "mirrored", None, &[("s1", "10:00"), ("mirror-1", "11:30"), ("x", "12:00")]),
            member("q/b", "mirrored", None, &[("s1", "10:00"), ("mirror-2", "11:30"), ("y", "12:00")]),
        ];
        let names = |named| choose(&both, named, None, Line::Main).unwrap().names;
        assert_eq!(names(None), ["mirror-1", "mirror-2"], "of what persons made the name counts, too");
        assert_eq!(names(Some("mirror-2")), ["mirror-1", "mirror-2"], "whichever calls it so");
    }

    #[test]
    fn what_is_broken_off_already_decides() {
        let all = [("s1", "10:00"), ("s2", "11:00"), ("s3", "12:00")];
        let both = [member("q/a", "broken-off", Some("s2"), &all), member("q/b", "mirrored", None, &all)];
        let before = decided(&both).unwrap();
        assert_eq!(choose(&both, None, before, Line::Main).unwrap().names, ["s2", "s2"]);
        assert!(choose(&both, Some("s3"), before, Line::Main).is_err());
        let [a, b] = both;
        let other = member("q/c", "broken-off", Some("s3"), &all);
        assert!(decided(&[a, b, other]).unwrap_err().contains("different points"));
    }

    #[test]
    fn what_one_command_has_set_aside_is_of_one_moment() {
        let rescue = "rescue-2026-11-26T12:00:00.000000Z";
        let mut both = [
            member("q/a", "broken-off", None, &[("s1", "10:00"), (rescue, "12:00")]),
            member("q/b", "broken-off", None, &[("s1", "10:00"), (rescue, "12:01")]),
        ];
        both.iter_mut().for_each(|member| member.snapshots[1].on_main_line = false);
        assert_eq!(choose(&both, Some(rescue), None, Line::Any).unwrap().names, [rescue, rescue]);
        assert!(choose(&both, Some(rescue), None, Line::Main).is_err());
    }

    #[test]
    fn what_nobody_has_is_said_to_be_nowhere() {
        let both = [
            member("q/a", "mirrored", None, &[("s1", "10:00"), ("s2", "11:00")]),
            member("q/b", "mirrored", None, &[("s1", "10:00")]),
        ];
        let said = |named| instant_of("shop", &both, Some(named), None, Line::Main).unwrap_err();
        assert_eq!(said("s11").message, "no replica of group shop has a snapshot s11. Nothing was changed");
        assert!(said("s11").hint.unwrap().contains("farside snapshot list q/a"));
        let lacks = said("s2");
        assert!(
            lacks
                .message
                .contains("not all of its mirrors have a snapshot of the moment of s2; q/b lacks it")
        );
        let hint = lacks.hint.unwrap();
        assert!(hint.ends_with("the newest first: --at s1 (2026-11-26T10:00:00Z)"), "{hint}");
        assert!(!hint.contains("farside mirror update"), "{hint}");
    }

    #[test]
    fn what_was_set_aside_one_after_the_other_is_the_same_by_its_moment() {
        let (one, other) = ("rescue-2026-11-26T12:00:00.000000Z", "rescue-2026-11-26T12:05:00.000000Z");
        let mut both = [
            member("q/a", "broken-off", None, &[("s1", "10:00"), (one, "11:00")]),
            member("q/b", "broken-off", None, &[("s1", "10:00"), (other, "11:00")]),
        ];
        for member in &mut both {
            member.snapshots[1].on_main_line = false;
            member.snapshots[1].taken_by = Some(TakenBy::Rescue);
        }
        assert_eq!(choose(&both, Some(one), None, Line::Any).unwrap().names, [one, other]);
        // What hosts wrote was frozen in its turn, and is of no one moment.
        both[1].snapshots[1].created_at = both[1].snapshots[0].created_at;
        assert!(choose(&both, Some(one), None, Line::Any).is_err());
    }

    #[test]
    fn the_plan_of_a_part_does_not_advise_what_was_typed() {
        let would = vec![
            "hosts may write to q/a".to_owned(),
            "the others stay; farside mirror break --group shop takes all of them over".to_owned(),
        ];
        let plan = || Plan { would: would.clone(), ..Plan::default() };
        assert_eq!(without_advice(plan(), "farside mirror break --group shop ").would, would[..1]);
        assert_eq!(without_advice(plan(), "farside mirror break --group sh ").would, would);
    }

    #[test]
    fn what_has_changed_roles_is_not_taken_over() {
        let group = |members| Group { members, left_out: Vec::new(), originals: Vec::new(), split: None };
        let some = vec![original("q/a"), member("q/b", "mirrored", None, &[])];
        let left = group(some).replicas("shop").unwrap();
        assert_eq!(left.members.len(), 1);
        assert!(left.note("shop").contains("q/a is the original here already (swapped)"));
        let none = group(vec![original("q/a"), original("q/b")]).replicas("shop").err().unwrap();
        assert!(none.message.contains("q/a and q/b are the originals here already"), "{}", none.message);
        // What a person has broken off is still of the group.
        assert!(group(vec![member("q/a", "broken-off", None, &[])]).replicas("shop").is_ok());
    }

    #[test]
    fn who_holds_nothing_is_left_out_and_named() {
        let mirror = |name, state| member(name, state, None, &[]).mirror;
        let in_shop = |m: Mirror| Mirror { group: Some("shop".into()), ..m };
        let of = |mirrors: &[Mirror]| of_group(mirrors.to_vec(), "shop", Verb::Break);
        let (a, b) = (in_shop(mirror("q/a", "mirrored")), in_shop(mirror("q/b", "uninitialized")));
        let c = in_shop(mirror("q/c", "initializing"));
        let (with, without) = of(&[a.clone(), b.clone(), mirror("q/d", "mirrored")]).unwrap();
        assert_eq!((with, &without[..]), (vec![a], &["q/b".to_owned()][..]));
        let none = of(&[b.clone(), c]).unwrap_err();
        assert_eq!(none.message, "group shop: none of its 2 mirrors has a whole copy yet");
        assert!(of(&[b]).unwrap_err().message.contains("its only mirror, q/b"));
        assert_eq!(of(&[]).unwrap_err().code, ErrorCode::NotFound);
    }
}
