//! `farside site`.

use std::path::Path;
use std::time::{Duration, Instant};

use farside_api::{
    AccessRole, DaemonInvited, DaemonState, DaemonStatus, ErrorBody, ErrorCode, HeldBack, InviteDaemon,
    JoinSite, MoveState, MovedTable, OpenInvitation, SetSite, SiteJoined, SiteSeen, SiteStatus, StateMoved,
    Throttle,
};
use reqwest::Method;

use super::codes;
use super::context::Context;
use crate::arguments::site::Site as Verb;
use crate::output::{Column, details, or_dash, table};
use crate::quantities::{bits_a_second, bytes_a_second, duration, size, time};

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    let site: SiteStatus = match verb {
        Verb::List => {
            let sites: Vec<SiteSeen> = context.client.get(&["sites"]).await?;
            context.show(&sites, |sites| listing(sites));
            return Ok(());
        }
        Verb::Status => match context.client.get(&["site", "status"]).await {
            Ok(site) => site,
            // Nobody leads: the daemons are shown all the same. A script gets one document: why.
            Err(error) if error.code == ErrorCode::DaemonUnreachable && !context.json => {
                if let Ok(all) = context.client.get::<Vec<DaemonStatus>>(&["site", "daemons"]).await {
                    context.show(&all, |all| daemons(all));
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        },
        Verb::Invite { list: true, .. } => {
            let open: Vec<OpenInvitation> = context.client.get(&["site", "invitations"]).await?;
            context.show(&open, |open| codes::open(open));
            return Ok(());
        }
        Verb::Invite { cancel: Some(id), .. } => {
            let path = ["site", "invitations", id.as_str()];
            let over: OpenInvitation =
                context.client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context.show(&over, |over| format!("invitation {} is taken back; nobody can use it\n", over.id));
            return Ok(());
        }
        Verb::Invite { valid, .. } => {
            let request = InviteDaemon { ttl_seconds: Some(valid.as_secs()) };
            let invited: DaemonInvited = context.client.post(&["site", "invitations"], &request).await?;
            context.show(&invited, |invited| {
                format!(
                    "{}\nvalid {}, once: whoever has it and the database has the key of this site. To take it back: farside site invite \
                     --cancel {}\nnext, at the new daemon: farside site join {}\n",
                    invited.code,
                    duration(invited.ttl_seconds as f64),
                    invited.id,
                    invited.database
                )
            });
            return Ok(());
        }
        Verb::Join { database, database_password_file, code_file } => {
            check_without_password(&database)?;
            let password = database_password_file.as_deref().map(password_of).transpose()?;
            let code = codes::code(code_file.as_deref())?;
            let joined: SiteJoined =
                context.client.post(&["site", "join"], &JoinSite { database, password, code }).await?;
            context.show(&joined, |joined| {
                format!(
                    "this daemon is {} of the site {} from its next start on\nnext: set database = \"{}\" in farside.toml (and \
                     database_password_file, if it needs one), and restart farsided\n",
                    joined.daemon, joined.site_id, joined.database
                )
            });
            return Ok(());
        }
        Verb::Drain { node } => return drain(&context, &node).await,
        Verb::Undrain { node } => {
            return change(&context, Method::POST, &["site", "daemons", &node, "undrain"]).await;
        }
        Verb::Remove { node } => return change(&context, Method::DELETE, &["site", "daemons", &node]).await,
        Verb::Set { throttle_in, throttle_out, transfer_size, host_precedence } => {
            let request = SetSite { throttle_in, throttle_out, transfer_size, host_precedence };
            let site: SiteStatus = context.client.post(&["site", "set"], &request).await?;
            context.show(&site, |site| changed(site, &request));
            return Ok(());
        }
        Verb::MoveState { to, database_password_file } => {
            check_without_password(&to)?;
            let password = database_password_file.as_deref().map(password_of).transpose()?;
            let moved: StateMoved =
                context.client.post(&["site", "move-state"], &MoveState { to, password }).await?;
            context.show(&moved, moved_state);
            return Ok(());
        }
    };
    context.show(&site, |site| {
        let mut page = details(&[
            ("name", site.name.clone()),
            ("health", if site.reasons.is_empty() { "ok".into() } else { site.reasons.join("; ") }),
            ("warnings", if site.warnings.is_empty() { "none".into() } else { site.warnings.join("; ") }),
            ("throttle in", throttle(&site.throttle_in)),
            ("throttle out", throttle(&site.throttle_out)),
            ("transfer size", site.transfer_size.to_string()),
            (
                "transfers",
                format!("{} under way, {} waiting", site.transfers_under_way, site.transfers_waiting),
            ),
            ("hosts before transfers", precedence(site)),
            ("sent", size(site.sent_bytes)),
            ("received", size(site.received_bytes)),
        ]);
        if !site.daemons.is_empty() {
            page = page + "\n" + &daemons(&site.daemons);
        }
        page
    });
    Ok(())
}

/// How long another daemon may take to lead.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);
/// How often it is asked whether it does.
const ASKED_EVERY: Duration = Duration::from_millis(300);

/// Has a daemon hand its work over, and waits until another one leads.
async fn drain(context: &Context, node: &str) -> Result<(), ErrorBody> {
    let _: Vec<DaemonStatus> =
        context.client.request(Method::POST, &["site", "daemons", node, "drain"], &[], None::<&()>).await?;
    let until = Instant::now() + FOLLOWED_WITHIN;
    loop {
        // While nobody leads there may be no answer.
        let all = context.client.get::<Vec<DaemonStatus>>(&["site", "daemons"]).await;
        if let Ok(all) = all
            && all.iter().any(|daemon| daemon.leads && daemon.name != node)
        {
            context.show(&all, |all| daemons(all));
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(ErrorBody::new(
                ErrorCode::Failed,
                format!(
                    "{node} is being drained, and no other daemon leads after {} s",
                    FOLLOWED_WITHIN.as_secs()
                ),
            )
            .hint(format!("farside site status shows them; farside site undrain {node} takes it back")));
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

/// Changes the list of daemons, and shows it.
async fn change(context: &Context, method: Method, path: &[&str]) -> Result<(), ErrorBody> {
    let all: Vec<DaemonStatus> = context.client.request(method, path, &[], None::<&()>).await?;
    context.show(&all, |all| daemons(all));
    Ok(())
}

fn daemons(all: &[DaemonStatus]) -> String {
    let row = |daemon: &DaemonStatus| {
        let work = if daemon.leads { "leads" } else { "stands by" };
        vec![
            daemon.name.clone(),
            daemon.state.name().to_owned(),
            if daemon.state == DaemonState::Gone { "-".to_owned() } else { work.to_owned() },
            daemon.mirrors.to_string(),
            daemon.transfers.to_string(),
            or_dash(daemon.address.clone(), |address| address),
            or_dash(daemon.last_seen_at, time),
            daemon.version.clone(),
        ]
    };
    let columns = [
        Column::Left("daemon"),
        Column::Left("state"),
        Column::Left("work"),
        Column::Right("mirrors"),
        Column::Right("transfers"),
        Column::Left("API"),
        Column::Left("seen"),
        Column::Left("version"),
    ];
    table(&columns, all.iter().map(row).collect(), "no daemons")
}

/// Before it is sent: a daemon's answer may be seen by others.
fn check_without_password(address: &str) -> Result<(), ErrorBody> {
    match address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')) {
        Some((user, _)) if user.contains(':') => Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            "the address of a database holds no password, since others would see it",
        )
        .hint("put it into a file, and name that with --database-password-file")),
        _ => Ok(()),
    }
}

/// The first line of a file.
fn password_of(path: &Path) -> Result<String, ErrorBody> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("cannot read {}: {error}", path.display()))
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{} holds no password: its first line is empty", path.display()),
        )),
    }
}

