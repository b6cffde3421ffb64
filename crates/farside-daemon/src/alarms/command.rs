//! Alarms handed to a command: one after the other, as JSON on its standard input and in its environment. One that takes too long is
//! killed with all that it started. Nothing is tried again: a command that wants that can do it.

use farside_api::AlarmNotice;
use tokio::process::Command;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::settings::CommandConfig;
use super::webhook::document;
use crate::commands::{Ended, Running};

/// Notices that wait for the command, at most.
const WAITING_MAX: usize = 256;
/// A command and what waits for it.
pub(super) struct Runner {
    config: CommandConfig,
    waiting: mpsc::Sender<AlarmNotice>,
    queue: Mutex<mpsc::Receiver<AlarmNotice>>,
    /// One at a time.
    turn: Mutex<()>,
}

impl Runner {
    pub(super) fn new(config: CommandConfig) -> Runner {
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        Runner { config, waiting, queue: Mutex::new(queue), turn: Mutex::default() }
    }

    /// The program.
    pub(super) fn shown(&self) -> String {
        self.config.words.first().cloned().unwrap_or_default()
    }

    /// Adds a notice to those that wait. Never waits for the command.
    pub(super) fn add(&self, notice: &AlarmNotice) {
        if self.waiting.try_send(notice.clone()).is_err() {
            tracing::error!(
                command = self.shown(),
                id = notice.alarm.id,
                "the command for alarms is too slow: {WAITING_MAX} wait for it, and this one is not handed to it"
            );
        }
    }

    /// Runs the command for each, for as long as the site lives.
    pub(super) async fn keep_running(&self) {
        let mut queue = self.queue.lock().await;
        while let Some(notice) = queue.recv().await {
            if let Err(why) = self.try_once(&notice).await {
                tracing::error!(
                    command = self.shown(),
                    id = notice.alarm.id,
                    "the command for alarms failed: {why}"
                );
            }
        }
    }

    /// Runs it once, now or after the one that runs.
    ///
    /// # Errors
    /// What came of it.
    pub(super) async fn try_once(&self, notice: &AlarmNotice) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        let (program, arguments) = self.config.words.split_first().ok_or("it has no word")?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment(notice));
        let running =
            Running::begin(&mut command).map_err(|error| format!("cannot run {program}: {error}"))?;
        let (notice, never) = (document(notice), CancellationToken::new());
        match running.end(notice.as_bytes(), self.config.timeout, &never).await {
            Ok(()) => Ok(()),
            Err(Ended::TooLong | Ended::Stopped) => {
                Err(format!("it was killed after {} s", self.config.timeout.as_secs_f64()))
            }
            Err(Ended::Lost(error)) => Err(format!("cannot wait for {program}: {error}")),
            Err(Ended::Failed(status, said)) if said.is_empty() => Err(status.to_string()),
            Err(Ended::Failed(status, said)) => Err(format!("{status}: {said}")),
        }
    }
}

