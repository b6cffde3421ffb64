//! The files of a result: `result.json`, `table.md`, `index.html`. Each is replaced whole; a reader beside a running
//! experiment never sees half of one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::RECORD_VERSION;
use crate::record::result::ExperimentResult;
use crate::report::{page, table};

/// The result for programs; the other files are made of it.
pub const RESULT_FILE: &str = "result.json";

/// The tables for the manual.
pub const TABLE_FILE: &str = "table.md";

/// The page with plots.
pub const PAGE_FILE: &str = "index.html";

/// Why a result's files cannot be read or written. The journal is safe: they can be made again.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}; records of runs are safe", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a result.
    #[error("{path} is no result of an experiment: {source}; `farside-lab run` writes it", path = path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Of another version of the laboratory.
    #[error(
        "{path} is of version {found}, this farside-lab knows {RECORD_VERSION}; use the one that wrote it",
        path = path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// Writes all files of `result` into `directory`, and tells their paths.
///
/// # Errors
/// [`OutputError::Io`].
pub fn write(directory: &Path, result: &ExperimentResult) -> Result<Vec<PathBuf>, OutputError> {
    let json = serde_json::to_string_pretty(result).map_err(io::Error::from);
    let json = at("write", &directory.join(RESULT_FILE), json)? + "\n";
    let texts = [
        (TABLE_FILE, table::markdown(result)),
        (PAGE_FILE, page::page(result, &json)),
        // The last, so that who sees a new result finds its table and page.
        (RESULT_FILE, json),
    ];
    texts.into_iter().map(|(name, text)| replace(&directory.join(name), &text)).collect()
}

/// Reads the result in `directory`.
///
/// # Errors
/// [`OutputError`].
pub fn read(directory: &Path) -> Result<ExperimentResult, OutputError> {
    read_file(&directory.join(RESULT_FILE))
}

/// Reads the result `path`.
///
/// # Errors
/// [`OutputError`].
pub fn read_file(path: &Path) -> Result<ExperimentResult, OutputError> {
    let text = at("read", path, fs::read(path))?;
    let path = path.to_owned();
    let wrong = |source| OutputError::Result { path: path.clone(), source };
    // The version first: of another one nothing else is certain.
    let any: serde_json::Value = serde_json::from_slice(&text).map_err(wrong)?;
    match any.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if found != u64::from(RECORD_VERSION) => Err(OutputError::Version { path, found }),
        _ => serde_json::from_value(any).map_err(wrong),
    }
}

fn replace(path: &Path, text: &str) -> Result<PathBuf, OutputError> {
    let fresh = path.with_extension("new");
    at("write", &fresh, fs::write(&fresh, text))?;
    at("replace", path, fs::rename(&fresh, path))?;
    Ok(path.to_owned())
}

fn at<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, OutputError> {
    result.map_err(|source| OutputError::Io { action, path: path.to_owned(), source })
}
