//! Snapshots of volumes by a timetable, with retention, and with hooks that freeze an application meanwhile.
//!
//! They are persons' snapshots, so they travel with mirrors; a pin ([`kept_of`] the timetable's id)
//! says which of them the timetable may let go again. What it lets go is decided as for a mirror
//! ([`farside_mirror::retention`]). A snapshot is taken also if its hook fails: a point as after a power failure is better than none,
//! and its name says what it is. What was frozen is thawed whatever happens: after each failure, and when the daemon
//! starts again after a crash.

mod document;
pub(crate) mod hooks;
mod taking;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, SnapshotSchedule as Document};
use farside_engine::{EngineError, VolumeName};
use farside_mirror::{ClockReading, Retention, Schedule};
use farside_platform::{Clock, Timestamp};
use farside_transfer::bases::kept_of;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::document::{Entry, Frozen, Kept, Other};
use self::hooks::{Hook, Hooks};
use self::taking::{Taken, count, leave, leave_all, look, names_now, rests, rotate, take_now, would_let_go};
use self::turns::{Turn, Turns};
use crate::blocking::Blocking;
use crate::commands::end_left;
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
    turns: Turns,
    /// One after the other changes which volumes have one; taken after a turn.
    setting: tokio::sync::Mutex<()>,
    changed: Notify,
    hooks: Hooks,
    pools: Arc<Pools>,
    state: State,
    blocking: Blocking,
    /// For what a cluster is asked.
    far: Blocking,
    /// How many snapshots a timetable has of volumes in a cluster, as it was counted last: who lists them asks no cluster.
    points: Mutex<BTreeMap<Uuid, u64>>,
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

impl Wanted {
    /// Whether it is so already.
    fn is_as(&self, entry: &Entry) -> bool {
        let kept = &entry.kept;
        let others = |others: &Vec<(VolumeName, Uuid)>| {
            others.iter().map(|(_, id)| *id).eq(kept.others.iter().map(|o| o.volume))
        };
        self.schedule.as_ref().is_none_or(|schedule| schedule.to_string() == kept.schedule)
            && self.retention.as_ref().is_none_or(|retention| retention.to_string() == kept.retention)
            && self.others.as_ref().is_none_or(others)
            && self.hook.as_ref().is_none_or(|hook| *hook == kept.hook)
    }
}

impl SnapshotSchedules {
    pub(crate) async fn load(
        hooks: Hooks,
        pools: Arc<Pools>,
        state: State,
        (blocking, far): (Blocking, Blocking),
        clock: Arc<dyn Clock>,
    ) -> Result<SnapshotSchedules, StateError> {
        let now = ClockReading::of(&*clock);
        let mut entries = BTreeMap::new();
        for SnapshotScheduleRow { pool, document, .. } in state.snapshot_schedules().await? {
            let kept = serde_json::from_str::<Kept>(&document).map_err(|error| error.to_string());
            let entry = kept
                .and_then(|kept| Entry::begin(pool.clone(), kept, now).map_err(|error| error.to_string()));
            match entry {
                Ok(mut entry) => {
                    if let Some(hook) = entry.kept.hook.as_ref().filter(|hook| !hooks.contains_key(*hook)) {
                        let why = no_hook(hook);
                        tracing::error!(volume = entry.kept.name, "{why}");
                        entry.kept.why = Some(why);
                    }
                    entries.insert(entry.kept.volume, entry);
                }
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
            turns: Turns::default(),
            setting: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            hooks,
            pools,
            state,
            blocking,
            far,
            points: Mutex::default(),
            clock,
            takers,
        })
    }

