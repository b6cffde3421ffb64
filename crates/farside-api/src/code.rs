//! Codes of invitations, as far as whoever sees one must know it for one. Pure.

/// How codes begin: of peers, of daemons of one site.
const BEGINNINGS: [&str; 2] = ["farside1_", "farside-daemon1_"];

/// Whether a text begins as the code of an invitation does, which is a secret.
pub fn is_code(text: &str) -> bool {
    let text = text.trim_start();
    let begins = |beginning: &&str| {
        text.get(..beginning.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(beginning))
    };
    BEGINNINGS.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_known_for_one_however_it_was_pasted() {
        for code in ["farside1_ab_cd", "  farside-daemon1_ab", "FARSIDE1_AB:7440"] {
            assert!(is_code(code), "{code}");
        }
        for other in ["", "north.example:7440", "farside1.example", "färside1_"] {
            assert!(!is_code(other), "{other}");
        }
    }
}
