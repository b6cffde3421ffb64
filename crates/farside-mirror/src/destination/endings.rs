//! Mirrors of this site that are no more, and of which their sources have not heard: each is told at the next session, and
//! again until it has answered, also after a restart.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_peer::{PeerId, PeerLink};
use farside_transfer::calls::call;
use farside_transfer::protocol::convert;
use farside_transfer::protocol::{Body, Hop, Noted, Overtaken, Standing};
use prost::Message;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::error::MirrorError;
use crate::limits::{ENDINGS_MAX, NOTICE_AGAIN, NOTICE_LINK_WAIT, NOTICE_REST};
use crate::links::Links;
use crate::relationship::newest_in;
use crate::source::{SourceService, Stands};
use crate::store::{Ending, EndingStore};

/// What sources are still to be told of mirrors that are no more. One for each site; tells until it is dropped.
pub struct Endings {
    links: Arc<dyn Links>,
    /// Knows what volumes here follow by now.
    source: Arc<SourceService>,
    store: Arc<dyn EndingStore>,
    tasks: Mutex<HashMap<Uuid, JoinHandle<()>>>,
    /// Relationships that are over, as far as this process knows.
    over: Mutex<HashSet<Uuid>>,
}

impl Endings {
    /// Goes on with what the store knows.
    pub async fn open(
        links: Arc<dyn Links>,
        source: Arc<SourceService>,
        store: Arc<dyn EndingStore>,
    ) -> Result<Endings, MirrorError> {
        let mut all = store.endings().await?;
        all.sort_by_key(|ending| ending.at);
        let endings = Endings { links, source, store, tasks: Mutex::default(), over: Mutex::default() };
        let too_many = all.len().saturating_sub(ENDINGS_MAX);
        for (index, ending) in all.into_iter().enumerate() {
            if index < too_many {
                tracing::warn!(relationship = %ending.relationship, peer = %ending.peer, "the source of a deleted \
                     mirror is not told any more that it has ended: there are too many. At the source: farside \
                     mirror release POOL/VOL ID");
                endings.store.remove_ending(ending.relationship).await?;
                continue;
            }
            endings.tell(ending);
        }
        Ok(endings)
    }

    /// A peer's site has the key `new` by now, and the store knows it: whoever is still to be told is told under that key.
    pub async fn replace_peer(&self, new: PeerId) -> Result<(), MirrorError> {
        for ending in self.store.endings().await?.into_iter().filter(|ending| ending.peer == new) {
            self.tell(ending);
        }
        Ok(())
    }

    /// Whether a relationship is over. The pool may still have its record, as *broken off*, until its source has heard that: should
    /// this site lose its database before, the pool knows what is to be told.
    pub fn is_over(&self, relationship: Uuid) -> bool {
        self.over().contains(&relationship)
    }

    /// It is in force: one that gave way to another may come again.
    pub(crate) fn is_in_force(&self, relationship: Uuid) {
        self.over().remove(&relationship);
    }

    fn over(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It did not come about: nobody is told.
    pub(crate) async fn forget(&self, relationship: Uuid) -> Result<(), MirrorError> {
        self.over().remove(&relationship);
        self.store.remove_ending(relationship).await
    }

    /// Begins to tell of one that the store knows.
    pub(crate) fn tell(&self, ending: Ending) {
        let id = ending.relationship;
        self.over().insert(id);
        let task = tokio::spawn(tell(self.links.clone(), self.source.clone(), self.store.clone(), ending));
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|_, task| !task.is_finished());
        if let Some(before) = tasks.insert(id, task) {
            before.abort();
        }
    }
}

impl Drop for Endings {
    fn drop(&mut self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.into_values().for_each(|task| task.abort());
    }
}

async fn tell(
    links: Arc<dyn Links>,
    source: Arc<SourceService>,
    store: Arc<dyn EndingStore>,
    mut ending: Ending,
) {
    let (relationship, peer) = (ending.relationship, ending.peer);
    let mut rest = NOTICE_REST;
    loop {
        let Ok(link) = links.link(peer, NOTICE_LINK_WAIT).await else {
            // Who is not paired any more is refused at once.
            tokio::time::sleep(NOTICE_REST).await;
            continue;
        };
        if awaits_another(&source, &ending).await {
            // Until then it may come back, if nothing comes of that.
            tokio::time::sleep(NOTICE_REST).await;
            continue;
        }
        let told = match tell_once(&*link, &source, &mut ending).await {
            Ok(Told::ForGood) => for_good(&source, &*store, &ending).await,
            Ok(Told::ForNow) => store.keep_ending(&ending).await.map(|()| Told::ForNow),
            Err(error) => Err(error),
        };
        match told {
            Ok(Told::ForGood) => {
                tracing::info!(%relationship, %peer, "the source knows that the mirror is over");
                return;
            }
            Ok(Told::ForNow) => {
                rest = NOTICE_REST;
                tokio::select! {
                    () = tokio::time::sleep(NOTICE_AGAIN) => {}
                    () = link.closed() => {}
                }
            }
            Err(error) if error.is_lost_session() => tokio::time::sleep(NOTICE_REST).await,
            Err(error) => {
                if rest == NOTICE_REST {
                    tracing::warn!(
                        %relationship, %peer,
                        "the source does not know yet that a mirror was deleted here. Retrying every 5 s to 3 min: {error}"
                    );
                }
                tokio::select! {
                    () = tokio::time::sleep(rest) => rest = (2 * rest).min(NOTICE_AGAIN),
                    // Whoever comes back may be another process by now.
                    () = link.closed() => rest = NOTICE_REST,
                }
            }
        }
    }
}

