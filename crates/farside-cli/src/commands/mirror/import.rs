//! `farside mirror import`: a `snapmirror.conf` as mirrors. What a line becomes is pure ([`read`]).
//!
//! The file's lines are `SOURCE:VOLUME DESTINATION:VOLUME ARGUMENTS MINUTE HOUR DAY-OF-MONTH DAY-OF-WEEK`, and
//! `NAME = multi(SOURCE,DESTINATION)(…)` for several paths (na_snapmirror.conf(5) of Data ONTAP 7). Its four fields are those of cron without
//! the month. What has no counterpart is named, never passed over.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use farside_api::{CreateMirror, ErrorBody, ErrorCode, Mirror, Peer, Pool, Role, SetMirrorLink, Volume};
use serde::Serialize;

use crate::arguments::mirror::Import;
use crate::arguments::names::is_label;
use crate::commands::context::Context;
use crate::output::{Column, table};

/// Longest file, bytes.
const FILE_MAX: u64 = 1 << 20;
/// Throttles that a mirror can have, in kilobytes of 1024 bytes a second: 8 kB/s to 1000 GB/s.
const KILOBYTES: RangeInclusive<u64> = 8..=976_562_500;
/// Windows that a mirror can have, bytes.
const WINDOWS: RangeInclusive<u64> = 65_536..=67_108_864;
/// Where peers are met.
const PORT: u16 = 7440;

/// What becomes of one line.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Line {
    /// Its number in the file.
    number: usize,
    /// What it says, for whoever reads the plan.
    text: String,
    /// The mirror that it becomes; none if it becomes none.
    mirror: Option<CreateMirror>,
    /// What of it has no counterpart, or why it becomes none.
    notes: Vec<String>,
    /// Whether the mirror was made; null in a plan.
    made: Option<bool>,
    /// The mirror was there before, as the line has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    existed: bool,
}

/// What there is at this site: what a line needs, and what it would meet.
#[derive(Default, Debug)]
struct Here {
    pools: Vec<String>,
    peers: Vec<String>,
    volumes: Vec<String>,
    /// Replicas, with what they follow.
    replicas: BTreeMap<String, String>,
}

impl Here {
    async fn look(context: &Context) -> Result<Here, ErrorBody> {
        let pools: Vec<Pool> = context.client.get(&["pools"]).await?;
        let peers: Vec<Peer> = context.client.get(&["peers"]).await?;
        let volumes: Vec<Volume> = context.client.get(&["volumes"]).await?;
        let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
        let replicas = mirrors.into_iter().filter(|m| m.role == Role::Destination);
        Ok(Here {
            pools: pools.into_iter().map(|pool| pool.name).collect(),
            peers: peers.into_iter().map(|peer| peer.name).collect(),
            volumes: volumes.into_iter().map(|volume| volume.name).collect(),
            replicas: replicas.map(|m| (m.name, m.source)).collect(),
        })
    }

    /// What keeps a mirror from being made here, as far as this site alone knows.
    fn lacks(&self, mirror: &CreateMirror) -> Vec<String> {
        let mut lacks = Vec::new();
        let (peer, _) = mirror.source.split_once(':').unwrap_or((&mirror.source, ""));
        let (pool, _) = mirror.destination.split_once('/').unwrap_or((&mirror.destination, ""));
        if !self.pools.iter().any(|known| known == pool) {
            lacks.push(format!("there is no pool {pool} here: farside pool create {pool}"));
        }
        if !self.peers.iter().any(|known| known == peer) {
            lacks.push(format!(
                "no peer is called {peer}: farside peer join, or --peer NAME-IN-THE-FILE=PEER"
            ));
        }
        match self.replicas.get(&mirror.destination) {
            Some(source) if *source != mirror.source => {
                lacks.push(format!("{} is the replica of {source}", mirror.destination))
            }
            None if self.volumes.contains(&mirror.destination) => lacks.push(format!(
                "a volume {} is here already, and is no replica: one that is not empty is refused",
                mirror.destination
            )),
            _ => {}
        }
        lacks
    }

    /// Whether the line's mirror is there, whatever else of it may differ.
    fn has(&self, mirror: &CreateMirror) -> bool {
        self.replicas.get(&mirror.destination) == Some(&mirror.source)
    }
}

