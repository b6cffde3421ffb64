//! Groups of which one part is used here and the other at another site, as far as mirrors tell.

use jiff::Timestamp;

use crate::{Mirror, MirrorState, Role, SourceHeard, WasInUse, WentOnBy};

/// What a command sets aside of a member when it takes over all has a name of about the moment in which it does.
const OF_ONE_COMMAND_SECONDS: f64 = 1.0;
/// One command that takes over a group does so one by one: the last no later after the first than this.
const TAKEN_OVER_WITHIN_SECONDS: f64 = 30.0;

/// A group of which a part has changed roles, or was taken over: hosts write to one part here, and to the other at another site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// What it is called.
    pub group: String,
    /// Volumes that are the originals here.
    originals: Vec<Original>,
    /// Volumes that were broken off by a person; what becomes of their sources is not decided.
    taken_over: Vec<String>,
    /// Volumes that another site has taken over from here, and that do not follow there yet.
    left_behind: Vec<String>,
    /// Volumes here that are replicas, or are about to be none.
    replicas: Vec<Replica>,
}

/// A volume of it that is the original here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Original {
    /// `POOL/VOL`.
    pub name: String,
    /// What follows it, `PEER:POOL/VOL`.
    pub follower: String,
    /// That fetches an update at this moment, for whatever reason.
    pub is_fetched: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Replica {
    name: String,
    source: String,
    changes_roles: bool,
    /// Hosts went on with another of the group without it.
    parted: Option<Parted>,
}

/// A replica of a group of which hosts went on with another by themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Parted {
    /// It was in use here, too, and was given back by itself.
    was_given_back: bool,
    /// The snapshot that fits to the other here, if it is known.
    fits: Option<String>,
    /// When hosts had gone on at one site and not at the other: what is of before fits.
    parted_at: Timestamp,
}

impl Split {
    /// Whether a volume here is of it.
    pub fn has(&self, name: &str) -> bool {
        self.originals.iter().any(|one| one.name == name)
            || self.taken_over.iter().chain(&self.left_behind).any(|one| one == name)
            || self.replicas.iter().any(|one| one.name == name)
    }

    /// Those that have changed roles.
    pub fn originals(&self) -> &[Original] {
        &self.originals
    }

    /// Those that a person has broken off.
    pub fn taken_over(&self) -> &[String] {
        &self.taken_over
    }

    /// A part of it has changed roles: that one command has begun, and not ended, or was one too few.
    pub fn is_half_swapped(&self) -> bool {
        !self.originals.is_empty()
    }

    /// One part has what hosts wrote here since it was taken over, the other what they wrote elsewhere: no change of roles makes them
    /// fit.
    pub fn is_parted(&self) -> bool {
        self.replicas.iter().any(|one| one.parted.is_some() && !one.changes_roles)
    }

    /// The snapshot of a volume here that fits to what hosts wrote to the others here, where it is of two histories and that is known.
    pub fn fits(&self, name: &str) -> Option<&str> {
        self.replicas.iter().find(|one| one.name == name)?.parted.as_ref()?.fits.as_deref()
    }

    /// What makes volumes of two histories ones of one.
    fn ways_together(&self) -> String {
        let back: Vec<String> = self
            .replicas
            .iter()
            .filter_map(|Replica { name, parted, .. }| {
                let Parted { fits, parted_at, .. } = parted.as_ref()?;
                Some(match fits {
                    Some(fits) => format!("farside mirror break {name} --at {fits} here"),
                    None => format!(
                        "farside mirror break {name} --at SNAP here, its newest from before {parted_at} (farside snapshot list {name} has the name; if \
                         there is none, that state is gone here)"
                    ),
                })
            })
            .collect();
        let parted = self.replicas.iter().find_map(|one| Some((one.source.as_str(), one.parted.as_ref()?)));
        let site =
            parted.and_then(|(source, _)| source.split_once(':')).map_or("the other site", |(site, _)| site);
        let since = parted.map_or_else(String::new, |(_, parted)| parted.parted_at.to_string());
        let there: Vec<String> = self
            .originals
            .iter()
            .filter_map(|one| one.follower.split_once(':'))
            .map(|(_, volume)| {
                format!(
                    "farside mirror break {volume} --at SNAP at {site}, its rescue-TIME of after {since}, or if there is none its newest from \
                     before that (farside snapshot list {volume} there has the name)"
                )
            })
            .collect();
        let used = self.originals.iter().map(|one| &one.name).chain(&self.taken_over);
        let follow: Vec<String> = used.map(|name| format!("farside mirror resync {name} here")).collect();
        let to_there: Vec<String> = there.into_iter().chain(follow).collect();
        format!(
            "these are of two histories, and no change of roles makes them fit. If what was written here counts: {}. If what was \
             written at {site} counts: {}",
            back.join(" and "),
            to_there.join(", then ")
        )
    }

