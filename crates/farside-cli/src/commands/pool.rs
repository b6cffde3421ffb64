//! `farside pool`.

use std::path::{Path, PathBuf};

use farside_api::{
    CreatePool, ErrorBody, ErrorCode, GrowPool, ImportPool, Pool, PoolEngine, PoolFileSystem, PoolRoom,
    PoolState, ReopenPool, StagedContent, StartScrub,
};
use reqwest::Method;

use super::check;
use super::context::{Context, Failed};
use super::{present, quarantine, scrub};
use crate::arguments::destructive::Destructive;
use crate::arguments::pool::{Engine, Pool as Verb};
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, details, or_dash, table};
use crate::quantities::size;

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Create {
            name,
            engine,
            path,
            rbd_pool,
            rbd_namespace,
            conf,
            user,
            size,
            overwrite,
            if_absent,
            destructive,
        } => {
            let path = match (engine, rbd_pool, path) {
                (Engine::Rbd, Some(pool), _) => in_ceph(&pool, rbd_namespace, user, conf)?,
                (Engine::Embedded, None, Some(path)) => absolute(&path)?,
                _ => {
                    let message = "--rbd-pool goes with --engine rbd, --path with the embedded engine";
                    return Err(ErrorBody::new(ErrorCode::WrongUsage, message).into());
                }
            };
            let there = present::is_there::<Pool>(&context, if_absent, &["pools", &name], &[]).await?;
            let body = CreatePool { name, path, size_bytes: size, overwrite, if_absent };
            // Without consent to overwrite it destroys nothing, and nobody has to be asked.
            let impact = if overwrite { Impact::Data } else { Impact::Service };
            let destructive =
                Destructive { yes: destructive.yes || !(overwrite || destructive.plan), ..destructive };
            let request =
                DestructiveRequest { method: Method::POST, path: &["pools"], body: Some(&body), impact };
            if let Some(pool) = carry_out::<Pool>(&context.client, request, destructive, context.json).await?
            {
                present::show(&context, there, &pool, &format!("pool {}", pool.name), |pool| {
                    let warning = pool.warning.iter().map(|warning| format!("warning: {warning}\n"));
                    format!("pool {} created in {}\n{}", pool.name, pool.path, warning.collect::<String>())
                });
            }
        }
        Verb::Reopen { name, force } => {
            let request = ReopenPool { force };
            let pool: Pool = context.client.post(&["pools", &name, "reopen"], &request).await?;
            context.show(&pool, |pool| {
                let volumes = pool.volumes.unwrap_or(0);
                format!("pool {} is open again: {volumes} volumes; hosts can connect\n", pool.name)
            });
        }
        Verb::Grow { name, size: wanted } => {
            let request = GrowPool { size_bytes: wanted };
            let pool: Pool = context.client.post(&["pools", &name, "grow"], &request).await?;
            context.show(&pool, |pool| {
                let free = or_dash(pool.free_bytes, size);
                let warning = pool.warning.iter().map(|warning| format!("warning: {warning}\n"));
                let now = or_dash(pool.size_bytes, size);
                format!(
                    "pool {} has {now} now, {free} of it free\n{}",
                    pool.name,
                    warning.collect::<String>()
                )
            });
        }
        Verb::Import { name, path, force, as_copy, destructive } => {
            let path = match path.to_str() {
                Some(place) if place.starts_with("rbd:") => place.to_owned(),
                _ => absolute(&path)?,
            };
            let body = ImportPool { name, path, force, as_copy };
            // Only a copy that becomes a pool of its own loses something: its mirrors.
            let destructive =
                Destructive { yes: destructive.yes || !(as_copy || destructive.plan), ..destructive };
            let request = DestructiveRequest {
                method: Method::POST,
                path: &["imports"],
                body: Some(&body),
                impact: Impact::Service,
            };
            let done = carry_out::<Pool>(&context.client, request, destructive, context.json).await?;
            let Some(pool) = done else { return Ok(()) };
            context.show(&pool, |pool| {
                format!(
                    "pool {} opened from {}: {} volumes\n",
                    pool.name,
                    pool.path,
                    pool.volumes.unwrap_or(0)
                )
            });
        }
        Verb::List | Verb::Status { name: None } => {
            let pools: Vec<Pool> = context.client.get(&["pools"]).await?;
            context.show(&pools, |pools| listing(pools));
        }
        Verb::Status { name: Some(name) } => {
            let pool: Pool = context.client.get(&["pools", &name]).await?;
            context.show(&pool, status);
        }
        Verb::Check { pool, quick } => return check::run(&context, &pool, quick).await,
        Verb::Scrub { name, rate, anew, no_wait, status, stop } => {
            let wanted = if status {
                scrub::Wanted::Status
            } else if stop {
                scrub::Wanted::Stop
            } else {
                scrub::Wanted::Start { request: StartScrub { rate, anew }, waits: !no_wait }
            };
            return scrub::run(&context, name.as_deref(), wanted).await;
        }
        Verb::DropStaged { name, volume, destructive } => {
            let mut path = vec!["pools", name.as_str(), "staged"];
            path.extend(volume.as_deref());
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &path,
                body: None::<&()>,
                impact: Impact::Data,
            };
            let dropped =
                carry_out::<Vec<StagedContent>>(&context.client, request, destructive, context.json).await?;
            if let Some(dropped) = dropped {
                context.show(&dropped, |dropped| {
                    if dropped.is_empty() {
                        return String::from("nothing was staged\n");
                    }
                    let line = |s: &StagedContent| {
                        format!("{name}/{}: {} discarded\n", s.volume, or_dash(s.bytes, size))
                    };
                    dropped.iter().map(line).collect()
                });
            }
        }
        Verb::Delete { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &["pools", &name],
                body: None::<&()>,
                impact: Impact::Data,
            };
            if let Some(pool) = carry_out::<Pool>(&context.client, request, destructive, context.json).await?
            {
                context.show(&pool, |pool| match pool.uuid {
                    Some(_) => format!("pool {} deleted\n", pool.name),
                    None if pool.path_lost == Some(true) => {
                        format!("pool {} is forgotten; nothing is at {}\n", pool.name, pool.path)
                    }
                    None => format!("pool {} is forgotten; {} stays as it is\n", pool.name, pool.path),
                });
            }
        }
    }
    Ok(())
}

