//! How numbers and foreign text appear in tables: digits, units, escaping. Pure.
//!
//! Names, versions and reasons of failure come from files and from other programs' output. They are data: [`markdown`] makes
//! sure that none of them becomes structure.

/// Longest piece of foreign text that is shown, characters. The log of the run has the rest.
const FOREIGN_CHARS_MAX: usize = 300;

/// A number with about three significant digits, never in exponents: `0.082`, `5.62`, `62.8`, `1204`.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    // The limits are where rounding would add a digit: 9.996 is shown as 10.0.
    let size = value.abs();
    let digits = match size {
        _ if size < 0.000_5 => 0,
        _ if size < 0.099_95 => 3,
        _ if size < 9.995 => 2,
        _ if size < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text == "-0" { "0".to_owned() } else { text }
}

/// Bits a second as people say them: `44.736 Mb/s`, `1 Gb/s`.
#[must_use]
pub fn rate(bits: u64) -> String {
    if bits >= 1_000_000_000 {
        format!("{} Gb/s", bits as f64 / 1e9)
    } else {
        format!("{} Mb/s", bits as f64 / 1e6)
    }
}

/// Foreign text on one line: control characters and line ends become spaces, and what is too long is cut.
#[must_use]
pub fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(FOREIGN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Foreign text in a Markdown paragraph or table cell: one line, nothing of it is markup.
#[must_use]
pub fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits_and_never_gain_one_by_rounding() {
        let shown = [0.0, 0.0004, 0.0822, 0.0999, 0.82, 5.619, 9.996, 62.84, 99.96, 1204.4, -0.0001];
        assert_eq!(
            shown.map(number),
            ["0", "0", "0.082", "0.100", "0.82", "5.62", "10.0", "62.8", "100", "1204", "0"]
        );
        assert_eq!(number(f64::NAN), "?");
        assert_eq!([1_544_000, 1_000_000_000].map(rate), ["1.544 Mb/s", "1 Gb/s"]);
    }

    #[test]
    fn foreign_text_stays_text_and_is_cut() {
        let nasty = "a|b\r\n<script>alert('x')</script> *y* [z](http://q) `c` & \\ \u{7}";
        assert_eq!(
            markdown(nasty),
            "a\\|b &lt;script&gt;alert('x')&lt;/script&gt; \\*y\\* \\[z\\](http://q) \\`c\\` &amp; \\\\"
        );
        let cut = one_line(&"é".repeat(FOREIGN_CHARS_MAX + 1));
        assert_eq!(cut.chars().count(), FOREIGN_CHARS_MAX + 1);
        assert!(cut.ends_with('…'));
    }
}
