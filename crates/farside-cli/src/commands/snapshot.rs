//! `farside snapshot`.

use farside_api::{
    CloneSnapshot, CreateSnapshots, Difference, DifferenceKind, ErrorBody, ErrorCode, HoldSnapshot, MadeBy,
    Rename, Rollback, SetSnapshotSchedule, Snapshot, SnapshotSchedule, Volume,
};
use reqwest::Method;

use super::context::Context;
use super::mirror::group;
use crate::arguments::names::{SnapshotName, VolumeName};
use crate::arguments::snapshot::Snapshot as Verb;
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, or_dash, table};
use crate::quantities::{size, time};

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    match verb {
        Verb::Create { names } => {
            let request = CreateSnapshots { snapshots: names.iter().map(ToString::to_string).collect() };
            let made: Vec<Snapshot> = context.client.post(&["snapshots"], &request).await?;
            context.show(&made, |made| {
                made.iter().map(|s| format!("snapshot {}@{} created\n", s.volume, s.name)).collect()
            });
        }
        Verb::List { volume } => {
            let snapshots: Vec<Snapshot> = match volume {
                Some(name) => context.client.get(&["volumes", &name.pool, &name.volume, "snapshots"]).await?,
                None => context.client.get(&["snapshots"]).await?,
            };
            context.show(&snapshots, |snapshots| listing(snapshots));
        }
        Verb::Rename { name, new } => {
            let snapshot: Snapshot =
                context.client.post(&path_to(&name, "rename"), &Rename { name: new }).await?;
            context.show(&snapshot, |s| format!("snapshot {name} is now {}@{}\n", s.volume, s.name));
        }
        Verb::Delete { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &path_to(&name, "")[..5],
                body: None::<&()>,
                impact: Impact::Data,
            };
            if let Some(snapshot) =
                carry_out::<Snapshot>(&context.client, request, destructive, context.json).await?
            {
                context.show(&snapshot, |s| format!("snapshot {}@{} deleted\n", s.volume, s.name));
            }
        }
        Verb::Hold { name } => hold(&context, &name, true).await?,
        Verb::Unhold { name } => hold(&context, &name, false).await?,
        Verb::Rollback { group: Some(group), at, destructive, .. } => {
            let at = at.unwrap_or_default();
            group::rollback::roll_back(&context, &group, &at, destructive).await?;
        }
        Verb::Rollback { name: None, .. } => {}
        Verb::Rollback { name: Some(name), destructive, .. } => {
            let path = path_to(&name, "rollback");
            let request = DestructiveRequest {
                method: Method::POST,
                path: &path,
                body: None::<&()>,
                impact: Impact::Service,
            };
            if let Some(done) =
                carry_out::<Rollback>(&context.client, request, destructive, context.json).await?
            {
                context.show(&done, rolled_back);
            }
        }
        Verb::Diff { from, to } => diff(&context, &from, &to).await?,
        Verb::Schedule { volumes, .. } if volumes.is_empty() => {
            let all: Vec<SnapshotSchedule> = context.client.get(&["snapshot-schedules"]).await?;
            context.show(&all, |all| schedules(all));
        }
        Verb::Schedule { volumes, off: true, .. } => {
            let volume = &volumes[0];
            let path = ["volumes", &volume.pool, &volume.volume, "snapshot-schedule"];
            let ended: SnapshotSchedule =
                context.client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context.show(&ended, |s| {
                let points = s.points.unwrap_or_default();
                format!("{} has no timetable of snapshots any more; {points} that it took stay\n", s.volume)
            });
        }
        Verb::Schedule { volumes, every, timetable, keep, hook, off: false } => {
            let (volume, others) = (&volumes[0], &volumes[1..]);
            let path = ["volumes", &volume.pool, &volume.volume, "snapshot-schedule"];
            let request = SetSnapshotSchedule {
                every_seconds: every.map(|every| every.as_secs_f64()),
                schedule: timetable.schedule,
                time_zone: timetable.time_zone,
                retention: keep,
                others: (!others.is_empty()).then(|| others.iter().map(ToString::to_string).collect()),
                hook: hook.map(|hook| if hook == "none" { String::new() } else { hook }),
            };
            let shown: SnapshotSchedule = match request == SetSnapshotSchedule::default() {
                true => context.client.get(&path).await?,
                false => context.client.post(&path, &request).await?,
            };
            context.show(&shown, |s| schedules(std::slice::from_ref(s)));
            let of: Result<Volume, _> = context.client.get(&["volumes", &volume.pool, &volume.volume]).await;
            if !context.json && of.is_ok_and(|of| of.replica) {
                eprintln!(
                    "note: {volume} is a replica, and no snapshots are taken of it while it is one. Which points of its mirror stay: \
                     farside mirror set {volume} --keep …"
                );
            }
        }
    }
    Ok(())
}

