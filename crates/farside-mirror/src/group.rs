//! Groups: mirrors of one source site into one pool whose updates bring one moment, and are published in one record.
//!
//! The first member that is due asks the source for a moment of all ([`Groups::join`]); the others are told to update too. Each brings its
//! part by a transfer of its own, gives its place to others, and waits; the last one publishes all. What is in force here is forgotten
//! when the daemon stops: what was brought is staged in the pool, and the next update takes a new moment.
//!
//! One that has no first copy yet, is deleted or taken out is not waited for, nor is the way back of one that has changed roles: its volume
//! is the original. One whose transfer fails ends the update of all: nothing of
//! it is published, and each says why. Where one is broken off the others stay where they are: what all have in common is the moment to
//! break off at. [`round`] is pure.

mod member;
mod moment;
mod round;
pub(crate) mod turn;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_engine::Engine;
use farside_transfer::destination::{Brought, publish_together};
use farside_transfer::limits::GROUP_MAX;
use farside_transfer::protocol::group::GroupMoment;
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::error::MirrorError;
use member::Place;
pub(crate) use member::{GroupKey, Member, Stands};
pub(crate) use moment::Joining;
use moment::ask;
use round::{Round, Verdict};

/// The groups of a site.
pub(crate) struct Groups {
    engine: Arc<dyn Engine>,
    groups: Mutex<BTreeMap<GroupKey, Group>>,
}

#[derive(Default)]
struct Group {
    members: BTreeMap<Uuid, Member>,
    update: Option<Update>,
    updates: u64,
    /// Why the last update that was given up was, and its number.
    given_up: Option<(u64, String)>,
    /// Held while a moment is asked for.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// Somebody waits for the end of the update.
    ended: Arc<Notify>,
}

/// An update of a group that is under way.
struct Update {
    number: u64,
    round: Round,
    moments: BTreeMap<Uuid, GroupMoment>,
    /// When the moment was taken, on monotonic time.
    taken_at: Duration,
    waiting: BTreeMap<Uuid, Waiting>,
}

/// What a member has brought, and who hears what came of it.
struct Waiting {
    brought: Arc<Brought>,
    published: oneshot::Sender<Result<String, String>>,
}

/// What a member finds that wants to join.
enum Found {
    /// Its place in the update under way.
    Place(Place),
    /// An update is under way that is not its own, or not any more.
    Busy(Arc<Notify>),
    /// There is nobody to go with.
    Alone,
    /// A new one may begin, of these.
    Members(BTreeMap<Uuid, Member>),
}

