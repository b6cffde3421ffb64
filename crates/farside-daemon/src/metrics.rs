//! What `/metrics` shows: names, units, buckets.
//!
//! What happens (flushes, transfers) is counted in the process's recorder. What is (pools, lag, sessions) is read from
//! the rooms into a recorder of its own when the page is asked for: it is never older than the question, and what is
//! gone leaves the page at once.

mod accelerator;
mod times;

use std::collections::HashSet;
use std::sync::Arc;

use farside_api::{
    AcceleratorStatus, Dedup, DedupState, Host, Mirror, MirrorState, PathState, Peer, PeerPath, PeerState,
    Pool, PoolEngine, PoolRoom, PoolState, Role, Scrub, ScrubState, SourceHeard,
};
use farside_mirror::{LogEntry, LogEvent, QueueStatus};
use farside_transfer::{LevelKind, TransferReport, TransferResult};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

pub(crate) use self::times::HostTimes;
use crate::alarms::AlarmCount;
use crate::state::LOST_LINES;

const API_REFUSED: &str = "farside_api_refused_total";
const HOSTS_REFUSED: &str = "farside_nbd_hosts_refused_total";
const MIRROR_WIRE_BYTES: &str = "farside_mirror_wire_bytes_total";
const MIRROR_CHANGED_BYTES: &str = "farside_mirror_changed_bytes_total";
const MIRROR_LEVEL_IN_BYTES: &str = "farside_mirror_level_in_bytes_total";
const MIRROR_LEVEL_OUT_BYTES: &str = "farside_mirror_level_out_bytes_total";
const MIRROR_RESCUES: &str = "farside_mirror_rescues_total";
const MIRROR_TRANSFERS: &str = "farside_mirror_transfers_total";

/// What comes of transfers.
const RESULTS: [&str; 3] = ["ok", "failed", "aborted"];

/// What is, when the page is asked for.
pub(crate) struct Present {
    pub(crate) pools: Vec<Pool>,
    pub(crate) volumes: Vec<VolumeRoom>,
    pub(crate) scrubs: Vec<Scrub>,
    pub(crate) dedups: Vec<Dedup>,
    pub(crate) mirrors: Vec<Mirror>,
    pub(crate) peers: Vec<Peer>,
    /// Of the live sessions, with the name of the peer.
    pub(crate) paths: Vec<(String, PeerPath)>,
    pub(crate) queue: QueueStatus,
    pub(crate) accelerator: AcceleratorStatus,
    pub(crate) hosts: Vec<Host>,
    pub(crate) host_times: Arc<HostTimes>,
    pub(crate) alarms: Vec<AlarmCount>,
    pub(crate) log_lines_lost: u64,
    /// Other daemons of the site: active, draining, gone. None where the state is a file.
    pub(crate) daemons: Option<(u64, u64, u64)>,
}

/// Renders what has been measured.
#[derive(Clone)]
pub(crate) struct Metrics {
    counted: PrometheusHandle,
}

