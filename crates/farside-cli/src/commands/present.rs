//! `--if-absent`: what is made only if it is not there. The daemon compares what is there with what was asked for.

use farside_api::{ErrorBody, ErrorCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use crate::output;

/// Whether something is there. Without `--if-absent` nobody asks.
pub(super) async fn is_there<T: DeserializeOwned>(
    context: &Context,
    if_absent: bool,
    path: &[&str],
    query: &[(&str, &str)],
) -> Result<Option<bool>, ErrorBody> {
    if !if_absent {
        return Ok(None);
    }
    match context.client.get_with::<T>(path, query).await {
        Ok(_) => Ok(Some(true)),
        Err(error) if error.code == ErrorCode::NotFound => Ok(Some(false)),
        Err(error) => Err(error),
    }
}

/// Shows what was made, or that it was there: in JSON as `existed`, where `--if-absent` was given.
pub(super) fn show<T: Serialize>(
    context: &Context,
    there: Option<bool>,
    made: &T,
    what: &str,
    text: impl FnOnce(&T) -> String,
) {
    if !context.json {
        let text = if there == Some(true) { format!("{what} is there, as asked for\n") } else { text(made) };
        return output::print(&text);
    }
    let mut document = serde_json::to_value(made).unwrap_or_default();
    if let (Some(there), Some(fields)) = (there, document.as_object_mut()) {
        fields.insert("existed".into(), there.into());
    }
    output::json(&document);
}
