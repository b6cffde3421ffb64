//! Mirrors as people see them: the table, and all of one.

use farside_api::{Mirror, MirrorState, Role, SourceHeard};

use super::outcomes::name_of;
use super::{answers, levels};
use crate::output::{self, Column, details, or_dash, table};
use crate::progress;
use crate::quantities::{duration, size, time};

/// Characters of a reason that stand in the table. The rest is below it.
const WHY_MAX: usize = 100;

/// The group of a mirror; of a volume that another site has taken over, that which it is in there.
fn group_shown(mirror: &Mirror) -> Option<String> {
    mirror.group.clone().or_else(|| mirror.overtaken.as_ref()?.group.clone())
}

/// Where the group stands in a row, where there are any.
const GROUP_COLUMN: usize = 3;

pub(super) fn listing(mirrors: &[Mirror]) -> String {
    let has_groups = mirrors.iter().any(|mirror| group_shown(mirror).is_some());
    let mut columns = vec![
        Column::Left("name"),
        Column::Left("role"),
        Column::Left("peer volume"),
        Column::Left("state"),
        Column::Right("lag"),
        Column::Left("current"),
        Column::Left("schedule"),
        Column::Left("why"),
    ];
    if has_groups {
        columns.insert(GROUP_COLUMN, Column::Left("group"));
    }
    let rows = mirrors.iter().map(|m| {
        let mut row = vec![
            m.name.clone(),
            name_of(&m.role),
            if m.role == Role::Destination { m.source.clone() } else { m.destination.clone() },
            state(m),
            lag(m),
            or_dash(m.current_snapshot.clone(), |s| s),
            or_dash(m.schedule.clone(), |s| s),
            output::beginning(m.why.as_deref().unwrap_or_default(), WHY_MAX),
        ];
        if has_groups {
            row.insert(GROUP_COLUMN, or_dash(group_shown(m), |group| group));
        }
        row
    });
    table(&columns, rows.collect(), "no mirrors; make one with farside mirror create")
        + &whole_reasons(mirrors)
}

/// What the table has only the beginning of: whole, so that the commands in it can be pasted. What is said of several is said once.
fn whole_reasons(mirrors: &[Mirror]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for mirror in mirrors {
        let Some(why) =
            mirror.why.as_deref().filter(|why| output::beginning(why, WHY_MAX) != output::one_line(why))
        else {
            continue;
        };
        match reasons.iter_mut().find(|(said, _)| *said == why) {
            Some((_, names)) => names.push(&mirror.name),
            None => reasons.push((why, vec![&mirror.name])),
        }
    }
    let line =
        |(why, names): &(&str, Vec<&str>)| format!("\n{}: {}\n", names.join(", "), output::one_line(why));
    reasons.iter().map(line).collect()
}

/// An objective, and what will come of it.
fn objective(seconds: f64, forecast: Option<f64>) -> String {
    let forecast = forecast.map(|lag| format!(" (data up to {} old is expected)", duration(lag)));
    duration(seconds) + &forecast.unwrap_or_default()
}

/// How old what it shows of its source is; of nothing of it there is no age.
pub(crate) fn lag(mirror: &Mirror) -> String {
    or_dash(mirror.lag_seconds.filter(|_| !mirror.shows_own_state), duration)
}

/// The state, and how far the transfer is if one is under way.
pub(crate) fn state(mirror: &Mirror) -> String {
    let state = name_of(&mirror.state);
    match &mirror.transfer {
        Some(transfer) if matches!(mirror.state, MirrorState::Transferring | MirrorState::Initializing) => {
            match transfer.changed_bytes {
                Some(changed) if changed > 0 => {
                    format!("{state} {:.0}%", transfer.done_bytes as f64 * 100.0 / changed as f64)
                }
                _ => format!("{state} ({})", progress::phase(transfer.phase)),
            }
        }
        _ => state,
    }
}

/// What the source knows of a mirror that was broken off, and since when that was not asked again.
fn source_heard(heard: SourceHeard, at: Option<String>) -> String {
    let heard = match heard {
        SourceHeard::NotYet => "not yet: its hosts may be writing",
        SourceHeard::Noted => "yes; its hosts may write",
        SourceHeard::Fenced => "yes; its hosts were kept from writing",
        SourceHeard::Follows => "yes; it follows this volume",
        SourceHeard::Released => "it has ended this mirror; its hosts may write",
    };
    match at {
        Some(at) => format!("{heard} (as of {at})"),
        None => heard.to_owned(),
    }
}

fn status(m: &Mirror) -> String {
    details(&[
        ("name", m.name.clone()),
        ("role", name_of(&m.role)),
        ("source", m.source.clone()),
        ("destination", m.destination.clone()),
        ("state", state(m)),
        ("why", or_dash(m.why.clone(), |w| w)),
        ("source knows", or_dash(m.source_heard, |heard| source_heard(heard, m.source_heard_at.map(time)))),
        ("lag", lag(m)),
        ("current snapshot", or_dash(m.current_snapshot.clone(), |s| s)),
        ("content root", or_dash(m.content_root.clone(), |r| r)),
        ("base snapshot", or_dash(m.base_snapshot.clone(), |s| s)),
        ("schedule", or_dash(m.schedule.clone(), |s| s)),
        ("objective", or_dash(m.objective_seconds, |rpo| objective(rpo, m.forecast_seconds))),
        ("keeps", or_dash(m.retention.clone(), |r| r)),
        ("group", or_dash(group_shown(m), |g| g)),
        ("owner", or_dash(m.owner.clone(), |daemon| daemon)),
        ("place in line", or_dash(m.queue_position, |position| position.to_string())),
        ("throttle", or_dash(m.link.as_ref(), |link| answers::own_throttle(link, m.throttle))),
        ("window", or_dash(m.link.as_ref(), |l| l.window_bytes.map_or_else(|| "auto".into(), size))),
        ("priority", or_dash(m.link.as_ref(), |l| if l.low_priority { "low" } else { "normal" }.into())),
        ("paths", or_dash(m.link.as_ref().filter(|l| !l.paths.is_empty()), |l| l.paths.join(" "))),
        ("id", m.id.to_string()),
    ])
}

/// The same, and what travels.
pub(super) fn detail(m: &Mirror) -> String {
    let travelling =
        m.transfer.as_ref().filter(|transfer| transfer.levels.named().iter().any(|(_, r)| r.in_bytes > 0));
    let levels =
        travelling.map(|transfer| format!("\n{}", levels::of_transfer(transfer))).unwrap_or_default();
    status(m) + &levels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::mirror;
    use super::*;

    #[test]
    fn a_long_reason_begins_in_the_table_and_stands_whole_below_it() {
        let why = "the source does not allow the asking site to read p/v, or has no volume of that name. No replica was changed. At the \
                   source: farside peer allow south p/v --reverse";
        let with = |name: &str, why: &str| mirror("destination", json!({ "name": name, "why": why }));
        let text = listing(&[with("q/v", why), with("q/w", why), with("q/x", "short")]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("or has no volume of that name. …"), "{text}");
        assert!(lines[3].ends_with("short"), "{text}");
        assert!(text.ends_with(&format!("\n\nq/v, q/w: {why}\n")), "{text}");
        assert!(!listing(&[with("q/x", "short")]).contains("q/x: "));
    }
}
