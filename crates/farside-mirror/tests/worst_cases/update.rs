//! Initialise and update: the two kinds of transfer from A to B.

use farside_engine::SnapshotInfo;
use farside_mirror::{Schedule, State};
use farside_transfer::TransferKind;
use tokio::task::JoinHandle;

use rand::Rng;
use std::time::Duration;
use tokio::time::sleep;

use crate::run::Operation;
use crate::site::PATIENCE;
use crate::table::{C, CHANGES, E, F, NEW, OLD, R, Row, Stage, Table, X};
use crate::watch::Side::{A, B};
use crate::world::{World, transfer};

pub(crate) static INITIALIZE: Table = Table {
    operation: "Initialise",
    about: "The mirror is created and the first copy is made. Old: nothing to see, `uninitialized`. New: the first snapshot of \
            the source, `mirrored`.",
    source: A,
    may_stay_between: |_| false,
    rows: &[
        Row {
            step: "ask for permission",
            calls: &[(A, "describe")],
            holds: OLD,
            then: [F, C, F, F, R, C, C, F, C, C, F, F, F, F, F, C],
        },
        Row {
            step: "make the volume",
            calls: &[(B, "create volume"), (B, "set record")],
            holds: OLD,
            then: [F, C, F, F, R, R, C, F, R, R, F, F, F, F, F, C],
        },
        Row {
            step: "ask for the transfer",
            calls: &[(B, "staged"), (A, "begin")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, E, F, C],
        },
        Row {
            step: "take the snapshot",
            calls: &[(A, "take snapshot"), (A, "pin"), (A, "begin")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, R, F, C],
        },
        Row {
            step: "stage",
            calls: &[(B, "stage")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, R, F, C],
        },
        Row {
            step: "data",
            calls: &[(A, "stream"), (B, "adopt"), (A, "read"), (B, "write"), (B, "discard")],
            holds: OLD,
            then: [F, R, F, F, E, E, R, F, E, E, F, F, F, X, F, C],
        },
        Row {
            step: "verify the content",
            calls: &[(B, "checkpoint"), (B, "staged root")],
            holds: OLD,
            then: [F, R, F, F, F, F, R, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "commit",
            calls: &[(B, "commit")],
            holds: CHANGES,
            then: [F, R, F, F, F, F, E, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "acknowledge",
            calls: &[(A, "acknowledge"), (A, "pin")],
            holds: NEW,
            then: [F, R, F, F, F, F, F, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "end",
            calls: &[(A, "end")],
            holds: NEW,
            then: [F, F, F, F, F, F, F, F, F, F, F, F, F, X, F, C],
        },
    ],
};

pub(crate) static UPDATE: Table = Table {
    operation: "Update",
    about: "What changed since the base travels. Old: the version before. New: the snapshot taken for this update. The mirror is \
            `mirrored` in both.",
    source: A,
    may_stay_between: |_| false,
    rows: &[
        Row {
            step: "ask for the transfer",
            calls: &[(B, "staged"), (A, "begin")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, X, F, C],
        },
        Row {
            step: "take the snapshot",
            calls: &[(A, "take snapshot"), (A, "pin"), (A, "begin")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, X, F, C],
        },
        Row {
            step: "stage",
            calls: &[(B, "stage")],
            holds: OLD,
            then: [F, R, F, F, R, R, R, F, R, R, F, F, F, X, F, C],
        },
        Row {
            step: "data",
            calls: &[(A, "stream"), (A, "read"), (B, "read"), (B, "write"), (B, "discard")],
            holds: OLD,
            then: [F, R, F, F, E, E, R, F, E, E, F, F, F, X, F, C],
        },
        Row {
            step: "verify the content",
            calls: &[(B, "checkpoint"), (B, "staged root")],
            holds: OLD,
            then: [F, R, F, F, F, F, R, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "commit",
            calls: &[(B, "commit")],
            holds: CHANGES,
            then: [F, R, F, F, F, F, E, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "release the old base",
            calls: &[(B, "unpin"), (B, "delete snapshot")],
            holds: NEW,
            then: [F, R, F, F, F, F, F, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "acknowledge",
            calls: &[(A, "acknowledge"), (A, "pin"), (A, "unpin"), (A, "delete snapshot")],
            holds: NEW,
            then: [F, R, F, F, F, F, F, F, F, F, F, F, F, X, F, C],
        },
        Row {
            step: "end",
            calls: &[(A, "end")],
            holds: NEW,
            then: [F, F, F, F, F, F, F, F, F, F, F, F, F, X, F, C],
        },
    ],
};

const EVERY: Duration = Duration::from_secs(60);

/// A mirror from A to B and what it showed before.
struct Transferring {
    world: World,
    kind: TransferKind,
    before: Option<SnapshotInfo>,
}

impl Transferring {
    fn start(&self) -> JoinHandle<Result<(), String>> {
        let destination = self.world.pair.b.destination.clone();
        let (peer, kind) = (self.world.pair.a.node.id(), self.kind);
        let (source, replica) = (self.world.volume(A), self.world.volume(B));
        tokio::spawn(async move {
            let mirror = match kind {
                TransferKind::Initialize => {
                    let made = destination.create(peer, source, replica, Schedule::OnRequest, PATIENCE, true);
                    made.await.map_err(|e| e.to_string())?
                }
                _ => destination.mirror(&replica).map_err(|e| e.to_string())?,
            };
            transfer(&mirror, kind).await.map(drop)
        })
    }

    fn published(&self) -> Option<SnapshotInfo> {
        self.world.snapshots(B).pop()
    }

    async fn check(&mut self, stage: Stage) {
        let is_new = stage == Stage::New;
        let world = &self.world;
        let published = self.published();
        assert!(!world.is_writable(B) || published.is_none(), "a replica is read-only");
        let mirror = world.pair.b.destination.mirror(&world.volume(B)).ok();
        if is_new {
            let published = published.expect("a version is published");
            assert_ne!(Some(published.uuid), self.before.as_ref().map(|b| b.uuid), "still the old version");
            let expected = world.watch.snapshots.lock()[&published.uuid].clone();
            assert!(world.shown(B) == Some(expected), "readers see another version than the published one");
            assert_eq!(mirror.expect("a mirror").status().state, State::Mirrored);
        } else {
            assert_eq!(published.map(|p| p.uuid), self.before.as_ref().map(|b| b.uuid), "another version");
            let shown = world.shown(B);
            match &self.before {
                Some(before) => {
                    let expected = world.watch.snapshots.lock()[&before.uuid].clone();
                    assert!(shown == Some(expected), "readers see another version than the old one");
                    assert_eq!(mirror.expect("a mirror").status().state, State::Mirrored);
                }
                None => {
                    assert!(
                        shown.is_none_or(|bytes| bytes.iter().all(|b| *b == 0)),
                        "something is to be seen"
                    );
                    assert!(mirror.is_none_or(|m| m.status().state == State::Uninitialized));
                }
            }
        }
    }

    async fn create_again(&mut self) {
        let world = &self.world;
        let destination = world.pair.b.destination.clone();
        if destination.mirror(&world.volume(B)).is_err() {
            world.pair.mirror(Schedule::OnRequest).await;
        }
    }

    async fn repeat(&mut self) -> Result<(), String> {
        let mirror = self.world.mirror(B);
        let is_there = mirror.status().state == State::Mirrored;
        let kind = if is_there { TransferKind::Update } else { TransferKind::Initialize };
        transfer(&mirror, kind).await.map(drop)
    }

    /// The next update completes; afterwards each side keeps the base in use and nothing else.
    async fn go_on(&mut self) {
        self.world.scribble(A, 3);
        let mirror = self.world.mirror(B);
        let live = self.world.watch.live.lock()[&A].clone();
        if self.world.rng.random_bool(0.5) {
            let updated = transfer(&mirror, TransferKind::Update).await;
            updated.unwrap_or_else(|e| panic!("the next update failed: {e}"));
        } else {
            // Schedules are alive, whatever the clocks say.
            mirror.set_schedule(Schedule::every(Some(EVERY)).unwrap()).await.unwrap();
            sleep(EVERY + EVERY / 2).await;
            mirror.set_schedule(Schedule::OnRequest).await.unwrap();
        }
        assert!(self.world.shown(B) == Some(live), "the next update brought something else");
        self.world.check_one_base(A, B);
    }
}

pub(crate) struct Initialize(Transferring);
pub(crate) struct Update(Transferring);

impl Operation for Initialize {
    const TABLE: &'static Table = &INITIALIZE;
    const NEEDS_BASE: bool = false;

    async fn prepare(seed: u64) -> Self {
        let world = World::new(seed).await;
        Initialize(Transferring { world, kind: TransferKind::Initialize, before: None })
    }

    fn world(&mut self) -> &mut World {
        &mut self.0.world
    }

    fn start(&self) -> JoinHandle<Result<(), String>> {
        self.0.start()
    }

    async fn check(&mut self, stage: Stage) {
        self.0.check(stage).await;
    }

    async fn create_again(&mut self) {
        self.0.create_again().await;
    }

    async fn repeat(&mut self) -> Result<(), String> {
        self.0.repeat().await
    }

    async fn go_on(&mut self) {
        self.0.go_on().await;
    }
}

impl Operation for Update {
    const TABLE: &'static Table = &UPDATE;

    async fn prepare(seed: u64) -> Self {
        let mut world = World::mirrored(seed).await;
        // The closing message of the first transfer is over.
        sleep(Duration::from_secs(1)).await;
        world.scribble(A, 6);
        let before = world.snapshots(B).pop();
        Update(Transferring { world, kind: TransferKind::Update, before })
    }

    fn world(&mut self) -> &mut World {
        &mut self.0.world
    }

    fn start(&self) -> JoinHandle<Result<(), String>> {
        self.0.start()
    }

    async fn check(&mut self, stage: Stage) {
        self.0.check(stage).await;
    }

    async fn create_again(&mut self) {
        self.0.create_again().await;
    }

    async fn repeat(&mut self) -> Result<(), String> {
        self.0.repeat().await
    }

    async fn go_on(&mut self) {
        self.0.go_on().await;
    }
}