    /// Takes what is due, for as long as the site lives.
    pub(crate) async fn run(self: Arc<Self>) {
        self.thaw_what_is_left();
        self.leave_what_nobody_keeps().await;
        let mut looked_at = BTreeSet::new();
        loop {
            self.leave_in_clusters(&mut looked_at);
            let now = ClockReading::of(&*self.clock);
            let (due, wait) = self.due(now);
            for volume in due {
                let Some(turn) = self.turns.try_take(volume) else { continue };
                let this = Arc::clone(&self);
                // Each by itself: a hook that hangs keeps no other volume waiting, and a stop does not end it.
                self.takers.spawn(async move { this.take(volume, &turn).await });
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Ends what freezes, and waits until it is thawed again.
    pub(crate) async fn finish(&self) {
        self.takers.close();
        self.turns.stop();
        self.takers.wait().await;
    }

    fn due(&self, now: ClockReading) -> (Vec<Uuid>, Duration) {
        let (mut due, mut wait) = (Vec::new(), LOOK_EVERY);
        for (volume, entry) in self.entries.lock().iter_mut() {
            if entry.ticker.poll(now) {
                due.push(*volume);
            }
            wait = wait.min(entry.ticker.wait(now).unwrap_or(LOOK_EVERY));
        }
        (due, wait.max(Duration::from_millis(1)))
    }

    /// A crash came while a timetable ended: what it had taken is a person's.
    async fn leave_what_nobody_keeps(&self) {
        for (pool, _) in self.pools.open_pools() {
            self.leave_what_nobody_keeps_of(&pool).await;
        }
    }

    /// The same of clusters, each once it is connected.
    fn leave_in_clusters(self: &Arc<Self>, looked_at: &mut BTreeSet<String>) {
        let connected: BTreeSet<String> = self.pools.clustered().into_iter().collect();
        looked_at.retain(|pool| connected.contains(pool));
        for pool in connected {
            if looked_at.insert(pool.clone()) {
                // By itself: a cluster that does not answer holds up neither timetables nor the stop.
                let this = Arc::clone(self);
                tokio::spawn(async move { this.leave_what_nobody_keeps_of(&pool).await });
            }
        }
    }

    async fn leave_what_nobody_keeps_of(&self, pool: &str) {
        let kept: BTreeSet<Uuid> = self.entries.lock().values().flat_map(Entry::volumes).collect();
        let (engine, of) = (self.pools.engine(), pool.to_owned());
        let left = self.blocking_of(pool).run(move || {
            let mut left = 0;
            for name in engine.volumes_of(&of)? {
                // One that goes meanwhile has nothing that could be left.
                let Ok(info) = engine.volume(&name) else { continue };
                if !kept.contains(&info.uuid) {
                    left += leave(&*engine, &name, info.uuid)?;
                }
            }
            Ok::<u64, EngineError>(left)
        });
        match left.await {
            Ok(0) => {}
            Ok(left) => tracing::info!(pool, left, "snapshots of timetables that are no more stay"),
            Err(error) => tracing::warn!(
                pool,
                "snapshots of timetables that are no more are not let go of: {}",
                error.message
            ),
        }
    }

    /// Threads for what is asked of a pool: a cluster that does not answer takes none from the others.
    fn blocking_of(&self, pool: &str) -> &Blocking {
        if self.pools.is_clustered(pool) { &self.far } else { &self.blocking }
    }

    /// A crash came between freezing and thawing. Each by itself: one that hangs leaves no other frozen.
    fn thaw_what_is_left(self: &Arc<Self>) {
        let left: Vec<Uuid> = {
            let entries = self.entries.lock();
            entries.values().filter(|e| e.kept.frozen.is_some()).map(|e| e.kept.volume).collect()
        };
        for volume in left {
            // Whoever has the turn already thaws first.
            let Some(turn) = self.turns.try_take(volume) else { continue };
            let this = Arc::clone(self);
            self.takers.spawn(async move {
                this.thaw_of_before(volume).await;
                drop(turn);
            });
        }
    }

    /// Thaws what was frozen by a command that nobody has in hand any more. Answers what went wrong.
    async fn thaw_of_before(&self, volume: Uuid) -> Option<String> {
        let frozen = self.entries.lock().get(&volume).and_then(|entry| entry.kept.frozen.clone())?;
        let was_left = match frozen.mark {
            Some(mark) => end_left(mark).await,
            None => false,
        };
        if was_left {
            tracing::warn!(
                hook = frozen.hook,
                "a command that freezes was left running; it is killed, and what it froze thawed"
            );
        }
        let Some(hook) = self.hooks.get(&frozen.hook) else {
            let why = format!(
                "the application may still be frozen, and there is no hook {0} to thaw it. Thaw it by hand; with [hooks.{0}] in \
                 farside.toml again it is tried at the next start",
                frozen.hook
            );
            tracing::error!(volumes = frozen.volumes.join(" "), "{why}");
            return Some(why);
        };
        self.thaw(volume, hook, &frozen.volumes).await
    }

    /// Answers what went wrong.
    async fn thaw(&self, volume: Uuid, hook: &Hook, volumes: &[String]) -> Option<String> {
        if let Err(why) = hook.thaw(volumes).await {
            tracing::error!(
                volumes = volumes.join(" "),
                "the application may still be frozen: {why}. Thaw it by hand; it is tried again with the next snapshot and the \
                 next start"
            );
            return Some(why);
        }
        self.change(volume, |kept| kept.frozen = None).await;
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
    async fn take(&self, volume: Uuid, turn: &Turn) {
        let Some(entry) = self.entries.lock().get(&volume).cloned() else { return };
        if let Some(why) = self.rests(&entry).await
            && self.thaw_of_before(volume).await.is_none()
        {
            if entry.kept.why.as_ref() != Some(&why) {
                tracing::info!(volume = entry.kept.name, "snapshots by timetable: {why}");
                self.change(volume, |kept| (kept.why, kept.rests) = (Some(why), true)).await;
            }
            return;
        }
        let mut wrong = Vec::new();
        let taken = self.take_frozen(&entry, turn, &mut wrong).await;
        if turn.is_unwanted() {
            // Whoever came in between goes on now.
            return;
        }
        if taken.is_some() {
            let (pools, of) = (Arc::clone(&self.pools), entry.clone());
            match self.blocking_of(&entry.pool).run(move || rotate(&pools, &of)).await {
                Ok((gone, points)) => {
                    self.points.lock().insert(volume, points);
                    if gone > 0 {
                        let volume = &entry.kept.name;
                        tracing::debug!(volume, snapshots = gone, "the timetable has let snapshots go");
                    }
                }
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
            (kept.why, kept.rests) = (why, false);
            if let Some((at, taken)) = taken {
                kept.last_at = Some(convert::time(at));
                kept.last_snapshot = Some(taken.snapshot);
                let mut names = taken.volumes.into_iter();
                kept.name = names.next().unwrap_or_default();
                kept.others.iter_mut().zip(names).for_each(|(other, name)| other.name = name);
            }
        })
        .await;
    }

    /// Why it takes nothing and is well. What cannot be asked is told when a snapshot is to be taken.
    async fn rests(&self, entry: &Entry) -> Option<String> {
        let (pools, of) = (Arc::clone(&self.pools), entry.clone());
        self.blocking_of(&entry.pool).run(move || rests(&pools, &of)).await.ok().flatten()
    }

    /// What its volumes are called now, the first and the others; none if that cannot be told.
    async fn names_now(&self, entry: &Entry) -> Option<(String, Vec<String>)> {
        let (pools, of) = (Arc::clone(&self.pools), entry.clone());
        let names = self.blocking_of(&entry.pool).run(move || names_now(&pools, &of)).await.ok().flatten()?;
        let (first, others) = names.split_first()?;
        Some((first.clone(), others.to_vec()))
    }

    /// Freezes, takes, and thaws with the hook that froze, whatever is changed meanwhile.
    async fn take_frozen(
        &self,
        entry: &Entry,
        turn: &Turn,
        wrong: &mut Vec<String>,
    ) -> Option<(Timestamp, Taken)> {
        let volume = entry.kept.volume;
        wrong.extend(self.thaw_of_before(volume).await);
        let (pools, of) = (Arc::clone(&self.pools), entry.clone());
        // Nothing stands still for a snapshot that cannot be taken.
        if let Err(error) = self.blocking_of(&entry.pool).run(move || look(&pools, &of)).await {
            wrong.push(error.message);
            return None;
        }
        let hook = entry.kept.hook.as_ref().and_then(|name| Some((name, self.hooks.get(name)?)));
        if let (Some(name), None) = (&entry.kept.hook, hook) {
            wrong.push(no_hook(name));
        }
        let mut is_consistent = false;
        if let Some((name, hook)) = hook {
            match self.freeze(entry, name, hook, turn).await {
                Ok(()) => is_consistent = true,
                Err(why) => wrong.push(why),
            }
        }
        let (pools, at, of) = (Arc::clone(&self.pools), self.clock.now(), entry.clone());
        let taken = match turn.is_unwanted() {
            true => None,
            false => {
                let take = move || take_now(&pools, &of, at, is_consistent);
                Some(self.blocking_of(&entry.pool).run(take).await)
            }
        };
        if let Some((_, hook)) = hook {
            wrong.extend(self.thaw(volume, hook, &entry.names()).await);
        }
        match taken? {
            Ok(taken) => Some((at, taken)),
            Err(error) => {
                wrong.push(error.message);
                None
            }
        }
    }

    async fn freeze(&self, entry: &Entry, name: &str, hook: &Hook, turn: &Turn) -> Result<(), String> {
        let mark = Uuid::new_v4();
        let frozen = Frozen { hook: name.to_owned(), volumes: entry.names(), mark: Some(mark) };
        // First: what a crash leaves frozen, or freezing, is found and thawed at the next start.
        self.change(entry.kept.volume, |kept| kept.frozen = Some(frozen)).await;
        hook.begin_freeze(&entry.names(), mark)?.end(turn.unwanted()).await
    }

    /// Of one volume, or of all. Whether they rest is so as of now, and not as of their last tick.
    pub(crate) async fn list(&self, volume: Option<Uuid>) -> Vec<Document> {
        let is_wanted = |entry: &&Entry| volume.is_none_or(|volume| entry.volumes().any(|of| of == volume));
        let wanted: Vec<Entry> = self.entries.lock().values().filter(is_wanted).cloned().collect();
        let mut documents = Vec::with_capacity(wanted.len());
        for entry in wanted {
            let mut document = entry.document(self.points(&entry));
            // A cluster that does not answer keeps nobody from the list.
            if self.pools.is_away(&entry.pool) {
                documents.push(document);
                continue;
            }
            (document.volume, document.others) =
                self.names_now(&entry).await.unwrap_or((document.volume, document.others));
            if entry.kept.rests || document.why.is_none() {
                document.why = self.rests(&entry).await;
            }
            documents.push(document);
        }
        documents
    }

    /// Those of which the last snapshot went wrong: the volume by which it is known, and why.
    pub(crate) fn failing(&self) -> Vec<(String, String)> {
        let entries = self.entries.lock();
        entries
            .values()
            .filter(|entry| !entry.kept.rests)
            .filter_map(|entry| Some((entry.kept.name.clone(), entry.kept.why.clone()?)))
            .collect()
    }

    fn points(&self, entry: &Entry) -> Option<u64> {
        if self.pools.is_clustered(&entry.pool) {
            return self.points.lock().get(&entry.kept.volume).copied();
        }
        count(&*self.pools.engine(), entry).ok()
    }

    /// Which points a timetable would let go with another retention, or with its own: each `POOL/VOL@SNAPSHOT` with its moment, those
    /// of a volume oldest first. And how many it has.
    pub(crate) fn would_let_go(
        &self,
        volume: Uuid,
        retention: Option<&Retention>,
    ) -> (Vec<(String, Timestamp)>, usize) {
        let Some(entry) = self.entries.lock().get(&volume).cloned() else { return (Vec::new(), 0) };
        let engine = self.pools.engine();
        let retention = retention.unwrap_or(&entry.retention);
        let (mut gone, mut count) = (Vec::new(), 0);
        for (volume, last) in entry.volumes().zip(entry.names()) {
            let found = would_let_go(&*engine, &entry, (volume, &last), retention);
            let Ok((of_volume, points)) = found else { continue };
            gone.extend(of_volume);
            count += points;
        }
        gone.sort_by_key(|(_, at)| *at);
        (gone, count)
    }

    /// What stays of what the timetable of this volume takes; none if it is in none.
    pub(crate) fn retention_of(&self, volume: Uuid) -> Option<Retention> {
        let key = self.key_of(volume)?;
        self.entries.lock().get(&key).map(|entry| entry.retention)
    }

    /// By which volume a timetable is known that has this one.
    fn key_of(&self, volume: Uuid) -> Option<Uuid> {
        let entries = self.entries.lock();
        entries.values().find(|entry| entry.volumes().any(|of| of == volume)).map(|entry| entry.kept.volume)
    }

    /// Ends what is being taken of a volume, and keeps the next from beginning.
    async fn rest(&self, volume: Uuid) -> Turn {
        loop {
            let key = self.key_of(volume).unwrap_or(volume);
            let turn = self.turns.take(key).await;
            // It may have come into another one meanwhile.
            if self.key_of(volume).unwrap_or(volume) == key {
                return turn;
            }
        }
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
        if let Some(retention) = &wanted.retention {
            check_retention(retention)?;
        }
        // What is as it was asked for goes on undisturbed: a program may ask every minute.
        let equal = self.entries.lock().get(&volume).filter(|entry| wanted.is_as(entry)).cloned();
        if let Some(entry) = equal {
            return Ok(entry.document(self.points(&entry)));
        }
        let _turn = self.turns.take(volume).await;
        let _setting = self.setting.lock().await;
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
        let is_left = |of: &Uuid| *of != volume && others.iter().all(|other| other.volume != *of);
        let before = known.iter().flat_map(|entry| entry.volumes().zip(entry.names()));
        let left: Vec<(Uuid, String)> = before.filter(|(of, _)| is_left(of)).collect();
        let ticker = known.as_ref().filter(|e| e.kept.schedule == schedule).map(|e| e.ticker.clone());
        let before = known.map(|entry| entry.kept);
        let kept = Kept {
            volume,
            name: name.to_string(),
            others,
            schedule,
            retention,
            hook: wanted.hook.unwrap_or_else(|| before.as_ref().and_then(|kept| kept.hook.clone())),
            set_at: Some(convert::time(self.clock.now())),
            last_at: before.as_ref().and_then(|kept| kept.last_at),
            last_snapshot: before.as_ref().and_then(|kept| kept.last_snapshot.clone()),
            why: None,
            rests: false,
            frozen: before.and_then(|kept| kept.frozen),
        };
        let now = ClockReading::of(&*self.clock);
        let mut entry = Entry::begin(name.pool.clone(), kept, now).map_err(Failure::into_error_body)?;
        // An interval that did not change does not begin anew.
        if let Some(ticker) = ticker {
            entry.ticker = ticker;
        }
        entry.kept.why = self.rests(&entry).await;
        entry.kept.rests = entry.kept.why.is_some();
        self.state.keep_snapshot_schedule(&entry.row()).await.map_err(Failure::into_error_body)?;
        self.entries.lock().insert(volume, entry.clone());
        // What it has taken of volumes that are not in it any more stays.
        if !left.is_empty() {
            let (engine, pool) = (self.pools.engine(), entry.pool.clone());
            self.blocking_of(&entry.pool).run(move || leave_all(&*engine, &pool, &left)).await?;
        }
        let document = entry.document(self.points(&entry));
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
        if !others.is_empty() && self.pools.is_clustered(&name.pool) {
            let refused = format!(
                "pool {} is of Ceph RBD, where one instant is of one image. Nothing was changed",
                name.pool
            );
            return Err(ErrorBody::new(ErrorCode::Refused, refused).hint(
                "give each volume a timetable of its own; volumes that must agree need an embedded pool",
            ));
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
        let _turn = self.rest(volume).await;
        let Some(key) = self.key_of(volume) else { return Ok(None) };
        if let Some(why) = self.thaw_of_before(key).await {
            tracing::error!("a timetable ends, and nobody tries to thaw again: {why}");
        }
        // After the thaw, which may hang: others change theirs meanwhile.
        let _setting = self.setting.lock().await;
        let Some(entry) = self.entries.lock().get(&key).cloned() else { return Ok(None) };
        let forgotten = self.state.forget_snapshot_schedule(&entry.pool, &key.to_string()).await;
        forgotten.map_err(Failure::into_error_body)?;
        self.entries.lock().remove(&key);
        let (engine, pool) = (self.pools.engine(), entry.pool.clone());
        let volumes: Vec<(Uuid, String)> = entry.volumes().zip(entry.names()).collect();
        let left = self.blocking_of(&entry.pool).run(move || leave_all(&*engine, &pool, &volumes)).await?;
        self.points.lock().remove(&key);
        Ok(Some(entry.document(Some(left))))
    }

    /// Deletes a volume with what its timetable has taken of it. The timetable goes on with the others that it has.
    pub(crate) async fn delete_volume(&self, name: &VolumeName, volume: Uuid) -> Result<(), ErrorBody> {
        let _turn = self.rest(volume).await;
        if let Some(key) = self.key_of(volume)
            && let Some(why) = self.thaw_of_before(key).await
        {
            tracing::error!("{why}");
        }
        // After the thaw, which may hang: others change theirs meanwhile.
        let _setting = self.setting.lock().await;
        if self.pools.is_clustered(&name.pool) {
            let (engine, of) = (self.pools.engine(), name.clone());
            // Two steps: what is left of the first, should the second fail, is a person's snapshots.
            let delete = move || leave(&*engine, &of, volume).and_then(|_| engine.delete_volume(&of));
            self.far.run(delete).await?;
        } else {
            let (pool, of) = (self.pools.get(&name.pool)?, name.volume.clone());
            let deleted =
                move || pool.delete_volume_of(&of, volume, kept_of(volume)).map_err(Failure::into_error_body);
            self.blocking.run(deleted).await?;
        }
        let Some(key) = self.key_of(volume) else { return Ok(()) };
        let Some(entry) = self.entries.lock().remove(&key) else { return Ok(()) };
        let key = key.to_string();
        let kept = match entry.without(volume) {
            None => self.state.forget_snapshot_schedule(&entry.pool, &key).await,
            Some(rest) => {
                tracing::warn!(
                    gone = %name,
                    volumes = rest.names().join(" "),
                    "a timetable of snapshots goes on without a volume that was deleted"
                );
                let row = rest.row();
                self.entries.lock().insert(rest.kept.volume, rest);
                self.state.move_snapshot_schedule(&key, &row).await
            }
        };
        if let Err(error) = kept {
            tracing::warn!(volume = %name, "the timetable of the volume stays in the state database: {error}");
        }
        Ok(())
    }

    /// Those of a pool that was deleted or is another site's now.
    pub(crate) async fn forget(&self, pool: &str) -> Result<(), StateError> {
        let of_pool = |entry: &&Entry| entry.pool == pool;
        let all: Vec<Uuid> = self.entries.lock().values().filter(of_pool).map(|e| e.kept.volume).collect();
        for volume in all {
            let _turn = self.turns.take(volume).await;
            self.thaw_of_before(volume).await;
        }
        self.entries.lock().retain(|_, entry| entry.pool != pool);
        self.state.forget_snapshot_schedules(pool).await
    }
}

/// A timetable that lets everything go, or nothing, is none.
fn check_retention(retention: &Retention) -> Result<(), ErrorBody> {
    let wrong = |text: &str| Err(ErrorBody::new(ErrorCode::WrongUsage, text));
    match retention {
        none if none.is_none() => {
            wrong("say which of the snapshots stay: --keep, for example --keep hourly=24,daily=7")
        }
        Retention { floor: 1.., .. } => {
            wrong("floor is of mirrors; say last=N: the newest of a timetable always stay")
        }
        _ => Ok(()),
    }
}

fn no_hook(name: &str) -> String {
    format!("there is no hook {name} in farside.toml: nothing is frozen for the snapshots")
}
