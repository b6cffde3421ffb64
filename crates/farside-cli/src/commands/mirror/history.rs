//! Transfers that have ended, as `farside mirror history` lists them.

use farside_api::TransferRecord;

use super::outcomes::{changed_and_here, name_of};
use crate::output::{Column, or_dash, table};
use crate::progress::reduction;
use crate::quantities::{duration, size, time};

/// `of_all`: of all mirrors, so each line says whose it is.
pub(super) fn text(records: &[TransferRecord], of_all: bool) -> String {
    let volume = of_all.then_some(Column::Left("volume"));
    let columns = [
        Column::Left("kind"),
        Column::Left("result"),
        Column::Right("time"),
        Column::Right("changed"),
        Column::Right("emptied"),
        Column::Right("wire"),
        Column::Right("reduction"),
        Column::Left("snapshot"),
        Column::Left("reason"),
    ];
    let columns: Vec<Column> = [Column::Left("started")].into_iter().chain(volume).chain(columns).collect();
    let rows = records.iter().map(|r| {
        let wire = r.wire_bytes_sent + r.wire_bytes_received;
        let of = of_all.then(|| whose(r));
        let figures = [
            name_of(&r.kind),
            name_of(&r.result),
            duration(r.duration_seconds),
            size(changed_and_here(r).0),
            // Nothing travels for it, and it may be all that there was.
            or_dash(Some(r.deallocated_bytes).filter(|bytes| *bytes > 0), size),
            size(wire),
            or_dash(reduction(changed_and_here(r).0, wire), |x| x),
            or_dash(r.incremental.clone(), |s| s),
            remarks(r),
        ];
        [time(r.started_at)].into_iter().chain(of).chain(figures).collect()
    });
    table(&columns, rows.collect(), "no transfers yet")
}

/// Why it ended as it did, and what became of side branches.
fn remarks(record: &TransferRecord) -> String {
    let set_aside = record.set_aside.iter().map(|name| format!("set aside as {name}"));
    let let_go = record.let_go.iter().map(|name| format!("the old side branch {name} was deleted"));
    record.reason.iter().cloned().chain(set_aside).chain(let_go).collect::<Vec<_>>().join("; ")
}

/// Which replica a transfer was for.
pub(super) fn whose(record: &TransferRecord) -> String {
    or_dash(record.volume.clone(), |volume| volume)
}

#[cfg(test)]
pub(super) fn record(volume: Option<&str>) -> TransferRecord {
    let document = serde_json::json!({
        "id": uuid::Uuid::nil(), "volume": volume, "kind": "update", "result": "ok", "reason": null,
        "started_at": "2026-11-26T12:00:00Z", "ended_at": "2026-11-26T12:00:01Z", "duration_seconds": 1.0, "base": "s1",
        "incremental": "s2", "content_root": null, "resumed": false, "snapshots": 1, "changed_bytes": 4096, "deallocated_bytes": 0,
        "source_read_bytes": null, "referenced_bytes": null, "delta_bytes": null, "literal_bytes": null,
        "levels": { "known": {"in_bytes": 0, "out_bytes": 0}, "repeat": {"in_bytes": 0, "out_bytes": 0},
            "delta": {"in_bytes": 0, "out_bytes": 0}, "compressed": {"in_bytes": 0, "out_bytes": 0},
            "raw": {"in_bytes": 4096, "out_bytes": 4096} },
        "wire_bytes_sent": 500, "wire_bytes_received": 3596, "scan_seconds": null
    });
    serde_json::from_value(document).expect("a record")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_empty_is_said_though_nothing_travelled_for_it() {
        let mut emptied = record(Some("q/db"));
        assert!(!text(&[emptied.clone()], false).contains("1.0 MiB"));
        emptied.deallocated_bytes = 1 << 20;
        let text = text(&[emptied], false);
        assert!(text.contains("CHANGED  EMPTIED") && text.contains(" 1.0 MiB "), "{text}");
    }

    #[test]
    fn what_became_of_side_branches_is_said() {
        let mut resync = record(Some("q/db"));
        resync.set_aside = vec!["rescue-2".into()];
        resync.let_go = vec!["rescue-1".into()];
        assert_eq!(remarks(&resync), "set aside as rescue-2; the old side branch rescue-1 was deleted");
        resync.reason = Some("the link went away".into());
        assert!(remarks(&resync).starts_with("the link went away; set aside as rescue-2"));
    }

    #[test]
    fn of_all_mirrors_each_line_says_whose_it_is() {
        let records = [record(Some("q/db")), record(None)];
        let all = text(&records, true);
        assert!(all.starts_with("STARTED               VOLUME  KIND"), "{all}");
        assert!(all.contains("2026-11-26T12:00:00Z  q/db    update"), "{all}");
        assert!(all.contains("2026-11-26T12:00:00Z  -       update"), "{all}");
        let one = text(&records, false);
        assert!(!one.contains("VOLUME") && one.contains("2026-11-26T12:00:00Z  update"), "{one}");
    }
}
