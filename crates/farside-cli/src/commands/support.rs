//! `farside support-bundle`: one file with all that somebody who shall help needs to know of a site.
//!
//! What the daemon answers is packed as it answers it; what it fails to answer is named in `problems.txt`, and the rest is
//! packed all the same. No secret can be in it: the API shows none, and of the data directory only named files are read, the
//! key not among them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use farside_api::{ErrorBody, ErrorCode, Peer, Site, Support, Timestamp};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::context::Context;
use crate::quantities::size;

/// Most bytes read of one file of the data directory. A state database is some 20 MB for each busy mirror.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Lines of the log of mirrors that are asked for: as many as the daemon answers at once.
const LOG_LINES: &str = "30000";

/// Listings of the API: the file's name in the bundle, the resource.
const LISTINGS: [(&str, &[&str]); 15] = [
    ("site.json", &["site"]),
    ("pools.json", &["pools"]),
    ("volumes.json", &["volumes"]),
    ("snapshots.json", &["snapshots"]),
    ("mirrors.json", &["mirrors"]),
    ("destinations.json", &["destinations"]),
    ("history.json", &["history"]),
    ("operations.json", &["operations"]),
    ("peers.json", &["peers"]),
    ("hosts.json", &["hosts"]),
    ("alarms.json", &["alarms"]),
    ("accelerator.json", &["accelerator"]),
    ("accelerator-connections.json", &["accelerator", "connections"]),
    ("accelerator-policies.json", &["accelerator", "policies"]),
    ("accelerator-forwards.json", &["accelerator", "forwards"]),
];

/// Files of the data directory that tell something when no daemon does. The database holds no secret:
/// of tokens it has hashes of 256 random bits.
const FILES: [&str; 7] =
    ["farside.db", "farside.db-wal", "farside.toml", "peer.addr", "http.addr", "api.addr", "nbd.addr"];
/// A line of the configuration that holds one of these is not shown: a comment might, and the address of a webhook, or the arguments
/// of a command, may be secrets.
const WITHHELD: [&str; 6] = ["token", "secret", "passw", "key", "webhook", "command"];

pub(super) async fn run(context: Context, output: Option<PathBuf>, data_dir: &Path) -> Result<(), ErrorBody> {
    let mut parts = Parts::default();
    let site = context.client.get::<Site>(&["site"]).await;
    let name = match site {
        Ok(site) => {
            ask(&context, &mut parts).await;
            site.name
        }
        Err(error) if error.code == ErrorCode::DaemonUnreachable && data_dir.is_dir() => {
            eprintln!("farside: {}", error.message);
            eprintln!("the bundle holds what lies in {} instead", data_dir.display());
            parts.problems.push(format!("the daemon was not asked: {}", error.message));
            look(data_dir, &mut parts);
            String::from("offline")
        }
        Err(error) => return Err(error),
    };
    parts.add("machine.json", pretty(&machine()));
    parts.add("versions-of-client.json", pretty(&json!({ "farside": env!("CARGO_PKG_VERSION") })));
    let problems = parts.problems.clone();
    if !problems.is_empty() {
        parts.add("problems.txt", problems.join("\n").into_bytes());
    }
    let now = Timestamp::now();
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    let path = output.unwrap_or_else(|| PathBuf::from(format!("farside-support-{name}-{stamp}.tar.gz")));
    let bytes = parts.write(&path, now).map_err(|error| {
        let failed = ErrorBody::new(ErrorCode::Failed, format!("cannot write {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::AlreadyExists => failed.hint("name another file with --output"),
            _ => failed.hint("name a writable place with enough space with --output"),
        }
    })?;
    let document = json!({
        "path": path,
        "bytes": bytes,
        "files": parts.files.iter().map(|f| json!({"name": f.name, "bytes": f.content.len()})).collect::<Vec<_>>(),
        "problems": problems,
    });
    context.show(&document, |_| {
        let mut text = format!("{} ({})\n", path.display(), size(bytes));
        for file in &parts.files {
            text += &format!("  {} ({})\n", file.name, size(file.content.len() as u64));
        }
        for problem in &problems {
            text += &format!("not packed: {problem}\n");
        }
        text += "it contains no keys, codes or data of volumes; it contains names, addresses and log lines\n";
        text
    });
    Ok(())
}

/// The files of a bundle before it is written.
#[derive(Debug, Default)]
struct Parts {
    files: Vec<Part>,
    /// What could not be had, a sentence each.
    problems: Vec<String>,
}

#[derive(Debug)]
struct Part {
    name: String,
    content: Vec<u8>,
}

impl Parts {
    fn add(&mut self, name: &str, content: Vec<u8>) {
        self.files.push(Part { name: name.to_owned(), content });
    }

    /// What was asked for, or why it was not had.
    fn add_answer(&mut self, name: &str, answer: Result<Vec<u8>, ErrorBody>) {
        match answer {
            Ok(content) => self.add(name, content),
            Err(error) => self.problems.push(format!("{name}: {}", error.message)),
        }
    }

    /// Writes a file that only its owner may read, durably; removes it if that fails in the middle. Answers its size.
    fn write(&self, path: &Path, now: Timestamp) -> io::Result<u64> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let written = self.pack(file, now).and_then(|file| {
            file.sync_all()?;
            Ok(file.metadata()?.len())
        });
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    }

    fn pack(&self, file: File, now: Timestamp) -> io::Result<File> {
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for part in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(part.content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(u64::try_from(now.as_second()).unwrap_or(0));
            header.set_cksum();
            archive.append_data(
                &mut header,
                Path::new("farside-support").join(&part.name),
                &part.content[..],
            )?;
        }
        let mut file = archive.into_inner()?.finish()?;
        file.flush()?;
        Ok(file)
    }
}

