//! Break: the replica is taken over, whatever the source and the link are doing.

use std::time::Duration;

use farside_link::LinkSettings;
use farside_mirror::{Schedule, State};
use farside_transfer::{Phase, Progress, TransferKind};
use rand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::run::Operation;
use crate::site::slow;
use crate::table::{C, CHANGES, E, F, NEW, OLD, R, Row, Stage, Table};
use crate::watch::Side::{A, B};
use crate::world::{World, transfer};

pub(crate) static BREAK: Table = Table {
    operation: "Break",
    about: "The replica becomes writable. Old: still a replica, `mirrored`, read-only. New: `broken-off`, writable, with the bytes \
            it showed before. Nothing that happens at the source matters, because it is never asked.",
    source: A,
    may_stay_between: |_| false,
    rows: &[
        Row {
            step: "stop the transfer",
            calls: &[
                (A, "stream"),
                (A, "read"),
                (B, "read"),
                (B, "write"),
                (B, "discard"),
                (B, "checkpoint"),
                (A, "end"),
                (B, "abandon staged"),
            ],
            holds: OLD,
            then: [F, R, F, F, F, F, R, F, F, F, F, F, F, F, F, C],
        },
        Row {
            step: "write the record",
            calls: &[(B, "set record")],
            holds: CHANGES,
            then: [F, R, F, F, F, F, E, F, F, F, F, F, F, F, F, C],
        },
        Row {
            step: "tell the source",
            calls: &[(A, "overtaken"), (A, "end")],
            holds: NEW,
            then: [F, F, F, F, F, F, F, F, F, F, F, F, F, F, F, C],
        },
    ],
};

pub(crate) struct Break {
    world: World,
    /// What the replica shows before, and must show after.
    shown: Vec<u8>,
}

impl Operation for Break {
    const TABLE: &'static Table = &BREAK;

    async fn prepare(seed: u64) -> Self {
        let mut world = World::mirrored(seed).await;
        sleep(Duration::from_secs(1)).await;
        world.scribble(A, 6);
        let shown = world.shown(B).unwrap();
        if seed % 2 == 1 {
            // In the middle of an update, whose data takes seconds.
            let noise: Vec<u8> = (0..512 << 10).map(|_| world.rng.random()).collect();
            world.write(A, 0, &noise);
            world.pair.network.set_link("a", "b", LinkSettings { bytes_per_second: Some(100_000), ..slow() });
            let mirror = world.mirror(B);
            let mut progress = mirror.progress();
            tokio::spawn(async move { transfer(&mirror, TransferKind::Update).await });
            let is_under_way =
                |p: &Option<Progress>| p.as_ref().is_some_and(|p| p.phase == Phase::Difference);
            progress.wait_for(is_under_way).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        Break { world, shown }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn start(&self) -> JoinHandle<Result<(), String>> {
        let mirror = self.world.mirror(B);
        tokio::spawn(async move {
            let begun = Instant::now();
            let broken = mirror.break_off(None).await.map_err(|e| e.to_string());
            assert!(begun.elapsed() < Duration::from_secs(2), "break took {:?}", begun.elapsed());
            broken
        })
    }

    async fn check(&mut self, stage: Stage) {
        let is_new = stage == Stage::New;
        let world = &self.world;
        assert_eq!(world.is_writable(B), is_new);
        let record = world.engine(B).replica_record(&world.volume(B)).unwrap().expect("a record");
        assert_eq!(record.broken_off, is_new);
        // Without a database the pool alone says it.
        if let Ok(mirror) = world.pair.b.destination.mirror(&world.volume(B)) {
            let expected = if is_new { State::BrokenOff } else { State::Mirrored };
            assert_eq!(mirror.status().state, expected);
        }
        let shown = world.shown(B).unwrap();
        let common = shown.len().min(self.shown.len());
        assert!(shown[..common] == self.shown[..common], "break changed what is shown");
        assert!(shown.len() == self.shown.len() || is_new, "a replica was resized");
        world.snapshots(A);
        world.snapshots(B);
    }

    async fn create_again(&mut self) {
        let engine = self.world.engine(B);
        let is_broken = engine.replica_record(&self.world.volume(B)).unwrap().unwrap().broken_off;
        // What is broken off needs no mirror to be used; `create` would refuse to hide what hosts write to it.
        if !is_broken {
            self.world.pair.mirror(Schedule::OnRequest).await;
        }
    }

    async fn repeat(&mut self) -> Result<(), String> {
        match self.world.pair.b.destination.mirror(&self.world.volume(B)) {
            Ok(mirror) if mirror.status().state != State::BrokenOff => {
                mirror.break_off(None).await.map_err(|e| e.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Hosts write at B, and what they flush survives; so does what they write at A.
    async fn go_on(&mut self) {
        let shown = self.world.shown(B).unwrap();
        self.world.watch.live.lock().insert(B, shown);
        self.world.scribble(B, 5);
        self.world.scribble(A, 5);
        self.world.restart(B, None, 7).await;
        self.check_written();
    }
}

impl Break {
    fn check_written(&self) {
        self.world.check_live(B);
        assert!(self.world.is_writable(B));
    }
}
