//! A right belongs to a volume, not to its name: it follows a rename, ends with the volume, and one that was given to a name
//! before there was a volume binds to the first that gets it.

use std::collections::HashMap;

use farside_engine::VolumeName;
use farside_peer::PeerId;
use uuid::Uuid;

use crate::peers::{Right, Rights};
use crate::state::{Recorded, RightRow, State, StateError};
use crate::volume_ids::Called;

impl Right {
    /// Whether it is one on what is called so. While the pool is not open nothing can be read there, but fences must stand.
    pub(crate) fn holds_for(&self, called: Called) -> bool {
        match (self.volume_id, called) {
            (None, _) | (_, Called::Unknown) => true,
            (Some(_), Called::Nothing) => false,
            (Some(given), Called::Volume(found)) => given == found,
        }
    }
}

impl Rights {
    /// Whose right a volume is, by its identity, or by its name alone where no volume had it.
    pub(crate) fn on_volume(&self, name: &VolumeName, id: Uuid) -> Vec<PeerId> {
        let name = name.to_string();
        let table = self.table.read();
        let have = table.iter().filter(|(_, rights)| {
            rights.iter().any(|(known, right)| {
                right.volume_id == Some(id) || (right.volume_id.is_none() && *known == name)
            })
        });
        have.map(|(peer, _)| *peer).collect()
    }

    /// Has the rights on a pool's volumes follow what these are called now, and binds those that were given to a name.
    /// Answers what was bound or renamed.
    pub(crate) async fn follow(
        &self,
        state: &State,
        volumes: &[(VolumeName, Uuid)],
    ) -> Result<Vec<(PeerId, String)>, StateError> {
        let _turn = self.turn.lock().await;
        let by_id: HashMap<Uuid, String> = volumes.iter().map(|(name, id)| (*id, name.to_string())).collect();
        let by_name: HashMap<String, Uuid> =
            volumes.iter().map(|(name, id)| (name.to_string(), *id)).collect();
        let mut taken = Vec::new();
        let mut given: Vec<RightRow> = Vec::new();
        {
            let table = self.table.read();
            for (peer, rights) in table.iter() {
                for (known, right) in rights {
                    let (name, id) = match right.volume_id {
                        Some(id) => match by_id.get(&id) {
                            Some(name) if name != known => (name.clone(), id),
                            _ => continue,
                        },
                        None => match by_name.get(known) {
                            Some(id) => (known.clone(), *id),
                            None => continue,
                        },
                    };
                    if name != *known {
                        taken.push((*peer, known.clone()));
                    }
                    let row = RightRow {
                        peer: *peer,
                        volume: name,
                        volume_id: Some(id),
                        reverse: right.reverse,
                        fence: right.fence,
                        recorded: right.recorded,
                    };
                    match given.iter_mut().find(|other| other.peer == *peer && other.volume == row.volume) {
                        // One that was given to the new name beforehand, and that of the volume.
                        Some(other) => {
                            other.reverse |= row.reverse;
                            other.fence |= row.fence;
                            if row.recorded == Recorded::Nothing {
                                other.recorded = Recorded::Nothing;
                            }
                        }
                        None => given.push(row),
                    }
                }
            }
        }
        // What takes the name of another's right that is still to move must not be taken with it.
        taken.retain(|(peer, name)| !given.iter().any(|row| row.peer == *peer && row.volume == *name));
        if given.is_empty() {
            return Ok(Vec::new());
        }
        state.exchange_rights(&taken, &given).await?;
        let mut table = self.table.write();
        for (peer, name) in &taken {
            if let Some(rights) = table.get_mut(peer) {
                rights.remove(name);
            }
        }
        for row in &given {
            table.entry(row.peer).or_default().insert(row.volume.clone(), Right::from(row));
        }
        Ok(given.into_iter().map(|row| (row.peer, row.volume)).collect())
    }

    /// Ends the rights on volumes that are no more: in memory first. Answers whose they were, and on what.
    pub(crate) async fn end_with(
        &self,
        state: &State,
        volumes: &[(VolumeName, Uuid)],
    ) -> Result<Vec<(PeerId, String)>, StateError> {
        let _turn = self.turn.lock().await;
        let is_gone = |known: &str, right: &Right| {
            volumes.iter().any(|(name, id)| match right.volume_id {
                Some(given) => given == *id,
                None => name.to_string() == known,
            })
        };
        let mut ended = Vec::new();
        for (peer, rights) in self.table.write().iter_mut() {
            rights.retain(|known, right| {
                let gone = is_gone(known, right);
                if gone {
                    ended.push((*peer, known.clone()));
                }
                !gone
            });
        }
        state.exchange_rights(&ended, &[]).await?;
        Ok(ended)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use farside_link::LinkOptions;
    use farside_peer::{PeerRecord, PeerRegistry};
    use farside_platform::Timestamp;
    use parking_lot::Mutex;
    use std::sync::Arc;

    use super::*;
    use crate::volume_ids::VolumeIds;

    /// Volumes by name; none: their pool is not open.
    #[derive(Debug, Default)]
    pub(crate) struct Volumes(pub(crate) Mutex<Option<HashMap<String, Uuid>>>);

    impl VolumeIds for Volumes {
        fn called(&self, name: &VolumeName) -> Called {
            match &*self.0.lock() {
                None => Called::Unknown,
                Some(all) => all.get(&name.to_string()).map_or(Called::Nothing, |id| Called::Volume(*id)),
            }
        }
    }

    const PEER: PeerId = PeerId([7; 32]);

    struct Bench {
        state: State,
        volumes: Arc<Volumes>,
        rights: Rights,
        _directory: tempfile::TempDir,
    }

    impl Bench {
        async fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let state = State::open(&directory.path().join("farside.db")).await.unwrap();
            let record = PeerRecord {
                id: PEER,
                name: "n".into(),
                address: None,
                link: LinkOptions::default(),
                added_at: Timestamp(0),
            };
            state.pin(record).await.unwrap();
            let volumes = Arc::new(Volumes(Mutex::new(Some(HashMap::new()))));
            let rights = Rights::load(&state, Arc::clone(&volumes) as _).await.unwrap();
            Bench { state, volumes, rights, _directory: directory }
        }

        fn set(&self, all: &[(&str, u128)]) -> Vec<(VolumeName, Uuid)> {
            let all = all.iter().map(|(name, id)| ((*name).to_owned(), Uuid::from_u128(*id)));
            let all: HashMap<String, Uuid> = all.collect();
            let listed = all.iter().map(|(name, id)| (name.parse().unwrap(), *id)).collect();
            *self.volumes.0.lock() = Some(all);
            listed
        }

        async fn allow(&self, volume: &str, reverse: bool) {
            let row = RightRow {
                peer: PEER,
                volume: volume.into(),
                volume_id: None,
                reverse,
                fence: false,
                recorded: Recorded::Nothing,
            };
            self.rights.allow(&self.state, vec![row]).await.unwrap();
        }

        /// What may be read now, and after a restart.
        async fn readable(&self) -> Vec<String> {
            let again = Rights::load(&self.state, Arc::clone(&self.volumes) as _).await.unwrap();
            let names: Vec<String> =
                self.volumes.0.lock().iter().flatten().map(|(name, _)| name.clone()).collect();
            let may = |rights: &Rights| -> Vec<String> {
                let mut all: Vec<_> = names
                    .iter()
                    .filter(|name| rights.right(PEER, &name.parse().unwrap()).is_some())
                    .cloned()
                    .collect();
                all.sort();
                all
            };
            assert_eq!(may(&self.rights), may(&again));
            may(&again)
        }
    }

