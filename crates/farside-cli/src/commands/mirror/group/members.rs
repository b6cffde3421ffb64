//! The mirrors of a group.

use std::collections::BTreeSet;

use farside_api::split::{Split, overtaken};
use farside_api::{ErrorBody, ErrorCode, Mirror, MirrorState, Role, Snapshot, SourceHeard, Timestamp};

use super::halves;
use super::named::{Verb, is_empty, of_name};
use crate::arguments::names::VolumeName;
use crate::commands::context::Context;
use crate::commands::mirror::side_branches;

/// A mirror of the group, and the snapshots of its replica.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) mirror: Mirror,
    pub(super) snapshots: Vec<Snapshot>,
    /// Its volume was the original, and another site has taken over since.
    is_overtaken: bool,
    /// Nothing here follows that site yet: it is of the group there.
    is_taken_over: bool,
}

impl Member {
    pub(super) fn split(&self) -> Result<(&str, &str), ErrorBody> {
        let name = &self.mirror.name;
        name.split_once('/')
            .ok_or_else(|| ErrorBody::new(ErrorCode::Failed, format!("{name:?} is no volume")))
    }

    /// The path of a request about the mirror.
    pub(super) fn path<'a>(&'a self, verb: &'a str) -> Result<[&'a str; 4], ErrorBody> {
        let (pool, volume) = self.split()?;
        Ok(["mirrors", pool, volume, verb])
    }

    /// Those of what was set aside of it, as they were when it was looked at.
    pub(super) fn side_branches(&self) -> Vec<String> {
        side_branches::names_of(&self.snapshots)
    }

    /// One whose volume another site has taken over, and that does not follow there yet: the mirror as it will be.
    pub(super) fn taken_over(mirror: &Mirror, group: &str, snapshots: Vec<Snapshot>) -> Member {
        let mirror = Mirror {
            role: Role::Destination,
            state: MirrorState::BrokenOff,
            source: mirror.destination.clone(),
            destination: mirror.name.clone(),
            group: Some(group.to_owned()),
            // Its hosts have gone on by themselves since then.
            broken_off_at: mirror.overtaken.as_ref().map(|overtaken| overtaken.since),
            overtaken: None,
            ..mirror.clone()
        };
        Member { mirror, snapshots, is_overtaken: true, is_taken_over: true }
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    pub(super) fn is_broken_off(&self) -> bool {
        self.mirror.state == MirrorState::BrokenOff
    }

    /// A resync of it is pending, and has brought nothing.
    pub(super) fn shows_own_state(&self) -> bool {
        self.mirror.shows_own_state
    }

    /// It is no original of the group here (any more), whatever it was when it was asked.
    pub(super) fn is_none_any_more(&self) -> bool {
        !self.is_broken_off() || self.is_overtaken
    }

    /// Its newest snapshot of what hosts see that is of this moment or older.
    pub(super) fn newest_by(&self, at: Timestamp) -> Option<&str> {
        let older = self.snapshots.iter().filter(|s| s.on_main_line && s.created_at <= at);
        older.max_by_key(|s| s.created_at).map(|s| s.name.as_str())
    }

    /// When the data of a snapshot was so, if it has one of this name.
    pub(super) fn created_at(&self, name: &str) -> Option<Timestamp> {
        self.snapshots.iter().find(|s| s.name == name).map(|s| s.created_at)
    }

    /// What it has gone on from ever since a moment at which it was a replica: its newest of then. None if it has moved meanwhile, or may
    /// have.
    pub(super) fn shows_since(&self, at: Timestamp) -> Option<&str> {
        let newest = self.newest_by(at)?;
        let newest_at = self.created_at(newest)?;
        let is_newer_aside = |s: &Snapshot| !s.on_main_line && s.created_at > newest_at && s.created_at <= at;
        let has_moved = self.mirror.current_snapshot.as_deref() != Some(newest)
            || self.snapshots.iter().any(is_newer_aside);
        (!has_moved).then_some(newest)
    }

    /// Its volume is the original of its former source, which follows it: what is in the group is the way back.
    pub(super) fn is_original(&self) -> bool {
        self.is_broken_off() && self.mirror.source_heard == Some(SourceHeard::Follows)
    }

    /// The same, and it counts: nobody has taken over from it since.
    pub(super) fn is_valid_original(&self) -> bool {
        self.is_original() && !self.is_overtaken
    }
}

