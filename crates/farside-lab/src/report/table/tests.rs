use super::super::fixture;
use super::*;
use crate::record::result::{ExperimentResult, Spread};

fn part<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("no {from:?} in {text}"));
    let end =
        text[start + from.len()..].find(to).unwrap_or_else(|| panic!("no {to:?} after {from:?} in {text}"));
    text[start..start + from.len() + end].trim_end()
}

#[test]
fn the_manual_gets_medians_with_spread_bounds_apart_and_where_farside_loses() {
    let text = markdown(&fixture::standing(&[(4.5, 4.4)]));
    assert_eq!(
        part(&text, "### Where farside stands", "### The emulated"),
        "\
### Where farside stands

| link · data | job | against the best | seconds | bytes | packets | CPU seconds |
| --- | --- | --- | --- | --- | --- | --- |
| t1 · db | update | practical peer | 0.90 × rsync | **1.10 × rsync** | **1.10 × rsync** | 0.90 × rsync |
| t1 · db | update | bound | 2.25 × patch | 4.4 × patch | 4.4 × patch | 2.25 × patch |

* Each field is farside's median divided by that of the contender that is best in this measure: above 1 farside loses.

### t1 · db · cubic

Link: 1.544 Mb/s, RTT 40 ms, no loss.

| contender | update: s | update: MB a→b | update: MB b→a | update: packets | update: CPU s at a | update: CPU s at b | runs | versions | farside loses to it by |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |
| **farside** | **4.50** | 4.40 | 0 | 4\u{202f}400 | **0.90** | **0.45** | 1 of 3 | farside 1.0 | – |
| rsync | 5.00 (4.00–6.00) | **4.00** | 0 | **4\u{202f}000** | 1.00 (0.80–1.20) | 0.50 (0.40–0.60) | 3 | rsync 1.0 | update bytes 1.10 ×, update packets 1.10 × |
| restic | 9.00 | 8.00 | 0 | 8\u{202f}000 | 1.80 | 0.90 | 1 of 3 | restic 1.0 | nothing |
| patch (bound) | 2.00 | 1.00 | 0 | 1\u{202f}000 | 0.40 | 0.20 | 1 of 3 | patch 1.0 | update seconds 2.25 ×, update bytes 4.4 ×, update packets 4.4 ×, update CPU seconds 2.25 × |

* Where farside loses, against the best practical peer: update bytes 1.10 × rsync; update packets 1.10 × rsync.
* Where farside is ahead of the best practical peer: update seconds 0.90 × rsync; update CPU seconds 0.90 × rsync.
* Against bounds, which read the whole old image at both ends: update seconds 2.25 × patch; update bytes 4.4 × patch; update packets 4.4 × patch; update CPU seconds 2.25 × patch."
    );
}

#[test]
fn a_terminal_gets_the_same_in_fewer_columns() {
    let text = terminal(&fixture::standing(&[(4.5, 4.4)]), 100);
    assert_eq!(
        part(&text, " contender", "\n- "),
        " \
contender              update: s   update: MB a→b   update: MB b→a   runs
─────────────────────────────────────────────────────────────────────────────
 > farside                 4.50 *             4.40                0   1 of 3
 rsync           5.00 (4.00–6.00)           4.00 *                0   3
 restic                      9.00             8.00                0   1 of 3
 patch (bound)               2.00             1.00                0   1 of 3
> farside, * best of the column"
    );
    assert!(
        text.contains("\n- Where farside loses, against the best practical peer: update bytes 1.10 × rsync;")
    );
    let widest = terminal(&fixture::main_job(), 100);
    let tables = widest.lines().filter(|line| line.starts_with(' ') || line.starts_with('─'));
    assert!(tables.map(|line| line.chars().count()).max().unwrap() <= 100, "{widest}");
}

fn notes(own: &[(f64, f64)]) -> Vec<String> {
    let text = markdown(&fixture::standing(own));
    let section = part(&text, "### t1 · db", "### The emulated");
    section.lines().filter_map(|line| line.strip_prefix("* ")).map(str::to_owned).collect()
}

