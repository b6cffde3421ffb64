//! Pools, and what transfers have left in them. Pure.

use farside_api::{Plan, StagedContent};

use super::parts::{lose, plan};
use super::volumes::end_rights;

/// `pool create`, where `found` is what lies on the device.
pub(crate) fn create_pool(pool: &str, path: &str, found: &[String], overwrite: bool) -> Plan {
    let mut plan = plan(format!("create pool {pool} in {path}"));
    plan.would.push(format!("{path} becomes an empty pool"));
    if !found.is_empty() {
        lose(&mut plan, format!("what {path} holds: {}", found.join(", ")), None, None);
        if !overwrite {
            plan.refused = Some(String::from("it is not blank; --overwrite destroys what is there"));
        }
    }
    plan
}

/// `pool create` of a pool of Ceph.
pub(crate) fn add_clustered(pool: &str, path: &str) -> Plan {
    let mut plan = plan(format!("create pool {pool} of {path}"));
    plan.would.push(format!(
        "this daemon connects to the cluster, and the pool's images are volumes of pool {pool}. They stay as they are: nothing is \
         written to one until it is mirrored"
    ));
    plan
}

/// `pool import`.
pub(crate) fn import_pool(pool: &str, path: &str, as_copy: bool) -> Plan {
    let mut plan = plan(format!("import pool {pool} from {path}"));
    if !as_copy {
        plan.would.push(format!(
            "the pool in {path} is opened under the name {pool}, with its volumes and its mirrors"
        ));
        return plan;
    }
    plan.would.push(format!(
        "the pool in {path} becomes a pool of its own: it and its volumes get new identities, for good"
    ));
    plan.would.push(String::from(
        "its mirrors end, without a word to any peer: its volumes become ordinary ones that hosts may write to, and nobody has a \
         right to them; of what a mirror kept, the newest version of each volume stays as a snapshot base-TIME",
    ));
    plan.would.push(String::from(
        "the pool that it was copied from, and that pool's mirrors, go on as before. Be sure that this is the copy",
    ));
    plan
}

/// `pool delete`, of a pool that is open.
pub(crate) fn delete_pool(
    pool: &str,
    path: &str,
    volumes: u64,
    used_bytes: u64,
    rights_of: &[String],
) -> Plan {
    let mut plan = plan(format!("delete pool {pool}"));
    plan.would.push(format!(
        "pool {pool} is closed, and {path} removed (a raw device: overwritten at its head and end)"
    ));
    end_rights(&mut plan, rights_of);
    lose(
        &mut plan,
        match volumes {
            1 => String::from("the volume of the pool with its snapshots; metadata is counted too"),
            many => format!("all {many} volumes of the pool with their snapshots; metadata is counted too"),
        },
        Some(used_bytes),
        None,
    );
    plan
}

/// `pool delete`, of a pool that is not open.
pub(crate) fn forget_pool(pool: &str, path: &str, is_gone: bool, replicas: &[String]) -> Plan {
    let mut plan = plan(format!("forget pool {pool}"));
    plan.would.push(match is_gone {
        true => format!(
            "pool {pool} is forgotten. Nothing is at {path} now: nothing is deleted there, and nothing of the pool stays there. If it was \
             moved, do not forget it: farside pool import {pool} --path NEW-PATH"
        ),
        false => format!(
            "pool {pool}, which is not open, is forgotten; {path} stays as it is, and farside pool import takes it over again. If it was \
             moved, that alone is enough: farside pool import {pool} --path NEW-PATH"
        ),
    });
    if !replicas.is_empty() {
        plan.lost
            .push(format!("schedules, retention and limits of the mirrors into {}", replicas.join(", ")));
    }
    plan
}

/// What ends a transfer that is in the way of `pool drop-staged`.
pub(crate) const STOP_TRANSFER: &str = "wait for it, or end it: farside mirror quiesce, then farside mirror abort, and farside mirror resume afterwards";

/// `pool drop-staged`.
pub(crate) fn drop_staged(pool: &str, staged: &[StagedContent], bytes: Option<u64>) -> Plan {
    let mut plan = plan(format!("drop what is staged in pool {pool}"));
    if staged.is_empty() {
        plan.would.push(String::from("nothing: no interrupted transfer has left anything there"));
        return plan;
    }
    let names: Vec<String> = staged.iter().map(|staged| format!("{pool}/{}", staged.volume)).collect();
    plan.would.push(format!(
        "what transfers to {} brought and did not publish is discarded; the next transfer starts from the beginning; what the \
         volumes show stays as it is",
        names.join(", ")
    ));
    lose(&mut plan, String::from("to be sent again:"), bytes, Some(0.0));
    let running = staged.iter().find(|staged| staged.transferring);
    plan.refused = running.map(|staged| format!("a transfer to {pool}/{} runs now", staged.volume));
    plan
}
