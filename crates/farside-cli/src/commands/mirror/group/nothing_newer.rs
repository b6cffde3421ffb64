//! Of what a command has set aside, a member that had nothing newer has no part: what it showed then is a snapshot of another name. Of a
//! break that can be told, as each was a replica until then; what hosts and persons have made of it since cannot.

use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, LogEvent, LogLine, Timestamp};

use super::members::Member;
use super::moments::Instant;
use super::set_aside::moment_of_name;
use crate::commands::context::Context;

/// One command breaks all members off, one after the other. Each may wait for a slow pool.
const ONE_COMMAND: Duration = Duration::from_secs(60);

/// So many lines of the log are looked at: more than retention, updates and drills write between a break and the way back.
const LINES: &str = "1000";

/// Where all of the group were at the moment that `named` is called by, if it is what a command has set aside of some members only; with
/// a line for each of the others. None if it is nothing of the kind.
///
/// # Errors
/// If it cannot be told what one of the others showed.
pub(super) async fn look(
    context: &Context,
    group: &str,
    members: &[Member],
    named: &str,
) -> Result<Option<(Instant, String)>, ErrorBody> {
    let holder = members.iter().find(|m| m.created_at(named).is_some());
    let (Some(at), Some(holder)) = (moment_of_name(named), holder) else { return Ok(None) };
    let Some(created_at) = holder.created_at(named) else { return Ok(None) };
    if members.iter().all(|m| m.created_at(named).is_some()) {
        return Ok(None);
    }
    let is_of_break = is_of_break(&log(context, holder).await, named);
    let (mut names, mut note) = (Vec::new(), String::new());
    for member in members {
        if member.created_at(named).is_some() {
            names.push(named.to_owned());
            continue;
        }
        let log = if is_of_break { log(context, member).await } else { Vec::new() };
        let is_sure = is_of_break && was_replica(&log, at);
        match member.shows_since(at).filter(|_| is_sure) {
            Some(shown) => {
                names.push(shown.to_owned());
                note += &format!(
                    "{} had nothing newer then: it is taken as {shown} is, which it showed\n",
                    member.mirror.name
                );
            }
            None => return Err(unknown(group, &holder.mirror.name, member, named)),
        }
    }
    Ok(Some((Instant { created_at, names }, note)))
}

/// What there is of a member's mirror in the log, the newest first; nothing if it cannot be asked.
async fn log(context: &Context, member: &Member) -> Vec<LogLine> {
    let query = [("volume", member.mirror.name.as_str()), ("limit", LINES)];
    let mut lines: Vec<LogLine> = context.client.get_with(&["log"], &query).await.unwrap_or_default();
    lines.reverse();
    lines
}

/// Whether a break has set it aside. What a rollback does is in no log.
fn is_of_break(log: &[LogLine], named: &str) -> bool {
    // The name ends the sentence that says it.
    let is_it = |line: &LogLine| {
        let kept = line.reason.as_deref().and_then(|reason| reason.rsplit([' ', '@']).next());
        line.event == LogEvent::Rescue && kept == Some(named)
    };
    let at = log.iter().position(is_it);
    at.and_then(|at| log.get(at + 1)).is_some_and(|before| before.event == LogEvent::Break)
}

/// Whether the member was a replica until a moment, or until the command that this is the moment of.
fn was_replica(log: &[LogLine], at: Timestamp) -> bool {
    let broken_off = log.iter().find(|line| line.event == LogEvent::Break);
    broken_off.is_some_and(|line| at.duration_since(line.at).as_secs_f64() < ONE_COMMAND.as_secs_f64())
}

/// What was meant of a member is for a person to say.
fn unknown(group: &str, holder: &str, member: &Member, named: &str) -> ErrorBody {
    let name = &member.mirror.name;
    let message = format!(
        "group {group}: {name} has no {named}: there was nothing newer of it to set aside then, or that is gone, and what it showed then \
         cannot be told for certain. Nothing was changed"
    );
    let now = member.mirror.current_snapshot.as_ref();
    let now = now.map(|now| format!("; what it goes on from now is {name}@{now}")).unwrap_or_default();
    ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "farside snapshot list {name} shows what it has{now}. Each volume by itself: farside snapshot rollback {holder}@{named}, and \
         farside snapshot rollback {name}@SNAP"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::members::tests::member;
    use super::*;

    const RESCUE: &str = "rescue-2026-11-26T12:00:00.000000Z";

    fn line(event: &str, at: &str, reason: Option<&str>) -> LogLine {
        let document = json!({
            "at": format!("2026-11-26T{at}Z"), "mirror": "q/v", "relationship": uuid::Uuid::nil(), "event": event, "kind": null,
            "transfer": null, "requested_by": null, "bytes": null, "reason": reason,
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn only_of_a_break_it_is_known_what_the_others_showed() {
        let at: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let said = format!("what the volume showed until then is kept as {RESCUE}");
        let broken = [line("rescue", "12:00:01", Some(&said)), line("break", "12:00:00", None)];
        assert!(is_of_break(&broken, RESCUE));
        assert!(!is_of_break(&broken, "rescue-2026-11-26T12:00:07.000000Z"));
        assert!(!is_of_break(
            &[line("rescue", "12:00:01", Some(RESCUE)), line("resync", "12:00:00", None)],
            RESCUE
        ));
        assert!(!is_of_break(&[line("break", "12:00:00", None)], RESCUE), "a rollback");
        // Broken off just before by the same command, or later; not an hour before.
        assert!(was_replica(&[line("break", "11:59:59", None)], at));
        assert!(was_replica(&[line("break", "12:00:03", None), line("break", "09:00:00", None)], at));
        assert!(!was_replica(&[line("break", "11:00:00", None)], at));
        assert!(!was_replica(&[], at));
    }

    #[test]
    fn what_a_replica_showed_is_its_newest_unless_it_has_moved_since() {
        let at: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let all = [("mirror-1", "10:00"), ("mirror-2", "11:00"), ("later", "12:30")];
        let there = member("q/log", "broken-off", Some("mirror-2"), &all);
        assert_eq!(there.shows_since(at), Some("mirror-2"));
        // It goes on from another point by now, or what it showed lies aside.
        assert_eq!(member("q/log", "broken-off", Some("mirror-1"), &all).shows_since(at), None);
        let aside = member("q/log", "broken-off", Some("mirror-1"), &all).aside("mirror-2");
        assert_eq!(aside.shows_since(at), None);
        // A source whose clock is ahead took it after that moment.
        let ahead = [("mirror-1", "10:00"), ("mirror-2", "12:01")];
        assert_eq!(member("q/log", "broken-off", Some("mirror-2"), &ahead).shows_since(at), None);
    }

    #[test]
    fn who_cannot_be_told_is_named_with_what_to_type() {
        let log = member("q/log", "broken-off", Some("mirror-2"), &[("mirror-2", "11:00")]);
        let said = unknown("shop", "q/data", &log, RESCUE);
        assert!(said.message.starts_with(&format!("group shop: q/log has no {RESCUE}")), "{}", said.message);
        assert!(said.message.ends_with("Nothing was changed"), "{}", said.message);
        let hint = said.hint.unwrap();
        assert!(hint.contains("goes on from now is q/log@mirror-2"), "{hint}");
        assert!(hint.contains(&format!("farside snapshot rollback q/data@{RESCUE}, and")), "{hint}");
    }
}
