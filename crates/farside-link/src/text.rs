//! Texts that come from outside.

/// A text from outside, fit for a log line and an error: bounded, without control characters and without what is not seen or turns
/// the direction of what is around it.
pub fn printable(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() + c.len_utf8() > max {
            break;
        }
        out.push(if c.is_control() || is_unseen(c) { ' ' } else { c });
    }
    out
}

/// Joiners, marks of direction, byte order marks, line separators.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_outside_are_tamed() {
        assert_eq!(printable("a\n\x1b[31mb", 100), "a  [31mb");
        assert_eq!(printable("ääää", 5), "ää");
        assert_eq!(printable("a\u{202e}b\u{200b}c\u{feff}", 100), "a b c ");
    }
}
