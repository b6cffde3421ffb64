//! Connections of clients at this side: their SYNs are held until the peer's box has connected to the server.
//!
//! What must hold: every held SYN is decided, the latest when the peer's answer is overdue; a SYN that comes again gets the same
//! decision; whatever goes wrong, it goes its plain way.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::state::{Accelerator, Begin, Taken, patience};
use crate::carry;
use crate::kernel::{Decision, Held, Origin, SynQueue};
use crate::packet::{Packet, Syn};
use crate::policy::{Demotion, Ends};
use crate::protocol::{Open, OpenTarget, ProbeDatagram, Refusal};
use crate::trunk::{Outcome, Trunk};

/// How long a decision holds for a SYN that comes again. A client tries again after 1 s, 3 s and 7 s.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
/// How often those are looked for that are remembered no longer.
const FORGET_EVERY: Duration = Duration::from_secs(1);
/// How long a client may take to complete a connection that its server has accepted.
const EXPECTED_FOR: Duration = Duration::from_secs(10);
/// SYNs that are held at a time; more go their plain way.
const HELD_MAX: usize = 4096;
/// Decisions remembered; beyond that one that comes again is a new one.
const DECIDED_MAX: usize = 65_536;
/// How often what is over is looked for, and the process's heart beats.
const TICK: Duration = Duration::from_millis(100);

/// A SYN: its ends, and its sequence number, which tells one that comes again from the next connection on the same ports.
type Attempt = (Ends, u32);

/// Connections that are let through to the listener and have not come there yet.
#[derive(Default)]
pub(super) struct Expected(Mutex<HashMap<Ends, (Taken, Instant)>>);

impl Expected {
    fn put(&self, ends: Ends, taken: Taken) {
        let replaced = self.0.lock().insert(ends, (taken, Instant::now()));
        give_up(replaced.map(|(taken, _)| taken));
    }

    fn take(&self, ends: &Ends) -> Option<Taken> {
        self.0.lock().remove(ends).map(|(taken, _)| taken)
    }

    /// Gives up those whose clients did not come; their servers.
    fn end_overdue(&self) -> Vec<SocketAddr> {
        let (mut overdue, mut servers) = (Vec::new(), Vec::new());
        self.0.lock().retain(|ends, (taken, since)| {
            let keep = since.elapsed() < EXPECTED_FOR;
            if !keep {
                overdue.push((Arc::clone(&taken.trunk), taken.flow.id));
                servers.push(ends.server);
            }
            keep
        });
        for (trunk, flow) in overdue {
            trunk.abandon(flow);
        }
        servers
    }
}

/// The server's box is told that nobody comes.
fn give_up(taken: Option<Taken>) {
    if let Some(taken) = taken {
        taken.trunk.abandon(taken.flow.id);
    }
}

/// Holds SYNs and lets them go, until the queue fails.
pub(super) async fn hold(
    accelerator: Arc<Accelerator>,
    mut queue: SynQueue,
    expected: Arc<Expected>,
) -> io::Result<()> {
    let (decide, mut decisions) = mpsc::unbounded_channel::<(Attempt, Decision)>();
    let mut held: HashMap<Attempt, (Held, Instant)> = HashMap::new();
    let figures = Arc::clone(&accelerator.connections.figures);
    let mut decided: HashMap<Attempt, (Decision, Instant)> = HashMap::new();
    let mut forgets_at = Instant::now();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            packet = queue.recv() => {
                let packet = packet?;
                let decision = match &packet.packet {
                    Packet::Syn(syn) => {
                        let attempt = (syn.ends, syn.sequence);
                        if let Some((decision, _)) = decided.get(&attempt) {
                            Some(*decision)
                        } else if held.contains_key(&attempt) {
                            // Its first is still here.
                            Some(Decision::Drop)
                        } else if held.len() >= HELD_MAX {
                            Some(Decision::Plain)
                        } else {
                            match accelerator.begin(&syn.ends, packet.origin) {
                                Begin::Plain => Some(Decision::Plain),
                                Begin::Open(trunk) => {
                                    spawn_open(&accelerator, &expected, &decide, syn.clone(), packet.origin, trunk);
                                    None
                                }
                            }
                        }
                    }
                    Packet::Probe(probe) => {
                        let is_ours = ProbeDatagram::parse(&probe.payload)
                            .is_some_and(|datagram| accelerator.saw_probe(&datagram, probe.to.ip()));
                        // One for a box further on passes.
                        Some(if is_ours { Decision::Drop } else { Decision::Plain })
                    }
                    Packet::Other => Some(Decision::Plain),
                };
                match (decision, &packet.packet) {
                    (Some(decision), _) => decide_now(&accelerator, &mut queue, packet, decision),
                    (None, Packet::Syn(syn)) => {
                        let attempt = (syn.ends, syn.sequence);
                        held.insert(attempt, (packet, Instant::now()));
                        figures.held.store(held.len() as u64, Ordering::Relaxed);
                    }
                    (None, _) => decide_now(&accelerator, &mut queue, packet, Decision::Plain),
                }
            }
            Some((attempt, decision)) = decisions.recv() => {
                if let Some((packet, since)) = held.remove(&attempt) {
                    figures.connection_hold.observe(since.elapsed());
                    figures.held.store(held.len() as u64, Ordering::Relaxed);
                    decide_now(&accelerator, &mut queue, packet, decision);
                    if decided.len() < DECIDED_MAX {
                        decided.insert(attempt, (decision, Instant::now()));
                    }
                }
            }
            _ = tick.tick() => {
                accelerator.goes();
                accelerator.carried.tick();
                // Not at each tick: at 1,000 connections a second there are 10,000.
                let now = Instant::now();
                if now >= forgets_at {
                    decided.retain(|_, (_, since)| now.saturating_duration_since(*since) < REMEMBERED_FOR);
                    forgets_at = now + FORGET_EVERY;
                }
                for server in expected.end_overdue() {
                    accelerator.discovery.lock().failed(accelerator.now(), server, Demotion::NoAnswer);
                    tracing::warn!(
                        %server,
                        "a connection that its server accepted did not reach this process. If that goes on, a firewall's \
                         INPUT chain drops it here: accept what has mark 0xfa. New connections to that server go plainly"
                    );
                }
            }
        }
    }
}