#[test]
fn the_sentence_about_losing_is_right_in_each_direction() {
    assert_eq!(
        notes(&[(10.0, 40.0)]),
        [
            "Where farside loses, against the best practical peer: update seconds 2.00 × rsync; update bytes 10 × \
             rsync; update packets 10 × rsync; update CPU seconds 2.00 × rsync.",
            "Against bounds, which read the whole old image at both ends: update seconds 5.0 × patch; update bytes 40 \
             × patch; update packets 40 × patch; update CPU seconds 5.0 × patch.",
        ]
    );
    assert_eq!(
        notes(&[(1.0, 0.5)]),
        [
            "farside loses to no practical peer here.",
            "Where farside is ahead of the best practical peer: update seconds 0.20 × rsync; update bytes 0.12 × \
             rsync; update packets 0.12 × rsync; update CPU seconds 0.20 × rsync.",
            "Better than the bounds: update seconds 0.50 × patch; update bytes 0.50 × patch; update packets 0.50 × \
             patch; update CPU seconds 0.50 × patch.",
        ]
    );
    // As good as the best peer: neither.
    assert_eq!(notes(&[(5.0, 4.0)])[0], "farside loses to no practical peer here.");
    assert!(notes(&[(5.0, 4.0)])[1].starts_with("Against bounds"));
    // Nothing to compare: neither, and nothing is claimed.
    assert_eq!(notes(&[]), Vec::<String>::new());
}

#[test]
fn runs_that_overlap_are_said_to() {
    let told = notes(&[(5.4, 4.0), (5.6, 4.0), (5.8, 4.0)]);
    assert!(told[0].contains("update seconds 1.12 × rsync (the runs overlap)"), "{told:?}");
    let told = notes(&[(6.4, 4.0), (6.6, 4.0), (6.8, 4.0)]);
    assert!(told[0].contains("update seconds 1.32 × rsync;"), "{told:?}");
}

#[test]
fn what_failed_is_missing_slow_or_not_as_pinned_is_said_so() {
    let text = markdown(&fixture::main_job());
    let section = part(&text, "### t3 · db", "### t3 · tree");
    let row = |name: &str| section.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
    assert!(row("restic").contains("| 2 of 3, 1 failed |"), "{}", row("restic"));
    assert!(row("borg").contains("| 3, 1 slow |"), "{}", row("borg"));
    assert!(row("rsync-zlib").contains("| rsync 3.2.7 (pinned: 3.5.0) |"), "{}", row("rsync-zlib"));
    assert!(row("rdiff").starts_with("| rdiff | – | – | – | – | – | – | 3.25 |"), "{}", row("rdiff"));
    assert!(
        section.contains(
            "\n* restic failed: the copy at b differs from its source (verify ended with status 1)\n"
        )
    );
    assert!(section.contains("\n* borg, slow: device drops: 12"));
    let section = part(&text, "### 10mb · tree", "### The emulated");
    assert!(section.contains("| btrfs-send | – |"), "{section}");
    assert!(section.contains("| none yet | – | – |"), "{section}");
    assert!(text.contains("* Runs: 98 that count, 2 failed, 2 measured the machine rather than the link (\"slow\"), 3 still to come\n"));
}

#[test]
fn a_cell_whose_runs_all_failed_says_so_in_every_column() {
    let mut result = fixture::standing(&[(4.5, 4.4)]);
    for run in result.runs.iter_mut().filter(|run| run.cell.contender == "restic") {
        run.failed = Some("exit status 1".to_owned());
    }
    let result = fixture::result(result.links, result.contenders, result.runs, 3);
    let text = markdown(&result);
    assert!(
        text.contains("| restic | failed | failed | failed | failed | failed | failed | 0 of 3, 1 failed |"),
        "{text}"
    );
}

#[test]
fn several_updates_of_a_run_are_added_up() {
    let mut result = fixture::standing(&[(4.5, 4.4)]);
    for run in &mut result.runs {
        for (generation, seconds) in [("day-3", 1.0), ("day-4", 2.0)] {
            let mut phase = fixture::phase("update", seconds, 1.0, 0.5);
            phase.generation = Some(generation.to_owned());
            run.phases.push(phase);
        }
    }
    let text = markdown(&fixture::result(result.links, result.contenders, result.runs, 3));
    assert!(text.contains("| **farside** | **7.50** | 6.40 | 1.00 | 7\u{202f}400 |"), "{text}");
    assert!(text.contains("* rsync: the update is the sum of 3 updates.\n"));
}

#[test]
fn an_experiment_that_has_not_begun_claims_nothing() {
    let text = markdown(&fixture::nothing());
    assert!(text.contains("* When: not begun\n"));
    assert!(text.contains("| **farside** | none yet |"));
    assert!(!text.contains("loses"));
}

