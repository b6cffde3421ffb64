use proptest::prelude::*;

use super::*;

/// A TCP segment: ports 40000 → 443, sequence 0x01020304.
fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let offset = u8::try_from(5 + options.len() / 4).unwrap() << 4;
    let mut bytes =
        vec![0x9c, 0x40, 0x01, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, offset, flags, 0xfa, 0xf0, 0, 0, 0, 0];
    bytes.extend_from_slice(options);
    bytes
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![0x13, 0x88, 0x1d, 0x12, length[0], length[1], 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

/// 10.1.0.2 → 10.2.0.3, AF41.
fn ipv4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let length = u16::try_from(header + payload.len()).unwrap().to_be_bytes();
    let first = 0x40 | u8::try_from(header / 4).unwrap();
    let mut bytes = vec![first, 0x88, length[0], length[1], 0, 7, 0x40, 0, 64, protocol, 0, 0];
    bytes.extend_from_slice(&[10, 1, 0, 2, 10, 2, 0, 3]);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(payload);
    bytes
}

/// fd00:1::2 → fd00:2::3, AF41.
fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![0x68, 0x8a, 0xbc, 0xde, length[0], length[1], protocol, 64];
    for address in ["fd00:1::2", "fd00:2::3"] {
        bytes.extend_from_slice(&address.parse::<Ipv6Addr>().unwrap().octets());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// MSS 1460, SACK, a timestamp, window scale: what Linux sends.
const LINUX: [u8; 20] = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];

fn expected(client: &str, server: &str, mss: Option<u16>) -> Packet {
    let ends = Ends { client: client.parse().unwrap(), server: server.parse().unwrap() };
    Packet::Syn(Syn { ends, dscp: 34, mss, sequence: 0x0102_0304 })
}

#[test]
fn a_syn_of_ipv4_is_read_with_and_without_options() {
    let linux = expected("10.1.0.2:40000", "10.2.0.3:443", Some(1460));
    assert_eq!(parse(&ipv4(TCP, &[], &tcp(SYN, &LINUX))), linux);
    assert_eq!(parse(&ipv4(TCP, &[1; 40], &tcp(SYN, &LINUX))), linux, "with IP options");
    // Explicit congestion notification and urgent data change nothing.
    assert_eq!(parse(&ipv4(TCP, &[], &tcp(SYN | 0xe0, &LINUX))), linux);
    let bare = expected("10.1.0.2:40000", "10.2.0.3:443", None);
    assert_eq!(parse(&ipv4(TCP, &[], &tcp(SYN, &[]))), bare);
}

#[test]
fn a_syn_of_ipv6_is_read_behind_simple_extensions() {
    let syn = tcp(SYN, &LINUX);
    let expected = expected("[fd00:1::2]:40000", "[fd00:2::3]:443", Some(1460));
    assert_eq!(parse(&ipv6(TCP, &syn)), expected);
    // Hop-by-hop of 8 bytes, destination options of 16.
    let mut payload = vec![DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0, TCP, 1];
    payload.extend_from_slice(&[0; 14]);
    payload.extend_from_slice(&syn);
    assert_eq!(parse(&ipv6(HOP_BY_HOP, &payload)), expected);
}

#[test]
fn options_that_lie_about_their_length_give_no_mss() {
    for options in [
        [2, 3, 5, 0],
        [2, 4, 5, 0xb4],
        [3, 0, 0, 0],
        [3, 1, 0, 0],
        [8, 255, 0, 0],
        [0, 2, 4, 5],
        [1, 1, 1, 2],
    ] {
        let mss = (options == [2, 4, 5, 0xb4]).then_some(1460);
        let read = parse(&ipv4(TCP, &[], &tcp(SYN, &options)));
        assert_eq!(read, expected("10.1.0.2:40000", "10.2.0.3:443", mss), "{options:?}");
    }
}

#[test]
fn a_small_datagram_is_a_probe() {
    let payload = [7; PROBE_MAX];
    let probe = |from: &str, to: &str| {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Packet::Probe(Probe { from, to, payload: payload.to_vec() })
    };
    assert_eq!(parse(&ipv4(UDP, &[], &udp(&payload))), probe("10.1.0.2:5000", "10.2.0.3:7442"));
    assert_eq!(parse(&ipv6(UDP, &udp(&payload))), probe("[fd00:1::2]:5000", "[fd00:2::3]:7442"));
    assert!(matches!(parse(&ipv4(UDP, &[], &udp(&[]))), Packet::Probe(probe) if probe.payload.is_empty()));
    assert_eq!(parse(&ipv4(UDP, &[], &udp(&[7; PROBE_MAX + 1]))), Packet::Other, "too long");
    // Bytes behind the datagram's own end are not its.
    let mut padded = udp(&[1, 2, 3]);
    padded.extend_from_slice(&[9; 20]);
    assert!(matches!(parse(&ipv4(UDP, &[], &padded)), Packet::Probe(probe) if probe.payload == [1, 2, 3]));
}

