//! `farside mirror check`: whether replicas are as near as they should be, for cron and health checks.

use std::collections::BTreeMap;

use farside_api::{
    Alarm, ErrorBody, ErrorCode, Mirror, MirrorState, MirrorStopped, Peer, PeerState, Role, SourceHeard,
    Timestamp, splits,
};
use serde::Serialize;

use crate::commands::context::Failed;
use crate::output;
use crate::quantities::{duration, parse_duration};

/// How late a replica may be by itself: so many of its intervals, and no less than the time below.
const INTERVALS: f64 = 3.0;
/// A few updates that fail and come again are no reason to wake anybody.
const LATE_LEAST: f64 = 300.0;
/// Without an interval: a day, and two hours for an update at night that takes longer.
const LATE_WITHOUT_INTERVAL: f64 = 26.0 * 3600.0;

/// What is not as it should be with one volume, or with volumes that belong together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Problem {
    /// `POOL/VOL`, or the group.
    pub(super) name: String,
    /// What is wrong, a whole sentence.
    pub(super) message: String,
}

impl Problem {
    fn new(name: &str, message: String) -> Problem {
        Problem { name: name.to_owned(), message }
    }
}

/// That something is wrong: the one line, with its code, and what it was made of.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) error: ErrorBody,
    pub(super) problems: Vec<Problem>,
}

/// The peers with which there has been no session for longer than a restart takes, or than a replica may be late, by name: for how long,
/// and why. A peer that was not heard since the daemon started is silent from then on.
pub(super) fn silent(
    peers: &[Peer],
    most: Option<f64>,
    started_at: Option<Timestamp>,
    now: Timestamp,
) -> BTreeMap<String, String> {
    let longest = most.unwrap_or_default().max(LATE_LEAST);
    let silent = |peer: &Peer| {
        if peer.state == PeerState::Connected {
            return None;
        }
        let because = peer.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        // For longer perhaps: what was before the daemon started is not known here.
        let since_start =
            if peer.last_heard_at.is_none() { " or longer, since this daemon started" } else { "" };
        let heard = peer.last_heard_at.or(started_at)?;
        let seconds = now.duration_since(heard).as_secs_f64();
        (seconds > longest).then(|| {
            let seconds = duration(seconds);
            (
                peer.name.clone(),
                format!("{} has not been heard of for {seconds}{since_start}{because}", peer.name),
            )
        })
    };
    peers.iter().filter_map(silent).collect()
}

/// Exit code: the daemon refuses whoever asks.
const REFUSED: u8 = 4;
/// Exit code: nobody answered who could tell.
const NO_ANSWER: u8 = 5;

/// That the daemon did not tell, so that nothing is known of any replica: with 1, whoever watches would take it for a late one.
pub(super) fn untold(error: ErrorBody, json: bool) -> Failed {
    let exit_code = match (error.code, error.code.exit_code()) {
        (ErrorCode::Unauthenticated | ErrorCode::Forbidden, _) => REFUSED,
        (_, 1) => NO_ANSWER,
        (_, code) => code,
    };
    if json {
        output::json(&serde_json::json!({
            "checked": false, "message": error.message, "problems": [], "error": error
        }));
    }
    Failed { error, is_printed: true, exit_code: Some(exit_code) }
}

