//! By which moment a resync names what it sets aside of the members of a group: those that are asked for one after the other are of
//! one command, and what it sets aside has one name in all of them. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use farside_platform::Timestamp;
use uuid::Uuid;

/// Members that are asked within so long of the first were asked by one command: it asks all before it waits for one.
const ONE_COMMAND: Duration = Duration::from_secs(60);

/// The moment of such a command.
#[derive(Debug)]
pub(super) struct Aside {
    /// When its first member was asked, on monotonic time.
    began_at: Duration,
    moment: Timestamp,
    /// Whoever has it. Asked once more it is another command's.
    members: BTreeSet<Uuid>,
}

/// The moment for a member that is asked now; `last` is that of the command before.
pub(super) fn moment_for(last: &mut Option<Aside>, id: Uuid, at: Duration, now: Timestamp) -> Timestamp {
    let is_of_it =
        |aside: &Aside| at.saturating_sub(aside.began_at) < ONE_COMMAND && !aside.members.contains(&id);
    let begun = || Aside { began_at: at, moment: now, members: BTreeSet::new() };
    let mut aside = last.take().filter(is_of_it).unwrap_or_else(begun);
    aside.members.insert(id);
    last.insert(aside).moment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_command_asks_for_has_one_moment_and_each_takes_it_once() {
        let mut last = None;
        let mut ask = |id: u128, seconds: u64| {
            let at = Duration::from_secs(1000 + seconds);
            moment_for(&mut last, Uuid::from_u128(id), at, Timestamp(0).plus(Duration::from_secs(seconds)))
        };
        let first = ask(1, 0);
        assert_eq!(ask(2, 3), first);
        assert_eq!(ask(3, 59), first);
        // Broken off and asked once more: the others that are asked now go with it.
        let again = ask(1, 59);
        assert_ne!(again, first);
        assert_eq!(ask(2, 61), again);
        // Long after it hosts may have written on.
        assert_ne!(ask(3, 59 + 60), again);
    }
}
