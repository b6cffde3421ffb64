//! A group of which a part is used at another site: what is asked of the group would be done to the part here, and pass for the whole.

use farside_api::split::{Split, splits};
use farside_api::{ErrorBody, ErrorCode, Mirror, Peer, PeerState};

use crate::commands::context::Context;

/// How the group of these mirrors is split, as far as is known here.
pub(super) fn here(all: &[Mirror], of_group: &[Mirror]) -> Option<Split> {
    splits(all).into_iter().find(|split| of_group.iter().any(|m| split.has(&m.name)))
}

/// How it is split as the site says that is followed: there what has changed its role is in the group still, and here perhaps in none. What
/// cannot be asked is not waited for: a drill is for the day on which that site is gone.
pub(super) async fn there(context: &Context, of_group: &[Mirror]) -> Option<(String, Split)> {
    let (site, _) = of_group.first()?.source.split_once(':')?;
    let peers: Vec<Peer> = context.client.get(&["peers"]).await.ok()?;
    let is_up = peers.iter().any(|peer| peer.name == site && peer.state == PeerState::Connected);
    let client = context.client.of_peer(site).filter(|_| is_up)?;
    let mirrors: Vec<Mirror> = client.get(&["mirrors"]).await.ok()?;
    of_site(site, &mirrors, of_group).map(|split| (site.to_owned(), split))
}

/// The split among those of another site of which one of these is a part.
fn of_site(site: &str, there: &[Mirror], of_group: &[Mirror]) -> Option<Split> {
    let is_followed = |volume: &str| of_group.iter().any(|m| m.source == format!("{site}:{volume}"));
    splits(there).into_iter().find(|split| split.originals().iter().any(|one| is_followed(&one.name)))
}

/// The same in words: what is here and what is there is as that site sees it.
pub(super) fn said_there(site: &str, split: &Split) -> String {
    format!("{site} says, and \"here\" is {site} in this: {}", split.said())
}

/// That a part of the group would be updated, which comes to no moment of the whole.
pub(super) fn no_update(said: &str, split: &Split, of_group: &[Mirror]) -> ErrorBody {
    let group = &split.group;
    let message = format!(
        "{said}. An update would bring a part of group {group} to a moment that the rest does not have. Nothing was updated"
    );
    // What was broken off by a person keeps the others; what has changed its role does not.
    let hint = match split.taken_over() {
        [] => {
            let follows = of_group.iter().find(|m| m.state != farside_api::MirrorState::BrokenOff);
            let one = follows.map_or("POOL/VOL", |m| m.name.as_str());
            format!("farside mirror update {one} updates what is a replica here, by itself")
        }
        broken_off => {
            let out: Vec<String> =
                broken_off.iter().map(|name| format!("farside mirror set {name} --group none")).collect();
            format!("to have the others updated without it, take it out: {}", out.join("; "))
        }
    };
    ErrorBody::new(ErrorCode::Refused, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use farside_api::SourceHeard;

    use super::super::members::tests::member;
    use super::*;

    fn of(name: &str, source: &str, state: &str) -> Mirror {
        Mirror { group: Some("shop".into()), source: source.into(), ..member(name, state, None, &[]).mirror }
    }

    #[test]
    fn a_part_of_a_group_is_not_updated_as_if_it_were_the_whole() {
        let original =
            Mirror { source_heard: Some(SourceHeard::Follows), ..of("q/data", "a:p/data", "broken-off") };
        let all = [original, of("q/log", "a:p/log", "mirrored"), of("r/log", "a:p/other", "mirrored")];
        let split = here(&all, &all[..2]).unwrap();
        let said = no_update(&split.said(), &split, &all[..2]);
        assert_eq!(said.code, ErrorCode::Refused);
        assert!(
            said.message.starts_with("group shop is split: q/data is the original here"),
            "{}",
            said.message
        );
        assert!(said.message.ends_with("Nothing was updated"), "{}", said.message);
        assert!(said.hint.unwrap().contains("farside mirror update q/log updates"));
        // In another pool it is another group.
        assert!(here(&all, &all[2..]).is_none());

        let broken = Mirror { source_heard: Some(SourceHeard::NotYet), ..all[0].clone() };
        let all = [broken, all[1].clone()];
        let split = here(&all, &all).unwrap();
        let said = no_update(&split.said(), &split, &all);
        assert!(said.message.contains("farside mirror break --group shop"), "{}", said.message);
        assert!(said.hint.unwrap().ends_with("farside mirror set q/data --group none"));
    }

    #[test]
    fn at_the_site_of_the_new_replica_the_other_one_says_that_the_group_is_split() {
        let original =
            Mirror { source_heard: Some(SourceHeard::Follows), ..of("q/data", "a:p/data", "broken-off") };
        let there = [original, of("q/log", "a:p/log", "mirrored")];
        let follows = of("p/data", "b:q/data", "mirrored");
        let split = of_site("b", &there, std::slice::from_ref(&follows)).unwrap();
        assert!(
            said_there("b", &split)
                .starts_with("b says, and \"here\" is b in this: group shop is split: q/data")
        );
        // It follows another volume there, or that of another site.
        assert!(of_site("b", &there, &[of("p/x", "b:q/x", "mirrored")]).is_none());
        assert!(of_site("c", &there, &[follows]).is_none());
    }
}
