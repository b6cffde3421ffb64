//! `farside mirror break --group`: all mirrors of a group, at one instant.
//!
//! Volumes of one source that a timetable (or one `snapshot create`) took together have snapshots of the same name and moment; these travel
//! with each mirror. The newest of them that every member has is the instant. Which that is, is pure ([`choose`]). Each break is one record of
//! its pool; whoever is interrupted in between runs the command again: what is broken off already says which instant it was.

use farside_api::{BreakMirror, ErrorBody, ErrorCode, Mirror, MirrorState, Plan, Role, Snapshot, Timestamp};
use reqwest::Method;
use serde::Serialize;

use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::confirm::{DestructiveRequest, Impact, ask, carry_out, describe, is_interactive};
use crate::output::{json, print};
use crate::quantities::time;

/// A mirror of the group, and the snapshots of its replica.
struct Member {
    mirror: Mirror,
    snapshots: Vec<Snapshot>,
}

/// What all members have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Instant {
    snapshot: String,
    created_at: Timestamp,
}

/// What came of it.
#[derive(Serialize)]
struct Broken {
    group: String,
    #[serde(flatten)]
    instant: Instant,
    mirrors: Vec<Mirror>,
}

pub(super) async fn break_off(
    context: &Context,
    group: &str,
    at: Option<String>,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let members = members(context, group).await?;
    let instant = choose(&members, at.as_deref()).map_err(|why| {
        ErrorBody::new(ErrorCode::Refused, format!("group {group}: {why}. Nothing was changed")).hint(
            "snapshots of one instant come from one command or timetable at the source: farside snapshot schedule \
             POOL/VOL1 POOL/VOL2 --every 1m --keep last=10; farside mirror break POOL/VOL breaks one mirror off by itself",
        )
    })?;
    let left: Vec<&Member> = members.iter().filter(|m| m.mirror.state != MirrorState::BrokenOff).collect();
    let request = BreakMirror { at: Some(instant.snapshot.clone()) };
    if destructive.plan || (!destructive.yes && is_interactive()) {
        let mut plans = Vec::new();
        for member in &left {
            let path = path_of(&member.mirror)?;
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let plan: Plan =
                context.client.request(Method::POST, &path, &[("plan", "true")], Some(&request)).await?;
            plans.push(plan);
        }
        let all = headline(group, &instant, left.len()) + &plans.iter().map(describe).collect::<String>();
        if destructive.plan {
            if context.json {
                json(&plans)
            } else {
                print(&all)
            }
            return Ok(());
        }
        // Once for all of them.
        if !ask(&all) {
            return Err(ErrorBody::new(ErrorCode::Failed, "cancelled; nothing was changed"));
        }
    }
    let mut broken = Vec::new();
    for (at, member) in left.iter().enumerate() {
        let path = path_of(&member.mirror)?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let one = DestructiveRequest {
            method: Method::POST,
            path: &path,
            body: Some(&request),
            impact: Impact::Service,
        };
        let consent = Destructive { plan: false, yes: true };
        let done =
            carry_out::<Mirror>(&context.client, one, consent, context.json).await.map_err(|error| {
                let message = format!(
                    "{} of {} mirrors of group {group} are broken off at {}; {} is not: {}",
                    members.len() - left.len() + at,
                    members.len(),
                    instant.snapshot,
                    member.mirror.name,
                    error.message
                );
                ErrorBody::new(error.code, message)
                    .hint("the same command goes on with the others, at the same instant")
            })?;
        broken.extend(done);
    }
    let done = Broken { group: group.to_owned(), instant, mirrors: broken };
    context.show(&done, |done| {
        let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
        format!("{} are writable, all as of {}\n", names.join(", "), time(done.instant.created_at))
    });
    Ok(())
}

fn headline(group: &str, instant: &Instant, left: usize) -> String {
    format!(
        "group {group}: {left} mirrors to break off, all at {} ({})\n",
        instant.snapshot,
        time(instant.created_at)
    )
}

async fn members(context: &Context, group: &str) -> Result<Vec<Member>, ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let is_member = |m: &Mirror| m.role == Role::Destination && m.group.as_deref() == Some(group);
    let mut members = Vec::new();
    for mirror in mirrors.into_iter().filter(is_member) {
        let (pool, volume) = split(&mirror.name)?;
        let snapshots = context.client.get(&["volumes", pool, volume, "snapshots"]).await?;
        members.push(Member { mirror, snapshots });
    }
    match members.is_empty() {
        false => Ok(members),
        true => Err(ErrorBody::new(ErrorCode::NotFound, format!("no mirror here is in a group {group}"))
            .hint("farside mirror set POOL/VOL --group NAME puts one into it")),
    }
}

