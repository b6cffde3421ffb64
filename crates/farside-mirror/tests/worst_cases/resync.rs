//! Resync: after a failover the former source follows the side that took over. B's volume is the source here.

use std::time::Duration;

use farside_engine::SnapshotInfo;
use farside_mirror::{Schedule, State};
use farside_transfer::TransferKind;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use uuid::Uuid;

use crate::run::Operation;
use crate::site::PATIENCE;
use crate::table::{C, E, F, Fault, Holds, NEW, OLD, R, Row, Stage, Table};
use crate::watch::Side::{A, B};
use crate::world::{World, transfer};

const BETWEEN: Holds = Holds::Still(Stage::Between);

pub(crate) static RESYNC: Table = Table {
    operation: "Resync",
    about: "After a break at B, hosts wrote at both sides. A is told to follow B from the newest snapshot that both hold. The \
            source is B, the destination A. Old: A takes host writes and has everything they wrote. Between: A is read-only and \
            shows the same. New: A shows B's snapshot, and what its hosts wrote opens as a side branch.",
    source: B,
    may_stay_between: Fault::comes_later,
    rows: &[
        Row {
            step: "find the common snapshot",
            calls: &[(A, "take snapshot"), (B, "compare"), (A, "delete snapshot")],
            holds: OLD,
            then: [F, C, F, F, R, R, C, F, R, R, F, F, F, F, F, C],
        },
        Row {
            step: "pin the base",
            calls: &[(A, "pin")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, F, F, C],
        },
        Row {
            step: "become a replica",
            calls: &[(A, "set record")],
            holds: Holds::Changes(Stage::Old, Stage::Between),
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, F, F, C],
        },
        Row {
            step: "ask for the transfer",
            calls: &[(A, "staged"), (A, "abandon staged"), (B, "begin")],
            holds: BETWEEN,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, E, F, C],
        },
        Row {
            step: "take the snapshot",
            calls: &[(B, "take snapshot"), (B, "pin"), (B, "begin")],
            holds: BETWEEN,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, R, F, C],
        },
        Row {
            step: "stage",
            calls: &[(A, "stage")],
            holds: BETWEEN,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, R, F, C],
        },
        Row {
            step: "data",
            calls: &[(B, "stream"), (A, "adopt"), (B, "read"), (A, "read"), (A, "write"), (A, "discard")],
            holds: BETWEEN,
            then: [F, R, F, F, E, E, R, F, E, E, F, F, F, R, F, C],
        },
        Row {
            step: "verify the content",
            calls: &[(A, "checkpoint"), (A, "staged root")],
            holds: BETWEEN,
            then: [F, R, F, F, F, F, R, F, F, F, F, F, F, R, F, C],
        },
        Row {
            step: "commit",
            calls: &[(A, "commit")],
            holds: Holds::Changes(Stage::Between, Stage::New),
            then: [F, R, F, F, F, F, E, F, F, F, F, F, F, R, F, C],
        },
        Row {
            step: "release the old bases",
            calls: &[(A, "unpin"), (A, "delete snapshot")],
            holds: NEW,
            then: [F, R, F, F, F, F, F, F, F, F, F, F, F, R, F, C],
        },
        Row {
            step: "acknowledge",
            calls: &[
                (B, "acknowledge"),
                (B, "pin"),
                (B, "unpin"),
                (B, "delete snapshot"),
                (A, "unpin"),
                (A, "delete snapshot"),
            ],
            holds: NEW,
            then: [F, R, F, F, F, F, F, F, F, F, F, F, F, R, F, C],
        },
        Row {
            step: "end",
            calls: &[(B, "end")],
            holds: NEW,
            then: [F, F, F, F, F, F, F, F, F, F, F, F, F, R, F, C],
        },
    ],
};

pub(crate) struct Resync {
    world: World,
    /// What A holds before.
    before: Vec<Uuid>,
}

impl World {
    /// The mirror was broken off at B, and hosts have written on both sides since; the source has heard of it.
    pub(crate) async fn diverged(seed: u64) -> World {
        let mut world = World::mirrored(seed).await;
        world.scribble(A, 4);
        transfer(&world.mirror(B), TransferKind::Update).await.unwrap();
        world.scribble(A, 4);
        world.mirror(B).break_off(None).await.unwrap();
        let shown = world.shown(B).unwrap();
        world.watch.live.lock().insert(B, shown);
        world.scribble(B, 5);
        // The closing message, and the news that A was overtaken.
        sleep(Duration::from_secs(5)).await;
        world
    }
}

