//! Whether a run measured the machine rather than the link. Pure, and judged anew from the records whenever a result is
//! made of them.

use crate::link::{Link, Shape};
use crate::record::{DirectionCounters, PhaseRecord};

/// Lateness that a round trip shows, and the least that the emulator promises: 1 ms.
const LATE_US: f64 = 1_000.0;

/// Of fewer packets the 99th percentile is the one or other outlier, which says nothing about the rest.
const PACKETS_WITH_A_TAIL: u64 = 500;

/// Why the figures of these phases, carried by `link`, are about the machine; nothing if they are not: devices dropped
/// packets, or 1 % of the packets came out later than 1 ms and than one full packet more in the queue would have made
/// them (7.8 ms at 1.544 Mb/s). Lateness does not add up: a packet is due by the line's own clock.
#[must_use]
pub fn slowness(phases: &[PhaseRecord], link: &Link) -> Option<String> {
    let mut reasons = Vec::new();
    for phase in phases {
        let directions = [("a to b", &phase.forward, &link.forward), ("b to a", &phase.back, &link.back)];
        for (direction, counters, shape) in directions {
            if counters.device_drops > 0 {
                reasons.push(format!(
                    "{}, {direction}: devices dropped {} packets",
                    phase.phase, counters.device_drops
                ));
            }
            if is_late(counters, shape) {
                let late = counters.lateness.p99_us / 1e3;
                reasons.push(format!(
                    "{}, {direction}: 1 % of packets more than {late:.1} ms late",
                    phase.phase
                ));
            }
        }
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn is_late(counters: &DirectionCounters, shape: &Shape) -> bool {
    let packet_us = f64::from(shape.mtu) * 8.0 / shape.rate_bits as f64 * 1e6;
    counters.packets_out >= PACKETS_WITH_A_TAIL && counters.lateness.p99_us > LATE_US.max(packet_us)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::link::LinkTerms;
    use crate::record::Lateness;

    fn counters(packets_out: u64, p99_us: f64, device_drops: u64) -> DirectionCounters {
        let lateness = Lateness { p99_us, ..Lateness::default() };
        DirectionCounters { packets_out, device_drops, lateness, ..DirectionCounters::default() }
    }

    fn judged(rate_bits: u64, forward: DirectionCounters, back: DirectionCounters) -> Option<String> {
        let link = LinkTerms { rate: Some(rate_bits), ..LinkTerms::default() }.build("l").expect("a link");
        let phase =
            PhaseRecord { phase: "update".to_owned(), seconds: 1.0, forward, back, ..PhaseRecord::default() };
        slowness(&[phase], &link)
    }

    #[test]
    fn a_machine_that_was_too_slow_is_told_with_phase_and_way() {
        let good = || counters(1_000, 1_000.0, 0);
        assert_eq!(judged(100_000_000, good(), good()), None);
        let dropped = judged(100_000_000, good(), counters(1_000, 1.0, 7)).expect("drops");
        assert!(dropped.contains("update, b to a") && dropped.contains("7 packets"), "{dropped}");
        let late = judged(100_000_000, counters(1_000, 2_500.0, 0), good()).expect("late");
        assert!(late.contains("update, a to b") && late.contains("2.5 ms"), "{late}");
    }

    #[test]
    fn late_is_later_than_a_packet_takes_on_the_line_and_of_many_packets() {
        // 1500 bytes take 7.8 ms at 1.544 Mb/s.
        assert_eq!(judged(1_544_000, counters(1_000, 7_700.0, 0), counters(0, 0.0, 0)), None);
        assert!(judged(1_544_000, counters(1_000, 7_900.0, 0), counters(0, 0.0, 0)).is_some());
        assert_eq!(judged(100_000_000, counters(499, 2_500.0, 0), counters(0, 0.0, 0)), None);
    }
}