fn split(name: &str) -> Result<(&str, &str), ErrorBody> {
    name.split_once('/').ok_or_else(|| ErrorBody::new(ErrorCode::Failed, format!("{name:?} is no volume")))
}

fn path_of(mirror: &Mirror) -> Result<[String; 4], ErrorBody> {
    let (pool, volume) = split(&mirror.name)?;
    Ok(["mirrors".into(), pool.into(), volume.into(), "break".into()])
}

/// The newest instant that all members have, or the one that is named.
fn choose(members: &[Member], named: Option<&str>) -> Result<Instant, String> {
    // What was broken off already decides.
    let mut broken = members.iter().filter(|m| m.mirror.state == MirrorState::BrokenOff);
    let first_broken = broken.next();
    let decided = first_broken.and_then(|m| m.mirror.current_snapshot.as_deref());
    if let (Some(first), Some(decided)) = (first_broken, decided)
        && let Some(other) = broken.find(|m| m.mirror.current_snapshot.as_deref() != Some(decided))
    {
        return Err(format!(
            "{} and {} are broken off already, at different points",
            first.mirror.name, other.mirror.name
        ));
    }
    let (Some(first), rest) = (members.first(), members.get(1..).unwrap_or_default()) else {
        return Err("it has no mirrors".into());
    };
    let is_wanted = |s: &&Snapshot| {
        decided.is_none_or(|decided| s.name == decided) && named.is_none_or(|named| s.name == named)
    };
    // A name can be given again: the moment says whether it is the same.
    let has = |m: &Member, wanted: &Snapshot| {
        m.snapshots
            .iter()
            .any(|s| s.name == wanted.name && s.created_at == wanted.created_at && s.on_main_line)
    };
    let common = first.snapshots.iter().filter(|s| s.on_main_line).filter(is_wanted);
    let common = common.filter(|s| rest.iter().all(|m| has(m, s)));
    let newest = common.max_by_key(|s| s.created_at);
    newest.map(|s| Instant { snapshot: s.name.clone(), created_at: s.created_at }).ok_or_else(|| match (named, decided) {
        (Some(named), _) => format!("not all of its mirrors have a snapshot {named} of one moment"),
        (None, Some(decided)) => {
            format!("one is broken off already, at {decided}, and not all of the others have a snapshot of that moment")
        }
        (None, None) => "its mirrors have no snapshot of one moment in common".into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, state: &str, current: Option<&str>, snapshots: &[(&str, &str)]) -> Member {
        let mirror = json!({
            "id": "00000000-0000-0000-0000-000000000000", "name": name, "role": "destination", "source": "a:p/v",
            "destination": name, "state": state, "why": null, "lag_seconds": null, "objective_seconds": null,
            "current_snapshot": current, "content_root": null, "base_snapshot": null, "last_proven_at": null,
            "schedule": null, "throttle": null, "transfer": null
        });
        let snapshot = |(name, at): &(&str, &str)| {
            let document = json!({
                "name": name, "volume": "q/v", "uuid": "00000000-0000-0000-0000-000000000000", "content_root": null,
                "created_at": format!("2026-11-26T{at}:00Z"), "held": false, "referenced_bytes": null, "unique_bytes": null
            });
            serde_json::from_value(document).unwrap()
        };
        Member {
            mirror: serde_json::from_value(mirror).unwrap(),
            snapshots: snapshots.iter().map(snapshot).collect(),
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
        assert_eq!(choose(&both, None).unwrap().snapshot, "s2", "s3 is of another moment in each");
        assert_eq!(choose(&both, Some("s1")).unwrap().snapshot, "s1");
        assert!(choose(&both, Some("s3")).unwrap_err().contains("s3"));
        let c = member("q/c", "mirrored", None, &[("mirror-2", "11:30")]);
        let [a, b] = both;
        assert!(choose(&[a, b, c], None).unwrap_err().contains("no snapshot of one moment"));
        assert!(choose(&[], None).is_err());
    }

    #[test]
    fn what_is_broken_off_already_decides() {
        let all = [("s1", "10:00"), ("s2", "11:00"), ("s3", "12:00")];
        let broken = member("q/a", "broken-off", Some("s2"), &all);
        let both = [broken, member("q/b", "mirrored", None, &all)];
        assert_eq!(choose(&both, None).unwrap().snapshot, "s2");
        assert!(choose(&both, Some("s3")).is_err());
        let [a, b] = both;
        let other = member("q/c", "broken-off", Some("s3"), &all);
        assert!(choose(&[a, b, other], None).unwrap_err().contains("different points"));
    }
}
