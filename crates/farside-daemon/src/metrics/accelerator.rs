//! What `/metrics` shows of the accelerator. Its process tells figures; they are shown as they are, so those that it counts itself begin
//! at 0 with it.

use farside_api::{
    AcceleratedApplication, AcceleratorCache, AcceleratorPeerState, AcceleratorState, AcceleratorStatus,
    AcceleratorTimes, Demotion,
};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use super::times::{self, Times};

const BLOCK_WAIT: Times = Times {
    name: "farside_accel_block_wait_seconds",
    help: "What the accelerator adds: from the last byte of a block until the session has the block",
};
const CONNECTION_HOLD: Times = Times {
    name: "farside_accel_connection_hold_seconds",
    help: "How long beginnings of connections were held, the round trip and the server's own time included",
};

pub(super) fn describe() {
    describe_gauge!("farside_accel_state", Unit::Count, "1 at the accelerator's state, 0 at the others");
    describe_gauge!("farside_accel_peer_connected", Unit::Count, "1 if the peer's accelerator can be used");
    describe_gauge!("farside_accel_optimized_connections", Unit::Count, "Connections that are optimised now");
    describe_counter!(
        "farside_accel_passed_through_connections_total",
        Unit::Count,
        "Connections let through as they are"
    );
    describe_counter!("farside_accel_taken_connections_total", Unit::Count, "Connections optimised");
    describe_counter!(
        "farside_accel_reset_connections_total",
        Unit::Count,
        "Connections reset because an accelerator or a session was lost"
    );
    describe_counter!(
        "farside_accel_original_bytes_total",
        Unit::Bytes,
        "Bytes of optimised connections, both ways"
    );
    describe_counter!(
        "farside_accel_wire_bytes_total",
        Unit::Bytes,
        "What they cost between the sites, both ways"
    );
    describe_counter!(
        "farside_accel_restarts_total",
        Unit::Count,
        "How often the accelerator's process had to be started again"
    );
    describe_gauge!("farside_accel_store_bytes", Unit::Bytes, "Bytes of the chunk store");
    describe_gauge!("farside_accel_connections", Unit::Count, "Connections by application and state");
    describe_counter!(
        "farside_accel_connections_total",
        Unit::Count,
        "Connections by application and what was done"
    );
    describe_gauge!("farside_accel_held_connections", Unit::Count, "Connections whose beginning is held");
    describe_counter!(
        "farside_accel_bytes_total",
        Unit::Bytes,
        "Bytes by application and direction, as hosts had them and on the link"
    );
    describe_counter!(
        "farside_accel_demotions_total",
        Unit::Count,
        "Connections for which less was done than both sites allow, by why"
    );
    describe_counter!(
        "farside_accel_preposition_bytes_total",
        Unit::Bytes,
        "What filled stores ahead of time"
    );
    describe_gauge!("farside_accel_store_size_bytes", Unit::Bytes, "What the chunk store may have");
    describe_gauge!("farside_accel_store_index_bytes", Unit::Bytes, "Of its index in memory");
    describe_gauge!("farside_accel_store_chunks", Unit::Count, "Chunks that can be found");
    describe_gauge!("farside_accel_store_oldest_seconds", Unit::Seconds, "Age of the oldest container");
    describe_gauge!("farside_accel_store_troubled", Unit::Count, "1 if the store takes less than it should");
    describe_counter!("farside_accel_store_lookups_total", Unit::Count, "Questions to the index");
    describe_counter!("farside_accel_store_hits_total", Unit::Count, "Of which so many found a chunk");
    describe_counter!(
        "farside_accel_store_evicted_containers_total",
        Unit::Count,
        "Containers that made room"
    );
    describe_counter!(
        "farside_accel_store_damaged_containers_total",
        Unit::Count,
        "Containers that were damaged"
    );
}

