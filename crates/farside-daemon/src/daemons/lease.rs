//! Who may lead: times, and the decision. Pure.
//!
//! The lease is on the database's clock; a daemon that leads goes by its own, from before it asked. So it stops before the lease ends
//! there, whatever the network did to the question. Only a daemon that the leading one has seen may follow it: one that is alone need not
//! stop when its database is away, as nobody can take its work.

use std::time::Duration;

/// How long a lease holds, by the database's clock, from each renewal.
pub(crate) const HOLDS: Duration = Duration::from_secs(8);
/// How often it is renewed. Two renewals may fail before work stops.
pub(crate) const RENEWED_EVERY: Duration = Duration::from_millis(1500);
/// Work stops so long after the last renewal was asked for, if there are others: there is time to stop in order.
pub(crate) const STOPS_AFTER: Duration = Duration::from_millis(5500);
/// What has not stopped by then ends with its process.
pub(crate) const ENDS_AFTER: Duration = Duration::from_millis(7500);
/// How often a daemon that waits looks. With what a lease holds, and a start, a dead daemon's work goes on in less than 15 s.
pub(crate) const LOOKED_EVERY: Duration = Duration::from_millis(700);
/// A lease that was not renewed for so long, though it holds, is of a process that is no more.
pub(crate) const SILENT_FOR: Duration = Duration::from_secs(3);

/// What the database says when somebody would lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// The lease has not ended.
    pub(crate) holds: bool,
    /// It is of this daemon: of an earlier life, or of another process with its data directory.
    pub(crate) is_own: bool,
    /// It was watched, and not renewed for [`SILENT_FOR`].
    pub(crate) is_silent: bool,
    /// What is known of this daemon there; none: nothing.
    pub(crate) row: Option<Membership>,
    /// This daemon was one of the site's: it has a name there.
    pub(crate) was_member: bool,
    /// And the site had others: that the database knows none of them means that it is not the site's any more.
    pub(crate) was_one_of_several: bool,
    /// Other daemons of the site.
    pub(crate) others: i64,
}

/// What the site knows of a daemon of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Membership {
    pub(crate) is_known: bool,
    pub(crate) is_draining: bool,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// It leads from now on.
    Lead,
    /// The same, as the one daemon that the site has: one that was alone before is no more.
    LeadAlone,
    /// Another leads, or will.
    Wait,
    /// It is not of this site.
    Stranger,
}

pub(crate) fn decide(seen: Seen) -> Decision {
    if seen.holds && !(seen.is_own && seen.is_silent) {
        return match seen.row {
            None if seen.others > 1 || seen.was_member => Decision::Stranger,
            _ => Decision::Wait,
        };
    }
    match seen.row {
        Some(Membership { is_draining: true, .. }) if seen.others > 0 => Decision::Wait,
        Some(Membership { is_known: true, .. }) => Decision::Lead,
        Some(_) if seen.others == 0 => Decision::Lead,
        // The next leader sees it first.
        Some(_) => Decision::Wait,
        None if seen.was_one_of_several => Decision::Stranger,
        None if seen.others == 0 || (seen.others == 1 && !seen.was_member) => Decision::LeadAlone,
        None => Decision::Stranger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: Option<Membership> = Some(Membership { is_known: true, is_draining: false });

    fn seen(holds: bool, row: Option<Membership>, others: i64) -> Seen {
        let was_member = row.is_some();
        Seen { holds, is_own: false, is_silent: false, row, was_member, was_one_of_several: false, others }
    }

    #[test]
    fn a_lease_that_holds_is_another_processs() {
        for others in 0..3 {
            assert_eq!(decide(seen(true, MEMBER, others)), Decision::Wait);
            // A copy of the data directory is no earlier life of it.
            assert_eq!(decide(Seen { is_own: true, ..seen(true, MEMBER, others) }), Decision::Wait);
            // Of another daemon it has to end, however silent that is.
            assert_eq!(decide(Seen { is_silent: true, ..seen(true, MEMBER, others) }), Decision::Wait);
            let after_a_crash = Seen { is_own: true, is_silent: true, ..seen(true, MEMBER, others) };
            assert_eq!(decide(after_a_crash), Decision::Lead);
        }
        assert_eq!(decide(seen(true, None, 1)), Decision::Wait, "it may be the same site's, rebuilt");
        assert_eq!(decide(seen(true, None, 2)), Decision::Stranger);
    }

    #[test]
    fn who_follows_was_seen_by_who_leads_and_is_not_drained() {
        assert_eq!(decide(seen(false, MEMBER, 2)), Decision::Lead);
        let unknown = Some(Membership { is_known: false, is_draining: false });
        assert_eq!(decide(seen(false, unknown, 2)), Decision::Wait);
        let draining = Some(Membership { is_known: true, is_draining: true });
        assert_eq!(decide(seen(false, draining, 2)), Decision::Wait);
        assert_eq!(decide(seen(false, draining, 0)), Decision::Lead, "there is nobody else");
    }

    #[test]
    fn a_site_of_one_daemon_may_be_rebuilt_and_a_removed_daemon_is_none() {
        assert_eq!(decide(seen(false, None, 0)), Decision::LeadAlone);
        assert_eq!(decide(seen(false, None, 1)), Decision::LeadAlone);
        assert_eq!(decide(Seen { was_member: true, ..seen(false, None, 1) }), Decision::Stranger);
        assert_eq!(decide(seen(false, None, 2)), Decision::Stranger);
        // A database that was made anew under the daemons of a site is nobody's before a person has decided.
        let one_of_several = Seen { was_member: true, was_one_of_several: true, ..seen(false, None, 0) };
        assert_eq!(decide(one_of_several), Decision::Stranger);
    }

    #[test]
    fn work_stops_before_the_lease_ends() {
        assert!(STOPS_AFTER < ENDS_AFTER && ENDS_AFTER < HOLDS);
        assert!(2 * RENEWED_EVERY < STOPS_AFTER && SILENT_FOR > RENEWED_EVERY);
    }
}
