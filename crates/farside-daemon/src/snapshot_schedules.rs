//! Snapshots of volumes by a timetable, with retention, and with hooks that freeze an application meanwhile.
//!
//! They are persons' snapshots, so they travel with mirrors; a pin ([`kept_of`](farside_transfer::bases::kept_of) the timetable's id)
//! says which of them the timetable may let go again. What it lets go is decided as for a mirror
//! ([`farside_mirror::retention`]). A snapshot is taken also if its hook fails: a point as after a power failure is better than none,
//! and its name says what it is. What was frozen is thawed whatever happens: after each failure, and when the daemon
//! starts again after a crash.

mod document;
pub(crate) mod hooks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, SnapshotSchedule as Document};
use farside_engine::VolumeName;
use farside_mirror::retention::{KeptPoint, to_go};
use farside_mirror::{ClockReading, Retention, Schedule};
use farside_platform::Clock;
use farside_store::{NewSnapshot, Pool};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::document::{Entry, Kept, Other, name_at};
use self::hooks::Hooks;
use crate::blocking::Blocking;
use crate::convert;
use crate::failure::Failure;
use crate::pools::Pools;
use crate::state::{SnapshotScheduleRow, State, StateError};

/// How long nobody looks at most.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Timetables of a site.
const SCHEDULES_MAX: usize = 10_000;

/// The timetables of this site.
pub(crate) struct SnapshotSchedules {
    entries: Mutex<BTreeMap<Uuid, Entry>>,
    changed: Notify,
    hooks: Hooks,
    pools: Arc<Pools>,
    state: State,
    blocking: Blocking,
    clock: Arc<dyn Clock>,
    /// What takes a snapshot; it ends by itself also when the daemon stops, for what is frozen to be thawed.
    takers: TaskTracker,
}

impl std::fmt::Debug for SnapshotSchedules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SnapshotSchedules")
    }
}

/// What is asked for.
pub(crate) struct Wanted {
    pub(crate) schedule: Option<Schedule>,
    pub(crate) retention: Option<Retention>,
    /// Other volumes, taken in the same instant, instead of those before.
    pub(crate) others: Option<Vec<(VolumeName, Uuid)>>,
    /// `Some(None)`: none from now on.
    pub(crate) hook: Option<Option<String>>,
}

impl SnapshotSchedules {
    pub(crate) async fn load(
        hooks: Hooks,
        pools: Arc<Pools>,
        state: State,
        blocking: Blocking,
        clock: Arc<dyn Clock>,
    ) -> Result<SnapshotSchedules, StateError> {
        let now = ClockReading::of(&*clock);
        let mut entries = BTreeMap::new();
        for SnapshotScheduleRow { pool, document, .. } in state.snapshot_schedules().await? {
            let kept = serde_json::from_str::<Kept>(&document).map_err(|error| error.to_string());
            let entry = kept
                .and_then(|kept| Entry::begin(pool.clone(), kept, now).map_err(|error| error.to_string()));
            match entry {
                Ok(entry) => drop(entries.insert(entry.kept.volume, entry)),
                Err(error) => tracing::error!(
                    pool,
                    "a timetable of snapshots cannot be read any more, and takes none. What it has taken stays. farside snapshot \
                     schedule sets it again: {error}"
                ),
            }
        }
        let takers = TaskTracker::new();
        Ok(SnapshotSchedules {
            entries: Mutex::new(entries),
            changed: Notify::new(),
            hooks,
            pools,
            state,
            blocking,
            clock,
            takers,
        })
    }