/// Asks the daemon for everything.
async fn ask(context: &Context, parts: &mut Parts) {
    match context.client.get::<Support>(&["support"]).await {
        Ok(support) => {
            parts.add("versions.json", pretty(&support.versions));
            let daemon = json!({
                "started_at": support.started_at,
                "now": support.now,
                "network_advice": support.network_advice,
            });
            parts.add("daemon.json", pretty(&daemon));
            parts.add("configuration.json", pretty(&support.configuration));
            let mut log = support.log.join("\n");
            if support.log_dropped > 0 {
                log = format!("({} older lines are not kept)\n{log}", support.log_dropped);
            }
            parts.add("daemon.log", log.into_bytes());
        }
        Err(error) => parts.problems.push(format!("versions, configuration and log: {}", error.message)),
    }
    for (name, path) in LISTINGS {
        // What is over says more of how it came to this than what is raised by now.
        let query: &[(&str, &str)] = if name == "alarms.json" { &[("all", "true")] } else { &[] };
        let answer = context.client.get_with::<Value>(path, query).await;
        parts.add_answer(name, answer.map(|value| pretty(&value)));
    }
    let log = context.client.get_with::<Value>(&["log"], &[("limit", LOG_LINES)]).await;
    parts.add_answer("log.json", log.map(|value| pretty(&value)));
    parts.add_answer("rights.json", rights(context).await.map(|value| pretty(&value)));
    for (name, path) in [("metrics.txt", "/metrics"), ("health.json", "/healthz")] {
        parts.add_answer(name, context.client.page(path).await.map(String::into_bytes));
    }
}

/// What each peer may do.
async fn rights(context: &Context) -> Result<Vec<Value>, ErrorBody> {
    let mut all = Vec::new();
    for peer in context.client.get::<Vec<Peer>>(&["peers"]).await? {
        all.push(context.client.get(&["peers", &peer.name]).await?);
    }
    Ok(all)
}

/// Without a daemon: what lies in its directory.
fn look(data_dir: &Path, parts: &mut Parts) {
    let mut listing = String::new();
    match std::fs::read_dir(data_dir) {
        Ok(entries) => {
            for entry in entries.flatten() {
                let bytes = entry.metadata().map(|m| m.len()).unwrap_or(0);
                listing += &format!("{bytes:>12}  {}\n", entry.file_name().to_string_lossy());
            }
            parts.add("files.txt", listing.into_bytes());
        }
        Err(error) => parts.problems.push(format!("the files of {}: {error}", data_dir.display())),
    }
    for name in FILES {
        match read(&data_dir.join(name)) {
            Ok(content) if name == "farside.toml" => parts.add(name, withhold(&content)),
            Ok(content) => parts.add(name, content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => parts.problems.push(format!("{name}: {error}")),
        }
    }
    parts.problems.push(String::from(
        "log lines: they went where the stderr of farsided goes; under systemd, add the output of journalctl -u farsided",
    ));
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "{bytes} bytes are too many; send it separately if someone asks for it"
        )));
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

fn withhold(configuration: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(configuration);
    let show = |line: &str| {
        let lower = line.to_lowercase();
        if WITHHELD.iter().any(|word| lower.contains(word)) {
            String::from("# (a line is withheld)\n")
        } else {
            format!("{line}\n")
        }
    };
    text.lines().map(show).collect::<String>().into_bytes()
}

/// The machine, as far as it says so to everybody.
fn machine() -> Value {
    let line = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let field = |text: Option<String>, name: &str, separator: char| {
        let text = text?;
        let (_, value) =
            text.lines().filter_map(|line| line.split_once(separator)).find(|(key, _)| *key == name)?;
        Some(value.trim().trim_matches('"').to_owned())
    };
    json!({
        "kernel": line("/proc/sys/kernel/osrelease"),
        "system": field(line("/etc/os-release"), "PRETTY_NAME", '='),
        "architecture": std::env::consts::ARCH,
        "processors": std::thread::available_parallelism().map(usize::from).ok(),
        "memory": field(line("/proc/meminfo"), "MemTotal", ':'),
        "up_seconds": line("/proc/uptime").and_then(|text| text.split(' ').next().and_then(|s| s.parse::<f64>().ok())),
        "clock": Timestamp::now(),
    })
}

fn pretty(value: &impl serde::Serialize) -> Vec<u8> {
    // Only maps with keys that are no strings fail, and the API has none.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_with_a_secret_is_withheld() {
        let shown = withhold(b"name = \"north\"\n# Token of the old site: abc\nlog = \"info\"\n");
        assert_eq!(shown, b"name = \"north\"\n# (a line is withheld)\nlog = \"info\"\n");
    }

    #[test]
    fn a_bundle_is_private_whole_or_not_there() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b.tar.gz");
        let mut parts = Parts::default();
        parts.add("a.txt", b"hello".to_vec());
        parts.write(&path, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = parts.write(&path, Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        let mut entries = archive.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap(), Path::new("farside-support/a.txt"));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(entries.next().is_none());
    }
}