    /// It may be over by itself: roles change at this moment, or what follows an original here fetches an update, perhaps for that.
    pub fn is_changing(&self) -> bool {
        self.replicas.iter().any(|one| one.changes_roles) || self.originals.iter().any(|one| one.is_fetched)
    }

    /// What is where.
    pub fn places(&self) -> String {
        let originals = self.originals.iter().map(|one| format!("{} is the original here", one.name));
        let replicas = self.replicas.iter().map(|Replica { name, source, changes_roles, parted }| match (changes_roles, parted) {
            (true, _) => format!("{name} changes roles with {source} at this moment"),
            (false, None) => format!("{name} is the replica of {source}"),
            (false, Some(Parted { was_given_back: false, .. })) => {
                format!("{name} was not taken over with it, and is the replica of {source}")
            }
            (false, Some(Parted { fits: Some(fits), .. })) => format!(
                "{name} was given back by itself, and is the replica of {source} (as hosts here left it, it is {name}@{fits})"
            ),
            (false, Some(_)) => format!("{name} was given back by itself, and is the replica of {source}"),
        });
        let taken_over = self
            .taken_over
            .iter()
            .map(|name| format!("{name} was broken off, and hosts may write to it here"));
        let left_behind = self
            .left_behind
            .iter()
            .map(|name| format!("{name} was taken over by another site, and does not follow there yet"));
        originals.chain(taken_over).chain(left_behind).chain(replicas).collect::<Vec<_>>().join(", ")
    }

    /// What to type for one side or the other: which of them was meant is not known here.
    pub fn ways_out(&self) -> String {
        let group = &self.group;
        if self.replicas.iter().any(|one| one.changes_roles) {
            return String::from("a change of roles is under way: wait for its end");
        }
        if self.is_parted() {
            return self.ways_together();
        }
        if !self.is_half_swapped() && self.taken_over.is_empty() {
            return format!(
                "to have all of it follow (what hosts wrote here stays as a side branch): farside mirror resync --group {group}"
            );
        }
        if !self.is_half_swapped() {
            let backs: Vec<String> =
                self.taken_over.iter().map(|name| format!("farside mirror resync {name}")).collect();
            return format!(
                "to take over all of it: farside mirror break --group {group}, which says how if hosts have written to it since; to give back what was broken off (what hosts wrote to it stays \
                 as a side branch): {}",
                backs.join(" and ")
            );
        }
        let here = format!("to have all originals at this site: farside mirror swap --group {group} here");
        let parts: Vec<(&str, &str)> =
            self.originals.iter().filter_map(|one| one.follower.split_once(':')).collect();
        let Some((site, _)) = parts.first() else { return here };
        let lines: Vec<String> =
            parts.iter().map(|(_, volume)| format!("farside mirror swap {volume}")).collect();
        format!("{here}; to have them at {site}: {} there", lines.join(" and "))
    }

    /// That it is so, and what to type.
    pub fn said(&self) -> String {
        let fetched: String = self
            .originals
            .iter()
            .filter(|one| one.is_fetched)
            .map(|Original { name, follower, .. }| {
                format!(
                    "; {follower} fetches an update of {name} now: if that is for a change of roles which was asked for there, wait for \
                     its end"
                )
            })
            .collect();
        format!("group {} is split: {}; {}{fetched}", self.group, self.places(), self.ways_out())
    }
}

