//! `farside volume`.

use farside_api::{
    Autogrow, CreateVolume, ErrorBody, ErrorCode, Pool, PoolEngine, PoolState, Rename, ResizeVolume,
    SetVolume, Volume, VolumeHost,
};
use reqwest::Method;

use super::context::{Context, Failed};
use super::pool::room_word;
use super::{dedup, present, quarantine};
use crate::arguments::destructive::Destructive;
use crate::arguments::names::VolumeName;
use crate::arguments::volume::{Limits, Volume as Verb};
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, details, or_dash, table};
use crate::quantities::{size, time};

/// Sizes of volumes are multiples of it.
const BLOCK_BYTES: u64 = 4096;

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Create { name, size, limits, if_absent } => {
            let there = present::is_there::<Volume>(&context, if_absent, &path(&name), &[]).await?;
            let limits = set(&limits);
            let request = CreateVolume { name: name.to_string(), size_bytes: size, limits, if_absent };
            let volume: Volume = context.client.post(&["volumes"], &request).await?;
            let note = match there {
                Some(true) => String::new(),
                _ => beyond_pool(&context, &name, &volume).await,
            };
            context.aside(&note);
            present::show(&context, there, &volume, &format!("volume {name}"), |v| {
                format!("volume {} created\n{note}", v.name)
            });
        }
        Verb::List { pool } => {
            let query: Vec<_> = pool.iter().map(|pool| ("pool", pool.as_str())).collect();
            let volumes: Vec<Volume> = context.client.get_with(&["volumes"], &query).await?;
            // A pool that is not open has volumes that are not listed.
            let closed =
                if volumes.is_empty() && !context.json { closed_pools(&context).await } else { None };
            context.show(&volumes, |volumes| closed.unwrap_or_else(|| listing(volumes)));
        }
        Verb::Status { name } => {
            let volume: Volume = context.client.get(&path(&name)).await?;
            context.show(&volume, status);
        }
        Verb::Set { name, size: Some(_), .. } => {
            let message = format!("the size of {name} is not among what is set. Nothing was changed");
            return Err(ErrorBody::new(ErrorCode::WrongUsage, message)
                .hint(format!(
                    "farside volume resize {name} --size SIZE; --plan shows what a smaller size takes away"
                ))
                .into());
        }
        Verb::Set { name, limits, size: None } => {
            let request = set(&limits);
            if request == SetVolume::default() {
                return Err(ErrorBody::new(ErrorCode::WrongUsage, "nothing to change")
                    .hint("give --quota, --reserve or --autogrow")
                    .into());
            }
            let path = ["volumes", &name.pool, &name.volume, "limits"];
            let volume: Volume = context.client.post(&path, &request).await?;
            context.show(&volume, |v| {
                let said = |bytes| or_dash(bytes, size);
                let (quota, reserve) = (said(v.quota_bytes), said(v.reserve_bytes));
                format!("volume {}: quota {quota}, reserved {reserve}, grows {}\n", v.name, autogrow(v))
            });
        }
        Verb::Resize { name, size, destructive } => {
            resize(&context, name, size, destructive).await?;
        }
        Verb::Rename { name, new } => {
            if name.pool != new.pool {
                let said = format!("a rename stays within the pool: {name} cannot become {new}");
                return Err(ErrorBody::new(ErrorCode::WrongUsage, said).into());
            }
            let request = Rename { name: new.volume };
            let volume: Volume =
                context.client.post(&["volumes", &name.pool, &name.volume, "rename"], &request).await?;
            context.show(&volume, |v| format!("volume {name} is now {}\n", v.name));
        }
        Verb::Dedup(verb) => return dedup::run(&context, verb).await,
        Verb::Delete { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &path(&name),
                body: None::<&()>,
                impact: Impact::Data,
            };
            if let Some(volume) =
                carry_out::<Volume>(&context.client, request, destructive, context.json).await?
            {
                context.show(&volume, |v| {
                    let lost = match &v.rights_of[..] {
                        [] => String::new(),
                        peers => format!("; peers that lost their right to mirror it: {}", peers.join(", ")),
                    };
                    format!("volume {} deleted{lost}\n", v.name)
                });
            }
        }
    }
    Ok(())
}

/// What is to be said of pools that are not open, if there are any.
async fn closed_pools(context: &Context) -> Option<String> {
    let pools: Vec<Pool> = context.client.get(&["pools"]).await.ok()?;
    let closed: Vec<_> =
        pools.into_iter().filter(|p| matches!(p.state, PoolState::Failed | PoolState::Opening)).collect();
    let names = closed.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(", ");
    let (which, are) = if closed.len() == 1 { ("pool", "is") } else { ("pools", "are") };
    (!closed.is_empty()).then(|| {
        format!("no volumes are to be seen: {which} {names} {are} not open. farside pool status says why, and what to do\n")
    })
}

