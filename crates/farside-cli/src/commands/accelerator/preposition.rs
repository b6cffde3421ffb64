//! `farside accel preposition`: a peer's chunk store is filled ahead of time.
//!
//! Files are opened here, with the rights of whoever runs this, and sent to the daemon over its socket: the daemon could read more than
//! its users may.

use std::fs::{File, Metadata};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_api::{ErrorBody, ErrorCode, Preposition, PrepositionVolume, Prepositioned, Volume};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::{Body, Method};
use serde::Serialize;
use tokio::task::JoinSet;

use super::super::context::Context;
use super::files::{FileBody, LeftOut, ReadFailure, Total, Walk, open};
use crate::arguments::names::VolumeName;
use crate::client::Client;
use crate::output::{Column, or_dash, table};
use crate::progress::reduction;
use crate::quantities::{duration, rate, size};

/// Files that are sent at the same time: each waits a round trip for its beginning and one for its end.
const AT_ONCE: usize = 8;
/// How long a peer that was lost is waited for, and how often it is looked for.
const PEER_PATIENCE: Duration = Duration::from_secs(60);
const TRY_EVERY: Duration = Duration::from_secs(1);
/// As long as a slow link may take.
const SENT_WITHIN: Duration = Duration::from_secs(30 * 24 * 3600);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What it came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Done {
    target: String,
    kind: &'static str,
    peer: Option<String>,
    files: u64,
    original_bytes: u64,
    wire_bytes: u64,
    duration_seconds: f64,
    left_out: LeftOut,
}

impl Done {
    fn add(&mut self, sent: Prepositioned) {
        self.files += 1;
        self.original_bytes += sent.original_bytes;
        self.wire_bytes += sent.wire_bytes;
        self.peer = Some(sent.peer);
    }
}

/// What is to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Target {
    File(PathBuf),
    Directory(PathBuf),
    Volume(VolumeName),
}

pub(super) async fn run(context: &Context, target: &str, peer: Option<String>) -> Result<(), ErrorBody> {
    let found = find(&context.client, target).await?;
    let began = Instant::now();
    // One of this process: it has one at a time.
    let job = format!("{}-{}", std::process::id(), farside_api::Timestamp::now().as_millisecond());
    let sender = Sender { client: context.client.clone(), job, peer, finished: Arc::default() };
    let total = match &found {
        Target::Directory(path) => Total::of(path),
        Target::File(path) => Total::known(std::fs::metadata(path).map_or(0, |of| of.len())),
        Target::Volume(_) => Arc::default(),
    };
    let kind = match &found {
        Target::File(_) => "file",
        Target::Directory(_) => "directory",
        Target::Volume(_) => "volume",
    };
    let mut done = Done {
        target: target.to_owned(),
        kind,
        peer: None,
        files: 0,
        original_bytes: 0,
        wire_bytes: 0,
        duration_seconds: 0.0,
        left_out: LeftOut::default(),
    };
    let sending = async {
        match found {
            Target::Volume(volume) => done.add(sender.volume(&volume).await?),
            Target::File(path) => match sender.file(&path, std::fs::canonicalize(&path)).await? {
                Ok(sent) => done.add(sent),
                Err(error) => return Err(unreadable(&path, &error)),
            },
            Target::Directory(path) => sender.directory(&path, &mut done).await?,
        }
        Ok::<_, ErrorBody>(())
    };
    tokio::select! {
        sent = sending => sent?,
        () = show_progress(&sender, &total, target) => {}
        _ = tokio::signal::ctrl_c() => {
            sender.cancel().await;
            return Err(ErrorBody::new(ErrorCode::Failed, format!("the preposition of {target} was cancelled"))
                .hint("what has come there is kept: the same again costs next to nothing for it"));
        }
    }
    done.duration_seconds = began.elapsed().as_secs_f64();
    context.show(&done, text);
    Ok(())
}