fn moved_state(moved: &StateMoved) -> String {
    // They are in no table of a file, and go along all the same.
    let (accounts, tables): (Vec<_>, Vec<_>) =
        moved.tables.iter().partition(|table| table.name == "accounts");
    let sum = |tables: &[&MovedTable]| -> i64 { tables.iter().map(|table| table.rows).sum() };
    let (rows, accounts) = (sum(&tables), sum(&accounts));
    format!(
        "the state is in {0} now: {rows} rows of {1} tables, and {accounts} accounts\n\
         next: set database = \"{0}\" in farside.toml (and database_password_file, if it needs one), and restart farsided. Until \
         then it refuses what it would have to keep\n",
        moved.to,
        tables.len()
    )
}

/// What `site set` has changed, as it holds now.
fn changed(site: &SiteStatus, request: &SetSite) -> String {
    let said = [
        request.throttle_in.as_ref().map(|_| format!("throttle in {}", throttle(&site.throttle_in))),
        request.throttle_out.as_ref().map(|_| format!("throttle out {}", throttle(&site.throttle_out))),
        request.transfer_size.as_ref().map(|_| format!("transfer size {}", site.transfer_size)),
        request.host_precedence.as_ref().map(|_| format!("hosts before transfers: {}", site.host_precedence)),
    ];
    said.into_iter().flatten().map(|line| line + "\n").collect()
}

fn listing(sites: &[SiteSeen]) -> String {
    let row = |site: &SiteSeen| {
        let health = |status: &SiteStatus| match (status.reasons.len(), status.warnings.len()) {
            (0, 0) => String::from("ok"),
            (0, 1) => String::from("1 warning"),
            (0, warnings) => format!("{warnings} warnings"),
            _ => String::from("ill"),
        };
        vec![
            site.name.clone(),
            site.state.name().to_owned(),
            or_dash(site.status.as_ref(), health),
            or_dash(site.version.clone(), |version| version),
            or_dash(site.role, |role| AccessRole::name(role).to_owned()),
            or_dash(site.seen_at, time),
            or_dash(site.why.clone(), |why| why),
        ]
    };
    let columns = [
        Column::Left("site"),
        Column::Left("state"),
        Column::Left("health"),
        Column::Left("version"),
        Column::Left("you may"),
        Column::Left("seen"),
        Column::Left("why"),
    ];
    table(&columns, sites.iter().map(row).collect(), "no sites")
}

fn precedence(site: &SiteStatus) -> String {
    match &site.held_back {
        None => site.host_precedence.clone(),
        Some(HeldBack { share_percent, without_microseconds: without, with_microseconds: with }) => format!(
            "{} (transfers have {share_percent} % of a processor: hosts wait {with} µs with them, {without} µs without)",
            site.host_precedence
        ),
    }
}

/// A limit for people: as it is set and, where that depends on the time, as it holds now.
pub(super) fn throttle(throttle: &Throttle) -> String {
    if throttle.rules.contains('=') { throttle_now(throttle) } else { throttle.rules.clone() }
}

/// The same with what holds now in any case.
pub(super) fn throttle_now(throttle: &Throttle) -> String {
    // In the unit in which the limit was written. Beyond 2^53 a rate is no limit.
    let in_bits = throttle.rules.contains("bit/s");
    let of = |now: u64| if in_bits { bits_a_second(now as f64) } else { bytes_a_second(now as f64) };
    let now = throttle.bytes_per_second.map_or_else(|| String::from("unlimited"), of);
    format!("{} (now {now})", throttle.rules)
}
