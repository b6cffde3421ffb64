//! Ends: in order with lanes that carry on, half closes, aborts, losses.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::site::{MIB, PATIENCE, Pair, link, options, read_pattern, until, write_pattern};
use crate::bundle::{Attach, Bundle};

#[tokio::test(start_paused = true)]
async fn a_stream_each_way_ends_in_order_and_gives_its_lanes_back() {
    for lanes in [1, 4] {
        let (pair, near, mut far) = Pair::new(link(20, 10_000_000), lanes).await;
        let writing = write_pattern(near, 5 * MIB);
        read_pattern(&mut far, 5 * MIB).await;
        let mut near = writing.await.unwrap();
        let back = write_pattern(far, MIB);
        read_pattern(&mut near, MIB).await;
        let (ours, theirs) = tokio::join!(pair.a.ended(), pair.b.ended());
        let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!((ours.len(), theirs.len()), (lanes, lanes));
        drop((near, back.await.unwrap()));

        // The same connections carry the next one.
        let (a, near) = Bundle::new(options());
        let (b, mut far) = Bundle::new(options());
        for lane in &mut ours {
            let attach = Attach { bundle: [9; 16], opening: Bytes::from_static(b"hello") };
            lane.io.write_all(&attach.encode()).await.unwrap();
            lane.io.flush().await.unwrap();
        }
        for lane in ours {
            a.add_lane(lane.io, lane.options).unwrap();
        }
        for lane in &mut theirs {
            let attach = Attach::read(&mut lane.io).await.unwrap().unwrap();
            assert_eq!((attach.bundle, &attach.opening[..]), ([9; 16], &b"hello"[..]));
        }
        for lane in theirs {
            b.add_lane(lane.io, lane.options).unwrap();
        }
        let writing = write_pattern(near, 3 * MIB);
        read_pattern(&mut far, 3 * MIB).await;
        drop(far.shutdown().await);
        assert!(a.ended().await.is_some() && b.ended().await.is_some());
        drop(writing.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn after_one_side_has_shut_down_the_other_still_writes() {
    let (_pair, mut near, mut far) = Pair::new(link(20, 10_000_000), 2).await;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    assert_eq!(near.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"question");
    far.write_all(b"answer").await.unwrap();
    far.shutdown().await.unwrap();
    got.clear();
    near.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"answer");
}

#[tokio::test(start_paused = true)]
async fn a_stream_dropped_without_its_shutdown_is_an_error_and_no_end() {
    let (pair, mut near, mut far) = Pair::new(link(20, 10_000_000), 1).await;
    near.write_all(b"half a sent").await.unwrap();
    near.flush().await.unwrap();
    drop(near);
    let mut got = Vec::new();
    let error = far.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((&got[..], error.kind()), (&b"half a sent"[..], ErrorKind::UnexpectedEof), "{error}");
    assert_eq!(far.write(b"x").await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(pair.a.ended().await.is_none() && pair.b.ended().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_dropped_after_its_shutdown_is_delivered() {
    let (pair, near, mut far) = Pair::new(link(50, 1_000_000), 3).await;
    let writing = write_pattern(near, 3 * MIB);
    let dropping = tokio::spawn(async move { drop(writing.await.unwrap()) });
    // Nobody reads for a while: what was written waits all the same.
    tokio::time::sleep(Duration::from_secs(5)).await;
    read_pattern(&mut far, 3 * MIB).await;
    dropping.await.unwrap();
    // Nobody is there to read what this side would write.
    let refused = async { while far.write(b"into the void").await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert!(pair.a.ended().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_bundle_that_is_closed_says_why_on_both_sides() {
    let (pair, mut near, mut far) = Pair::new(link(20, 10_000_000), 2).await;
    near.write_all(b"x").await.unwrap();
    far.read_u8().await.unwrap();
    pair.a.close("the peer was removed");
    pair.a.close("another reason");
    let ours = near.read_u8().await.unwrap_err();
    assert_eq!(
        (ours.kind(), ours.to_string().as_str()),
        (ErrorKind::ConnectionReset, "the peer was removed")
    );
    assert!(near.write(b"x").await.is_err());
    let theirs = far.read_u8().await.unwrap_err();
    assert!(theirs.to_string().contains("the peer was removed"), "{theirs}");
    assert!(pair.a.ended().await.is_none() && pair.b.ended().await.is_none());
    until("no lane is left", || pair.a.stats().lanes.is_empty() && pair.b.stats().lanes.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_running_after_the_end() {
    let (terms_a, terms_b) = (options(), options());
    let tasks = [terms_a.tasks.clone(), terms_b.tasks.clone()];
    let (pair, near, mut far) = Pair::with(link(20, 10_000_000), 4, terms_a, terms_b).await;
    let writing = write_pattern(near, MIB);
    read_pattern(&mut far, MIB).await;
    drop((writing.await.unwrap(), far));
    drop(pair);
    for tasks in tasks {
        tasks.close();
        tokio::time::timeout(PATIENCE, tasks.wait()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_lane_it_is_lost_after_a_while_and_says_so() {
    let (pair, mut near, _far) = Pair::new(link(20, 10_000_000), 1).await;
    pair.reset(0);
    near.write_all(b"x").await.unwrap();
    let error = near.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("no connection to the peer"), "{error}");
    assert!(pair.a.ended().await.is_none());
}
