//! Destructive requests that wait before they run, so that somebody may stop them (`[api] delay`). They live in memory: a daemon that
//! ends forgets them, and nothing of them has been done.

use std::collections::BTreeMap;

use farside_api::{Delayed, ErrorBody, ErrorCode, Uuid};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// How many may wait.
const WAITING_MAX: usize = 1000;

/// And of one somebody: nobody takes all the places.
const WAITING_OF_ONE_MAX: usize = 50;

/// The requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    waiting: Mutex<BTreeMap<Uuid, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    delayed: Delayed,
    stopped: CancellationToken,
}

/// A request that begins to wait, or one that waits already.
#[derive(Debug)]
pub(crate) enum Added {
    /// It is new. The token says when it is stopped.
    New(CancellationToken),
    /// The same was asked for before.
    Before(Delayed),
}

/// What a request asks for. By which moment it names what is set aside says only when it was asked for.
fn wish(of: &Delayed) -> Option<Value> {
    let mut request = of.request.clone()?;
    if let Some(fields) = request.as_object_mut() {
        fields.remove("set_aside_at");
    }
    Some(request)
}

impl Delays {
    /// Has a request wait.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) fn add(&self, delayed: Delayed) -> Result<Added, ErrorBody> {
        let mut waiting = self.waiting.lock();
        let is_same = |one: &&Waiting| {
            let one = &one.delayed;
            (&one.method, &one.path, wish(one)) == (&delayed.method, &delayed.path, wish(&delayed))
        };
        if let Some(before) = waiting.values().find(is_same) {
            return Ok(Added::Before(before.delayed.clone()));
        }
        let of_the_same = waiting.values().filter(|one| one.delayed.who == delayed.who).count();
        if waiting.len() >= WAITING_MAX || of_the_same >= WAITING_OF_ONE_MAX {
            return Err(ErrorBody::new(
                ErrorCode::TooManyRequests,
                "too many destructive requests wait already; nothing was changed",
            )
            .hint("farside delayed list shows them; an administrator stops what is not wanted"));
        }
        let stopped = CancellationToken::new();
        waiting.insert(delayed.id, Waiting { delayed, stopped: stopped.clone() });
        Ok(Added::New(stopped))
    }

    /// Those that wait, the next one first.
    pub(crate) fn list(&self) -> Vec<Delayed> {
        let mut all: Vec<Delayed> = self.waiting.lock().values().map(|one| one.delayed.clone()).collect();
        all.sort_by_key(|one| (one.runs_at, one.id));
        all
    }

    /// Stops one. None: it does not wait; it has begun to run, or there never was one.
    pub(crate) fn stop(&self, id: Uuid) -> Option<Delayed> {
        let one = self.waiting.lock().remove(&id)?;
        one.stopped.cancel();
        Some(one.delayed)
    }

    /// Its time has come. False: somebody has stopped it.
    pub(crate) fn begins(&self, id: Uuid) -> bool {
        self.waiting.lock().remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use farside_api::Timestamp;
    use serde_json::json;

    use super::*;

    fn delayed(path: &str, seconds: i64) -> Delayed {
        Delayed {
            id: Uuid::new_v4(),
            who: "token t".into(),
            from: "127.0.0.1".into(),
            method: "DELETE".into(),
            path: path.into(),
            request: None,
            thing: "p/v".into(),
            asked_at: Timestamp::from_second(0).unwrap(),
            runs_at: Timestamp::from_second(seconds).unwrap(),
        }
    }

    #[test]
    fn the_same_asked_again_is_the_same_whatever_moment_it_names() {
        let delays = Delays::default();
        let asked = |request: Value| Delayed { request: Some(request), ..delayed("/a", 50) };
        let (one, again) = (
            json!({"set_aside_at": "1970-01-01T00:00:01Z"}),
            json!({"set_aside_at": "1970-01-01T00:00:02Z"}),
        );
        assert!(matches!(delays.add(asked(one)), Ok(Added::New(_))));
        assert!(matches!(delays.add(asked(again)), Ok(Added::Before(_))));
        assert!(matches!(delays.add(asked(json!({"whole": true}))), Ok(Added::New(_))));
    }

    #[test]
    fn one_that_is_stopped_never_begins_and_one_that_began_cannot_be_stopped() {
        let delays = Delays::default();
        let (first, second) = (delayed("/a", 20), delayed("/b", 10));
        let Ok(Added::New(stopped)) = delays.add(first.clone()) else { panic!() };
        assert!(matches!(delays.add(second.clone()), Ok(Added::New(_))));
        assert_eq!(delays.list(), [second.clone(), first.clone()], "the next one first");
        assert_eq!(delays.stop(first.id), Some(first.clone()));
        assert!(stopped.is_cancelled() && !delays.begins(first.id) && delays.stop(first.id).is_none());
        assert!(delays.begins(second.id) && delays.stop(second.id).is_none());
        assert_eq!(delays.list(), []);
    }

    #[test]
    fn what_is_asked_for_twice_waits_once_and_not_everything_may_wait() {
        let delays = Delays::default();
        let one = delayed("/a", 20);
        assert!(matches!(delays.add(one.clone()), Ok(Added::New(_))));
        let Ok(Added::Before(before)) = delays.add(delayed("/a", 50)) else { panic!() };
        assert_eq!(before, one);
        for n in 1..WAITING_OF_ONE_MAX {
            assert!(matches!(delays.add(delayed(&format!("/{n}"), 20)), Ok(Added::New(_))));
        }
        let full = delays.add(delayed("/more", 20)).unwrap_err();
        assert_eq!(full.code, ErrorCode::TooManyRequests);
        let other = |n: usize| Delayed { who: format!("token {n}"), ..delayed(&format!("/of/{n}"), 20) };
        for n in WAITING_OF_ONE_MAX..WAITING_MAX {
            assert!(matches!(delays.add(other(n)), Ok(Added::New(_))), "others go on");
        }
        assert!(delays.add(other(WAITING_MAX)).is_err());
    }
}