/// What is wrong, or `Ok` with one line that says how late the latest is. Where all that is wrong is a name, that is another failure:
/// whoever watches must not take a slip in his crontab for a late replica.
///
/// A site that has only the original knows of no interval. What is nearly always wrong there is that the other site is `silent`.
pub(super) fn judged(
    mirrors: &[Mirror],
    silent: &BTreeMap<String, String>,
    asked: &[String],
    most: Option<f64>,
) -> Result<String, Wrong> {
    let of_volume = |name: &String| mirrors.iter().filter(|m| m.name == *name).collect::<Vec<_>>();
    let mut names: Vec<String> =
        if asked.is_empty() { mirrors.iter().map(|m| m.name.clone()).collect() } else { asked.to_vec() };
    names.sort();
    names.dedup();
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    // Each of its volumes may be near: together they are of no use.
    let split = splits(mirrors).into_iter().filter(|split| names.iter().any(|name| split.has(name)));
    wrong.extend(split.map(|split| Problem::new(&split.group, split.said())));
    let mut latest: Option<(f64, String)> = None;
    let mut heard: Option<(f64, String)> = None;
    // What stands in the way of those that are near enough.
    let mut yet = Vec::new();
    let (mut judged, mut sources) = (0, 0);
    for name in names {
        let rows = of_volume(&name);
        if rows.is_empty() {
            unknown.push(Problem::new(&name, format!("{name} is in no mirror")));
            continue;
        }
        if let Some(row) = rows.iter().find(|m| m.overtaken.is_some() && is_cut_off(m).is_none()) {
            let message =
                format!("{name} is overtaken: {} was broken off, and hosts may write there", row.destination);
            wrong.push(Problem::new(&name, message));
        }
        // After a failover the broken mirror stays as a record; what counts is whether the volume is followed since.
        let is_followed = rows
            .iter()
            .any(|m| m.role == Role::Source && m.overtaken.is_none() && m.state != MirrorState::BrokenOff);
        sources += usize::from(is_followed);
        for row in rows.iter().filter(|m| m.role == Role::Source) {
            if let Some(why) = is_cut_off(row) {
                let message = format!("{} of {name} gets nothing any more: {why}", row.destination);
                wrong.push(Problem::new(&name, message));
                continue;
            }
            let peer = row.destination.split_once(':').map_or("", |(peer, _)| peer);
            // What was broken off there is said above, or is over.
            let follows = row.overtaken.is_none() && row.state != MirrorState::BrokenOff;
            if let Some(silent) = silent.get(peer).filter(|_| follows) {
                let behind = row.lag_seconds.map(|lag| format!(", and is {} behind", duration(lag)));
                let message = format!(
                    "{} of {name} gets nothing{}: {silent}",
                    row.destination,
                    behind.unwrap_or_default()
                );
                wrong.push(Problem::new(&name, message));
                continue;
            }
            // A way back that nothing has come through yet, for one: the cron of the only good site must not be content.
            let is_first = matches!(row.state, MirrorState::Uninitialized | MirrorState::Initializing);
            let has_other = rows.iter().any(|m| m.destination == row.destination && m.id != row.id);
            if follows && is_first && !has_other {
                let message = format!("{} of {name} holds no whole copy yet", row.destination);
                wrong.push(Problem::new(&name, message));
                continue;
            }
            let Some(lag) = row.lag_seconds else { continue };
            // A newer mirror into the same volume is the one that counts.
            let is_newer = |m: &&&Mirror| m.destination == row.destination && m.lag_seconds < Some(lag);
            if rows.iter().filter(|m| m.role == Role::Source).any(|m| m.lag_seconds.is_some() && is_newer(&m))
            {
                continue;
            }
            if let Some(most) = most.filter(|most| lag > *most) {
                let because = row.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                let (lag, most) = (duration(lag), duration(most));
                let message =
                    format!("{} of {name} is {lag} behind, more than {most}{because}", row.destination);
                wrong.push(Problem::new(&name, message));
            }
            yet.extend(row.why.clone().filter(|_| follows).map(|why| (row.destination.clone(), why)));
            if heard.as_ref().is_none_or(|(most, _)| lag > *most) {
                heard = Some((lag, row.destination.clone()));
            }
        }
        for row in rows.iter().filter(|m| m.role == Role::Destination) {
            // Nor does the direction that sleeps count, where the other was broken off in its turn: that is said of the other.
            let is_back = |m: &&Mirror| m.role == Role::Source && m.destination == row.source;
            let is_reversed = rows.iter().any(is_back);
            if is_followed && !is_reversed && row.is_undecided() {
                // Whoever else follows it: hosts may be writing to both.
                let because = row.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                let message = format!(
                    "{name} was broken off from {0}, and what becomes of {0} is not decided{because}: let it follow {name} (farside mirror \
                     resync at its site), or end that mirror: farside mirror delete {name}",
                    row.source
                );
                wrong.push(Problem::new(&name, message));
                continue;
            }
            if row.state == MirrorState::BrokenOff && (is_followed || is_reversed) {
                continue;
            }
            // The other site has ended its mirror: whoever meant that says so here, too.
            if row.state == MirrorState::BrokenOff && row.source_heard == Some(SourceHeard::Released) {
                let message = format!(
                    "{name} has no replica any more: the mirror that {} had of it is over (ended there, or by farside mirror release here). If \
                     that is as it should be: farside mirror delete {name}",
                    row.source.split_once(':').map_or("the other site", |(site, _)| site)
                );
                wrong.push(Problem::new(&name, message));
                continue;
            }
            // Said once for all of its group.
            if row.no_common_moment {
                // Two sites may call a group the same.
                let (group, why) =
                    (row.group.clone().unwrap_or_default(), row.why.clone().unwrap_or_default());
                if !wrong.iter().any(|known: &Problem| known.name == group && known.message == why) {
                    wrong.push(Problem::new(&group, why));
                }
                continue;
            }
            judged += 1;
            match late(row, most) {
                Err(problem) => wrong.push(Problem::new(&name, format!("{name} {problem}"))),
                Ok(lag) => {
                    yet.extend(row.why.clone().map(|why| (name.clone(), why)));
                    if latest.as_ref().is_none_or(|(most, _)| lag > *most) {
                        latest = Some((lag, name.clone()));
                    }
                }
            }
        }
    }
    let code = if wrong.is_empty() { ErrorCode::NotFound } else { ErrorCode::Failed };
    let problems: Vec<Problem> = wrong.into_iter().chain(unknown).collect();
    if !problems.is_empty() {
        let line: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        let error = ErrorBody::new(code, line.join("; "));
        let error = match code {
            ErrorCode::NotFound => error.hint("farside mirror status shows what is there"),
            _ => error,
        };
        return Err(Wrong { error, problems });
    }
    let yet = once_each(&yet);
    match latest {
        Some((lag, name)) => Ok(format!(
            "{judged} {} near enough; the furthest behind is {name}, by {}{}{yet}",
            are(judged),
            duration(lag),
            match heard {
                Some((lag, replica)) => format!(
                    "; {sources} {} replicas at other sites, the furthest behind {replica}, by {}",
                    are_of(sources),
                    duration(lag)
                ),
                None => String::new(),
            }
        )),
        // Nothing that could be late is here: a line in the cron of both sites must not cry at the one that is well.
        None if sources > 0 => Ok(format!(
            "{sources} {} replicas at other sites{}{yet}",
            are_of(sources),
            match heard {
                Some((lag, replica)) => format!("; the furthest behind is {replica}, by {}", duration(lag)),
                None => ": how late they are is known there".to_owned(),
            }
        )),
        None => Err(Wrong {
            error: ErrorBody::new(ErrorCode::Failed, "nothing here is mirrored"),
            problems: Vec::new(),
        }),
    }
}

