//! Destructive requests: the plan, the question, the deed.
//!
//! `--plan` prints what would happen and changes nothing. Otherwise, on a terminal, the plan is shown and the
//! question asked, unless `--yes`. Without a terminal nobody can be asked: what destroys data is refused then, and
//! what does not (a break, say, in a script at night) goes ahead.

use std::io::{BufRead, IsTerminal, Write};

use farside_api::{ErrorBody, ErrorCode, Plan};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arguments::Destructive;
use crate::client::Client;
use crate::output;

/// Whether a deed destroys data for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stake {
    /// It does: without a terminal, only with `--yes`.
    Data,
    /// It does not: nothing is lost that could not be had again.
    Service,
}

/// A destructive request before it is made.
pub struct Deed<'a, B> {
    /// The method.
    pub method: Method,
    /// The resource.
    pub path: &'a [&'a str],
    /// The body, if any.
    pub body: Option<&'a B>,
    /// What is at stake.
    pub stake: Stake,
}

/// Does as the words say: plans only (None), asks, or goes ahead.
pub async fn carry_out<T: DeserializeOwned>(
    client: &Client,
    deed: Deed<'_, impl Serialize>,
    words: Destructive,
    json: bool,
) -> Result<Option<T>, ErrorBody> {
    let plan = async || -> Result<Plan, ErrorBody> {
        client.request(deed.method.clone(), deed.path, &[("plan", "true")], deed.body).await
    };
    if words.plan {
        let plan = plan().await?;
        if json {
            output::json(&plan)
        } else {
            output::print(&describe(&plan))
        }
        return Ok(None);
    }
    if !words.yes {
        if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            let plan = plan().await?;
            if !ask(&plan) {
                return Err(ErrorBody::new(ErrorCode::Failed, "not done: the answer was not yes"));
            }
        } else if deed.stake == Stake::Data {
            return Err(ErrorBody::new(
                ErrorCode::WrongUsage,
                "this destroys data, and there is no terminal to ask on",
            )
            .hint("see what would be lost with --plan, then say --yes"));
        }
    }
    client.request(deed.method.clone(), deed.path, &[], deed.body).await.map(Some)
}

/// A plan for people.
pub fn describe(plan: &Plan) -> String {
    let mut text = format!("{}:\n", plan.action);
    for line in &plan.would {
        text += &format!("  would: {line}\n");
    }
    for line in &plan.lost {
        text += &format!("  lost:  {line}\n");
    }
    if plan.lost.is_empty() {
        text += "  lost:  nothing\n";
    }
    if let Some(reason) = &plan.refused {
        text += &format!("  but it would be refused: {reason}\n");
    }
    text
}

fn ask(plan: &Plan) -> bool {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{}Go on? [y/N] ", describe(plan)).and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
