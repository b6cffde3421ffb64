//! `farside mirror drill`: a clone of what a replica shows, and with `--run` a command that tries it.
//!
//! The command runs here, with the rights of whoever asked, never in the daemon. Whatever becomes of it, its clone is deleted
//! afterwards: signals that would end this program end the command first.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use farside_api::{Drill, DrillResult, DrillRun, DrillVolume, ErrorBody, ErrorCode, StartDrill, Volume};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

use super::super::context::{Context, Failed};
use crate::arguments::mirror::DrillArguments;
use crate::arguments::names::VolumeName;
use crate::quantities::{duration, time};

/// So many times the daemon is told that the drill goes on before it would give it up.
pub(super) const RENEWALS: u32 = 4;
/// A command that is told to end has so long before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// So long connections that the command left are waited for before its clone is given up.
const DISCONNECT_MAX: Duration = Duration::from_secs(15);
/// How often deleting is tried meanwhile.
const DISCONNECT_STEP: Duration = Duration::from_millis(100);

pub(super) async fn run(
    context: &Context,
    replica: &VolumeName,
    arguments: DrillArguments,
) -> Result<(), Failed> {
    let path = ["mirrors", &replica.pool, &replica.volume, "drill"];
    let in_pool = |new: String| if new.contains('/') { new } else { format!("{}/{new}", replica.pool) };
    let at = arguments.at.map(|at| at.of(replica)).transpose();
    let at = at.map_err(|why| ErrorBody::new(ErrorCode::WrongUsage, why))?;
    let request = StartDrill {
        name: arguments.new.map(in_pool),
        at,
        even_if_damaged: arguments.even_if_damaged,
        lease_seconds: arguments.run.as_ref().map(|_| arguments.lease.as_secs_f64()),
    };
    let Some(command) = arguments.run else {
        let drill: Drill = context.client.post(&path, &request).await?;
        context.show(&drill, made);
        return Ok(());
    };
    // From here on a signal must not end this process before the clone is deleted.
    let mut endings = Endings::listen()?;
    let asked = Instant::now();
    let mut drill: Drill = context.client.post(&path, &request).await?;
    let began = Instant::now();
    let held = Held::of(&drill)?;
    let renewal = tokio::spawn(held.clone().renew(context.clone(), arguments.lease / RENEWALS));
    let variables = [
        ("FARSIDE_DRILL_EXPORT", drill.uri.clone()),
        ("FARSIDE_DRILL_VOLUME", drill.name.clone()),
        ("FARSIDE_DRILL_POINT", drill.point.to_string()),
    ];
    let (result, status) =
        carry_out(&command, &variables, context.json, arguments.timeout, &mut endings).await;
    renewal.abort();
    let (ran, recovered) = (began.elapsed(), asked.elapsed());
    let end = held.delete(context).await;
    drill.run = Some(report(command, (result, status), (ran, recovered), &end));
    note(context, &drill).await;
    context.show(&drill, |drill| tried(drill, &end, ran, recovered));
    match failure(how_it_failed(result, status, arguments.timeout), &end, &drill.name) {
        None => Ok(()),
        Some(error) => Err(Failed { error, is_printed: context.json, exit_code: None }),
    }
}

/// What came of a command.
pub(super) fn report(
    command: String,
    (result, status): (DrillResult, Option<ExitStatus>),
    (ran, recovered): (Duration, Duration),
    end: &End,
) -> DrillRun {
    DrillRun {
        command,
        result,
        exit_status: status.and_then(|status| status.code()),
        duration_seconds: ran.as_secs_f64(),
        recovery_seconds: recovered.as_secs_f64(),
        deleted: matches!(end, End::Deleted),
    }
}

/// For the log of the mirror. Whoever asked has the report whatever becomes of that.
pub(super) async fn note(context: &Context, drill: &Drill) {
    let Some((pool, volume)) = drill.replica.split_once('/') else { return };
    if let Err(error) = context.client.post::<Drill>(&["mirrors", pool, volume, "drilled"], drill).await {
        eprintln!("farside: the drill is not in the log of the mirror: {}", error.message);
    }
}

/// What became of the clone after the command.
#[derive(Debug)]
pub(super) enum End {
    Deleted,
    /// Somebody else deleted it before.
    Gone,
    /// It could not be deleted.
    Stays(ErrorBody),
}