/// What makes mirrors one group: its name, the site that they follow, and the pool that they are in. Two sites may use one name.
pub fn group_of(mirror: &Mirror) -> Option<(&str, &str, &str)> {
    let (peer, _) = mirror.source.split_once(':')?;
    let (pool, _) = mirror.name.split_once('/')?;
    Some((mirror.group.as_deref()?, peer, pool))
}

/// The groups that are split, as far as is known here: of a volume that is an original here, the way back is in the group still.
pub fn splits(mirrors: &[Mirror]) -> Vec<Split> {
    let is_overtaken = |name: &str| mirrors.iter().filter_map(overtaken).any(|m| m.name == name);
    let is_fetched = |original: &Mirror| {
        let is_of_it = |m: &&Mirror| m.role == Role::Source && m.destination == original.source;
        let is_busy = |m: &Mirror| matches!(m.state, MirrorState::Transferring | MirrorState::Initializing);
        mirrors.iter().filter(is_of_it).any(|m| m.name == original.name && is_busy(m))
    };
    let mut found: Vec<Split> = Vec::new();
    let mut keys = Vec::new();
    for mirror in mirrors.iter().filter(|m| m.role == Role::Destination) {
        let Some(key) = group_of(mirror) else { continue };
        let group = key.0;
        let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            found.push(Split {
                group: group.to_owned(),
                originals: Vec::new(),
                taken_over: Vec::new(),
                left_behind: Vec::new(),
                replicas: Vec::new(),
            });
            found.len() - 1
        });
        let name = mirror.name.clone();
        match mirror.state {
            // A first copy is nothing that hosts ever had.
            MirrorState::Uninitialized | MirrorState::Initializing => {}
            MirrorState::BrokenOff if is_overtaken(&mirror.name) => found[at].left_behind.push(name),
            MirrorState::BrokenOff => match mirror.source_heard {
                Some(SourceHeard::Follows) => {
                    let (follower, is_fetched) = (mirror.source.clone(), is_fetched(mirror));
                    found[at].originals.push(Original { name, follower, is_fetched });
                }
                // The other site has decided; it may well be a volume that nobody wants any more.
                Some(SourceHeard::Released) | None => {}
                Some(SourceHeard::NotYet | SourceHeard::Noted | SourceHeard::Fenced) => {
                    found[at].taken_over.push(name);
                }
            },
            _ => {
                let (source, changes_roles) = (mirror.source.clone(), mirror.changes_roles);
                let parted = parted(mirror, mirrors);
                found[at].replicas.push(Replica { name, source, changes_roles, parted });
            }
        }
    }
    found.retain(|split| {
        let used_here = split.originals.len() + split.taken_over.len() + split.left_behind.len();
        used_here > 0 && !split.replicas.is_empty()
    });
    found
}

/// Whether hosts went on here with another of the replica's group by themselves. What one command sets aside of several has one name.
fn parted(replica: &Mirror, mirrors: &[Mirror]) -> Option<Parted> {
    let is_later =
        |at: Timestamp, than: Timestamp| at.duration_since(than).as_secs_f64() > OF_ONE_COMMAND_SECONDS;
    let of = |used: &Mirror| {
        let went_on = used.broken_off_at?;
        let of_one_command = |name: &str| used.set_aside.as_ref().is_some_and(|of_used| of_used.name == name);
        let in_use = replica.was_in_use.as_ref();
        let parted_at = in_use.and_then(|in_use| in_use.taken_over_at).unwrap_or(went_on);
        let parted = |was_given_back, fits| Some(Parted { was_given_back, fits, parted_at });
        // Taken over by one command with the other, or before; one that was broken off later had followed until then.
        let with_it = |in_use: &WasInUse| {
            let within = match (in_use.by, used.went_on_by) {
                (Some(WentOnBy::Swap), _) => return true,
                (_, Some(WentOnBy::Swap)) => 0.0,
                _ => TAKEN_OVER_WITHIN_SECONDS,
            };
            in_use.from.duration_since(went_on).as_secs_f64() < within
        };
        if let Some(in_use) = in_use.filter(|in_use| with_it(in_use) && in_use.until > went_on) {
            return parted(true, in_use.left_as.clone());
        }
        // Where that is not remembered, as with a lost state database, what was set aside tells.
        let aside = replica.set_aside.as_ref().filter(|aside| is_later(aside.at, went_on));
        if let Some(aside) = aside.filter(|aside| !of_one_command(&aside.name)) {
            return parted(true, Some(aside.name.clone()));
        }
        // What a person took over by itself, and its former source follows since, went on from the rest: unless roles were
        // changed after it, when both had one history.
        let by_itself = used.went_on_by == Some(WentOnBy::Break)
            && used.source_heard == Some(SourceHeard::Follows)
            && replica.turned_at.is_none_or(|turned| turned < went_on);
        by_itself.then_some(())?;
        parted(false, None)
    };
    let used = |m: &&Mirror| {
        m.role == Role::Destination
            && m.state == MirrorState::BrokenOff
            && !matches!(m.source_heard, Some(SourceHeard::Released) | None)
    };
    mirrors.iter().filter(used).filter(|m| group_of(m) == group_of(replica)).find_map(of)
}

