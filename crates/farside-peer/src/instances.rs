//! Whether a process that comes with a peer's key is taken, when another with the same key is, or was of late, the peer. Pure.
//!
//! Each life of a daemon draws an instance. A new one is most often the same site, restarted; the session of its old life is a ghost
//! then. But a site can live twice: a machine was cloned, or its data directory copied, and both run. If the newcomer always won, the
//! two would take the session from one another for ever, and a replica would follow now one, now the other. So the living one stays:
//!
//! * A newcomer that meets a live session waits until that was asked. An answer means that two sites live: the newcomer is refused.
//! * A process that was the peer before the present one is not asked about: at best it is late, at worst it is one of two.
//! * One that was refused once does not come in by the next pause of the link, nor while the other restarts: it waits until that
//!   has been gone for [`OTHER_SITE_WAITS`].
//! * A refused one that comes again lives, and somebody is told. One that does not was the last word of a process that is no more.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{ANSWER_MAX, ANSWER_MOVING_MAX, ANSWER_QUIET, INSTANCES_REMEMBERED, OTHER_SITE_WAITS};

/// Drawn by each life of a daemon.
pub(crate) type Instance = [u8; 16];

/// What to do with a newcomer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// Nothing stands in its way.
    Take,
    /// It is the process that has the live session: which of two sessions stays is [`resolve`](crate::collision::resolve)'s.
    SameProcess,
    /// The live session is asked first.
    Ask,
    /// Another is the peer.
    Refuse,
}

/// What became of the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    /// The peer has answered it.
    Answered,
    /// The session has ended meanwhile.
    Ended,
    /// Nothing came.
    Silent,
    /// No answer, but something moves: behind much data an answer is late, and what a dead process had sent still arrives.
    Unclear,
}

/// What the sign means for the newcomer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Take,
    Refuse,
    /// It may try again.
    Later,
}

pub(crate) fn outcome(sign: Sign) -> Outcome {
    match sign {
        Sign::Answered => Outcome::Refuse,
        Sign::Ended | Sign::Silent => Outcome::Take,
        Sign::Unclear => Outcome::Later,
    }
}

/// What a question that was put so long ago, and is not answered, has shown; nothing yet while it may be answered. `quiet`: for how
/// long nothing has arrived since.
pub(crate) fn unanswered(asked: Duration, quiet: Duration) -> Option<Sign> {
    if asked >= ANSWER_MAX && quiet >= ANSWER_QUIET {
        Some(Sign::Silent)
    } else {
        (asked >= ANSWER_MOVING_MAX).then_some(Sign::Unclear)
    }
}

/// The processes that came with one peer's key. Times are since the node's start.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    followed: Option<Followed>,
    /// Those that were followed before, latest last.
    former: VecDeque<Instance>,
    /// Those that were refused, latest last.
    others: VecDeque<Other>,
    refusals: u64,
}

#[derive(Debug)]
struct Followed {
    instance: Instance,
    from: String,
    /// When its last session ended.
    ended: Option<Duration>,
}

/// One that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Other {
    instance: Instance,
    /// The host that it connects from.
    pub(crate) from: String,
    last: Duration,
    /// It came again after it was refused.
    lives: bool,
}

impl Instances {
    /// What to do with a newcomer; `live` has the session.
    pub(crate) fn meet(&self, live: Option<Instance>, newcomer: Instance, now: Duration) -> Meeting {
        let was_refused = self.others.iter().any(|other| other.instance == newcomer);
        match live {
            Some(live) if live == newcomer => Meeting::SameProcess,
            Some(_) if was_refused || self.former.contains(&newcomer) => Meeting::Refuse,
            Some(_) => Meeting::Ask,
            None => {
                let waits = |followed: &Followed| {
                    followed.instance != newcomer
                        && followed.ended.is_none_or(|ended| now.saturating_sub(ended) < OTHER_SITE_WAITS)
                };
                if was_refused && self.followed.as_ref().is_some_and(waits) {
                    Meeting::Refuse
                } else {
                    Meeting::Take
                }
            }
        }
    }

    /// This one has the session from now on.
    pub(crate) fn follow(&mut self, instance: Instance, from: String) {
        self.others.retain(|other| other.instance != instance);
        self.former.retain(|former| *former != instance);
        let before = self.followed.replace(Followed { instance, from, ended: None });
        if let Some(before) = before.filter(|before| before.instance != instance) {
            remember(&mut self.former, before.instance);
        }
    }

    /// The session of the one that is followed has ended.
    pub(crate) fn ended(&mut self, now: Duration) {
        if let Some(followed) = &mut self.followed {
            followed.ended = Some(now);
        }
    }

    /// This one was refused. Whether that tells something new: that there is another living site.
    pub(crate) fn refuse(&mut self, instance: Instance, from: String, now: Duration) -> bool {
        let at = self.others.iter().position(|other| other.instance == instance);
        let known = at.and_then(|at| self.others.remove(at));
        let was_told = known.as_ref().is_some_and(|known| known.lives);
        let lives = known.is_some();
        remember(&mut self.others, Other { instance, from, last: now, lives });
        self.refusals += u64::from(lives);
        lives && !was_told
    }

    /// Where the one that is followed connects from.
    pub(crate) fn followed_from(&self) -> &str {
        self.followed.as_ref().map_or("", |followed| &followed.from)
    }