/// What the exit status is about; none after success.
pub(super) fn failure(of_command: Option<String>, end: &End, name: &str) -> Option<ErrorBody> {
    let (of_clone, hint) = match end {
        End::Deleted => (None, None),
        End::Gone => (
            Some(format!(
                "the clone {name} was gone when the command had ended: this drill has not deleted it"
            )),
            Some(format!("a volume that is called {name} now is another one, and stays")),
        ),
        End::Stays(error) => (
            Some(format!("the clone {name} is still there: {}", error.message)),
            Some(format!("farside volume delete {name} once nobody has it open")),
        ),
    };
    let said: Vec<String> = of_command.into_iter().chain(of_clone).collect();
    let error = (!said.is_empty()).then(|| ErrorBody::new(ErrorCode::Failed, said.join("; ")))?;
    Some(match hint {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

/// The clone that the daemon holds for this drill. Its identity says which it is: its name may become another volume's.
#[derive(Clone)]
pub(super) struct Held {
    pool: String,
    volume: String,
    identity: DrillVolume,
}

impl Held {
    pub(super) fn of(drill: &Drill) -> Result<Held, ErrorBody> {
        let name: VolumeName =
            drill.name.parse().map_err(|why: String| ErrorBody::new(ErrorCode::Failed, why))?;
        Ok(Held { pool: name.pool, volume: name.volume, identity: DrillVolume { uuid: drill.uuid } })
    }

    async fn ask(&self, context: &Context, what: &str) -> Result<Volume, ErrorBody> {
        context.client.post(&["drills", &self.pool, &self.volume, what], &self.identity).await
    }

    /// Says again and again that somebody runs the drill: a client that is killed leaves a volume that the daemon deletes.
    pub(super) async fn renew(self, context: Context, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            // A daemon that is away is told when it is back.
            let _ = self.ask(&context, "renew").await;
        }
    }

    /// The daemon may not have seen yet that the command's connections are closed.
    pub(super) async fn delete(&self, context: &Context) -> End {
        let until = Instant::now() + DISCONNECT_MAX;
        loop {
            match self.ask(context, "end").await {
                Ok(_) => return End::Deleted,
                Err(error) if error.code == ErrorCode::Refused && Instant::now() < until => {
                    tokio::time::sleep(DISCONNECT_STEP).await;
                }
                Err(error) if error.code == ErrorCode::NotFound => return End::Gone,
                Err(error) => return End::Stays(error),
            }
        }
    }
}

/// Signals that tell this program to end.
pub(super) struct Endings([unix::Signal; 3]);

impl Endings {
    pub(super) fn listen() -> Result<Endings, ErrorBody> {
        Endings::all()
            .map_err(|error| ErrorBody::new(ErrorCode::Failed, format!("cannot wait for signals: {error}")))
    }

    fn all() -> std::io::Result<Endings> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(unix::signal);
        Ok(Endings([interrupt?, terminate?, hangup?]))
    }

    async fn came(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Runs the command to its end, or ends it; afterwards nothing that it started in its process group is left.
pub(super) async fn carry_out(
    command: &str,
    variables: &[(&str, String)],
    json: bool,
    timeout: Duration,
    endings: &mut Endings,
) -> (DrillResult, Option<ExitStatus>) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
    shell.envs(variables.iter().map(|(name, value)| (name, value)));
    if json {
        // The document is all that goes to stdout.
        shell.stdout(Stdio::from(std::io::stderr()));
    }
    let mut child = match shell.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("farside: cannot start the command: {error}");
            return (DrillResult::Failed, None);
        }
    };
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let (result, status) = tokio::select! {
        ended = child.wait() => match ended {
            Ok(status) if status.success() => (DrillResult::Ok, Some(status)),
            Ok(status) => (DrillResult::Failed, Some(status)),
            Err(error) => {
                eprintln!("farside: cannot wait for the command: {error}");
                (DrillResult::Failed, None)
            }
        },
        () = endings.came() => (DrillResult::Interrupted, None),
        () = tokio::time::sleep(timeout) => (DrillResult::TimedOut, None),
    };
    end(&mut child, group).await;
    (result, status)
}

/// Ends what is left of a command. A group that is gone is what is wanted.
async fn end(child: &mut Child, group: Option<Pid>) {
    let signal = |signal| group.is_some_and(|group| kill_process_group(group, signal).is_ok());
    if signal(Signal::TERM) {
        let _ = tokio::time::timeout(GRACE, child.wait()).await;
        signal(Signal::KILL);
    }
    let _ = child.wait().await;
}

pub(super) fn how_it_failed(
    result: DrillResult,
    status: Option<ExitStatus>,
    timeout: Duration,
) -> Option<String> {
    match result {
        DrillResult::Ok => None,
        DrillResult::Failed => Some(match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("the command ended with status {code}"),
            Some((None, Some(signal))) => format!("the command was ended by signal {signal}"),
            _ => String::from("the command could not be run"),
        }),
        DrillResult::TimedOut => Some(format!(
            "the command had not ended after {} (--timeout), and was ended",
            duration(timeout.as_secs_f64())
        )),
        DrillResult::Interrupted => Some(String::from("the drill was interrupted; its command was ended")),
    }
}

