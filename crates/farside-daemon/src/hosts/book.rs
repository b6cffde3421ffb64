//! Who is known, what each may open, and what is open: see the guarantees of [`super`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_api::{self as api, ErrorBody, ErrorCode};
use farside_engine::VolumeName;
use farside_platform::{Clock, Timestamp};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::authority::{AUTHORITY_FILE, Authority, fingerprint_of};
use super::own::{self, OwnFiles};
use crate::convert;
use crate::exports::Exports;
use crate::failure::Failure;
use crate::state::{HostRightRow, NewHost, State, StateError};
use crate::volume_ids::{Called, VolumeIds};

/// Hosts of a site: each has places of its own in the NBD server.
const HOSTS_MAX: usize = 256;
/// Volumes that one host may open.
const RIGHTS_MAX: usize = 4096;
/// How long connections that were cut may take to be gone: their commands under way end first.
const CUT_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at.
const CUT_POLL: Duration = Duration::from_millis(10);

/// Whose certificates are believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// Those of the site's own authority, kept in this directory.
    Site { directory: PathBuf },
    /// Those of the administrator's.
    Own(OwnFiles),
}

/// The hosts.
pub(crate) struct Hosts {
    pub(super) trust: Trust,
    authority: Mutex<Option<Arc<Authority>>>,
    /// What this process has found that somebody should know.
    warning: Mutex<Option<String>>,
    table: Mutex<Table>,
    state: State,
    pub(super) exports: Arc<Exports>,
    clock: Arc<dyn Clock>,
    /// When the certificate ends that this server shows, where it is not the site's own.
    server_ends_at: Mutex<Option<Timestamp>>,
    /// One change at a time.
    turn: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts").field("trust", &self.trust).finish_non_exhaustive()
    }
}

/// One lock for all of it: see the module's guarantees.
#[derive(Default)]
struct Table {
    hosts: BTreeMap<i64, Host>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
}

struct Host {
    known: NewHost,
    rights: HashMap<Uuid, Right>,
}

struct Right {
    /// What the volume was called when the right was given.
    volume: String,
    read_only: bool,
}

struct Connection {
    host: i64,
    open: Option<Open>,
    cut: CancellationToken,
}

struct Open {
    export: String,
    volume: Uuid,
    read_only: bool,
}

/// A connection that was let in.
pub(super) struct Admission {
    pub(super) host: i64,
    pub(super) number: u64,
    /// What the host is called.
    pub(super) name: String,
    /// Cancelled when the connection must end.
    pub(super) cut: CancellationToken,
}

impl Table {
    fn named(&self, name: &str) -> Option<(i64, &Host)> {
        self.hosts.iter().find(|(_, host)| host.known.name == name).map(|(id, host)| (*id, host))
    }

    /// Cuts the connections that `ends` says; their numbers.
    fn cut(&mut self, ends: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let cut = self.connections.iter().filter(|(_, connection)| ends(connection));
        cut.map(|(number, connection)| {
            connection.cut.cancel();
            *number
        })
        .collect()
    }
}

