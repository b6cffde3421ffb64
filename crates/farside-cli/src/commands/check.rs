//! `farside pool check`: reads a pool's file or device itself. No daemon is asked, but for the path of a pool that is
//! given by name, and for what it serves where somebody has the file open.

use std::path::{Path, PathBuf};
use std::time::Duration;

use farside_api::{CheckFinding, CheckedVersion, ErrorBody, ErrorCode, Pool, PoolCheck, PoolState, Severity};
use farside_check::{CheckError, CheckOptions, Progress, Report};
use farside_platform::{DeviceError, FileDevice};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep};

use super::context::{Context, Failed};
use crate::output;
use crate::quantities::size;

/// Findings that are shown; more are counted.
const FINDINGS_MAX: usize = 1000;
/// The daemon's state, in its data directory; none where that is in PostgreSQL.
const STATE_FILE: &str = "farside.db";
/// How long a pool is waited for that somebody else has open.
const LOCKED_PATIENCE: Duration = Duration::from_secs(2);
const LOCKED_AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn run(context: &Context, pool: &str, quick: bool) -> Result<(), Failed> {
    let path = locate(context, pool).await?;
    let device = match open(&path).await {
        Ok(device) => device,
        Err(error) => {
            let pools = match error {
                DeviceError::Locked { .. } => context.client.get(&["pools"]).await.unwrap_or_default(),
                _ => Vec::new(),
            };
            return Err(served(&pools, &path).unwrap_or_else(|| unopened(&path, error)).into());
        }
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(
        "{prefix} [{bar:30}] {bytes} / {total_bytes}  {bytes_per_sec}  ETA {eta}",
    ) {
        bar.set_style(style.progress_chars("=> "));
    }
    let shown = bar.clone();
    let options = CheckOptions {
        read_data: !quick,
        replay: true,
        findings_max: FINDINGS_MAX,
        progress: Some(Box::new(move |progress: Progress| {
            shown.set_prefix(progress.stage);
            shown.set_length(progress.bytes_in_use.max(progress.bytes_read));
            shown.set_position(progress.bytes_read);
        })),
    };
    let report = farside_check::check(&device, &options);
    bar.finish_and_clear();
    let document = document(&path, report.map_err(|error| unchecked(&error))?);
    context.show(&document, |document| describe(document, quick));
    match document.error {
        Some(error) => Err(Failed { error, is_printed: true, exit_code: None }),
        None => Ok(()),
    }
}

/// Opens it once nobody has it open, or says who has. The kernel closes what a killed daemon had open only when the last of its
/// operations is over, some tenths of a second later.
async fn open(path: &Path) -> Result<FileDevice, DeviceError> {
    let deadline = Instant::now() + LOCKED_PATIENCE;
    loop {
        match FileDevice::open_read_only(path) {
            Err(DeviceError::Locked { .. }) if Instant::now() < deadline => sleep(LOCKED_AGAIN).await,
            opened => return opened,
        }
    }
}

/// A file or device as it is given; else a pool of the daemon.
async fn locate(context: &Context, pool: &str) -> Result<PathBuf, ErrorBody> {
    // A directory here that is called as the pool is, is not what was meant.
    if pool.contains('/') || (Path::new(pool).exists() && !Path::new(pool).is_dir()) {
        return Ok(PathBuf::from(pool));
    }
    let known: Result<Pool, ErrorBody> = context.client.get(&["pools", pool]).await;
    let known = known.and_then(|known| match known.path.starts_with("rbd:") {
        true => Err(ErrorBody::new(
            ErrorCode::Refused,
            format!("pool {pool} is a pool of Ceph ({}), which verifies what it holds itself", known.path),
        )
        .hint("ceph health detail shows what Ceph has found")),
        false => Ok(PathBuf::from(known.path)),
    });
    known.map_err(|error| match error.code {
        ErrorCode::NotFound => {
            ErrorBody::new(ErrorCode::NotFound, format!("{pool} is neither a file nor a pool of this site"))
                .hint("give the pool's file or device, or its name; farside pool list shows both")
        }
        // The check is for days without a daemon: what is missing is the file.
        ErrorCode::DaemonUnreachable => {
            let socket = context.client.control_socket();
            let state = socket.and_then(Path::parent).map(|directory| directory.join(STATE_FILE));
            unfound(pool, &error.message, state.filter(|state| state.exists()).as_deref())
        }
        _ => error,
    })
}

/// That what was given is no file, and that nobody answers who could know it as a pool.
/// `state`: the daemon's state database, which has the paths.
fn unfound(pool: &str, unreachable: &str, state: Option<&Path>) -> ErrorBody {
    let message = format!(
        "{pool} is not a file here, and no daemon answers to say whether a pool is called so: {unreachable}"
    );
    let told_by = match state {
        Some(state) => format!("sqlite3 -readonly {} 'SELECT name, path FROM pools'", state.display()),
        None => "journalctl -u farsided | grep 'pool opened'".to_owned(),
    };
    ErrorBody::new(ErrorCode::NotFound, message).hint(format!(
        "farside pool check PATH, with the pool's file or device as it was given to farside pool create, needs no daemon. Only the daemon \
         knows pools by name; the path is in what it keeps: {told_by}"
    ))
}

/// That the daemon itself has it open, with what can be done instead; none if none of its pools is in this file.
fn served(pools: &[Pool], path: &Path) -> Option<ErrorBody> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let wanted = real(path);
    let is_it = |pool: &&Pool| {
        matches!(pool.state, PoolState::Open | PoolState::ReadOnly) && real(Path::new(&pool.path)) == wanted
    };
    let Pool { name, path, .. } = pools.iter().find(is_it)?;
    let message = format!(
        "pool {name} is in use: the daemon serves it, and a check reads {path} while nobody does. Nothing was read or changed"
    );
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "farside pool scrub {name} reads and verifies everything while it serves. For a check instead: stop farsided, farside pool check \
         {path}, start farsided again"
    )))
}

