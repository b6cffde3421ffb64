//! `farside host`.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use farside_api::{AddHost, AddedHost, ErrorBody, ErrorCode, Host, HostFiles, HostRights, HostStatus};
use reqwest::Method;
use serde::Serialize;

use super::context::Context;
use super::present;
use crate::arguments::host::Host as Verb;
use crate::arguments::names::VolumeName;
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, details, or_dash, table};
use crate::quantities::time;

/// Names that QEMU and libnbd look for in a directory.
const CA_CERTIFICATE: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    match verb {
        Verb::Add { name, directory, if_absent } => add(&context, name, directory, if_absent).await?,
        Verb::List => {
            let hosts: Vec<Host> = context.client.get(&["hosts"]).await?;
            context.show(&hosts, |hosts| listing(hosts));
        }
        Verb::Status { name } => {
            let host: HostStatus = context.client.get(&["hosts", &name]).await?;
            context.show(&host, status);
        }
        Verb::Remove { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &["hosts", &name],
                body: None::<&()>,
                impact: Impact::Service,
            };
            let removed =
                carry_out::<HostStatus>(&context.client, request, destructive, context.json).await?;
            if let Some(host) = removed {
                context.show(&host, |host| format!("host {} removed\n{}", host.host.name, notes(host)));
            }
        }
        Verb::Allow { name, volumes, read_only } => {
            rights(&context, &name, "allow", HostRights { volumes: names(&volumes), read_only }).await?;
        }
        Verb::Deny { name, volumes } => {
            rights(&context, &name, "deny", HostRights { volumes: names(&volumes), read_only: false })
                .await?;
        }
    }
    Ok(())
}

/// What `host add` shows: never the key.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    host: Host,
    /// Where its files are; null where certificates come from elsewhere.
    directory: Option<PathBuf>,
}

async fn add(
    context: &Context,
    name: String,
    directory: Option<PathBuf>,
    if_absent: bool,
) -> Result<(), ErrorBody> {
    if if_absent {
        let all: Vec<Host> = context.client.get(&["hosts"]).await?;
        if let Some(there) = all.into_iter().find(|host| host.name == name) {
            still_good(&there)?;
            // Its files were carried away since, as they should be: what lies here says nothing.
            present::show(context, Some(true), &there, &format!("host {name}"), |_| String::new());
            return Ok(());
        }
    }
    let directory = directory.unwrap_or_else(|| PathBuf::from(&name));
    // First: where nothing can be written, no host is made.
    let prepared = match Prepared::at(&directory) {
        Ok(prepared) => prepared,
        Err(error) => {
            // The files of a host that is there are in the way: that it is there is what matters.
            let all: Vec<Host> = context.client.get(&["hosts"]).await?;
            let is_there = all.iter().any(|host| host.name == name);
            return Err(if is_there { is_there_already(&name) } else { cannot_write(&directory, &error) });
        }
    };
    let added: AddedHost = context.client.post(&["hosts"], &AddHost { name }).await?;
    let written = match &added.files {
        Some(files) => prepared.fill(files).map(|()| Some(directory.clone())),
        None => Ok(None),
    };
    let directory = match written {
        Ok(written) => written,
        Err(error) => {
            // Without its key the host is of no use.
            let path = ["hosts", &added.host.name];
            let removed = context.client.request::<HostStatus>(Method::DELETE, &path, &[], None::<&()>).await;
            let after = match removed {
                Ok(_) => String::from("the host was not added"),
                Err(why) => format!("the host was added all the same ({}); remove it", why.message),
            };
            let failed = cannot_write(&directory, &error);
            return Err(ErrorBody { message: format!("{}; {after}", failed.message), ..failed });
        }
    };
    let shown = Shown { host: added.host, directory };
    present::show(context, if_absent.then_some(false), &shown, "", |shown| match &shown.directory {
        Some(directory) => format!(
            "host {} added; carry {CA_CERTIFICATE}, {CERTIFICATE} and {KEY} from {} to it, then delete them here.\nIt may open \
             nothing yet: farside host allow {} POOL/VOL\n",
            shown.host.name,
            directory.display(),
            shown.host.name
        ),
        None => format!(
            "host {} added: whoever has a certificate of your authority with this name\n",
            shown.host.name
        ),
    });
    Ok(())
}