impl Groups {
    /// None yet.
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Groups {
        Groups { engine, groups: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<GroupKey, Group>> {
        // Every change is whole before the lock is given back.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is to know of a mirror now.
    pub(crate) fn enroll(self: &Arc<Self>, id: Uuid, key: Option<&GroupKey>, member: Member) {
        let mut groups = self.lock();
        let others: Vec<GroupKey> = groups
            .iter()
            .filter(|(of, g)| Some(*of) != key && g.members.contains_key(&id))
            .map(|(of, _)| of.clone())
            .collect();
        for other in others {
            self.remove(&mut groups, &other, id);
        }
        let Some(key) = key else { return };
        let group = groups.entry(key.clone()).or_default();
        // One that is quiesced ends what runs. Whoever is not looked at yet may be anything.
        let ends = matches!(member.stands, Some(Stands::BrokenOff | Stands::Resyncs | Stands::Swaps));
        let why = member.stands.filter(|_| ends).map(|stands| stands.why(&member.volume, &key.name));
        group.members.insert(id, member);
        if let Some(why) = why
            && group.update.as_ref().is_some_and(|update| update.round.has(id))
        {
            end(group, &why);
        }
    }

    /// How many mirrors are in it, as far as they are known by now.
    pub(crate) fn size(&self, key: &GroupKey) -> usize {
        self.lock().get(key).map_or(0, |group| group.members.len())
    }

    /// The mirror is no more.
    pub(crate) fn leave(self: &Arc<Self>, id: Uuid) {
        let mut groups = self.lock();
        let of: Vec<GroupKey> =
            groups.iter().filter(|(_, g)| g.members.contains_key(&id)).map(|(of, _)| of.clone()).collect();
        for key in of {
            self.remove(&mut groups, &key, id);
        }
    }

    fn remove(self: &Arc<Self>, groups: &mut BTreeMap<GroupKey, Group>, key: &GroupKey, id: Uuid) {
        let Some(group) = groups.get_mut(key) else { return };
        group.members.remove(&id);
        self.without(key, group, id);
        if group.members.is_empty() && group.update.is_none() {
            groups.remove(key);
        }
    }

    fn without(self: &Arc<Self>, key: &GroupKey, group: &mut Group, id: Uuid) {
        let Some(update) = &mut group.update else { return };
        let verdict = update.round.without(id);
        if let Some(waiting) = update.waiting.remove(&id) {
            let _ = waiting.published.send(Err("the mirror left its group".into()));
        }
        self.follow(key, group, verdict);
    }

    /// Its place in the update of its group; begins one if none is under way. None if it goes alone.
    ///
    /// # Errors
    /// If a member stands, or the source cannot name a moment of all.
    pub(crate) async fn join(self: &Arc<Self>, joining: Joining<'_>) -> Result<Option<Place>, MirrorError> {
        loop {
            let opening = self.lock().entry(joining.key.clone()).or_default().opening.clone();
            let held = opening.lock().await;
            match self.find(&joining)? {
                Found::Alone => return Ok(None),
                Found::Place(place) => return Ok(Some(place)),
                Found::Members(members) => {
                    // Rather too early than too late: who asked before it is served by it.
                    let taken_at = joining.clock.monotonic();
                    let moments = ask(self.engine.clone(), &joining, &members).await?;
                    self.begin(&joining, moments, taken_at);
                }
                Found::Busy(ended) => {
                    let ended = ended.notified_owned();
                    tokio::pin!(ended);
                    ended.as_mut().enable();
                    drop(held);
                    // It may have ended since it was looked at.
                    if matches!(self.find(&joining)?, Found::Busy(_)) {
                        ended.await;
                    }
                }
            }
        }
    }

    fn find(self: &Arc<Self>, joining: &Joining<'_>) -> Result<Found, MirrorError> {
        let followed = joining.key.followed(joining.source);
        let groups = self.lock();
        let Some(group) = groups.get(&joining.key) else { return Ok(Found::Alone) };
        if let Some(update) = &group.update {
            let moment = update.moments.get(&joining.id).filter(|_| update.round.is_expected(joining.id));
            return Ok(match moment {
                Some(moment) => Found::Place(Place {
                    key: joining.key.clone(),
                    id: joining.id,
                    number: update.number,
                    moment: *moment,
                    taken_at: update.taken_at,
                }),
                None => Found::Busy(group.ended.clone()),
            });
        }
        let counts = |m: &Member| m.counts && !m.is_asleep(&followed);
        let members: BTreeMap<Uuid, Member> =
            group.members.iter().filter(|(_, m)| counts(m)).map(|(id, m)| (*id, m.clone())).collect();
        if members.len() < 2 || !members.contains_key(&joining.id) {
            return Ok(Found::Alone);
        }
        let GroupKey { name, .. } = &joining.key;
        if members.len() > GROUP_MAX {
            return Err(MirrorError::State(format!(
                "group {name} has {} mirrors; {GROUP_MAX} are updated together at most. Take some out: farside mirror set \
                 POOL/VOL --group none",
                members.len()
            )));
        }
        let why = members.values().find_map(|m| Some(m.stands?.why(&m.volume, name)));
        why.map_or(Ok(Found::Members(members)), |why| Err(MirrorError::State(why)))
    }

    /// The source has named the moment: the update is under way, and the other members are told.
    fn begin(&self, joining: &Joining<'_>, moments: BTreeMap<Uuid, GroupMoment>, taken_at: Duration) {
        let mut groups = self.lock();
        let Some(group) = groups.get_mut(&joining.key) else { return };
        // Who left meanwhile is not waited for; who stands by now keeps all, and is asked anew.
        let is_here = |id: &Uuid| group.members.get(id).is_some_and(|m| m.counts);
        let members: Vec<Uuid> = moments.keys().filter(|id| is_here(id)).copied().collect();
        if members.iter().any(|id| group.members.get(id).is_some_and(|m| m.stands.is_some())) {
            return;
        }
        group.updates += 1;
        let round = Round::new(members.iter().copied());
        let number = group.updates;
        group.update = Some(Update { number, round, moments, taken_at, waiting: BTreeMap::new() });
        for id in members.into_iter().filter(|id| *id != joining.id) {
            if let Some(member) = group.members.get(&id) {
                member.wake.notify_one();
            }
        }
    }

    /// Whom the update of a mirror's group waits for, if the mirror itself is there.
    pub(crate) fn waits_for(&self, id: Uuid) -> Option<String> {
        let groups = self.lock();
        let (key, group, update) = groups
            .iter()
            .filter_map(|(key, group)| Some((key, group, group.update.as_ref()?)))
            .find(|(_, _, update)| update.waiting.contains_key(&id))?;
        let missing = update.round.missing();
        let names = missing.iter().filter_map(|id| group.members.get(id)).map(|m| m.volume.to_string());
        let names: Vec<String> = names.take(3).collect();
        let more = missing.len() - names.len().min(missing.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "has arrived, and waits to be published with {}{more} of group {}",
                names.join(", "),
                key.name
            )
        })
    }

    /// Whether the update of a mirror's group waits for it.
    pub(crate) fn expects(&self, id: Uuid) -> bool {
        let is_expected =
            |group: &Group| group.update.as_ref().is_some_and(|update| update.round.is_expected(id));
        self.lock().values().any(is_expected)
    }

    /// The same of its update `number`.
    fn waits_for_part(&self, key: &GroupKey, number: u64, id: Uuid) -> bool {
        let mut groups = self.lock();
        let update = groups.get_mut(key).and_then(|group| Self::update(group, number));
        update.is_some_and(|update| update.round.is_expected(id))
    }

    /// A member cannot bring its part: nothing of the update is published, and nobody waits for it.
    pub(crate) fn give_up(&self, id: Uuid, why: &str) {
        let mut groups = self.lock();
        for (key, group) in groups.iter_mut() {
            let is_waited_for = group.update.as_ref().is_some_and(|update| update.round.is_expected(id));
            if is_waited_for {
                let of = group.members.get(&id).map_or_else(|| "a mirror".into(), |m| m.volume.to_string());
                end(
                    group,
                    &format!(
                        "{of} of the same group ({}) was not updated: {why}. Nothing of the group was published; what has arrived is kept",
                        key.name
                    ),
                );
            }
        }
    }

    /// Does what the round says.
    fn follow(self: &Arc<Self>, key: &GroupKey, group: &mut Group, verdict: Verdict) {
        match verdict {
            Verdict::Wait => {}
            Verdict::Over => {
                group.update = None;
                group.ended.notify_waiters();
            }
            Verdict::Publish => {
                let Some(update) = &mut group.update else { return };
                let waiting = std::mem::take(&mut update.waiting).into_values().collect();
                tokio::spawn(publish(self.clone(), key.clone(), update.number, waiting));
            }
        }
    }

    /// The update `number` of a group, if it is under way.
    fn update(group: &mut Group, number: u64) -> Option<&mut Update> {
        group.update.as_mut().filter(|update| update.number == number)
    }

    fn is_there(self: &Arc<Self>, key: &GroupKey, number: u64, id: Uuid) {
        let mut groups = self.lock();
        let Some(group) = groups.get_mut(key) else { return };
        if let Some(verdict) = Self::update(group, number).map(|update| update.round.is_there(id)) {
            self.follow(key, group, verdict);
        }
    }

    /// A member has brought its part; answers who says what came of it.
    ///
    /// # Errors
    /// Why the update has ended, if it has.
    fn brought(
        self: &Arc<Self>,
        key: &GroupKey,
        number: u64,
        id: Uuid,
        brought: Brought,
    ) -> Result<oneshot::Receiver<Result<String, String>>, String> {
        let over = || "the update of its group has ended. What has arrived is kept".to_owned();
        let mut groups = self.lock();
        let group = groups.get_mut(key).ok_or_else(over)?;
        if let Some((_, why)) = group.given_up.as_ref().filter(|(of, _)| *of == number) {
            return Err(why.clone());
        }
        let update =
            Self::update(group, number).filter(|update| update.round.is_expected(id)).ok_or_else(over)?;
        let (published, is_published) = oneshot::channel();
        update.waiting.insert(id, Waiting { brought: Arc::new(brought), published });
        let verdict = update.round.brought(id);
        self.follow(key, group, verdict);
        Ok(is_published)
    }

    fn take_back(&self, key: &GroupKey, number: u64, id: Uuid) {
        let mut groups = self.lock();
        let update = groups.get_mut(key).and_then(|group| Self::update(group, number));
        if let Some(update) = update
            && update.round.taken_back(id)
        {
            update.waiting.remove(&id);
        }
    }

    /// The update has ended, well or not.
    fn ended(&self, key: &GroupKey, number: u64) {
        let mut groups = self.lock();
        let Some(group) = groups.get_mut(key) else { return };
        if group.update.as_ref().is_some_and(|update| update.number == number) {
            group.update = None;
        }
        group.ended.notify_waiters();
    }
}

/// Publishes what all have brought, whoever of them goes meanwhile, and tells each.
async fn publish(groups: Arc<Groups>, key: GroupKey, number: u64, waiting: Vec<Waiting>) {
    let all = waiting.iter().map(|waiting| waiting.brought.clone()).collect();
    let published = publish_together(groups.engine.clone(), all).await;
    // First: who goes on finds that the next one may begin.
    groups.ended(&key, number);
    match published {
        Ok(names) => {
            tracing::debug!(group = key.name, volumes = names.len(), "published together");
            for (waiting, name) in waiting.into_iter().zip(names) {
                let _ = waiting.published.send(Ok(name));
            }
        }
        Err(error) => {
            let why = format!("the volumes of group {} were not published: {error}", key.name);
            for waiting in waiting {
                let _ = waiting.published.send(Err(why.clone()));
            }
        }
    }
}

/// Nothing of the update is published: whoever has brought something hears why.
fn end(group: &mut Group, why: &str) {
    let Some(update) = group.update.take() else { return };
    group.given_up = Some((update.number, why.to_owned()));
    for waiting in update.waiting.into_values() {
        let _ = waiting.published.send(Err(why.to_owned()));
    }
    group.ended.notify_waiters();
}