impl Metrics {
    /// Makes the process's recorder. In a process that has one already (several daemons in a test) that one stays,
    /// and this daemon's page lacks what is counted there.
    pub(crate) fn install() -> Metrics {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counted = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("this process records metrics already");
        }
        describe_counter!(
            API_REFUSED,
            Unit::Count,
            "Requests to the API over the network that were turned away, by why"
        );
        describe_counter!(
            LOST_LINES,
            Unit::Count,
            "Lines of log and history that the state database did not take"
        );
        describe_counter!(
            HOSTS_REFUSED,
            Unit::Count,
            "NBD clients over the network that were not let in, and exports that hosts asked for without a right"
        );
        describe_counter!(
            MIRROR_WIRE_BYTES,
            Unit::Bytes,
            "Bytes of ended transfers on the wire, as the replica's site saw them"
        );
        describe_counter!(MIRROR_CHANGED_BYTES, Unit::Bytes, "Bytes that ended transfers found changed");
        describe_counter!(
            MIRROR_LEVEL_IN_BYTES,
            Unit::Bytes,
            "Bytes of volumes that ended transfers brought, by level"
        );
        describe_counter!(
            MIRROR_LEVEL_OUT_BYTES,
            Unit::Bytes,
            "What they cost on the wire; the rest of the wire bytes is overhead"
        );
        describe_counter!(MIRROR_RESCUES, Unit::Count, "Times that a replica's content became a side branch");
        describe_counter!(
            MIRROR_TRANSFERS,
            Unit::Count,
            "Transfers that have ended, by result; those that were given up before they began are among the failed"
        );
        // A series that begins with its first loss shows no increase then.
        counter!(LOST_LINES).increment(0);
        Metrics { counted }
    }

    /// The page, in Prometheus's text format.
    pub(crate) fn render(&self, now: &Present) -> String {
        // A series that begins with its first failure shows no increase then.
        for mirror in now.mirrors.iter().filter(|mirror| mirror.role == Role::Destination) {
            for result in RESULTS {
                counter!(MIRROR_TRANSFERS, "mirror" => mirror.name.clone(), "result" => result).increment(0);
            }
        }
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe();
            now.pools.iter().for_each(pool);
            now.volumes.iter().for_each(volume);
            now.scrubs.iter().for_each(scrub);
            for pool in &now.pools {
                if let Some(never) = was_never_scrubbed(pool, &now.scrubs) {
                    figure("farside_pool_never_scrubbed", "pool", &pool.name, f64::from(u8::from(never)));
                }
            }
            now.dedups.iter().for_each(dedup);
            let open = now.pools.iter().filter(|pool| pool.state == PoolState::Open);
            let open: HashSet<&str> = open.map(|pool| pool.name.as_str()).collect();
            for of in farside_api::awake(&now.mirrors) {
                mirror(of, of.name.split_once('/').is_some_and(|(pool, _)| open.contains(pool)));
            }
            now.peers.iter().for_each(peer);
            now.paths.iter().for_each(|(peer, at)| path(peer, at));
            for host in &now.hosts {
                figure("farside_nbd_host_connections", "host", &host.name, host.connections as f64);
            }
            for AlarmCount { kind, severity, open } in &now.alarms {
                gauge!("farside_alarms_open", "kind" => *kind, "severity" => *severity).set(*open as f64);
            }
            gauge!("farside_transfers_under_way").set(now.queue.under_way as f64);
            gauge!("farside_transfers_waiting").set(now.queue.waiting as f64);
            counter!("farside_log_lines_lost_total").absolute(now.log_lines_lost);
            if let Some((active, draining, gone)) = now.daemons {
                gauge!("farside_daemon_leads").set(1.0);
                for (state, number) in [("active", active + 1), ("draining", draining), ("gone", gone)] {
                    gauge!("farside_daemons", "state" => state).set(number as f64);
                }
            }
            accelerator::show(&now.accelerator);
        });
        let mut page = self.counted.render() + &recorder.handle().render();
        now.host_times.show(&mut page);
        accelerator::show_times(&mut page, &now.accelerator);
        page
    }
}

/// Counts a transfer that has ended here.
pub(crate) fn transfer_ended(replica: &str, report: &TransferReport) {
    let mirror = replica.to_owned();
    counter!(MIRROR_WIRE_BYTES, "mirror" => mirror.clone(), "direction" => "sent")
        .increment(report.wire_bytes_sent);
    counter!(MIRROR_WIRE_BYTES, "mirror" => mirror.clone(), "direction" => "received")
        .increment(report.wire_bytes_received);
    counter!(MIRROR_CHANGED_BYTES, "mirror" => mirror.clone()).increment(report.changed_bytes);
    for kind in LevelKind::ALL {
        let level = report.levels.unwrap_or_default().of(kind);
        counter!(MIRROR_LEVEL_IN_BYTES, "mirror" => mirror.clone(), "level" => kind.name())
            .increment(level.in_bytes);
        counter!(MIRROR_LEVEL_OUT_BYTES, "mirror" => mirror.clone(), "level" => kind.name())
            .increment(level.out_bytes);
    }
    let [ok, failed, aborted] = RESULTS;
    let result = match report.result {
        TransferResult::Ok => ok,
        TransferResult::Failed => failed,
        TransferResult::Aborted => aborted,
    };
    counter!(MIRROR_TRANSFERS, "mirror" => mirror, "result" => result).increment(1);
}

/// Counts a request to the API over the network that was turned away. Reasons are a few words of this program.
pub(crate) fn api_refused(reason: &'static str) {
    counter!(API_REFUSED, "reason" => reason).increment(1);
}

/// Counts a client over the network that was not let in, or did not get what it asked for. Reasons are a few words of this program.
pub(crate) fn host_refused(reason: &'static str) {
    counter!(HOSTS_REFUSED, "reason" => reason).increment(1);
}

