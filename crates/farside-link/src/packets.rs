//! Whether full packets pass on a path. Pure: time comes as an argument.
//!
//! A path whose MTU has shrunk, and that filters the ICMP which would say so, swallows full packets and lets small ones
//! through: pings are answered, new connections are made, and whatever carries data stands. TCP finds that out by itself only
//! where `net.ipv4.tcp_mtu_probing` is set, which no ordinary distribution does.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{
    LANE_STALL_ALONE, LARGE_PACKETS_STAND_FOR, LARGE_PACKETS_TIMEOUTS, SEGMENT_SIZES, SMALL_PACKETS_WITHIN,
};

/// A lane that has data on its way, as its socket sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneWithData<K> {
    /// Which; never used twice.
    pub lane: K,
    /// Bytes of its own that have arrived in order.
    pub acknowledged_bytes: u64,
    /// How often in a row its kernel has sent the same again and heard nothing.
    pub timeouts: u32,
    /// Payload of its full packets, bytes.
    pub mss: u32,
}

/// What is known of one path.
#[derive(Debug)]
pub struct PacketWatch<K> {
    /// What each lane's kernel had acknowledged, and since when that is so.
    stands: BTreeMap<K, (u64, Duration)>,
}

impl<K> Default for PacketWatch<K> {
    fn default() -> Self {
        PacketWatch { stands: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> PacketWatch<K> {
    /// Looks at all lanes of the path that have data on their way; as often as once a second. `answered`: how long ago
    /// something small was last answered on it. The size of the packets that do not pass, if that is what it is; told once
    /// in [`LARGE_PACKETS_STAND_FOR`].
    pub fn look(
        &mut self,
        answered: Option<Duration>,
        lanes: &[LaneWithData<K>],
        now: Duration,
    ) -> Option<u32> {
        let before = std::mem::take(&mut self.stands);
        for seen in lanes {
            let same =
                before.get(&seen.lane).filter(|(acknowledged, _)| *acknowledged == seen.acknowledged_bytes);
            self.stands.insert(seen.lane, *same.unwrap_or(&(seen.acknowledged_bytes, now)));
        }
        let stands_for = |seen: &LaneWithData<K>| now.saturating_sub(self.stands[&seen.lane].1);
        let small_pass = answered.is_some_and(|ago| ago <= SMALL_PACKETS_WITHIN);
        // One lane that stands beside others that move is another trouble.
        let all_stand = lanes.iter().all(|seen| stands_for(seen) >= LANE_STALL_ALONE);
        if !small_pass || !all_stand {
            return None;
        }
        let is_stuck = |seen: &&LaneWithData<K>| {
            stands_for(seen) >= LARGE_PACKETS_STAND_FOR && seen.timeouts >= LARGE_PACKETS_TIMEOUTS
        };
        let mss = lanes.iter().filter(is_stuck).map(|seen| seen.mss).max()?;
        // Whatever is done about it needs its time to show.
        self.stands.values_mut().for_each(|(_, since)| *since = now);
        Some(mss)
    }

    /// Nothing is on its way.
    pub fn clear(&mut self) {
        self.stands.clear();
    }
}

/// The size to try where full packets with so much payload do not pass. `None`: no smaller one is worth it.
pub fn smaller_segment(mss: u32) -> Option<u32> {
    SEGMENT_SIZES.into_iter().find(|size| *size < mss)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn lane(lane: u32, acknowledged_bytes: u64, timeouts: u32) -> LaneWithData<u32> {
        LaneWithData { lane, acknowledged_bytes, timeouts, mss: 1448 }
    }

    /// Looks once a second, from `from` on; the moment of the first verdict.
    fn first(
        watch: &mut PacketWatch<u32>,
        from: u32,
        until: u32,
        answered: Option<Duration>,
        lanes: impl Fn(u32) -> Vec<LaneWithData<u32>>,
    ) -> Option<u32> {
        (from..until).find(|second| watch.look(answered, &lanes(*second), *second * S).is_some())
    }

    #[test]
    fn data_that_stands_while_pings_are_answered_is_known_within_seconds() {
        let mut watch = PacketWatch::default();
        // A second lane was made when the first stood for three seconds; it has brought its handshake and no more.
        let lanes = |second| {
            let mut lanes = vec![lane(1, 70_000, second)];
            lanes.extend((second >= 3).then(|| lane(2, if second == 3 { 900 } else { 2300 }, second - 3)));
            lanes
        };
        assert_eq!(first(&mut watch, 0, 60, Some(S), lanes), Some(10));
        assert_eq!(first(&mut watch, 11, 60, Some(S), lanes), Some(20), "and not each second");
        assert_eq!(
            (smaller_segment(1448), smaller_segment(1188), smaller_segment(524)),
            (Some(1200), Some(536), None)
        );
    }

    #[test]
    fn a_dead_path_a_slow_one_and_a_peer_that_does_not_read_are_something_else() {
        let stands = |second: u32| vec![lane(1, 70_000, second)];
        assert_eq!(
            first(&mut PacketWatch::default(), 0, 60, Some(8 * S), stands),
            None,
            "nothing is answered"
        );
        assert_eq!(first(&mut PacketWatch::default(), 0, 60, None, stands), None);
        let reads_nothing = |_| vec![lane(1, 70_000, 0)];
        assert_eq!(first(&mut PacketWatch::default(), 0, 60, Some(S), reads_nothing), None);
        // A packet each nine seconds.
        let slow = |second: u32| vec![lane(1, u64::from(second / 9), second % 9)];
        assert_eq!(first(&mut PacketWatch::default(), 0, 90, Some(S), slow), None);
        let beside_one_that_moves = |second: u32| vec![lane(1, 70_000, second), lane(2, second.into(), 0)];
        assert_eq!(first(&mut PacketWatch::default(), 0, 60, Some(S), beside_one_that_moves), None);
    }
}
