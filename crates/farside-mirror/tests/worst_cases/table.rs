//! The table: operation by operation, step by step, what is so after each fault. The manual prints it, the tests
//! assert it; there is no other copy.

use std::fmt::Write;

use crate::watch::{ClockReading, Side};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The source's daemon is killed, or its site loses power; it comes back seconds later.
    KillSource,
    KillDestination,
    /// The link is cut, resets its connections, or swallows everything; it heals seconds later.
    CutLink,
    /// Hosts have filled the source's pool; room is made afterwards.
    FullSource,
    FullDestination,
    /// Every request of the source's disk fails until the daemon is started again.
    IoSource,
    IoDestination,
    /// The wall clock of either site steps by a day, forward or back.
    ClockStep,
    /// The source was downgraded to an older mirror protocol; it is upgraded again later.
    OlderSource,
    /// The source was upgraded to a protocol that the destination does not speak; the destination follows later.
    NewerSource,
    /// The source's volume becomes larger or smaller.
    ResizeSource,
    /// Somebody tries the same with the destination's.
    ResizeDestination,
    /// Somebody tries to delete the base, at both sites.
    DeleteBase,
    /// The source's administrator releases the mirror, and its bases are gone.
    ReleaseBase,
    /// The source's daemon is killed and its database deleted.
    LoseSourceDatabase,
    LoseDestinationDatabase,
}

impl Fault {
    pub(crate) const ALL: [Fault; 16] = [
        Fault::KillSource,
        Fault::KillDestination,
        Fault::CutLink,
        Fault::FullSource,
        Fault::FullDestination,
        Fault::IoSource,
        Fault::IoDestination,
        Fault::ClockStep,
        Fault::OlderSource,
        Fault::NewerSource,
        Fault::ResizeSource,
        Fault::ResizeDestination,
        Fault::DeleteBase,
        Fault::ReleaseBase,
        Fault::LoseSourceDatabase,
        Fault::LoseDestinationDatabase,
    ];

    /// Whether what depends on the broken thing comes later than the step, so that the operation gets further.
    pub(crate) fn comes_later(self) -> bool {
        !matches!(
            self,
            Fault::KillSource
                | Fault::KillDestination
                | Fault::IoDestination
                | Fault::LoseSourceDatabase
                | Fault::LoseDestinationDatabase
        )
    }

    fn title(self) -> &'static str {
        match self {
            Fault::KillSource => "source killed",
            Fault::KillDestination => "destination killed",
            Fault::CutLink => "link cut",
            Fault::FullSource => "source full",
            Fault::FullDestination => "destination full",
            Fault::IoSource => "source I/O error",
            Fault::IoDestination => "destination I/O error",
            Fault::ClockStep => "clock step",
            Fault::OlderSource => "older source",
            Fault::NewerSource => "newer source",
            Fault::ResizeSource => "source resized",
            Fault::ResizeDestination => "destination resized",
            Fault::DeleteBase => "base deleted",
            Fault::ReleaseBase => "mirror released",
            Fault::LoseSourceDatabase => "source database lost",
            Fault::LoseDestinationDatabase => "destination database lost",
        }
    }
}

/// What is so at the end, the fault over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The operation completes without anybody's doing.
    Finishes,
    /// It has failed, or died with its daemon; the same command completes it.
    Repeat,
    /// One of the two: it depends on whether what is left to do needs what is broken.
    Either,
    /// The source is left read-only, and knows nothing of a mirror: it must be broken off there; then as [`Then::Repeat`].
    BreakFirst,
    /// Whether it has completed or not: there is no common base any more, and every update is refused for that. A first
    /// copy that has published nothing needs none, and is repeated.
    Refused,
    /// The mirror must be created again, which takes over what is there; then as [`Then::Repeat`].
    Create,
}

// One letter for a cell, so that a row is a line.
pub(crate) use Then::{BreakFirst as B, Create as C, Either as E, Finishes as F, Refused as X, Repeat as R};

/// How far the pools are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Old,
    /// Only where the operation has a durable state of its own.
    Between,
    New,
}

/// Which stage holds between the fault and whatever completes the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    Still(Stage),
    /// The step itself is a turning point: the first before it is done, the second after.
    Changes(Stage, Stage),
}

