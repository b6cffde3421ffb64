//! Rows as structs; ids and times as the tables hold them, and back.

use farside_peer::PeerId;
use farside_platform::Timestamp;
use uuid::Uuid;

use super::error::StateError;

/// Reads a struct from a row whose columns have the names of its fields. sqlx derives the same, but its macros compile both
/// databases and the runtime a second time: a minute of every cold build.
macro_rules! from_row {
    ($row:ident { $($column:ident),* $(,)? }) => {
        impl crate::state::statement::FromRow for $row {
            fn from_row(row: &crate::state::statement::Row) -> Result<$row, sqlx::Error> {
                Ok($row { $($column: row.named(stringify!($column))?),* })
            }
        }
    };
}
pub(super) use from_row;

/// A time as a row holds it. Past the year 2262 it stands still.
pub(super) fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// And back.
pub(super) fn time(nanoseconds: i64) -> Timestamp {
    Timestamp(u64::try_from(nanoseconds).unwrap_or(0))
}

pub(super) fn uuid(bytes: &[u8]) -> Result<Uuid, StateError> {
    Uuid::from_slice(bytes).map_err(|_| StateError::Row("an id has not 16 bytes"))
}

pub(super) fn peer_id(bytes: &[u8]) -> Result<PeerId, StateError> {
    bytes.try_into().map(PeerId).map_err(|_| StateError::Row("a peer's id has not 32 bytes"))
}