fn unopened(path: &Path, error: DeviceError) -> ErrorBody {
    let message = error.to_string();
    match error {
        DeviceError::Locked { .. } => ErrorBody::new(ErrorCode::Refused, message)
            .hint("stop farsided, check the pool, start farsided again"),
        DeviceError::Open { source, .. }
            if matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            ErrorBody::new(ErrorCode::NotFound, format!("{} does not exist", path.display()))
        }
        _ => ErrorBody::new(ErrorCode::Failed, message),
    }
}

fn unchecked(error: &CheckError) -> ErrorBody {
    let code = match error {
        CheckError::TooSmall { .. } | CheckError::NoSuperblock { .. } => ErrorCode::Corrupt,
        CheckError::OtherVersion { .. } => ErrorCode::Refused,
        CheckError::Device(_) => ErrorCode::Failed,
    };
    ErrorBody::new(code, error.to_string())
}

fn document(path: &Path, report: Report) -> PoolCheck {
    let findings: Vec<CheckFinding> = report
        .findings
        .iter()
        .map(|finding| CheckFinding {
            severity: match finding.severity {
                farside_check::Severity::Warning => Severity::Warning,
                farside_check::Severity::Error => Severity::Error,
            },
            what: finding.what.to_string(),
            location: finding.location.to_string(),
            expected: finding.expected.clone(),
            found: finding.found.clone(),
            hint: finding.hint.to_owned(),
        })
        .collect();
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let error = (errors > 0).then(|| {
        let message = format!("{}: {errors} errors found; nothing was changed", path.display());
        ErrorBody::new(ErrorCode::Corrupt, message)
            .hint("the page Repairing a site of the manual (guides/repair) says what to do")
    });
    let versions = report.versions_after_replay.unwrap_or(report.versions);
    PoolCheck {
        path: path.display().to_string(),
        uuid: report.pool,
        size_bytes: report.pool_bytes,
        used_bytes: report.blocks_in_use * farside_platform::BLOCK_BYTES as u64,
        generation: report.generation,
        superblock_errors: report.superblocks.into_iter().map(|slot| slot.generation.err()).collect(),
        journal_batches: report.journal.batches,
        versions: versions
            .into_iter()
            .filter(|version| !version.deleted)
            .map(|version| CheckedVersion {
                volume: version.volume_name,
                snapshot: version.snapshot,
                size_bytes: version.size_bytes,
                content_root: version.content_root.map(|root| root.to_string()),
            })
            .collect(),
        findings,
        findings_dropped: report.findings_dropped,
        read_bytes: report.bytes_read,
        error,
    }
}

fn describe(check: &PoolCheck, quick: bool) -> String {
    let mut text = output::details(&[
        ("path", check.path.clone()),
        ("uuid", check.uuid.to_string()),
        ("size", size(check.size_bytes)),
        ("used", size(check.used_bytes)),
        ("consistency point", check.generation.to_string()),
        (
            "superblock A",
            check.superblock_errors.first().cloned().flatten().unwrap_or_else(|| String::from("good")),
        ),
        (
            "superblock B",
            check.superblock_errors.get(1).cloned().flatten().unwrap_or_else(|| String::from("good")),
        ),
        ("journal", format!("{} batches to replay", check.journal_batches)),
        ("volumes and snapshots", check.versions.len().to_string()),
        ("read", size(check.read_bytes)),
    ]);
    for finding in &check.findings {
        let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
        text += &format!(
            "{severity}: {} ({}): expected {}, found {}\n",
            finding.what, finding.location, finding.expected, finding.found
        );
        if !finding.hint.is_empty() {
            text += &format!("  {}\n", finding.hint);
        }
    }
    if check.findings_dropped > 0 {
        text += &format!("and {} more\n", check.findings_dropped);
    }
    if check.error.is_none() {
        let what = if quick { "all metadata is" } else { "every block of every version is there and" };
        text += &format!("{what} good\n");
    }
    text
}