/// `farside clone`.
pub(super) async fn clone(
    context: &Context,
    of: &SnapshotName,
    new: &VolumeName,
    even_if_damaged: bool,
) -> Result<(), ErrorBody> {
    let request = CloneSnapshot { name: new.to_string(), even_if_damaged };
    let volume: Volume = context.client.post(&path_to(of, "clone"), &request).await?;
    context.show(&volume, |v| format!("volume {} begins as {of}; hosts may write to it\n", v.name));
    Ok(())
}

fn rolled_back(done: &Rollback) -> String {
    let kept = match &done.kept_as {
        Some(kept) => format!("its content until now is {kept}"),
        None => String::from("it had no other content until now"),
    };
    format!("{} is as {}@{} is; {kept}\n", done.volume, done.volume, done.snapshot)
}

async fn hold(context: &Context, name: &SnapshotName, held: bool) -> Result<(), ErrorBody> {
    let snapshot: Snapshot = context.client.post(&path_to(name, "hold"), &HoldSnapshot { held }).await?;
    context.show(&snapshot, |s| {
        let state = if s.held { "held" } else { "not held" };
        format!("snapshot {}@{} is {state} at this site\n", s.volume, s.name)
    });
    Ok(())
}

async fn diff(context: &Context, from: &SnapshotName, to: &SnapshotName) -> Result<(), ErrorBody> {
    if from.volume != to.volume {
        return Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{from} and {to} are of different volumes; compare two snapshots of the same volume"),
        ));
    }
    let path = ["volumes", &from.volume.pool, &from.volume.volume, "difference"];
    let query = [("from", from.snapshot.as_str()), ("to", to.snapshot.as_str())];
    let extents: Vec<Difference> = context.client.get_with(&path, &query).await?;
    context.show(&extents, |extents| {
        let columns = [Column::Right("offset"), Column::Right("length"), Column::Left("kind")];
        let rows = extents.iter().map(|e| {
            let kind = if e.kind == DifferenceKind::Data { "data" } else { "hole" };
            vec![e.offset.to_string(), e.length.to_string(), kind.into()]
        });
        table(&columns, rows.collect(), "no difference")
    });
    Ok(())
}

fn path_to<'a>(name: &'a SnapshotName, verb: &'a str) -> [&'a str; 6] {
    ["volumes", &name.volume.pool, &name.volume.volume, "snapshots", &name.snapshot, verb]
}

fn schedules(all: &[SnapshotSchedule]) -> String {
    let columns = [
        Column::Left("volume"),
        Column::Left("schedule"),
        Column::Left("keeps"),
        Column::Left("hook"),
        Column::Right("points"),
        Column::Left("last"),
        Column::Left("why"),
    ];
    let rows = all.iter().map(|s| {
        vec![
            [std::slice::from_ref(&s.volume), &s.others].concat().join(" "),
            s.schedule.clone(),
            s.retention.clone(),
            or_dash(s.hook.clone(), |hook| hook),
            or_dash(s.points, |points| points.to_string()),
            or_dash(s.last_snapshot.clone(), |name| name),
            s.why.clone().unwrap_or_default(),
        ]
    });
    let none = "no timetables of snapshots; set one with farside snapshot schedule POOL/VOL --every 1h --keep hourly=24";
    table(&columns, rows.collect(), none)
}

fn listing(snapshots: &[Snapshot]) -> String {
    let columns = [
        Column::Left("name"),
        Column::Left("created"),
        Column::Left("made by"),
        Column::Left("rotates"),
        Column::Right("referenced"),
        Column::Right("unique"),
        Column::Left("held"),
        Column::Left("branch"),
        Column::Left("content root"),
    ];
    let rows = snapshots.iter().map(|snapshot| {
        vec![
            format!("{}@{}", snapshot.volume, snapshot.name),
            time(snapshot.created_at),
            match snapshot.made_by {
                MadeBy::Person => "person",
                MadeBy::Mirror => "mirror",
                MadeBy::Common => "common",
                MadeBy::Kept => "kept",
            }
            .into(),
            if snapshot.rotates { "yes" } else { "no" }.into(),
            or_dash(snapshot.referenced_bytes, size),
            or_dash(snapshot.unique_bytes, size),
            if snapshot.held { "yes" } else { "no" }.into(),
            if snapshot.on_main_line { "main" } else { "side" }.into(),
            or_dash(snapshot.content_root.clone(), |root| root),
        ]
    });
    table(&columns, rows.collect(), "no snapshots; make one with farside snapshot create")
}