/// A pool of Ceph, as the API has it.
fn in_ceph(
    pool: &str,
    namespace: Option<String>,
    user: Option<String>,
    conf: Option<PathBuf>,
) -> Result<String, ErrorBody> {
    let within = namespace.map(|namespace| format!("/{namespace}")).unwrap_or_default();
    let user = user.map(|user| format!(":id={user}")).unwrap_or_default();
    let conf = conf.map(|conf| Ok::<_, ErrorBody>(format!(":conf={}", absolute(&conf)?))).transpose()?;
    Ok(format!("rbd:{pool}{within}{user}{}", conf.unwrap_or_default()))
}

/// The daemon runs in another directory.
fn absolute(path: &Path) -> Result<String, ErrorBody> {
    let wrong =
        |reason: String| ErrorBody::new(ErrorCode::WrongUsage, format!("{}: {reason}", path.display()));
    let absolute = std::path::absolute(path).map_err(|e| wrong(e.to_string()))?;
    absolute.into_os_string().into_string().map_err(|_| wrong(String::from("the path is not UTF-8")))
}

fn listing(pools: &[Pool]) -> String {
    let columns = [
        Column::Left("name"),
        Column::Left("state"),
        Column::Right("size"),
        Column::Right("used"),
        Column::Right("reclaimable"),
        Column::Right("free"),
        Column::Left("room"),
        Column::Right("reserved"),
        Column::Right("volumes"),
        Column::Left("engine"),
        Column::Left("path"),
        Column::Left("error"),
    ];
    let rows = pools.iter().map(|pool| {
        vec![
            pool.name.clone(),
            state(pool.state).into(),
            or_dash(pool.size_bytes, size),
            or_dash(pool.used_bytes, size),
            or_dash(pool.reclaimable_bytes, size),
            or_dash(pool.free_bytes, size),
            or_dash(pool.room, |room| room_word(room).into()),
            or_dash(pool.reserved_bytes, size),
            or_dash(pool.volumes, |n| n.to_string()),
            engine(pool.engine).into(),
            pool.path.clone(),
            pool.error.clone().unwrap_or_default(),
        ]
    });
    table(&columns, rows.collect(), "no pools; make one with farside pool create")
}

