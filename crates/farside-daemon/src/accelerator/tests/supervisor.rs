//! A process that works, hangs, ends, talks nonsense, does not end.

use std::time::{Duration, Instant};

use farside_accel::control::{Command, Forward, Peer, StorePlace};
use farside_accel::policy::Action;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::desired::{Ask, Desired, Phase, Seen, Totals};
use super::super::supervisor::{Supervisor, SupervisorParts};
use super::fake::{Fake, PATIENCE, eventually};

/// What a busy machine takes longer.
const BUSY: Duration = Duration::from_secs(1);

struct Supervised {
    fake: Fake,
    desired: watch::Sender<Option<Desired>>,
    seen: watch::Receiver<Seen>,
    asks: mpsc::Sender<Ask>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn desired(number: u64) -> Desired {
    Desired {
        number,
        site_name: "a".into(),
        listen: "127.0.0.1:0".into(),
        interception: None,
        store: StorePlace { path: "chunks".into(), bytes: 1 << 30 },
        forward_to: Vec::new(),
        policies: Vec::new(),
        otherwise: Action::Full,
        peers: Vec::new(),
        forwards: Vec::new(),
    }
}

impl Supervised {
    fn start(mode: &str) -> Supervised {
        let fake = Fake::new(mode);
        let (seen_sender, seen) = watch::channel(Seen::default());
        let (asks, asked) = mpsc::channel(8);
        let (desired, stop) = (watch::Sender::new(Some(desired(1))), CancellationToken::new());
        let supervisor = Supervisor::new(SupervisorParts {
            program: fake.program(),
            environment: Vec::new(),
            data_dir: fake.path().to_path_buf(),
            desired: desired.subscribe(),
            asks: asked,
            seen: seen_sender,
            stop: stop.clone(),
        });
        let task = tokio::spawn(supervisor.run());
        Supervised { fake, desired, seen, asks, stop, task }
    }

    async fn sees(&mut self, what: &str, is_so: impl FnMut(&Seen) -> bool) -> Seen {
        let seen = timeout(PATIENCE, self.seen.wait_for(is_so)).await.map(|seen| seen.unwrap().clone());
        seen.unwrap_or_else(|_| panic!("{what} did not come about: {:?}", self.seen.borrow()))
    }

    async fn works(&mut self) -> Seen {
        self.sees("it works", |seen| matches!(seen.phase, Phase::Running(_))).await
    }

    async fn is_down(&mut self) -> String {
        let seen = self.sees("it is down", |seen| matches!(seen.phase, Phase::Down { .. })).await;
        let Phase::Down { why } = seen.phase else { panic!("it is") };
        why
    }

