//! Prepositions: what a peer's chunk store is filled with ahead of time.
//!
//! Neither the daemon nor its process opens a file that somebody names: whoever may use the API is not thereby somebody who may read
//! every file of this machine. A file's bytes come in with the request, from a program that its user has started. A volume is
//! the daemon's own; it reads the newest snapshot, which stays readable until its end.

use std::future::Future;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_accel::control::{Command, PrepositionEnd};
use farside_api as api;
use farside_api::{ErrorBody, ErrorCode};
use farside_engine::{ChangeKind, Engine, EngineError, VolumeName};
use farside_platform::Timestamp;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::desired::Ask;
use super::handle::{Accelerator, wrong};
use super::under_way::{Entry, Listed};
use crate::convert;
use crate::failure::Failure;

/// Under way at a time.
const PREPOSITIONS_MAX: usize = 64;
/// Longest name of a job, bytes.
const JOB_MAX: usize = 64;
/// Longest name of what is sent, characters: it stands in tables and logs.
const WHAT_MAX: usize = 256;
/// Read of a snapshot at once, bytes.
const READ_BYTES: u64 = 1 << 20;

/// Somebody who asks for one.
pub(crate) struct AskedFor {
    pub(crate) job: String,
    pub(crate) what: String,
    pub(crate) peer: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) now: Timestamp,
}

/// A volume's newest snapshot, and how much of it is data.
pub(crate) struct NewestSnapshot {
    pub(crate) name: String,
    pub(crate) data_bytes: u64,
    volume: VolumeName,
    uuid: api::Uuid,
}

impl NewestSnapshot {
    /// Looks for it. Reads metadata only.
    ///
    /// # Errors
    /// There is no such volume, or it has no snapshot.
    pub(crate) fn of(engine: &dyn Engine, volume: &VolumeName) -> Result<NewestSnapshot, ErrorBody> {
        let snapshots = engine.snapshots(volume).map_err(Failure::into_error_body)?;
        let newest = snapshots.last().ok_or_else(|| {
            ErrorBody::new(ErrorCode::Refused, format!("volume {volume} has no snapshot"))
                .hint(format!("farside snapshot create {volume}@NAME takes one"))
        })?;
        let mut data_bytes = 0u64;
        for extent in engine.changed_extents(volume, None, newest.uuid).map_err(Failure::into_error_body)? {
            let extent = extent.map_err(Failure::into_error_body)?;
            data_bytes += if extent.kind == ChangeKind::Data { extent.length } else { 0 };
        }
        let name = format!("{volume}@{}", newest.name);
        Ok(NewestSnapshot { name, data_bytes, volume: volume.clone(), uuid: newest.uuid })
    }

    /// Writes its data, in the order of its blocks, until the other end is closed. Blocks.
    fn write(&self, engine: &dyn Engine, mut to: StdUnixStream) -> Result<(), FeedError> {
        let snapshot = engine.open_snapshot(&self.volume, self.uuid)?;
        let mut buffer = Vec::new();
        for extent in engine.changed_extents(&self.volume, None, self.uuid)? {
            let extent = extent?;
            let end = extent.offset.saturating_add(extent.length);
            let mut at = if extent.kind == ChangeKind::Data { extent.offset } else { end };
            while at < end {
                let length = READ_BYTES.min(end - at);
                buffer.resize(length as usize, 0);
                snapshot.read(at, &mut buffer)?;
                to.write_all(&buffer).map_err(|_| FeedError::Closed)?;
                at += length;
            }
        }
        Ok(())
    }
}

/// Why what is sent is not sent to its end.
enum FeedError {
    /// Whoever reads it has closed it, and knows why.
    Closed,
    Failed(ErrorBody),
}

impl From<EngineError> for FeedError {
    fn from(error: EngineError) -> FeedError {
        FeedError::Failed(error.into_error_body())
    }
}

