//! Which group a name stands for: it is one of a site that is followed, and of a pool here, so that two sites may have given one name to
//! theirs. What is asked of a group by its name never takes two of them for one. Pure.

use farside_api::split::group_of;
use farside_api::{ErrorBody, ErrorCode, Mirror, MirrorState, Role};

/// What a command does with a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Abort,
    Break,
    Drill,
    Initialize,
    Resync,
    Rollback,
    Swap,
    Update,
}

impl Verb {
    /// What does the same to one volume.
    fn of_one(self, volume: &str) -> String {
        match self {
            Verb::Abort => format!("farside mirror abort {volume}"),
            Verb::Break => format!("farside mirror break {volume}"),
            Verb::Drill => format!("farside mirror drill {volume}"),
            Verb::Initialize => format!("farside mirror initialize {volume}"),
            Verb::Resync => format!("farside mirror resync {volume}"),
            Verb::Rollback => format!("farside snapshot rollback {volume}@SNAP"),
            Verb::Swap => format!("farside mirror swap {volume}"),
            Verb::Update => format!("farside mirror update {volume}"),
        }
    }
}

/// Whether it holds no version yet: there is nothing of it to be used, and it is not updated with the others.
pub(super) fn is_empty(mirror: &Mirror) -> bool {
    matches!(mirror.state, MirrorState::Uninitialized | MirrorState::Initializing)
}

/// The mirrors of the group of this name; none if there is no such group.
///
/// # Errors
/// If it is the name of several groups here, and not only one of them has anything that the command could use.
pub(super) fn of_name(mirrors: Vec<Mirror>, group: &str, verb: Verb) -> Result<Vec<Mirror>, ErrorBody> {
    let mut groups: Vec<Vec<Mirror>> = Vec::new();
    for mirror in mirrors {
        if mirror.role != Role::Destination || mirror.group.as_deref() != Some(group) {
            continue;
        }
        match groups.iter_mut().find(|known| group_of(&known[0]) == group_of(&mirror)) {
            Some(known) => known.push(mirror),
            None => groups.push(vec![mirror]),
        }
    }
    // What holds nothing can be neither taken over nor updated: beside it no name is in doubt. A first copy can be stopped.
    // Of a group whose members all have their first copy none is made.
    let is_usable = |group: &Vec<Mirror>| match verb {
        Verb::Abort => true,
        Verb::Initialize => group.iter().any(is_empty),
        _ => !group.iter().all(is_empty),
    };
    if groups.len() > 1 && groups.iter().filter(|group| is_usable(group)).count() == 1 {
        groups.retain(is_usable);
    }
    match groups.len() {
        0 | 1 => Ok(groups.pop().unwrap_or_default()),
        _ => Err(several(group, &groups, verb)),
    }
}

fn names(of: &[Mirror]) -> Vec<&str> {
    of.iter().map(|m| m.name.as_str()).collect()
}

/// That the name stands for several groups, what tells them apart, and what to type.
fn several(group: &str, groups: &[Vec<Mirror>], verb: Verb) -> ErrorBody {
    let key = |of: &[Mirror]| {
        of.first().and_then(group_of).map(|(_, site, pool)| (site.to_owned(), pool.to_owned()))
    };
    let which = |of: &[Mirror]| match key(of) {
        Some((site, pool)) => format!("that of site {site} in pool {pool}"),
        None => "one of no site".to_owned(),
    };
    let each: Vec<String> =
        groups.iter().map(|of| format!("{} ({})", which(of), names(of).join(", "))).collect();
    let message = format!(
        "{group} is the name of {} groups here: {}. Nothing was changed",
        groups.len(),
        each.join(", and ")
    );
    let by_volume: Vec<String> = groups
        .iter()
        .map(|of| {
            // Whichever of a group is updated, all are; of one that is broken off only that would be said.
            let follows = of.iter().position(|m| m.state != MirrorState::BrokenOff).unwrap_or(0);
            let of_it = match verb {
                Verb::Update => &of[follows..=follows],
                _ => &of[..],
            };
            let lines: Vec<String> = of_it.iter().map(|m| verb.of_one(&m.name)).collect();
            format!("{}: {}", which(of), lines.join("; "))
        })
        .collect();
    // The fewest have to be typed again.
    let smallest = groups.iter().min_by_key(|of| of.len()).map(Vec::as_slice).unwrap_or_default();
    let renamed: Vec<String> =
        names(smallest).iter().map(|name| format!("farside mirror set {name} --group NAME")).collect();
    ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "by volume, {}. Under another name a group can be told from the other: {}, then this again",
        by_volume.join("; "),
        renamed.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::member;
    use super::*;

    fn of(name: &str, source: &str, state: &str) -> Mirror {
        Mirror { group: Some("shop".into()), source: source.into(), ..member(name, state, None, &[]).mirror }
    }

    #[test]
    fn a_name_that_two_sites_use_stands_for_neither_of_their_groups() {
        let a = [of("q/data", "a:p/data", "broken-off"), of("q/log", "a:p/log", "mirrored")];
        let c = of("q/x", "c:p/x", "mirrored");
        let all = vec![a[0].clone(), c.clone(), a[1].clone()];
        let said = of_name(all.clone(), "shop", Verb::Break).unwrap_err();
        assert_eq!(said.code, ErrorCode::Refused);
        assert_eq!(
            said.message,
            "shop is the name of 2 groups here: that of site a in pool q (q/data, q/log), and that of site c in pool q (q/x). Nothing was \
             changed"
        );
        let hint = said.hint.unwrap();
        assert!(
            hint.contains("site a in pool q: farside mirror break q/data; farside mirror break q/log;"),
            "{hint}"
        );
        assert!(hint.contains("site c in pool q: farside mirror break q/x."), "{hint}");
        assert!(hint.ends_with("farside mirror set q/x --group NAME, then this again"), "{hint}");
        // One update takes all of a group along.
        let hint = of_name(all.clone(), "shop", Verb::Update).unwrap_err().hint.unwrap();
        assert!(
            hint.contains(
                "farside mirror update q/log; that of site c in pool q: farside mirror update q/x."
            ),
            "{hint}"
        );
        assert!(of_name(all, "shop", Verb::Abort).is_err());
        assert_eq!(of_name(a.to_vec(), "shop", Verb::Break), Ok(a.to_vec()));
        assert_eq!(of_name(a.to_vec(), "other", Verb::Break), Ok(Vec::new()));
        // In another pool it is another group, too.
        assert!(of_name(vec![c.clone(), of("r/y", "c:p/y", "mirrored")], "shop", Verb::Swap).is_err());
    }

    #[test]
    fn what_holds_nothing_leaves_no_doubt_which_group_is_taken_over() {
        let (a, c) = (of("q/data", "a:p/data", "mirrored"), of("q/x", "c:p/x", "initializing"));
        let both = vec![c, a.clone()];
        assert_eq!(of_name(both.clone(), "shop", Verb::Break), Ok(vec![a]));
        assert!(of_name(both, "shop", Verb::Abort).is_err(), "its first copy can be stopped");
    }
}
