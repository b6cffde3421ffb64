//! What is in a state, table by table: for whoever carries it from one database to another. A test compares it with both schemas.

use super::statement::Kind;
use super::statement::Kind::{Bool, Bytes, Integer, Text};

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [(&'static str, Kind)],
    /// The column in which the database numbers its rows: no number is given twice.
    pub(super) numbered: Option<&'static str>,
}

const fn table(name: &'static str, columns: &'static [(&'static str, Kind)]) -> Table {
    Table { name, columns, numbered: None }
}

const fn numbered(name: &'static str, by: &'static str, columns: &'static [(&'static str, Kind)]) -> Table {
    Table { name, columns, numbered: Some(by) }
}

/// All of them; what refers to another comes after that.
#[rustfmt::skip]
pub(super) const TABLES: [Table; 21] = [
    table("pools", &[("name", Text), ("path", Text), ("added_at", Integer)]),
    table("peers", &[
        ("id", Bytes), ("name", Text), ("address", Text), ("added_at", Integer), ("paths", Text), ("paths_mode", Text),
        ("dscp", Integer), ("rate", Integer), ("throttle_in", Text), ("throttle_out", Text), ("keepalive", Integer),
        ("site_role", Text), ("other_addresses", Text),
    ]),
    table("rights", &[
        ("peer", Bytes), ("volume", Text), ("reverse", Bool), ("fence", Bool), ("recorded", Integer), ("volume_id", Bytes),
    ]),
    table("relationships", &[
        ("id", Bytes), ("peer", Bytes), ("source", Text), ("pool", Text), ("volume", Text), ("quiesced", Bool),
        ("broken_off_at", Integer), ("resync_pending", Bool), ("swap_with", Bytes), ("schedule", Text),
        ("role_change", Integer), ("throttle", Text), ("window", Integer), ("low_priority", Bool), ("paths", Text),
        ("swap", Text), ("swap_ended", Text), ("origin", Bytes), ("told", Bool), ("ended_there", Bool), ("retention", Text), ("mirror_group", Text),
        ("past", Bytes),
    ]),
    table("source_relationships", &[
        ("id", Bytes), ("peer", Bytes), ("source", Text), ("destination", Text), ("base", Bytes), ("since", Integer),
        ("overtaken_reported_at", Integer), ("overtaken_broken_off_at", Integer), ("overtaken_snapshot", Bytes),
        ("overtaken_root", Bytes), ("released_at", Integer), ("released_why", Text), ("overtaken_fenced", Bool),
        ("overtaken_ended", Bool), ("overtaken_beyond", Text), ("overtaken_follows", Bytes),
        ("overtaken_group", Text), ("overtaken_group_size", Integer),
    ]),
    table("endings", &[("relationship", Bytes), ("peer", Bytes), ("at", Integer), ("request", Bytes)]),
    numbered("transfers", "sequence", &[
        ("sequence", Integer), ("relationship", Bytes), ("volume", Text), ("ended_at", Integer), ("record", Text),
    ]),
    numbered("log", "sequence", &[
        ("sequence", Integer), ("relationship", Bytes), ("volume", Text), ("at", Integer), ("event", Text), ("detail", Text),
        ("kind", Text), ("transfer", Bytes),
    ]),
    table("settings", &[("name", Text), ("value", Text)]),
    table("replaced_peers", &[("old", Bytes), ("new", Bytes), ("replaced_at", Integer)]),
    numbered("hosts", "id", &[
        ("id", Integer), ("name", Text), ("fingerprint", Bytes), ("added_at", Integer), ("expires_at", Integer),
    ]),
    table("host_rights", &[("host", Integer), ("volume_id", Bytes), ("volume", Text), ("read_only", Bool)]),
    table("scrubs", &[("pool", Text), ("document", Text)]),
    table("dedups", &[("pool", Text), ("volume", Text), ("document", Text)]),
    table("kept_points", &[("relationship", Bytes), ("snapshot", Bytes), ("at", Integer), ("noted_at", Integer)]),
    table("snapshot_schedules", &[("pool", Text), ("volume", Text), ("document", Text)]),
    table("alarms", &[
        ("id", Integer), ("kind", Text), ("subject", Text), ("severity", Text), ("raised_at", Integer), ("cleared_at", Integer),
        ("acknowledged_at", Integer), ("message", Text), ("hint", Text),
    ]),
    numbered("alarm_notices", "sequence", &[("sequence", Integer), ("queued_at", Integer), ("document", Text)]),
    table("drills", &[("pool", Text), ("volume", Text)]),
    numbered("tokens", "id", &[
        ("id", Integer), ("name", Text), ("role", Text), ("hash", Bytes), ("created_at", Integer), ("created_by", Text),
        ("expires_at", Integer), ("last_used_at", Integer),
    ]),
    numbered("audit", "id", &[
        ("id", Integer), ("at", Integer), ("who", Text), ("role", Text), ("origin", Text), ("method", Text), ("path", Text),
        ("request", Text), ("outcome", Text), ("message", Text), ("duration", Integer),
    ]),
];
