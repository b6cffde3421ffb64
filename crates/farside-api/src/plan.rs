//! What a destructive request would do.

use serde::{Deserialize, Serialize};

/// The answer to `--plan`: nothing has been changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What was asked, in words: `delete volume p/v`.
    pub action: String,
    /// What would happen, a sentence each.
    pub would: Vec<String>,
    /// What would be lost for good, a sentence each; empty if nothing.
    pub lost: Vec<String>,
    /// Why it would be refused as things stand, if so.
    pub refused: Option<String>,
}
