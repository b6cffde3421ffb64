//! Codes of invitations, as a person brings them from one place to another.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use farside_api::{ErrorBody, ErrorCode, OpenInvitation, is_code};

use crate::output::{Column, table};
use crate::quantities::time;

/// A code is some hundred characters; what is longer is another file.
const CODE_BYTES_MAX: u64 = 4096;

/// The code of an invitation: from a file, a prompt, or stdin. Never from the arguments.
pub(super) fn code(file: Option<&Path>) -> Result<String, ErrorBody> {
    let mut text = String::new();
    let read = match file {
        Some(path) => {
            std::fs::File::open(path).and_then(|f| f.take(CODE_BYTES_MAX).read_to_string(&mut text))
        }
        None if std::io::stdin().is_terminal() => {
            eprint!("code of the invitation: ");
            let _ = std::io::stderr().flush();
            std::io::stdin().read_line(&mut text)
        }
        None => std::io::stdin().take(CODE_BYTES_MAX).read_to_string(&mut text),
    };
    let origin = file.map_or_else(|| String::from("stdin"), |path| path.display().to_string());
    read.map_err(|e| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("cannot read the code from {origin}: {e}"))
    })?;
    match code_in(&text) {
        "" => Err(ErrorBody::new(ErrorCode::WrongUsage, format!("no code came from {origin}"))
            .hint("farside peer invite (for a further daemon: farside site invite) prints one")),
        code => Ok(code.to_owned()),
    }
}

/// Invitations that can still be used.
pub(super) fn open(open: &[OpenInvitation]) -> String {
    let columns = [Column::Left("id"), Column::Left("valid until")];
    let rows = open.iter().map(|open| vec![open.id.clone(), time(open.expires_at)]);
    table(&columns, rows.collect(), "no invitation can be used")
}

/// The code in what was read: the line that begins as one does, where there are others beside it.
fn code_in(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| is_code(line)).unwrap_or_else(|| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_found_among_other_lines() {
        assert_eq!(code_in("farside1_ab_cd_ef\n"), "farside1_ab_cd_ef");
        assert_eq!(code_in("valid until noon\n  farside1_ab_cd_ef \nthank you\n"), "farside1_ab_cd_ef");
        // What is none is refused by the daemon, as it is.
        assert_eq!(code_in(" something else \n"), "something else");
        assert_eq!(code_in("\n"), "");
    }
}