/// `1 mirror`, `2 mirrors`.
pub(super) fn mirrors_of(count: usize) -> String {
    format!("{count} mirror{}", if count == 1 { "" } else { "s" })
}

/// `1 volume`, `2 volumes`.
pub(super) fn volumes_of(count: usize) -> String {
    format!("{count} volume{}", if count == 1 { "" } else { "s" })
}

/// The mirrors of a group.
pub(super) struct Group {
    /// Those that hold a version.
    pub(super) members: Vec<Member>,
    /// Volumes that are in it and hold nothing yet: there is nothing of them to be used.
    pub(super) left_out: Vec<String>,
    /// Those whose volumes are the originals here: only the way back is in the group.
    pub(super) originals: Vec<Member>,
    /// A part of it has changed roles.
    pub(super) split: Option<Split>,
}

/// That all volumes of the group have changed roles.
fn swapped(group: &str, originals: &[Member]) -> ErrorBody {
    let names: Vec<&str> = originals.iter().map(|m| m.mirror.name.as_str()).collect();
    let (are, which) = match names.len() {
        1 => ("is the original", "the replica is"),
        _ => ("are the originals", "the replicas are"),
    };
    let site = originals.first().and_then(|m| m.mirror.source.split_once(':')).map(|(site, _)| site);
    let message =
        format!("group {group}: {} {are} here already; there is nothing to take over", names.join(" and "));
    ErrorBody::new(ErrorCode::Refused, message)
        .hint(format!("{which} at {}: the same command there", site.unwrap_or("the other site")))
}

impl Group {
    /// Those that are replicas, or were made writable by a person. What has changed roles is the original here and is not to be taken over.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn replicas(mut self, group: &str) -> Result<Group, ErrorBody> {
        let (originals, replicas): (Vec<Member>, Vec<Member>) =
            self.members.into_iter().partition(Member::is_original);
        if replicas.is_empty() {
            return Err(swapped(group, &originals));
        }
        self.members = replicas;
        self.originals = originals;
        Ok(self)
    }

    /// That some are left out, a line each.
    pub(super) fn note(&self, group: &str) -> String {
        let line =
            |name: &String| format!("{name} is in group {group} and holds nothing yet: it is left out\n");
        let original = |member: &Member| {
            format!("{} is the original here already: it is left as it is\n", member.mirror.name)
        };
        self.left_out.iter().map(line).chain(self.originals.iter().map(original)).collect()
    }

    /// The same for people who read along where a program reads the answer, whose form has no place for it.
    pub(super) fn note_aside(&self, context: &Context, group: &str) {
        if context.json {
            self.note(group).lines().for_each(|line| eprintln!("farside: {line}"));
        }
    }
}

/// The mirrors of the group, for a command that does this with them.
pub(super) async fn members(context: &Context, group: &str, verb: Verb) -> Result<Group, ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let overtaken: Vec<String> = mirrors.iter().filter_map(overtaken).map(|m| m.name.clone()).collect();
    let (with_version, left_out) = of_group(mirrors.clone(), group, verb)?;
    let split = halves::here(&mirrors, &with_version).filter(Split::is_half_swapped);
    let mut members = Vec::new();
    for mirror in with_version {
        let is_overtaken = overtaken.contains(&mirror.name);
        let mut member = Member { mirror, snapshots: Vec::new(), is_overtaken, is_taken_over: false };
        let (pool, volume) = member.split()?;
        member.snapshots = context.client.get(&["volumes", pool, volume, "snapshots"]).await?;
        members.push(member);
    }
    Ok(Group { members, left_out, originals: Vec::new(), split })
}

