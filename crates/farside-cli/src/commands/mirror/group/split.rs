//! Groups of which one part has changed roles and another has not, as far as mirrors tell. Pure.

use farside_api::{Mirror, MirrorState, Role, SourceHeard};

/// A group of which a part has changed roles: hosts write to one part here, and to the other at another site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Split {
    pub(crate) group: String,
    /// Volumes that are the originals here.
    originals: Vec<String>,
    /// Volumes here that are replicas, and of what.
    replicas: Vec<(String, String)>,
}

impl Split {
    /// Whether a volume here is of it.
    pub(crate) fn has(&self, name: &str) -> bool {
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
    pub(crate) fn said(&self) -> String {
        let group = &self.group;
        format!("group {group} is split: {}; farside mirror swap --group {group} goes on", self.places())
    }
}

/// The groups that are split, as far as is known here: of a volume that is an original here, the way back is in the group still.
pub(crate) fn splits(mirrors: &[Mirror]) -> Vec<Split> {
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
pub(crate) fn with_splits(shown: Vec<Mirror>, splits: &[Split]) -> Vec<Mirror> {
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

/// The mirror, if it is of a volume here that another site has taken over.
pub(super) fn overtaken(mirror: &Mirror) -> Option<&Mirror> {
    (mirror.role == Role::Source && mirror.overtaken.is_some()).then_some(mirror)
}

#[cfg(test)]
mod tests {
    use super::super::members::Member;
    use super::super::members::tests::{member, original};
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
}