impl Accelerator {
    /// Sends what `next` gives, until it gives nothing more.
    pub(crate) async fn preposition_bytes<B, F>(
        &self,
        asked: AskedFor,
        mut next: impl FnMut() -> F,
    ) -> Result<api::Prepositioned, ErrorBody>
    where
        B: AsRef<[u8]>,
        F: Future<Output = Result<Option<B>, String>>,
    {
        let feed = async |to: StdUnixStream| {
            let failed = |why: String| FeedError::Failed(ErrorBody::new(ErrorCode::Failed, why));
            to.set_nonblocking(true).map_err(|error| failed(error.to_string()))?;
            let mut to = UnixStream::from_std(to).map_err(|error| failed(error.to_string()))?;
            while let Some(bytes) = next().await.map_err(failed)? {
                to.write_all(bytes.as_ref()).await.map_err(|_| FeedError::Closed)?;
            }
            Ok(())
        };
        self.preposition(asked, feed).await
    }

    /// Sends the data of a volume's newest snapshot.
    pub(crate) async fn preposition_snapshot(
        &self,
        asked: AskedFor,
        engine: Arc<dyn Engine>,
        snapshot: NewestSnapshot,
    ) -> Result<api::Prepositioned, ErrorBody> {
        let feed = async |to: StdUnixStream| {
            let writing = tokio::task::spawn_blocking(move || snapshot.write(&*engine, to));
            let lost = |error: tokio::task::JoinError| ErrorBody::new(ErrorCode::Failed, error.to_string());
            writing.await.map_err(|error| FeedError::Failed(lost(error)))?
        };
        self.preposition(asked, feed).await
    }

    /// Those under way.
    pub(crate) fn prepositions(&self) -> Vec<api::Preposition> {
        let seen = self.seen_prepositions();
        let running = self.prepositions.running.lock();
        let document = |(id, entry): (&u64, &Entry)| {
            let far = seen.iter().find(|status| status.id == *id);
            api::Preposition {
                job: entry.job.clone(),
                what: entry.what.clone(),
                peer: entry.peer.clone(),
                size_bytes: entry.size_bytes,
                original_bytes: far.map_or(0, |status| status.original_bytes),
                wire_bytes: far.map_or(0, |status| status.wire_bytes),
                started_at: convert::time(entry.started_at),
            }
        };
        running.iter().map(document).collect()
    }

    /// Ends all of a job. What has come to the peer's store stays there.
    pub(crate) fn cancel_preposition(&self, job: &str) -> Result<Vec<api::Preposition>, ErrorBody> {
        let mut ended = self.prepositions();
        ended.retain(|preposition| preposition.job == job);
        let running = self.prepositions.running.lock();
        running.values().filter(|entry| entry.job == job).for_each(|entry| entry.stop.cancel());
        if ended.is_empty() {
            return Err(ErrorBody::new(ErrorCode::NotFound, format!("no preposition {job} is under way"))
                .hint("farside accel prepositions shows those that are"));
        }
        Ok(ended)
    }