/// A replica of the group that holds a version: with its update the daemon updates all.
///
/// # Errors
/// If these are not all of the group: a part of it is used at another site.
pub(crate) async fn to_update(context: &Context, group: &str) -> Result<VolumeName, ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let (with_version, _) = of_group(mirrors.clone(), group, Verb::Update)?;
    if let Some(split) = halves::here(&mirrors, &with_version) {
        return Err(halves::no_update(&split.said(), &split, &with_version));
    }
    if let Some((site, split)) = halves::there(context, &with_version).await {
        return Err(halves::no_update(&halves::said_there(&site, &split), &split, &with_version));
    }
    if let Some(error) = none_follows(group, &with_version) {
        return Err(error);
    }
    // Of one that is broken off the daemon would say only that.
    let follows = with_version.iter().find(|m| m.state != MirrorState::BrokenOff);
    let one = follows.or(with_version.first()).map(|m| m.name.parse::<VolumeName>());
    match one {
        Some(Ok(name)) => Ok(name),
        _ => Err(ErrorBody::new(ErrorCode::Failed, format!("group {group}: its mirrors cannot be named"))),
    }
}

/// That there is nothing to update: hosts use all of the group here.
fn none_follows(group: &str, all: &[Mirror]) -> Option<ErrorBody> {
    if all.iter().any(|m| m.state != MirrorState::BrokenOff) {
        return None;
    }
    let is_original = |m: &Mirror| m.source_heard == Some(SourceHeard::Follows);
    let names = all.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ");
    let error = |what: &str| {
        ErrorBody::new(
            ErrorCode::Refused,
            format!("all of group {group} ({names}) {what}. Nothing was updated"),
        )
    };
    Some(match all.iter().all(is_original) {
        true => {
            let site = all.first().and_then(|m| m.source.split_once(':')).map_or("the other site", |(s, _)| s);
            error("are originals here: hosts write to them")
                .hint(format!("their replicas are at {site}: farside mirror update --group {group} there"))
        }
        false => error("is broken off, and hosts may write to it").hint(format!(
            "farside mirror resync --group {group} has them follow again; what hosts wrote here stays as a side branch of each"
        )),
    })
}

/// What whoever names a group that is not here may have meant.
fn groups_here(groups: &BTreeSet<String>) -> String {
    match groups.len() {
        0 => String::from(
            "there are no groups here; farside mirror set POOL/VOL --group NAME puts a mirror into one",
        ),
        _ => format!("groups here: {}", groups.iter().cloned().collect::<Vec<_>>().join(", ")),
    }
}

