use std::collections::HashMap;

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::*;

fn ruleset() -> Ruleset {
    Ruleset {
        lan: vec!["lan0".to_owned(), "lan1.7".to_owned()],
        wan: "wan0".to_owned(),
        queue: 5,
        listener_port: 7443,
        own_ports: vec![7440, 7442],
        probe_port: 7442,
        bridge: None,
    }
}

#[test]
fn the_text_is_what_the_page_says() {
    let expected = r#"# nftables; gone when the accelerator's process ends
table inet farside {
	flags owner

	set carried4 {
		type ipv4_addr . inet_service . ipv4_addr . inet_service
	}

	set carried6 {
		type ipv6_addr . inet_service . ipv6_addr . inet_service
	}

	chain hold {
		type filter hook prerouting priority -150; policy accept;
		iifname "wan0" meta l4proto udp udp dport 7442 queue num 5 bypass
		iifname "lan0" meta l4proto tcp tcp flags syn / fin,syn,rst,ack meta mark != 0xfc tcp dport != 7440 tcp dport != 7442 fib daddr type != local fib daddr oifname != "lan0" fib daddr oifname != "lan1.7" queue num 5 bypass
		iifname "lan1.7" meta l4proto tcp tcp flags syn / fin,syn,rst,ack meta mark != 0xfc tcp dport != 7440 tcp dport != 7442 fib daddr type != local fib daddr oifname != "lan0" fib daddr oifname != "lan1.7" queue num 5 bypass
	}

	chain divert {
		type filter hook prerouting priority -149; policy accept;
		meta mark 0xfa meta l4proto tcp tproxy ip to :7443 accept
		meta mark 0xfa meta l4proto tcp tproxy ip6 to :7443 accept
		meta l4proto tcp socket transparent 1 meta mark set 0xfa accept
		meta l4proto icmp socket transparent 1 meta mark set 0xfa accept
		meta l4proto ipv6-icmp socket transparent 1 meta mark set 0xfa accept
	}

	chain refused {
		type filter hook forward priority 0; policy accept;
		meta mark 0xfb meta l4proto tcp reject with tcp reset
	}

	chain hold_own {
		type filter hook output priority -150; policy accept;
		oifname "wan0" meta l4proto tcp tcp flags syn / fin,syn,rst,ack meta mark != 0xfc tcp dport != 7440 tcp dport != 7442 queue num 5 bypass
	}

	chain carry_own {
		type route hook output priority -149; policy accept;
		meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn meta nfproto ipv4 ip saddr . tcp sport . ip daddr . tcp dport @carried4 meta mark set 0xfa accept
		meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn meta nfproto ipv6 ip6 saddr . tcp sport . ip6 daddr . tcp dport @carried6 meta mark set 0xfa accept
	}

	chain refused_own {
		type filter hook output priority 0; policy accept;
		meta mark 0xfb meta l4proto tcp reject with tcp reset
	}
}

# routing; harmless when left behind, as nothing else sets the mark
ip rule add fwmark 0xfa lookup 7442 priority 74
ip route add local default dev lo table 7442
ip -6 rule add fwmark 0xfa lookup 7442 priority 74
ip -6 route add local default dev lo table 7442

# sysctl; must hold, and is not changed
net.ipv4.ip_forward = 1
net.ipv6.conf.all.forwarding = 1    # where the LAN has IPv6
net.ipv4.tcp_fwmark_accept = 0
net.ipv4.conf.lan0.rp_filter = 2    # or 0, if net.ipv4.conf.all.rp_filter is 0 or 2
net.ipv4.conf.lan1/7.rp_filter = 2    # or 0, if net.ipv4.conf.all.rp_filter is 0 or 2
net.ipv4.conf.wan0.rp_filter = 2    # or 0, if net.ipv4.conf.all.rp_filter is 0 or 2
net.ipv4.conf.all.src_valid_mark = 0
net.ipv4.conf.lan0.src_valid_mark = 0
net.ipv4.conf.lan1/7.src_valid_mark = 0
net.ipv4.conf.wan0.src_valid_mark = 0
net.bridge.bridge-nf-call-iptables = 0    # where an interface is a bridge
net.bridge.bridge-nf-call-ip6tables = 0    # where an interface is a bridge
"#;
    assert_eq!(ruleset().to_string(), expected);
}

