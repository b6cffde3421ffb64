//! On which side the original of each member of a group is. Pure.

use super::members::Member;

/// A line for each member: where its hosts may write, and who follows.
pub(super) fn of(members: &[Member]) -> Vec<String> {
    members.iter().map(of_one).collect()
}

fn of_one(member: &Member) -> String {
    let (name, source) = (&member.mirror.name, &member.mirror.source);
    if member.mirror.changes_roles {
        return format!("{name} changes roles with {source} at this moment");
    }
    if member.shows_own_state() {
        return format!("{name} is to be resynced from {source}, and shows its own state until then");
    }
    match (member.is_valid_original(), member.is_broken_off()) {
        (true, _) => format!("{name} is the original here: hosts may write to it, and {source} follows it"),
        (false, true) => format!("{name} is broken off here, and follows nobody"),
        (false, false) => format!("{name} is the replica of {source}: hosts may write there"),
    }
}

/// What takes back each of the members that have changed roles, at the site of their former sources.
pub(super) fn back(members: &[Member]) -> Option<String> {
    let turned = members.iter().filter(|m| m.is_valid_original());
    let parts: Vec<(&str, &str)> = turned.filter_map(|m| m.mirror.source.split_once(':')).collect();
    let (site, _) = parts.first()?;
    let lines: Vec<String> =
        parts.iter().map(|(_, volume)| format!("farside mirror swap {volume}")).collect();
    Some(format!("at {site}: {}", lines.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::{member, original, overtaken};
    use super::*;

    #[test]
    fn of_a_group_that_is_half_turned_each_member_is_placed() {
        let half =
            [original("q/a"), member("q/b", "mirrored", None, &[]), member("q/c", "broken-off", None, &[])];
        let said = of(&half);
        assert_eq!(said[0], "q/a is the original here: hosts may write to it, and a:p/v follows it");
        assert_eq!(said[1], "q/b is the replica of a:p/v: hosts may write there");
        assert_eq!(said[2], "q/c is broken off here, and follows nobody");
        assert_eq!(back(&half).unwrap(), "at a: farside mirror swap p/v");
        assert_eq!(back(&half[1..]), None);
        // Who was taken over since is no original, whoever has followed it once.
        assert!(of(&[overtaken(original("q/a"))])[0].contains("is broken off here"));
    }
}
