//! What lies below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::DataError;

/// Regular files and directories below `root`, each list sorted by path, paths relative to it.
pub(super) fn walk(root: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), DataError> {
    let (mut files, mut directories, mut waiting) = (Vec::new(), Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(DataError::io("list", &directory))? {
            let entry = entry.map_err(DataError::io("list", &directory))?;
            let kind = entry.file_type().map_err(DataError::io("look at", &entry.path()))?;
            let path = entry.path();
            let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
            if kind.is_dir() {
                waiting.push(path);
                directories.push(relative);
            } else if kind.is_file() {
                files.push(relative);
            }
        }
    }
    files.sort();
    directories.sort();
    Ok((files, directories))
}
