//! One update of a group: who is still to come. Pure.

use std::collections::BTreeMap;

use uuid::Uuid;

/// How far a member is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// Its transfer has not brought it.
    Expected,
    /// Brought and proved.
    Brought,
    /// It shows the moment already.
    There,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nothing yet.
    Wait,
    /// All that is to come is there: it is published. From here on nothing is taken back.
    Publish,
    /// There is nothing to publish.
    Over,
}

/// An update of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Round {
    members: BTreeMap<Uuid, Stage>,
    is_publishing: bool,
}

impl Round {
    /// Everybody is still to come.
    pub(super) fn new(members: impl IntoIterator<Item = Uuid>) -> Round {
        Round { members: members.into_iter().map(|id| (id, Stage::Expected)).collect(), is_publishing: false }
    }

    /// Whether it waits for this one.
    pub(super) fn is_expected(&self, id: Uuid) -> bool {
        self.members.get(&id) == Some(&Stage::Expected)
    }

    /// Whether this one is of it, and nothing is published yet.
    pub(super) fn has(&self, id: Uuid) -> bool {
        !self.is_publishing && self.members.contains_key(&id)
    }

    /// Those it waits for.
    pub(super) fn missing(&self) -> Vec<Uuid> {
        self.members.iter().filter(|(_, stage)| **stage == Stage::Expected).map(|(id, _)| *id).collect()
    }

    /// A member has brought its part.
    pub(super) fn brought(&mut self, id: Uuid) -> Verdict {
        self.note(id, Stage::Brought)
    }

    /// A member shows the moment already.
    pub(super) fn is_there(&mut self, id: Uuid) -> Verdict {
        self.note(id, Stage::There)
    }

    /// What a member has brought is not to be published for now. Answers whether that is still possible.
    pub(super) fn taken_back(&mut self, id: Uuid) -> bool {
        let stage =
            self.members.get_mut(&id).filter(|stage| **stage == Stage::Brought && !self.is_publishing);
        let is_possible = stage.is_some();
        if let Some(stage) = stage {
            *stage = Stage::Expected;
        }
        is_possible
    }

    /// It goes on without this one.
    pub(super) fn without(&mut self, id: Uuid) -> Verdict {
        if self.is_publishing || self.members.remove(&id).is_none() {
            return Verdict::Wait;
        }
        self.verdict()
    }

    fn note(&mut self, id: Uuid, stage: Stage) -> Verdict {
        match self.members.get_mut(&id) {
            Some(known) if *known == Stage::Expected && !self.is_publishing => *known = stage,
            _ => return Verdict::Wait,
        }
        self.verdict()
    }

    fn verdict(&mut self) -> Verdict {
        let any = |stage: Stage| self.members.values().any(|s| *s == stage);
        if any(Stage::Expected) {
            return Verdict::Wait;
        }
        if !any(Stage::Brought) {
            return Verdict::Over;
        }
        self.is_publishing = true;
        Verdict::Publish
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Step {
        Brought,
        There,
        TakenBack,
        Without,
    }

    fn take(round: &mut Round, step: Step, id: Uuid) -> Verdict {
        match step {
            Step::Brought => round.brought(id),
            Step::There => round.is_there(id),
            Step::TakenBack => {
                round.taken_back(id);
                Verdict::Wait
            }
            Step::Without => round.without(id),
        }
    }

    /// Every order of everything that can happen to a group of three.
    #[test]
    fn nothing_is_published_before_all_are_there_and_nothing_twice() {
        let ids = [1, 2, 3].map(Uuid::from_u128);
        let mut seen = HashSet::new();
        let mut queue = VecDeque::from([Round::new(ids)]);
        let (mut published, mut over) = (0, 0);
        while let Some(round) = queue.pop_front() {
            if !seen.insert(round.clone()) {
                continue;
            }
            for id in ids {
                for step in [Step::Brought, Step::There, Step::TakenBack, Step::Without] {
                    let mut next = round.clone();
                    match take(&mut next, step, id) {
                        Verdict::Wait => {
                            let is_stuck =
                                !next.is_publishing && !next.members.is_empty() && next.missing().is_empty();
                            assert!(
                                !is_stuck,
                                "nobody would ever publish {next:?}, after {step:?} of {round:?}"
                            );
                        }
                        Verdict::Publish => {
                            published += 1;
                            assert!(!round.is_publishing, "twice: {round:?}");
                            assert!(next.missing().is_empty() && next.is_publishing);
                            assert!(next.members.values().any(|stage| *stage == Stage::Brought));
                        }
                        Verdict::Over => {
                            over += 1;
                            assert!(next.members.values().all(|stage| *stage == Stage::There), "{next:?}");
                            // Nothing happens to it any more: there is no such round now.
                            continue;
                        }
                    }
                    if round.is_publishing {
                        assert_eq!(next, round, "what is being published does not change");
                    }
                    queue.push_back(next);
                }
            }
        }
        println!("{} states, {published} ways to publish, {over} to end without", seen.len());
        assert!(published > 0 && over > 0);
    }

    #[test]
    fn one_that_was_taken_back_is_waited_for() {
        let [a, b] = [1, 2].map(Uuid::from_u128);
        let mut round = Round::new([a, b]);
        assert_eq!(round.brought(a), Verdict::Wait);
        assert!(round.taken_back(a) && round.is_expected(a));
        assert_eq!(round.brought(b), Verdict::Wait);
        assert_eq!(round.missing(), [a]);
        assert_eq!(round.brought(a), Verdict::Publish);
        assert!(!round.taken_back(a), "too late");
    }
}
