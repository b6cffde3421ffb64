//! Tells how far an experiment is: a line per finished run, and on a terminal a bar with what runs now.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::estimate::Estimate;
use super::plan::PlannedRun;
use crate::record::{Cell, RunRecord};

/// The bar moves at least this often, so that a person sees that it lives.
const TICK: Duration = Duration::from_millis(500);

/// The bar, or lines on standard error where there is no terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    running: Vec<Cell>,
}

impl Progress {
    /// For `runs` runs.
    #[must_use]
    pub fn new(runs: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { bar, terminal, running: Vec::new() }
    }

    /// A step that is no run: data that is made.
    pub fn say(&self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    /// What is done between lines: shown on a terminal only.
    pub fn now(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// A run begins; `after` is how long the runs that wait will take.
    pub fn started(&mut self, run: &PlannedRun, estimate: Estimate, after: f64) {
        self.running.push(run.cell.clone());
        self.show(estimate.seconds + after);
    }

    /// A run has ended; `left` is how long the others will take.
    pub fn finished(&mut self, record: &RunRecord, left: f64) {
        self.bar.inc(1);
        if let Some(position) = self.running.iter().position(|cell| *cell == record.cell) {
            self.running.remove(position);
        }
        let position = format!("[{}/{}]", self.bar.position(), self.bar.length().unwrap_or(0));
        self.say(&format!("{position} {}; about {} left", line(record), duration(left)));
        self.show(left);
    }

    /// Nothing more comes.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, left: f64) {
        let cells: Vec<String> = self.running.iter().map(Cell::to_string).collect();
        self.now(&format!("about {} left  {}", duration(left), cells.join("  ")));
    }
}

/// One line about a run.
fn line(record: &RunRecord) -> String {
    let mut text = format!("{} #{}: ", record.cell, record.repetition);
    if let Some(failed) = &record.failed {
        let _ = write!(text, "FAILED: {failed}");
        return text;
    }
    let phases = record.phases.iter().map(|phase| {
        let (forward, back) = (phase.forward.bytes_in as f64 / 1e6, phase.back.bytes_in as f64 / 1e6);
        format!("{} {:.1} s {forward:.2} + {back:.2} MB", phase.phase, phase.seconds)
    });
    let _ = write!(text, "{}", phases.collect::<Vec<_>>().join(", "));
    if let Some(slow) = &record.slow {
        let _ = write!(text, " (machine too slow: {slow})");
    }
    text
}

/// Seconds as people say them: `45 s`, `12 min`, `3 h 20 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_as_people_say_them() {
        let told = [0.4, 45.0, 99.4, 100.0, 5_999.0, 6_000.0, 12_345.6, -1.0].map(duration);
        assert_eq!(told, ["0 s", "45 s", "99 s", "2 min", "100 min", "1 h 40 min", "3 h 25 min", "0 s"]);
    }
}
