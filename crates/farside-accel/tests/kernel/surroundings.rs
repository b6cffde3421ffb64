//! Routes, listeners, and what is seen of the host.

use std::io;

use farside_accel::kernel::{KernelError, Leads, Lookup, MarkRoutes, OwnedTable, interfaces, transparent};

use super::{lab, ruleset};

#[test]
fn rule_and_route_are_there_once_and_go() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let rules =
            || ["rule", "-6 rule"].map(|words| lab.middle.ip_says(words).matches("fwmark 0xfa").count());
        let routes = || {
            ["route show table 7442", "-6 route show table 7442"]
                .map(|words| lab.middle.ip_says(words).matches("local default dev lo").count())
        };
        MarkRoutes::remove_stale().unwrap();
        let first = MarkRoutes::install().unwrap();
        let second = MarkRoutes::install().unwrap();
        assert_eq!((rules(), routes()), ([1, 1], [1, 1]));
        assert!(lab.middle.ip_says("rule").contains("74:\tfrom all fwmark 0xfa lookup 7442"));
        second.remove().unwrap();
        assert_eq!((rules(), routes()), ([0, 0], [0, 0]));
        // Nothing is left to be removed, and that is no error.
        first.remove().unwrap();

        drop(MarkRoutes::install().unwrap());
        assert_eq!((rules(), routes()), ([0, 0], [0, 0]));

        // One that a person added, at another place.
        lab.middle.ip("rule add fwmark 0xfa lookup 7442\nroute add local default dev lo table 7442").unwrap();
        MarkRoutes::remove_stale().unwrap();
        assert_eq!((rules(), routes()), ([0, 0], [0, 0]));
        // Others stay.
        lab.middle.ip("rule add fwmark 0xfb lookup 7442\nrule add fwmark 0xfa lookup 7443").unwrap();
        MarkRoutes::remove_stale().unwrap();
        let left = lab.middle.ip_says("rule");
        assert!(
            left.contains("fwmark 0xfb lookup 7442") && left.contains("fwmark 0xfa lookup 7443"),
            "{left}"
        );
    });
}

#[test]
fn listeners_of_both_families_have_one_port() {
    let Some(lab) = lab() else { return };
    lab.middle.run(move || async move {
        let (v4, v6) = transparent::listen(0).unwrap();
        let port = v4.local_addr().unwrap().port();
        assert_eq!(v6.unwrap().local_addr().unwrap().port(), port);
        let error = transparent::listen(port).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    });
}

#[test]
fn a_host_without_ipv6_goes_without() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        for interface in ["all", "lo"] {
            lab.middle.sysctl(&format!("net/ipv6/conf/{interface}/disable_ipv6"), "1").unwrap();
        }
        assert!(!interfaces::has_ipv6());
        let (_, v6) = transparent::listen(0).unwrap();
        assert!(v6.is_none());
        let routes = MarkRoutes::install().unwrap();
        assert!(lab.middle.ip_says("rule").contains("fwmark 0xfa"));
        assert!(!lab.middle.ip_says("-6 rule").contains("fwmark 0xfa"));
        routes.remove().unwrap();
        drop(OwnedTable::install(&ruleset(1)).unwrap());
    });
}

#[test]
fn interfaces_are_seen_and_what_is_wrong_with_them_is_said() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let lan = ["lan0", "lan1"].map(str::to_owned);
        assert!(interfaces::exists("lan0") && !interfaces::exists("lan7"));
        let prefixes: Vec<String> =
            interfaces::prefixes_of(&lan).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(prefixes, ["10.1.0.0/24", "10.3.0.0/24", "fd00:1::/64", "fd00:3::/64"]);
        let own = interfaces::own_addresses().unwrap();
        for address in ["127.0.0.1", "::1", "10.1.0.1", "10.2.0.1", "fd00:2::1"] {
            assert!(own.contains(&address.parse().unwrap()), "{address} in {own:?}");
        }

        assert_eq!(interfaces::warnings(&lan, "wan0", None), [""; 0]);
        lab.middle.sysctl("net/ipv4/ip_forward", "0").unwrap();
        lab.middle.sysctl("net/ipv6/conf/all/forwarding", "0").unwrap();
        lab.middle.sysctl("net/ipv4/conf/lan1/rp_filter", "1").unwrap();
        let told = interfaces::warnings(&lan, "wan7", None);
        for words in [
            "no interface wan7",
            "net.ipv4.ip_forward is 0",
            "net.ipv6.conf.all.forwarding is 0",
            "lan1.rp_filter",
        ] {
            assert_eq!(
                told.iter().filter(|sentence| sentence.contains(words)).count(),
                1,
                "{words}: {told:#?}"
            );
        }
        assert_eq!(told.len(), 4, "{told:#?}");
    });
}

#[test]
fn the_kernel_tells_where_an_address_is() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let lookup = Lookup::open().unwrap();
        let leads = |address: &str| lookup.leads(address.parse().unwrap()).unwrap();
        let out = |name: &str| Leads::Out(interfaces::index(name).unwrap());
        for (address, expected) in [
            ("10.1.0.2", out("lan0")),
            ("::ffff:10.1.0.2", out("lan0")),
            ("fd00:3::4", out("lan1")),
            ("10.2.0.3", out("wan0")),
            ("10.2.0.1", Leads::Here),
            ("fd00:2::1", Leads::Here),
            ("127.0.0.1", Leads::Here),
            ("192.0.2.1", Leads::Nowhere),
            ("2001:db8::1", Leads::Nowhere),
        ] {
            assert_eq!(leads(address), expected, "{address}");
        }
        lab.middle.ip("route add blackhole 192.0.2.0/24\nroute add unreachable 2001:db8::/32").unwrap();
        assert_eq!((leads("192.0.2.1"), leads("2001:db8::1")), (Leads::Nowhere, Leads::Nowhere));
        assert_eq!(interfaces::name(interfaces::index("lan1").unwrap()), "lan1");
    });
}

#[test]
fn a_name_that_no_interface_has_is_refused_before_anything_is_done() {
    let mut ruleset = ruleset(1);
    ruleset.lan.push("no interface".to_owned());
    let error = OwnedTable::install(&ruleset).unwrap_err();
    assert!(matches!(error, KernelError::InterfaceName(name) if name == "no interface"));
}