pub(crate) const OLD: Holds = Holds::Still(Stage::Old);
pub(crate) const NEW: Holds = Holds::Still(Stage::New);
pub(crate) const CHANGES: Holds = Holds::Changes(Stage::Old, Stage::New);

impl Holds {
    /// What holds after a fault at that moment of the step.
    pub(crate) fn at(self, moment: ClockReading) -> Stage {
        match (self, moment) {
            (Holds::Still(stage), _) | (Holds::Changes(stage, _), ClockReading::Before) => stage,
            (Holds::Changes(_, stage), ClockReading::After) => stage,
        }
    }
}

pub(crate) struct Row {
    /// In words.
    pub(crate) step: &'static str,
    /// The calls it consists of.
    pub(crate) calls: &'static [(Side, &'static str)],
    pub(crate) holds: Holds,
    /// In the order of [`Fault::ALL`].
    pub(crate) then: [Then; 16],
}

pub(crate) struct Table {
    pub(crate) operation: &'static str,
    /// What the operation does, and what "old" and "new" mean in it.
    pub(crate) about: &'static str,
    pub(crate) source: Side,
    /// The faults after which a durable state on the way may last, although the step itself comes before it.
    pub(crate) may_stay_between: fn(Fault) -> bool,
    pub(crate) rows: &'static [Row],
}

impl Table {
    pub(crate) fn destination(&self) -> Side {
        match self.source {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// What a cell says.
    fn cell(&self, row: &Row, fault: Fault) -> String {
        let then = row.then[Fault::ALL.iter().position(|f| *f == fault).unwrap()];
        let word = |stage| match stage {
            Stage::Old => "old",
            Stage::Between => "between",
            Stage::New => "new",
        };
        let holds = match row.holds {
            Holds::Still(Stage::Old) if (self.may_stay_between)(fault) && then != Then::Finishes => {
                "old or between".to_owned()
            }
            Holds::Still(stage) => word(stage).to_owned(),
            Holds::Changes(from, to) => format!("{} or {}", word(from), word(to)),
        };
        match then {
            Then::Finishes => "finishes".to_owned(),
            Then::Either => format!("finishes, or {holds}; repeat"),
            Then::Repeat => format!("{holds}; repeat"),
            Then::Refused => format!("{holds}; refused"),
            Then::BreakFirst => format!("{holds}; break, repeat"),
            Then::Create => format!("{holds}; create"),
        }
    }

    /// Faults whose cells are all the same share a column, and steps in a row whose cells are all the same share a line:
    /// sixteen columns of their own are too wide to read.
    fn print(&self) -> String {
        let mut columns: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
        let mut harmless = Vec::new();
        for fault in Fault::ALL {
            let cells: Vec<String> = self.rows.iter().map(|row| self.cell(row, fault)).collect();
            if cells.iter().all(|cell| cell == "finishes") {
                harmless.push(fault.title());
            } else if let Some(same) = columns.iter_mut().find(|(_, others)| *others == cells) {
                same.0.push(fault.title());
            } else {
                columns.push((vec![fault.title()], cells));
            }
        }
        let mut lines: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let cells: Vec<&str> = columns.iter().map(|(_, cells)| cells[at].as_str()).collect();
            match lines.last_mut() {
                Some((steps, same)) if *same == cells => steps.push(row.step),
                _ => lines.push((vec![row.step], cells)),
            }
        }
        let mut page = format!("## {}\n\n{}\n\n", self.operation, self.about);
        if !harmless.is_empty() {
            writeln!(
                page,
                "It finishes by itself after these faults, at any step: {}.\n",
                harmless.join(", ")
            )
            .unwrap();
        }
        let titles: Vec<String> = columns.iter().map(|(faults, _)| faults.join(", ")).collect();
        writeln!(page, "|step|{}|", titles.join("|")).unwrap();
        writeln!(page, "|---|{}", "---|".repeat(columns.len())).unwrap();
        for (steps, cells) in lines {
            writeln!(page, "|{}|{}|", steps.join("; "), cells.join("|")).unwrap();
        }
        page
    }
}

/// The manual's part that is made from the tables.
pub(crate) fn print(tables: &[&Table]) -> String {
    let parts: Vec<String> = tables.iter().map(|t| t.print()).collect();
    parts.join("\n")
}