    /// The other living site, if one was heard of late.
    pub(crate) fn other(&self, now: Duration) -> Option<&Other> {
        let is_there = |other: &&Other| other.lives && now.saturating_sub(other.last) < OTHER_SITE_WAITS;
        self.others.iter().rev().find(is_there)
    }

    /// How often another living site was refused.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }
}

fn remember<T>(all: &mut VecDeque<T>, one: T) {
    if all.len() >= INSTANCES_REMEMBERED {
        all.pop_front();
    }
    all.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Instance = [1; 16];
    const A_RESTARTED: Instance = [2; 16];
    const COPY: Instance = [3; 16];

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn from(instance: Instance) -> String {
        format!("host-{}", instance[0])
    }

    fn followed(instance: Instance) -> Instances {
        let mut instances = Instances::default();
        instances.follow(instance, from(instance));
        instances
    }

    #[test]
    fn what_a_question_shows() {
        let millis = Duration::from_millis;
        for (asked, quiet, sign) in [
            (millis(0), millis(0), None),
            (millis(1_900), millis(1_900), None),
            (millis(2_000), millis(2_000), Some(Sign::Silent)),
            // The last of what was on its way when the peer died came just after the question.
            (millis(2_000), millis(1_500), Some(Sign::Silent)),
            (millis(2_000), millis(500), None),
            (millis(4_900), millis(100), None),
            (millis(5_000), millis(100), Some(Sign::Unclear)),
        ] {
            assert_eq!(unanswered(asked, quiet), sign, "{asked:?} {quiet:?}");
        }
        for (sign, expected) in [
            (Sign::Answered, Outcome::Refuse),
            (Sign::Ended, Outcome::Take),
            (Sign::Silent, Outcome::Take),
            (Sign::Unclear, Outcome::Later),
        ] {
            assert_eq!(outcome(sign), expected);
        }
    }

    #[test]
    fn who_is_taken() {
        // Nobody was here before; whoever comes is the peer.
        assert_eq!(Instances::default().meet(None, A, at(0)), Meeting::Take);
        let mut instances = followed(A);
        assert_eq!(instances.meet(Some(A), A, at(1)), Meeting::SameProcess);
        assert_eq!(instances.meet(Some(A), COPY, at(1)), Meeting::Ask);
        // A restart that nobody is in the way of, and whoever comes back.
        instances.ended(at(10));
        assert_eq!(instances.meet(None, A_RESTARTED, at(11)), Meeting::Take);
        assert_eq!(instances.meet(None, A, at(11)), Meeting::Take);
    }

    #[test]
    fn a_late_hello_of_an_old_life_evicts_nobody_and_alarms_nobody() {
        let mut instances = followed(A);
        instances.follow(A_RESTARTED, from(A_RESTARTED));
        assert_eq!(instances.meet(Some(A_RESTARTED), A, at(1)), Meeting::Refuse);
        assert!(!instances.refuse(A, from(A), at(1)));
        assert_eq!((instances.other(at(1)), instances.refusals()), (None, 0));
    }

    #[test]
    fn one_that_comes_again_after_it_was_refused_lives_and_that_is_said_once() {
        let mut instances = followed(A);
        assert!(!instances.refuse(COPY, from(COPY), at(1)));
        assert!(instances.refuse(COPY, from(COPY), at(2)));
        for seconds in 3..100 {
            assert!(!instances.refuse(COPY, from(COPY), at(seconds)));
        }
        assert_eq!(instances.refusals(), 98);
        assert_eq!(instances.other(at(100)).unwrap().from, "host-3");
        assert_eq!(instances.followed_from(), "host-1");
        // It was stopped.
        assert_eq!(instances.other(at(99) + OTHER_SITE_WAITS), None);
    }

    #[test]
    fn the_copy_does_not_come_in_by_a_pause_of_the_link_nor_by_a_restart_of_the_original() {
        let mut instances = followed(A);
        instances.refuse(COPY, from(COPY), at(1));
        assert_eq!(instances.meet(Some(A), COPY, at(2)), Meeting::Refuse, "though A may not answer now");
        instances.ended(at(10));
        assert_eq!(instances.meet(None, COPY, at(11)), Meeting::Refuse);
        assert_eq!(instances.meet(None, A, at(11)), Meeting::Take);
        assert_eq!(instances.meet(None, A_RESTARTED, at(11)), Meeting::Take);
        // The original is gone for good.
        assert_eq!(instances.meet(None, COPY, at(10) + OTHER_SITE_WAITS), Meeting::Take);
        instances.follow(COPY, from(COPY));
        assert_eq!(instances.meet(Some(COPY), A, at(400)), Meeting::Refuse);
    }

    #[test]
    fn one_that_lost_its_place_in_a_pause_and_lives_is_the_other_site_now() {
        let mut instances = followed(A);
        instances.follow(COPY, from(COPY));
        assert_eq!(instances.meet(Some(COPY), A, at(1)), Meeting::Refuse);
        instances.refuse(A, from(A), at(1));
        assert!(instances.refuse(A, from(A), at(2)));
        instances.ended(at(3));
        assert_eq!(instances.meet(None, A, at(4)), Meeting::Refuse);
        assert_eq!(instances.meet(None, A, at(3) + OTHER_SITE_WAITS), Meeting::Take);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut instances = Instances::default();
        for n in 0..100 {
            instances.follow([n; 16], String::new());
            instances.refuse([100 + n; 16], String::new(), at(1));
        }
        assert_eq!(
            (instances.former.len(), instances.others.len()),
            (INSTANCES_REMEMBERED, INSTANCES_REMEMBERED)
        );
    }
}