/// A path or a volume. `p/db` may be both.
async fn find(client: &Client, target: &str) -> Result<Target, ErrorBody> {
    let path = Path::new(target);
    let found = std::fs::metadata(path);
    let may_be_volume = !target.starts_with(['/', '.']);
    if let (true, Ok(name)) = (may_be_volume, target.parse::<VolumeName>()) {
        let volume: Result<Volume, _> = client.get(&["volumes", &name.pool, &name.volume]).await;
        match (volume, &found) {
            (Ok(_), Ok(_)) => {
                let why = format!("{target} is a volume of this site and a file or directory here as well");
                return Err(ErrorBody::new(ErrorCode::WrongUsage, why).hint(format!(
                    "write ./{target} for the file; for the volume, run this in another directory"
                )));
            }
            (Ok(_), Err(_)) => return Ok(Target::Volume(name)),
            (Err(error), _) if error.code == ErrorCode::DaemonUnreachable => return Err(error),
            (Err(_), _) => {}
        }
    }
    match found {
        Ok(of) if of.is_dir() => Ok(Target::Directory(path.to_owned())),
        Ok(of) if of.is_file() => Ok(Target::File(path.to_owned())),
        Ok(_) => Err(ErrorBody::new(ErrorCode::WrongUsage, format!("{target} is no file and no directory"))
            .hint("a device's content is prepositioned as a volume of a pool")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(ErrorBody::new(
            ErrorCode::NotFound,
            format!("there is no file, directory or volume {target}"),
        )
        .hint("farside volume list shows the volumes of this site")),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> ErrorBody {
    ErrorBody::new(ErrorCode::Failed, format!("cannot read {}: {error}", path.display()))
        .hint("it is read with your own rights; nothing of it was sent")
}

/// Sends, and tries again while a lost peer comes back.
#[derive(Clone)]
struct Sender {
    client: Client,
    job: String,
    peer: Option<String>,
    /// Bytes of files that are there.
    finished: Arc<AtomicU64>,
}

impl Sender {
    async fn cancel(&self) {
        let path = ["accelerator", "prepositions", self.job.as_str()];
        let ended: Result<Vec<Preposition>, _> =
            self.client.request(Method::DELETE, &path, &[], None::<&()>).await;
        // If there is nothing to cancel, that is what was wanted.
        drop(ended);
    }

    async fn volume(&self, volume: &VolumeName) -> Result<Prepositioned, ErrorBody> {
        let request =
            PrepositionVolume { job: self.job.clone(), volume: volume.to_string(), peer: self.peer.clone() };
        let path = ["accelerator", "prepositions", "volume"];
        let mut patience = Patience::default();
        loop {
            let began = Instant::now();
            match self.client.post_within(SENT_WITHIN, &path, &request).await {
                Ok(sent) => return Ok(sent),
                Err(error) => patience.again(began, error).await?,
            }
        }
    }

    /// The outer error ends everything; the inner one is of this file.
    async fn file(
        &self,
        path: &Path,
        opened_at: std::io::Result<PathBuf>,
    ) -> Result<std::io::Result<Prepositioned>, ErrorBody> {
        let opened_at = match opened_at {
            Ok(opened_at) => opened_at,
            Err(error) => return Ok(Err(error)),
        };
        let mut patience = Patience::default();
        loop {
            let began = Instant::now();
            let failure: ReadFailure = Arc::default();
            let opened = match open(&opened_at) {
                Ok(opened) => opened,
                Err(error) => return Ok(Err(error)),
            };
            let sent = self.send(path, opened, &failure).await;
            if let Some(error) = failure.lock().await.take() {
                return Ok(Err(error));
            }
            match sent {
                Ok(sent) => {
                    self.finished.fetch_add(sent.original_bytes, Ordering::Relaxed);
                    return Ok(Ok(sent));
                }
                Err(error) => patience.again(began, error).await?,
            }
        }
    }

    async fn send(
        &self,
        path: &Path,
        (file, metadata): (File, Metadata),
        failure: &ReadFailure,
    ) -> Result<Prepositioned, ErrorBody> {
        let (what, bytes) = (path.display().to_string(), metadata.len().to_string());
        let mut query = vec![("job", self.job.as_str()), ("what", &what), ("size_bytes", &bytes)];
        query.extend(self.peer.as_deref().map(|peer| ("peer", peer)));
        let body = Body::wrap(FileBody::of(file, failure));
        self.client.post_body(SENT_WITHIN, &["accelerator", "prepositions"], &query, body).await
    }

    async fn directory(&self, path: &Path, done: &mut Done) -> Result<(), ErrorBody> {
        let mut walk = Walk::of(path).map_err(|error| unreadable(path, &error))?;
        let mut sending = JoinSet::new();
        let mut left_out = LeftOut::default();
        loop {
            while sending.len() < AT_ONCE
                && let Some((file, _)) = walk.next(&mut left_out)
            {
                let sender = self.clone();
                sending.spawn(async move {
                    let sent = sender.file(&file, Ok(file.clone())).await;
                    (file, sent)
                });
            }
            let Some(sent) = sending.join_next().await else { break };
            let (file, sent) = sent.map_err(|e| ErrorBody::new(ErrorCode::Failed, e.to_string()))?;
            match sent? {
                Ok(sent) => done.add(sent),
                Err(error) => left_out.unreadable(&file, &error),
            }
        }
        done.left_out = left_out;
        Ok(())
    }
}

/// Tries again while the peer is lost: what has come there goes as references.
#[derive(Default)]
struct Patience {
    /// Since when.
    lost: Option<Instant>,
}

impl Patience {
    /// Waits until another try, after one that began then and failed with this.
    ///
    /// # Errors
    /// The same, if another try makes no sense.
    async fn again(&mut self, began: Instant, error: ErrorBody) -> Result<(), ErrorBody> {
        if error.code != ErrorCode::PeerUnreachable {
            return Err(error);
        }
        // One that went on for a while was there meanwhile.
        let since = match self.lost {
            Some(since) if began.elapsed() < PEER_PATIENCE => since,
            _ => *self.lost.insert(Instant::now()),
        };
        if since.elapsed() > PEER_PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(TRY_EVERY).await;
        Ok(())
    }
}

/// Shows how far it is, for as long as it is polled; nothing where nobody looks.
async fn show_progress(sender: &Sender, total: &Total, target: &str) {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let bar = Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
    bar.0.set_prefix(target.to_owned());
    let began = Instant::now();
    let mut wire_of_finished = (0, 0);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let running: Result<Vec<Preposition>, _> = sender.client.get(&["accelerator", "prepositions"]).await;
        let Ok(mut running) = running else { continue };
        running.retain(|preposition| preposition.job == sender.job);
        let of_running: u64 = running.iter().map(|preposition| preposition.original_bytes).sum();
        let wire: u64 = running.iter().map(|preposition| preposition.wire_bytes).sum();
        if of_running > 0 {
            wire_of_finished = (of_running, wire);
        }
        let sent = sender.finished.load(Ordering::Relaxed) + of_running;
        let of_volume = running.iter().find_map(|preposition| preposition.size_bytes);
        let all = total.bytes().or(if sender.finished.load(Ordering::Relaxed) == 0 && running.len() == 1 {
            of_volume
        } else {
            None
        });
        bar.show(sent, all, wire_of_finished, began.elapsed().as_secs_f64());
    }
}

/// Gone from the screen when it is dropped.
struct Bar(ProgressBar);

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Bar {
    fn show(&self, sent: u64, all: Option<u64>, (original, wire): (u64, u64), seconds: f64) {
        let template = match all {
            Some(_) => "{prefix} [{wide_bar}] {percent:>3}%  {msg}",
            None => "{prefix} {spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style.progress_chars("=> "));
        }
        if let Some(all) = all {
            self.0.set_length(all);
            self.0.set_position(sent.min(all));
        }
        self.0.set_message(figures(sent, all, original, wire, seconds));
        self.0.tick();
    }
}

fn figures(sent: u64, all: Option<u64>, original: u64, wire: u64, seconds: f64) -> String {
    let per_second = sent as f64 / seconds.max(0.001);
    let mut text = match all {
        Some(all) => format!("{} / {}", size(sent), size(all)),
        None => size(sent),
    };
    text += &format!("  {}", rate(per_second));
    if let Some(reduction) = reduction(original, wire) {
        text += &format!("  {reduction}");
    }
    if let Some(all) = all.filter(|_| per_second > 1.0) {
        text += &format!("  ETA {}", duration(all.saturating_sub(sent) as f64 / per_second));
    }
    text
}

fn text(done: &Done) -> String {
    let files = match (done.kind, done.files) {
        ("directory", 1) => "1 file, ".to_owned(),
        ("directory", files) => format!("{files} files, "),
        _ => String::new(),
    };
    // What was new there passes once, about as it is: that is no reduction.
    let is_fewer = done.wire_bytes.saturating_mul(10) < done.original_bytes.saturating_mul(9);
    let cost = reduction(done.original_bytes, done.wire_bytes)
        .filter(|_| is_fewer)
        .map(|times| format!(" ({times} fewer)"));
    let mut text = format!(
        "{} is in the chunk store of {}: {files}{}, {} over the link{}, {}\n",
        done.target,
        or_dash(done.peer.clone(), |peer| peer),
        size(done.original_bytes),
        size(done.wire_bytes),
        cost.unwrap_or_default(),
        duration(done.duration_seconds)
    );
    let LeftOut { symbolic_links, special_files, small_files, unreadable, unreadable_first } = &done.left_out;
    let counts = [
        (symbolic_links, "symbolic links"),
        (special_files, "special files"),
        (small_files, "files too small to be kept"),
        (unreadable, "unreadable"),
    ];
    let said: Vec<_> =
        counts.iter().filter(|(n, _)| **n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !said.is_empty() {
        text += &format!("left out: {}\n", said.join(", "));
    }
    for name in unreadable_first {
        text += &format!("  {name}\n");
    }
    if (unreadable_first.len() as u64) < *unreadable {
        text += &format!("  and {} more\n", unreadable - unreadable_first.len() as u64);
    }
    text
}

/// `farside accel prepositions`.
pub(super) fn listed(all: &[Preposition]) -> String {
    let columns = [
        Column::Left("job"),
        Column::Left("what"),
        Column::Left("peer"),
        Column::Right("sent"),
        Column::Right("of"),
        Column::Right("on the link"),
    ];
    let rows = all.iter().map(|preposition| {
        vec![
            preposition.job.clone(),
            preposition.what.clone(),
            preposition.peer.clone(),
            size(preposition.original_bytes),
            or_dash(preposition.size_bytes, size),
            size(preposition.wire_bytes),
        ]
    });
    table(&columns, rows.collect(), "nothing is being prepositioned")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_came_to_is_said_in_a_line_and_what_was_left_out_in_the_next() {
        let mut done = Done {
            target: "/srv/images".into(),
            kind: "directory",
            peer: Some("south".into()),
            files: 12,
            original_bytes: 20 << 20,
            wire_bytes: 10 << 20,
            duration_seconds: 3.0,
            left_out: LeftOut::default(),
        };
        assert_eq!(
            text(&done),
            "/srv/images is in the chunk store of south: 12 files, 20.0 MiB, 10.0 MiB over the link (2.0x fewer), 3.00 s\n"
        );
        done.left_out.symbolic_links = 2;
        let denied = std::io::Error::from_raw_os_error(13);
        (0..22).for_each(|_| done.left_out.unreadable(Path::new("/srv/images/secret"), &denied));
        let said = text(&done);
        assert!(said.contains("left out: 2 symbolic links, 22 unreadable\n"), "{said}");
        assert!(said.contains("  /srv/images/secret: Permission denied") && said.ends_with("and 2 more\n"));
        assert_eq!(
            figures(1 << 20, Some(3 << 20), 2, 1, 1.0),
            "1.0 MiB / 3.0 MiB  1.0 MiB/s  2.0x  ETA 2.00 s"
        );
    }
}
