//! Which of a peer's paths carry data. Pure: time comes as an argument.
//!
//! A path is up while it has a lane of the control stream: those are kept on every path in either mode, so that a path that
//! carries no data is known to work before it is needed.

use std::time::Duration;

use crate::limits::FAILBACK_AFTER;
use crate::options::{PathSpec, PathsMode, Reach};

struct Path {
    spec: PathSpec,
    up_since: Option<Duration>,
    /// Since when it has not worked; from the beginning, if it never has.
    down_since: Duration,
}

/// The paths of a session as its dialler sees them.
pub struct Paths {
    mode: PathsMode,
    paths: Vec<Path>,
    /// In failover mode: which path carries data.
    active: usize,
}

impl Paths {
    /// Those of a peer that is dialled at least at `first`.
    pub fn new(reach: &Reach, first: &PathSpec) -> Paths {
        let mut paths = Paths { mode: reach.link.mode, paths: Vec::new(), active: 0 };
        paths.change(reach, first, Duration::ZERO);
        paths
    }

    /// Takes up another description; paths that stay keep their state. Where nothing is to be dialled any more, `first` stays.
    pub fn change(&mut self, reach: &Reach, first: &PathSpec, now: Duration) {
        let active = self.paths.get(self.active).map(|path| path.spec.clone());
        let mut wanted = reach.paths();
        // Its site has another daemon lead, where the paths do not go.
        if wanted.is_empty() || (!wanted.contains(first) && reach.elsewhere().contains(first)) {
            wanted = vec![first.clone()];
        }
        let known = |spec: &PathSpec| self.paths.iter().find(|path| path.spec == *spec);
        self.paths = wanted
            .iter()
            .map(|spec| Path {
                spec: spec.clone(),
                up_since: known(spec).and_then(|path| path.up_since),
                down_since: known(spec).map_or(now, |path| path.down_since),
            })
            .collect();
        self.mode = reach.link.mode;
        self.active = self.paths.iter().position(|path| Some(&path.spec) == active.as_ref()).unwrap_or(0);
    }

    /// All of them, up or not.
    pub fn all(&self) -> impl Iterator<Item = &PathSpec> {
        self.paths.iter().map(|path| &path.spec)
    }

    /// The number of a path, if it is one of these.
    pub fn number(&self, spec: &PathSpec) -> Option<usize> {
        self.paths.iter().position(|path| path.spec == *spec)
    }

