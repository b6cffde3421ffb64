//! What hosts wrote to those of a group that were broken off before the others: of these no moment of the past can be promised.

use farside_api::{ErrorBody, ErrorCode, Plan, StartRollback, Timestamp};
use reqwest::Method;

use super::members::Member;
use crate::commands::context::Context;
use crate::quantities::{size, time};

/// What a volume holds that its break point does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Since {
    /// Nothing: it is as it was then.
    Nothing,
    /// So many bytes differ.
    Written(u64),
    /// It cannot be asked, or was not counted.
    Unknown,
}

/// Of one that is broken off: its name, the snapshot that it was broken off at, and what it holds since.
pub(super) type Earlier<'a> = (&'a str, &'a str, Since);

/// The way back to the break point is planned and not gone: its plan says what would go out of sight.
pub(super) async fn since_break<'a>(
    context: &Context,
    members: &'a [Member],
) -> Result<Vec<Earlier<'a>>, ErrorBody> {
    let mut earlier = Vec::new();
    for member in members.iter().filter(|m| m.is_broken_off()) {
        let Some(shown) = member.mirror.current_snapshot.as_deref() else { continue };
        earlier.push((member.mirror.name.as_str(), shown, since(context, member, shown).await?));
    }
    Ok(earlier)
}

/// What the volume of a member holds that a snapshot of it does not have.
pub(super) async fn since(context: &Context, member: &Member, snapshot: &str) -> Result<Since, ErrorBody> {
    let (pool, volume) = member.split()?;
    let path = ["volumes", pool, volume, "snapshots", snapshot, "rollback"];
    let body = None::<&StartRollback>;
    let plan: Result<Plan, ErrorBody> =
        context.client.request(Method::POST, &path, &[("plan", "true")], body).await;
    match plan {
        Ok(plan) => Ok(of_plan(&plan)),
        Err(error) if error.code == ErrorCode::DaemonUnreachable => Err(error),
        Err(_) => Ok(Since::Unknown),
    }
}

fn of_plan(plan: &Plan) -> Since {
    match (&plan.kept_as, plan.kept_bytes) {
        (None, _) | (_, Some(0)) => Since::Nothing,
        (Some(_), Some(bytes)) => Since::Written(bytes),
        (Some(_), None) => Since::Unknown,
    }
}

/// That others are not broken off as of a moment which one of the group does not show any more; none if it may be done. `left`: those
/// others, and what the moment is called in each.
pub(super) fn refused(
    group: &str,
    at: Timestamp,
    earlier: &[Earlier<'_>],
    left: &[(&str, &str)],
) -> Option<ErrorBody> {
    let written: Vec<(&str, &str, u64)> = earlier
        .iter()
        .filter_map(|(name, shown, since)| match since {
            Since::Written(bytes) => Some((*name, *shown, *bytes)),
            Since::Nothing | Since::Unknown => None,
        })
        .collect();
    let (_, first_shown, _) = written.first()?;
    let (first_left, _) = left.first()?;
    let each: Vec<String> = written
        .iter()
        .map(|(name, _, bytes)| {
            format!(
                "{name} was broken off already, as of {}, and hosts have written to it since ({} differ)",
                time(at),
                size(*bytes)
            )
        })
        .collect();
    let others: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
    let message = format!(
        "group {group}: {}. {} as of that moment would not fit. Nothing was changed",
        each.join("; "),
        others.join(", ")
    );
    let back: Vec<String> =
        written.iter().map(|(name, shown, _)| format!("farside snapshot rollback {name}@{shown}")).collect();
    let breaks: Vec<String> =
        left.iter().map(|(name, shown)| format!("farside mirror break {name} --at {shown}")).collect();
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "to have all of it as of {}: {}, then this again; or {}, then farside snapshot rollback --group {group} --at {first_shown} (what \
         hosts wrote stays as a side branch). Whoever goes without one moment breaks {first_left} off by itself",
        time(at),
        back.join("; "),
        breaks.join("; ")
    )))
}

/// A line for each that may not be as of the moment of the others.
pub(super) fn note(at: Timestamp, earlier: &[Earlier<'_>]) -> String {
    earlier
        .iter()
        .filter_map(|(name, _, since)| {
            let have = match since {
                Since::Nothing => return None,
                Since::Written(_) => "have written since",
                Since::Unknown => "may have written since",
            };
            Some(format!(
                "{name} was broken off already, as of {}, and hosts {have}: it stays as it is now, not as of then\n",
                time(at)
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_wrote_since_a_break_keeps_the_others() {
        let at: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let left = [("q/data", "mirror-2")];
        let of = |since| vec![("q/wal", "mirror-1", since)];
        let said = refused("shop", at, &of(Since::Written(4096)), &left).unwrap();
        assert_eq!(said.code, ErrorCode::Refused);
        assert!(
            said.message.contains("q/wal was broken off already, as of 2026-11-26T12:00:00Z"),
            "{said:?}"
        );
        assert!(said.message.contains("hosts have written to it since (4.0 KiB differ)"), "{said:?}");
        let hint = said.hint.unwrap();
        assert!(hint.contains("farside snapshot rollback q/wal@mirror-1, then this again"), "{hint}");
        assert!(hint.contains("farside mirror break q/data --at mirror-2"), "{hint}");
        assert!(hint.contains("farside snapshot rollback --group shop --at mirror-1"), "{hint}");
        for since in [Since::Nothing, Since::Unknown] {
            assert_eq!(refused("shop", at, &of(since), &left), None);
        }
        assert_eq!(refused("shop", at, &of(Since::Written(1)), &[]), None, "nothing is left to break off");
        assert_eq!(note(at, &of(Since::Nothing)), "");
        assert!(
            note(at, &of(Since::Unknown)).contains("hosts may have written since: it stays as it is now")
        );
    }

    #[test]
    fn the_plan_of_the_way_back_says_what_was_written() {
        let plan = |kept: bool, bytes| Plan {
            kept_as: kept.then(|| "q/v@rescue".to_owned()),
            kept_bytes: bytes,
            ..Plan::default()
        };
        assert_eq!(of_plan(&plan(false, None)), Since::Nothing);
        assert_eq!(of_plan(&plan(true, Some(4096))), Since::Written(4096));
        assert_eq!(of_plan(&plan(true, None)), Since::Unknown, "it was not counted");
    }
}
