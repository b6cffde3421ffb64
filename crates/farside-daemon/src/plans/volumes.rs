//! Volumes that go, or get another size; and who has them open. Pure.

use farside_api::{Plan, VolumeHost};
use farside_engine::VolumeName;

use super::parts::{lose, plan};
use crate::exports::Clients;

/// Why hosts have to go first, if they have to.
pub(crate) fn busy(volume: &VolumeName, writers: &Clients) -> Option<String> {
    let (connections, count) = writers.count();
    (connections > 0).then(|| {
        format!(
            "there {} {count} that may write to {volume}{}, and its content would change under them; disconnect the hosts \
             first (unmount, stop the virtual machines)",
            if connections == 1 { "is" } else { "are" },
            writers.named()
        )
    })
}

/// `volume delete`.
pub(crate) fn delete_volume(
    volume: &VolumeName,
    snapshots: u64,
    bytes: Option<u64>,
    clones: &[String],
    rights_of: &[String],
    hosts: &[VolumeHost],
) -> Plan {
    let mut plan = plan(format!("delete volume {volume}"));
    plan.would.push(match snapshots {
        1 => format!("{volume} and its snapshot are deleted"),
        many => format!("{volume} and its {many} snapshots are deleted"),
    });
    leave_clones(&mut plan, clones);
    end_rights(&mut plan, rights_of);
    if !hosts.is_empty() {
        let names: Vec<_> = hosts.iter().map(|right| right.host.as_str()).collect();
        plan.would.push(format!("hosts lose their right to open it: {}", names.join(", ")));
    }
    lose(&mut plan, format!("everything in {volume} and in its snapshots"), bytes, None);
    plan
}

/// Clones of what goes: they have all of it that is theirs.
pub(super) fn leave_clones(plan: &mut Plan, clones: &[String]) {
    if !clones.is_empty() {
        plan.would.push(format!(
            "clones of it stay as they are, and what they have in common with it stays in use: {}",
            clones.join(", ")
        ));
    }
}

/// Peers that may mirror what goes.
pub(super) fn end_rights(plan: &mut Plan, rights_of: &[String]) {
    if !rights_of.is_empty() {
        plan.would.push(format!("peers lose their right to mirror it: {}", rights_of.join(", ")));
    }
}

/// `volume resize`; `beyond_bytes` is what lies past the new end and in no snapshot.
pub(crate) fn resize(volume: &VolumeName, from: u64, to: u64, beyond_bytes: Option<u64>) -> Plan {
    let mut plan = plan(format!("resize volume {volume}"));
    plan.would.push(format!("{volume} has {to} bytes instead of {from}"));
    if to < from {
        plan.would.push(String::from(
            "snapshots that people made keep what they hold past the new end; those of mirrors here go with their next update, \
             those of a timetable when it is their turn, and what a replica has kept as its retention says",
        ));
        if beyond_bytes != Some(0) {
            lose(
                &mut plan,
                format!("what lies past byte {to} of {volume}, and is not in the newest snapshot that stays"),
                beyond_bytes,
                None,
            );
        }
    }
    plan
}
