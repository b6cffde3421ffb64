//! Metadata contexts that a client has chosen.

use std::sync::Arc;

use crate::error::NbdError;
use crate::export::{Export, Extent, Marked, MetadataContext};
use crate::protocol::option::BASE_ALLOCATION;

/// A context, and the number by which its runs are marked in replies.
pub(crate) struct Context {
    pub(crate) id: u32,
    kind: Kind,
}

enum Kind {
    /// Holes and zeros: every export has it.
    BaseAllocation,
    /// One of the export's own.
    Own(Arc<dyn MetadataContext>),
}

/// The number of the context that was chosen at this place; 0 is for lists.
pub(crate) fn id_at(index: usize) -> u32 {
    u32::try_from(index + 1).expect("few contexts can be chosen")
}

impl Context {
    /// Opens those that were chosen, in their order.
    pub(crate) fn open_all(export: &dyn Export, names: &[String]) -> Result<Vec<Context>, NbdError> {
        let open = |(index, name): (usize, &String)| {
            let kind = match name.as_str() {
                BASE_ALLOCATION => Kind::BaseAllocation,
                own => Kind::Own(export.context(own)?),
            };
            Ok(Context { id: id_at(index), kind })
        };
        names.iter().enumerate().map(open).collect()
    }

    pub(crate) fn status(
        &self,
        export: &dyn Export,
        offset: u64,
        length: u64,
        runs_max: usize,
    ) -> Result<Vec<Marked>, NbdError> {
        match &self.kind {
            Kind::BaseAllocation => base_allocation(export, offset, length, runs_max),
            Kind::Own(context) => context.status(offset, length, runs_max),
        }
    }
}

/// The one for what takes no room.
const STATE_HOLE: u32 = 1 << 0;
/// The flag of `base:allocation` for what reads as zeros.
pub(crate) const STATE_ZERO: u32 = 1 << 1;

/// What the context that every export has says.
pub(crate) fn base_allocation(
    export: &dyn Export,
    offset: u64,
    length: u64,
    extents_max: usize,
) -> Result<Vec<Marked>, NbdError> {
    let flags = |extent: &Extent| {
        (if extent.hole { STATE_HOLE } else { 0 }) | (if extent.zero { STATE_ZERO } else { 0 })
    };
    let told = export.block_status(offset, length, extents_max)?;
    Ok(told.iter().map(|extent| Marked { length: extent.length, flags: flags(extent) }).collect())
}
