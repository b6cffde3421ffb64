//! Swap: a planned role change. A's volume is the original, B's the replica, and the command is given at B.

use std::time::Duration;

use farside_mirror::{Schedule, State};
use farside_transfer::TransferKind;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::run::Operation;
use crate::site::PATIENCE;
use crate::table::{B as L, C, CHANGES, E, F, Fault, NEW, OLD, R, Row, Stage, Table, X};
use crate::watch::Side::{A, B};
use crate::world::{World, transfer};

pub(crate) static SWAP: Table = Table {
    operation: "Swap",
    about: "The roles change, and nothing is lost. Old: A takes host writes, B is its replica. New: B takes host writes and has \
            every byte that hosts flushed at A; A is its replica. In between neither takes writes. A failure \
            before the roles change is undone as soon as the two sites have a session.",
    source: A,
    may_stay_between: |fault| matches!(fault, Fault::LoseDestinationDatabase | Fault::LoseSourceDatabase),
    rows: &[
        Row {
            step: "update",
            calls: &[
                (B, "staged"),
                (B, "abandon staged"),
                (A, "begin"),
                (A, "take snapshot"),
                (A, "pin"),
                (B, "stage"),
                (A, "stream"),
                (A, "read"),
                (B, "read"),
                (B, "write"),
                (B, "discard"),
                (B, "checkpoint"),
                (B, "staged root"),
                (B, "commit"),
                (B, "unpin"),
                (B, "delete snapshot"),
                (A, "acknowledge"),
                (A, "unpin"),
                (A, "delete snapshot"),
                (A, "end"),
            ],
            holds: OLD,
            then: [F, R, F, F, E, E, E, F, R, R, F, F, F, X, E, C],
        },
        Row {
            step: "fence the original",
            calls: &[
                (A, "swap"),
                (A, "take snapshot"),
                (A, "pin"),
                (A, "set record"),
                (A, "unpin"),
                (A, "delete snapshot"),
            ],
            holds: OLD,
            then: [F, R, F, F, E, R, R, F, R, R, F, F, F, X, L, C],
        },
        Row {
            step: "update to its last snapshot",
            calls: &[
                (B, "staged"),
                (B, "abandon staged"),
                (A, "begin"),
                (A, "pin"),
                (B, "stage"),
                (A, "stream"),
                (A, "read"),
                (B, "read"),
                (B, "write"),
                (B, "discard"),
                (B, "checkpoint"),
                (B, "staged root"),
                (B, "commit"),
                (B, "unpin"),
                (B, "delete snapshot"),
                (A, "acknowledge"),
                (A, "unpin"),
                (A, "delete snapshot"),
                (A, "end"),
            ],
            holds: OLD,
            then: [F, R, F, F, E, E, E, F, E, E, F, F, F, X, L, C],
        },
        Row {
            step: "ask whether it is still fenced",
            calls: &[(A, "end"), (A, "swap")],
            holds: OLD,
            then: [F, R, F, F, F, F, R, F, E, E, F, F, F, F, L, C],
        },
        Row {
            step: "pin the last snapshot",
            calls: &[(A, "end"), (B, "pin"), (B, "abandon staged")],
            holds: OLD,
            then: [F, R, F, F, F, F, R, F, F, F, F, F, F, F, F, C],
        },
        Row {
            step: "change the roles",
            calls: &[(B, "set record")],
            holds: CHANGES,
            then: [F, R, F, F, F, F, E, F, F, F, F, F, F, F, F, C],
        },
        Row {
            step: "tell the former original",
            calls: &[
                (A, "end"),
                (A, "swap"),
                (A, "unpin"),
                (A, "delete snapshot"),
                (A, "set record"),
                (A, "overtaken"),
            ],
            holds: NEW,
            then: [F, E, F, F, F, F, F, F, F, F, F, F, F, F, F, C],
        },
    ],
};

pub(crate) struct Swap {
    world: World,
}

impl Operation for Swap {
    const TABLE: &'static Table = &SWAP;
    const ONE_WRITABLE: bool = true;