/// Whether the volume is to follow another since, and has nothing of that yet.
async fn awaits_another(source: &SourceService, ending: &Ending) -> bool {
    let Body::Release(release) = &ending.message else { return false };
    match release.destination.parse() {
        Ok(volume) => source.awaits_first(&volume).await,
        Err(_) => false,
    }
}

/// What telling has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    ForGood,
    /// It followed another and has gone on itself since, or the source does not know yet that it follows the source by way of
    /// that: what becomes of it next is to be told, too. Or its pool is away, and has it as *broken off*.
    ForNow,
}

/// The source knows. The pool first: what it still has would be told again as news by a database that knows nothing of it.
async fn for_good(
    source: &SourceService,
    store: &dyn EndingStore,
    ending: &Ending,
) -> Result<Told, MirrorError> {
    let is_clear = match &ending.message {
        Body::Overtaken(kept) if kept.follows.is_empty() && kept.beyond.is_empty() => {
            source.forget_replica(ending.relationship, kept.destination.parse().ok()).await?
        }
        _ => true,
    };
    if !is_clear {
        store.keep_ending(ending).await?;
        return Ok(Told::ForNow);
    }
    store.remove_ending(ending.relationship).await?;
    Ok(Told::ForGood)
}

async fn tell_once(
    link: &dyn PeerLink,
    source: &SourceService,
    ending: &mut Ending,
) -> Result<Told, MirrorError> {
    let (now, told) = as_it_is(source, ending).await;
    let mut answer = call(link, now.clone(), None).await?;
    let (Body::Overtaken(overtaken), Body::Overtaken(kept)) = (now, &mut ending.message) else {
        return Ok(Told::ForGood);
    };
    let has_followed = !overtaken.follows.is_empty();
    let newest = newest_in(&answer, |noted: Noted| noted.newest)?;
    if newest > overtaken.role_change {
        // With its database this site had lost its count, so that had no effect.
        kept.role_change = newest;
        answer = call(link, Body::Overtaken(Overtaken { role_change: newest, ..overtaken }), None).await?;
    }
    // One that was released there since must not be noted anew.
    kept.again = true;
    let noted = Noted::decode(answer).map_err(|e| MirrorError::protocol(format!("malformed answer: {e}")))?;
    let may_come_back = has_followed && kept.beyond.is_empty();
    match convert::standing(noted.standing)? {
        Standing::NothingKept => Ok(Told::ForGood),
        // It may know more once it has had an update of what it follows.
        Standing::Noted | Standing::Fenced if may_come_back => Ok(Told::ForNow),
        _ => Ok(told),
    }
}

/// What is to be told as it is by now: the volume may follow another, or hosts may have gone on there, since its mirror ended.
async fn as_it_is(source: &SourceService, ending: &Ending) -> (Body, Told) {
    let Body::Overtaken(kept) = &ending.message else { return (ending.message.clone(), Told::ForGood) };
    if kept.follows.is_empty() {
        return (ending.message.clone(), Told::ForGood);
    }
    let standing = match kept.destination.parse() {
        Ok(volume) => source.standing(&volume).await,
        Err(_) => Stands::Unknown,
    };
    let is_source = |hop: &Hop| hop.site == ending.peer.0 && hop.volume == kept.volume;
    match standing {
        Stands::Follows(_) if !kept.beyond.is_empty() => (ending.message.clone(), Told::ForGood),
        Stands::Follows(chain) => {
            let follows = convert::place_messages(&chain);
            let returned = follows.iter().any(is_source);
            (Body::Overtaken(Overtaken { returned, follows, ..kept.clone() }), Told::ForGood)
        }
        Stands::Original => {
            let (follows, beyond) = (Vec::new(), String::new());
            (Body::Overtaken(Overtaken { returned: false, follows, beyond, ..kept.clone() }), Told::ForNow)
        }
        Stands::Unknown => {
            let follows = kept.follows.iter().filter(|hop| !is_source(hop)).cloned().collect();
            (Body::Overtaken(Overtaken { returned: false, follows, ..kept.clone() }), Told::ForGood)
        }
    }
}