fn engine(engine: PoolEngine) -> &'static str {
    match engine {
        PoolEngine::Embedded => "embedded",
        PoolEngine::Rbd => "rbd",
    }
}

fn state(state: PoolState) -> &'static str {
    match state {
        PoolState::Open => "open",
        PoolState::ReadOnly => "read-only",
        PoolState::Failed => "failed",
        PoolState::Opening => "opening",
    }
}

pub(super) fn room_word(room: PoolRoom) -> &'static str {
    match room {
        PoolRoom::Enough => "enough",
        PoolRoom::Filling => "filling",
        PoolRoom::NearlyFull => "nearly full",
        PoolRoom::Full => "full",
    }
}

fn room(pool: &Pool) -> String {
    match (pool.room, &pool.warning) {
        (Some(room), Some(warning)) => format!("{}: {warning}", room_word(room)),
        (room, _) => or_dash(room, |room| room_word(room).into()),
    }
}

/// How many volumes, and what hosts were promised beside what there is.
fn volumes(pool: &Pool) -> String {
    let of = |bytes| format!(", {} in all", size(bytes));
    or_dash(pool.volumes, |n| format!("{n}{}", pool.volume_bytes.map(of).unwrap_or_default()))
}

/// That the file system below a pool's file has less left than the pool may take of it.
fn below(pool: &Pool) -> String {
    let Some(PoolFileSystem { free_bytes, may_take_bytes }) = pool.file_system else { return String::new() };
    format!(
        "\nthe file system of {} has {} free, and the pool may still take {} of it: once that file system is full, writes to the pool \
         fail, whatever room the pool says it has. To mend it: make room there (df), or move the pool to a larger one\n",
        pool.path,
        size(free_bytes),
        size(may_take_bytes)
    )
}

fn status(pool: &Pool) -> String {
    let text = details(&[
        ("name", pool.name.clone()),
        ("state", state(pool.state).into()),
        ("error", or_dash(pool.error.clone(), |e| e)),
        ("advice", or_dash(pool.advice.clone(), |e| e)),
        ("engine", engine(pool.engine).into()),
        ("path", pool.path.clone()),
        ("uuid", or_dash(pool.uuid, |u| u.to_string())),
        ("size", or_dash(pool.size_bytes, size)),
        ("used", or_dash(pool.used_bytes, size)),
        ("reclaimable", or_dash(pool.reclaimable_bytes, size)),
        ("free", or_dash(pool.free_bytes, size)),
        ("room", room(pool)),
        (
            "reserved",
            or_dash(pool.reserved_bytes, |bytes| format!("{} for volumes, and not used", size(bytes))),
        ),
        ("volumes", volumes(pool)),
        ("staged", or_dash(pool.staged_bytes, size)),
        ("quarantined", or_dash(pool.quarantined.as_deref(), quarantine::bytes)),
        ("scrub", or_dash(pool.scrub.as_ref(), scrub::summary)),
    ]);
    // What was cut before anything had come has nothing to go on with.
    let staged = pool.staged.iter().flatten().filter(|staged| staged.transferring || staged.bytes != Some(0));
    let lines = staged.map(|staged| {
        let bytes = or_dash(staged.bytes, size);
        if staged.transferring {
            format!("\nstaged: {bytes} of {}, by a transfer that runs\n", staged.volume)
        } else {
            format!(
                "\nstaged: {bytes} of {}, by an interrupted transfer; the next one continues from it. To discard it: farside \
                 pool drop-staged {} {}\n",
                staged.volume, pool.name, staged.volume
            )
        }
    });
    text + &below(pool)
        + &lines.collect::<String>()
        + &quarantine::lines(&pool.name, pool.quarantined.as_deref())
        + &pool.scrub.as_ref().map(scrub::damage).unwrap_or_default()
}