    /// The path works, or does not, from `now` on.
    pub fn set_up(&mut self, spec: &PathSpec, is_up: bool, now: Duration) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.spec == *spec) {
            if path.up_since.is_some() && !is_up {
                path.down_since = now;
            }
            path.up_since = if is_up { path.up_since.or(Some(now)) } else { None };
        }
    }

    /// Whether a path works.
    pub fn is_up(&self, spec: &PathSpec) -> bool {
        self.number(spec).is_some_and(|at| self.paths[at].up_since.is_some())
    }

    /// Since when a path has not worked. `None`: it works, or is none of these.
    pub fn down_since(&self, spec: &PathSpec) -> Option<Duration> {
        let path = &self.paths[self.number(spec)?];
        path.up_since.is_none().then_some(path.down_since)
    }

    /// The paths that shall carry data now. Never none: where no path is known to work, each may.
    pub fn for_data(&mut self, now: Duration) -> Vec<PathSpec> {
        let up = |path: &Path| path.up_since.is_some();
        if self.mode == PathsMode::Failover {
            if !self.paths.get(self.active).is_some_and(up)
                && let Some(first) = self.paths.iter().position(up)
            {
                self.active = first;
            }
            let proven = |path: &Path| path.up_since.is_some_and(|since| now >= since + FAILBACK_AFTER);
            if let Some(better) = self.paths[..self.active].iter().position(proven) {
                self.active = better;
            }
            return vec![self.paths[self.active].spec.clone()];
        }
        let is_any_up = self.paths.iter().any(up);
        self.paths.iter().filter(|path| !is_any_up || up(path)).map(|path| path.spec.clone()).collect()
    }

    /// When, after `now`, [`for_data`](Self::for_data) answers otherwise though nothing happens: an earlier path has then worked
    /// for long enough. Never a moment that has passed: where no stream asks for paths, it would be there for ever.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let earlier = self.paths[..self.active].iter().filter_map(|path| path.up_since);
        let due = earlier.map(|since| since + FAILBACK_AFTER).filter(|at| *at > now).min();
        due.filter(|_| self.mode == PathsMode::Failover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::LinkOptions;

    fn path(name: &str) -> PathSpec {
        PathSpec { local: None, remote: format!("{name}:1") }
    }

    fn reach(paths: &[&str], mode: PathsMode) -> Reach {
        let paths = paths.iter().copied().map(path).collect();
        Reach {
            link: LinkOptions { paths, mode, ..LinkOptions::default() },
            address: Some("address:1".into()),
        }
    }

    fn three(mode: PathsMode) -> Paths {
        Paths::new(&reach(&["x", "y", "z"], mode), &path("unused"))
    }

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn without_paths_the_address_is_the_only_one() {
        let mut paths = Paths::new(&reach(&[], PathsMode::Multiplex), &path("first"));
        assert_eq!(paths.for_data(S), vec![path("address")]);
        paths.change(&Reach::default(), &path("first"), S);
        assert_eq!(paths.for_data(S), vec![path("first")]);
    }

    #[test]
    fn multiplex_takes_all_that_work() {
        let mut paths = three(PathsMode::Multiplex);
        assert_eq!(paths.for_data(S).len(), 3, "none is known to work");
        paths.set_up(&path("y"), true, S);
        assert_eq!(paths.for_data(S), vec![path("y")]);
        paths.set_up(&path("x"), true, S);
        assert_eq!(paths.for_data(S), vec![path("x"), path("y")]);
        paths.set_up(&path("y"), false, S);
        assert_eq!(paths.for_data(S), vec![path("x")]);
        assert_eq!(paths.next_change(S), None);
    }

    #[test]
    fn failover_takes_one_and_goes_back_when_the_first_has_worked_for_a_while() {
        let mut paths = three(PathsMode::Failover);
        assert_eq!(paths.for_data(S), vec![path("x")]);
        for name in ["x", "y", "z"] {
            paths.set_up(&path(name), true, S);
        }
        assert_eq!(paths.for_data(S), vec![path("x")]);
        paths.set_up(&path("x"), false, 2 * S);
        assert_eq!(paths.for_data(2 * S), vec![path("y")]);
        paths.set_up(&path("x"), true, 3 * S);
        assert_eq!(paths.for_data(4 * S), vec![path("y")], "not at once");
        let due = paths.next_change(4 * S).unwrap();
        assert_eq!(due, 3 * S + FAILBACK_AFTER);
        assert_eq!(paths.next_change(due), None, "whoever waits for it would wake at once, again and again");
        assert_eq!(paths.for_data(due), vec![path("x")]);
        assert_eq!(paths.next_change(4 * S), None);
        // With every path down it stays where it was.
        for name in ["x", "y", "z"] {
            paths.set_up(&path(name), false, 2 * due);
        }
        assert_eq!(paths.for_data(2 * due), vec![path("x")]);
    }

    #[test]
    fn a_change_keeps_what_is_known() {
        let mut paths = three(PathsMode::Failover);
        paths.set_up(&path("y"), true, S);
        assert_eq!(paths.for_data(S), vec![path("y")]);
        paths.change(&reach(&["w", "y"], PathsMode::Failover), &path("unused"), 5 * S);
        assert_eq!(paths.for_data(S), vec![path("y")]);
        assert!(paths.is_up(&path("y")) && !paths.is_up(&path("w")) && !paths.is_up(&path("x")));
        assert_eq!((paths.number(&path("y")), paths.number(&path("z"))), (Some(1), None));
        assert_eq!(paths.all().count(), 2);
        assert_eq!((paths.down_since(&path("w")), paths.down_since(&path("y"))), (Some(5 * S), None));
        paths.set_up(&path("y"), false, 6 * S);
        paths.set_up(&path("y"), false, 7 * S);
        assert_eq!(paths.down_since(&path("y")), Some(6 * S), "the first time counts");
    }
}
