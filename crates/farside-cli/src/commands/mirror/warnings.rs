//! What whoever breaks off a mirror is told though nobody asks him: that the source is alive, and which change of roles ends by it. Pure.

use std::time::Duration;

use farside_api::Plan;

/// How long a break waits for what it only says: it is asked for in need.
pub(super) const WARNING_WITHIN: Duration = Duration::from_secs(3);

/// What the plan of a break says of a source that is alive, and of a change of roles that it ends.
pub(super) fn warnings(plan: &Plan) -> impl Iterator<Item = &String> {
    let is_warning = |line: &&String| {
        line.contains(" was heard a moment ago: if both sites run")
            || line.contains(" that is under way is ended")
    };
    plan.would.iter().filter(is_warning)
}

/// What the plans of its volumes say of a source that is alive, for the whole group, and of changes of roles that end by it.
pub(super) fn warnings_of(group: &str, plans: &[Plan]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in plans.iter().flat_map(warnings) {
        let line = match line.split_once(" was heard a moment ago: ") {
            Some((site, _)) => format!(
                "{site} was heard a moment ago: if both sites run and the roles are only to change, farside mirror swap --group {group} loses nothing"
            ),
            None => line.clone(),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
