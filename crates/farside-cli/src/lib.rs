//! Words on the command line to API calls; tables, progress, JSON.
//!
//! The binary `farside` is a client of the daemon's API over its control socket and nothing more: what it can do,
//! any other client can. One thing it does alone: `pool check` reads a pool's file offline, without the daemon.
//!
//! * [`arguments`]: every noun and verb, and their help; one definition for help, man pages and completions.
//! * [`commands`]: what each verb does.
//! * [`client`]: HTTP over the socket.
//! * [`confirm`]: plans, and the question before something destructive.
//! * [`output`], [`progress`]: what people and scripts see.
//! * [`quantities`]: sizes and durations as text.
//! * [`words`]: what other tools call what farside has.

pub mod arguments;
pub mod client;
pub mod commands;
pub mod confirm;
pub mod output;
pub mod progress;
pub mod quantities;
pub mod words;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use farside_api::{ErrorBody, ErrorCode, ErrorDocument};

use crate::arguments::Arguments;

/// The binary `farside`: parses, runs one command, and tells the outcome by exit code (0 done, 1 failed, 2 wrong
/// usage, 3 not found, 4 refused in this state, 5 daemon unreachable).
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage_error(error),
    };
    let json = arguments.connection.json;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(&ErrorBody::new(ErrorCode::Failed, format!("cannot start: {error}")), json);
        }
    };
    match runtime.block_on(commands::run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            let code = report(&failed.error, json && !failed.is_printed);
            failed.exit_code.map_or(code, ExitCode::from)
        }
    }
}

/// Prints a failure: the reason and the hint on stderr, and with `--json` the document on stdout.
fn report(error: &ErrorBody, json: bool) -> ExitCode {
    eprintln!("farside: {}", error.message);
    if let Some(hint) = &error.hint {
        eprintln!("hint: {hint}");
    }
    if json {
        output::json(&ErrorDocument { error: error.clone() });
    }
    ExitCode::from(error.code.exit_code())
}

/// Whoever mistypes is not offered a word that takes something away, and that no help names, nor a line that is refused again.
fn without_hidden(error: &mut clap::Error) {
    // An unknown option as a value: no verb takes one.
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    const HIDDEN: [&str; 3] = ["destroy", "rm", "remove"];
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let kept: Vec<String> = words.iter().filter(|word| !HIDDEN.contains(&word.as_str())).cloned().collect();
    error.remove(ContextKind::SuggestedSubcommand);
    if !kept.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(kept));
    }
}

/// Whoever works on a group names it as one, where the name of a volume is asked for: `typed` says for which verb.
fn group_tip(error: &clap::Error, typed: impl Iterator<Item = String>) -> Option<String> {
    let verb = typed.skip_while(|word| word != "mirror").nth(1)?;
    let all = Arguments::command();
    let verb = all.find_subcommand("mirror")?.find_subcommand(&verb)?;
    let takes = |id: &str| verb.get_arguments().any(|a| a.get_id() == id);
    // Elsewhere --group puts a mirror into one.
    let takes_group =
        takes("group") && !takes("policy") && !matches!(verb.get_name(), "create" | "set" | "import");
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let is_volume = text(ContextKind::InvalidArg).iter().any(|argument| argument.contains("VOLUME"));
    match error.kind() {
        ErrorKind::MissingRequiredArgument if is_volume && takes_group => {
            Some("POOL/VOL, or all mirrors of a group: --group NAME".into())
        }
        ErrorKind::ValueValidation if is_volume => {
            let value = text(ContextKind::InvalidValue).pop()?;
            let is_plain = !value.is_empty() && !value.contains(['/', ':', '@']);
            match (is_plain, takes_group) {
                (false, _) => None,
                (true, true) => Some(format!("a group? --group {value}")),
                (true, false) => Some(format!(
                    "a group? farside mirror status lists all mirrors, those of group {value} among them"
                )),
            }
        }
        _ => None,
    }
}

/// Nothing here is forced: a refusal says what it needs.
fn force_tip(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_force = error.kind() == ErrorKind::UnknownArgument && (argument == "--force" || argument == "-f");
    is_force.then_some("nothing is forced here: --plan says what a command would do, --yes answers its question, and a refusal says what to type")
}

/// What clap says of the arguments given. Help and version are no errors.
fn usage_error(mut error: clap::Error) -> ExitCode {
    without_hidden(&mut error);
    let force = force_tip(&error).map(ToOwned::to_owned);
    if force.is_some() {
        error.remove(ContextKind::SuggestedArg);
    }
    let error = &error;
    let tip = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => {
            words::tip(word).map(ToOwned::to_owned)
        }
        _ => force.or_else(|| group_tip(error, std::env::args())),
    };
    let tip = tip.as_deref();
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.render().to_string();
        let lines = text.lines().map(|line| line.trim_start_matches("error: ").trim());
        // What is missing stands in lines of its own, up to the tips and the usage.
        let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let message = lines.join(" ");
        output::json(&ErrorDocument {
            error: ErrorBody::new(ErrorCode::WrongUsage, message).hint(tip.unwrap_or("see farside --help")),
        });
    }
    // Fails only when stderr is closed, and then nobody reads it.
    let _ = error.print();
    if let Some(tip) = tip {
        eprintln!("\nhint: {tip}");
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_names_a_group_as_a_volume_is_told_how_it_is_named() {
        let tip = |line: &str| {
            let typed = || line.split(' ').map(ToOwned::to_owned);
            group_tip(&Arguments::try_parse_from(typed()).unwrap_err(), typed())
        };
        for verb in ["break", "drill", "resync", "swap", "update", "abort", "failover"] {
            let mistaken = tip(&format!("farside mirror {verb} shop"));
            assert_eq!(mistaken.as_deref(), Some("a group? --group shop"), "{verb}");
            assert!(tip(&format!("farside mirror {verb}")).unwrap().contains("--group NAME"), "{verb}");
        }
        for verb in ["check", "status"] {
            assert!(tip(&format!("farside mirror {verb} shop")).unwrap().contains("group shop"), "{verb}");
        }
        assert_eq!(tip("farside mirror break p/"), None);
        assert_eq!(tip("farside mirror delete"), None);
        assert_eq!(tip("farside volume delete shop"), None);
    }

    #[test]
    fn whoever_would_force_something_is_told_what_there_is() {
        let tip = |line: &str| force_tip(&Arguments::try_parse_from(line.split(' ')).unwrap_err());
        assert!(tip("farside mirror break p/v --force").unwrap().contains("--plan"));
        assert!(tip("farside mirror list -f").is_some());
        assert_eq!(tip("farside mirror break p/v --fore"), None);
    }
}
