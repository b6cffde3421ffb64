//! Processes that die, stop, or hang, while transfers that repeat what has passed go on in both directions.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bed::{Bed, End};
use crate::traffic::{MIB, Transfer, fetch, fetch_slowly, send_slowly};
use crate::watch::{MARGIN, Seen, THIRD_TRY, report};

/// After a process has died or was stopped, every connection that begins is on its way after so long, seconds.
const DEAD: f64 = 0.2;
/// The same after a process has begun to hang: the watchdog has noticed and ended it.
const HUNG: f64 = 2.0;
const FOURTH_TRY: f64 = 3.0;
/// Optimisation is back after so long, where nobody has to do anything for it.
const BACK: f64 = 10.0;

/// What has to be.
struct Limits {
    all_flow: f64,
    slowest: f64,
    /// Whether the open connections are reset; otherwise they are not touched.
    resets: bool,
}

const DIES: Limits = Limits { all_flow: DEAD, slowest: THIRD_TRY, resets: true };
const HANGS: Limits = Limits { all_flow: HUNG, slowest: FOURTH_TRY, resets: true };

/// A fault in the middle of transfers, and somebody who mends it, where it does not mend itself.
fn in_the_middle(cell: &str, limits: &Limits, fault: impl FnOnce(&mut Bed), mend: Option<fn(&mut Bed)>) {
    let Some(mut bed) = Bed::new() else { return };
    bed.optimises(fetch(1, 8 * MIB));
    let open = [
        Transfer::start(&bed.client, fetch_slowly(1, 12 * MIB)),
        Transfer::start(&bed.client, fetch_slowly(2, 12 * MIB)),
        Transfer::start(&bed.client, send_slowly(1, 12 * MIB)),
    ];
    let watch = bed.watch();
    open.iter().for_each(|transfer| transfer.is_at(MIB));

    let at = Instant::now();
    fault(&mut bed);
    if let Some(mend) = mend {
        sleep(Duration::from_millis(1000).saturating_sub(at.elapsed()));
        mend(&mut bed);
    } else {
        // What hangs is missed after a while only, and says meanwhile what it said before.
        sleep(Duration::from_secs_f64(limits.all_flow + 0.5));
    }
    bed.meet();
    sleep(Duration::from_millis(500));
    let seen = watch.end(at, || bed.plain_ports());

    let whole = open.map(|transfer| bed.whole_or_reset(transfer));
    bed.optimises(fetch(1, 8 * MIB));
    bed.optimises(fetch(2, 8 * MIB));
    report(cell, bed.resets() + seen.resets, &seen, "");
    assert!(whole == [!limits.resets; 3], "which were whole: {whole:?}");
    check(&seen, limits, mend.is_none());
}

fn check(seen: &Seen, limits: &Limits, is_left_alone: bool) {
    assert!(seen.all_flow <= limits.all_flow + MARGIN, "{seen:?}");
    assert!(seen.slowest <= limits.slowest + MARGIN, "{seen:?}");
    assert!(seen.plain > 0, "nothing has gone its plain way: {seen:?}");
    let again = seen.again.expect("optimised again");
    assert!(!is_left_alone || again <= BACK, "{seen:?}");
}

#[test]
fn kill_9_of_the_near_box() {
    in_the_middle("kill -9 of the near box's process", &DIES, |bed| bed.near.signal(Signal::KILL), None);
}

#[test]
fn kill_9_of_the_far_box() {
    in_the_middle("kill -9 of the far box's process", &DIES, |bed| bed.far.signal(Signal::KILL), None);
}

#[test]
fn sigterm_of_the_near_box() {
    in_the_middle("SIGTERM of the near box's process", &DIES, |bed| bed.near.signal(Signal::TERM), None);
}

#[test]
fn a_hang_of_the_near_box() {
    in_the_middle("hang of the near box's process", &HANGS, |bed| bed.near.signal(Signal::STOP), None);
}

#[test]
fn a_hang_of_the_far_box() {
    in_the_middle("hang of the far box's process", &HANGS, |bed| bed.far.signal(Signal::STOP), None);
}

#[test]
fn kill_9_of_the_near_daemon() {
    let fault = |bed: &mut Bed| bed.near.site.kill();
    in_the_middle("kill -9 of the near farsided", &DIES, fault, Some(|bed| bed.restart(End::Near)));
}

#[test]
fn kill_9_of_the_far_daemon() {
    let fault = |bed: &mut Bed| bed.far.site.kill();
    in_the_middle("kill -9 of the far farsided", &DIES, fault, Some(|bed| bed.restart(End::Far)));
}

#[test]
fn the_near_daemon_is_stopped() {
    let fault = |bed: &mut Bed| assert_eq!(bed.near.site.stop(), Some(0));
    in_the_middle("stop of the near farsided", &DIES, fault, Some(|bed| bed.restart(End::Near)));
}

#[test]
fn down_at_the_near_site() {
    let fault = |bed: &mut Bed| drop(bed.near.site.ok("accel down"));
    in_the_middle("accel down at the near site", &DIES, fault, Some(|bed| bed.up(End::Near)));
}

#[test]
fn down_at_the_far_site() {
    let fault = |bed: &mut Bed| drop(bed.far.site.ok("accel down"));
    in_the_middle("accel down at the far site", &DIES, fault, Some(|bed| bed.up(End::Far)));
}
