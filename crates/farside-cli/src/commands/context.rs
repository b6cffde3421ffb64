//! What commands are handed, and what they end with.

use farside_api::ErrorBody;

use crate::client::Client;
use crate::output;

/// What a command needs to know besides its own arguments.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) json: bool,
}

impl Context {
    /// Prints the document, or with people reading, the text.
    pub(super) fn show<T: serde::Serialize>(&self, document: &T, text: impl FnOnce(&T) -> String) {
        if self.json { output::json(document) } else { output::print(&text(document)) }
    }

    /// What the document has no place for, for people who read along where a program reads it.
    pub(super) fn aside(&self, text: &str) {
        if self.json {
            text.lines().for_each(|line| eprintln!("farside: {line}"));
        }
    }
}

/// Why a command ended otherwise than done.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The reason.
    pub error: ErrorBody,
    /// With `--json`: the document that was printed tells it already.
    pub is_printed: bool,
    /// The exit code, where the kind of the error would tell less.
    pub exit_code: Option<u8>,
}

impl From<ErrorBody> for Failed {
    fn from(error: ErrorBody) -> Self {
        Failed { error, is_printed: false, exit_code: None }
    }
}
