//! The states of a mirror: one pure function from (state, event) to (state, action).
//!
//! ```text
//!                    initialize          start             done
//!   uninitialized ──────────────► queued ──────► initializing ──────► mirrored
//!        ▲                          │  ▲              │ failed           │ ▲
//!        └──────────────────────────┴──┼──────────────┘   tick, update   │ │ done, failed
//!                                      │◄────────────────────────────────┘ │
//!                                      └── start ──► transferring ─────────┘
//!
//!   quiesce: no new transfers until resume; one that runs ends by itself.
//!
//!                  break                     resync             start              done
//!   from anywhere ──────► broken-off ─────► queued ──────► transferring ──────► mirrored
//!                             ▲                │  ▲             │ failed
//!                             │                │  └── tick,     ▼
//!                             │                │     update, mirrored, resync pending
//!                             └── break ───────┴──── resync ────┘
//! ```
//!
//! While a resync is pending (asked for, and nothing of it published) every transfer is one: the volume still shows what
//! hosts had made of it, and the source is notified that it is the original again.
//!
//! No I/O and no clock: `relationship` carries the actions out and reports events back.

use std::fmt;

use farside_engine::VolumeName;
use farside_transfer::TransferKind;

use crate::error::MirrorError;

/// A state, by the name it has on screen, in the API and here.
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
    /// Nothing until resynced: hosts may write.
    BrokenOff,
}

/// Everything the state is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RelationshipState {
    /// A first copy was completed, or a resync found one: there is a base.
    pub initialized: bool,
    /// No new transfers until resumed.
    pub quiesced: bool,
    /// A resync was asked for and nothing of it is published yet.
    pub resync_pending: bool,
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
    /// A person asks that the volume follow its source again. Only asked with a common base found and pinned.
    AskResync,
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

/// Why a state refuses what was asked; nothing has changed. `{volume}` stands for whose mirror it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal(&'static str);

