//! The states of a mirror: one pure function from (standing, event) to (standing, action).
//!
//! ```text
//!                    initialize          start             done
//!   uninitialized ──────────────► queued ──────► initializing ──────► mirrored
//!        ▲                          │  ▲              │ failed           │ ▲
//!        └──────────────────────────┴──┼──────────────┘   tick, update   │ │ done, failed
//!                                      │◄────────────────────────────────┘ │
//!                                      └── start ──► transferring ─────────┘
//!
//!   quiesce: no new transfers until resume; one that runs ends by itself.   break: from anywhere to broken-off.
//! ```
//!
//! No I/O and no clock: `relationship` carries the actions out and reports events back.

use std::fmt;

use crate::error::MirrorError;

/// A state, by the word it has on screen, in the API and here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// The first copy has not been completed.
    Uninitialized,
    /// The first copy is under way.
    Initializing,
    /// Holds a whole version; waits for the next tick or request.
    Mirrored,
    /// An update is under way.
    Transferring,
    /// A transfer waits for its turn or for a session.
    Queued,
    /// No new transfers until resumed.
    Quiesced,
    /// Writable; no transfers.
    BrokenOff,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Uninitialized => "uninitialized",
            State::Initializing => "initializing",
            State::Mirrored => "mirrored",
            State::Transferring => "transferring",
            State::Queued => "queued",
            State::Quiesced => "quiesced",
            State::BrokenOff => "broken-off",
        })
    }
}

/// What a transfer is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferKind {
    /// The first copy.
    Initialize,
    /// What changed since the base.
    Update,
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferKind::Initialize => "initialize",
            TransferKind::Update => "update",
        })
    }
}

/// What a mirror is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Work {
    /// Nothing.
    Idle,
    /// A transfer waits for its turn or for a session.
    Queued(TransferKind),
    /// A transfer runs.
    Running {
        /// What for.
        kind: TransferKind,
        /// An update was asked for, or a tick fell, while it ran: another starts when it ends.
        again: bool,
    },
    /// Nothing, and nothing more: hosts may write.
    BrokenOff,
}

/// Everything the state is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Standing {
    /// A first copy was completed: there is a base.
    pub initialized: bool,
    /// No new transfers until resumed.
    pub quiesced: bool,
    /// What it is doing.
    pub work: Work,
}

/// What happens to a mirror.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A person asks for the first copy.
    AskInitialize,
    /// A person asks for an update.
    AskUpdate,
    /// The schedule asks for an update.
    Tick,
    /// The queued transfer has its turn and a session.
    Start,
    /// The transfer has ended and there is a base.
    Done,
    /// The transfer failed or was aborted and left things as they were, or its wait was in vain.
    Failed,
    /// A person asks for quiet.
    Quiesce,
    /// A person ends the quiet.
    Resume,
    /// A person ends the transfer.
    Abort,
    /// A person takes the replica over.
    Break,
}

/// What the driver has to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Nothing.
    None,
    /// Wait for a turn and a session, for this transfer.
    Enqueue(TransferKind),
    /// Run the transfer.
    Run(TransferKind),
    /// Give up the wait.
    LeaveQueue,
    /// Cancel the transfer; its failure will be reported as an event.
    Cancel,
    /// Stop whatever goes on, throw away what is staged, make the volume writable.
    BreakOff,
}

impl Standing {
    /// The state by name.
    pub fn state(&self) -> State {
        match self.work {
            Work::BrokenOff => State::BrokenOff,
            Work::Running { kind: TransferKind::Initialize, .. } => State::Initializing,
            Work::Running { kind: TransferKind::Update, .. } => State::Transferring,
            Work::Queued(_) => State::Queued,
            Work::Idle if self.quiesced => State::Quiesced,
            Work::Idle if self.initialized => State::Mirrored,
            Work::Idle => State::Uninitialized,
        }
    }