pub(super) async fn run(context: &Context, import: Import) -> Result<(), ErrorBody> {
    let text = contents(&import.file)?;
    let mut lines = read(&text, &import);
    if lines.is_empty() {
        return Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{} names no mirror", import.file.display()),
        ));
    }
    let mut failed: Vec<ErrorCode> = Vec::new();
    let here = Here::look(context).await?;
    for line in &mut lines {
        let Some(request) = &line.mirror else { continue };
        line.existed = here.has(request);
        if import.plan {
            line.notes.extend(here.lacks(request));
        }
    }
    if !import.plan {
        for line in &mut lines {
            let Some(request) = &line.mirror else { continue };
            // What is there and is so is done: the file may be imported again when it has got more lines.
            let request = CreateMirror { if_absent: true, ..request.clone() };
            let made = context.client.post::<Mirror>(&["mirrors"], &request).await;
            line.made = Some(made.is_ok());
            if let Err(error) = made {
                failed.push(error.code);
                line.notes.push(error.message);
            }
        }
    }
    let left_out = lines.iter().filter(|line| line.mirror.is_none()).count();
    context.show(&lines, |lines| show(lines, import.plan));
    match failed.len() {
        0 if import.plan || left_out == 0 => Ok(()),
        0 => Err(ErrorBody::new(
            ErrorCode::Failed,
            format!("{left_out} lines became no mirror; the notes say why"),
        )),
        // Another failure than what could not be made: a script need not try that again.
        differing if failed.iter().all(|code| *code == ErrorCode::Exists) => Err(ErrorBody::new(
            ErrorCode::Exists,
            format!("{differing} mirrors are there and differ; the notes say in what. They were not changed"),
        )
        .hint("farside mirror set changes what is there")),
        count => Err(ErrorBody::new(
            ErrorCode::Failed,
            format!("{count} mirrors could not be made; the notes say why"),
        )
        .hint("lines that became a mirror are done; the same command makes the others")),
    }
}

/// The text of a regular file, whole: of a part of it nobody would see that mirrors are missing.
fn contents(file: &std::path::Path) -> Result<String, ErrorBody> {
    use std::io::Read;
    let failed = |error: std::io::Error| {
        ErrorBody::new(ErrorCode::NotFound, format!("cannot read {}: {error}", file.display()))
    };
    let too_long = |length: u64| {
        let said = format!("{} has {length} bytes; at most {FILE_MAX} are read", file.display());
        ErrorBody::new(ErrorCode::WrongUsage, said).hint("import its lines in several files")
    };
    // Opening a FIFO would wait for whoever writes to it.
    let kind = std::fs::metadata(file).map_err(failed)?;
    if !kind.is_file() {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("{} is no regular file", file.display())));
    }
    if kind.len() > FILE_MAX {
        return Err(too_long(kind.len()));
    }
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    let length = read.map_err(failed)? as u64;
    match length > FILE_MAX {
        true => Err(too_long(length)),
        false => Ok(text),
    }
}

fn show(lines: &[Line], is_plan: bool) -> String {
    let columns = [
        Column::Right("line"),
        Column::Left("mirror"),
        Column::Left("of"),
        Column::Left("schedule"),
        Column::Left("throttle"),
        Column::Left(if is_plan { "becomes" } else { "is" }),
        Column::Left("notes"),
    ];
    let rows = lines.iter().map(|line| {
        let of = |value: fn(&CreateMirror) -> String| line.mirror.as_ref().map_or_else(|| "-".into(), value);
        vec![
            line.number.to_string(),
            of(|m| m.destination.clone()),
            of(|m| m.source.clone()),
            of(|m| m.schedule.clone().unwrap_or_else(|| "on request".into())),
            of(|m| m.link.as_ref().and_then(|l| l.throttle.clone()).unwrap_or_else(|| "-".into())),
            match (&line.mirror, line.made) {
                (None, _) => "nothing",
                (_, Some(false)) => "not made",
                (_, Some(true) | None) if line.existed => "there",
                (_, Some(true)) => "made",
                (_, None) => "a mirror",
            }
            .into(),
            line.notes.join("; "),
        ]
    });
    table(&columns, rows.collect(), "no mirrors")
}