/// Each reason once, with all that have it: a fleet has one reason for many.
fn once_each(reasons: &[(String, String)]) -> String {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in reasons {
        match all.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => all.push((why, vec![name])),
        }
    }
    all.iter().map(|(why, names)| format!("; {}: {why}", names.join(", "))).collect()
}

/// Alarms that say of data what no lag does: a replica that is near enough may be near to what nobody wants.
const OF_DATA: [&str; 3] = ["source-went-back", "pool-set-back", "no-room"];

/// The same with alarms that nobody has acknowledged, as far as they are about the mirrors that were asked for or their pools.
pub(super) fn with_alarms(
    judged: Result<String, Wrong>,
    alarms: &[Alarm],
    mirrors: &[Mirror],
    asked: &[String],
) -> Result<String, Wrong> {
    let names: Vec<&str> = match asked {
        [] => mirrors.iter().map(|mirror| mirror.name.as_str()).collect(),
        asked => asked.iter().map(String::as_str).collect(),
    };
    let is_about = |subject: &str| {
        names
            .iter()
            .any(|name| *name == subject || name.split_once('/').is_some_and(|(pool, _)| pool == subject))
    };
    // An alarm is cleared a moment after its cause: the mirror knows sooner that there was room.
    let is_over = |alarm: &Alarm| {
        let is_it = |m: &&Mirror| m.role == Role::Destination && m.name == alarm.subject;
        let mut of_it = mirrors.iter().filter(is_it);
        alarm.kind == "no-room" && of_it.any(|m| m.stopped.is_none() && m.state == MirrorState::Mirrored)
    };
    let told = alarms.iter().filter(|alarm| {
        OF_DATA.contains(&alarm.kind.as_str())
            && !alarm.acknowledged
            && is_about(&alarm.subject)
            && !is_over(alarm)
    });
    let mut problems: Vec<Problem> = told
        .map(|alarm| Problem::new(&alarm.subject, format!("{} ({})", alarm.message, alarm.kind)))
        .collect();
    if problems.is_empty() {
        return judged;
    }
    if let Err(wrong) = judged {
        problems.extend(wrong.problems);
    }
    let line: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let error = ErrorBody::new(ErrorCode::Failed, line.join("; "));
    Err(Wrong { error: error.hint("farside alarm list has what to do"), problems })
}