    /// Takes what is due, for as long as the site lives.
    pub(crate) async fn run(self: Arc<Self>) {
        self.thaw_what_is_left().await;
        loop {
            let now = ClockReading::of(&*self.clock);
            let (due, wait) = self.due(now);
            for volume in due {
                let this = Arc::clone(&self);
                // Each by itself: a hook that hangs keeps no other volume waiting, and a stop does not end it.
                self.takers.spawn(async move {
                    this.take(volume).await;
                    this.entries.lock().entry(volume).and_modify(|entry| entry.is_busy = false);
                });
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Waits for what is being taken; hooks have their own time-outs.
    pub(crate) async fn finish(&self) {
        self.takers.close();
        self.takers.wait().await;
    }

    fn due(&self, now: ClockReading) -> (Vec<Uuid>, Duration) {
        let (mut due, mut wait) = (Vec::new(), LOOK_EVERY);
        for (volume, entry) in self.entries.lock().iter_mut() {
            if entry.ticker.poll(now) && !std::mem::replace(&mut entry.is_busy, true) {
                due.push(*volume);
            }
            wait = wait.min(entry.ticker.wait(now).unwrap_or(LOOK_EVERY));
        }
        (due, wait.max(Duration::from_millis(1)))
    }

    /// A crash came between freezing and thawing.
    async fn thaw_what_is_left(&self) {
        let left: Vec<Uuid> = {
            let entries = self.entries.lock();
            entries.values().filter(|e| e.kept.is_frozen).map(|e| e.kept.volume).collect()
        };
        for volume in left {
            self.thaw(volume).await;
        }
    }

    /// Answers what went wrong.
    async fn thaw(&self, volume: Uuid) -> Option<String> {
        let found = {
            let entries = self.entries.lock();
            entries.get(&volume).map(|e| (e.kept.hook.clone(), e.kept.name.clone()))
        };
        let (hook, name) = found?;
        let hook = hook.and_then(|hook| self.hooks.get(&hook))?;
        if let Err(why) = hook.thaw(&name).await {
            tracing::error!(
                volume = name,
                "the application may still be frozen: {why}. Thaw it by hand; it is tried again with the \
                 next snapshot and the next start"
            );
            return Some(why);
        }
        self.change(volume, |kept| kept.is_frozen = false).await;
        None
    }

    async fn change(&self, volume: Uuid, change: impl FnOnce(&mut Kept)) {
        let row = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&volume) else { return };
            change(&mut entry.kept);
            entry.row()
        };
        if let Err(error) = self.state.keep_snapshot_schedule(&row).await {
            tracing::warn!(
                volume = row.volume,
                "what a timetable of snapshots did could not be kept: {error}"
            );
        }
    }

    /// One snapshot of a volume, now, and what is due to go goes.
    async fn take(&self, volume: Uuid) {
        let Some(entry) = self.entries.lock().get(&volume).cloned() else { return };
        let hook = entry.kept.hook.as_ref().map(|name| (name, self.hooks.get(name)));
        let mut wrong = Vec::new();
        let mut is_consistent = false;
        match hook {
            None => {}
            Some((name, None)) => wrong.push(format!("there is no hook {name} in the configuration")),
            Some((_, Some(hook))) => {
                // First: what a crash leaves frozen is thawed at the next start.
                self.change(volume, |kept| kept.is_frozen = true).await;
                match hook.freeze(&entry.kept.name).await {
                    Ok(()) => is_consistent = true,
                    Err(why) => wrong.push(why),
                }
            }
        }
        let (pools, at) = (Arc::clone(&self.pools), self.clock.now());
        let of = entry.clone();
        let taken = self.blocking.run(move || take_now(&pools, &of, at, is_consistent)).await;
        if entry.kept.hook.is_some() {
            wrong.extend(self.thaw(volume).await);
        }
        let taken = match taken {
            Ok(Taken::Snapshot { volume: name, snapshot }) => Some((name, snapshot)),
            Ok(Taken::Nothing(why)) => {
                wrong.push(why);
                None
            }
            Err(error) => {
                wrong.push(error.message);
                None
            }
        };
        if taken.is_some() {
            let (pools, of) = (Arc::clone(&self.pools), entry.clone());
            match self.blocking.run(move || rotate(&pools, &of)).await {
                Ok(0) => {}
                Ok(gone) => tracing::debug!(
                    volume = entry.kept.name,
                    snapshots = gone,
                    "the timetable has let snapshots go"
                ),
                Err(error) => wrong.push(format!("what is due to go is still there: {}", error.message)),
            }
        }
        let why = (!wrong.is_empty()).then(|| wrong.join("; "));
        if why != entry.kept.why {
            match &why {
                Some(why) => tracing::warn!(volume = entry.kept.name, "snapshots by timetable: {why}"),
                None => tracing::info!(
                    volume = entry.kept.name,
                    "snapshots by timetable are as they should be again"
                ),
            }
        }
        self.change(volume, |kept| {
            kept.why = why;
            if let Some((name, snapshot)) = taken {
                kept.last_at = Some(convert::time(at));
                (kept.name, kept.last_snapshot) = (name, Some(snapshot));
            }
        })
        .await;
    }

    /// Of one volume, or of all.
    pub(crate) fn list(&self, volume: Option<Uuid>) -> Vec<Document> {
        let entries = self.entries.lock();
        let is_wanted = |entry: &&Entry| volume.is_none_or(|volume| entry.volumes().any(|of| of == volume));
        let wanted = entries.values().filter(is_wanted);
        wanted.map(|entry| entry.document(self.points(entry))).collect()
    }

    fn points(&self, entry: &Entry) -> Option<u64> {
        let pool = self.pools.get(&entry.pool).ok()?;
        let of = |volume| {
            let all = name_of(&pool, volume).and_then(|name| pool.snapshots(&name).ok()).unwrap_or_default();
            all.iter().filter(|s| s.pinned_by.contains(&entry.keeper())).count() as u64
        };
        Some(entry.volumes().map(of).sum())
    }

    /// By what the timetable of a volume pins what it may let go again.
    pub(crate) fn keeper_of(&self, volume: Uuid) -> Option<Uuid> {
        let entries = self.entries.lock();
        entries.values().find(|entry| entry.volumes().any(|of| of == volume)).map(Entry::keeper)
    }

    /// The ids of all timetables, as pins follow from them.
    pub(crate) fn ids(&self) -> Vec<Uuid> {
        self.entries.lock().values().map(|entry| entry.kept.id).collect()
    }

    /// Sets it, or changes what is named of it.
    pub(crate) async fn set(
        &self,
        name: &VolumeName,
        volume: Uuid,
        wanted: Wanted,
    ) -> Result<Document, ErrorBody> {
        let wrong = |text: String| ErrorBody::new(ErrorCode::WrongUsage, text);
        if let Some(Some(hook)) = &wanted.hook
            && !self.hooks.contains_key(hook)
        {
            return Err(wrong(format!("there is no hook {hook}")).hint(format!(
                "a hook is a table of farside.toml: [hooks.{hook}] with freeze and thaw; the daemon reads it when it starts"
            )));
        }
        let known = self.entries.lock().get(&volume).cloned();
        let others = wanted.others.map(|others| -> Vec<Other> {
            others.into_iter().map(|(name, volume)| Other { volume, name: name.to_string() }).collect()
        });
        let others = others.or_else(|| known.as_ref().map(|e| e.kept.others.clone())).unwrap_or_default();
        self.check_free(name, volume, &others)?;
        if known.is_none() && self.entries.lock().len() >= SCHEDULES_MAX {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("a site has at most {SCHEDULES_MAX} timetables"),
            ));
        }
        let schedule = wanted.schedule.map(|schedule| schedule.to_string());
        let schedule = schedule.or_else(|| known.as_ref().map(|e| e.kept.schedule.clone()));
        let schedule = schedule.ok_or_else(|| wrong("say when: --every or --schedule".into()))?;
        let retention = wanted.retention.map(|retention| retention.to_string());
        let retention = retention.or_else(|| known.as_ref().map(|e| e.kept.retention.clone()));
        let retention = retention.ok_or_else(|| {
            wrong("say which of the snapshots stay: --keep, for example --keep hourly=24,daily=7".into())
        })?;
        let is_busy = known.as_ref().is_some_and(|entry| entry.is_busy);
        let before = known.map(|entry| entry.kept);
        let kept = Kept {
            id: before.as_ref().map_or_else(Uuid::new_v4, |kept| kept.id),
            volume,
            name: name.to_string(),
            others,
            schedule,
            retention,
            hook: wanted.hook.unwrap_or_else(|| before.as_ref().and_then(|kept| kept.hook.clone())),
            last_at: before.as_ref().and_then(|kept| kept.last_at),
            last_snapshot: before.as_ref().and_then(|kept| kept.last_snapshot.clone()),
            why: None,
            is_frozen: before.is_some_and(|kept| kept.is_frozen),
        };
        let now = ClockReading::of(&*self.clock);
        let mut entry = Entry::begin(name.pool.clone(), kept, now).map_err(Failure::into_error_body)?;
        entry.is_busy = is_busy;
        self.state.keep_snapshot_schedule(&entry.row()).await.map_err(Failure::into_error_body)?;
        let document = entry.document(self.points(&entry));
        self.entries.lock().insert(volume, entry);
        self.changed.notify_one();
        Ok(document)
    }

    /// A volume has one timetable, and all volumes of one are of one pool: one record of the pool takes them.
    fn check_free(&self, name: &VolumeName, volume: Uuid, others: &[Other]) -> Result<(), ErrorBody> {
        let wrong = |text: String| ErrorBody::new(ErrorCode::WrongUsage, text);
        for (at, other) in others.iter().enumerate() {
            if other.volume == volume || others[..at].contains(other) {
                return Err(wrong(format!("{} is named twice", other.name)));
            }
            if !other.name.starts_with(&format!("{}/", name.pool)) {
                return Err(wrong(format!(
                    "{} is in another pool than {name}: one instant is of one pool",
                    other.name
                )));
            }
        }
        let entries = self.entries.lock();
        let elsewhere = entries.values().filter(|entry| entry.kept.volume != volume);
        for entry in elsewhere {
            let taken =
                entry.volumes().find(|of| *of == volume || others.iter().any(|other| other.volume == *of));
            if taken.is_some() {
                return Err(ErrorBody::new(
                    ErrorCode::Refused,
                    format!(
                        "{} has a timetable of snapshots that one of these volumes is in",
                        entry.kept.name
                    ),
                )
                .hint(format!("farside snapshot schedule {} --off ends it", entry.kept.name)));
            }
        }
        Ok(())
    }

    /// Ends it: what it has taken becomes a person's, and nothing goes by itself any more.
    pub(crate) async fn end(&self, volume: Uuid) -> Result<Option<Document>, ErrorBody> {
        let found = {
            let mut entries = self.entries.lock();
            let of =
                entries.iter().find(|(_, entry)| entry.volumes().any(|of| of == volume)).map(|(of, _)| *of);
            of.and_then(|of| entries.remove(&of))
        };
        let Some(entry) = found else { return Ok(None) };
        let key = entry.kept.volume.to_string();
        let forgotten = self.state.forget_snapshot_schedule(&entry.pool, &key).await;
        forgotten.map_err(Failure::into_error_body)?;
        let (pools, of) = (Arc::clone(&self.pools), entry.clone());
        let leave = move || {
            let pool = pools.get(&of.pool)?;
            let mut left = 0;
            for name in of.volumes().filter_map(|volume| name_of(&pool, volume)) {
                let all = pool.snapshots(&name).map_err(Failure::into_error_body)?;
                for snapshot in all.iter().filter(|s| s.pinned_by.contains(&of.keeper())) {
                    pool.unpin_snapshot(&name, snapshot.uuid, of.keeper())
                        .map_err(Failure::into_error_body)?;
                    left += 1;
                }
            }
            Ok::<u64, ErrorBody>(left)
        };
        let left = self.blocking.run(leave).await?;
        Ok(Some(entry.document(Some(left))))
    }

    /// Those of a pool that was deleted or is another site's now.
    pub(crate) async fn forget(&self, pool: &str) -> Result<(), StateError> {
        self.entries.lock().retain(|_, entry| entry.pool != pool);
        self.state.forget_snapshot_schedules(pool).await
    }
}