/// Growing is no destructive request: nobody is asked.
async fn resize(
    context: &Context,
    name: VolumeName,
    size_bytes: u64,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    // Nobody is asked whether to do what would be refused.
    check_size(size_bytes)?;
    let now: Volume = context.client.get(&path(&name)).await?;
    let request = ResizeVolume { size_bytes };
    let request = DestructiveRequest {
        method: Method::POST,
        path: &["volumes", &name.pool, &name.volume, "resize"],
        body: Some(&request),
        // A plan that loses nothing counts what was there when it was made, and no host is kept from writing in between.
        impact: Impact::Data,
    };
    let grows = size_bytes >= now.size_bytes;
    let flags = Destructive { yes: destructive.yes || (grows && !destructive.plan), ..destructive };
    if let Some(volume) = carry_out::<Volume>(&context.client, request, flags, context.json).await? {
        let note = if grows { beyond_pool(context, &name, &volume).await } else { String::new() };
        context.aside(&note);
        context.show(&volume, |v| format!("volume {} has {} now\n{note}", v.name, size(v.size_bytes)));
    }
    Ok(())
}

/// What is to be said of a volume that was just given a size, where its pool has less. It is for people: what cannot be asked is
/// nothing.
async fn beyond_pool(context: &Context, name: &VolumeName, volume: &Volume) -> String {
    let pool: Result<Pool, _> = context.client.get(&["pools", &name.pool]).await;
    pool.ok().and_then(|pool| larger_than(&pool, volume)).unwrap_or_default()
}

/// That hosts cannot fill a volume as its pool is now. Thin volumes may be promised more than there is, so it is no error.
fn larger_than(pool: &Pool, volume: &Volume) -> Option<String> {
    let of = &pool.name;
    let grow = match pool.engine {
        // A device says itself how large it is.
        PoolEngine::Embedded if pool.path.starts_with("/dev/") => {
            format!("farside pool grow {of} makes the pool larger once its device is")
        }
        PoolEngine::Embedded => format!("farside pool grow {of} --size SIZE makes the pool larger"),
        PoolEngine::Rbd => "the cluster needs more room then".to_owned(),
    };
    let asked = size(volume.size_bytes);
    let has = pool.size_bytes?;
    if volume.size_bytes > has {
        let has = size(has);
        return Some(format!(
            "note: {} is larger ({asked}) than its whole pool {of} ({has}). It takes room only as hosts write, and they are told that \
             there is no space once the pool is full; {grow}\n",
            volume.name
        ));
    }
    let room = pool.room_bytes?;
    let unwritten = volume.size_bytes.saturating_sub(volume.referenced_bytes.unwrap_or(0));
    (unwritten > room).then(|| {
        format!(
            "note: pool {of} has room for {} now, less than hosts may still write to {} ({}). They are told that there is no space once \
             the pool is full; {grow}\n",
            size(room),
            volume.name,
            size(unwritten)
        )
    })
}

/// As the daemon does, which says more of what is too large.
fn check_size(bytes: u64) -> Result<(), ErrorBody> {
    if bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES) {
        return Ok(());
    }
    let said = format!("a volume cannot have {bytes} bytes; nothing was changed");
    let hint = format!(
        "sizes are multiples of {BLOCK_BYTES} bytes and more than 0; a size without a unit is in bytes: {bytes}G is gibibytes"
    );
    Err(ErrorBody::new(ErrorCode::WrongUsage, said).hint(hint))
}

fn set(limits: &Limits) -> SetVolume {
    SetVolume { quota_bytes: limits.quota, reserve_bytes: limits.reserve, autogrow: limits.autogrow }
}

fn autogrow(volume: &Volume) -> String {
    let grows = |autogrow: Autogrow| match autogrow.step_bytes {
        Some(step) => format!("by itself to {}, by {}", size(autogrow.to_bytes), size(step)),
        None => format!("by itself to {}", size(autogrow.to_bytes)),
    };
    volume.autogrow.map_or_else(|| "not by itself".into(), grows)
}

/// What it occupies of its quota, and what that means.
fn quota(volume: &Volume) -> String {
    let of = or_dash(volume.quota_bytes, size);
    match (volume.room, &volume.warning) {
        (Some(room), Some(warning)) => format!("{of}, {}: {warning}", room_word(room)),
        (Some(room), None) => format!("{of}, {}", room_word(room)),
        (None, _) => of,
    }
}

fn path(name: &VolumeName) -> [&str; 3] {
    ["volumes", &name.pool, &name.volume]
}