    /// What `event` makes of this standing. An error is a refusal for whoever asked: nothing has changed.
    pub fn step(self, event: Event) -> Result<(Standing, Action), MirrorError> {
        use TransferKind::{Initialize, Update};
        let refuse = |text: &str| Err(MirrorError::State(text.into()));
        let stay = Ok((self, Action::None));
        let queue = |kind| Ok((Standing { work: Work::Queued(kind), ..self }, Action::Enqueue(kind)));
        match (event, self.work) {
            // What nobody asked for is never refused: it comes too late, and is dropped.
            (Event::Tick | Event::Start | Event::Done | Event::Failed, Work::BrokenOff) => stay,
            (_, Work::BrokenOff) => refuse(
                "the mirror is broken off: hosts may write to the volume. To mirror again, `mirror create` to a new \
                 volume; `mirror delete` ends this one",
            ),

            (Event::AskInitialize, _) if self.initialized => {
                refuse("the mirror is initialized already; `mirror update` brings it up to date")
            }
            (Event::AskUpdate, Work::Idle) if !self.initialized && !self.quiesced => {
                refuse("the mirror is not initialized; run `mirror initialize` first")
            }
            (Event::AskInitialize | Event::AskUpdate, _) if self.quiesced => {
                refuse("the mirror is quiesced; run `mirror resume` first")
            }
            (Event::AskInitialize, Work::Idle) => queue(Initialize),
            (Event::AskUpdate, Work::Idle) => queue(Update),
            // The queued transfer will take its snapshot later than now, so it covers the moment of asking.
            (Event::AskInitialize | Event::AskUpdate, Work::Queued(_)) => stay,
            (Event::AskInitialize, Work::Running { .. }) => stay,
            (Event::AskUpdate, Work::Running { kind, .. }) => {
                Ok((Standing { work: Work::Running { kind, again: true }, ..self }, Action::None))
            }

            (Event::Tick, Work::Idle) if self.initialized && !self.quiesced => queue(Update),
            (Event::Tick, Work::Running { kind, .. }) if !self.quiesced => {
                Ok((Standing { work: Work::Running { kind, again: true }, ..self }, Action::None))
            }
            (Event::Tick, _) => stay,

            (Event::Start, Work::Queued(kind)) => {
                Ok((Standing { work: Work::Running { kind, again: false }, ..self }, Action::Run(kind)))
            }
            (Event::Start, _) => stay,

            (Event::Done | Event::Failed, Work::Running { again, .. }) => {
                let initialized = self.initialized || event == Event::Done;
                let next = Standing { initialized, work: Work::Idle, ..self };
                if again && initialized && !self.quiesced {
                    Ok((Standing { work: Work::Queued(Update), ..next }, Action::Enqueue(Update)))
                } else {
                    Ok((next, Action::None))
                }
            }
            (Event::Failed, Work::Queued(_)) => Ok((Standing { work: Work::Idle, ..self }, Action::None)),
            (Event::Done | Event::Failed, _) => stay,

            (Event::Quiesce, Work::Queued(_)) => {
                Ok((Standing { quiesced: true, work: Work::Idle, ..self }, Action::LeaveQueue))
            }
            (Event::Quiesce, Work::Running { kind, .. }) => {
                let work = Work::Running { kind, again: false };
                Ok((Standing { quiesced: true, work, ..self }, Action::None))
            }
            (Event::Quiesce, Work::Idle) => Ok((Standing { quiesced: true, ..self }, Action::None)),
            (Event::Resume, _) => Ok((Standing { quiesced: false, ..self }, Action::None)),

            (Event::Abort, Work::Running { kind, .. }) => {
                Ok((Standing { work: Work::Running { kind, again: false }, ..self }, Action::Cancel))
            }
            (Event::Abort, Work::Queued(_)) => {
                Ok((Standing { work: Work::Idle, ..self }, Action::LeaveQueue))
            }
            (Event::Abort, Work::Idle) => refuse("no transfer is running or queued"),

            (Event::Break, _) => Ok((Standing { work: Work::BrokenOff, ..self }, Action::BreakOff)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransferKind::{Initialize, Update};

    const EVENTS: [Event; 10] = [
        Event::AskInitialize,
        Event::AskUpdate,
        Event::Tick,
        Event::Start,
        Event::Done,
        Event::Failed,
        Event::Quiesce,
        Event::Resume,
        Event::Abort,
        Event::Break,
    ];

    fn standings() -> Vec<Standing> {
        let mut all = Vec::new();
        for initialized in [false, true] {
            for quiesced in [false, true] {
                let mut works = vec![Work::Idle, Work::BrokenOff];
                for kind in [Initialize, Update] {
                    works.push(Work::Queued(kind));
                    works.extend([true, false].map(|again| Work::Running { kind, again }));
                }
                all.extend(works.into_iter().map(|work| Standing { initialized, quiesced, work }));
            }
        }
        all
    }

    /// What every pair must hold to, reachable or not.
    #[test]
    fn every_pair_keeps_the_rules() {
        for standing in standings() {
            for event in EVENTS {
                let context = format!("{standing:?} + {event:?}");
                let Ok((next, action)) = standing.step(event) else {
                    let asked = !matches!(event, Event::Tick | Event::Start | Event::Done | Event::Failed);
                    assert!(asked, "nobody asked, nobody can be refused: {context}");
                    continue;
                };
                let is_running = |s: &Standing| matches!(s.work, Work::Running { .. });
                let is_queued = |s: &Standing| matches!(s.work, Work::Queued(_));
                // An action and the standing it leads to belong together.
                match action {
                    Action::Run(kind) => {
                        assert!(next.work == (Work::Running { kind, again: false }), "{context}")
                    }
                    Action::Enqueue(kind) => assert!(next.work == Work::Queued(kind), "{context}"),
                    Action::LeaveQueue => {
                        assert!(is_queued(&standing) && next.work == Work::Idle, "{context}")
                    }
                    Action::Cancel => assert!(is_running(&standing) && is_running(&next), "{context}"),
                    Action::BreakOff => assert_eq!(next.work, Work::BrokenOff, "{context}"),
                    Action::None => {}
                }
                // A transfer that runs ends only by its own report or by a break: two can never run at once.
                if is_running(&standing) && !is_running(&next) {
                    assert!(matches!(event, Event::Done | Event::Failed | Event::Break), "{context}");
                }
                if is_running(&next) && !is_running(&standing) {
                    assert_eq!(event, Event::Start, "{context}");
                }
                // Broken off is for good, and only a person breaks.
                if standing.work == Work::BrokenOff {
                    assert_eq!((next, action), (standing, Action::None), "{context}");
                } else if next.work == Work::BrokenOff {
                    assert_eq!(event, Event::Break, "{context}");
                }
                // While quiesced nothing new is queued.
                if next.quiesced && is_queued(&next) {
                    assert!(is_queued(&standing), "{context}");
                }
                // Nothing but a completed copy initializes, and nothing takes it back.
                if next.initialized != standing.initialized {
                    assert!(event == Event::Done && next.initialized, "{context}");
                }
            }
        }
    }

    /// The whole table of reachable standings, found by walking from the beginning; each with every event.
    #[test]
    fn everything_reachable_has_a_name_and_a_way_out() {
        let start = Standing { initialized: false, quiesced: false, work: Work::Idle };
        let mut seen = vec![start];
        let mut at = 0;
        while let Some(standing) = seen.get(at).copied() {
            at += 1;
            for event in EVENTS {
                if let Ok((next, _)) = standing.step(event)
                    && !seen.contains(&next)
                {
                    seen.push(next);
                }
            }
        }
        for standing in &seen {
            // An update never runs or waits before there is a base.
            let updating = matches!(standing.work, Work::Queued(Update) | Work::Running { kind: Update, .. });
            assert!(!updating || standing.initialized, "{standing:?}");
            let copying =
                matches!(standing.work, Work::Queued(Initialize) | Work::Running { kind: Initialize, .. });
            assert!(!copying || !standing.initialized, "{standing:?}");
        }
        let names: std::collections::HashSet<State> = seen.iter().map(Standing::state).collect();
        assert_eq!(names.len(), 7, "every state of the documentation is reachable: {names:?}");
    }

    fn walk(mut standing: Standing, events: &[Event]) -> Standing {
        for event in events {
            standing = standing.step(*event).unwrap_or_else(|e| panic!("{standing:?} + {event:?}: {e}")).0;
        }
        standing
    }

    const MIRRORED: Standing = Standing { initialized: true, quiesced: false, work: Work::Idle };

    #[test]
    fn a_tick_into_a_running_transfer_starts_one_more_and_only_one() {
        let running = walk(MIRRORED, &[Event::Tick, Event::Start, Event::Tick, Event::Tick]);
        let (queued, action) = running.step(Event::Done).unwrap();
        assert_eq!((queued.state(), action), (State::Queued, Action::Enqueue(Update)));
        let idle = walk(queued, &[Event::Start, Event::Done]);
        assert_eq!(idle, MIRRORED);
    }

    #[test]
    fn a_failed_transfer_with_a_waiting_request_is_followed_by_another() {
        let running = walk(MIRRORED, &[Event::AskUpdate, Event::Start, Event::AskUpdate]);
        assert_eq!(running.step(Event::Failed).unwrap().1, Action::Enqueue(Update));
        // But not by an update that has nothing to stand on.
        let fresh = Standing { initialized: false, ..MIRRORED };
        let failed = walk(fresh, &[Event::AskInitialize, Event::Start, Event::Tick, Event::Failed]);
        assert_eq!(failed.state(), State::Uninitialized);
    }

    #[test]
    fn quiesce_lets_the_running_transfer_end() {
        let quiet = walk(MIRRORED, &[Event::Tick, Event::Start, Event::Tick, Event::Quiesce]);
        assert_eq!(quiet.state(), State::Transferring);
        let quiet = walk(quiet, &[Event::Tick, Event::Done]);
        assert_eq!(quiet.state(), State::Quiesced);
        assert!(quiet.step(Event::AskUpdate).is_err());
        assert_eq!(walk(quiet, &[Event::Tick, Event::Resume]), MIRRORED);
    }
}