impl Hosts {
    /// As the database has them.
    pub(crate) async fn load(
        trust: Trust,
        state: &State,
        exports: Arc<Exports>,
        clock: Arc<dyn Clock>,
    ) -> Result<Hosts, StateError> {
        let mut table = Table::default();
        for row in state.hosts().await? {
            table.hosts.insert(row.id, Host { known: row.host, rights: HashMap::new() });
        }
        for row in state.host_rights().await? {
            if let Some(host) = table.hosts.get_mut(&row.host) {
                let right = Right { volume: row.volume, read_only: row.read_only };
                host.rights.insert(row.volume_id, right);
            }
        }
        Ok(Hosts {
            trust,
            authority: Mutex::default(),
            warning: Mutex::default(),
            table: Mutex::new(table),
            state: state.clone(),
            exports,
            clock,
            server_ends_at: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// When the certificate ends that hosts are shown, if it came from files and hosts may come.
    pub(crate) fn server_ends_at(&self) -> Option<Timestamp> {
        *self.server_ends_at.lock()
    }

    pub(super) fn note_server_end(&self, at: Option<Timestamp>) {
        *self.server_ends_at.lock() = at;
    }

    /// What somebody should know of the certificates of hosts.
    pub(crate) fn warning(&self) -> Option<String> {
        self.warning.lock().clone()
    }

    /// The site's authority, made if there is none.
    pub(super) fn authority(&self) -> Result<Arc<Authority>, String> {
        let Trust::Site { directory } = &self.trust else {
            return Err(String::from(
                "certificates of hosts are not made here: farside.toml names others ([nbd] client_ca)",
            ));
        };
        let mut known = self.authority.lock();
        if let Some(authority) = &*known {
            return Ok(Arc::clone(authority));
        }
        // Of a site that was restored without it.
        let hosts = self.table.lock().hosts.len();
        let is_lost = hosts > 0 && !directory.join(AUTHORITY_FILE).exists();
        let authority = Arc::new(Authority::load_or_create(directory)?);
        if is_lost {
            let what = format!(
                "this site's authority for hosts ({AUTHORITY_FILE}) was not there and is made anew, though {hosts} {} a \
                 certificate of the old one: those are refused, and hosts of this site refuse to connect. Put the file back from a backup and \
                 restart farsided; or farside host remove and farside host add each, and carry the new certificates to them",
                if hosts == 1 { "host has" } else { "hosts have" }
            );
            tracing::error!("{what}");
            *self.warning.lock() = Some(what);
        }
        *known = Some(Arc::clone(&authority));
        Ok(authority)
    }

    /// Adds a host. With the site's authority it gets a key and a certificate, which are nowhere kept.
    pub(crate) async fn add(self: &Arc<Hosts>, name: &str) -> Result<api::AddedHost, ErrorBody> {
        let refused = |message: String| ErrorBody::new(ErrorCode::Refused, message);
        if !farside_engine::is_label(name) {
            let message = format!("{name:?} cannot be a host's name; use A-Z a-z 0-9 . _ + -");
            return Err(ErrorBody::new(ErrorCode::WrongUsage, message));
        }
        let _turn = self.turn.lock().await;
        {
            let table = self.table.lock();
            if table.named(name).is_some() {
                return Err(ErrorBody::new(ErrorCode::Exists, format!("host {name} exists already"))
                    .hint("for a new certificate, remove it (farside host remove) and add it again"));
            }
            if table.hosts.len() >= HOSTS_MAX {
                return Err(refused(format!("there are {HOSTS_MAX} hosts, the most")));
            }
        }
        let now = self.clock.now();
        let issued = match &self.trust {
            Trust::Own(_) => None,
            Trust::Site { .. } => {
                let authority = self.authority().map_err(|error| ErrorBody::new(ErrorCode::Failed, error))?;
                Some(authority.issue(name, now).map_err(|error| ErrorBody::new(ErrorCode::Failed, error))?)
            }
        };
        let known = NewHost {
            name: name.to_owned(),
            fingerprint: issued.as_ref().map(|issued| issued.fingerprint),
            added_at: now,
            expires_at: issued.as_ref().map(|issued| issued.expires_at),
        };
        let id = self.state.add_host(&known).await.map_err(Failure::into_error_body)?;
        self.table.lock().hosts.insert(id, Host { known, rights: HashMap::new() });
        tracing::info!(host = name, "host added");
        let files = issued.map(|issued| api::HostFiles {
            ca_certificate: issued.authority,
            certificate: issued.certificate,
            key: issued.key.to_string(),
        });
        Ok(api::AddedHost { host: self.document(name)?.host, files })
    }

    /// Removes a host, or nothing: it is refused from now on, and its connections are cut.
    pub(crate) async fn remove(&self, name: &str) -> Result<(api::HostStatus, Vec<String>), ErrorBody> {
        let _turn = self.turn.lock().await;
        let document = self.document(name)?;
        // In memory first: from here on nothing more is opened. What it has open goes once it is sure that it stays so.
        let taken = {
            let mut table = self.table.lock();
            let id = table.named(name).map(|(id, _)| id);
            id.and_then(|id| table.hosts.remove_entry(&id))
        };
        let Some((id, host)) = taken else { return Err(does_not_exist(name)) };
        if let Err(error) = self.state.remove_host(id).await {
            self.table.lock().hosts.insert(id, host);
            return Err(unwritten(error, &format!("host {name} is still known")));
        }
        let cut = self.table.lock().cut(|connection| connection.host == id);
        let connections = cut.len();
        let notes = self.wait_until_gone(cut).await;
        tracing::warn!(
            host = name,
            connections,
            "host removed; its certificate is worth nothing from now on"
        );
        Ok((document, notes))
    }

    /// Lets a host open volumes. A right that is there is replaced.
    pub(crate) async fn allow(
        &self,
        name: &str,
        volumes: &[VolumeName],
        read_only: bool,
    ) -> Result<Vec<String>, ErrorBody> {
        let _turn = self.turn.lock().await;
        let host = self.table.lock().named(name).map(|(id, _)| id).ok_or_else(|| does_not_exist(name))?;
        let mut rows = Vec::with_capacity(volumes.len());
        for volume in volumes {
            let pool = self.exports.pools().get(&volume.pool)?;
            let volume_id = pool.volume_id(&volume.volume).ok_or_else(|| {
                ErrorBody::new(ErrorCode::NotFound, format!("volume {volume} does not exist"))
                    .hint("a right belongs to a volume, so the volume comes first: farside volume create")
            })?;
            rows.push(HostRightRow { host, volume_id, volume: volume.to_string(), read_only });
        }
        let has = {
            let table = self.table.lock();
            let rights = table.hosts.get(&host).map(|host| host.rights.keys().copied());
            rights
                .into_iter()
                .flatten()
                .chain(rows.iter().map(|row| row.volume_id))
                .collect::<HashSet<_>>()
                .len()
        };
        if has > RIGHTS_MAX {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("a host may open {RIGHTS_MAX} volumes at most"),
            ));
        }
        self.state.allow_host(&rows).await.map_err(Failure::into_error_body)?;
        let cut = {
            let mut table = self.table.lock();
            if let Some(host) = table.hosts.get_mut(&host) {
                for row in &rows {
                    host.rights.insert(row.volume_id, Right { volume: row.volume.clone(), read_only });
                }
            }
            table.cut(|connection| {
                let writes =
                    |open: &Open| !open.read_only && rows.iter().any(|row| row.volume_id == open.volume);
                read_only && connection.host == host && connection.open.as_ref().is_some_and(writes)
            })
        };
        tracing::info!(host = name, ?volumes, read_only, "host may open volumes");
        Ok(self.wait_until_gone(cut).await)
    }

    /// Takes rights away, all or none, and cuts what the host has open of these volumes.
    pub(crate) async fn deny(&self, name: &str, volumes: &[VolumeName]) -> Result<Vec<String>, ErrorBody> {
        let _turn = self.turn.lock().await;
        let called: Vec<Called> = volumes.iter().map(|volume| self.exports.pools().called(volume)).collect();
        // In memory first, as with a host that is removed.
        let (host, denied) = {
            let mut table = self.table.lock();
            let (host, known) = table.named(name).ok_or_else(|| does_not_exist(name))?;
            let is_denied = |id: &Uuid, right: &Right| {
                volumes.iter().zip(&called).any(|(volume, called)| match called {
                    Called::Volume(now) => now == id,
                    // It is not there, or its pool is not open: what it was called counts.
                    Called::Nothing | Called::Unknown => volume.to_string() == right.volume,
                })
            };
            let denied: Vec<Uuid> =
                known.rights.iter().filter(|(id, right)| is_denied(id, right)).map(|(id, _)| *id).collect();
            let rights = table.hosts.get_mut(&host).map(|known| &mut known.rights);
            let denied: Vec<(Uuid, Right)> = rights.map_or_else(Vec::new, |rights| {
                denied.iter().filter_map(|id| rights.remove_entry(id)).collect()
            });
            (host, denied)
        };
        let ids: Vec<Uuid> = denied.iter().map(|(id, _)| *id).collect();
        if let Err(error) = self.state.deny_host(Some(host), &ids).await {
            if let Some(known) = self.table.lock().hosts.get_mut(&host) {
                known.rights.extend(denied);
            }
            return Err(unwritten(error, &format!("host {name} keeps these rights")));
        }
        let cut = {
            let opened = |open: &Open| ids.contains(&open.volume);
            self.table.lock().cut(|c| c.host == host && c.open.as_ref().is_some_and(opened))
        };
        tracing::info!(host = name, ?volumes, connections = cut.len(), "host may not open volumes any more");
        Ok(self.wait_until_gone(cut).await)
    }

    /// Ends the rights on volumes that are no more.
    pub(crate) async fn end_with(&self, volumes: &[Uuid]) -> Result<(), StateError> {
        let _turn = self.turn.lock().await;
        for host in self.table.lock().hosts.values_mut() {
            host.rights.retain(|id, _| !volumes.contains(id));
        }
        self.state.deny_host(None, volumes).await
    }

    /// What is to be told if connections that were cut are not gone in time.
    async fn wait_until_gone(&self, cut: Vec<u64>) -> Vec<String> {
        let until = Instant::now() + CUT_WITHIN;
        loop {
            let left = {
                let table = self.table.lock();
                cut.iter().filter(|number| table.connections.contains_key(number)).count()
            };
            match left {
                0 => return Vec::new(),
                _ if Instant::now() < until => tokio::time::sleep(CUT_POLL).await,
                _ => {
                    return vec![format!(
                        "{left} connections are cut and not gone yet: commands that were under way are still being carried \
                         out. Nothing more is read from them"
                    )];
                }
            }
        }
    }

    /// Whose certificate this is.
    fn owner(&self, table: &Table, certificate: &CertificateDer<'_>) -> Option<i64> {
        let fingerprint = fingerprint_of(certificate);
        let by_fingerprint = table.hosts.iter().find(|(_, host)| host.known.fingerprint == Some(fingerprint));
        match (by_fingerprint, &self.trust) {
            (Some((id, _)), _) => Some(*id),
            (None, Trust::Site { .. }) => None,
            (None, Trust::Own(_)) => {
                let (id, host) = table.named(&own::name_in(certificate)?)?;
                host.known.fingerprint.is_none().then_some(id)
            }
        }
    }

    pub(super) fn knows(&self, certificate: &CertificateDer<'_>) -> bool {
        self.owner(&self.table.lock(), certificate).is_some()
    }

    /// Notes a connection of the host with this certificate.
    pub(super) fn admit(&self, certificate: &CertificateDer<'_>) -> Result<Admission, String> {
        let mut table = self.table.lock();
        let Some(host) = self.owner(&table, certificate) else {
            return Err(String::from("its certificate is none of a host that is known now"));
        };
        let (number, cut) = (table.next, CancellationToken::new());
        table.next += 1;
        table.connections.insert(number, Connection { host, open: None, cut: cut.clone() });
        let name = table.hosts[&host].known.name.clone();
        Ok(Admission { host, number, name, cut })
    }

    /// Forgets a connection: it has ended.
    pub(super) fn left(&self, number: u64) {
        self.table.lock().connections.remove(&number);
    }

    /// The host's right on a volume, if it has one: whether it may only read.
    pub(super) fn right(&self, host: i64, volume: Uuid) -> Option<bool> {
        Some(self.table.lock().hosts.get(&host)?.rights.get(&volume)?.read_only)
    }

    /// Notes what a connection has opened, if it still may.
    pub(super) fn note_open(
        &self,
        host: i64,
        number: u64,
        export: &str,
        volume: Uuid,
        read_only: bool,
    ) -> bool {
        let mut table = self.table.lock();
        let right = table.hosts.get(&host).and_then(|host| host.rights.get(&volume));
        let may = right.is_some_and(|right| read_only || !right.read_only);
        if may && let Some(found) = table.connections.get_mut(&number) {
            found.open = Some(Open { export: export.to_owned(), volume, read_only });
        }
        may
    }

    /// Who may open a volume, by name.
    pub(crate) fn on_volume(&self, volume: Uuid) -> Vec<api::VolumeHost> {
        let table = self.table.lock();
        let have = table.hosts.values().filter_map(|host| {
            let right = host.rights.get(&volume)?;
            Some(api::VolumeHost { host: host.known.name.clone(), read_only: right.read_only })
        });
        let mut have: Vec<_> = have.collect();
        have.sort_by(|a, b| a.host.cmp(&b.host));
        have
    }

    /// All of them, by name.
    pub(crate) fn list(&self) -> Vec<api::Host> {
        let names = self.volume_names();
        let table = self.table.lock();
        let mut all: Vec<_> = table.hosts.keys().map(|id| status(&table, *id, &names).host).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// One of them.
    pub(crate) fn document(&self, name: &str) -> Result<api::HostStatus, ErrorBody> {
        let names = self.volume_names();
        let table = self.table.lock();
        let (id, _) = table.named(name).ok_or_else(|| does_not_exist(name))?;
        Ok(status(&table, id, &names))
    }

    /// What volumes are called now.
    fn volume_names(&self) -> HashMap<Uuid, String> {
        let of_pool = |(pool, opened): (String, Arc<farside_store::Pool>)| {
            opened.volumes().into_iter().map(move |volume| (volume.uuid, format!("{pool}/{}", volume.name)))
        };
        self.exports.pools().open_pools().into_iter().flat_map(of_pool).collect()
    }
}

/// An export that is open, as its volume is called now.
fn called_now(open: &Open, names: &HashMap<Uuid, String>) -> String {
    match (names.get(&open.volume), open.export.split_once('@')) {
        (Some(name), Some((_, snapshot))) => format!("{name}@{snapshot}"),
        (Some(name), None) => name.clone(),
        (None, _) => open.export.clone(),
    }
}

fn status(table: &Table, id: i64, names: &HashMap<Uuid, String>) -> api::HostStatus {
    let host = &table.hosts[&id];
    let here = table.connections.values().filter(|connection| connection.host == id);
    let mut opened: Vec<_> = here
        .clone()
        .filter_map(|connection| connection.open.as_ref())
        .map(|open| api::HostExport { export: called_now(open, names), read_only: open.read_only })
        .collect();
    opened.sort_by(|a, b| a.export.cmp(&b.export));
    let rights = host.rights.iter().map(|(id, right)| api::HostRight {
        volume: names.get(id).cloned().unwrap_or_else(|| right.volume.clone()),
        read_only: right.read_only,
    });
    let mut rights: Vec<_> = rights.collect();
    rights.sort_by(|a, b| a.volume.cmp(&b.volume));
    api::HostStatus {
        host: api::Host {
            name: host.known.name.clone(),
            fingerprint: host.known.fingerprint.map(|bytes| hexadecimal(&bytes)),
            added_at: convert::time(host.known.added_at),
            expires_at: host.known.expires_at.map(convert::time),
            connections: here.count() as u64,
            rights,
        },
        opened,
        notes: Vec::new(),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What could not be written down, and what that leaves.
fn unwritten(error: StateError, stays: &str) -> ErrorBody {
    let ErrorBody { code, message, .. } = error.into_error_body();
    ErrorBody::new(code, format!("{message}; nothing has changed: {stays}, now and after a restart"))
        .hint("is the disk of the data directory full or read-only? once it has room, ask again; the daemon's log says more")
}

fn does_not_exist(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("host {name} does not exist"))
        .hint("farside host list shows who is known")
}