    async fn prepare(seed: u64) -> Self {
        let mut world = World::mirrored(seed).await;
        sleep(Duration::from_secs(1)).await;
        world.scribble(A, 6);
        Swap { world }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn start(&self) -> JoinHandle<Result<(), String>> {
        let (destination, volume) = (self.world.pair.b.destination.clone(), self.world.volume(B));
        tokio::spawn(
            async move { destination.swap(&volume, PATIENCE).await.map(drop).map_err(|e| e.to_string()) },
        )
    }

    async fn check(&mut self, stage: Stage) {
        if stage == Stage::New {
            self.know_a().await;
        }
        let world = &self.world;
        world.snapshots(A);
        world.snapshots(B);
        let is_new = stage == Stage::New;
        let writable = (world.is_writable(A), world.is_writable(B));
        assert_eq!(writable, (stage == Stage::Old, is_new));
        let live = world.watch.live.lock()[&A].clone();
        assert!(world.shown(A).as_ref() == Some(&live), "flushed writes are missing at the original");
        let mirror = world.pair.b.destination.mirror(&world.volume(B)).ok();
        if is_new {
            let shown = world.shown(B).unwrap();
            // Its new hosts may have resized it already.
            let common = shown.len().min(live.len());
            assert!(shown[..common] == live[..common], "flushed writes are missing after the role change");
            assert!(mirror.is_none_or(|m| m.status().state == State::BrokenOff));
            let reverse = world.pair.a.destination.mirror(&world.volume(A));
            assert!(reverse.is_ok_and(|m| m.status().state == State::Mirrored));
        } else {
            assert!(mirror.is_none_or(|m| m.status().state == State::Mirrored));
        }
    }

    fn is_between(&self) -> bool {
        !self.world.is_writable(A) && !self.world.is_writable(B)
    }

    /// The original's database is gone and its pool says that it is a replica: it is made a mirror of that name again,
    /// and broken off.
    async fn break_first(&mut self) {
        // Until A's record is written only its database knows the relationship that the last snapshot was pinned for.
        self.world.has_orphan = self.world.is_writable(A);
        if !self.world.is_writable(A) {
            self.know_a().await;
            self.world.mirror(A).break_off(None).await.unwrap();
        }
    }

    async fn create_again(&mut self) {
        let world = &self.world;
        let is_broken = world.is_writable(B);
        if !is_broken && world.pair.b.destination.mirror(&world.volume(B)).is_err() {
            world.pair.mirror(Schedule::OnRequest).await;
        }
    }

    async fn repeat(&mut self) -> Result<(), String> {
        if self.world.is_writable(B) {
            return Ok(());
        }
        self.start().await.unwrap()
    }

    /// Hosts write at B, and A follows.
    async fn go_on(&mut self) {
        let world = &mut self.world;
        let shown = world.shown(B).unwrap();
        world.watch.live.lock().insert(B, shown);
        world.watch.live.lock().remove(&A);
        world.scribble(B, 4);
        let mirror = world.mirror(A);
        if let Err(reason) = transfer(&mirror, TransferKind::Update).await {
            // B's database is gone: it does not remember to say that it has turned. A follows when it is told to.
            assert!(reason.contains("a role change is under way"), "the next update failed: {reason}");
            let asked = mirror.resync(PATIENCE).await.unwrap_or_else(|e| panic!("A cannot follow: {e}"));
            assert_eq!(asked.ended().await.unwrap().reason, None);
        }
        let live = world.watch.live.lock()[&B].clone();
        assert!(world.shown(A) == Some(live), "the next update brought something else");
        world.check_one_base(B, A);
    }
}

impl Swap {
    /// With A's database lost the mirror there is made again from what the pool knows.
    async fn know_a(&mut self) {
        let (original, replica) = (self.world.volume(A), self.world.volume(B));
        let (a, peer) = (&self.world.pair.a.destination, self.world.pair.b.node.id());
        if a.mirror(&original).is_err() {
            a.create(peer, replica, original, Schedule::OnRequest, PATIENCE, true).await.unwrap();
            // What B has to say was not understood without it; it is said again at the next session.
            self.world.pair.network.reset("a", "b");
            sleep(Duration::from_secs(20)).await;
        }
    }
}