pub(super) fn show(of: &AcceleratorStatus) {
    let states = [
        ("active", AcceleratorState::Active),
        ("bypass", AcceleratorState::Bypass),
        ("off", AcceleratorState::Off),
    ];
    for (name, state) in states {
        gauge!("farside_accel_state", "state" => name).set(f64::from(u8::from(of.state == state)));
    }
    for peer in &of.peers {
        let is_connected = peer.state == AcceleratorPeerState::Connected;
        gauge!("farside_accel_peer_connected", "peer" => peer.name.clone())
            .set(f64::from(u8::from(is_connected)));
    }
    gauge!("farside_accel_optimized_connections").set(of.optimized_connections as f64);
    gauge!("farside_accel_held_connections").set(of.held_connections as f64);
    counter!("farside_accel_passed_through_connections_total").absolute(of.passed_through_connections);
    counter!("farside_accel_taken_connections_total").absolute(of.taken_connections);
    counter!("farside_accel_reset_connections_total").absolute(of.reset_connections);
    counter!("farside_accel_original_bytes_total").absolute(of.original_bytes);
    counter!("farside_accel_wire_bytes_total").absolute(of.wire_bytes);
    counter!("farside_accel_restarts_total").absolute(of.restarts);
    for (side, bytes) in
        [("original", of.prepositioned_original_bytes), ("wire", of.prepositioned_wire_bytes)]
    {
        counter!("farside_accel_preposition_bytes_total", "side" => side).absolute(bytes);
    }
    if let Some(bytes) = of.store_bytes {
        gauge!("farside_accel_store_bytes").set(bytes as f64);
    }
    if let Some(bytes) = of.store_size_bytes {
        gauge!("farside_accel_store_size_bytes").set(bytes as f64);
    }
    of.applications.iter().for_each(application);
    for demoted in &of.demotions {
        counter!("farside_accel_demotions_total", "reason" => reason(demoted.reason))
            .absolute(demoted.connections);
    }
    of.cache.iter().for_each(cache);
}

/// The process tells no more than some dozens apart, so that labels are bounded.
fn application(of: &AcceleratedApplication) {
    let name = || of.application.clone();
    let plain = of.optimized_connections.saturating_sub(of.demoted_connections);
    for (state, connections) in [("optimized", plain), ("demoted", of.demoted_connections)] {
        gauge!("farside_accel_connections", "application" => name(), "state" => state)
            .set(connections as f64);
    }
    for (done, connections) in
        [("optimized", of.taken_connections), ("passed-through", of.passed_through_connections)]
    {
        counter!("farside_accel_connections_total", "application" => name(), "done" => done)
            .absolute(connections);
    }
    for (direction, side, bytes) in [
        ("sent", "original", of.sent_original_bytes),
        ("sent", "wire", of.sent_wire_bytes),
        ("received", "original", of.received_original_bytes),
        ("received", "wire", of.received_wire_bytes),
    ] {
        counter!(
            "farside_accel_bytes_total",
            "application" => name(), "direction" => direction, "side" => side
        )
        .absolute(bytes);
    }
}

/// Its histograms, as text.
pub(super) fn show_times(page: &mut String, of: &AcceleratorStatus) {
    let mut show = |times: &Times, of: &AcceleratorTimes| {
        times::show(page, times, &of.bounds_seconds, &of.counts, of.sum_seconds);
    };
    of.block_wait.iter().for_each(|of| show(&BLOCK_WAIT, of));
    of.connection_hold.iter().for_each(|of| show(&CONNECTION_HOLD, of));
}

fn cache(of: &AcceleratorCache) {
    gauge!("farside_accel_store_index_bytes").set(of.index_bytes as f64);
    gauge!("farside_accel_store_chunks").set(of.chunks as f64);
    gauge!("farside_accel_store_troubled").set(f64::from(u8::from(of.trouble.is_some())));
    if let Some(seconds) = of.oldest_seconds {
        gauge!("farside_accel_store_oldest_seconds").set(seconds as f64);
    }
    counter!("farside_accel_store_lookups_total").absolute(of.lookups);
    counter!("farside_accel_store_hits_total").absolute(of.hits);
    counter!("farside_accel_store_evicted_containers_total").absolute(of.evicted_containers);
    counter!("farside_accel_store_damaged_containers_total").absolute(of.damaged_containers);
}

/// As JSON has it.
fn reason(of: Demotion) -> &'static str {
    match of {
        Demotion::NoPeer => "no-peer",
        Demotion::PeerLost => "peer-lost",
        Demotion::NoAnswer => "no-answer",
        Demotion::BoxInBetween => "box-in-between",
        Demotion::Encrypted => "encrypted",
        Demotion::Incompressible => "incompressible",
        Demotion::Overload => "overload",
        Demotion::StoreUnusable => "store-unusable",
    }
}
