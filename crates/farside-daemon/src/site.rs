//! Everything that requests and rooms share.

use farside_api::Site as SiteDocument;

use crate::blocking::Blocking;
use crate::metrics::Metrics;
use crate::state::State;

/// The site while it runs. Shared by every request.
#[derive(Debug)]
pub(crate) struct Site {
    /// How it describes itself.
    pub(crate) document: SiteDocument,
    /// The database.
    pub(crate) state: State,
    /// Where blocking calls run.
    pub(crate) blocking: Blocking,
    /// What `/metrics` shows.
    pub(crate) metrics: Metrics,
}
