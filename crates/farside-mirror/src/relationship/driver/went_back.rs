//! Why an update found that its source does not show any more what the replica showed, as far as that can be told here.

use std::time::Duration;

use farside_engine::ContentRoot;
use farside_transfer::report::{TransferReport, TransferResult};
use uuid::Uuid;

use super::Driver;
use crate::error::{MirrorError, blocking};
use crate::relationship::status::WentBack;

/// Whoever asks for something sooner has not seen what was found: alarms look every two seconds.
pub(super) const SEEN_AFTER: Duration = Duration::from_secs(5);

/// Transfers that are looked at.
const LOOKED_AT: usize = 200;

/// Whether the pool here is an older copy of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PoolHere {
    /// The replica showed what the last transfer had brought.
    AsItWas,
    /// It showed what an earlier one had brought, though a later one had brought something else.
    SetBack,
    /// The history has nothing of it; or several of the last transfers brought this same content, and it is not known after which.
    Unknown,
}

/// What is known of what was set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SetAside {
    here: PoolHere,
    /// It has the content that is shown now.
    is_same: bool,
}

/// By the content roots that transfers brought, the newest first.
fn pool_here(brought: impl Iterator<Item = ContentRoot>, shown: ContentRoot) -> PoolHere {
    let brought: Vec<ContentRoot> = brought.collect();
    match brought.iter().position(|root| *root == shown) {
        // An update of 0 bytes brings a version of its own with the same content: an older copy of the pool shows that as well.
        Some(0) if brought.get(1) == Some(&shown) => PoolHere::Unknown,
        Some(0) => PoolHere::AsItWas,
        Some(_) => PoolHere::SetBack,
        None => PoolHere::Unknown,
    }
}

/// What has become of the source, or of the pool here.
pub(super) fn reason(source: &str, pool: &str, SetAside { here, is_same }: SetAside) -> String {
    let of_source = format!(
        "{source} went back to an earlier state, follows another site since, two copies of its site are alive (a restored backup, a \
         clone), or its base was released there (by farside mirror release, or for want of room)"
    );
    let because = match here {
        PoolHere::AsItWas => of_source,
        PoolHere::SetBack => format!(
            "pool {pool} here was set back to an older copy of itself: an earlier update had brought more than it showed, and {source} \
             does not keep that older point any more"
        ),
        PoolHere::Unknown => {
            format!("{of_source}; or pool {pool} here was set back to an older copy of itself")
        }
    };
    match is_same {
        true => format!("{because} (nothing differs: what was set aside has the content that is shown now)"),
        false => because,
    }
}

impl Driver {
    /// A person asks for something: of a source that went back somebody knows then, unless that was found a moment ago.
    pub(super) fn settle_back_if_seen(&mut self) {
        if self.parts.clock.monotonic().saturating_sub(self.went_back_at) >= SEEN_AFTER {
            self.settle_back();
        }
    }

    /// Nobody needs to be told any more of a source that went back.
    pub(in crate::relationship) fn settle_back(&mut self) {
        (self.went_back, self.is_back_settled) = (None, true);
    }

    pub(super) fn went_back_status(&self) -> WentBack {
        match &self.went_back {
            Some((_, why)) => WentBack::Yes(why.clone()),
            None if self.is_back_settled => WentBack::Settled,
            None => WentBack::Unknown,
        }
    }

    /// Of what an update has set aside as `rescue`, before its report is in the history.
    pub(super) async fn pool_here(&self, rescue: Uuid) -> SetAside {
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let shown = blocking(move || Ok::<_, MirrorError>(engine.content_root(&volume, rescue)?)).await;
        let history = self.parts.store.history(self.relationship.id, LOOKED_AT).await;
        let Ok(shown) = shown else { return SetAside { here: PoolHere::Unknown, is_same: false } };
        let is_same = self.current.as_ref().is_some_and(|current| current.content_root == shown);
        let Ok(history) = history else { return SetAside { here: PoolHere::Unknown, is_same } };
        let has_brought =
            |report: &TransferReport| report.result == TransferResult::Ok || report.snapshots > 0;
        let brought = history.iter().filter(|r| has_brought(r)).filter_map(|r| r.content_root);
        SetAside { here: pool_here(brought, shown), is_same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_shows_what_an_earlier_transfer_brought_was_set_back() {
        let root = |byte: u8| ContentRoot([byte; 16]);
        let of = |shown: u8| pool_here([3, 2, 1, 3].map(root).into_iter(), root(shown));
        assert_eq!([of(3), of(2), of(9)], [PoolHere::AsItWas, PoolHere::SetBack, PoolHere::Unknown]);
        let said = |here| reason("north:tank/v", "vault", SetAside { here, is_same: false });
        assert!(
            !said(PoolHere::AsItWas).contains("vault")
                && said(PoolHere::Unknown).contains("or pool vault here")
        );
        assert!(!said(PoolHere::SetBack).contains("north:tank/v went back"), "{}", said(PoolHere::SetBack));
        let same = reason("north:tank/v", "vault", SetAside { here: PoolHere::Unknown, is_same: true });
        assert!(same.ends_with("vault here was set back to an older copy of itself (nothing differs: what was set aside has the content that is shown now)"));
    }

    #[test]
    fn updates_that_brought_nothing_do_not_tell_after_which_of_them_it_was() {
        let root = |byte: u8| ContentRoot([byte; 16]);
        let of = |brought: &[u8], shown: u8| pool_here(brought.iter().map(|byte| root(*byte)), root(shown));
        assert_eq!(of(&[3, 3, 2], 3), PoolHere::Unknown);
        assert_eq!(of(&[3, 2, 3], 3), PoolHere::AsItWas, "before the last one it showed something else");
        assert_eq!(of(&[4, 3, 3], 3), PoolHere::SetBack);
        assert_eq!(of(&[3], 3), PoolHere::AsItWas);
    }
}
