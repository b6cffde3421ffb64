//! What goes to stdout: tables that align, or one JSON document.

use std::io::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints text. A reader that went away (`| head`) is no error.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Prints one JSON document.
pub fn json(document: &impl Serialize) {
    match serde_json::to_string_pretty(document) {
        Ok(text) => print(&format!("{text}\n")),
        // Only maps with keys that are no strings fail, and the API has none.
        Err(error) => eprintln!("farside: cannot write JSON: {error}"),
    }
}

/// Which way a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// Words.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

/// A table without borders; one line a row. `none` is printed where there are no rows.
pub fn table(columns: &[Column], rows: Vec<Vec<String>>, none: &str) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    let mut table = Table::new();
    // Rows are never wrapped: scripts cut them by line, and a terminal wraps by itself.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let align = |column: &Column, text: String| {
        let text = one_line(&text);
        let alignment =
            if matches!(column, Column::Left(_)) { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(alignment)
    };
    table.set_header(columns.iter().map(|column| {
        let (Column::Left(title) | Column::Right(title)) = *column;
        align(column, title.to_uppercase())
    }));
    for row in rows {
        table.add_row(columns.iter().zip(row).map(|(column, text)| align(column, text)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// Names and values, one a line.
pub fn details(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().map(|(name, value)| format!("{name:width$}  {}\n", one_line(value))).collect()
}

/// Texts may come from a peer, or from a kernel: what would break the line, or move a terminal's cursor, becomes a blank.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The beginning of a text, at most `most` characters and an ellipsis: its first sentence if that fits, else as many whole clauses, or
/// words, as do.
pub(crate) fn beginning(text: &str, most: usize) -> String {
    let text = one_line(text);
    let Some((end, _)) = text.char_indices().nth(most) else { return text };
    let fits = &text[..end];
    // What is shorter says too little.
    let least = end / 3;
    let after = |separator: &str| fits.rfind(separator).map(|at| at + separator.trim_end().len());
    let sentence = fits.find(". ").map(|at| at + 1).filter(|at| *at > least);
    let clause = [". ", "; ", ": ", ", "].into_iter().filter_map(after).max().filter(|at| *at > least);
    let cut = sentence.or(clause).or_else(|| fits.rfind(' ')).unwrap_or(end);
    format!("{} …", text[..cut].trim_end())
}

/// A value that may be missing: `-` if so.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| String::from("-"), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_nothing_trails() {
        let text = table(
            &[Column::Left("name"), Column::Right("size")],
            vec![vec!["p/v".into(), "1.0 GiB".into()], vec!["p/long-name".into(), "512 B".into()]],
            "no volumes",
        );
        assert_eq!(text, "NAME            SIZE\np/v          1.0 GiB\np/long-name    512 B\n");
    }

    #[test]
    fn many_mirrors_stay_aligned_whatever_their_reasons_say() {
        let mirror = |number: u32| {
            let state = if number.is_multiple_of(7) { "transferring 100%" } else { "mirrored" };
            let why = match number % 5 {
                0 => String::from("no session:\n\tcannot reach\r\u{1b}[2Jnorth"),
                1 => "x".repeat(300),
                _ => String::new(),
            };
            vec![format!("q/v{}", 7_u64.pow(number % 12)), state.into(), format!("{number} s"), why]
        };
        let columns =
            [Column::Left("name"), Column::Left("state"), Column::Right("lag"), Column::Left("why")];
        let text = table(&columns, (0..500).map(mirror).collect(), "no mirrors");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 501, "a row is a line");
        let (state, lag) = (lines[0].find("STATE").unwrap(), lines[0].find("LAG").unwrap() + 3);
        for (number, line) in lines[1..].iter().enumerate() {
            assert!(
                line[state..].starts_with("mirrored") || line[state..].starts_with("transferring"),
                "{line}"
            );
            assert!(line[..lag].ends_with(&format!(" {number} s")), "{line}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
        assert!(!details(&[("why", "a\nb".into())]).trim_end().contains('\n'));
    }

    #[test]
    fn a_beginning_ends_where_a_sentence_or_a_clause_does() {
        assert_eq!(beginning("short. And whole", 20), "short. And whole");
        assert_eq!(beginning("one sentence. And another that is long", 20), "one sentence. …");
        assert_eq!(beginning("no. one clause, and another that is long", 20), "no. one clause, …");
        assert_eq!(beginning("words without any end to them", 20), "words without any …");
        assert_eq!(beginning(&"ü".repeat(30), 20), format!("{} …", "ü".repeat(20)));
    }

    #[test]
    fn an_empty_table_says_so() {
        assert_eq!(table(&[Column::Left("name")], vec![], "no volumes"), "no volumes\n");
    }
}