    async fn stops(self) -> (Fake, Duration) {
        let began = Instant::now();
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.expect("it stops").unwrap();
        (self.fake, began.elapsed())
    }
}

#[tokio::test]
async fn a_process_is_told_what_changes_and_asked_and_ended_in_order() {
    let mut it = Supervised::start("work");
    let seen = it.works().await;
    assert_eq!((seen.number, seen.restarts, seen.totals().taken), (1, 0, 5));
    let started = it.fake.requests()[0].clone();
    assert!(started.contains("\"start\"") && started.contains("PRIVATE KEY"), "it has the site's identity");

    let peer = Peer { id: "00".repeat(32), name: "north".into(), address: None, subnets: Vec::new() };
    let forward =
        Forward { listen: "127.0.0.1:1".parse().unwrap(), destination: "h:2".into(), peer: "north".into() };
    it.desired.send_replace(Some(Desired { peers: vec![peer.clone()], ..desired(1) }));
    let fake = &it.fake;
    let was_told = |word: &str| fake.requests().iter().any(|line| line.contains(word));
    eventually("it is told of the peer", || was_told("{\"peers\":[{\"id\":\"00")).await;
    it.desired.send_replace(Some(Desired { peers: vec![peer], forwards: vec![forward], ..desired(1) }));
    eventually("it is told of the forward", || was_told("{\"forwards\":[{\"listen\"")).await;

    let (answer, answered) = oneshot::channel();
    it.asks.send(Ask { command: Command::Connections, descriptor: None, answer }).await.unwrap();
    let answer = timeout(PATIENCE, answered).await.unwrap().unwrap();
    assert_eq!(answer, Ok(serde_json::json!([])));
    assert_eq!(it.fake.starts().len(), 1, "all that by one process");

    it.desired.send_replace(None);
    let seen = it.sees("it is off", |seen| seen.phase == Phase::Off).await;
    let [(pid, _)] = it.fake.starts()[..] else { panic!("one") };
    assert!(it.fake.ended_in_order() && !Fake::is_there(pid));
    let kept = Totals {
        passed_through: 3,
        taken: 5,
        reset: 3,
        original_bytes: 1000,
        wire_bytes: 100,
        ..Totals::default()
    };
    assert_eq!(seen.totals(), kept, "what it counted stays; its two connections went with it");

    let (answer, answered) = oneshot::channel();
    it.asks.send(Ask { command: Command::Connections, descriptor: None, answer }).await.unwrap();
    assert!(timeout(PATIENCE, answered).await.unwrap().is_err(), "there is nobody to ask");
    it.stops().await;
}

#[tokio::test]
async fn a_process_that_hangs_is_killed_and_another_takes_its_place() {
    let mut it = Supervised::start("work");
    it.works().await;
    let [(pid, _)] = it.fake.starts()[..] else { panic!("one") };
    it.fake.hangs(true);
    let began = Instant::now();
    let why = it.is_down().await;
    let hung = began.elapsed();
    it.fake.hangs(false);
    assert!(why.contains("it hung"), "{why}");
    assert!(hung < Duration::from_secs(2) + BUSY, "{hung:?}");
    assert!(!Fake::is_there(pid), "killed, and reaped");
    let seen = it.works().await;
    assert_eq!((seen.restarts, seen.totals().taken), (1, 10), "both are counted");
    assert_eq!(it.fake.starts().len(), 2);
    it.stops().await;
}

#[tokio::test]
async fn a_process_that_is_killed_comes_back_by_itself() {
    let mut it = Supervised::start("work");
    it.works().await;
    let [(pid, _)] = it.fake.starts()[..] else { panic!("one") };
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let why = it.is_down().await;
    assert!(why.contains("ended: signal: 9"), "{why}");
    it.works().await;
    it.stops().await;
}

#[tokio::test]
async fn a_process_that_ends_is_started_again_with_pauses_that_grow() {
    let mut it = Supervised::start("exit");
    let why = it.is_down().await;
    assert!(why.contains("exit status: 3"), "{why}");
    let fake = &it.fake;
    eventually("it is started again and again", || fake.starts().len() >= 4).await;
    let starts = it.fake.starts();
    for (pair, pause) in starts.windows(2).zip([200, 400, 800]) {
        assert!(pair[1].1 - pair[0].1 >= pause, "{starts:?}");
    }
    it.fake.becomes("work");
    let seen = it.works().await;
    assert!(seen.restarts >= 4, "{}", seen.restarts);
    // What was said anew begins at once.
    it.fake.becomes("exit");
    it.desired.send_replace(Some(desired(2)));
    it.is_down().await;
    assert!(it.fake.starts().len() >= 6);
    it.stops().await;
}

#[tokio::test]
async fn a_process_that_talks_nonsense_is_killed() {
    for (mode, said) in [("garbage", "makes no sense"), ("unasked", "answered request 77")] {
        let mut it = Supervised::start(mode);
        let why = it.is_down().await;
        assert!(why.contains(said) && why.contains("killed"), "{mode}: {why}");
        assert!(it.fake.starts().iter().all(|(pid, _)| !Fake::is_there(*pid)), "{mode}");
        it.fake.becomes("work");
        it.works().await;
        it.stops().await;
    }
}

#[tokio::test]
async fn a_process_that_refuses_says_why() {
    let mut it = Supervised::start("refuse");
    let why = it.is_down().await;
    assert_eq!(why, "it must not intercept: CAP_NET_ADMIN is missing");
    it.stops().await;
}

#[tokio::test]
async fn without_a_program_or_an_identity_the_reason_is_shown() {
    let mut it = Supervised::start("work");
    it.works().await;
    std::fs::remove_file(it.fake.path().join("identity.pem")).unwrap();
    it.desired.send_replace(Some(desired(2)));
    let why = it.is_down().await;
    assert!(why.contains("identity.pem is not there"), "{why}");
    std::fs::remove_file(it.fake.program()).unwrap();
    farside_peer::Identity::load_or_create(it.fake.path()).unwrap();
    let seen = it.sees(
        "no program",
        |seen| matches!(&seen.phase, Phase::Down { why } if why.contains("cannot start")),
    );
    seen.await;
    it.stops().await;
}

#[tokio::test]
async fn other_settings_take_another_process() {
    let mut it = Supervised::start("work");
    it.works().await;
    it.desired.send_replace(Some(Desired { listen: "127.0.0.2:0".into(), ..desired(2) }));
    let seen = it.sees("it works", |seen| seen.number == 2 && matches!(seen.phase, Phase::Running(_))).await;
    assert_eq!((it.fake.starts().len(), seen.restarts), (2, 0), "nothing failed");
    assert!(it.fake.requests().last().unwrap().contains("forwards"), "{:?}", it.fake.requests());
    it.stops().await;
}

#[tokio::test]
async fn the_daemons_end_ends_every_process() {
    let mut it = Supervised::start("work");
    it.works().await;
    let (fake, _) = it.stops().await;
    assert!(fake.ended_in_order(), "it saw its socket's end");

    // One that does not hear: it gets 2 s.
    let mut it = Supervised::start("deaf");
    it.works().await;
    let (fake, took) = it.stops().await;
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3) + BUSY, "{took:?}");
    for fake in [fake, Supervised::start("exit").stops().await.0] {
        assert!(fake.starts().iter().all(|(pid, _)| !Fake::is_there(*pid)));
    }
}
