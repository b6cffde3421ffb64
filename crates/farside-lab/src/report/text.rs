//! How numbers and foreign text appear in tables and pages: digits, units, escaping. Pure.
//!
//! Names, versions and reasons of failure come from files and from other programs' output. They are data: [`html`] and
//! [`markdown`] make sure that none of them becomes structure.

/// Longest piece of foreign text that is shown, characters. A program that fails may say a megabyte; a table shows the
/// beginning, the log of the run has the rest.
pub const FOREIGN_CHARS_MAX: usize = 300;

/// Bytes in a megabyte, as links are sold: powers of ten.
pub const MEGABYTE: f64 = 1e6;

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

/// A number that somebody wrote, not one that was measured: all of its digits, up to six.
#[must_use]
pub fn exact(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with as many digits as `tolerance` makes sense of: two of the tolerance's own. `0.2568` within `0.0026`.
#[must_use]
pub fn number_within(value: f64, tolerance: f64) -> String {
    if !value.is_finite() || !tolerance.is_finite() || tolerance <= 0.0 {
        return number(value);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let digits = (1.0 - tolerance.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

/// Between groups of digits: narrow, and no line breaks at it.
const GROUP: char = '\u{202f}';

/// A whole number with thin groups of three: `1 234 567`.
#[must_use]
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(GROUP);
        }
        text.push(digit);
    }
    text
}

/// How many times `value` is of `base`, two digits: `0.92`, `4.1`, `12`. Absent where that says nothing.
#[must_use]
pub fn ratio(value: f64, base: f64) -> Option<f64> {
    (value.is_finite() && base.is_finite() && base > 0.0 && value >= 0.0).then(|| value / base)
}

/// A ratio as it is shown: never rounded to 1 when it is not.
#[must_use]
pub fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio < 0.1 => format!("{ratio:.3}"),
        _ if ratio < 3.0 => format!("{ratio:.2}"),
        _ if ratio < 9.95 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

/// Foreign text on one line: control characters and line ends become spaces, and what is too long is cut with an ellipsis.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut blank = true;
    let mut chars = 0;
    for character in text.chars() {
        let is_blank = (character.is_whitespace() && character != GROUP) || character.is_control();
        if is_blank && blank {
            continue;
        }
        if chars == FOREIGN_CHARS_MAX {
            line.push('…');
            return line;
        }
        blank = is_blank;
        line.push(if is_blank { ' ' } else { character });
        chars += 1;
    }
    line.truncate(line.trim_end().len());
    line
}

/// Foreign text for HTML, in elements and in quoted attributes.
#[must_use]
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in HTML at all, escaped or not.
            _ if character.is_control() && !matches!(character, '\n' | '\t') => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
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
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// JSON inside a `script` element: `<` as an escape of JSON's own, so that no string in it can end the element or open a
/// comment.
#[must_use]
pub fn json_in_html(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits_and_never_gain_one_by_rounding() {
        let shown: Vec<String> =
            [0.0, 0.0004, 0.0822, 0.0999, 0.82, 5.619, 9.996, 62.84, 99.96, 1204.4, -0.0001]
                .map(number)
                .to_vec();
        assert_eq!(shown, ["0", "0", "0.082", "0.100", "0.82", "5.62", "10.0", "62.8", "100", "1204", "0"]);
        assert_eq!(number(f64::NAN), "?");
        assert_eq!(number(f64::INFINITY), "?");
    }

    #[test]
    fn a_judged_number_has_two_digits_of_its_tolerance() {
        let shown = [(0.256_78, 0.002_56), (50.23, 1.0), (1.5489, 0.0154), (970.4, 10.0), (0.25, 0.0)];
        assert_eq!(
            shown.map(|(value, tolerance)| number_within(value, tolerance)),
            ["0.2568", "50.2", "1.549", "970", "0.25"]
        );
        assert_eq!(number_within(f64::NAN, 1.0), "?");
        assert_eq!(exact(44.736), "44.736");
        assert_eq!(exact(50.0), "50");
    }

    #[test]
    fn counts_are_grouped_by_three() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1000.0), "1\u{202f}000");
        assert_eq!(count(-1_234_567.0), "-1\u{202f}234\u{202f}567");
    }

    #[test]
    fn a_ratio_to_nothing_is_absent_and_one_percent_is_not_rounded_away() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(f64::NAN, 1.0), None);
        assert_eq!(times(ratio(101.0, 100.0).unwrap()), "1.01");
        assert_eq!(times(4.14), "4.1");
        assert_eq!(times(12.3), "12");
        assert_eq!(times(0.0512), "0.051");
    }

    #[test]
    fn foreign_text_stays_text() {
        let nasty = "a|b\r\n<script>alert('x')</script> *y* [z](http://q) `c` & \\ \u{7}";
        let cell = markdown(nasty);
        assert_eq!(
            cell,
            "a\\|b &lt;script&gt;alert('x')&lt;/script&gt; \\*y\\* \\[z\\](http://q) \\`c\\` &amp; \\\\"
        );
        assert!(!cell.contains('\n'));
        assert_eq!(
            html("<a href='x' onclick=\"y\">&\u{0}"),
            "&lt;a href=&#39;x&#39; onclick=&quot;y&quot;&gt;&amp;\u{fffd}"
        );
        assert!(!json_in_html("{\"a\":\"</script><!--\"}").contains('<'));
    }

    #[test]
    fn foreign_text_is_cut() {
        let long = "é".repeat(FOREIGN_CHARS_MAX + 1);
        let cut = one_line(&long);
        assert_eq!(cut.chars().count(), FOREIGN_CHARS_MAX + 1);
        assert!(cut.ends_with('…'));
        assert_eq!(one_line(&long[..2 * FOREIGN_CHARS_MAX]).chars().count(), FOREIGN_CHARS_MAX);
    }
}
