//! Texts that come from outside.

/// A text from outside, fit for a log line and an error: bounded, without control characters.
pub fn printable(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() + c.len_utf8() > max {
            break;
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_outside_are_tamed() {
        assert_eq!(printable("a\n\x1b[31mb", 100), "a  [31mb");
        assert_eq!(printable("ääää", 5), "ää");
    }
}
