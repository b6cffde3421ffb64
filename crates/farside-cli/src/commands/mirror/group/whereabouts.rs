//! On which side the original of each member of a group is. Pure.

use farside_api::{Mirror, MirrorState, Role, SourceHeard};

use super::members::{Member, overtaken};

/// A group of which a part has changed roles: hosts write to one part here, and to the other at another site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::commands::mirror) struct Split {
    pub(in crate::commands::mirror) group: String,
    /// Volumes that are the originals here.
    originals: Vec<String>,
    /// Volumes here that are replicas, and of what.
    replicas: Vec<(String, String)>,
}

impl Split {
    /// Whether a volume here is of it.
    pub(in crate::commands::mirror) fn has(&self, name: &str) -> bool {
        self.originals.iter().chain(self.replicas.iter().map(|(name, _)| name)).any(|one| one == name)
    }

    /// What is where.
    pub(super) fn places(&self) -> String {
        let originals = self.originals.iter().map(|name| format!("{name} is the original here"));
        let replicas =
            self.replicas.iter().map(|(name, source)| format!("{name} is the replica of {source}"));
        originals.chain(replicas).collect::<Vec<_>>().join(", ")
    }

    /// That it is so, and what to type.
    pub(in crate::commands::mirror) fn said(&self) -> String {
        let group = &self.group;
        format!("group {group} is split: {}; farside mirror swap --group {group} goes on", self.places())
    }
}

/// The groups that are split, as far as is known here: of a volume that is an original here, the way back is in the group still.
pub(in crate::commands::mirror) fn splits(mirrors: &[Mirror]) -> Vec<Split> {
    let is_overtaken = |name: &str| mirrors.iter().filter_map(overtaken).any(|m| m.name == name);
    let mut found: Vec<Split> = Vec::new();
    for mirror in mirrors.iter().filter(|m| m.role == Role::Destination) {
        let Some(group) = &mirror.group else { continue };
        let at = found.iter().position(|split| split.group == *group).unwrap_or_else(|| {
            found.push(Split { group: group.clone(), originals: Vec::new(), replicas: Vec::new() });
            found.len() - 1
        });
        match mirror.state {
            // A first copy is nothing that hosts ever had.
            MirrorState::Uninitialized | MirrorState::Initializing => {}
            MirrorState::BrokenOff => {
                if mirror.source_heard == Some(SourceHeard::Follows) && !is_overtaken(&mirror.name) {
                    found[at].originals.push(mirror.name.clone());
                }
            }
            _ => found[at].replicas.push((mirror.name.clone(), mirror.source.clone())),
        }
    }
    found.retain(|split| !split.originals.is_empty() && !split.replicas.is_empty());
    found
}

/// The same mirrors for people: why a member of a split group is not well says so, too.
pub(in crate::commands::mirror) fn with_splits(shown: Vec<Mirror>, splits: &[Split]) -> Vec<Mirror> {
    let with = |mut mirror: Mirror| {
        if let Some(split) = splits.iter().find(|split| split.has(&mirror.name)) {
            mirror.why = Some(match mirror.why {
                Some(why) => format!("{why}; {}", split.said()),
                None => split.said(),
            });
        }
        mirror
    };
    shown.into_iter().map(with).collect()
}

/// A line for each member: where its hosts may write, and who follows.
pub(super) fn of(members: &[Member]) -> Vec<String> {
    members.iter().map(of_one).collect()
}

fn of_one(member: &Member) -> String {
    let (name, source) = (&member.mirror.name, &member.mirror.source);
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
    fn a_group_that_is_half_swapped_is_split() {
        let in_shop = |member: Member| Mirror { group: Some("shop".into()), ..member.mirror };
        let (a, b) = (in_shop(original("q/a")), in_shop(member("q/b", "mirrored", None, &[])));
        let found = splits(&[a.clone(), b.clone()]);
        assert_eq!(
            found[0].said(),
            "group shop is split: q/a is the original here, q/b is the replica of a:p/v; farside mirror swap --group shop goes on"
        );
        let [a_shown, b_shown, other] =
            with_splits(vec![a.clone(), b.clone(), member("q/x", "mirrored", None, &[]).mirror], &found)
                .try_into()
                .unwrap();
        assert!(a_shown.why.is_some_and(|why| why.starts_with("group shop is split")));
        assert!(b_shown.why.is_some_and(|why| why.starts_with("group shop is split")));
        assert_eq!(other.why, None);
        // Whole on one side, broken off by a person, of another group, without a copy: none is split.
        assert_eq!(splits(std::slice::from_ref(&a)), []);
        assert_eq!(splits(std::slice::from_ref(&b)), []);
        assert_eq!(splits(&[in_shop(member("q/c", "broken-off", None, &[])), b.clone()]), []);
        assert_eq!(splits(&[Mirror { group: Some("other".into()), ..a.clone() }, b]), []);
        assert_eq!(splits(&[a, in_shop(member("q/d", "initializing", None, &[]))]), []);
    }

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
