//! `farside volume`.

use farside_api::{
    Autogrow, CreateVolume, ErrorBody, ErrorCode, Pool, PoolState, Rename, ResizeVolume, SetVolume, Volume,
    VolumeHost,
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
            present::show(&context, there, &volume, &format!("volume {name}"), |v| {
                format!("volume {} created\n", v.name)
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
        impact: Impact::Data,
    };
    let grows = size_bytes >= now.size_bytes;
    let flags = Destructive { yes: destructive.yes || (grows && !destructive.plan), ..destructive };
    if let Some(volume) = carry_out::<Volume>(&context.client, request, flags, context.json).await? {
        context.show(&volume, |v| format!("volume {} has {} now\n", v.name, size(v.size_bytes)));
    }
    Ok(())
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