/// What came of a tick.
enum Taken {
    Snapshot { volume: String, snapshot: String },
    Nothing(String),
}

fn name_of(pool: &Pool, volume: Uuid) -> Option<String> {
    pool.volumes().into_iter().find(|v| v.uuid == volume).map(|v| v.name)
}

fn take_now(
    pools: &Pools,
    entry: &Entry,
    at: farside_platform::Timestamp,
    is_consistent: bool,
) -> Result<Taken, ErrorBody> {
    let pool = pools.get(&entry.pool)?;
    let names: Vec<Option<String>> = entry.volumes().map(|volume| name_of(&pool, volume)).collect();
    let Some(names) = names.into_iter().collect::<Option<Vec<String>>>() else {
        return Ok(Taken::Nothing(
            "a volume of it is gone; farside snapshot schedule --off ends this".into(),
        ));
    };
    let mut taken = Vec::new();
    for name in &names {
        let status = pool.volume(name).map_err(Failure::into_error_body)?;
        if status.replica.is_some_and(|replica| !replica.broken_off) {
            return Ok(Taken::Nothing(format!(
                "no snapshots are taken while {name} is a replica: what it shows has those of its source"
            )));
        }
        taken.extend(pool.snapshots(name).map_err(Failure::into_error_body)?.into_iter().map(|s| s.name));
    }
    let snapshot = name_at(at, is_consistent, |name| taken.iter().any(|taken| taken == name));
    let new = |name: &String| {
        let new = NewSnapshot {
            name: snapshot.clone(),
            uuid: Uuid::new_v4(),
            created_at: at,
            relationship: None,
            pin_for: Some(entry.keeper()),
        };
        (name.clone(), new)
    };
    let all: Vec<(String, NewSnapshot)> = names.iter().map(new).collect();
    // One record: one instant, for all of them or none.
    pool.create_snapshots(&all).map_err(Failure::into_error_body)?;
    let volume = names.into_iter().next().unwrap_or_default();
    Ok(Taken::Snapshot { volume: format!("{}/{volume}", entry.pool), snapshot })
}

