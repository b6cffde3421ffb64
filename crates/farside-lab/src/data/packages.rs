//! Debian packages that sets are made of. The sandbox reaches no network: they were downloaded into `CACHE/packages`
//! before, by `scripts/install-lab-tools`.

use std::fs;
use std::path::{Path, PathBuf};

use super::DataError;

/// Where in the cache packages lie.
pub(super) const PACKAGES: &str = "packages";

/// Two packages whose names are `begin`, a number, `end`: the one with the greatest number, and before it the one with the
/// greatest number of an earlier upstream version (a mere rebuild changes next to nothing).
pub(super) fn newest_two(cache: &Path, (begin, end): (&str, &str)) -> Result<(PathBuf, PathBuf), DataError> {
    let mut found: Vec<(u64, String, PathBuf)> = Vec::new();
    for path in list(cache)? {
        let parts = path.file_name().and_then(|name| name.to_str()).and_then(|name| {
            let (name, rest) = name.split_once('_')?;
            let number = name.strip_prefix(begin)?.strip_suffix(end)?.parse().ok()?;
            Some((number, rest.split(['-', '_']).next()?.to_owned()))
        });
        if let Some((number, upstream)) = parts {
            found.push((number, upstream, path));
        }
    }
    found.sort();
    let newer = found.pop();
    let older = newer
        .as_ref()
        .and_then(|(_, upstream, _)| found.into_iter().rev().find(|(_, older, _)| older != upstream));
    match (older, newer) {
        (Some((_, _, older)), Some((_, _, newer))) => Ok((older, newer)),
        _ => Err(DataError::Missing {
            what: format!(
                "a pair of the Debian packages `{begin}N{end}`, of two upstream versions, in {}",
                cache.join(PACKAGES).display()
            ),
        }),
    }
}

/// All packages in the cache.
pub(super) fn list(cache: &Path) -> Result<Vec<PathBuf>, DataError> {
    let dir = cache.join(PACKAGES);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(DataError::io("list", &dir)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(DataError::io("list", &dir))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