#[test]
fn an_inline_box_has_a_table_in_its_bridge() {
    let mut ruleset = ruleset();
    ruleset.lan.pop();
    let address = [2, 0, 0, 0, 0, 0x1f];
    ruleset.bridge = Some(Bridge { name: "br0".to_owned(), address });
    let text = ruleset.to_string();
    let (inet, bridge) = text.split_once("table bridge farside {").unwrap();
    assert!(!inet.contains("lan0") && !inet.contains("wan0"), "{inet}");
    for line in [
        "meta mark 0xfd meta l4proto udp udp dport 7442 queue num 5 bypass",
        "meta mark 0xfd meta l4proto tcp fib daddr type != local queue num 5 bypass",
        "oifname \"br0\" meta l4proto tcp tcp flags syn / fin,syn,rst,ack meta mark != 0xfc tcp dport != 7440 tcp dport != 7442 \
         queue num 5 bypass",
    ] {
        assert!(inet.contains(line), "{line} in {inet}");
    }
    let up = "ether daddr set 02:00:00:00:00:1f meta pkttype set host accept";
    for line in [
        "iifname \"wan0\" @ll,96,16 0x0800 meta l4proto udp udp dport 7442 meta mark set 0xfd",
        "iifname \"lan0\" @ll,96,16 0x86dd meta l4proto tcp tcp flags syn / fin,syn,rst,ack meta mark != 0xfc tcp dport != 7440 \
         tcp dport != 7442 meta mark set 0xfd",
        "@ll,96,16 0x0800 meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn ip saddr . tcp sport . ip daddr . tcp dport @carried4",
        "@ll,96,16 0x0800 meta l4proto icmp @th,192,32 . @th,240,16 . @th,160,32 . @th,224,16 @carried4",
        "@ll,96,16 0x86dd meta l4proto ipv6-icmp @th,256,128 . @th,400,16 . @th,128,128 . @th,384,16 @carried6",
    ] {
        assert!(bridge.contains(&format!("{line} {up}")), "{line} in {bridge}");
    }
    assert!(bridge.contains("net.ipv4.conf.br0.rp_filter") && !bridge.contains("conf.lan0"), "{bridge}");
}

#[test]
fn a_box_with_one_leg_does_not_leave_out_what_it_routes_back() {
    let mut ruleset = ruleset();
    ruleset.lan = vec!["wan0".to_owned()];
    assert!(!ruleset.nft().contains("fib daddr oifname"));
    assert!(ruleset.nft().contains("fib daddr type != local"));
}

#[test]
fn every_message_is_read_back_as_it_was_written() {
    for means in Means::ALL {
        let messages = batch(&ruleset(), means);
        assert_eq!(messages.len(), 1 + 2 + 6 + 13);
        for (_, message) in messages {
            let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
            let payload = NetlinkPayload::InnerMessage(NetfilterMessage::new(header, message));
            let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            let read = NetlinkMessage::<NetfilterMessage>::deserialize(&bytes).unwrap();
            // An expression with a type of its own is read as one that is not known: same bytes.
            let mut again = vec![0; read.buffer_len()];
            read.serialize(&mut again);
            assert_eq!(bytes, again);
        }
    }
}

#[test]
fn an_error_of_the_kernel_is_told_with_the_rule_that_it_is_about() {
    let means = Means::ALL[1];
    assert_eq!(text_of(&ruleset(), means, 0), "table inet farside { flags owner }");
    assert_eq!(text_of(&ruleset(), means, 1), "set carried4");
    assert_eq!(text_of(&ruleset(), means, 3), "chain hold");
    assert_eq!(
        text_of(&ruleset(), means, 4),
        "iifname \"wan0\" meta l4proto udp udp dport 7442 queue num 5 bypass"
    );
    assert_eq!(text_of(&ruleset(), means, 21), "meta mark 0xfb meta l4proto tcp reject with tcp reset");
    assert_eq!(text_of(&ruleset(), means, 22), "the batch");
}

#[test]
fn names_that_no_interface_has_are_found() {
    for name in ["", "sixteen-letters-", "a b", "a/b", "a\"b", "lan*", ".."] {
        let mut ruleset = ruleset();
        ruleset.lan.push(name.to_owned());
        assert_eq!(ruleset.bad_name(), Some(name));
    }
    assert_eq!(ruleset().bad_name(), None);
}

#[test]
fn wrong_parameters_are_told_with_what_to_type() {
    let right = HashMap::from([
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.tcp_fwmark_accept", "0"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.lan0.rp_filter", "0"),
        ("net.ipv4.conf.lan1/7.rp_filter", "2"),
        ("net.ipv4.conf.wan0.rp_filter", "0"),
    ]);
    let judge = |changed: &[(&'static str, &'static str)]| -> Vec<String> {
        let mut values = right.clone();
        values.extend(changed.iter().copied());
        let read = |name: &str| values.get(name).map(|value| (*value).to_owned());
        let Ruleset { lan, wan, .. } = ruleset();
        sysctls(&lan, &wan, None).iter().filter_map(|sysctl| sysctl.judge(read)).collect()
    };
    assert!(judge(&[]).is_empty());
    assert!(judge(&[("net.ipv4.conf.all.rp_filter", "2"), ("net.ipv4.conf.lan0.rp_filter", "1")]).is_empty());

    let told = judge(&[("net.ipv4.ip_forward", "0")]);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("net.ipv4.ip_forward is 0: "), "{told:?}");
    assert!(told[0].contains("sysctl -w net.ipv4.ip_forward=1"), "{told:?}");

    let told = judge(&[("net.ipv4.conf.lan1/7.rp_filter", "1")]);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("sysctl -w net.ipv4.conf.lan1/7.rp_filter=2"), "{told:?}");

    // Strict for all: also where an interface says 0.
    let told = judge(&[("net.ipv4.conf.all.rp_filter", "1")]);
    assert_eq!(told.len(), 2, "lan1.7 is loose: {told:?}");
    assert!(told[0].starts_with("net.ipv4.conf.lan0.rp_filter is 0 and net.ipv4.conf.all.rp_filter is 1: "));
}

#[test]
fn a_parameter_lies_where_its_name_says() {
    assert_eq!(Sysctl::path("net.ipv4.conf.lan1/7.rp_filter"), "net/ipv4/conf/lan1.7/rp_filter");
}