fn listing(volumes: &[Volume]) -> String {
    let columns = [
        Column::Left("name"),
        Column::Right("size"),
        Column::Right("referenced"),
        Column::Right("occupied"),
        Column::Right("quota"),
        Column::Left("room"),
        Column::Right("snapshots"),
        Column::Left("role"),
        Column::Left("origin"),
    ];
    let rows = volumes.iter().map(|volume| {
        vec![
            volume.name.clone(),
            size(volume.size_bytes),
            or_dash(volume.referenced_bytes, size),
            or_dash(volume.occupied_bytes, size),
            or_dash(volume.quota_bytes, size),
            or_dash(volume.room, |room| room_word(room).into()),
            volume.snapshots.to_string(),
            role(volume).into(),
            or_dash(volume.origin.clone(), |origin| origin),
        ]
    });
    table(&columns, rows.collect(), "no volumes; make one with farside volume create")
}

fn role(volume: &Volume) -> &'static str {
    match (volume.replica, volume.writable) {
        (true, _) => "replica (read-only)",
        (false, true) => "writable",
        (false, false) => "fenced (read-only)",
    }
}

fn snapshots(volume: &Volume) -> String {
    match volume.side_branches {
        0 => volume.snapshots.to_string(),
        side => format!(
            "{} ({side} on side branches; of those named rescue-… the newest stay, and the first of each day before)",
            volume.snapshots
        ),
    }
}

/// What it began as.
fn origin(volume: &Volume) -> String {
    let Some(origin) = &volume.origin else { return "-".into() };
    let of = volume.origin_created_at.map(|at| format!(", as of {}", time(at))).unwrap_or_default();
    let gone = if volume.origin_exists == Some(false) { " (deleted since)" } else { "" };
    format!("clone of {origin}{of}{gone}")
}

/// Who may open it over the network.
fn hosts(volume: &Volume) -> String {
    let host = |right: &VolumeHost| match right.read_only {
        true => format!("{} (read-only)", right.host),
        false => right.host.clone(),
    };
    volume.hosts.iter().map(host).collect::<Vec<_>>().join(", ")
}

fn status(volume: &Volume) -> String {
    let text = details(&[
        ("name", volume.name.clone()),
        ("uuid", volume.uuid.to_string()),
        ("size", size(volume.size_bytes)),
        ("referenced", or_dash(volume.referenced_bytes, size)),
        ("occupied", format!("{} with all snapshots", or_dash(volume.occupied_bytes, size))),
        ("quota", quota(volume)),
        ("reserved", or_dash(volume.reserve_bytes, size)),
        ("grows", autogrow(volume)),
        ("snapshots", snapshots(volume)),
        ("role", role(volume).into()),
        ("origin", origin(volume)),
        ("why", or_dash(volume.why.clone(), |why| why)),
        (
            "may be mirrored by",
            if volume.rights_of.is_empty() { "-".into() } else { volume.rights_of.join(", ") },
        ),
        ("may be opened by", if volume.hosts.is_empty() { "-".into() } else { hosts(volume) }),
        ("connections", format!("{} that may write, {} that only read", volume.writers, volume.readers)),
        ("quarantined", or_dash(volume.quarantined.as_deref(), quarantine::bytes)),
    ]);
    let pool = volume.name.split_once('/').map_or("", |(pool, _)| pool);
    text + &quarantine::lines(pool, volume.quarantined.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_that_its_pool_cannot_hold_is_said_to_be_one() {
        let pool = |size_bytes: u64, room_bytes: u64| -> Pool {
            let document = json!({
                "name": "tank", "uuid": null, "path": "/srv/tank.pool", "state": "open", "error": null, "size_bytes": size_bytes,
                "used_bytes": 0, "free_bytes": room_bytes, "room_bytes": room_bytes, "volumes": 1
            });
            serde_json::from_value(document).expect("a pool")
        };
        let volume = |size_bytes: u64, referenced_bytes: u64| -> Volume {
            let document = json!({
                "name": "tank/big", "uuid": uuid::Uuid::nil(), "size_bytes": size_bytes, "referenced_bytes": referenced_bytes,
                "snapshots": 0, "replica": false, "writable": true, "writers": 0, "readers": 0, "side_branches": 0
            });
            serde_json::from_value(document).expect("a volume")
        };
        const GIB: u64 = 1 << 30;
        let said = |pool, volume| larger_than(&pool, &volume).unwrap_or_default();
        let whole = said(pool(100 * GIB, 90 * GIB), volume(10_240 * GIB, 0));
        assert!(
            whole.contains("tank/big is larger (10.0 TiB) than its whole pool tank (100.0 GiB)"),
            "{whole}"
        );
        assert!(whole.contains("farside pool grow tank"), "{whole}");
        let left = said(pool(100 * GIB, 40 * GIB), volume(60 * GIB, 0));
        assert!(left.contains("has room for 40.0 GiB now"), "{left}");
        assert_eq!(
            said(pool(100 * GIB, 40 * GIB), volume(60 * GIB, 30 * GIB)),
            "",
            "what is written has its room"
        );
        assert_eq!(said(pool(100 * GIB, 90 * GIB), volume(60 * GIB, 0)), "");
    }
}