/// What each line becomes. Lines of other destinations are left out where one is named.
pub(super) fn read(text: &str, import: &Import) -> Vec<Line> {
    let mut connections: BTreeMap<String, Option<Connection>> = BTreeMap::new();
    let mut lines = Vec::new();
    for (at, text) in joined(text) {
        match Connection::read(&text) {
            Some((name, connection)) => {
                if connection.is_none() {
                    lines.push((at, text, Some(name.clone())));
                }
                connections.insert(name, connection);
            }
            None => lines.push((at, text, None)),
        }
    }
    let of = |(number, text, connection): (usize, String, Option<String>)| match connection {
        None => line(number, &text, &connections, import),
        Some(name) => {
            let said = format!("the connection {name} is not read: its paths are (SOURCE,DESTINATION)(…)");
            Some(Line { number, text, mirror: None, notes: vec![said], made: None, existed: false })
        }
    };
    lines.into_iter().filter_map(of).collect()
}

/// Lines without comments; one that ends with a backslash goes on with the next.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    // Editors of some systems begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (line, continues) = line.strip_suffix('\\').map_or((line, false), |line| (line.trim(), true));
        match all.last_mut().filter(|_| goes_on) {
            Some((_, before)) => {
                before.push(' ');
                before.push_str(line);
            }
            None => all.push((at + 1, line.to_owned())),
        }
        goes_on = continues;
    }
    all.retain(|(_, line)| !line.is_empty());
    all
}

/// Several paths to one source.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Connection {
    /// Each pair at once; otherwise the second only if the first is dead.
    is_multi: bool,
    /// Address of the source, address of the destination.
    pairs: Vec<(String, String)>,
}

impl Connection {
    /// `NAME = multi(SOURCE,DESTINATION)(…)`, or `failover`: the name, and the connection unless its paths are no such pairs.
    fn read(line: &str) -> Option<(String, Option<Connection>)> {
        let (name, rest) = line.split_once('=')?;
        let (name, rest) = (name.trim(), rest.trim());
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let (mode, pairs) = rest.split_once('(').filter(|_| is_name)?;
        let is_multi = match mode.trim() {
            "multi" => true,
            "failover" => false,
            _ => return None,
        };
        Some((name.to_owned(), self::pairs(pairs).map(|pairs| Connection { is_multi, pairs })))
    }
}

/// What follows the first parenthesis: `SOURCE,DESTINATION)`, and further such pairs, each in parentheses.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (pair, after) = text.split_once(')')?;
        let (source, destination) = pair.split_once(',')?;
        let [source, destination] = [source, destination].map(str::trim);
        let is_address = |text: &str| !text.is_empty() && !text.contains(['(', ',', ' ', '\t']);
        if !is_address(source) || !is_address(destination) {
            return None;
        }
        pairs.push((source.to_owned(), destination.to_owned()));
        rest = match after.trim() {
            "" => None,
            after => Some(after.strip_prefix('(')?),
        };
    }
    Some(pairs)
}