impl Refusal {
    /// The same of the mirror of `volume`: what it says to type can be typed.
    pub(crate) fn of(self, volume: &VolumeName) -> MirrorError {
        MirrorError::State(self.0.replace("{volume}", &volume.to_string()))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl RelationshipState {
    /// The state by name.
    pub fn state(&self) -> State {
        match self.work {
            Work::BrokenOff => State::BrokenOff,
            Work::Running { kind: TransferKind::Initialize, .. } => State::Initializing,
            Work::Running { kind: TransferKind::Update | TransferKind::Resync, .. } => State::Transferring,
            Work::Queued(_) => State::Queued,
            Work::Idle if self.quiesced => State::Quiesced,
            Work::Idle if self.initialized => State::Mirrored,
            Work::Idle => State::Uninitialized,
        }
    }

    /// What `event` makes of this state. An error is a refusal for whoever asked: nothing has changed.
    pub fn step(self, event: Event) -> Result<(RelationshipState, Action), Refusal> {
        use TransferKind::{Initialize, Resync, Update};
        let refuse = |text: &'static str| Err(Refusal(text));
        let stay = Ok((self, Action::None));
        let queue =
            |kind| Ok((RelationshipState { work: Work::Queued(kind), ..self }, Action::Enqueue(kind)));
        let update = if self.resync_pending { Resync } else { Update };
        match (event, self.work) {
            // What nobody asked for is never refused: it comes too late, and is dropped.
            (Event::Tick | Event::Start | Event::Done | Event::Failed, Work::BrokenOff) => stay,
            // The only ways on from there: its quiet can be ended, and it can be resynced.
            (Event::Resume, Work::BrokenOff) if self.quiesced => {
                Ok((RelationshipState { quiesced: false, ..self }, Action::None))
            }
            (Event::AskResync, _) if self.quiesced => {
                refuse("the mirror of {volume} is quiesced. Run farside mirror resume {volume} first")
            }
            (Event::AskResync, Work::BrokenOff) => Ok((
                RelationshipState {
                    initialized: true,
                    resync_pending: true,
                    work: Work::Queued(Resync),
                    quiesced: false,
                },
                Action::Enqueue(Resync),
            )),
            // That a resync was typed is not known here before it begins.
            (Event::Abort, Work::BrokenOff) => refuse(
                "nothing of {volume} runs or waits here yet: its mirror is broken off. Nothing was changed",
            ),
            (_, Work::BrokenOff) if !self.initialized => refuse(
                "the mirror of {volume} is broken off, and has no base of its source to go on from. To begin again: farside mirror delete {volume}, \
                 then farside mirror create; the volume stays. If both sides hold a common point all the same: farside mirror resync \
                 {volume}",
            ),
            (_, Work::BrokenOff) => refuse(
                "the mirror of {volume} is broken off: hosts may write to it. To follow its source again: farside mirror \
                 resync {volume}. To go back to a snapshot: farside snapshot rollback {volume}@SNAP. To end the mirror: farside mirror \
                 delete {volume}",
            ),

            (Event::AskInitialize, _) if self.initialized => refuse(
                "the mirror of {volume} is already initialized. To bring it up to date: farside mirror update {volume}",
            ),
            (Event::AskUpdate, Work::Idle) if !self.initialized && !self.quiesced => refuse(
                "the mirror of {volume} is not initialized. Run farside mirror initialize {volume} first",
            ),
            (Event::AskInitialize | Event::AskUpdate, _) if self.quiesced => {
                refuse("the mirror of {volume} is quiesced. Run farside mirror resume {volume} first")
            }
            (Event::AskResync, _) if !self.initialized => refuse(
                "the mirror of {volume} is not initialized. Run farside mirror initialize {volume} first",
            ),
            (Event::AskResync, Work::Idle) => Ok((
                RelationshipState { resync_pending: true, work: Work::Queued(Resync), ..self },
                Action::Enqueue(Resync),
            )),
            // What waits has not begun: it becomes the resync, and covers this moment.
            (Event::AskResync, Work::Queued(_)) => Ok((
                RelationshipState { resync_pending: true, work: Work::Queued(Resync), ..self },
                Action::None,
            )),
            (Event::AskResync, Work::Running { kind: Resync, .. }) => stay,
            (Event::AskResync, Work::Running { kind, .. }) => {
                let work = Work::Running { kind, again: true };
                Ok((RelationshipState { resync_pending: true, work, ..self }, Action::None))
            }

            (Event::AskInitialize, Work::Idle) => queue(Initialize),
            (Event::AskUpdate, Work::Idle) => queue(update),
            // The queued transfer takes its snapshot later than now, so it covers the moment of asking; where it was taken already, the
            // driver has another one taken.
            (Event::AskInitialize | Event::AskUpdate, Work::Queued(_)) => stay,
            (Event::AskInitialize, Work::Running { .. }) => stay,
            (Event::AskUpdate, Work::Running { kind, .. }) => {
                Ok((RelationshipState { work: Work::Running { kind, again: true }, ..self }, Action::None))
            }

            (Event::Tick, Work::Idle) if self.initialized && !self.quiesced => queue(update),
            (Event::Tick, Work::Running { kind, .. }) if !self.quiesced => {
                Ok((RelationshipState { work: Work::Running { kind, again: true }, ..self }, Action::None))
            }
            (Event::Tick, _) => stay,

            (Event::Start, Work::Queued(kind)) => Ok((
                RelationshipState { work: Work::Running { kind, again: false }, ..self },
                Action::Run(kind),
            )),
            (Event::Start, _) => stay,

            (Event::Done | Event::Failed, Work::Running { kind, again }) => {
                let is_done = event == Event::Done;
                let initialized = self.initialized || is_done;
                let resync_pending = self.resync_pending && !(is_done && kind == Resync);
                let next = RelationshipState { initialized, resync_pending, work: Work::Idle, ..self };
                if again && initialized && !self.quiesced {
                    let kind = if resync_pending { Resync } else { Update };
                    Ok((RelationshipState { work: Work::Queued(kind), ..next }, Action::Enqueue(kind)))
                } else {
                    Ok((next, Action::None))
                }
            }
            (Event::Failed, Work::Queued(_)) => {
                Ok((RelationshipState { work: Work::Idle, ..self }, Action::None))
            }
            (Event::Done | Event::Failed, _) => stay,

            (Event::Quiesce, Work::Queued(_)) => {
                Ok((RelationshipState { quiesced: true, work: Work::Idle, ..self }, Action::LeaveQueue))
            }
            (Event::Quiesce, Work::Running { kind, .. }) => {
                let work = Work::Running { kind, again: false };
                Ok((RelationshipState { quiesced: true, work, ..self }, Action::None))
            }
            (Event::Quiesce, Work::Idle) => Ok((RelationshipState { quiesced: true, ..self }, Action::None)),
            (Event::Resume, _) => Ok((RelationshipState { quiesced: false, ..self }, Action::None)),

            (Event::Abort, Work::Running { kind, .. }) => {
                Ok((RelationshipState { work: Work::Running { kind, again: false }, ..self }, Action::Cancel))
            }
            (Event::Abort, Work::Queued(_)) => {
                Ok((RelationshipState { work: Work::Idle, ..self }, Action::LeaveQueue))
            }
            (Event::Abort, Work::Idle) => refuse("no transfer of {volume} is running or queued"),

            (Event::Break, _) => Ok((
                RelationshipState { work: Work::BrokenOff, resync_pending: false, ..self },
                Action::BreakOff,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransferKind::{Initialize, Resync, Update};

    const EVENTS: [Event; 11] = [
        Event::AskInitialize,
        Event::AskUpdate,
        Event::AskResync,
        Event::Tick,
        Event::Start,
        Event::Done,
        Event::Failed,
        Event::Quiesce,
        Event::Resume,
        Event::Abort,
        Event::Break,
    ];

    fn standings() -> Vec<RelationshipState> {
        let mut all = Vec::new();
        let mut works = vec![Work::Idle, Work::BrokenOff];
        for kind in [Initialize, Update, Resync] {
            works.push(Work::Queued(kind));
            works.extend([true, false].map(|again| Work::Running { kind, again }));
        }
        for bits in 0..8 {
            let [initialized, quiesced, resync_pending] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
            let state = |work| RelationshipState { initialized, quiesced, resync_pending, work };
            all.extend(works.iter().copied().map(state));
        }
        all
    }

    /// What every pair must hold to, reachable or not.
    #[test]
    fn every_pair_keeps_the_rules() {
        for state in standings() {
            for event in EVENTS {
                let context = format!("{state:?} + {event:?}");
                let Ok((next, action)) = state.step(event) else {
                    let asked = !matches!(event, Event::Tick | Event::Start | Event::Done | Event::Failed);
                    assert!(asked, "nobody asked, nobody can be refused: {context}");
                    continue;
                };
                let is_running = |s: &RelationshipState| matches!(s.work, Work::Running { .. });
                let is_queued = |s: &RelationshipState| matches!(s.work, Work::Queued(_));
                // An action and the state it leads to belong together.
                match action {
                    Action::Run(kind) => {
                        assert!(next.work == (Work::Running { kind, again: false }), "{context}")
                    }
                    Action::Enqueue(kind) => assert!(next.work == Work::Queued(kind), "{context}"),
                    Action::LeaveQueue => {
                        assert!(is_queued(&state) && next.work == Work::Idle, "{context}")
                    }
                    Action::Cancel => assert!(is_running(&state) && is_running(&next), "{context}"),
                    Action::BreakOff => assert_eq!(next.work, Work::BrokenOff, "{context}"),
                    Action::None => {}
                }
                // A transfer that runs ends only by its own report or by a break: two can never run at once.
                if is_running(&state) && !is_running(&next) {
                    assert!(matches!(event, Event::Done | Event::Failed | Event::Break), "{context}");
                }
                if is_running(&next) && !is_running(&state) {
                    assert_eq!(event, Event::Start, "{context}");
                }
                // Only a person breaks, and only a resync leads out of it.
                if state.work == Work::BrokenOff && event != Event::AskResync {
                    assert_eq!((next.work, action), (Work::BrokenOff, Action::None), "{context}");
                } else if state.work != Work::BrokenOff && next.work == Work::BrokenOff {
                    assert_eq!((event, action), (Event::Break, Action::BreakOff), "{context}");
                }
                // A pending resync is asked for by a person, and is over when one is done, or with a break.
                if next.resync_pending != state.resync_pending {
                    let is_over = match state.work {
                        Work::Running { kind: Resync, .. } => event == Event::Done,
                        _ => false,
                    };
                    let expected = if next.resync_pending {
                        event == Event::AskResync
                    } else {
                        is_over || event == Event::Break
                    };
                    assert!(expected, "{context}");
                }
                // Whatever is queued anew while one is pending is one.
                if let Action::Enqueue(kind) = action
                    && kind != Initialize
                {
                    assert_eq!(kind == Resync, next.resync_pending, "{context}");
                }
                // While quiesced nothing new is queued.
                if next.quiesced && is_queued(&next) {
                    assert!(is_queued(&state), "{context}");
                }
                // Nothing but a completed copy initializes, or a resync that found a base; nothing takes it back.
                if next.initialized != state.initialized {
                    let found = event == Event::AskResync && state.work == Work::BrokenOff;
                    assert!((event == Event::Done || found) && next.initialized, "{context}");
                }
            }
        }
    }

    /// The whole table of reachable standings, found by walking from the beginning; each with every event.
    #[test]
    fn everything_reachable_has_a_name_and_a_way_out() {
        let start = RelationshipState {
            initialized: false,
            quiesced: false,
            resync_pending: false,
            work: Work::Idle,
        };
        let mut seen = vec![start];
        let mut at = 0;
        while let Some(state) = seen.get(at).copied() {
            at += 1;
            for event in EVENTS {
                if let Ok((next, _)) = state.step(event)
                    && !seen.contains(&next)
                {
                    seen.push(next);
                }
            }
        }
        for state in &seen {
            // An update never runs or waits before there is a base.
            let updating = matches!(
                state.work,
                Work::Queued(Update | Resync) | Work::Running { kind: Update | Resync, .. }
            );
            assert!(!updating || state.initialized, "{state:?}");
            let copying =
                matches!(state.work, Work::Queued(Initialize) | Work::Running { kind: Initialize, .. });
            assert!(!copying || !state.initialized, "{state:?}");
            assert!(!state.resync_pending || state.initialized, "{state:?}");
            assert!(!state.resync_pending || state.work != Work::BrokenOff, "{state:?}");
            let resyncing = matches!(state.work, Work::Queued(Resync) | Work::Running { kind: Resync, .. });
            assert!(!resyncing || state.resync_pending, "{state:?}");
        }
        let names: std::collections::HashSet<State> = seen.iter().map(RelationshipState::state).collect();
        assert_eq!(names.len(), 7, "every state of the documentation is reachable: {names:?}");
    }

    fn walk(mut state: RelationshipState, events: &[Event]) -> RelationshipState {
        for event in events {
            state = state.step(*event).unwrap_or_else(|e| panic!("{state:?} + {event:?}: {e}")).0;
        }
        state
    }

    const MIRRORED: RelationshipState =
        RelationshipState { initialized: true, quiesced: false, resync_pending: false, work: Work::Idle };

    #[test]
    fn who_ends_what_has_not_begun_hears_that_nothing_runs() {
        let broken_off = walk(MIRRORED, &[Event::Break]);
        let said = broken_off.step(Event::Abort).unwrap_err();
        assert!(said.to_string().starts_with("nothing of {volume} runs or waits here yet"), "{said}");
        assert!(broken_off.step(Event::AskUpdate).unwrap_err().to_string().contains("hosts may write to it"));
    }

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
        let fresh = RelationshipState { initialized: false, ..MIRRORED };
        let failed = walk(fresh, &[Event::AskInitialize, Event::Start, Event::Tick, Event::Failed]);
        assert_eq!(failed.state(), State::Uninitialized);
    }

    #[test]
    fn a_resync_is_retried_as_one_until_it_is_done() {
        let broken = walk(MIRRORED, &[Event::Break]);
        assert!(broken.step(Event::AskUpdate).is_err());
        let failed = walk(broken, &[Event::AskResync, Event::Start, Event::Failed]);
        assert_eq!(failed.state(), State::Mirrored);
        assert_eq!(failed.step(Event::Tick).unwrap().1, Action::Enqueue(Resync));
        assert_eq!(failed.step(Event::AskUpdate).unwrap().1, Action::Enqueue(Resync));
        assert_eq!(walk(failed, &[Event::Break]), broken, "a break gives the volume back");
        let done = walk(failed, &[Event::AskUpdate, Event::Start, Event::Done]);
        assert_eq!(done, MIRRORED);
        assert_eq!(done.step(Event::Tick).unwrap().1, Action::Enqueue(Update));
        // Asked for while an update runs or waits: what comes next is the resync.
        let running = walk(MIRRORED, &[Event::Tick, Event::Start, Event::AskResync]);
        assert_eq!(running.step(Event::Done).unwrap().1, Action::Enqueue(Resync));
        let waiting = walk(MIRRORED, &[Event::Tick, Event::AskResync]);
        assert_eq!(waiting.step(Event::Start).unwrap().1, Action::Run(Resync));
    }

    #[test]
    fn what_was_broken_off_before_its_first_copy_is_not_sent_to_a_resync_first() {
        for (initialized, first) in [(false, "farside mirror delete"), (true, "farside mirror resync")] {
            let state = RelationshipState {
                initialized,
                quiesced: false,
                resync_pending: false,
                work: Work::BrokenOff,
            };
            let said = state.step(Event::AskUpdate).unwrap_err().to_string();
            let named = said.match_indices("farside mirror").next().map(|(at, _)| &said[at..]);
            assert!(named.is_some_and(|named| named.starts_with(first)), "{said}");
        }
    }

    #[test]
    fn a_quiet_mirror_that_was_broken_off_is_resumed_and_resynced() {
        let broken = walk(MIRRORED, &[Event::Quiesce, Event::Break]);
        assert!(broken.step(Event::AskResync).is_err());
        let resumed = walk(broken, &[Event::Resume]);
        assert!(resumed.step(Event::Resume).is_err(), "there is nothing to resume any more");
        assert_eq!(walk(resumed, &[Event::AskResync]).state(), State::Queued);
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