#[test]
fn what_is_no_first_segment_is_other() {
    for flags in [0, ACK, SYN | ACK, SYN | RST, SYN | FIN, RST] {
        assert_eq!(parse(&ipv4(TCP, &[], &tcp(flags, &LINUX))), Packet::Other, "{flags:#x}");
    }
    assert_eq!(parse(&ipv4(1, &[], &tcp(SYN, &LINUX))), Packet::Other, "ICMP");
    for ports in [0..2, 2..4] {
        let mut segment = tcp(SYN, &LINUX);
        segment[ports].fill(0);
        assert_eq!(parse(&ipv4(TCP, &[], &segment)), Packet::Other, "port 0");
    }
    // A data offset of less than a header.
    let mut segment = tcp(SYN, &LINUX);
    segment[12] = 0x40;
    assert_eq!(parse(&ipv4(TCP, &[], &segment)), Packet::Other);
}

#[test]
fn fragments_are_other() {
    for fragment in [[0x20, 0], [0x20, 1], [0, 1], [0x1f, 0xff]] {
        let mut packet = ipv4(TCP, &[], &tcp(SYN, &LINUX));
        packet[6..8].copy_from_slice(&fragment);
        assert_eq!(parse(&packet), Packet::Other, "{fragment:?}");
    }
    let mut payload = vec![TCP, 0, 0, 1, 0, 0, 0, 9];
    payload.extend_from_slice(&tcp(SYN, &LINUX));
    assert_eq!(parse(&ipv6(44, &payload)), Packet::Other, "fragment header");
    assert_eq!(parse(&ipv6(43, &payload)), Packet::Other, "routing header");
    // A chain of extensions without end.
    let mut chain = [HOP_BY_HOP, 0, 0, 0, 0, 0, 0, 0].repeat(EXTENSIONS_MAX + 1);
    chain.extend_from_slice(&tcp(SYN, &LINUX));
    assert_eq!(parse(&ipv6(HOP_BY_HOP, &chain)), Packet::Other);
}

#[test]
fn addresses_that_no_other_host_has_are_other() {
    for address in [[127, 0, 0, 1], [0, 0, 0, 0], [0, 1, 2, 3], [224, 0, 0, 1], [255, 255, 255, 255]] {
        for place in [12, 16] {
            let mut packet = ipv4(TCP, &[], &tcp(SYN, &LINUX));
            packet[place..place + 4].copy_from_slice(&address);
            assert_eq!(parse(&packet), Packet::Other, "{address:?}");
        }
    }
    for address in ["::", "::1", "fe80::1", "ff02::1", "::ffff:10.1.0.2"] {
        for place in [8, 24] {
            let mut packet = ipv6(TCP, &tcp(SYN, &LINUX));
            packet[place..place + 16].copy_from_slice(&address.parse::<Ipv6Addr>().unwrap().octets());
            assert_eq!(parse(&packet), Packet::Other, "{address}");
        }
    }
}

#[test]
fn a_packet_that_is_cut_off_in_its_headers_is_other() {
    for packet in
        [ipv4(TCP, &[1; 8], &tcp(SYN, &LINUX)), ipv6(TCP, &tcp(SYN, &LINUX)), ipv6(UDP, &udp(&[7; 9]))]
    {
        for length in 0..packet.len() {
            assert_eq!(parse(&packet[..length]), Packet::Other, "{length} of {}", packet.len());
        }
        assert_ne!(parse(&packet), Packet::Other);
    }
    // Data of a SYN (TCP Fast Open) may be cut off.
    let mut segment = tcp(SYN, &LINUX);
    segment.extend_from_slice(&[7; 1000]);
    assert!(matches!(parse(&ipv4(TCP, &[], &segment)[..LOOK_AT]), Packet::Syn(_)));
}

proptest! {
    #[test]
    fn garbage_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..LOOK_AT)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn damaged_packets_are_read_without_panic(
        which in 0..4usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = match which {
            0 => ipv4(TCP, &[1; 12], &tcp(SYN, &LINUX)),
            1 => ipv6(TCP, &tcp(SYN, &LINUX)),
            2 => ipv4(UDP, &[], &udp(&[7; 100])),
            _ => ipv6(HOP_BY_HOP, &[UDP, 0, 1, 4, 0, 0, 0, 0, 0x13, 0x88, 0x1d, 0x12, 0, 9, 0, 0, 42]),
        };
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(keep.index(bytes.len()) + 1);
        if let Packet::Probe(probe) = parse(&bytes) {
            prop_assert!(probe.payload.len() <= PROBE_MAX);
        }
    }
}