/// Lets go what the retention does not name. Answers how many.
fn rotate(pools: &Pools, entry: &Entry) -> Result<usize, ErrorBody> {
    let pool = pools.get(&entry.pool)?;
    let mut gone = 0;
    for name in entry.volumes().filter_map(|volume| name_of(&pool, volume)) {
        gone += rotate_one(&pool, &name, entry)?;
    }
    Ok(gone)
}

fn rotate_one(pool: &Pool, name: &str, entry: &Entry) -> Result<usize, ErrorBody> {
    let keeper = entry.keeper();
    let mut kept = pool.snapshots(name).map_err(Failure::into_error_body)?;
    kept.retain(|s| s.pinned_by.contains(&keeper));
    kept.sort_by_key(|s| s.sequence);
    let point = |s: &farside_store::SnapshotStatus| KeptPoint {
        snapshot: s.uuid,
        at: s.created_at,
        noted_at: s.created_at,
    };
    let points: Vec<KeptPoint> = kept.iter().map(point).collect();
    let mut gone = 0;
    for uuid in to_go(&points, &entry.retention) {
        // Held, or a transfer needs it: the next time.
        let is_free =
            |s: &&farside_store::SnapshotStatus| s.uuid == uuid && !s.held && s.pinned_by == [keeper];
        if kept.iter().find(is_free).is_none() {
            continue;
        }
        pool.unpin_snapshot(name, uuid, keeper).map_err(Failure::into_error_body)?;
        match pool.delete_snapshot(name, uuid) {
            Ok(()) => gone += 1,
            // Somebody came in between: it is this timetable's still.
            Err(_) => pool.pin_snapshot(name, uuid, keeper).map_err(Failure::into_error_body)?,
        }
    }
    Ok(gone)
}