/// Counts what a line of a mirror's log tells of.
pub(crate) fn log_line(entry: &LogEntry) {
    match (&entry.event, entry.transfer) {
        (LogEvent::Rescue { .. }, _) => {
            counter!(MIRROR_RESCUES, "mirror" => entry.volume.to_string()).increment(1);
        }
        // It gave up before there was a transfer: for want of a session, as a rule.
        (LogEvent::Abort { .. }, None) => {
            let [_, failed, aborted] = RESULTS;
            let result = if entry.kind.is_some() { failed } else { aborted };
            counter!(MIRROR_TRANSFERS, "mirror" => entry.volume.to_string(), "result" => result).increment(1);
        }
        _ => {}
    }
}

fn describe() {
    describe_gauge!(
        "farside_daemon_leads",
        Unit::Count,
        "1 if this daemon does the site's work, 0 if it stands by; only where the state is in PostgreSQL"
    );
    describe_gauge!("farside_daemons", Unit::Count, "Daemons of the site by state: active, draining, gone");
    describe_gauge!("farside_pool_open", Unit::Count, "1 if the pool serves, 0 if it failed");
    describe_gauge!(
        "farside_pool_path_lost",
        Unit::Count,
        "1 if the pool's path does not lead to it any more: its file was removed, moved or replaced"
    );
    describe_gauge!("farside_pool_size_bytes", Unit::Bytes, "Size of the pool");
    describe_gauge!("farside_pool_used_bytes", Unit::Bytes, "Bytes of the pool in use");
    describe_gauge!(
        "farside_pool_reclaimable_bytes",
        Unit::Bytes,
        "Bytes of the pool that nothing uses any more and that come back by themselves"
    );
    describe_gauge!("farside_pool_free_bytes", Unit::Bytes, "Bytes of the pool that can be given out");
    describe_gauge!(
        "farside_pool_room_level",
        Unit::Count,
        "What is left of the pool for hosts: 0 enough, 1 a fifth or less, 2 a twentieth or less, 3 nothing"
    );
    describe_gauge!("farside_pool_room_bytes", Unit::Bytes, "Bytes of the pool that are left for hosts");
    describe_gauge!("farside_pool_volume_bytes", Unit::Bytes, "Size of the pool's volumes in all");
    describe_gauge!(
        "farside_pool_reserved_bytes",
        Unit::Bytes,
        "Bytes of the pool that are reserved for volumes and not used by them"
    );
    describe_gauge!(
        "farside_volume_occupied_bytes",
        Unit::Bytes,
        "Bytes of the pool that the volume occupies with all its snapshots, data without metadata"
    );
    describe_gauge!(
        "farside_volume_quota_bytes",
        Unit::Bytes,
        "What the volume may occupy, if it has a quota"
    );
    describe_gauge!(
        "farside_volume_reserve_bytes",
        Unit::Bytes,
        "What is reserved for the volume, if something is"
    );
    describe_gauge!(
        "farside_volume_room_level",
        Unit::Count,
        "What is left of the volume's quota: 0 enough, 1 a fifth or less, 2 a twentieth or less, 3 nothing"
    );
    describe_counter!(
        "farside_pool_corrupt_blocks_total",
        Unit::Count,
        "Blocks found damaged since the pool was opened"
    );
    describe_gauge!(
        "farside_volume_dedup_saved_bytes",
        Unit::Bytes,
        "What sharing equal blocks saves, the volume's part of it"
    );
    describe_gauge!("farside_volume_dedup_running", Unit::Count, "1 if a pass of deduplication runs");
    describe_gauge!(
        "farside_volume_dedup_completed_timestamp_seconds",
        Unit::Seconds,
        "When a pass of deduplication over the volume last came to its end"
    );
    describe_gauge!("farside_pool_scrub_running", Unit::Count, "1 if a scrub of the pool runs");
    describe_gauge!(
        "farside_pool_scrub_damaged_blocks",
        Unit::Count,
        "Damaged blocks that the pool's scrub has found: the one that runs, or ran last"
    );
    describe_gauge!(
        "farside_pool_scrub_completed_timestamp_seconds",
        Unit::Seconds,
        "When a scrub of the pool last came to its end"
    );
    describe_gauge!(
        "farside_pool_never_scrubbed",
        Unit::Count,
        "1 if no scrub of the pool has come to its end yet; not there of pools on Ceph, which scrubs what it holds itself"
    );
    describe_gauge!("farside_mirror_lag_seconds", Unit::Seconds, "Age of the replica's data");
    describe_gauge!(
        "farside_mirror_objective_seconds",
        Unit::Seconds,
        "How old the replica's data may be, by its objective"
    );
    describe_gauge!(
        "farside_mirror_forecast_seconds",
        Unit::Seconds,
        "How old the replica's data will be at most, if that can be told"
    );
    describe_gauge!(
        "farside_mirror_proven_timestamp_seconds",
        Unit::Seconds,
        "When the replica was last re-read and compared as a whole"
    );
    describe_gauge!("farside_mirror_state", Unit::Count, "1, with the mirror's state as a label");
    describe_gauge!(
        "farside_mirror_source_lag_seconds",
        Unit::Seconds,
        "At the source: how old that is which a replica has, as far as this side has heard"
    );
    describe_gauge!("farside_mirror_copied", Unit::Count, "Whether its first copy is there, 1 or 0");
    describe_gauge!(
        "farside_mirror_source_overtaken",
        Unit::Count,
        "1 if hosts went on elsewhere than at the replica's source: what it brings is of the old original"
    );
    describe_gauge!(
        "farside_mirror_break_told",
        Unit::Count,
        "Of a mirror that was broken off: 1 if its source has been told, 0 if its hosts may be writing unknown"
    );
    describe_gauge!("farside_peer_connected", Unit::Count, "1 if there is a session and the peer answers");
    describe_gauge!(
        "farside_peer_clock_ahead_seconds",
        Unit::Seconds,
        "By how much the peer's clock is ahead of this site's, as last measured; negative if it is behind"
    );
    describe_gauge!("farside_peer_rtt_seconds", Unit::Seconds, "Round-trip time of the session");
    describe_counter!(
        "farside_peer_wire_bytes_total",
        Unit::Bytes,
        "Bytes of the peer's sessions, TLS included"
    );
    describe_counter!(
        "farside_peer_key_conflicts_total",
        Unit::Count,
        "Times that one of two living sites with one key was refused: a copy of the peer here, or this site there"
    );
    describe_gauge!("farside_path_up", Unit::Count, "1 if the path of the peer's session works");
    describe_gauge!(
        "farside_path_rtt_seconds",
        Unit::Seconds,
        "Round-trip time of the path, as the kernel has smoothed it"
    );
    describe_gauge!(
        "farside_path_delivery_bytes_per_second",
        Unit::Bytes,
        "What arrives at the peer, as last measured"
    );
    describe_counter!(
        "farside_path_retransmitted_bytes_total",
        Unit::Bytes,
        "Bytes over the path in the peer's session that the kernel had to send again"
    );
    describe_counter!(
        "farside_path_wire_bytes_total",
        Unit::Bytes,
        "Bytes over the path in the peer's session, TLS included"
    );
    describe_gauge!("farside_alarms_open", Unit::Count, "Alarms that are raised, by kind");
    describe_gauge!(
        "farside_transfers_under_way",
        Unit::Count,
        "Transfers under way of mirrors whose replica is here"
    );
    describe_gauge!(
        "farside_nbd_host_connections",
        Unit::Count,
        "NBD connections of the host over the network"
    );
    describe_gauge!("farside_transfers_waiting", Unit::Count, "Transfers that wait for their turn");
    describe_counter!(
        "farside_log_lines_lost_total",
        Unit::Count,
        "Log lines lost because nobody read standard error"
    );
    accelerator::describe();
}

