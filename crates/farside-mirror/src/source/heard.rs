//! Which change of direction of a relationship this side has heard of last, so that nothing comes into force that was told
//! of an earlier one.
//!
//! A call goes on here when its session has died, and the destination tells the same by its next session, and newer things
//! after that. Order of arrival says nothing then, so destinations number their changes of direction
//! ([`Swap::turn`](crate::protocol::Swap::turn)). Only memory: what could still come late dies with this process, too.

use std::sync::Arc;

use uuid::Uuid;

use super::{Shared, Tables};
use crate::limits::HEARD_MAX;

/// What was heard of one relationship.
#[derive(Default)]
pub(super) struct Heard {
    newest: u64,
    /// The newest one has ended: it cannot begin any more.
    is_over: bool,
    /// One word at a time is acted on.
    order: Arc<tokio::sync::Mutex<()>>,
}

/// What a word does with the change of direction that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    Begins,
    GoesOn,
    Ends,
}

impl Tables {
    fn heard(&mut self, relationship: Uuid) -> &mut Heard {
        let Tables { heard, relationships, .. } = self;
        if heard.len() >= HEARD_MAX && !heard.contains_key(&relationship) {
            heard.retain(|id, of_it| relationships.contains_key(id) || Arc::strong_count(&of_it.order) > 1);
        }
        heard.entry(relationship).or_default()
    }
}

impl Shared {
    /// Held while a word about this relationship is acted on. Never by a mirror's driver: who holds it may wait for one.
    pub(super) fn order(&self, relationship: Uuid) -> Arc<tokio::sync::Mutex<()>> {
        self.tables().heard(relationship).order.clone()
    }

    /// The newest change of direction that was heard of; 0 if none was.
    pub(super) fn newest_turn(&self, relationship: Uuid) -> u64 {
        self.tables().heard.get(&relationship).map_or(0, |heard| heard.newest)
    }

    /// Whether a word is of an earlier change of direction than the newest, or begins one that has ended.
    pub(super) fn is_late(&self, relationship: Uuid, turn: u64, word: Word) -> bool {
        let tables = self.tables();
        let heard = tables.heard.get(&relationship);
        heard.is_some_and(|heard| {
            turn < heard.newest || (turn == heard.newest && heard.is_over && word == Word::Begins)
        })
    }

    /// Notes a word; false if it is late, and must have no effect.
    pub(super) fn hear(&self, relationship: Uuid, turn: u64, word: Word) -> bool {
        let mut tables = self.tables();
        let heard = tables.heard(relationship);
        if turn < heard.newest {
            return false;
        }
        if turn > heard.newest {
            (heard.newest, heard.is_over) = (turn, false);
        }
        if heard.is_over && word == Word::Begins {
            return false;
        }
        heard.is_over |= word == Word::Ends;
        true
    }
}