/// The same mirrors for people: why a member of a split group is not well says so, too. The first of a group says all of it, the others name
/// that one: it is a long text.
pub fn with_splits(shown: Vec<Mirror>, splits: &[Split]) -> Vec<Mirror> {
    let mut said_at: Vec<(&Split, String)> = Vec::new();
    let mut with = |mut mirror: Mirror| {
        if let Some(split) = splits.iter().find(|split| split.has(&mirror.name)) {
            let first = said_at.iter().find(|(said, name)| *said == split && *name != mirror.name);
            let said = match first {
                Some((_, first)) => format!("group {} is split: see {first}", split.group),
                None => split.said(),
            };
            said_at.push((split, mirror.name.clone()));
            mirror.why = Some(match mirror.why {
                Some(why) => format!("{why}; {said}"),
                None => said,
            });
        }
        mirror
    };
    shown.into_iter().map(&mut with).collect()
}

/// The mirror, if it is of a volume here that another site has taken over.
pub fn overtaken(mirror: &Mirror) -> Option<&Mirror> {
    (mirror.role == Role::Source && mirror.overtaken.is_some()).then_some(mirror)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::SetAside;

    fn member(name: &str, state: &str) -> Mirror {
        let document = json!({
            "id": uuid::Uuid::nil(), "name": name, "role": "destination", "source": "a:p/v", "destination": name, "state": state,
            "why": null, "lag_seconds": null, "objective_seconds": null, "current_snapshot": null, "content_root": null,
            "base_snapshot": null, "last_proven_at": null, "schedule": null, "throttle": null, "transfer": null, "group": "shop",
        });
        serde_json::from_value(document).unwrap()
    }

    fn broken_off(name: &str, heard: SourceHeard) -> Mirror {
        Mirror { source_heard: Some(heard), ..member(name, "broken-off") }
    }

    #[test]
    fn a_group_that_is_half_swapped_is_split() {
        let (a, b) = (broken_off("q/a", SourceHeard::Follows), member("q/b", "mirrored"));
        let found = splits(&[a.clone(), b.clone()]);
        assert!(found[0].is_half_swapped());
        assert_eq!(
            found[0].said(),
            "group shop is split: q/a is the original here, q/b is the replica of a:p/v; to have all originals at this site: farside mirror \
             swap --group shop here; to have them at a: farside mirror swap p/v there"
        );
        let alone = Mirror { group: None, ..member("q/x", "mirrored") };
        let [a_shown, b_shown, other] =
            with_splits(vec![a.clone(), b.clone(), alone], &found).try_into().unwrap();
        assert!(a_shown.why.is_some_and(|why| why.starts_with("group shop is split")));
        assert_eq!(b_shown.why.unwrap(), "group shop is split: see q/a");
        assert_eq!(other.why, None);
        // Whole on one side, let go of by its source, of another group, without a copy: none is split.
        assert_eq!(splits(std::slice::from_ref(&a)), []);
        assert_eq!(splits(std::slice::from_ref(&b)), []);
        assert_eq!(splits(&[broken_off("q/c", SourceHeard::Released), b.clone()]), []);
        assert_eq!(splits(&[Mirror { group: Some("other".into()), ..a.clone() }, b]), []);
        assert_eq!(splits(&[a.clone(), member("q/d", "initializing")]), []);
        // Of another site, or in another pool, it is another group.
        assert_eq!(splits(&[a.clone(), Mirror { source: "c:p/v".into(), ..member("q/b", "mirrored") }]), []);
        assert_eq!(splits(&[a, member("r/b", "mirrored")]), []);
    }

    #[test]
    fn a_group_of_which_one_volume_was_broken_off_is_split() {
        for heard in [SourceHeard::NotYet, SourceHeard::Noted, SourceHeard::Fenced] {
            let (a, b) = (broken_off("q/a", heard), member("q/b", "queued"));
            let found = splits(&[a.clone(), b]);
            assert!(!found[0].is_half_swapped() && found[0].has("q/a") && found[0].has("q/b"));
            assert_eq!(
                found[0].said(),
                "group shop is split: q/a was broken off, and hosts may write to it here, q/b is the replica of a:p/v; to take over all of \
                 it: farside mirror break --group shop, which says how if hosts have written to it since; to give back what was broken off (what hosts wrote to it stays as a side branch): \
                 farside mirror resync q/a"
            );
            // All of it was taken over.
            assert_eq!(splits(&[a, broken_off("q/b", heard)]), []);
        }
    }

    #[test]
    fn a_group_of_which_one_volume_was_left_behind_is_split() {
        let (a, b) = (broken_off("p/a", SourceHeard::Follows), member("p/b", "mirrored"));
        let taken = Mirror {
            role: Role::Source,
            overtaken: serde_json::from_value(json!({
                "since": "2026-11-26T12:00:00Z", "reported_at": "2026-11-26T12:00:00Z", "fenced": false, "snapshot": null,
                "diverged_bytes": null, "diverged_blocks": null
            }))
            .ok(),
            group: None,
            ..member("p/a", "mirrored")
        };
        assert!(taken.overtaken.is_some());
        let found = splits(&[a.clone(), taken.clone(), b]);
        assert!(!found[0].is_half_swapped() && found[0].has("p/a"));
        assert_eq!(
            found[0].said(),
            "group shop is split: p/a was taken over by another site, and does not follow there yet, p/b is the replica of a:p/v; to have all \
             of it follow (what hosts wrote here stays as a side branch): farside mirror resync --group shop"
        );
        // All of it was taken over.
        assert_eq!(splits(&[a, taken]), []);
    }

    #[test]
    fn volumes_of_two_histories_are_not_brought_together_by_a_change_of_roles() {
        let at = |second: u32| format!("2026-11-26T12:00:{second:02}Z").parse::<crate::Timestamp>().unwrap();
        let aside = |second| Some(SetAside { name: format!("rescue-{}", at(second)), at: at(second) });
        let used = |heard| Mirror { broken_off_at: Some(at(10)), ..broken_off("q/a", heard) };
        let given = |second| Mirror { set_aside: aside(second), ..member("q/b", "mirrored") };
        let said = |a: Mirror, b: Mirror| splits(&[a, b])[0].said();
        assert_eq!(
            said(used(SourceHeard::Follows), given(40)),
            "group shop is split: q/a is the original here, q/b was given back by itself, and is the replica of a:p/v (as hosts here left it, it \
             is q/b@rescue-2026-11-26T12:00:40Z); these are of two histories, and no change of roles makes them fit. If what was written \
             here counts: farside mirror break q/b --at rescue-2026-11-26T12:00:40Z here. If what was written at a counts: farside mirror \
             break p/v --at SNAP at a, its rescue-TIME of after 2026-11-26T12:00:10Z, or if there is none its newest from before that (farside \
             snapshot list p/v there has the name), then farside mirror resync q/a here"
        );
        let of_person = said(used(SourceHeard::Noted), given(40));
        assert!(
            of_person.ends_with("If what was written at a counts: farside mirror resync q/a here"),
            "{of_person}"
        );
        // Hosts wrote nothing to it here, but it was given back all the same.
        let in_use = |from, until| {
            Some(WasInUse {
                by: Some(WentOnBy::Break),
                from: at(from),
                until: at(until),
                left_as: None,
                taken_over_at: Some(at(12)),
            })
        };
        let unwritten = Mirror { was_in_use: in_use(11, 40), ..member("q/b", "mirrored") };
        let known = Mirror {
            was_in_use: in_use(11, 40).map(|in_use| WasInUse { left_as: Some("kept-9".into()), ..in_use }),
            ..member("q/b", "mirrored")
        };
        let known = said(used(SourceHeard::Follows), known);
        assert!(known.contains("farside mirror break q/b --at kept-9 here"), "{known}");
        assert!(known.contains("its rescue-TIME of after 2026-11-26T12:00:12Z"), "{known}");
        // One was taken over by a person, and is followed since; the other never was.
        let by_person = Mirror { went_on_by: Some(WentOnBy::Break), ..used(SourceHeard::Follows) };
        let alone = said(by_person.clone(), member("q/b", "mirrored"));
        assert!(alone.contains("q/b was not taken over with it"), "{alone}");
        assert!(
            alone.contains(
                "farside mirror break q/b --at SNAP here, its newest from before 2026-11-26T12:00:10Z"
            ),
            "{alone}"
        );
        let turned = Mirror { turned_at: Some(at(30)), ..member("q/b", "mirrored") };
        assert!(said(by_person, turned).contains("farside mirror swap --group shop here"));
        // Broken off and given back while the other had changed its role before.
        let turned = Mirror { went_on_by: Some(WentOnBy::Swap), ..used(SourceHeard::Follows) };
        let between = Mirror { was_in_use: in_use(12, 40), ..member("q/b", "mirrored") };
        assert!(said(turned.clone(), between.clone()).contains("farside mirror swap --group shop here"));
        let both = between.was_in_use.map(|in_use| WasInUse { by: Some(WentOnBy::Swap), ..in_use });
        assert!(
            said(turned, Mirror { was_in_use: both, ..member("q/b", "mirrored") }).contains("two histories")
        );
        let unwritten_said = said(used(SourceHeard::Follows), unwritten.clone());
        assert!(
            unwritten_said.contains(
                "farside mirror break q/b --at SNAP here, its newest from before 2026-11-26T12:00:12Z"
            ),
            "{unwritten_said}"
        );
        // Given back before the other went on; broken off, and given back, long after it.
        for (from, until) in [(5, 9), (45, 50)] {
            let other = Mirror { was_in_use: in_use(from, until), ..unwritten.clone() };
            let said = said(used(SourceHeard::Follows), other);
            assert!(said.contains("farside mirror swap --group shop here"), "{said}");
        }
        // Set aside before, or with the other: roles may change.
        for (a, b) in [
            (used(SourceHeard::Follows), given(9)),
            (Mirror { set_aside: aside(40), ..used(SourceHeard::Follows) }, given(40)),
        ] {
            let said = said(a, b);
            assert!(said.contains("farside mirror swap --group shop here"), "{said}");
        }
    }

    #[test]
    fn a_change_of_roles_that_is_under_way_is_waited_for() {
        let (a, b) = (broken_off("q/a", SourceHeard::Follows), member("q/b", "mirrored"));
        let changes = Mirror { changes_roles: true, ..b.clone() };
        let said = splits(&[a.clone(), changes])[0].said();
        assert!(said.contains("q/b changes roles with a:p/v at this moment"), "{said}");
        assert!(said.ends_with("wait for its end") && !said.contains("farside mirror swap"), "{said}");
        // Whether what its follower fetches is for one, is known there.
        let mut fetched = member("q/a", "transferring");
        (fetched.role, fetched.destination) = (Role::Source, "a:p/v".into());
        let said = splits(&[a, b, fetched])[0].said();
        assert!(said.contains("a:p/v fetches an update of q/a now"), "{said}");
    }
}
