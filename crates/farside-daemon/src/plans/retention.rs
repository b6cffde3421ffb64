//! Which points another retention lets go. Pure.

use farside_api::{Plan, Timestamp};
use farside_engine::VolumeName;

use super::parts::{lose, plan};

/// Points by name that are told one by one; of more only how many.
const POINTS_NAMED: usize = 10;

/// Names of points, oldest first, and how many more.
pub(super) fn points_that_go(points: &[(String, Timestamp)]) -> String {
    let names: Vec<String> =
        points.iter().take(POINTS_NAMED).map(|(name, at)| format!("{name} of {at:.0}")).collect();
    match points.len().saturating_sub(POINTS_NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} newer ones", names.join(", ")),
    }
}

/// `mirror set --keep` and `snapshot schedule --keep`. `gone` are the points that go, oldest first, of so many.
pub(crate) fn rotate_otherwise(
    volume: &VolumeName,
    retention: Option<&str>,
    gone: &[(String, Timestamp)],
    of: usize,
) -> Plan {
    let mut plan = plan(match retention {
        Some(retention) => format!("keep {retention} of the points of {volume}"),
        None => format!("change {volume}"),
    });
    if of > 0 {
        plan.would.push(format!("{} of {of} points stay", of.saturating_sub(gone.len())));
    }
    if let [(oldest, at), ..] = gone {
        let newest = match gone {
            [_, .., (newest, at)] => format!(", the newest is {newest} of {at:.0}"),
            _ => String::new(),
        };
        let points = if gone.len() == 1 { "point goes" } else { "points go" };
        let what = format!(
            "{} {points} for good; the oldest is {oldest} of {at:.0}{newest}. farside snapshot hold keeps one",
            gone.len()
        );
        lose(&mut plan, what, None, None);
    }
    plan
}

/// The same where it is set so already.
pub(crate) fn rotates_so_already(volume: &VolumeName, retention: &str) -> Plan {
    let mut plan = plan(format!("keep {retention} of the points of {volume}"));
    plan.would.push("it is set so already: what it lets go goes by itself".into());
    plan
}

/// `mirror set --keep` of a mirror that is broken off: nothing goes now, and all at once when its volume follows again.
pub(crate) fn rotate_otherwise_then(
    volume: &VolumeName,
    retention: &str,
    gone: &[(String, Timestamp)],
    of: usize,
) -> Plan {
    let mut plan = plan(format!("keep {retention} of the points of {volume}"));
    plan.would.push(format!("{volume} is broken off: all {of} points stay until it follows again"));
    if !gone.is_empty() {
        let points = points_that_go(gone);
        let what = format!(
            "once {volume} follows again (farside mirror resync), {} of {of} go for good: {points}. farside snapshot hold keeps one",
            gone.len()
        );
        lose(&mut plan, what, None, None);
    }
    plan
}