fn are(count: usize) -> &'static str {
    if count == 1 { "replica is" } else { "replicas are" }
}

fn are_of(count: usize) -> &'static str {
    if count == 1 { "volume here has" } else { "volumes here have" }
}

/// Why a mirror will never be updated again unless a person sees to it; none if it may be.
fn is_cut_off(mirror: &Mirror) -> Option<&str> {
    let otherwise = match mirror.stopped? {
        MirrorStopped::NotPaired => "the sites are not paired any more",
        MirrorStopped::NoRight => "its source has taken the right back",
        MirrorStopped::NoOriginal => "its source is a replica of it",
        MirrorStopped::NoPool => "its pool is not open here",
        MirrorStopped::NoRoom => return None,
    };
    Some(mirror.why.as_deref().unwrap_or(otherwise))
}

/// How far a replica is behind, or what is wrong with it.
fn late(mirror: &Mirror, most: Option<f64>) -> Result<f64, String> {
    let because = mirror.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    match mirror.state {
        MirrorState::BrokenOff => return Err(format!("is broken off, and follows nothing{because}")),
        // What was set back, for one, is such a one too, and says so.
        MirrorState::Uninitialized => {
            return Err(match &mirror.why {
                Some(why) => format!("holds no copy that can be used ({why})"),
                None => "was never copied".into(),
            });
        }
        MirrorState::Initializing => {
            return Err(format!("has no replica yet: the first copy is under way{because}"));
        }
        MirrorState::Quiesced => {
            return Err(format!("is quiesced: nothing is transferred until farside mirror resume{because}"));
        }
        MirrorState::Mirrored | MirrorState::Transferring | MirrorState::Queued => {}
    }
    if let Some(why) = is_cut_off(mirror) {
        let behind = mirror.lag_seconds.map(|lag| format!("is {} behind, and ", duration(lag)));
        // What was mended since shows only with the next attempt.
        let again = match (mirror.stopped, mirror.schedule.is_none()) {
            (Some(MirrorStopped::NoRight), true) => {
                format!(
                    "; that was so at its last attempt: farside mirror update {} makes another",
                    mirror.name
                )
            }
            _ => String::new(),
        };
        return Err(format!("{}gets nothing any more: {why}{again}", behind.unwrap_or_default()));
    }
    // What it shows is of no moment of its source.
    if mirror.shows_own_state {
        return Err(format!(
            "is to be resynced first: it shows its own state, and nothing that {} has had since{because}",
            mirror.source
        ));
    }
    // Near by chance, if at all: nothing asks for the next update.
    if mirror.schedule_lost {
        return Err(format!(
            "is updated only when somebody asks: it was found in its pool, and the state database that knew its schedule, \
             what it kept and the way back is lost or older. Run the line that made it once more: farside mirror create {} {} --every TIME \
             --keep last=10 --if-absent",
            mirror.source, mirror.name
        ));
    }
    let Some(lag) = mirror.lag_seconds else { return Err(format!("does not know how late it is{because}")) };
    let most = most.unwrap_or_else(|| most_of(mirror));
    if lag > most {
        return Err(format!("is {} behind, more than {}{because}", duration(lag), duration(most)));
    }
    if mirror.source_overtaken.is_some() {
        return Err(format!("follows a source that was overtaken{because}"));
    }
    Ok(lag)
}