fn made(drill: &Drill) -> String {
    format!(
        "{} is a writable clone of {}@{}, as of {} ({} old); made in {}\n\
         open it:    {}\n\
         delete it:  farside volume delete {}\n",
        drill.name,
        drill.replica,
        drill.snapshot,
        time(drill.point),
        duration(drill.age_seconds),
        duration(drill.duration_seconds),
        drill.uri,
        drill.name,
    )
}

fn tried(drill: &Drill, end: &End, ran: Duration, recovered: Duration) -> String {
    let Some(run) = &drill.run else { return String::new() };
    let outcome = match run.result {
        DrillResult::Ok => "the command succeeded",
        _ => "the command did not succeed",
    };
    let deleted = match end {
        End::Deleted => "is deleted",
        End::Gone => "was gone already",
        End::Stays(_) => "is still there",
    };
    format!(
        "{outcome} after {}; recovery point {} ({} old), recovery time {}\nthe clone {} of {}@{} {deleted}\n",
        duration(ran.as_secs_f64()),
        time(drill.point),
        duration(drill.age_seconds),
        duration(recovered.as_secs_f64()),
        drill.name,
        drill.replica,
        drill.snapshot,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drill(run: Option<DrillRun>) -> Drill {
        Drill {
            name: "q/db-drill-1".into(),
            uuid: uuid::Uuid::from_u128(7),
            replica: "q/db".into(),
            snapshot: "s9".into(),
            point: "2026-11-21T20:00:00Z".parse().expect("a time"),
            age_seconds: 12.0,
            size_bytes: 4096,
            uri: "nbd+unix:///q/db-drill-1?socket=/d/nbd.sock".into(),
            duration_seconds: 0.25,
            run,
        }
    }

    #[test]
    fn a_drill_says_what_it_is_of_and_where_it_opens() {
        assert_eq!(
            made(&drill(None)),
            "q/db-drill-1 is a writable clone of q/db@s9, as of 2026-11-21T20:00:00Z (12 s old); made in 0.25 s\n\
             open it:    nbd+unix:///q/db-drill-1?socket=/d/nbd.sock\n\
             delete it:  farside volume delete q/db-drill-1\n"
        );
    }

    #[test]
    fn a_tried_drill_says_point_and_time_that_were_reached() {
        let run = DrillRun {
            command: "check".into(),
            result: DrillResult::Ok,
            exit_status: Some(0),
            duration_seconds: 3.0,
            recovery_seconds: 3.5,
            deleted: true,
        };
        let text =
            tried(&drill(Some(run)), &End::Deleted, Duration::from_secs(3), Duration::from_millis(3500));
        assert_eq!(
            text,
            "the command succeeded after 3.00 s; recovery point 2026-11-21T20:00:00Z (12 s old), recovery time 3.50 s\n\
             the clone q/db-drill-1 of q/db@s9 is deleted\n"
        );
    }

    #[test]
    fn a_clone_that_was_gone_or_stays_is_no_success() {
        let of = |command: Option<&str>, end: End| failure(command.map(String::from), &end, "q/c");
        assert_eq!(of(None, End::Deleted), None);
        assert_eq!(of(Some("why"), End::Deleted), Some(ErrorBody::new(ErrorCode::Failed, "why")));
        let gone = of(Some("why"), End::Gone).expect("a failure");
        assert!(gone.message.starts_with("why; the clone q/c was gone"), "{}", gone.message);
        let open = End::Stays(ErrorBody::new(ErrorCode::Refused, "q/c is in use"));
        let stays = of(None, open).expect("a failure");
        assert_eq!(stays.message, "the clone q/c is still there: q/c is in use");
    }

    #[test]
    fn only_status_0_is_success() {
        let of = |result, raw: Option<i32>| {
            how_it_failed(result, raw.map(ExitStatus::from_raw), Duration::from_secs(60))
        };
        assert_eq!(of(DrillResult::Ok, Some(0)), None);
        assert_eq!(of(DrillResult::Failed, Some(3 << 8)).as_deref(), Some("the command ended with status 3"));
        assert_eq!(of(DrillResult::Failed, Some(9)).as_deref(), Some("the command was ended by signal 9"));
        assert!(of(DrillResult::TimedOut, None).is_some_and(|why| why.contains("1m00s")));
        assert!(of(DrillResult::Interrupted, None).is_some());
    }
}
