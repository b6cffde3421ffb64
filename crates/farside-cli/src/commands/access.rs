//! `farside token`, `farside account`, `farside delayed`, `farside audit`.

use std::io::{IsTerminal, Read};
use std::path::Path;

use farside_api::{
    Account, AuditEntry, AuditPage, CreateAccount, CreateToken, CreatedToken, Delayed, ErrorBody, ErrorCode,
    SetAccount, Timestamp, Token,
};
use reqwest::Method;

use super::context::Context;
use super::present;
use crate::arguments::access::{Account as AccountVerb, Audit, Delayed as DelayedVerb, Token as TokenVerb};
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::output::{Column, or_dash, table};
use crate::quantities::{duration, time};

/// A password has at most 256 characters; what is longer is another file.
const PASSWORD_BYTES_MAX: u64 = 2048;
/// Entries that are shown if nobody says how many.
const NEWEST: u32 = 100;
/// Entries of one page of the audit log.
const PAGE: u32 = 1000;

pub(super) async fn token(context: Context, verb: TokenVerb) -> Result<(), ErrorBody> {
    match verb {
        TokenVerb::Create { name, role, valid, if_absent } => {
            let valid_seconds = valid.map(|valid| valid.as_secs_f64());
            let request = CreateToken { name, role: role.into(), valid_seconds };
            let all: Vec<Token> = if if_absent { context.client.get(&["tokens"]).await? } else { Vec::new() };
            if let Some(there) = all.into_iter().find(|token| token.name == request.name) {
                is_as_asked(&there, &request)?;
                if context.json {
                    present::show(&context, Some(true), &there, "", |_| String::new());
                } else {
                    // Not to stdout: what goes into a file from there is a token.
                    let until = time(there.expires_at);
                    eprintln!(
                        "token {} ({}) is there, as asked for, and good until {until}; it was shown when it was made, and is not again",
                        there.name,
                        there.role.name()
                    );
                }
                return Ok(());
            }
            let made: CreatedToken = context.client.post(&["tokens"], &request).await?;
            // The token alone goes to stdout, so that it can go into a file from there.
            present::show(&context, if_absent.then_some(false), &made, "", |made| {
                format!("{}\n", made.secret)
            });
            if !context.json {
                let Token { name, role, expires_at, .. } = &made.token;
                eprintln!(
                    "token {name} ({}) is good until {}. It is shown this once: keep it in a file with mode 600",
                    role.name(),
                    time(*expires_at)
                );
            }
        }
        TokenVerb::List => {
            let tokens: Vec<Token> = context.client.get(&["tokens"]).await?;
            context.show(&tokens, |tokens| token_listing(tokens));
        }
        TokenVerb::Revoke { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &["tokens", &name],
                body: None::<&()>,
                impact: Impact::Service,
            };
            let revoked = carry_out::<Token>(&context.client, request, destructive, context.json).await?;
            if let Some(token) = revoked {
                context.show(&token, |token| format!("token {} is revoked\n", token.name));
            }
        }
    }
    Ok(())
}

/// Whether a token that is there is what was asked for. What was not asked for is not compared.
fn is_as_asked(there: &Token, wanted: &CreateToken) -> Result<(), ErrorBody> {
    let mut differences = Vec::new();
    if there.expired {
        differences.push(format!("it ended at {}", time(there.expires_at)));
    }
    if there.role != wanted.role {
        differences.push(format!("its role is {}, and not {}", there.role.name(), wanted.role.name()));
    }
    let lasts = (there.expires_at - there.created_at).total(jiff::Unit::Second).unwrap_or_default();
    // Moments are kept in whole seconds.
    if let Some(valid) = wanted.valid_seconds.filter(|valid| (lasts - valid).abs() > 2.0) {
        differences.push(format!("it was made for {}, and not for {}", duration(lasts), duration(valid)));
    }
    if differences.is_empty() {
        return Ok(());
    }
    let name = &there.name;
    let message =
        format!("token {name} is there and differs: {}. Nothing was changed", differences.join("; "));
    let hint = format!("farside token revoke {name}, then this again; or choose another name");
    Err(ErrorBody::new(ErrorCode::Exists, message).hint(hint))
}