/// Exact up to 2^53 bytes, 8 PiB; above that Prometheus itself rounds.
fn figure(name: &'static str, label: &'static str, value_of: &str, value: f64) {
    gauge!(name, label => value_of.to_owned()).set(value);
}

fn pool(pool: &Pool) {
    let set = |name, value: u64| figure(name, "pool", &pool.name, value as f64);
    set("farside_pool_open", u64::from(pool.state == PoolState::Open));
    pool.path_lost.inspect(|lost| set("farside_pool_path_lost", u64::from(*lost)));
    pool.size_bytes.inspect(|bytes| set("farside_pool_size_bytes", *bytes));
    pool.used_bytes.inspect(|bytes| set("farside_pool_used_bytes", *bytes));
    pool.reclaimable_bytes.inspect(|bytes| set("farside_pool_reclaimable_bytes", *bytes));
    pool.free_bytes.inspect(|bytes| set("farside_pool_free_bytes", *bytes));
    pool.room.inspect(|room| set("farside_pool_room_level", room_level(*room)));
    pool.room_bytes.inspect(|bytes| set("farside_pool_room_bytes", *bytes));
    pool.volume_bytes.inspect(|bytes| set("farside_pool_volume_bytes", *bytes));
    pool.reserved_bytes.inspect(|bytes| set("farside_pool_reserved_bytes", *bytes));
    if let Some(blocks) = pool.corrupt_blocks {
        counter!("farside_pool_corrupt_blocks_total", "pool" => pool.name.clone()).absolute(blocks);
    }
}