/// Of a line, if it is for this destination.
fn line(
    number: usize,
    text: &str,
    connections: &BTreeMap<String, Option<Connection>>,
    import: &Import,
) -> Option<Line> {
    let mut line =
        Line { number, text: text.to_owned(), mirror: None, notes: Vec::new(), made: None, existed: false };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [source, destination, arguments, schedule @ ..] = words.as_slice() else {
        line.notes.push("it has fewer than the words SOURCE DESTINATION ARGUMENTS SCHEDULE".into());
        return Some(line);
    };
    let (Some((filer, from)), Some((here, to))) = (source.split_once(':'), destination.split_once(':'))
    else {
        line.notes.push("source and destination are FILER:VOLUME".into());
        return Some(line);
    };
    if import.destination.as_ref().is_some_and(|wanted| wanted != here) {
        return None;
    }
    let (from, to) = match (volume(from), volume(to)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(why), _) | (_, Err(why)) => {
            line.notes.push(why);
            return Some(line);
        }
    };
    let Some(schedule) = timetable(schedule, &mut line.notes) else { return Some(line) };
    let peer = import.peers.iter().find(|(of, _)| of == filer).map_or(filer, |(_, peer)| peer);
    let mut link = SetMirrorLink::default();
    let is_taken = read_arguments(arguments, &mut link, &mut line.notes);
    if let Some(not) = [peer, from, to].into_iter().find(|name| !is_label(name)) {
        line.notes.push(format!(
            "{not:?} cannot be a name and would be refused: it has other letters than A-Z a-z 0-9 . _ : + -, more than 128, or begins with \
             - or ."
        ));
        return Some(line);
    }
    if !is_taken {
        return Some(line);
    }
    if let Some(None) = connections.get(filer) {
        line.notes.push(format!("the connection {filer} is not read: the mirror has one path"));
    }
    if let Some(Some(connection)) = connections.get(filer) {
        if !connection.is_multi {
            line.notes
                .push("failover: farside uses all paths together, and the others when one is dead".into());
        }
        let path = |(source, destination): &(String, String)| format!("{destination}={source}:{PORT}");
        link.paths = Some(connection.pairs.iter().map(path).collect());
    }
    line.mirror = Some(CreateMirror {
        if_absent: false,
        source: format!("{peer}:{}/{from}", import.source_pool),
        destination: format!("{}/{to}", import.pool),
        every_seconds: None,
        no_reverse: false,
        copy_of_own: false,
        schedule,
        time_zone: import.time_zone.clone(),
        rpo_seconds: None,
        retention: None,
        group: None,
        link: (link != SetMirrorLink::default()).then_some(link),
    });
    if let Some(mirror) = &mut line.mirror
        && mirror.schedule.is_none()
    {
        mirror.time_zone = None;
    }
    Some(line)
}

/// The volume of a path; trees in volumes have no counterpart.
fn volume(path: &str) -> Result<&str, String> {
    let name = path.strip_prefix("/vol/").unwrap_or(path);
    match name.contains('/') {
        true => Err(format!("{path} is a tree in a volume; only whole volumes are mirrored")),
        false if name.is_empty() => Err(format!("{path:?} names no volume")),
        false => Ok(name),
    }
}

/// The five fields of cron; `Some(None)`: only when asked. None: it becomes no mirror.
#[expect(clippy::option_option, reason = "no mirror, or one without a schedule")]
fn timetable(fields: &[&str], notes: &mut Vec<String>) -> Option<Option<String>> {
    match fields {
        ["sync" | "semi-sync", ..] => {
            notes.push("synchronous: it becomes a mirror only if you choose how late it may be, with farside mirror create --rpo 2s".into());
            None
        }
        [_, _, _, _] if fields.contains(&"-") => {
            notes.push("\"-\" in the schedule: it is updated only when you ask".into());
            Some(None)
        }
        [minute, hour, day, weekday] => {
            if *day != "*" && *weekday != "*" {
                notes.push(
                    "day of the month and day of the week: updates come when either matches, not only when both do".into(),
                );
            }
            Some(Some(format!("{minute} {hour} {day} * {weekday}")))
        }
        _ => {
            notes.push(format!("the schedule has {} fields, not four", fields.len()));
            None
        }
    }
}