impl Operation for Resync {
    const TABLE: &'static Table = &RESYNC;
    // Before the first commit the bases of the mirror that was broken off are there still.
    const NEEDS_BASE: bool = false;

    async fn prepare(seed: u64) -> Self {
        let world = World::diverged(seed).await;
        let before = world.snapshots(A).iter().map(|s| s.uuid).collect();
        Resync { world, before }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn start(&self) -> JoinHandle<Result<(), String>> {
        let destination = self.world.pair.a.destination.clone();
        let peer = self.world.pair.b.node.id();
        let (source, volume) = (self.world.volume(B), self.world.volume(A));
        tokio::spawn(async move {
            let follows = destination.resync_from(peer, source, volume, Schedule::OnRequest, PATIENCE).await;
            let (_, asked) = follows.map_err(|e| e.to_string())?;
            let report = asked.ended().await.map_err(|e| e.to_string())?;
            report.reason.map_or(Ok(()), Err)
        })
    }

    async fn check(&mut self, stage: Stage) {
        let world = &self.world;
        assert!(world.is_writable(B), "B is its hosts'");
        assert_eq!(world.is_writable(A), stage == Stage::Old);
        let mirror = world.pair.a.destination.mirror(&world.volume(A)).ok();
        let at_a = world.snapshots(A);
        world.snapshots(B);
        let shown = world.shown(A);
        if stage == Stage::New {
            let published = world.published(A).expect("a version is published");
            assert!(!self.before.contains(&published.uuid), "still the old version");
            let expected = world.watch.snapshots.lock()[&published.uuid].clone();
            assert!(shown == Some(expected), "readers see another version than the published one");
            let rescued = at_a.iter().find(|s| s.name.starts_with("rescue-")).expect("a side branch");
            assert!(
                world.watch.snapshots.lock()[&rescued.uuid] == world.watch.live.lock()[&A],
                "the side branch holds other bytes"
            );
            assert!(mirror.is_none_or(|m| m.status().state == State::Mirrored));
        } else {
            let own = world.watch.live.lock()[&A].clone();
            assert!(shown == Some(own), "A shows something else than its hosts wrote");
            // What was taken to be compared goes with the next resync at the latest.
            let is_probe = |s: &SnapshotInfo| s.name.starts_with("mirror-probe-");
            let stays = |s: &SnapshotInfo| is_probe(s) || self.before.contains(&s.uuid);
            assert!(at_a.iter().all(stays), "{at_a:?}");
        }
    }

    fn is_between(&self) -> bool {
        !self.world.is_writable(A)
    }

    /// The command makes the row anew, from what the pool remembers.
    async fn create_again(&mut self) {
        // Until the record is written only the database knows the relationship that the base was pinned for.
        self.world.has_orphan = self.world.is_writable(A);
    }

    async fn repeat(&mut self) -> Result<(), String> {
        self.start().await.unwrap()
    }

    /// B's hosts write on, and A follows; then the roles are turned round once more.
    async fn go_on(&mut self) {
        let world = &mut self.world;
        world.watch.live.lock().remove(&A);
        world.scribble(B, 3);
        let mirror = world.mirror(A);
        transfer(&mirror, TransferKind::Update)
            .await
            .unwrap_or_else(|e| panic!("the next update failed: {e}"));
        let live = world.watch.live.lock()[&B].clone();
        assert!(world.shown(A) == Some(live), "the next update brought something else");
        world.check_one_base(B, A);

        mirror.break_off(None).await.unwrap();
        let shown = world.shown(A).unwrap();
        world.watch.live.lock().insert(A, shown);
        world.scribble(A, 3);
        sleep(Duration::from_secs(5)).await;
        let (peer, source, replica) = (world.pair.a.node.id(), world.volume(A), world.volume(B));
        let back = &world.pair.b.destination;
        let back = back.resync_from(peer, source, replica, Schedule::OnRequest, PATIENCE).await;
        let (_, asked) = back.unwrap_or_else(|e| panic!("no way back: {e}"));
        let report = asked.ended().await.unwrap();
        assert_eq!(report.reason, None);
        let live = world.watch.live.lock()[&A].clone();
        assert!(world.shown(B) == Some(live), "the way back brought something else");
        world.watch.live.lock().remove(&B);
        world.check_one_base(A, B);
    }
}
