//! Destructive requests: the plan, the question, the request itself.
//!
//! `--plan` prints what would happen and changes nothing. Otherwise, on a terminal, the plan is shown and the
//! question asked, unless `--yes`. Without a terminal nobody can be asked: what destroys data is refused then, and
//! what does not (a break, say, in a script at night) goes ahead.

use std::io::{BufRead, IsTerminal, Write};

use farside_api::{ErrorBody, ErrorCode, Plan};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arguments::destructive::Destructive;
use crate::client::Client;
use crate::output;
use crate::quantities::{duration, size};

/// Whether a request destroys data for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Impact {
    /// It does: without a terminal, only with `--yes`.
    Data,
    /// It does not: nothing is lost that could not be had again.
    Service,
    /// It does if its plan says so. Without a terminal the plan is asked for, and what it names as lost goes only with `--yes`.
    AsPlanned,
}

/// A destructive request before it is made.
pub struct DestructiveRequest<'a, B> {
    /// The method.
    pub method: Method,
    /// The resource.
    pub path: &'a [&'a str],
    /// The body, if any.
    pub body: Option<&'a B>,
    /// What it costs.
    pub impact: Impact,
}

/// Does as the flags say: plans only (None), asks, or goes ahead.
pub async fn carry_out<T: DeserializeOwned>(
    client: &Client,
    request: DestructiveRequest<'_, impl Serialize>,
    flags: Destructive,
    json: bool,
) -> Result<Option<T>, ErrorBody> {
    let plan = async || -> Result<Plan, ErrorBody> {
        client.request(request.method.clone(), request.path, &[("plan", "true")], request.body).await
    };
    if flags.plan {
        let plan = plan().await?;
        if json {
            output::json(&plan)
        } else {
            output::print(&describe(&plan))
        }
        return Ok(None);
    }
    if !flags.yes {
        if is_interactive() {
            let plan = plan().await?;
            refuse(&plan)?;
            if !ask(&describe(&plan)) {
                return Err(ErrorBody::new(ErrorCode::Failed, "cancelled; nothing was changed"));
            }
        } else if request.impact == Impact::Data {
            // What is not there, or is refused anyhow, is said first.
            refuse(&plan().await?)?;
            return Err(ErrorBody::new(
                ErrorCode::WrongUsage,
                "this may destroy data, and there is no terminal on which to ask",
            )
            .hint("--plan shows what would be lost; --yes goes ahead"));
        } else if request.impact == Impact::AsPlanned {
            refuse_loss(&plan().await?)?;
        }
    }
    client.confirmed(request.method, request.path, request.body).await.map(Some)
}

/// The same for a request that destroys data only sometimes: nobody is asked where its plan loses nothing.
pub async fn carry_out_if_lost<T: DeserializeOwned>(
    client: &Client,
    request: DestructiveRequest<'_, impl Serialize>,
    flags: Destructive,
    json: bool,
) -> Result<Option<T>, ErrorBody> {
    if flags.plan || flags.yes {
        return carry_out(client, request, flags, json).await;
    }
    let (method, path) = (request.method.clone(), request.path);
    let plan: Plan = client.request(method, path, &[("plan", "true")], request.body).await?;
    if plan.lost.is_empty() {
        return client.confirmed(request.method, path, request.body).await.map(Some);
    }
    if !is_interactive() {
        refuse_loss(&plan)?;
    }
    refuse(&plan)?;
    if !ask(&describe(&plan)) {
        return Err(ErrorBody::new(ErrorCode::Failed, "cancelled; nothing was changed"));
    }
    client.confirmed(request.method, path, request.body).await.map(Some)
}

/// Of what its plan says is refused nothing is asked: whoever says yes to it has read past the reason.
pub fn refuse(plan: &Plan) -> Result<(), ErrorBody> {
    match &plan.refused {
        None => Ok(()),
        Some(why) => Err(ErrorBody::new(ErrorCode::Refused, why.clone())
            .hint("nothing was changed. --plan shows what it would do besides")),
    }
}

/// Refuses what its plan says destroys data, where nobody can be asked; before that what comes to nothing anyhow.
pub fn refuse_loss(plan: &Plan) -> Result<(), ErrorBody> {
    refuse(plan)?;
    if plan.lost.is_empty() {
        return Ok(());
    }
    Err(ErrorBody::new(
        ErrorCode::WrongUsage,
        format!("this destroys data, and there is no terminal on which to ask: {}", plan.lost.join("; ")),
    )
    .hint("nothing was changed. --plan shows it again; --yes goes ahead"))
}