/// How late a mirror may be if nobody says.
pub(crate) fn most_of(mirror: &Mirror) -> f64 {
    let interval = mirror.schedule.as_deref().and_then(|schedule| schedule.strip_prefix("every "));
    let interval = interval.and_then(|text| parse_duration(text).ok());
    match (mirror.objective_seconds, interval) {
        (Some(objective), _) => objective,
        (None, Some(interval)) => (INTERVALS * interval.as_secs_f64()).max(LATE_LEAST),
        (None, None) => LATE_WITHOUT_INTERVAL,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mirror(name: &str, changes: serde_json::Value) -> Mirror {
        let mut document = json!({
            "id": uuid::Uuid::nil(), "name": name, "role": "destination", "source": "north:tank/v", "destination": name,
            "state": "mirrored", "why": null, "lag_seconds": 12.0, "objective_seconds": null, "current_snapshot": "s",
            "content_root": null, "base_snapshot": null, "last_proven_at": null, "schedule": "every 10s", "throttle": null,
            "transfer": null,
        });
        for (field, value) in changes.as_object().expect("an object") {
            document[field] = value.clone();
        }
        serde_json::from_value(document).expect("a mirror")
    }

    fn check(mirrors: &[Mirror]) -> Result<String, String> {
        judged(mirrors, &BTreeMap::new(), &[], None).map_err(|wrong| wrong.error.message)
    }

    #[test]
    fn what_cannot_be_asked_is_not_late() {
        let code = |code| untold(ErrorBody::new(code, "no"), false).exit_code;
        assert_eq!(code(ErrorCode::DaemonUnreachable), Some(5));
        for refused in [ErrorCode::Unauthenticated, ErrorCode::Forbidden] {
            assert_eq!(code(refused), Some(4));
        }
        for broken in [ErrorCode::Failed, ErrorCode::TooManyRequests, ErrorCode::PeerUnreachable] {
            assert_eq!(code(broken), Some(5));
        }
        assert_eq!(code(ErrorCode::WrongUsage), Some(2));
    }

    #[test]
    fn near_ones_of_which_an_alarm_says_more_are_not_well() {
        let near = [mirror("q/a", json!({})), mirror("q/b", json!({}))];
        let alarm = |kind: &str, subject: &str, acknowledged: bool| -> Alarm {
            serde_json::from_value(json!({
                "id": "1", "kind": kind, "subject": subject, "severity": "critical", "raised_at": "2027-01-15T08:00:00Z",
                "cleared_at": null, "acknowledged": acknowledged, "message": "it went back", "hint": "",
            }))
            .expect("an alarm")
        };
        let check = |alarm: Alarm, asked: &[String]| {
            with_alarms(judged(&near, &BTreeMap::new(), asked, None), &[alarm], &near, asked).is_ok()
        };
        assert!(!check(alarm("source-went-back", "q/a", false), &[]));
        assert!(!check(alarm("pool-set-back", "q", false), &["q/b".into()]));
        assert!(check(alarm("no-room", "q/a", false), &[]), "an update has come through since");
        assert!(!check(alarm("no-room", "q", false), &[]), "of a pool no mirror tells");
        assert!(check(alarm("source-went-back", "q/a", true), &[]), "somebody knows");
        assert!(check(alarm("source-went-back", "q/a", false), &["q/b".into()]), "nobody asked for it");
        assert!(check(alarm("objective-at-risk", "q/a", false), &[]), "its limits are those of this command");
        assert!(check(alarm("pool-set-back", "p", false), &[]), "another pool");
    }

    #[test]
    fn near_ones_are_near_enough_and_late_ones_say_why() {
        let near = [mirror("q/a", json!({})), mirror("q/b", json!({ "lag_seconds": 40.0 }))];
        assert_eq!(check(&near).unwrap(), "2 replicas are near enough; the furthest behind is q/b, by 40 s");
        let late = mirror("q/c", json!({ "lag_seconds": 2520.0, "why": "no session with north" }));
        let all = [near[0].clone(), late.clone()];
        assert_eq!(check(&all).unwrap_err(), "q/c is 42m00s behind, more than 5m00s (no session with north)");
        assert!(judged(&all, &BTreeMap::new(), &["q/a".into()], None).is_ok(), "only what was asked for");
        assert!(
            judged(&all, &BTreeMap::new(), &[], Some(3600.0)).is_ok()
                && judged(&near, &BTreeMap::new(), &[], Some(30.0)).is_err()
        );
        // An interval, an objective, a timetable: each says what late is.
        for (changes, limit) in [
            (json!({ "schedule": "every 1h" }), 3.0 * 3600.0),
            (json!({ "objective_seconds": 30.0 }), 30.0),
            (json!({ "schedule": "30 2 * * * UTC" }), LATE_WITHOUT_INTERVAL),
            (json!({ "schedule": null }), LATE_WITHOUT_INTERVAL),
        ] {
            let mut of_it = mirror("q/d", changes);
            of_it.lag_seconds = Some(limit - 1.0);
            assert!(check(&[of_it.clone()]).is_ok(), "{limit}");
            of_it.lag_seconds = Some(limit + 1.0);
            assert!(check(&[of_it]).is_err(), "{limit}");
        }
    }

    #[test]
    fn what_does_not_follow_is_never_called_near() {
        for (state, word) in [
            ("uninitialized", "never copied"),
            ("initializing", "first copy"),
            ("quiesced", "quiesced"),
            ("broken-off", "broken off"),
        ] {
            let said = check(&[mirror("q/a", json!({ "state": state, "lag_seconds": 1.0 }))]).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        assert!(check(&[mirror("q/a", json!({ "lag_seconds": null }))]).is_err());
        let own = mirror("q/a", json!({ "state": "queued", "shows_own_state": true, "why": "no session" }));
        let said = check(&[own]).unwrap_err();
        assert!(said.contains("q/a is to be resynced first") && said.ends_with("(no session)"), "{said}");
        let lost = mirror("q/a", json!({ "schedule": null, "schedule_lost": true }));
        assert!(check(&[lost]).unwrap_err().contains("--if-absent"));
        assert_eq!(check(&[]).unwrap_err(), "nothing here is mirrored");
        let overtaken = json!({ "role": "source", "destination": "south:q/a", "lag_seconds": null, "overtaken": {
            "since": "2026-11-21T21:00:00Z", "reported_at": "2026-11-21T21:00:01Z", "snapshot": null, "diverged_bytes": null,
            "diverged_blocks": null, "fenced": true } });
        assert!(check(&[mirror("p/a", overtaken)]).unwrap_err().contains("overtaken"));
    }

    #[test]
    fn a_name_that_is_in_no_mirror_is_not_found_and_hides_nothing() {
        let asked = ["q/x".to_owned(), "q/a".to_owned()];
        let unknown = judged(&[mirror("q/a", json!({}))], &BTreeMap::new(), &asked, None).unwrap_err().error;
        assert_eq!((unknown.code, unknown.message.as_str()), (ErrorCode::NotFound, "q/x is in no mirror"));
        let wrong = judged(&[mirror("q/a", json!({ "state": "quiesced" }))], &BTreeMap::new(), &asked, None)
            .unwrap_err();
        let named: Vec<&str> = wrong.problems.iter().map(|problem| problem.name.as_str()).collect();
        assert_eq!(named, ["q/a", "q/x"]);
        let late = wrong.error;
        assert_eq!(late.code, ErrorCode::Failed);
        assert!(late.message.contains("q/a is quiesced") && late.message.ends_with("; q/x is in no mirror"));
    }

    #[test]
    fn what_only_a_person_can_end_is_never_near_and_anything_else_in_the_way_is_said() {
        for stopped in ["not-paired", "no-right"] {
            let row = json!({ "stopped": stopped, "why": "nothing comes" });
            let said = check(&[mirror("q/a", row)]).unwrap_err();
            assert_eq!(said, "q/a is 12 s behind, and gets nothing any more: nothing comes");
        }
        let source =
            json!({ "role": "source", "destination": "south:q/a", "stopped": "not-paired", "why": "gone" });
        let said = check(&[mirror("p/a", source)]).unwrap_err();
        assert_eq!(said, "south:q/a of p/a gets nothing any more: gone");
        let in_the_way = json!({ "stopped": "no-room", "why": "no room for it" });
        let said = check(&[mirror("q/a", in_the_way), mirror("q/b", json!({}))]).unwrap();
        assert!(
            said.contains("2 replicas are near enough") && said.ends_with("; q/a: no room for it"),
            "{said}"
        );
    }

    #[test]
    fn a_split_group_is_not_well_however_near_each_is() {
        let turned =
            mirror("q/a", json!({ "group": "shop", "state": "broken-off", "source_heard": "follows" }));
        let back =
            mirror("q/a", json!({ "role": "source", "destination": "north:tank/v", "lag_seconds": 1.0 }));
        let all = [turned, back, mirror("q/b", json!({ "group": "shop" })), mirror("q/c", json!({}))];
        let said = judged(&all, &BTreeMap::new(), &[], None).unwrap_err().error;
        assert_eq!(said.code, ErrorCode::Failed);
        assert!(said.message.contains("group shop is split"), "{}", said.message);
        assert!(
            judged(&all, &BTreeMap::new(), &["q/a".into()], None).is_err()
                && judged(&all, &BTreeMap::new(), &["q/b".into()], None).is_err()
        );
        assert!(judged(&all, &BTreeMap::new(), &["q/c".into()], None).is_ok(), "it is in no group");
    }

    #[test]
    fn after_a_failover_it_counts_who_follows_now() {
        let broken = mirror("q/a", json!({ "state": "broken-off" }));
        let source = |state| mirror("q/a", json!({ "role": "source", "state": state, "lag_seconds": null }));
        assert!(check(&[broken.clone(), source("broken-off")]).unwrap_err().contains("follows nothing"));
        let ended = mirror("q/b", json!({ "state": "broken-off", "source_heard": "released" }));
        let said = check(std::slice::from_ref(&ended)).unwrap_err();
        assert!(
            said.starts_with("q/b has no replica any more: the mirror that north had of it is over"),
            "{said}"
        );
        assert!(said.ends_with("farside mirror delete q/b"), "{said}");
        // Another follows it.
        let third = json!({ "role": "source", "destination": "west:shelf/v", "lag_seconds": 1.0 });
        assert!(check(&[ended.clone(), mirror("q/b", third)]).is_ok());
        assert!(check(&[ended, broken.clone()]).unwrap_err().contains("q/a is broken off"));
        // Each is near enough, and together they are of no use: said once.
        let apart = json!({ "group": "shop", "no_common_moment": true, "why": "no moment in common" });
        let said = check(&[mirror("q/c", apart.clone()), mirror("q/d", apart)]).unwrap_err();
        assert_eq!(said, "no moment in common");
        // A third site follows it, and the old source is alive: there may be two originals.
        for heard in ["not-yet", "noted", "fenced"] {
            let row = json!({ "state": "broken-off", "source_heard": heard, "why": "keep them stopped" });
            let third = json!({ "role": "source", "destination": "west:shelf/v", "lag_seconds": 1.0 });
            let all = [mirror("q/a", row), mirror("q/a", third)];
            let said = check(&all).unwrap_err();
            assert!(said.contains("north:tank/v is not decided (keep them stopped)"), "{said}");
            assert_eq!(farside_api::awake(&all).len(), 2, "and status hides neither");
        }
        let decided = json!({ "state": "broken-off", "source_heard": "follows" });
        let third = json!({ "role": "source", "destination": "west:shelf/v", "lag_seconds": 1.0 });
        let all = [mirror("q/a", decided), mirror("q/a", third)];
        assert!(check(&all).is_ok() && farside_api::awake(&all).len() == 1);
        let said = check(&[broken, source("mirrored")]).unwrap();
        assert_eq!(said, "1 volume here has replicas at other sites: how late they are is known there");
    }

    #[test]
    fn a_site_with_originals_alone_says_that_nobody_fetches() {
        let source = |lag: f64| {
            mirror("p/a", json!({ "role": "source", "destination": "south:q/a", "lag_seconds": lag }))
        };
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let started = |at: &str| Some(at.parse::<Timestamp>().unwrap());
        let peer = |state: &str, heard: Option<&str>| -> Peer {
            let document = json!({
                "name": "south", "id": "00", "address": "south:7440", "state": state, "why": "cannot reach south:7440",
                "last_heard_at": heard, "protocol": null, "rtt_seconds": null, "sent_bytes": 0, "received_bytes": 0
            });
            serde_json::from_value(document).unwrap()
        };
        let of = |lag, state: &str, heard: &str| {
            let silent = silent(&[peer(state, Some(heard))], None, started("2026-11-28T10:00:00Z"), now);
            judged(&[source(lag)], &silent, &[], None).map_err(|wrong| wrong.error.message)
        };
        let gone = of(3600.0, "disconnected", "2026-11-28T11:00:00Z").unwrap_err();
        assert_eq!(
            gone,
            "south:q/a of p/a gets nothing, and is 1h00m behind: south has not been heard of for 1h00m: cannot reach south:7440"
        );
        assert!(
            of(3600.0, "disconnected", "2026-11-28T11:58:00Z").is_ok(),
            "a restart is no reason to wake anybody"
        );
        assert!(of(3600.0, "connected", "2026-11-28T11:00:00Z").is_ok());
        // Who was away before the daemon started is silent for as long as it runs, at least.
        let away = |started_at| silent(&[peer("disconnected", None)], None, started_at, now);
        assert_eq!(
            away(started("2026-11-28T10:00:00Z"))["south"],
            "south has not been heard of for 2h00m or longer, since this daemon started: cannot reach south:7440"
        );
        assert!(away(started("2026-11-28T11:58:00Z")).is_empty(), "a restart is no reason to wake anybody");
        assert!(away(None).is_empty(), "an older daemon does not say when it started");
        // By a timetable that this site does not know it may be a week.
        assert!(of(30.0 * 3600.0, "connected", "2026-11-28T12:00:00Z").is_ok());
    }

    #[test]
    fn one_reason_of_many_is_said_once() {
        let of = |name: &str, why: &str| mirror(name, json!({ "lag_seconds": 1.0, "why": why }));
        let said = check(&[of("p/a", "no session"), of("p/b", "waits"), of("p/c", "no session")]).unwrap();
        assert!(said.ends_with("; p/a, p/c: no session; p/b: waits"), "{said}");
    }

    #[test]
    fn a_volume_of_which_nothing_whole_is_elsewhere_is_not_well() {
        let source = |state: &str| {
            let of = json!({ "role": "source", "source": "p/a", "destination": "south:q/a", "state": state, "lag_seconds": null });
            mirror("p/a", of)
        };
        for state in ["uninitialized", "initializing"] {
            assert_eq!(check(&[source(state)]).unwrap_err(), "south:q/a of p/a holds no whole copy yet");
        }
        assert!(check(&[source("mirrored")]).is_ok());
        // What is left of an earlier mirror into the same volume says nothing.
        let newer = Mirror { id: uuid::Uuid::from_u128(1), ..source("mirrored") };
        assert!(check(&[source("uninitialized"), newer]).is_ok());
    }
}