/// What a volume takes of its pool.
pub(crate) struct VolumeRoom {
    /// `POOL/VOL`.
    pub(crate) name: String,
    pub(crate) occupied_bytes: u64,
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) reserve_bytes: Option<u64>,
    /// Of its quota, if it has one.
    pub(crate) room: Option<PoolRoom>,
}

fn volume(volume: &VolumeRoom) {
    let set = |name, value: u64| figure(name, "volume", &volume.name, value as f64);
    set("farside_volume_occupied_bytes", volume.occupied_bytes);
    volume.quota_bytes.inspect(|bytes| set("farside_volume_quota_bytes", *bytes));
    volume.reserve_bytes.inspect(|bytes| set("farside_volume_reserve_bytes", *bytes));
    volume.room.inspect(|room| set("farside_volume_room_level", room_level(*room)));
}

fn room_level(room: PoolRoom) -> u64 {
    match room {
        PoolRoom::Enough => 0,
        PoolRoom::Filling => 1,
        PoolRoom::NearlyFull => 2,
        PoolRoom::Full => 3,
    }
}

fn dedup(dedup: &Dedup) {
    let set = |name, value: f64| figure(name, "volume", &dedup.volume, value);
    set("farside_volume_dedup_saved_bytes", dedup.saved_bytes as f64);
    set("farside_volume_dedup_running", f64::from(u8::from(dedup.state == DedupState::Running)));
    if let Some(ended) = dedup.completed_at {
        set("farside_volume_dedup_completed_timestamp_seconds", ended.as_second() as f64);
    }
}

fn scrub(scrub: &Scrub) {
    let set = |name, value: f64| figure(name, "pool", &scrub.pool, value);
    set("farside_pool_scrub_running", f64::from(u8::from(scrub.state == ScrubState::Running)));
    set("farside_pool_scrub_damaged_blocks", scrub.damaged_blocks as f64);
    if let Some(ended) = scrub.completed_at {
        set("farside_pool_scrub_completed_timestamp_seconds", ended.as_second() as f64);
    }
}

/// Whether no scrub of a pool has come to its end yet; none if it is not open, or if nobody can scrub it: Ceph reads what its clusters hold
/// by itself.
fn was_never_scrubbed(pool: &Pool, scrubs: &[Scrub]) -> Option<bool> {
    let is_ours = pool.engine == PoolEngine::Embedded && pool.state == PoolState::Open;
    let has_ended = |scrub: &Scrub| scrub.pool == pool.name && scrub.completed_at.is_some();
    is_ours.then(|| !scrubs.iter().any(has_ended))
}

/// As the API writes it.
fn word(state: MirrorState) -> String {
    let word = serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned));
    word.unwrap_or_default()
}

fn mirror(mirror: &Mirror, is_open: bool) {
    if let (Role::Destination, Some(lag)) = (mirror.role, mirror.lag_seconds) {
        figure("farside_mirror_lag_seconds", "mirror", &mirror.name, lag);
    }
    if let (Role::Source, Some(lag)) = (mirror.role, mirror.lag_seconds) {
        let labels = [("mirror", mirror.name.clone()), ("replica", mirror.destination.clone())];
        gauge!("farside_mirror_source_lag_seconds", &labels).set(lag);
    }
    if mirror.role == Role::Destination {
        let proven = mirror.last_proven_at.filter(|_| mirror.state != MirrorState::BrokenOff);
        for (name, value) in [
            ("farside_mirror_objective_seconds", mirror.objective_seconds),
            ("farside_mirror_forecast_seconds", mirror.forecast_seconds),
            ("farside_mirror_proven_timestamp_seconds", proven.map(|at| at.as_second() as f64)),
        ] {
            value.inspect(|value| figure(name, "mirror", &mirror.name, *value));
        }
        // Unlike its state it does not change with each attempt. Without its pool nobody knows.
        if is_open {
            let copied = f64::from(u8::from(mirror.base_snapshot.is_some()));
            figure("farside_mirror_copied", "mirror", &mirror.name, copied);
        }
        // From the beginning on: a mirror that was never copied has this and no lag.
        let state = word(mirror.state);
        gauge!("farside_mirror_state", "mirror" => mirror.name.clone(), "state" => state).set(1.0);
        let set = |name, value: bool| figure(name, "mirror", &mirror.name, f64::from(u8::from(value)));
        set("farside_mirror_source_overtaken", mirror.source_overtaken.is_some());
        if let Some(heard) = mirror.source_heard {
            set("farside_mirror_break_told", heard != SourceHeard::NotYet);
        }
    }
}

