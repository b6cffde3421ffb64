//! Tokens and certificates that end soon. Pure.

use super::Found;
use crate::alarms::kind::Kind;
use crate::convert::roughly;

/// So long before its end something is told of: long enough to ask somebody for another one.
const NOTICE: f64 = 14.0 * 86_400.0;

/// Something that proves who somebody is, until a day.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct EndingSeen {
    pub(crate) what: Ending,
    /// Seconds until it ends; negative: since it has.
    pub(crate) left_seconds: f64,
}

/// What it is.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ending {
    /// An API token, and for how many seconds it was made.
    Token { name: String, life_seconds: f64 },
    /// What the API shows over HTTPS.
    ApiCertificate,
    /// What hosts are shown that come over the network.
    NbdCertificate,
}

/// Finds what is to be told of one.
pub(super) fn judge(seen: &EndingSeen, found: &mut Found) {
    let EndingSeen { what, left_seconds } = seen;
    if *left_seconds > NOTICE {
        return;
    }
    let when = match *left_seconds {
        left if left > 0.0 => format!("ends in {}", roughly(left)),
        left => format!("has ended {} ago", roughly(-left)),
    };
    match what {
        // Made for days, it is meant to end; and one that has ended long ago is missed by nobody.
        Ending::Token { life_seconds, .. } if *life_seconds < 2.0 * NOTICE || *left_seconds < -NOTICE => {}
        Ending::Token { name, .. } => found.holds(
            Kind::EndsSoon,
            &format!("token {name}"),
            format!("token {name} {when}; from then on whoever uses it is refused"),
            format!(
                "farside token create makes another, under another name; give it to whoever uses {name}, then farside token revoke {name}"
            ),
        ),
        Ending::ApiCertificate => found.holds(
            Kind::EndsSoon,
            "certificate of the API",
            format!("the certificate that the API shows over HTTPS {when}; from then on clients that check it refuse it"),
            "put a new one, with its key, into the files that farside config show names: they are read by themselves".into(),
        ),
        Ending::NbdCertificate => found.holds(
            Kind::EndsSoon,
            "certificate for hosts",
            format!("the certificate that hosts are shown over the network {when}; from then on hosts that check it cannot connect"),
            "put a new one, with its key, into the files that farside config show names, then start farsided again".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Conditions, Limits, Seen};
    use super::*;
    use crate::alarms::book::Verdict;

    const DAY: f64 = 86_400.0;

    fn told(what: Ending, left_days: f64) -> Option<(String, String)> {
        let limits = Limits {
            peer_gone_after: Duration::from_secs(300),
            no_progress_after: Duration::from_secs(900),
            failing_transfers: 3,
        };
        let ending = vec![EndingSeen { what, left_seconds: left_days * DAY }];
        let found = Conditions::default().look(Duration::ZERO, &Seen { ending, ..Seen::default() }, &limits);
        let told = found.into_iter().map(|finding| match finding.verdict {
            Verdict::Holds { message, .. } if finding.kind == Kind::EndsSoon => (finding.subject, message),
            other => panic!("{other:?}"),
        });
        told.collect::<Vec<_>>().pop()
    }

    #[test]
    fn what_ends_is_told_two_weeks_before_and_what_was_made_for_days_is_not() {
        let token = |life_days: f64| Ending::Token { name: "watch".into(), life_seconds: life_days * DAY };
        assert_eq!(told(token(90.0), 14.1), None);
        let (subject, message) = told(token(90.0), 13.0).unwrap();
        assert_eq!(subject, "token watch");
        assert!(message.contains("ends in 13 days"), "{message}");
        assert!(told(token(90.0), -3.0).unwrap().1.contains("has ended 3 days ago"));
        assert_eq!(told(token(90.0), -15.0), None);
        assert_eq!(told(token(7.0), 6.0), None);
        for what in [Ending::ApiCertificate, Ending::NbdCertificate] {
            assert_eq!(told(what.clone(), 15.0), None);
            assert!(told(what.clone(), 1.0).unwrap().1.contains("ends in 24 h"));
            assert!(told(what, -100.0).is_some(), "until there is another");
        }
    }
}