    #[tokio::test]
    async fn a_right_ends_with_its_volume_and_is_none_on_the_next_of_that_name() {
        let bench = Bench::new().await;
        let before = bench.set(&[("tank/mail", 1)]);
        bench.allow("tank/mail", false).await;
        assert_eq!(bench.readable().await, ["tank/mail"]);
        // Even before anybody has ended it.
        bench.set(&[("tank/mail", 2)]);
        assert_eq!(bench.readable().await, Vec::<String>::new());
        let ended = bench.rights.end_with(&bench.state, &before).await.unwrap();
        assert_eq!(ended, [(PEER, "tank/mail".to_owned())]);
        assert!(bench.rights.of(PEER).is_empty());
        // A person may give it anew.
        bench.allow("tank/mail", false).await;
        assert_eq!(bench.readable().await, ["tank/mail"]);
    }

    #[tokio::test]
    async fn a_right_follows_its_volume() {
        let bench = Bench::new().await;
        bench.set(&[("tank/mail", 1), ("tank/web", 2)]);
        bench.allow("tank/mail", true).await;
        bench.allow("tank/web", false).await;
        let swapped = bench.set(&[("tank/web", 1), ("tank/mail", 2)]);
        assert_eq!(bench.readable().await, Vec::<String>::new());
        bench.rights.follow(&bench.state, &swapped).await.unwrap();
        assert_eq!(bench.readable().await, ["tank/mail", "tank/web"]);
        assert!(bench.rights.right(PEER, &"tank/web".parse().unwrap()).unwrap().reverse);
        assert!(!bench.rights.right(PEER, &"tank/mail".parse().unwrap()).unwrap().reverse);
        // The pool is opened under another name.
        let moved = bench.set(&[("other/web", 1), ("other/mail", 2), ("tank/web", 9)]);
        bench.rights.follow(&bench.state, &moved).await.unwrap();
        assert_eq!(bench.readable().await, ["other/mail", "other/web"]);
        assert!(bench.rights.follow(&bench.state, &moved).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_right_given_while_the_pool_is_closed_stays_one_on_the_volume() {
        let bench = Bench::new().await;
        bench.set(&[("tank/mail", 1)]);
        bench.allow("tank/mail", false).await;
        *bench.volumes.0.lock() = None;
        let row = |volume: &str| RightRow {
            peer: PEER,
            volume: volume.into(),
            volume_id: None,
            reverse: true,
            fence: false,
            recorded: Recorded::Nothing,
        };
        let unseen = bench.rights.allow(&bench.state, vec![row("tank/mail"), row("tank/new")]).await.unwrap();
        let unseen: Vec<_> = unseen.into_iter().map(|u| (u.volume.to_string(), u.is_bound)).collect();
        assert_eq!(unseen, [("tank/mail".to_owned(), true), ("tank/new".to_owned(), false)]);
        // While it was closed, another volume has got the name (a pool of that name was made elsewhere, or it was renamed).
        let now = bench.set(&[("tank/mail", 2), ("tank/letters", 1), ("tank/new", 3)]);
        bench.rights.follow(&bench.state, &now).await.unwrap();
        assert_eq!(bench.readable().await, ["tank/letters", "tank/new"]);
        assert!(bench.rights.right(PEER, &"tank/letters".parse().unwrap()).unwrap().reverse);
    }

    #[tokio::test]
    async fn a_right_on_a_name_binds_to_the_first_volume_that_gets_it() {
        let bench = Bench::new().await;
        bench.set(&[]);
        bench.allow("tank/mail", false).await;
        let made = bench.set(&[("tank/mail", 1)]);
        assert_eq!(bench.readable().await, ["tank/mail"]);
        assert_eq!(bench.rights.follow(&bench.state, &made).await.unwrap().len(), 1);
        bench.set(&[("tank/mail", 2)]);
        assert_eq!(bench.readable().await, Vec::<String>::new());
    }
}
