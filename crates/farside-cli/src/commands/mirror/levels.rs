//! What travelled, by level: a line for each.

use farside_api::{Levels, Transfer, TransferRecord};

use super::history::whose;
use crate::output::{Column, table};
use crate::progress::reduction;
use crate::quantities::{size, time};

/// What all tables end with.
const FIGURES: [Column; 4] =
    [Column::Left("level"), Column::Right("in"), Column::Right("out"), Column::Right("ratio")];

/// Of a transfer under way.
pub(super) fn of_transfer(transfer: &Transfer) -> String {
    let overhead = transfer.wire_bytes.saturating_sub(out_bytes(&transfer.levels));
    table(&FIGURES, lines(&transfer.levels, Some(overhead)), "nothing has travelled yet")
}

/// Of transfers that have ended; `of_all`: of all mirrors, so each line says whose it is.
pub(super) fn of_transfers(records: &[TransferRecord], of_all: bool) -> String {
    let volume = of_all.then_some(Column::Left("volume"));
    let columns: Vec<Column> = [Column::Left("started")]
        .into_iter()
        .chain(volume)
        .chain([Column::Left("snapshot")])
        .chain(FIGURES)
        .collect();
    let rows = records.iter().flat_map(|record| {
        let lines = record.levels.map(|levels| lines(&levels, record.overhead_bytes)).unwrap_or_default();
        let snapshot = record.incremental.as_deref().unwrap_or("-");
        lines.into_iter().map(move |line| {
            let mut row = vec![time(record.started_at)];
            row.extend(of_all.then(|| whose(record)));
            row.push(snapshot.to_owned());
            row.extend(line);
            row
        })
    });
    table(&columns, rows.collect(), "no transfers yet")
}

fn out_bytes(levels: &Levels) -> u64 {
    levels.named().iter().fold(0, |sum, (_, level)| sum.saturating_add(level.out_bytes))
}

/// The levels that carried something, and the rest of the wire bytes.
fn lines(levels: &Levels, overhead: Option<u64>) -> Vec<Vec<String>> {
    let used = levels.named().into_iter().filter(|(_, level)| level.in_bytes > 0 || level.out_bytes > 0);
    let line = |(name, level): (&str, farside_api::Level)| {
        let ratio = reduction(level.in_bytes, level.out_bytes).unwrap_or_else(|| String::from("-"));
        vec![name.to_owned(), size(level.in_bytes), size(level.out_bytes), ratio]
    };
    let overhead = overhead.map(|bytes| vec!["overhead".into(), "-".into(), size(bytes), "-".into()]);
    used.map(line).chain(overhead).collect()
}

#[cfg(test)]
mod tests {
    use farside_api::{Level, TransferKind, TransferPhase};

    use crate::commands::mirror::history::record;

    use super::*;

    #[test]
    fn of_all_mirrors_each_line_says_whose_it_is() {
        let records = [record(Some("q/db"))];
        let all = of_transfers(&records, true);
        assert!(all.starts_with("STARTED               VOLUME  SNAPSHOT  LEVEL"), "{all}");
        assert!(all.contains("2026-11-26T12:00:00Z  q/db    s2        raw"), "{all}");
        assert!(!of_transfers(&records, false).contains("VOLUME"));
    }

    #[test]
    fn a_line_for_each_way_that_was_taken() {
        let levels = Levels {
            delta: Level { in_bytes: 40 << 20, out_bytes: 1 << 20 },
            raw: Level { in_bytes: 4096, out_bytes: 4096 },
            ..Levels::default()
        };
        let transfer = Transfer {
            kind: TransferKind::Update,
            phase: TransferPhase::Transfer,
            changed_bytes: Some(80 << 20),
            done_bytes: (40 << 20) + 4096,
            wire_bytes: (1 << 20) + 4096 + 100,
            rate_bytes_per_second: None,
            eta_seconds: None,
            levels,
        };
        assert_eq!(
            of_transfer(&transfer),
            "LEVEL           IN      OUT  RATIO\n\
             delta     40.0 MiB  1.0 MiB  40.0x\n\
             raw        4.0 KiB  4.0 KiB   1.0x\n\
             overhead         -    100 B      -\n"
        );
    }
}