fn token_listing(tokens: &[Token]) -> String {
    let row = |token: &Token| {
        vec![
            token.name.clone(),
            token.role.name().to_owned(),
            if token.expired { String::from("expired") } else { time(token.expires_at) },
            or_dash(token.last_used_at, time),
            time(token.created_at),
            token.created_by.clone(),
        ]
    };
    let columns = [
        Column::Left("name"),
        Column::Left("role"),
        Column::Left("good until"),
        Column::Left("last used"),
        Column::Left("made"),
        Column::Left("by"),
    ];
    table(&columns, tokens.iter().map(row).collect(), "no tokens")
}

pub(super) async fn account(context: Context, verb: AccountVerb) -> Result<(), ErrorBody> {
    match verb {
        AccountVerb::Create { name, role, password_file } => {
            let password = password(&name, password_file.as_deref())?;
            let request = CreateAccount { name, role: role.into(), password };
            let made: Account = context.client.post(&["accounts"], &request).await?;
            context.show(&made, |made| format!("account {} ({}) is made\n", made.name, made.role.name()));
        }
        AccountVerb::List => {
            let accounts: Vec<Account> = context.client.get(&["accounts"]).await?;
            context.show(&accounts, |accounts| account_listing(accounts));
        }
        AccountVerb::Set { name, change } => {
            let password = match (change.password, &change.password_file) {
                (false, None) => None,
                (_, file) => Some(password(&name, file.as_deref())?),
            };
            let request = SetAccount { role: change.role.map(Into::into), password };
            let set: Account = context.client.post(&["accounts", &name, "set"], &request).await?;
            context.show(&set, |set| format!("account {} ({}) is changed\n", set.name, set.role.name()));
        }
        AccountVerb::Remove { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &["accounts", &name],
                body: None::<&()>,
                impact: Impact::Service,
            };
            let removed = carry_out::<Account>(&context.client, request, destructive, context.json).await?;
            if let Some(account) = removed {
                context.show(&account, |account| format!("account {} is removed\n", account.name));
            }
        }
    }
    Ok(())
}

fn account_listing(accounts: &[Account]) -> String {
    let row = |account: &Account| {
        vec![
            account.name.clone(),
            account.role.name().to_owned(),
            account.sessions.to_string(),
            time(account.created_at),
            account.created_by.clone(),
        ]
    };
    let columns = [
        Column::Left("name"),
        Column::Left("role"),
        Column::Right("logged in"),
        Column::Left("made"),
        Column::Left("by"),
    ];
    table(&columns, accounts.iter().map(row).collect(), "no accounts")
}

/// A new password: from a file, a prompt (twice, and not shown), or stdin. Never from the arguments.
fn password(name: &str, file: Option<&Path>) -> Result<String, ErrorBody> {
    let origin = file.map_or_else(|| String::from("stdin"), |path| path.display().to_string());
    let failed = |error: std::io::Error| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("cannot read the password from {origin}: {error}"))
    };
    let first_line = |text: String| text.lines().next().unwrap_or_default().to_owned();
    let mut text = String::new();
    match file {
        Some(path) => {
            let file = std::fs::File::open(path).map_err(failed)?;
            file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
            Ok(first_line(text))
        }
        None if std::io::stdin().is_terminal() => {
            let typed = asked(&format!("password of {name}: ")).map_err(failed)?;
            if typed == asked("the same again: ").map_err(failed)? {
                return Ok(typed);
            }
            Err(ErrorBody::new(ErrorCode::WrongUsage, "these are two passwords; nothing was changed"))
        }
        None => {
            std::io::stdin().take(PASSWORD_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
            Ok(first_line(text))
        }
    }
}

