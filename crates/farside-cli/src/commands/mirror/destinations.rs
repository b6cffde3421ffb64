//! `farside mirror destinations`: what is kept at a source, for whom and why.

use farside_api::{BudgetUse, KeptFor, KeptSnapshot, MirrorDestination};

use crate::output::{Column, or_dash, table};
use crate::quantities::{size, time};

/// Names of snapshots that one line shows.
const NAMES_MAX: usize = 5;

/// A table of them, and below it what needs more words. `volume`: of this one alone.
pub(super) fn text(held: &[MirrorDestination], volume: Option<&str>) -> String {
    let columns = [
        Column::Left("volume"),
        Column::Left("peer"),
        Column::Left("destination"),
        Column::Left("base"),
        Column::Left("since"),
        Column::Right("costs"),
        Column::Left("state"),
    ];
    let rows = held.iter().map(|h| {
        vec![
            h.volume.clone(),
            if h.known { h.peer.clone() } else { format!("unknown: {}", h.id) },
            if h.known { h.destination.clone() } else { String::from("-") },
            or_dash(h.base_snapshot.clone(), |s| s),
            or_dash(h.since, time),
            or_dash(h.pinned_bytes, size),
            match (&h.overtaken, h.known, h.transferring, &h.released) {
                (None, true, false, None) if h.stale => "stale",
                (Some(overtaken), ..) if overtaken.fenced => "overtaken, fenced",
                (Some(_), ..) => "overtaken",
                (None, false, ..) => "unknown here",
                (None, true, true, _) => "transferring",
                (None, true, false, Some(_)) => "base released",
                (None, true, false, None) => "",
            }
            .into(),
        ]
    });
    let none = format!("no site mirrors {}", volume.unwrap_or("volumes of this site"));
    let mut text = table(&columns, rows.collect(), &none);
    let mut peers: Vec<&str> = Vec::new();
    for h in held {
        if !h.known {
            text.push_str(&format!(
                "\n{} is kept for relationship {}, which this site does not know (its peer was removed, or the state database was \
                 lost). If that mirror was broken off, hosts may be writing at its site: pair with it before hosts write here, \
                 and this site is told. If no other site needs it: farside mirror release {} {}\n",
                h.base_snapshot.as_ref().map_or(h.volume.clone(), |snapshot| format!("{}@{snapshot}", h.volume)),
                h.id,
                h.volume,
                h.id
            ));
        }
        if h.stale {
            text.push_str(&format!(
                "\n{} has a newer mirror of {} into {}; this one is over: farside mirror release {} {}\n",
                h.peer, h.volume, h.destination, h.volume, h.id
            ));
        }
        text.push_str(&kept(h));
        if let Some(released) = &h.released {
            text.push_str(&format!(
                "\n{} of {}: base released {}: {}\n",
                h.volume,
                h.peer,
                time(released.at),
                released.why
            ));
        }
        if let Some(used) = &h.budgets
            && !peers.contains(&h.peer.as_str())
        {
            peers.push(&h.peer);
            text.push_str(&budgets(&h.peer, used));
        }
    }
    text
}

/// One line about a peer: what it uses of what it may.
fn budgets(peer: &str, used: &BudgetUse) -> String {
    let kept =
        used.pinned_bytes_max.map_or_else(String::new, |most| format!(", at most {} kept", size(most)));
    format!(
        "\nbudgets of {peer}: {} of {} mirrors, {} of {} transfers at a time, {} of {} snapshots kept, {} of {} snapshots a \
         minute{kept}\n",
        used.mirrors,
        used.mirrors_max,
        used.transfers,
        used.transfers_max,
        used.pins,
        used.pins_max,
        used.snapshots,
        used.snapshots_max
    )
}

/// What cannot be deleted because of a mirror, besides its base.
fn kept(held: &MirrorDestination) -> String {
    let all = |why: KeptFor| held.kept.iter().filter(|k| k.why == why).collect::<Vec<_>>();
    let line = |kept: &[&KeptSnapshot], why: &str| match kept {
        [] => String::new(),
        kept => format!("\n{} of {}: {} kept {why}\n", held.volume, held.peer, names(kept)),
    };
    let travels = "while a transfer runs; what persons made can be deleted when it has ended";
    let interrupted = format!(
        "since a transfer was interrupted: {} may have it or a part of it. The next transfer goes on with it or releases it",
        held.destination
    );
    line(&all(KeptFor::Transfer), travels) + &line(&all(KeptFor::Interrupted), &interrupted)
}

/// The first of them by name.
fn names(kept: &[&KeptSnapshot]) -> String {
    let name = |k: &&KeptSnapshot| match k.made_by_person {
        true => k.name.clone(),
        false => format!("{} (the mirror's own)", k.name),
    };
    let shown = kept.iter().take(NAMES_MAX).map(name).collect::<Vec<_>>().join(", ");
    let more = match kept.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if kept.len() == 1 { "is" } else { "are" };
    format!("{shown}{more} {verb}")
}

/// What a release has cost: whoever follows still, finds no base any more.
pub(super) fn released(released: &[MirrorDestination], volume: &str, peer: &str) -> String {
    let follows = |d: &&MirrorDestination| d.known && !d.stale && d.overtaken.is_none();
    let line = |d: &MirrorDestination| {
        format!(
            "the next update of {1}:{0} fails, unless a snapshot is left that both sides hold; at {1}, farside mirror delete {0} ends \
             that mirror, farside mirror resync {0} --whole has it follow again\n",
            d.destination, d.peer
        )
    };
    let followers: String = released.iter().filter(follows).map(line).collect();
    format!("{volume} is released from {peer}\n{followers}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_snapshots(count: usize, why: KeptFor) -> Vec<KeptSnapshot> {
        let kept = |n| KeptSnapshot { name: format!("s{n}"), made_by_person: n > 0, why };
        (0..count).map(kept).collect()
    }

    #[test]
    fn what_cannot_be_deleted_is_named_and_a_long_list_is_counted() {
        let held = serde_json::json!({
            "id": uuid::Uuid::nil(), "volume": "p/v", "peer": "b", "destination": "q/v", "base_snapshot": null,
            "content_root": null, "since": null, "pinned_bytes": null, "transferring": false,
        });
        let mut held: MirrorDestination = serde_json::from_value(held).unwrap();
        held.kept = kept_snapshots(1, KeptFor::Base);
        assert_eq!(kept(&held), "", "the base is in the table");
        held.kept = kept_snapshots(7, KeptFor::Interrupted);
        let said = kept(&held);
        assert!(
            said.starts_with(
                "\np/v of b: s0 (the mirror's own), s1, s2, s3, s4 and 2 more are kept since a transfer"
            ),
            "{said}"
        );
        held.kept = kept_snapshots(1, KeptFor::Transfer);
        assert!(kept(&held).contains("is kept while a transfer runs"));
    }
}
