//! The manual's page of worst cases says what the tables say, to the letter.

use std::path::PathBuf;

use crate::break_off::BREAK;
use crate::resync::RESYNC;
use crate::swap::SWAP;
use crate::table::print;
use crate::update::{INITIALIZE, UPDATE};

const BEGINS: &str =
    "<!-- The tables below are written by the tests of farside-mirror (tests/worst_cases). -->\n";

#[test]
fn the_manual_says_the_same() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/concepts/worst-cases.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, tables) = page.split_once(BEGINS).expect("the page has its tables");
    let expected = format!("\n{}", print(&[&INITIALIZE, &UPDATE, &BREAK, &RESYNC, &SWAP]));
    if tables != expected {
        if std::env::var_os("FARSIDE_WRITE_PAGE").is_some() {
            std::fs::write(&path, format!("{head}{BEGINS}{expected}")).unwrap();
            return;
        }
        panic!("docs/src/concepts/worst-cases.md is not what is tested; FARSIDE_WRITE_PAGE=1 writes it");
    }
}