    async fn preposition(
        &self,
        asked: AskedFor,
        feed: impl AsyncFnOnce(StdUnixStream) -> Result<(), FeedError>,
    ) -> Result<api::Prepositioned, ErrorBody> {
        let listed = self.list_preposition(asked).await?;
        let Entry { what, peer, stop, .. } = &listed.entry;
        let failed = |why: String| ErrorBody::new(ErrorCode::Failed, why);
        let pair = StdUnixStream::pair().and_then(|(ours, theirs)| Ok((ours.try_clone()?, ours, theirs)));
        let (closer, ours, theirs) = pair.map_err(|error| failed(format!("no socket: {error}")))?;
        let (answer, answered) = oneshot::channel();
        let command = Command::Preposition { id: listed.id, peer: peer.clone() };
        let ask = Ask { command, descriptor: Some(theirs.into()), answer };
        self.asks.try_send(ask).map_err(|_| failed("the accelerator's process is asked too much".into()))?;

        let feeding = async {
            let fed = feed(ours).await;
            // The feeder's own handle is closed by now; this one said nothing, but keeps the socket open.
            let _ = closer.shutdown(std::net::Shutdown::Write);
            match fed {
                Ok(()) | Err(FeedError::Closed) => std::future::pending().await,
                Err(FeedError::Failed(error)) => error,
            }
        };
        let ended = tokio::select! {
            biased;
            ended = answered => Ok(ended),
            error = feeding => Err(error),
            () = stop.cancelled() => {
                Err(ErrorBody::new(ErrorCode::Refused, format!("the preposition of {what} was cancelled")))
            }
        };
        // Whoever still writes sees that nobody reads.
        let _ = closer.shutdown(std::net::Shutdown::Both);
        let result: Value = match ended? {
            Ok(Ok(value)) => value,
            Ok(Err(why)) => return Err(failed(format!("the accelerator's process refused: {why}"))),
            Err(_) => {
                let why = "the accelerator does not run, or its process has ended meanwhile";
                return Err(ErrorBody::new(ErrorCode::PeerUnreachable, why)
                    .hint("farside accel status shows whether it works; farside accel up switches it on"));
            }
        };
        let end = serde_json::from_value(result)
            .map_err(|_| failed("the accelerator's process gave an answer that makes no sense".into()))?;
        match end {
            PrepositionEnd::Sent(sent) => Ok(api::Prepositioned {
                what: what.clone(),
                peer: peer.clone(),
                original_bytes: sent.original_bytes,
                wire_bytes: sent.wire_bytes,
            }),
            PrepositionEnd::PeerLost(why) => Err(ErrorBody::new(ErrorCode::PeerUnreachable, why)
                .hint("try again: what has come there is kept, and costs next to nothing the second time")),
            PrepositionEnd::Refused(why) => Err(ErrorBody::new(ErrorCode::Refused, why)),
        }
    }

    async fn list_preposition(&self, asked: AskedFor) -> Result<Listed, ErrorBody> {
        let AskedFor { job, what, peer, size_bytes, now } = asked;
        let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if job.is_empty() || job.len() > JOB_MAX || !job.chars().all(is_fit) {
            return Err(wrong(format!("a job is called by 1 to {JOB_MAX} letters, digits and dashes")));
        }
        let what = what.chars().filter(|c| !c.is_control()).take(WHAT_MAX).collect();
        if self.desired.borrow().is_none() {
            return Err(ErrorBody::new(ErrorCode::Refused, "the accelerator is off")
                .hint("to switch it on: farside accel up"));
        }
        let records = self.records().await?;
        let peer = match (peer, &records[..]) {
            (Some(name), _) => records.iter().find(|record| record.name == name).ok_or_else(|| {
                ErrorBody::new(ErrorCode::NotFound, format!("peer {name} does not exist"))
                    .hint("farside peer list shows who is paired")
            })?,
            (None, [only]) => only,
            (None, []) => {
                return Err(ErrorBody::new(ErrorCode::Refused, "no peer is paired with this site")
                    .hint("farside peer join pairs with one"));
            }
            (None, several) => {
                let names: Vec<_> = several.iter().map(|record| record.name.as_str()).collect();
                return Err(wrong(format!("say whose store is to be filled: --peer {}", names.join(" or "))));
            }
        };
        let (stop, started_at) = (CancellationToken::new(), now);
        let entry = Entry { job, what, peer: peer.name.clone(), size_bytes, started_at, stop };
        let mut running = self.prepositions.running.lock();
        if running.len() >= PREPOSITIONS_MAX {
            let why = format!("{PREPOSITIONS_MAX} prepositions are under way already");
            return Err(ErrorBody::new(ErrorCode::Refused, why)
                .hint("farside accel prepositions shows them; wait for one, or cancel it"));
        }
        let id = self.prepositions.next.fetch_add(1, Ordering::Relaxed);
        running.insert(id, entry.clone());
        Ok(Listed { among: Arc::clone(&self.prepositions), id, entry })
    }
}
