//! Where a site was started last, and what that says of its pools when it is started elsewhere: a copy of a data directory names the pools
//! of its original. The decision is pure.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A data directory on a machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct Whereabouts {
    /// `/etc/machine-id`; empty if there is none.
    machine: String,
    directory: PathBuf,
}

/// What becomes of a pool that is known.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum PoolAt {
    /// It is where it is said to be.
    Here,
    /// It lay in the data directory, and came with it.
    Moved(String),
    /// It is another site's, of which this is a copy; why it is not opened.
    Original(String),
}

impl Whereabouts {
    /// Of this daemon.
    pub(crate) fn now(directory: &Path) -> Whereabouts {
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let directory = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
        Whereabouts { machine: machine.trim().to_owned(), directory }
    }

    /// Where the pool at `path` is for a site that was at `last` when it met its peers last, if that is known.
    pub(crate) fn pool_at(
        &self,
        path: &str,
        last: Option<&Whereabouts>,
        is_isolated: bool,
        is_there: impl Fn(&Path) -> bool,
    ) -> PoolAt {
        let Some(last) = last.filter(|last| last.directory != self.directory) else { return PoolAt::Here };
        let at = Path::new(path);
        if at.starts_with(&self.directory) {
            return PoolAt::Here;
        }
        if let Ok(within) = at.strip_prefix(&last.directory) {
            let moved = self.directory.join(within);
            if let (true, Some(moved)) = (is_there(&moved), moved.to_str()) {
                return PoolAt::Moved(moved.to_owned());
            }
        }
        // On another machine the same path is that machine's own.
        if !is_isolated || last.machine != self.machine {
            return PoolAt::Here;
        }
        PoolAt::Original(format!(
            "this is a copy of the site in {}, and {path} is that site's own: what is practised there would happen to it. It is not opened",
            last.directory.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(machine: &str, directory: &str) -> Whereabouts {
        Whereabouts { machine: machine.into(), directory: directory.into() }
    }

    #[test]
    fn a_copy_has_the_pools_that_came_with_it_and_no_other() {
        let (original, copy) = (at("m", "/srv/south"), at("m", "/restored/south"));
        let look = |now: &Whereabouts, path: &str, last: Option<&Whereabouts>, is_isolated, came: &str| {
            now.pool_at(path, last, is_isolated, |at| at == Path::new(came))
        };
        for is_isolated in [false, true] {
            assert_eq!(look(&original, "/srv/south/p", Some(&original), is_isolated, ""), PoolAt::Here);
            assert_eq!(look(&original, "/dev/vdb", None, is_isolated, ""), PoolAt::Here);
            assert_eq!(
                look(&copy, "/srv/south/p", Some(&original), is_isolated, "/restored/south/p"),
                PoolAt::Moved("/restored/south/p".into())
            );
            assert_eq!(look(&copy, "/restored/south/p", Some(&original), is_isolated, ""), PoolAt::Here);
            // A machine that was restored as a whole.
            assert_eq!(look(&at("n", "/other"), "/dev/vdb", Some(&original), is_isolated, ""), PoolAt::Here);
        }
        for path in ["/srv/south/p", "/dev/vdb"] {
            let PoolAt::Original(why) = look(&copy, path, Some(&original), true, "") else {
                panic!("{path}")
            };
            assert!(why.contains("/srv/south") && why.contains(path), "{why}");
            // Who moved a site takes its pools along.
            assert_eq!(look(&copy, path, Some(&original), false, ""), PoolAt::Here);
        }
    }
}
