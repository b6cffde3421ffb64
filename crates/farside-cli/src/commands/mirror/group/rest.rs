//! What a command on one volume leaves of its group, for advice.

use farside_api::split::group_of;
use farside_api::{Mirror, MirrorState, Role, SourceHeard};

use super::members::{Member, members};
use super::moments::{Line, choose, decided, each_alone};
use super::named::Verb;
use crate::commands::context::Context;

/// What takes over the rest of the group of a volume that was broken off by itself; nothing if there is no rest. It is for advice: of what
/// cannot be asked the group's own command says more.
pub(crate) async fn rest_after_break(context: &Context, of: &Mirror) -> String {
    let Some(group) = &of.group else { return String::new() };
    let of_group = members(context, group, Verb::Break).await.and_then(|all| all.replicas(group));
    let Ok(of_group) = of_group else { return String::new() };
    rest(group, &of_group.members)
}

fn rest(group: &str, members: &[Member]) -> String {
    let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
    if left.is_empty() {
        return String::new();
    }
    let at = decided(members).ok().flatten();
    let take_over = match choose(members, None, at, Line::Main) {
        Ok(_) => format!("To take over all of it: farside mirror break --group {group}"),
        Err(_) => each_alone(&left),
    };
    format!("it is of group {group}, of which nothing is updated from now on. {take_over}\n")
}

/// What else of its group hosts may write to here, and whether its former source follows that already. It is for advice: what cannot be asked
/// is nothing.
pub(crate) async fn in_use_beside(context: &Context, of: &Mirror) -> (Vec<String>, bool) {
    let Ok(mirrors) = context.client.get::<Vec<Mirror>>(&["mirrors"]).await else {
        return Default::default();
    };
    let group = group_of(of);
    let is_used = |m: &&Mirror| {
        m.role == Role::Destination
            && group.is_some()
            && group_of(m) == group
            && m.name != of.name
            && m.state == MirrorState::BrokenOff
            && m.source_heard != Some(SourceHeard::Released)
    };
    let used: Vec<&Mirror> = mirrors.iter().filter(is_used).collect();
    let is_followed = used.iter().any(|m| m.source_heard == Some(SourceHeard::Follows));
    (used.iter().map(|m| m.name.clone()).collect(), is_followed)
}
