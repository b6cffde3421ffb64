//! Lanes that die, stall, come back and are added; what they cost.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::site::{MIB, Pair, lane, link, options, read_pattern, until, write_pattern};
use crate::bundle::LaneOptions;
use crate::limits::{LANELESS_MAX, WINDOW_MAX};
use crate::options::Window;
use crate::transport::LinkSettings;

#[tokio::test(start_paused = true)]
async fn lanes_share_the_load_by_what_each_carries() {
    let (pair, near, mut far) = Pair::new(link(10, 8_000_000), 2).await;
    pair.set_link(1, link(40, 2_000_000));
    let writing = write_pattern(near, 60 * MIB);
    read_pattern(&mut far, 60 * MIB).await;
    let stats = pair.a.stats();
    let delivered: Vec<u64> = stats.lanes.iter().map(|lane| lane.delivered_bytes).collect();
    let share = delivered[0] as f64 / (delivered[0] + delivered[1]) as f64;
    // 8 to 2; what lies in the simulated links' buffers of 4 MiB each shifts it.
    assert!((0.7..0.9).contains(&share), "{delivered:?}");
    assert_eq!((stats.retransmitted_bytes, stats.received_bytes), (0, 0));
    assert_eq!(pair.b.stats().received_bytes, 60 * MIB as u64);
    assert!(stats.blocked.socket > 0.5, "{:?}", stats.blocked);
    drop(writing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_dies_costs_only_what_it_had_on_its_way() {
    let (pair, near, mut far) = Pair::new(link(20, 4_000_000), 3).await;
    let writing = write_pattern(near, 24 * MIB);
    let reading = tokio::spawn(async move {
        read_pattern(&mut far, 24 * MIB).await;
        far
    });
    until("half is there", || pair.b.stats().received_bytes > 12 * MIB as u64).await;
    pair.reset(1);
    let wanted = pair.a.lanes_wanted().await;
    assert_eq!((wanted.live, wanted.lost.len()), (2, 1));
    assert!(wanted.lost[0].ended && wanted.lost[0].path == 1, "{wanted:?}");
    pair.add_lane(1).await;
    let _far = reading.await.unwrap();
    let _near = writing.await.unwrap();
    let stats = pair.a.stats();
    // What one simulated connection has on its way and in its buffers.
    assert!(stats.retransmitted_bytes <= 5 * MIB as u64, "{stats:?}");
    assert!(pair.b.stats().duplicate_bytes <= stats.retransmitted_bytes);
    assert_eq!(stats.lanes.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_stalls_is_left_out_and_used_again_when_it_comes_back() {
    let (pair, near, mut far) = Pair::new(link(20, 2_000_000), 2).await;
    let writing = write_pattern(near, 40 * MIB);
    let reading = tokio::spawn(async move {
        read_pattern(&mut far, 40 * MIB).await;
        far
    });
    until("some is there", || pair.b.stats().received_bytes > 4 * MIB as u64).await;
    pair.black_hole(1);
    let before = tokio::time::Instant::now();
    let wanted = pair.a.lanes_wanted().await;
    assert!(!wanted.lost[0].ended && wanted.lost[0].path == 1 && wanted.live == 1, "{wanted:?}");
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    let received = pair.b.stats().received_bytes;
    until("the other carries on", || pair.b.stats().received_bytes > received + 4 * MIB as u64).await;
    pair.heal(1);
    until("it is used again", || pair.a.stats().lanes.iter().all(|lane| !lane.stalled)).await;
    let delivered = pair.a.stats().lanes[1].delivered_bytes;
    until("it carries", || pair.a.stats().lanes[1].delivered_bytes > delivered + MIB as u64).await;
    drop((reading.await.unwrap(), writing.await.unwrap()));
    assert!(pair.a.stats().retransmitted_bytes > 0);
}

#[tokio::test(start_paused = true)]
async fn all_lanes_die_and_a_new_one_carries_on() {
    let (pair, near, mut far) = Pair::new(link(20, 4_000_000), 3).await;
    let writing = write_pattern(near, 10 * MIB);
    let reading = tokio::spawn(async move {
        read_pattern(&mut far, 10 * MIB).await;
        far
    });
    until("some is there", || pair.b.stats().received_bytes > 2 * MIB as u64).await;
    (0..3).for_each(|path| pair.reset(path));
    until("no lane is left", || pair.a.stats().lanes.is_empty() && pair.b.stats().lanes.is_empty()).await;
    tokio::time::sleep(LANELESS_MAX / 2).await;
    let received = pair.b.stats().received_bytes;
    assert!(received < 10 * MIB as u64);
    pair.add_lane(7).await;
    drop((reading.await.unwrap(), writing.await.unwrap()));
    assert!(pair.a.stats().blocked.lanes > 0.5, "{:?}", pair.a.stats().blocked);
}

#[tokio::test(start_paused = true)]
async fn the_only_path_goes_silent_and_a_new_lane_takes_over() {
    let (pair, near, mut far) = Pair::new(link(20, 4_000_000), 1).await;
    let writing = write_pattern(near, 10 * MIB);
    let reading = tokio::spawn(async move {
        read_pattern(&mut far, 10 * MIB).await;
        far
    });
    until("some is there", || pair.b.stats().received_bytes > 2 * MIB as u64).await;
    pair.black_hole(0);
    let wanted = pair.a.lanes_wanted().await;
    assert_eq!((wanted.live, wanted.lost[0].ended), (0, false));
    pair.add_lane(1).await;
    // What is left travels at once; the silent one is never heard of again.
    drop((reading.await.unwrap(), writing.await.unwrap()));
    assert!(pair.a.stats().lanes[0].stalled);
}

#[tokio::test(start_paused = true)]
async fn a_standby_carries_nothing_until_it_must() {
    let (pair, mut near, mut far) = Pair::new(link(20, 4_000_000), 1).await;
    let (ours, theirs) = pair.connect(1).await;
    pair.a.add_lane(ours.0, LaneOptions { standby: true, ..ours.1 }).unwrap();
    pair.b.add_lane(theirs.0, LaneOptions { standby: true, ..theirs.1 }).unwrap();
    near.write_all(&[1; MIB]).await.unwrap();
    far.read_exact(&mut vec![0; MIB]).await.unwrap();
    assert_eq!(pair.a.stats().lanes[1].delivered_bytes, 0);
    pair.reset(0);
    near.write_all(&[1; MIB]).await.unwrap();
    far.read_exact(&mut vec![0; MIB]).await.unwrap();
    until("it has carried", || pair.a.stats().lanes[0].delivered_bytes >= MIB as u64).await;
}

#[tokio::test(start_paused = true)]
async fn only_as_many_lanes_carry_as_are_to_be_used_and_others_step_in() {
    let (pair, near, mut far) = Pair::new(link(20, 4_000_000), 3).await;
    let delivered = || -> Vec<u64> { pair.a.stats().lanes.iter().map(|lane| lane.delivered_bytes).collect() };
    pair.a.use_lanes(|path| usize::from(path == 1));
    let writing = write_pattern(near, 40 * MIB);
    let reading = tokio::spawn(async move {
        read_pattern(&mut far, 40 * MIB).await;
        far
    });
    until("some is there", || pair.b.stats().received_bytes > 8 * MIB as u64).await;
    assert_eq!((delivered()[0], delivered()[2]), (0, 0));
    assert!(pair.a.stats().lanes[0].standby && !pair.a.stats().lanes[1].standby);
    pair.a.use_lanes(|path| usize::from(path != 1));
    until("the others carry", || delivered()[0].min(delivered()[2]) > MIB as u64).await;
    until("what it had has arrived", || pair.a.stats().lanes[1].latency.is_some()).await;
    let before = delivered()[1];
    until("they go on", || delivered()[0] > 4 * MIB as u64).await;
    // What was on its way when it was put on standby: the connection's buffers.
    assert!(delivered()[1] <= before + 5 * MIB as u64, "{before} {:?}", delivered());
    assert_eq!(pair.a.stats().retransmitted_bytes, 0);
    pair.reset(0);
    pair.reset(2);
    drop((reading.await.unwrap(), writing.await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn lanes_of_a_path_that_is_no_more_are_closed_and_nothing_is_retransmitted() {
    let (pair, near, mut far) = Pair::new(link(20, 4_000_000), 2).await;
    let writing = write_pattern(near, 40 * MIB);
    let reading = tokio::spawn(async move {
        read_pattern(&mut far, 40 * MIB).await;
        far
    });
    until("some is there", || pair.b.stats().received_bytes > 8 * MIB as u64).await;
    until("the lane is closed", || {
        pair.a.retire_lanes(|path| path == 1);
        pair.a.stats().lanes.len() == 1 && pair.b.stats().lanes.len() == 1
    })
    .await;
    assert!(pair.b.stats().received_bytes < 40 * MIB as u64, "before the stream has ended");
    drop((reading.await.unwrap(), writing.await.unwrap()));
    assert_eq!((pair.a.stats().retransmitted_bytes, pair.b.stats().duplicate_bytes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_gigabyte_in_a_small_window_at_no_more_than_a_window_per_round_trip() {
    let mut small = options();
    small.window = Window::Bytes(72 * 1024);
    let settings = LinkSettings { latency: Duration::from_millis(1), ..LinkSettings::default() };
    let (pair, near, mut far) = Pair::with(settings, 2, options(), small).await;
    let begun = tokio::time::Instant::now();
    let writing = write_pattern(near, 1 << 30);
    read_pattern(&mut far, 1 << 30).await;
    let round_trips = begun.elapsed().as_millis() / 2;
    assert!(round_trips >= (1 << 30) / (72 * 1024), "{round_trips} round trips");
    let stats = pair.a.stats();
    assert!(stats.blocked.window > 0.5, "{:?}", stats.blocked);
    assert_eq!(pair.b.stats().window, 72 * 1024);
    drop(writing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_automatic_window_grows_until_the_link_is_full() {
    // 20 MB/s at 300 ms: 6 MB on their way.
    let (pair, near, mut far) = Pair::new(link(150, 20_000_000), 2).await;
    let writing = write_pattern(near, 200 * MIB);
    let begun = tokio::time::Instant::now();
    read_pattern(&mut far, 200 * MIB).await;
    // The simulated link has 4 MiB on its way at most, for each lane; no slow start is simulated.
    let rate = (200 * MIB) as f64 / begun.elapsed().as_secs_f64();
    let most = 2.0 * 4.0 * MIB as f64 / 0.3;
    assert!(rate > 0.85 * most.min(40e6), "{rate} of {most} B/s");
    let window = pair.b.stats().window;
    assert!((8 * MIB as u64..=WINDOW_MAX).contains(&window), "{window}");
    drop(writing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn nobody_reads_and_nothing_is_lost_or_kept_without_bound() {
    let (pair, near, mut far) = Pair::new(link(20, 10_000_000), 2).await;
    let writing = write_pattern(near, 30 * MIB);
    // Minutes pass, and the connections are alive all the same.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let stats = pair.b.stats();
    assert!(stats.received_bytes <= stats.window, "{stats:?}");
    assert_eq!(stats.lanes.len(), 2);
    read_pattern(&mut far, 30 * MIB).await;
    assert_eq!(pair.a.stats().retransmitted_bytes, 0);
    drop(writing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_idle_bundle_is_quiet() {
    let (pair, mut near, mut far) = Pair::new(link(20, 10_000_000), 2).await;
    near.write_all(b"x").await.unwrap();
    far.read_u8().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = pair.network.carried("a0", "b0") + pair.network.carried("a1", "b1");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pair.network.carried("a0", "b0") + pair.network.carried("a1", "b1"), before);
}

#[tokio::test(start_paused = true)]
async fn more_lanes_than_there_may_be_are_refused() {
    let (pair, _near, _far) = Pair::new(link(1, 10_000_000), 0).await;
    for n in 0..=crate::limits::LANES_MAX {
        let (ours, _theirs) = tokio::io::duplex(1024);
        assert_eq!(pair.a.add_lane(Box::new(ours), lane(0)).is_some(), n < crate::limits::LANES_MAX);
    }
}