/// A line from the terminal that is not shown.
fn asked(question: &str) -> std::io::Result<String> {
    let terminal = console::Term::stderr();
    terminal.write_str(question)?;
    terminal.read_secure_line()
}

pub(super) async fn delayed(context: Context, verb: DelayedVerb) -> Result<(), ErrorBody> {
    match verb {
        DelayedVerb::List => {
            let waiting: Vec<Delayed> = context.client.get(&["delayed"]).await?;
            context.show(&waiting, |waiting| delayed_listing(waiting));
        }
        DelayedVerb::Stop { id } => {
            let path = ["delayed", &id.to_string()];
            let stopped: Delayed = context.client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context.show(&stopped, |one| {
                format!("stopped: {} {} of {}; nothing of it has been done\n", one.method, one.path, one.who)
            });
        }
    }
    Ok(())
}

fn delayed_listing(waiting: &[Delayed]) -> String {
    let row = |one: &Delayed| {
        vec![
            time(one.runs_at),
            one.thing.clone(),
            format!("{} {}", one.method, one.path),
            one.who.clone(),
            one.from.clone(),
            one.id.to_string(),
        ]
    };
    let columns = [
        Column::Left("runs at"),
        Column::Left("about"),
        Column::Left("what"),
        Column::Left("who"),
        Column::Left("from"),
        Column::Left("id"),
    ];
    table(&columns, waiting.iter().map(row).collect(), "nothing waits")
}

pub(super) async fn audit(context: Context, wanted: Audit) -> Result<(), ErrorBody> {
    let since = wanted
        .last
        .map(|last| Timestamp::now().checked_sub(last).unwrap_or(Timestamp::UNIX_EPOCH).to_string());
    let most = wanted.limit.unwrap_or(if wanted.last.is_some() { u32::MAX } else { NEWEST });
    let mut entries: Vec<AuditEntry> = Vec::new();
    let mut before: Option<String> = None;
    loop {
        let left = most - u32::try_from(entries.len()).unwrap_or(most);
        let limit = left.min(PAGE).to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(wanted.who.as_deref().map(|who| ("who", who)));
        query.extend(since.as_deref().map(|since| ("since", since)));
        query.extend(before.as_deref().map(|before| ("before", before)));
        let page: AuditPage = context.client.get_with(&["audit"], &query).await?;
        entries.extend(page.entries);
        before = page.next.map(|next| next.to_string());
        if before.is_none() || entries.len() >= most as usize {
            break;
        }
    }
    // Whoever copies the log elsewhere must not believe that this is all of it.
    if before.is_some() && wanted.limit.is_none() {
        eprintln!(
            "farside: the newest {most} entries; there are more: --limit NUMBER, or --last 24h for all of a time"
        );
    }
    context.show(&entries, |entries| audit_listing(entries));
    Ok(())
}

fn audit_listing(entries: &[AuditEntry]) -> String {
    let row = |entry: &AuditEntry| {
        let outcome = match (&entry.outcome, &entry.message) {
            (None, _) => String::from("not over, or the daemon ended"),
            (Some(outcome), None) => outcome.clone(),
            (Some(outcome), Some(message)) => format!("{outcome}: {message}"),
        };
        let sent = entry.request.as_ref().map(|request| format!(" {request}")).unwrap_or_default();
        vec![
            time(entry.at),
            entry.who.clone(),
            entry.from.clone(),
            format!("{} {}{sent}", entry.method, entry.path),
            or_dash(entry.duration_seconds, duration),
            outcome,
        ]
    };
    let columns = [
        Column::Left("when"),
        Column::Left("who"),
        Column::Left("from"),
        Column::Left("what"),
        Column::Right("took"),
        Column::Left("outcome"),
    ];
    table(&columns, entries.iter().map(row).collect(), "nothing was changed")
}