/// The replicas of the group that hold a version, and the names of those that do not: these are not updated with the others.
fn of_group(mirrors: Vec<Mirror>, group: &str, verb: Verb) -> Result<(Vec<Mirror>, Vec<String>), ErrorBody> {
    let groups: BTreeSet<String> =
        mirrors.iter().filter(|m| m.role == Role::Destination).filter_map(|m| m.group.clone()).collect();
    let all = of_name(mirrors, group, verb)?;
    let (empty, with_version): (Vec<Mirror>, Vec<Mirror>) = all.into_iter().partition(is_empty);
    match (with_version.is_empty(), empty.first()) {
        (false, _) => Ok((with_version, empty.into_iter().map(|m| m.name).collect())),
        (true, None) => {
            Err(ErrorBody::new(ErrorCode::NotFound, format!("no mirror here is in a group {group}"))
                .hint(groups_here(&groups)))
        }
        (true, Some(first)) => {
            if let Some((name, why)) = empty.iter().find_map(|m| Some((&m.name, m.why.as_ref()?))) {
                let message =
                    format!("group {group}: none of its mirrors has a copy that can be used; {name}: {why}");
                return Err(ErrorBody::new(ErrorCode::Refused, message)
                    .hint("farside mirror status says the same of each, with what to type"));
            }
            let message = match empty.len() {
                1 => format!("group {group}: its only mirror, {}, has no whole copy yet", first.name),
                count => format!("group {group}: none of its {count} mirrors has a whole copy yet"),
            };
            let (what, copies) = match empty.len() {
                1 => (first.name.clone(), "the first copy"),
                _ => (format!("--group {group}"), "the first copies"),
            };
            Err(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
                "farside mirror initialize {what} makes {copies}; farside mirror status shows how far it is"
            )))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// That the volume of a member was taken over by another site.
    pub(in crate::commands::mirror::group) fn overtaken(member: Member) -> Member {
        Member { is_overtaken: true, ..member }
    }

    impl Member {
        /// A snapshot of it lies on a side branch.
        pub(in crate::commands::mirror::group) fn aside(mut self, name: &str) -> Member {
            self.snapshots.iter_mut().filter(|s| s.name == name).for_each(|s| s.on_main_line = false);
            self
        }
    }

    /// One whose former source follows it.
    pub(in crate::commands::mirror::group) fn original(name: &str) -> Member {
        let mut member = member(name, "broken-off", None, &[]);
        member.mirror.source_heard = Some(SourceHeard::Follows);
        member
    }

    pub(in crate::commands::mirror::group) fn member(
        name: &str,
        state: &str,
        current: Option<&str>,
        snapshots: &[(&str, &str)],
    ) -> Member {
        let mirror = json!({
            "id": "00000000-0000-0000-0000-000000000000", "name": name, "role": "destination", "source": "a:p/v",
            "destination": name, "state": state, "why": null, "lag_seconds": null, "objective_seconds": null,
            "current_snapshot": current, "content_root": null, "base_snapshot": null, "last_proven_at": null,
            "schedule": null, "throttle": null, "transfer": null
        });
        let snapshot = |(name, at): &(&str, &str)| {
            let made_by = if name.starts_with("mirror-") { "mirror" } else { "person" };
            let document = json!({
                "made_by": made_by, "name": name, "volume": "q/v", "uuid": "00000000-0000-0000-0000-000000000000", "content_root": null,
                "created_at": format!("2026-11-26T{at}:00Z"), "held": false, "referenced_bytes": null, "unique_bytes": null
            });
            serde_json::from_value(document).unwrap()
        };
        Member {
            mirror: serde_json::from_value(mirror).unwrap(),
            snapshots: snapshots.iter().map(snapshot).collect(),
            is_overtaken: false,
            is_taken_over: false,
        }
    }

    #[test]
    fn what_has_changed_roles_is_not_taken_over() {
        let group = |members| Group { members, left_out: Vec::new(), originals: Vec::new(), split: None };
        let some = vec![original("q/a"), member("q/b", "mirrored", None, &[])];
        let left = group(some).replicas("shop").unwrap();
        assert_eq!(left.members.len(), 1);
        assert!(left.note("shop").contains("q/a is the original here already"));
        let none = group(vec![original("q/a"), original("q/b")]).replicas("shop").err().unwrap();
        assert!(none.message.contains("q/a and q/b are the originals here already"), "{}", none.message);
        // What a person has broken off is still of the group.
        assert!(group(vec![member("q/a", "broken-off", None, &[])]).replicas("shop").is_ok());
    }

    #[test]
    fn who_holds_nothing_is_left_out_and_named() {
        let mirror = |name, state| member(name, state, None, &[]).mirror;
        let in_shop = |m: Mirror| Mirror { group: Some("shop".into()), ..m };
        let of = |mirrors: &[Mirror]| of_group(mirrors.to_vec(), "shop", Verb::Break);
        let (a, b) = (in_shop(mirror("q/a", "mirrored")), in_shop(mirror("q/b", "uninitialized")));
        let c = in_shop(mirror("q/c", "initializing"));
        let (with, without) = of(&[a.clone(), b.clone(), mirror("q/d", "mirrored")]).unwrap();
        assert_eq!((with, &without[..]), (vec![a], &["q/b".to_owned()][..]));
        let none = of(&[b.clone(), c]).unwrap_err();
        assert_eq!(none.message, "group shop: none of its 2 mirrors has a whole copy yet");
        assert!(of(&[b]).unwrap_err().message.contains("its only mirror, q/b"));
        assert_eq!(of(&[]).unwrap_err().code, ErrorCode::NotFound);
    }
}