fn environment(notice: &AlarmNotice) -> [(&'static str, String); 10] {
    let alarm = &notice.alarm;
    // A zero byte ends a word there; texts may come from anywhere.
    let clean = |text: &str| text.replace('\0', " ");
    [
        ("FARSIDE_ALARM_EVENT", notice.event.name().to_owned()),
        ("FARSIDE_ALARM_SITE", clean(&notice.site)),
        ("FARSIDE_ALARM_ID", clean(&alarm.id)),
        ("FARSIDE_ALARM_KIND", clean(&alarm.kind)),
        ("FARSIDE_ALARM_SUBJECT", clean(&alarm.subject)),
        ("FARSIDE_ALARM_SEVERITY", alarm.severity.name().to_owned()),
        ("FARSIDE_ALARM_RAISED_AT", alarm.raised_at.to_string()),
        ("FARSIDE_ALARM_CLEARED_AT", alarm.cleared_at.map(|at| at.to_string()).unwrap_or_default()),
        ("FARSIDE_ALARM_MESSAGE", clean(&alarm.message)),
        ("FARSIDE_ALARM_HINT", clean(&alarm.hint)),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use farside_api::{Alarm, AlarmEvent, AlarmSeverity};
    use rustix::process::{Pid, Signal};

    use super::*;

    fn notice() -> AlarmNotice {
        AlarmNotice {
            event: AlarmEvent::Cleared,
            site: "south".into(),
            notice_id: uuid::Uuid::from_u128(1),
            alarm: Alarm {
                id: "7".into(),
                kind: "peer-gone".into(),
                subject: "north".into(),
                severity: AlarmSeverity::Warning,
                raised_at: farside_api::Timestamp::UNIX_EPOCH,
                cleared_at: Some(farside_api::Timestamp::UNIX_EPOCH),
                acknowledged: false,
                message: "m\0m".into(),
                hint: "h".into(),
            },
        }
    }

    fn runner(directory: &Path, script: &str, timeout: Duration) -> Runner {
        let path = directory.join("command");
        std::fs::write(&path, format!("cd {}\n{script}\n", directory.display())).unwrap();
        // Not the script itself: a test beside this one may be forking while it is open to be written.
        let words = vec!["/bin/sh".into(), path.display().to_string(), "one".into()];
        Runner::new(CommandConfig { words, timeout })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn it_gets_the_alarm_as_json_and_in_its_environment() {
        let directory = tempfile::tempdir().unwrap();
        let script = "cat > json\necho \"$1 $FARSIDE_ALARM_EVENT $FARSIDE_ALARM_ID $FARSIDE_ALARM_KIND $FARSIDE_ALARM_MESSAGE\" > words";
        runner(directory.path(), script, LONG).try_once(&notice()).await.unwrap();
        let read = |file: &str| std::fs::read_to_string(directory.path().join(file)).unwrap();
        assert_eq!(serde_json::from_str::<AlarmNotice>(&read("json")).unwrap(), notice());
        assert_eq!(read("words"), "one cleared 7 peer-gone m m\n");
    }

    #[tokio::test]
    async fn one_that_fails_says_why_and_one_that_is_not_there_too() {
        let directory = tempfile::tempdir().unwrap();
        let failing = runner(directory.path(), "exec 0<&-; echo no such pager >&2; exit 3", LONG);
        let said = failing.try_once(&notice()).await.unwrap_err();
        assert!(said.contains("exit status: 3") && said.contains("no such pager"), "{said}");
        let noisy = runner(directory.path(), "head -c 1000000 /dev/zero >&2; exit 1", LONG);
        assert!(noisy.try_once(&notice()).await.unwrap_err().len() < 2000);
        let absent = Runner::new(CommandConfig { words: vec!["/nowhere".into()], timeout: LONG });
        assert!(absent.try_once(&notice()).await.unwrap_err().contains("/nowhere"));
    }

    #[tokio::test]
    async fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let slow = runner(directory.path(), "sleep 600 & echo $! > child; wait", Duration::from_secs(1));
        let began = Instant::now();
        let said = slow.try_once(&notice()).await.unwrap_err();
        assert!(said.contains("killed after 1 s") && began.elapsed() < LONG, "{said}");
        let child: i32 =
            std::fs::read_to_string(directory.path().join("child")).unwrap().trim().parse().unwrap();
        let is_gone = || {
            std::fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z"))
        };
        while !is_gone() {
            assert!(began.elapsed() < LONG, "the child lives");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn what_it_leaves_running_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let began = Instant::now();
        runner(directory.path(), "sleep 600 & echo $! > child", LONG).try_once(&notice()).await.unwrap();
        assert!(began.elapsed() < LONG / 2);
        let child: i32 =
            std::fs::read_to_string(directory.path().join("child")).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(child).unwrap();
        assert_eq!(rustix::process::test_kill_process(pid), Ok(()), "nor killed");
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn those_that_wait_are_bounded_and_handed_over_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let runner = runner(directory.path(), "echo $FARSIDE_ALARM_ID >> ids", LONG);
        let with_id = |id: usize| {
            let notice = notice();
            AlarmNotice { alarm: Alarm { id: id.to_string(), ..notice.alarm.clone() }, ..notice }
        };
        for id in 0..3 {
            runner.add(&with_id(id));
        }
        let ids = || std::fs::read_to_string(directory.path().join("ids")).unwrap_or_default();
        let all = async {
            while ids() != "0\n1\n2\n" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = runner.keep_running() => panic!("it ended"),
            done = tokio::time::timeout(LONG, all) => done.unwrap(),
        }
        for id in 0..WAITING_MAX + 5 {
            runner.add(&with_id(id));
        }
        assert_eq!(runner.waiting.capacity(), 0);
    }
}