/// Answers whether a mirror can have what they say.
fn read_arguments(arguments: &str, link: &mut SetMirrorLink, notes: &mut Vec<String>) -> bool {
    let mut is_taken = true;
    for argument in arguments.split(',').filter(|argument| !matches!(*argument, "-" | "")) {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        match (name, value) {
            // Kilobytes of 1024 bytes.
            ("kbs", value) => match value.parse::<u64>() {
                Ok(0) | Err(_) => notes.push(format!("{argument}: no number")),
                Ok(kilobytes) if KILOBYTES.contains(&kilobytes) => {
                    link.throttle = Some(format!("{kilobytes}KiB/s"));
                }
                Ok(_) => {
                    is_taken = false;
                    let (least, most) = (KILOBYTES.start(), KILOBYTES.end());
                    notes.push(format!("{argument}: a throttle has {least} to {most}; it would be refused"));
                }
            },
            ("wsize", value) => match value.parse::<u64>() {
                Ok(bytes) if WINDOWS.contains(&bytes) => link.window_bytes = Some(bytes),
                Ok(_) => {
                    notes.push(format!(
                        "{argument}: a window has 64 KiB to 64 MiB; this one would be refused, and is left to farside"
                    ));
                }
                Err(_) => notes.push(format!("{argument}: no number")),
            },
            ("restart" | "tries", _) => {
                notes.push(format!("{argument}: a transfer that was cut always goes on with what it brought"))
            }
            ("cksum", _) => notes.push(format!("{argument}: everything is verified always")),
            ("compression", _) => {
                notes.push(format!("{argument}: what travels is compressed as the link needs it"))
            }
            _ => notes.push(format!("{argument} has no counterpart")),
        }
    }
    is_taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import() -> Import {
        Import {
            if_absent: false,
            file: "snapmirror.conf".into(),
            source_pool: "tank".into(),
            pool: "vault".into(),
            peers: vec![("filer1".into(), "north".into())],
            destination: Some("filer2".into()),
            time_zone: Some("UTC".into()),
            plan: true,
        }
    }

    fn only(text: &str) -> Line {
        let mut lines = read(text, &import());
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    #[test]
    fn schedules_throttles_and_windows_become_a_mirrors() {
        let line = only(
            "filer1:home filer2:home_copy kbs=2000,wsize=131072,restart=always 15 0,6,12,18 * 1-5   # nightly",
        );
        let mirror = line.mirror.unwrap();
        assert_eq!(
            (mirror.source.as_str(), mirror.destination.as_str()),
            ("north:tank/home", "vault/home_copy")
        );
        assert_eq!(mirror.schedule.as_deref(), Some("15 0,6,12,18 * * 1-5"));
        let link = mirror.link.unwrap();
        assert_eq!((link.throttle.as_deref(), link.window_bytes), (Some("2000KiB/s"), Some(131_072)));
        assert!(line.notes.len() == 1 && line.notes[0].starts_with("restart=always"), "{:?}", line.notes);
    }

    #[test]
    fn several_paths_become_a_mirrors() {
        let text = "filer1 = multi (10.0.0.1,10.0.1.1) (10.0.0.2,10.0.1.2)\n/* */\nfiler1:home filer2:home - 0 * * *";
        let lines = read(text, &import());
        let paths = lines.last().unwrap().mirror.clone().unwrap().link.unwrap().paths.unwrap();
        assert_eq!(paths, ["10.0.1.1=10.0.0.1:7440", "10.0.1.2=10.0.0.2:7440"]);
        assert!(lines[0].mirror.is_none() && !lines[0].notes.is_empty(), "what is no line is named");
        let failover = read("x-1=failover(a,b)\nx-1:v filer2:v - 0 * * *", &import());
        assert!(failover[0].notes[0].contains("failover") && failover[0].mirror.is_some());
    }

    #[test]
    fn what_has_no_counterpart_is_named() {
        for (text, note) in [
            ("filer1:/vol/home/q filer2:/vol/home/q - 0 * * *", "tree"),
            ("filer1:home filer2:home - sync", "synchronous"),
            ("filer1:home filer2:home - 0 * *", "fields"),
            ("filer1:home filer2:home", "fewer"),
            ("home filer2:home - 0 * * *", "FILER:VOLUME"),
            ("filer1:home$ filer2:home - 0 * * *", "\"home$\" cannot be a name and would be refused"),
            ("filer1:home filer2:-home - 0 * * *", "\"-home\" cannot be a name and would be refused"),
            ("filer\u{e9}:home filer2:home - 0 * * *", "cannot be a name and would be refused"),
            (
                "filer1:home filer2:home kbs=7 0 * * *",
                "kbs=7: a throttle has 8 to 976562500; it would be refused",
            ),
            ("filer1:home filer2:home kbs=976562501 0 * * *", "it would be refused"),
        ] {
            let line = only(text);
            assert!(line.mirror.is_none() && line.notes.join(" ").contains(note), "{text}: {:?}", line.notes);
        }
        for (text, note) in [
            (
                "filer1:home filer2:home visibility_interval=1hr 0 * * *",
                "visibility_interval=1hr has no counterpart",
            ),
            ("filer1:home filer2:home wsize=1000 0 * * *", "would be refused"),
            ("filer1:home filer2:home kbs=lots 0 * * *", "no number"),
            ("filer1:home filer2:home - 0 3 1 1", "either matches"),
        ] {
            let line = only(text);
            assert!(line.mirror.is_some() && line.notes.join(" ").contains(note), "{text}: {:?}", line.notes);
        }
        let on_request = only("filer1:home filer2:home - - - - -").mirror.unwrap();
        assert_eq!((on_request.schedule, on_request.time_zone), (None, None));
    }

    #[test]
    fn a_connection_that_is_not_whole_is_named_and_not_taken() {
        for paths in ["(a,b", "(a,b)(c,d", "(a,b) c", "(a,b,c)", "(a)", "(,b)", "(a,(b)", "()", "(a,b))"] {
            let lines = read(&format!("n = multi{paths}\nn:v filer2:v - 0 * * *"), &import());
            let [connection, mirror] = &lines[..] else { panic!("{paths}: {lines:?}") };
            assert!(connection.mirror.is_none() && connection.number == 1, "{paths}: {connection:?}");
            assert!(connection.notes[0].contains("connection n is not read"), "{paths}: {connection:?}");
            let made = mirror.mirror.as_ref().unwrap();
            assert!(made.link.is_none() && mirror.notes[0].contains("one path"), "{paths}: {mirror:?}");
        }
    }

    #[test]
    fn a_plan_says_what_is_missing_here_and_what_is_there() {
        let mirror = only("filer1:home filer2:home - 0 * * *").mirror.unwrap();
        let empty = Here::default().lacks(&mirror).join("; ");
        assert!(empty.contains("no pool vault here") && empty.contains("no peer is called north"), "{empty}");
        let names = |name: &str| vec![name.to_owned()];
        let mut here = Here { pools: names("vault"), peers: names("north"), ..Here::default() };
        assert!(here.lacks(&mirror).is_empty() && !here.has(&mirror));
        here.volumes = names("vault/home");
        assert!(here.lacks(&mirror)[0].contains("is no replica"));
        here.replicas.insert("vault/home".into(), "north:tank/other".into());
        assert_eq!(here.lacks(&mirror), ["vault/home is the replica of north:tank/other"]);
        here.replicas.insert("vault/home".into(), "north:tank/home".into());
        assert!(here.lacks(&mirror).is_empty() && here.has(&mirror));
    }

    #[test]
    fn limits_are_those_of_mirrors() {
        use farside_link::limits::{RATE_MAX, RATE_MIN, WINDOW_MAX, WINDOW_MIN};
        assert_eq!(KILOBYTES, RATE_MIN.div_ceil(1024)..=RATE_MAX / 1024);
        assert_eq!(WINDOWS, WINDOW_MIN..=WINDOW_MAX);
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("snapmirror.conf");
        let line = "filer1:home filer2:home - 0 * * *\n";
        std::fs::write(&path, format!("\u{feff}{line}")).unwrap();
        let lines = read(&contents(&path).unwrap(), &import());
        assert!(lines.len() == 1 && lines[0].mirror.is_some(), "{lines:?}");
        assert_eq!(lines[0].mirror.as_ref().unwrap().source, "north:tank/home");
        let longest = line.to_owned() + &" ".repeat(FILE_MAX as usize - line.len());
        std::fs::write(&path, &longest).unwrap();
        assert!(contents(&path).unwrap() == longest);
        std::fs::write(&path, longest + line).unwrap();
        let Err(refused) = contents(&path) else { panic!("it is too long") };
        assert!(refused.message.contains("has 1048610 bytes"), "{}", refused.message);
        assert_eq!(contents(directory.path()).unwrap_err().code, ErrorCode::WrongUsage);
        assert_eq!(contents(&directory.path().join("absent")).unwrap_err().code, ErrorCode::NotFound);
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || said.send(contents(&fifo).unwrap_err().message));
        let refused =
            heard.recv_timeout(std::time::Duration::from_secs(60)).expect("nobody waits for a writer");
        assert!(refused.contains("no regular file"), "{refused}");
    }

    #[test]
    fn lines_of_other_destinations_are_left_out_and_long_ones_joined() {
        assert!(read("filer1:home filer3:home - 0 * * *\n\n# nothing\n", &import()).is_empty());
        let line = only("filer1:home \\\n  filer2:home - \\\n  0 * * *\n");
        assert_eq!((line.number, line.mirror.is_some()), (1, true));
    }
}