#[test]
fn expectations_show_as_many_digits_as_they_judge_by() {
    let text = markdown(&fixture::emulator());
    let row = |cell: &str| text.lines().find(|line| line.starts_with(&format!("| {cell} "))).unwrap();
    assert_eq!(
        row("frac-t1/iperf3-udp/cubic"),
        "| frac-t1/iperf3-udp/cubic | 256 kb/s, RTT 50 ms, loss 1 % each way | rate | 0.2568 Mb/s | 0.2560 ± 0.0026 \
         Mb/s | as expected | 3 |"
    );
    assert_eq!(
        row("1gb/ping/cubic"),
        "| 1gb/ping/cubic | 1 Gb/s, RTT 50 ms, loss 1 % each way | rtt | 48.5 ms | 50.0 ± 1.0 ms | **MISSED: more than \
         1 % away** | 3, 3 slow |"
    );
    assert!(text.contains(
        "| 1gb | a→b | 1 Gb/s | 6 | 18\u{202f}000 | 0.10 % | 0 | 102 | 450 | 3000 | 45000 | 0.010 % | 1.50 |"
    ));
}

#[test]
fn an_expectation_without_a_measurement_is_missed_visibly() {
    let mut result = fixture::emulator();
    result.runs.retain(|run| run.cell.link != "t3");
    for cell in result.cells.iter_mut().filter(|cell| cell.cell.link == "t3") {
        (cell.counted, cell.phases) = (0, Vec::new());
    }
    for verdict in result.expectations.iter_mut().filter(|verdict| verdict.cell.link == "t3") {
        (verdict.measured, verdict.met, verdict.note) = (None, false, "no run has the figure".to_owned());
    }
    let text = markdown(&result);
    assert!(
        text.contains("| rtt | – | 50.0 ± 1.0 ms | **MISSED: no run has the figure** | none yet |"),
        "{text}"
    );
}

#[test]
fn other_contenders_and_links_cannot_break_the_table() {
    let mut result: ExperimentResult = fixture::standing(&[(4.5, 4.4)]);
    result.title = "a | b\n# c".to_owned();
    for run in &mut result.runs {
        run.versions.insert("x|y".to_owned(), "1\n| 2 |".to_owned());
    }
    let text = markdown(&result);
    assert!(text.starts_with("## a \\| b \\# c\n"), "{text}");
    let heads = text.lines().find(|line| line.starts_with("| contender")).unwrap().matches(" | ").count();
    let row = text.lines().find(|line| line.starts_with("| rsync")).unwrap();
    assert_eq!(row.matches(" | ").count(), heads, "{row}");
    assert!(row.contains("x\\|y 1 \\| 2 \\|"), "{row}");
}

#[test]
fn what_travelled_stands_by_rung_with_what_no_rung_accounts_for() {
    let mut result = fixture::standing(&[(4.5, 4.4)]);
    assert!(!markdown(&result).contains("by rung"), "of results that do not count by rung");
    let own = result.cells.iter_mut().find(|cell| cell.cell.contender == "farside").expect("farside");
    let phase = &mut own.phases[0];
    let mut set = |name: &str, median| {
        let figure = Spread { median, min: median, max: median, n: 1, unit: "MB".to_owned() };
        phase.figures.insert(name.to_owned(), figure);
    };
    for (name, bytes, cost) in [
        ("known", 0.0, 0.0),
        ("repeat", 1.5, 0.001),
        ("delta", 20.0, 2.5),
        ("compressed", 3.0, 1.0),
        ("raw", 0.5, 0.5),
    ] {
        set(&format!("rung-{name}-in"), bytes);
        set(&format!("rung-{name}-out"), cost);
    }
    set("overhead", 0.2);
    set("wire", 4.2);
    set("wire_mb", 4.4);
    let text = markdown(&result);
    assert_eq!(
        part(&text, "### What travelled, by rung", "\n\n* MB of"),
        "\
### What travelled, by rung

| cell | phase | repeat | delta | compressed | raw | overhead | TCP and IP | on the wire |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| t1/db/farside/cubic | update to B | 1.50 → 0.001 | 20.0 → 2.50 | 3.00 → 1.00 | 0.50 → 0.50 | 0.20 | 0.20 | 4.40 |"
    );
}

#[test]
fn what_the_machines_host_took_is_told_where_it_took_any() {
    let mut result = fixture::standing(&[(4.5, 4.4)]);
    assert!(!markdown(&result).contains("Taken by"));
    for (run, percent) in result.runs.iter_mut().zip([0.0, 4.0, 1.0]) {
        run.phases[0].stolen_percent = Some(percent);
    }
    assert!(
        markdown(&result).contains("* Taken by the machine's host: 1.00 (0–4.00) % of the processor time\n")
    );
}
