//! What travelled, by the way it took: a line for each.

use farside_api::{Rungs, Transfer, TransferRecord};

use crate::output::{Column, table};
use crate::progress::reduction;
use crate::quantities::{size, time};

/// What all tables end with.
const FIGURES: [Column; 4] =
    [Column::Left("rung"), Column::Right("in"), Column::Right("out"), Column::Right("ratio")];

/// Of a transfer under way.
pub(super) fn of_transfer(transfer: &Transfer) -> String {
    let overhead = transfer.wire_bytes.saturating_sub(out_bytes(&transfer.rungs));
    table(&FIGURES, lines(&transfer.rungs, Some(overhead)), "nothing has travelled yet")
}

/// Of transfers that have ended.
pub(super) fn of_transfers(records: &[TransferRecord]) -> String {
    let columns: Vec<Column> =
        [Column::Left("started"), Column::Left("snapshot")].into_iter().chain(FIGURES).collect();
    let rows = records.iter().flat_map(|record| {
        let lines = record.rungs.map(|rungs| lines(&rungs, record.overhead_bytes)).unwrap_or_default();
        let snapshot = record.incremental.as_deref().unwrap_or("-");
        lines.into_iter().map(move |line| {
            let mut row = vec![time(record.started_at), snapshot.to_owned()];
            row.extend(line);
            row
        })
    });
    table(&columns, rows.collect(), "no transfers yet whose ways were counted")
}

fn out_bytes(rungs: &Rungs) -> u64 {
    rungs.named().iter().fold(0, |sum, (_, rung)| sum.saturating_add(rung.out_bytes))
}

/// The rungs that carried something, and the rest of the wire bytes.
fn lines(rungs: &Rungs, overhead: Option<u64>) -> Vec<Vec<String>> {
    let used = rungs.named().into_iter().filter(|(_, rung)| rung.in_bytes > 0 || rung.out_bytes > 0);
    let line = |(name, rung): (&str, farside_api::Rung)| {
        let ratio = reduction(rung.in_bytes, rung.out_bytes).unwrap_or_else(|| String::from("-"));
        vec![name.to_owned(), size(rung.in_bytes), size(rung.out_bytes), ratio]
    };
    let overhead = overhead.map(|bytes| vec!["overhead".into(), "-".into(), size(bytes), "-".into()]);
    used.map(line).chain(overhead).collect()
}

#[cfg(test)]
mod tests {
    use farside_api::{Rung, TransferKind, TransferPhase};

    use super::*;

    #[test]
    fn a_line_for_each_way_that_was_taken() {
        let rungs = Rungs {
            delta: Rung { in_bytes: 40 << 20, out_bytes: 1 << 20 },
            raw: Rung { in_bytes: 4096, out_bytes: 4096 },
            ..Rungs::default()
        };
        let transfer = Transfer {
            kind: TransferKind::Update,
            phase: TransferPhase::Transfer,
            changed_bytes: Some(80 << 20),
            done_bytes: (40 << 20) + 4096,
            wire_bytes: (1 << 20) + 4096 + 100,
            rate_bytes_per_second: None,
            eta_seconds: None,
            rungs,
        };
        assert_eq!(
            of_transfer(&transfer),
            "RUNG            IN      OUT  RATIO\n\
             delta     40.0 MiB  1.0 MiB  40.0x\n\
             raw        4.0 KiB  4.0 KiB   1.0x\n\
             overhead         -    100 B      -\n"
        );
    }
}
