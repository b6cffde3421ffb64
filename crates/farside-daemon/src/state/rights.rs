//! What peers may do with volumes here. They go with the peer.

use farside_peer::PeerId;
use uuid::Uuid;

use super::rows::{peer_id, uuid};
use super::statement::{query, query_as};
use super::{State, StateError};

/// What of a right was recorded for the way back, when a mirror was made or its roles changed, and no person gave: it ends with
/// the mirror.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Recorded {
    /// A person gave all of it.
    #[default]
    Nothing,
    /// The way back: a person gave the right to mirror.
    Reverse,
    /// All of it.
    Right,
}

impl Recorded {
    fn number(self) -> i64 {
        match self {
            Recorded::Nothing => 0,
            Recorded::Reverse => 1,
            Recorded::Right => 2,
        }
    }

    fn of(number: i64) -> Result<Recorded, StateError> {
        [Recorded::Nothing, Recorded::Reverse, Recorded::Right]
            .into_iter()
            .find(|recorded| recorded.number() == number)
            .ok_or(StateError::Row("a right was recorded in an unknown way"))
    }
}

/// One right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RightRow {
    /// Whose.
    pub(crate) peer: PeerId,
    /// `POOL/VOL`: what the volume is called.
    pub(crate) volume: String,
    /// The volume itself; none while there is none of that name.
    pub(crate) volume_id: Option<Uuid>,
    /// Also the way back.
    pub(crate) reverse: bool,
    /// Hosts here may not write to the volume while the peer has overtaken it.
    pub(crate) fence: bool,
    /// What of it ends with the mirror.
    pub(crate) recorded: Recorded,
}

impl State {
    /// All rights, by peer and volume.
    pub(crate) async fn rights(&self) -> Result<Vec<RightRow>, StateError> {
        type Row = (Vec<u8>, String, Option<Vec<u8>>, bool, bool, i64);
        let rows: Vec<Row> = query_as(
            "SELECT peer, volume, volume_id, reverse, fence, recorded FROM rights ORDER BY peer, volume",
        )
        .fetch_all(&self.readers)
        .await?;
        rows.into_iter()
            .map(|(peer, volume, volume_id, reverse, fence, recorded)| {
                let recorded = Recorded::of(recorded)?;
                let volume_id = volume_id.as_deref().map(uuid).transpose()?;
                Ok(RightRow { peer: peer_id(&peer)?, volume, volume_id, reverse, fence, recorded })
            })
            .collect()
    }

    /// Gives rights, all or none. A right that is there is replaced.
    pub(crate) async fn allow(&self, rights: &[RightRow]) -> Result<(), StateError> {
        self.exchange_rights(&[], rights).await
    }

    /// Takes rights away and gives others, in one moment.
    pub(crate) async fn exchange_rights(
        &self,
        taken: &[(PeerId, String)],
        rights: &[RightRow],
    ) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        for (peer, volume) in taken {
            query("DELETE FROM rights WHERE peer = $1 AND volume = $2")
                .bind(peer.0.as_slice())
                .bind(volume)
                .execute(&mut transaction)
                .await?;
        }
        for right in rights {
            query(
                "INSERT INTO rights (peer, volume, volume_id, reverse, fence, recorded) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (peer, volume) DO UPDATE SET volume_id = excluded.volume_id, \
                 reverse = excluded.reverse, fence = excluded.fence, recorded = excluded.recorded",
            )
            .bind(right.peer.0.as_slice())
            .bind(&right.volume)
            .bind(right.volume_id.map(|id| id.as_bytes().to_vec()))
            .bind(right.reverse)
            .bind(right.fence)
            .bind(right.recorded.number())
            .execute(&mut transaction)
            .await?;
        }
        transaction.commit().await
    }

    /// Takes rights away, all or none. One that is not there is no matter.
    pub(crate) async fn deny(&self, peer: PeerId, volumes: &[String]) -> Result<(), StateError> {
        let taken: Vec<_> = volumes.iter().map(|volume| (peer, volume.clone())).collect();
        self.exchange_rights(&taken, &[]).await
    }
}

#[cfg(test)]
mod tests {
    use farside_link::LinkOptions;
    use farside_peer::{PeerRecord, PeerRegistry};
    use farside_platform::Timestamp;

    use super::*;
    use crate::state::test_databases::databases;

    #[tokio::test]
    async fn rights_go_with_their_peer() {
        for database in databases().await {
            let state = database.open().await;
            let peer = PeerId([7; 32]);
            let right = |volume: &str, reverse: bool| RightRow {
                peer,
                volume: volume.into(),
                volume_id: reverse.then(|| Uuid::from_u128(5)),
                reverse,
                fence: reverse,
                recorded: if reverse { Recorded::Right } else { Recorded::Nothing },
            };
            assert!(state.allow(&[right("p/v", false)]).await.is_err(), "nobody has this key");
            let record = PeerRecord {
                id: peer,
                name: "n".into(),
                address: None,
                link: LinkOptions::default(),
                added_at: Timestamp(0),
            };
            state.pin(record).await.unwrap();
            state.allow(&[right("p/v", false), right("p/w", false)]).await.unwrap();
            state.allow(&[right("p/v", true)]).await.unwrap();
            state.deny(peer, &["p/w".into(), "p/x".into()]).await.unwrap();
            assert_eq!(state.rights().await.unwrap(), vec![right("p/v", true)]);
            state.unpin(peer).await.unwrap();
            assert_eq!(state.rights().await.unwrap(), vec![]);
        }
    }
}