fn is_there_already(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Exists, format!("host {name} exists already"))
        .hint("for a new certificate, remove it (farside host remove) and add it again")
}

/// One whose certificate has ended opens nothing, whatever it is called.
fn still_good(there: &Host) -> Result<(), ErrorBody> {
    let Some(ended) = there.expires_at.filter(|end| *end <= farside_api::Timestamp::now()) else {
        return Ok(());
    };
    let Host { name, .. } = there;
    let message = format!(
        "host {name} is there and differs: its certificate ended at {}. Nothing was changed",
        time(ended)
    );
    Err(ErrorBody::new(ErrorCode::Exists, message).hint(format!(
        "farside host remove {name}, then this again for a new one; farside host status {name} shows its rights, which go with it"
    )))
}

fn cannot_write(directory: &Path, error: &io::Error) -> ErrorBody {
    ErrorBody::new(ErrorCode::Failed, format!("cannot write to {}: {error}", directory.display()))
        .hint("name a new or empty directory with --directory")
}

/// A directory in which none of the files is there yet.
struct Prepared<'a> {
    directory: &'a Path,
    made: bool,
}

impl Prepared<'_> {
    fn at(directory: &Path) -> io::Result<Prepared<'_>> {
        let made = match DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => false,
            Err(error) => return Err(error),
        };
        let prepared = Prepared { directory, made };
        for name in [CA_CERTIFICATE, CERTIFICATE, KEY] {
            if directory.join(name).symlink_metadata().is_ok() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} is there already")));
            }
        }
        Ok(prepared)
    }

    fn fill(mut self, files: &HostFiles) -> io::Result<()> {
        for (name, text) in
            [(CA_CERTIFICATE, &files.ca_certificate), (CERTIFICATE, &files.certificate), (KEY, &files.key)]
        {
            let path = self.directory.join(name);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        self.made = false;
        Ok(())
    }
}

impl Drop for Prepared<'_> {
    /// What was made for nothing goes again, if nothing is in it.
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir(self.directory);
        }
    }
}

fn names(volumes: &[VolumeName]) -> Vec<String> {
    volumes.iter().map(ToString::to_string).collect()
}

async fn rights(context: &Context, host: &str, verb: &str, request: HostRights) -> Result<(), ErrorBody> {
    let host: HostStatus = context.client.post(&["hosts", host, verb], &request).await?;
    context.show(&host, |host| status(host) + &notes(host));
    Ok(())
}

fn notes(host: &HostStatus) -> String {
    host.notes.iter().map(|note| format!("\n{note}\n")).collect()
}

fn may_open(host: &Host) -> String {
    let right = |right: &farside_api::HostRight| match right.read_only {
        true => format!("{} (read-only)", right.volume),
        false => right.volume.clone(),
    };
    match &host.rights[..] {
        [] => String::from("-"),
        rights => rights.iter().map(right).collect::<Vec<_>>().join(", "),
    }
}

fn listing(hosts: &[Host]) -> String {
    let row = |host: &Host| {
        vec![host.name.clone(), host.connections.to_string(), or_dash(host.expires_at, time), may_open(host)]
    };
    let columns = [
        Column::Left("name"),
        Column::Right("connections"),
        Column::Left("expires"),
        Column::Left("may open"),
    ];
    table(&columns, hosts.iter().map(row).collect(), "no hosts")
}

fn status(status: &HostStatus) -> String {
    let HostStatus { host, opened, .. } = status;
    let export = |open: &farside_api::HostExport| match open.read_only {
        true => format!("{} (read-only)", open.export),
        false => open.export.clone(),
    };
    let opened = match &opened[..] {
        [] => String::from("-"),
        opened => opened.iter().map(export).collect::<Vec<_>>().join(", "),
    };
    details(&[
        ("name", host.name.clone()),
        ("certificate", or_dash(host.fingerprint.clone(), |fingerprint| format!("SHA-256 {fingerprint}"))),
        ("added", time(host.added_at)),
        ("expires", or_dash(host.expires_at, time)),
        ("may open", may_open(host)),
        ("connections", host.connections.to_string()),
        ("has open", opened),
    ])
}
