//! Tokens and certificates that end soon. Pure.

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

/// What is to be told of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Told {
    pub(super) subject: String,
    pub(super) message: String,
    pub(super) hint: String,
}

/// None while it is good for long, or where nobody wants to hear of its end.
pub(super) fn told(seen: &EndingSeen) -> Option<Told> {
    let EndingSeen { what, left_seconds } = seen;
    if *left_seconds > NOTICE {
        return None;
    }
    let when = match *left_seconds {
        left if left > 0.0 => format!("ends in {}", roughly(left)),
        left => format!("has ended {} ago", roughly(-left)),
    };
    Some(match what {
        // Made for days, it is meant to end; and one that has ended long ago is missed by nobody.
        Ending::Token { life_seconds, .. } if *life_seconds < 2.0 * NOTICE || *left_seconds < -NOTICE => {
            return None;
        }
        Ending::Token { name, .. } => Told {
            subject: format!("token {name}"),
            message: format!("token {name} {when}; from then on whoever uses it is refused"),
            hint: format!(
                "farside token create makes another, under another name; give it to whoever uses {name}, then farside token revoke {name}"
            ),
        },
        Ending::ApiCertificate => Told {
            subject: "certificate of the API".into(),
            message: format!(
                "the certificate that the API shows over HTTPS {when}; from then on clients that check it refuse it"
            ),
            hint: "put a new one, with its key, into the files that farside.toml names: they are read by themselves".into(),
        },
        Ending::NbdCertificate => Told {
            subject: "certificate for hosts".into(),
            message: format!(
                "the certificate that hosts are shown over the network {when}; from then on hosts that check it cannot connect"
            ),
            hint: "put a new one, with its key, into the files that farside.toml names, then start farsided again".into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 86_400.0;

    fn of(what: Ending, left_days: f64) -> Option<Told> {
        told(&EndingSeen { what, left_seconds: left_days * DAY })
    }

    #[test]
    fn what_ends_is_told_two_weeks_before_and_what_was_made_for_days_is_not() {
        let token = |life_days: f64| Ending::Token { name: "watch".into(), life_seconds: life_days * DAY };
        assert_eq!(of(token(90.0), 14.1), None);
        let soon = of(token(90.0), 13.0).unwrap();
        assert_eq!(soon.subject, "token watch");
        assert!(soon.message.contains("ends in 13 days"), "{soon:?}");
        assert!(of(token(90.0), -3.0).unwrap().message.contains("has ended 3 days ago"));
        assert_eq!(of(token(90.0), -15.0), None);
        assert_eq!(of(token(7.0), 6.0), None);
        for what in [Ending::ApiCertificate, Ending::NbdCertificate] {
            assert_eq!(of(what.clone(), 15.0), None);
            assert!(of(what.clone(), 1.0).unwrap().message.contains("ends in 24 h"));
            assert!(of(what, -100.0).is_some(), "until there is another");
        }
    }
}
