//! A mirror as others see it.

use std::time::Duration;

use farside_engine::ContentRoot;
use farside_platform::Timestamp;
use farside_transfer::report::Progress;
use uuid::Uuid;

use crate::objective::Forecast;
use crate::schedule::Schedule;
use crate::state::State;
use crate::store::Relationship;

/// The version that readers of a replica see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The snapshot's name here.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// When the data was so at its origin.
    pub created_at: Timestamp,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Its content root, as computed here before it was published.
    pub content_root: ContentRoot,
}

/// What the source knows of a mirror that was broken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceHeard {
    /// Nothing, as far as is known here.
    NotYet,
    /// That it was overtaken; its hosts may write.
    Noted,
    /// That it was overtaken; its hosts may not write.
    Fenced,
    /// Its volume follows this one.
    Follows,
    /// It keeps nothing for this mirror: it was released there.
    Released,
}

/// The point that hosts went on from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WentOnFrom {
    /// When it was so.
    pub at: Timestamp,
    /// Since when it had been so, as far as snapshots tell; of a volume in no group the same.
    pub since: Timestamp,
    /// It is what hosts here had written, and that had been set aside: they go on with what they had.
    pub is_own: bool,
}

/// What keeps a mirror from being updated until a person does something about it, and in whose words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The source has refused the last attempt, because this site has no right to it (any more).
    NoRight(String),
    /// The source is itself a replica of this one, so neither is an original.
    NoOriginal(String),
    /// What the last attempt was to bring does not fit into the pool here.
    NoRoom(String),
}

/// How it begins that a resync which a person asked for has not begun.
pub const NOT_RESYNCED: &str = "the resync did not begin";
/// What is said, in whatever words besides, of a resync that has crossed with one in the other direction.
pub const CROSSED_WITH: &str = "was asked at the same time to follow";

/// Whether an update that nobody asked to go back found its source to be in an earlier state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum WentBack {
    /// Not as far as is known: what was found before this process began is forgotten.
    #[default]
    Unknown,
    /// It did, and what the replica showed until then is kept; in words.
    Yes(String),
    /// What was found is over: a person has asked for something since, or what was kept is gone.
    Settled,
}

/// A mirror as `mirror status` shows it.
#[derive(Clone, Debug)]
pub struct MirrorStatus {
    /// Its configuration.
    pub relationship: Relationship,
    /// Its state.
    pub state: State,
    /// Why it is not doing what it should, or what stands in its way.
    pub why: Option<String>,
    /// How that begins if it is that there was no session: over once there is one.
    pub session_why: Option<String>,
    /// The transfer that waits or runs is an update before a change of roles that a person has asked for.
    pub is_for_swap: bool,
    /// A change of roles is being carried out by this process.
    pub is_swapping: bool,
    /// What does not end by itself.
    pub stopped: Option<Stopped>,
    /// Whether its source went back.
    pub went_back: WentBack,
    /// The version it shows; also the base of the next update.
    pub current: Option<Published>,
    /// A resync that is pending has brought nothing: instead of that version the volume shows what hosts here made of it, read-only.
    pub shows_own_state: bool,
    /// The point that hosts here went on from; none if it is not broken off, or that is not known.
    pub went_on_from: Option<WentOnFrom>,
    /// Name of the side branch that was set aside last of what hosts wrote here; none if there is none.
    pub newest_rescue: Option<String>,
    /// Name of the snapshot that has what the volume showed before the resync by which it follows; none if there is none any more.
    pub left_as: Option<String>,
    /// What will come of its objective; none if it has none, or nothing is known yet.
    pub forecast: Option<Forecast>,
    /// Its place among those that wait for their turn, the next is 1; none if it does not.
    pub queue_position: Option<usize>,
    /// The transfer under way or waiting.
    pub progress: Option<Progress>,
    /// What the source knows; none if this is not broken off.
    pub source_heard: Option<SourceHeard>,
    /// When it said so; none if it has said nothing, or what is known is known here.
    pub source_heard_at: Option<Timestamp>,
}

impl MirrorStatus {
    /// Age of the replica's data, seconds; none while there is none, or once hosts write here: it follows nothing. Grows until
    /// an update proves otherwise, even if nothing changes at the source. Where hosts went on elsewhere it counts from then at
    /// the latest: what has come since is not theirs.
    ///
    /// `source_ahead_seconds`: by how much the source's clock, which named that moment, is ahead of the one that says `now`;
    /// negative if it is behind.
    pub fn lag_seconds(&self, now: Timestamp, source_ahead_seconds: f64) -> Option<f64> {
        if self.state == State::BrokenOff {
            return None;
        }
        let of_data = self.age_seconds(now, source_ahead_seconds)?;
        let overtaken = self.relationship.upstream.overtaken.as_ref();
        Some(overtaken.map_or(of_data, |overtaken| of_data.max(now.seconds_since(overtaken.at))))
    }

    /// How old the data may get; none if nobody said.
    pub fn objective(&self) -> Option<Duration> {
        match self.relationship.schedule {
            Schedule::Objective(objective) => Some(objective),
            _ => None,
        }
    }

    /// How old the data is that it shows, seconds, whoever may write here; none while there is none. See
    /// [`lag_seconds`](Self::lag_seconds).
    pub fn age_seconds(&self, now: Timestamp, source_ahead_seconds: f64) -> Option<f64> {
        let taken = self.current.as_ref()?.created_at;
        // Not `seconds_since`: a moment that is still to come by this clock may be past by the source's.
        let by_this_clock = (i128::from(now.0) - i128::from(taken.0)) as f64 / 1e9;
        Some((by_this_clock + source_ahead_seconds).max(0.0))
    }
}
