//! Policies: which connection gets what.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use farside_accel::policy::{Action, Demotion, Ends, Policies, Policy, Ports, Rule, default_policies};
use proptest::prelude::*;

fn to(server: &str) -> Ends {
    Ends { client: "10.1.0.7:51000".parse().unwrap(), server: server.parse().unwrap() }
}

fn action() -> impl Strategy<Value = Action> {
    proptest::sample::select(&Action::ALL[..])
}

#[test]
fn the_shipped_policies_know_the_applications_of_the_manual() {
    let policies = Policies::default();
    let of = |server: &str| policies.of(&to(server)).0.to_owned() + " " + policies.of(&to(server)).1.name();
    for (port, expected) in [
        (10565, "snapmirror full"),
        (10569, "snapmirror full"),
        (873, "rsync full"),
        (3260, "iscsi full"),
        (2049, "nfs full"),
        (445, "smb full"),
        (80, "http full"),
        (3128, "http full"),
        (5432, "postgresql full"),
        (3306, "mysql full"),
        (9102, "backup full"),
        (2500, "backup full"),
        (443, "tls transport"),
        (22, "ssh transport"),
        (3389, "remote-desktop transport"),
        (53, "dns pass-through"),
        (7440, "farside pass-through"),
        (7442, "farside pass-through"),
        (10570, "other full"),
        (40_000, "other full"),
    ] {
        assert_eq!(of(&format!("10.2.0.9:{port}")), expected, "port {port}");
        assert_eq!(of(&format!("[2001:db8::9]:{port}")), expected, "port {port}");
    }
}

/// A port that an earlier policy takes as a whole makes a later one unreachable there.
#[test]
fn every_shipped_policy_is_reached() {
    let policies = Policies::default();
    for policy in default_policies() {
        for ports in policy.rules.iter().flat_map(|rule| &rule.ports) {
            let reached = (ports.first..=ports.last)
                .any(|port| policies.of(&to(&format!("10.2.0.9:{port}"))).0 == policy.application);
            assert!(reached, "{} never gets a connection to {ports}", policy.application);
        }
    }
}

#[test]
fn an_administrators_own_come_first_and_the_first_that_fits_counts() {
    let own = |application: &str, rule: Rule, action| Policy {
        application: application.into(),
        rules: vec![rule],
        action,
    };
    let ports = |text: &str| vec![text.parse::<Ports>().unwrap()];
    let nets = |text: &str| vec![text.parse().unwrap()];
    let policies = Policies::new(
        vec![
            own(
                "lab",
                Rule { clients: nets("10.1.0.0/24"), ports: ports("80"), ..Rule::default() },
                Action::Lz,
            ),
            own("branch", Rule { addresses: nets("10.1.0.0/16"), ..Rule::default() }, Action::Dre),
            own("late", Rule { servers: nets("10.2.0.0/16"), ..Rule::default() }, Action::PassThrough),
        ],
        Action::Transport,
    );
    let of = |client: &str, server: &str| {
        let ends = Ends { client: client.parse().unwrap(), server: server.parse().unwrap() };
        let (application, action) = policies.of(&ends);
        format!("{application} {action}")
    };
    assert_eq!(of("10.1.0.7:1", "10.2.0.1:80"), "lab lz");
    assert_eq!(of("10.1.9.7:1", "10.2.0.1:80"), "branch dre");
    assert_eq!(of("10.2.9.7:1", "10.1.0.1:80"), "branch dre", "either side");
    assert_eq!(of("10.3.0.1:1", "10.2.0.1:80"), "late pass-through");
    assert_eq!(of("10.3.0.1:1", "10.4.0.1:80"), "http full");
    assert_eq!(of("10.3.0.1:1", "10.4.0.1:50123"), "other transport");
    assert_eq!(
        of("[::ffff:10.1.0.7]:1", "[::ffff:10.2.0.1]:80"),
        "lab lz",
        "IPv4 seen through a socket of IPv6"
    );
}

#[test]
fn ports_are_one_or_a_range() {
    for (text, first, last) in [("873", 873, 873), ("10565-10569", 10565, 10569), ("1 - 65535", 1, 65535)] {
        assert_eq!(text.parse::<Ports>().unwrap(), Ports { first, last });
    }
    for text in ["", "0", "80-", "-80", "81-80", "http", "70000", "1-2-3", "80,81"] {
        let error = text.parse::<Ports>().unwrap_err().to_string();
        assert!(error.contains("10565-10569"), "{error}");
    }
    assert!("fast".parse::<Action>().unwrap_err().to_string().contains("pass-through"));
}

proptest! {
    #[test]
    fn what_both_allow_does_not_depend_on_who_asks(a in action(), b in action(), c in action()) {
        prop_assert_eq!(a.and(b), b.and(a));
        prop_assert_eq!(a.and(b).and(c), a.and(b.and(c)));
        prop_assert_eq!(a.and(a), a);
        prop_assert_eq!(a.and(Action::Full), a);
        let both = a.and(b);
        prop_assert!(!both.compresses() || a.compresses() && b.compresses());
        prop_assert!(!both.refers() || a.refers() && b.refers());
        prop_assert_eq!(a.name().parse::<Action>().unwrap(), a);
    }

    #[test]
    fn a_demotion_takes_away_and_never_adds(a in action()) {
        for demotion in [
            Demotion::NoPeer, Demotion::PeerLost, Demotion::NoAnswer, Demotion::BoxInBetween,
            Demotion::Encrypted, Demotion::Incompressible, Demotion::Overload, Demotion::StoreUnusable,
        ] {
            let applied = demotion.of(a);
            prop_assert_eq!(applied.and(a), applied);
            prop_assert!(!demotion.reason().is_empty());
        }
    }
}

#[test]
fn ssh_of_a_box_itself_is_left_alone_unless_the_administrator_says_otherwise() {
    let ends = to("10.2.0.9:22");
    assert_eq!(Policies::default().of_box(&ends), ("ssh", Action::PassThrough));
    assert_eq!(Policies::default().of_box(&to("10.2.0.9:873")), ("rsync", Action::Full));
    let rule = Rule { ports: vec![Ports::one(22)], ..Rule::default() };
    let own = Policy { application: "ssh".to_owned(), rules: vec![rule], action: Action::Lz };
    assert_eq!(Policies::new(vec![own], Action::Full).of_box(&ends), ("ssh", Action::Lz));
}
