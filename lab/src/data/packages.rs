//! Debian packages that sets are made of. The sandbox reaches no network: they were downloaded into `CACHE/packages`
//! before, by `scripts/install-lab-tools`.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::DataError;
use super::program;

/// The table of what there must be, which the script reads, too.
const TABLE: &str = include_str!("../../data-packages");

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

/// A package that the table names for a set.
pub(super) struct Package {
    /// What the recipe does with it.
    pub(super) role: String,
    pub(super) name: String,
    /// The version that is installed at first.
    pub(super) first: PathBuf,
    /// The newer version that it is upgraded to, where it is.
    pub(super) upgrade: Option<PathBuf>,
}

/// All packages that the table names for a set, in its order.
pub(super) fn all_of(cache: &Path, set: &str) -> Result<Vec<Package>, DataError> {
    let files = list(cache)?;
    let mut packages = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(of_set), Some(role), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if of_set != set {
            continue;
        }
        let upgraded = words.next() == Some("upgraded");
        let mut versions: Vec<(String, PathBuf)> = Vec::new();
        for file in &files {
            let version = file.file_name().and_then(|file| file.to_str()).and_then(|file| {
                let (of_name, rest) = file.split_once('_')?;
                (of_name == name).then(|| rest.split('_').next().unwrap_or_default().replace("%3a", ":"))
            });
            if let Some(version) = version {
                let mut place = versions.len();
                while place > 0 && compare(&versions[place - 1].0, &version)? == Ordering::Greater {
                    place -= 1;
                }
                versions.insert(place, (version, file.clone()));
            }
        }
        let mut versions = versions.into_iter().map(|(_, file)| file);
        let oldest = versions.next().ok_or_else(|| DataError::Missing {
            what: format!("the Debian package `{name}` in {}", cache.join(PACKAGES).display()),
        })?;
        let newest = versions.next_back();
        let (first, upgrade) = match newest {
            Some(newest) if upgraded => (oldest, Some(newest)),
            Some(newest) => (newest, None),
            None => (oldest, None),
        };
        packages.push(Package { role: role.to_owned(), name: name.to_owned(), first, upgrade });
    }
    Ok(packages)
}

/// Debian's own rule says which version is older.
fn compare(one: &str, other: &str) -> Result<Ordering, DataError> {
    let mut command = Command::new("dpkg");
    let mut child = program::spawn("dpkg", command.args(["--compare-versions", one, "gt", other]))?;
    let status = child.wait().map_err(DataError::io("wait for", "dpkg".as_ref()))?;
    Ok(if status.success() { Ordering::Greater } else { Ordering::Less })
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