fn peer(peer: &Peer) {
    figure(
        "farside_peer_connected",
        "peer",
        &peer.name,
        f64::from(u8::from(peer.state == PeerState::Connected)),
    );
    if let Some(ahead) = peer.clock_ahead_seconds {
        figure("farside_peer_clock_ahead_seconds", "peer", &peer.name, ahead);
    }
    if let Some(rtt) = peer.rtt_seconds {
        figure("farside_peer_rtt_seconds", "peer", &peer.name, rtt);
    }
    for (direction, bytes) in [("sent", peer.sent_bytes), ("received", peer.received_bytes)] {
        counter!("farside_peer_wire_bytes_total", "peer" => peer.name.clone(), "direction" => direction)
            .absolute(bytes);
    }
    counter!("farside_peer_key_conflicts_total", "peer" => peer.name.clone()).absolute(peer.key_conflicts);
}

fn path(peer: &str, path: &PeerPath) {
    let name =
        path.local.as_ref().map_or_else(|| path.remote.clone(), |local| format!("{local}={}", path.remote));
    gauge!("farside_path_up", "peer" => peer.to_owned(), "path" => name.clone())
        .set(f64::from(u8::from(path.state == PathState::Up)));
    let labels = [("peer", peer.to_owned()), ("path", name.clone())];
    if let Some(rtt) = path.rtt_seconds {
        gauge!("farside_path_rtt_seconds", &labels).set(rtt);
    }
    if let Some(rate) = path.delivery_bytes_per_second {
        gauge!("farside_path_delivery_bytes_per_second", &labels).set(rate as f64);
    }
    if let Some(bytes) = path.retransmitted_bytes {
        counter!("farside_path_retransmitted_bytes_total", &labels).absolute(bytes);
    }
    for (direction, bytes) in [("sent", path.sent_bytes), ("received", path.received_bytes)] {
        counter!(
            "farside_path_wire_bytes_total",
            "peer" => peer.to_owned(), "path" => name.clone(), "direction" => direction
        )
        .absolute(bytes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool_of(engine: &str, state: &str) -> Pool {
        let document = json!({ "name": "p", "uuid": null, "path": "/srv/p", "engine": engine, "state": state, "error": null,
            "size_bytes": null, "used_bytes": null, "reclaimable_bytes": null, "free_bytes": null, "volumes": null,
            "corrupt_blocks": null, "staged": null, "staged_bytes": null, "quarantined": null });
        serde_json::from_value(document).unwrap()
    }

    fn scrub_of(pool: &str, completed_at: Option<&str>) -> Scrub {
        let document = json!({ "pool": pool, "state": "running", "started_at": "2026-11-26T12:00:00Z", "ended_at": null,
            "total_bytes": 0, "read_bytes": 0, "limit_bytes_per_second": null, "rate_bytes_per_second": null, "eta_seconds": null,
            "damaged_blocks": 0, "damage": [], "structures": [], "rewritten_copies": 0, "rewritten": [], "error": null,
            "completed_at": completed_at });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn only_what_can_be_scrubbed_here_was_never_scrubbed() {
        let own = pool_of("embedded", "open");
        let ended = Some("2026-11-26T12:00:00Z");
        assert_eq!(was_never_scrubbed(&own, &[]), Some(true));
        assert_eq!(was_never_scrubbed(&own, &[scrub_of("p", None), scrub_of("q", ended)]), Some(true));
        assert_eq!(was_never_scrubbed(&own, &[scrub_of("p", ended)]), Some(false));
        assert_eq!(was_never_scrubbed(&pool_of("rbd", "open"), &[]), None);
        assert_eq!(was_never_scrubbed(&pool_of("embedded", "failed"), &[]), None);
        // The shipped rule asks for nothing else.
        let rules = include_str!("../../../packaging/prometheus/farside.rules.yml");
        let rule = rules.split("- alert: ").find(|rule| rule.starts_with("FarsideNeverScrubbed\n")).unwrap();
        assert!(rule.contains("expr: farside_pool_never_scrubbed == 1\n"), "{rule}");
    }
}