/// A plan for people, in the order in which a tired one needs it: what happens, what would be lost for good, what stays
/// and where.
pub fn describe(plan: &Plan) -> String {
    let mut text = format!("{}:\n", plan.action);
    for line in &plan.would {
        text += &format!("  would: {line}\n");
    }
    if let Some(brings) = plan.brings_bytes {
        let room = plan.room_bytes.map(|room| format!("; the pool has room for {}", size(room)));
        text += &format!("  comes: up to {}{}\n", size(brings), room.unwrap_or_default());
    }
    for line in &plan.lost {
        text += &format!("  lost:  {line}\n");
    }
    match figures(plan.lost_blocks, plan.lost_bytes, plan.lost_seconds) {
        Some(figures) if !plan.lost.is_empty() => text += &format!("         {figures}\n"),
        None if plan.lost.is_empty() => text += "  lost:  nothing\n",
        None if plan.lost.last().is_some_and(|last| last.ends_with(':')) => text += "         nothing\n",
        _ => {}
    }
    if let Some(kept) = &plan.kept_as {
        text += &format!("  kept:  as {kept}\n");
        if let Some(figures) = figures(plan.kept_blocks, plan.kept_bytes, plan.kept_seconds) {
            text += &format!("         {figures}\n");
        }
    }
    if let Some(reason) = &plan.refused {
        text += &format!("  would be refused now: {reason}\n");
    }
    text
}

/// `12 blocks of 4 KiB (48.0 KiB), the last 3m05s`; None where there is nothing to tell.
fn figures(blocks: Option<u64>, bytes: Option<u64>, seconds: Option<f64>) -> Option<String> {
    let data = match (blocks, bytes) {
        (Some(0), _) => None,
        (Some(1), Some(bytes)) => Some(format!("1 block of 4 KiB ({})", size(bytes))),
        (Some(blocks), Some(bytes)) => Some(format!("{blocks} blocks of 4 KiB ({})", size(bytes))),
        _ => Some(String::from("the number of blocks is not known here")),
    };
    let time = seconds.filter(|seconds| *seconds > 0.0).map(|s| format!("the last {}", duration(s)));
    let parts: Vec<_> = data.into_iter().chain(time).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whether there is somebody to ask.
pub fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows what would happen, and asks whether to go on.
pub fn ask(plan: &str) -> bool {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{plan}Go on? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            action: "break mirror q/db at monday".into(),
            would: vec!["hosts may write to q/db".into(), "no more updates come".into()],
            lost: vec!["what was written at a:p/db and has not arrived".into()],
            lost_seconds: Some(12.0),
            kept_as: Some("q/db@s9, a side branch; it opens".into()),
            kept_blocks: Some(3),
            kept_bytes: Some(12288),
            kept_seconds: Some(3600.0),
            ..Plan::default()
        }
    }

    #[test]
    fn what_happens_what_is_lost_what_stays() {
        assert_eq!(
            describe(&plan()),
            "break mirror q/db at monday:\n  \
             would: hosts may write to q/db\n  \
             would: no more updates come\n  \
             lost:  what was written at a:p/db and has not arrived\n         \
             the number of blocks is not known here, the last 12 s\n  \
             kept:  as q/db@s9, a side branch; it opens\n         \
             3 blocks of 4 KiB (12.0 KiB), the last 1h00m\n"
        );
    }

    #[test]
    fn of_what_is_refused_nothing_is_asked() {
        assert_eq!(refuse(&plan()), Ok(()));
        let refused = refuse(&Plan { refused: Some("broken off already".into()), ..plan() }).unwrap_err();
        assert_eq!((refused.code, &*refused.message), (ErrorCode::Refused, "broken off already"));
    }

    #[test]
    fn nothing_is_said_to_be_nothing_only_where_it_is_known() {
        let nothing = Plan {
            action: "delete mirror q/db".into(),
            lost_blocks: Some(0),
            lost_bytes: Some(0),
            lost_seconds: Some(0.0),
            refused: Some("no such day".into()),
            ..Plan::default()
        };
        assert_eq!(
            describe(&nothing),
            "delete mirror q/db:\n  lost:  nothing\n  would be refused now: no such day\n"
        );
        let some =
            Plan { lost: vec!["a snapshot".into()], lost_blocks: Some(1), lost_bytes: Some(4096), ..nothing };
        let text = describe(&some);
        assert!(text.contains("  lost:  a snapshot\n         1 block of 4 KiB (4.0 KiB)\n"), "{text}");
        let unknown = Plan { lost: Vec::new(), lost_blocks: None, ..some };
        assert!(!describe(&unknown).contains("nothing"));
    }
}