/// The kernel may have no memory for a moment; one SYN is not worth all connections. It goes plainly, or its client tries again.
fn decide_now(accelerator: &Accelerator, queue: &mut SynQueue, packet: Held, decision: Decision) {
    if decision != Decision::Take
        && let Packet::Syn(Syn { ends, .. }) = &packet.packet
        && let Some(place) = accelerator.place_of(packet.origin)
    {
        // One from the same port was carried a moment ago.
        accelerator.carried.forget(place, ends.client, ends.server);
    }
    if let Err(error) = queue.decide(packet, decision) {
        tracing::warn!(%error, "the kernel does not take a decision about a connection that begins");
    }
}

/// Asks the peer's box, and says what becomes of the SYN. Whatever happens, something is said.
fn spawn_open(
    accelerator: &Arc<Accelerator>,
    expected: &Arc<Expected>,
    decide: &mpsc::UnboundedSender<(Attempt, Decision)>,
    syn: Syn,
    origin: Origin,
    trunk: Arc<Trunk>,
) {
    let (accelerator, expected, decide) = (Arc::clone(accelerator), Arc::clone(expected), decide.clone());
    let tasks = accelerator.tasks.clone();
    tasks.spawn(async move {
        let attempt = (syn.ends, syn.sequence);
        let said = Said { decide, attempt, decision: Decision::Plain };
        said.say(open(&accelerator, &expected, &syn, origin, trunk).await);
    });
}

/// Says a decision when it is dropped, so that a SYN is let go even if the task that thinks about it is lost.
struct Said {
    decide: mpsc::UnboundedSender<(Attempt, Decision)>,
    attempt: Attempt,
    decision: Decision,
}

impl Said {
    fn say(mut self, decision: Decision) {
        self.decision = decision;
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        let _ = self.decide.send((self.attempt, self.decision));
    }
}

async fn open(
    accelerator: &Accelerator,
    expected: &Expected,
    syn: &Syn,
    origin: Origin,
    trunk: Arc<Trunk>,
) -> Decision {
    let Ends { client, server } = syn.ends;
    let (application, configured) = accelerator.policy_of(&syn.ends, origin);
    let open = Open {
        target: OpenTarget::Transparent { client, server },
        dscp: Some(syn.dscp),
        action: configured,
        application: application.to_owned(),
        window: 0,
    };
    let pass = |reason| accelerator.connections.passed(syn.ends, &application, configured, reason);
    use Demotion::{NoAnswer, NoPeer, Overload, PeerLost};
    let failed = || accelerator.discovery.lock().failed(accelerator.now(), server, NoAnswer);
    match trunk.open_flow(open, patience(&trunk)).await {
        Outcome::Opened(flow, opened) => {
            accelerator.discovery.lock().connected(accelerator.now(), server);
            let kept = match accelerator.place_of(origin) {
                None => None,
                Some(place) => match accelerator.carried.keep(place, client, server) {
                    Ok(kept) => Some(kept.made()),
                    Err(error) => {
                        tracing::warn!(%client, %server, %error, "let through");
                        trunk.abandon(flow.id);
                        pass(Some(Overload));
                        return Decision::Plain;
                    }
                },
            };
            let application = application.to_owned();
            expected.put(syn.ends, Taken { trunk, flow, opened, application, configured, kept });
            Decision::Take
        }
        Outcome::Refused(refused) => {
            match refused.refusal {
                Refusal::ByServer => return Decision::Refuse,
                Refusal::NoAnswer => {
                    failed();
                    pass(Some(NoAnswer));
                }
                Refusal::ByPolicy => pass(None),
                Refusal::NotAllowed => {
                    let draw = || accelerator.random.uuid_bytes();
                    let nonce = accelerator.discovery.lock().not_allowed(accelerator.now(), server, draw);
                    if let (Some(nonce), Some(probes)) = (nonce, &accelerator.probes) {
                        probes.send(accelerator.node.id(), server.ip().to_canonical(), nonce);
                    }
                    // Once a minute and less for each server: then it is left alone.
                    tracing::info!(%client, %server, why = refused.text, "the peer's box may not connect");
                    pass(Some(NoPeer));
                }
                Refusal::Overload => pass(Some(Overload)),
            }
            tracing::debug!(%client, %server, why = refused.text, "let through");
            Decision::Plain
        }
        Outcome::Silence | Outcome::Unusable => {
            pass(Some(PeerLost));
            Decision::Plain
        }
    }
}

/// Accepts what was let through to the listener.
pub(super) async fn accept(accelerator: Arc<Accelerator>, listener: TcpListener, expected: Arc<Expected>) {
    loop {
        let (socket, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // No more descriptors, or a client that has gone again.
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let Ok(server) = socket.local_addr() else { continue };
        let Some(taken) = expected.take(&Ends { client, server }) else {
            carry::reset(socket);
            continue;
        };
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps small writes back");
        }
        let accelerator = Arc::clone(&accelerator);
        let tasks = accelerator.tasks.clone();
        tasks.spawn(async move { accelerator.carry(taken, Ends { client, server }, socket).await });
    }
}
