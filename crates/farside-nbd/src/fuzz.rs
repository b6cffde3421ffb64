//! Entry points for fuzzing: arbitrary bytes through everything that gives bytes from a client their meaning.
//!
//! They panic if a promise of the parsers is broken. `tests/fuzz_corpus.rs` runs them over a corpus on stable
//! Rust; a coverage-guided fuzzer can drive the same functions.

use crate::export::{ExportDescription, ZeroMode};
use crate::limits::{CONTEXT_QUERIES_MAX, REQUEST_BYTES_MAX, STRING_BYTES_MAX};
use crate::protocol::option::{
    BASE_ALLOCATION, ClientOption, OptionAnswer, OptionRefusal, mean_base_allocation, parse_option,
    parse_option_header,
};
use crate::protocol::reply;
use crate::protocol::request::{Action, Command, TransmissionParameters, parse_request, validate};
use crate::protocol::{OPTION_HEADER_BYTES, REQUEST_HEADER_BYTES};

/// Nine bytes of parameters (flags, then the export's size), then command headers one after the other.
pub fn fuzz_request(bytes: &[u8]) {
    let Some((&[flags, ref size @ ..], headers)) = bytes.split_first_chunk::<9>() else { return };
    let parameters = TransmissionParameters {
        size_bytes: u64::from_be_bytes(*size),
        read_only: flags & 1 != 0,
        structured_replies: flags & 2 != 0,
        contexts: flags & 4 != 0,
    };
    for header in headers.chunks_exact(REQUEST_HEADER_BYTES) {
        let header = header.first_chunk().expect("chunks are exact");
        let Ok(request) = parse_request(header) else { return };
        match validate(&request, &parameters) {
            Ok(action) => assert_sound(&action, &parameters),
            Err(error) => {
                let pieces = reply::failed(request.cookie, parameters.structured_replies, &error);
                let length: usize = pieces.iter().map(|piece| piece.len()).sum();
                assert!((16..2048).contains(&length), "an error of {length} bytes");
            }
        }
        if request.command == Command::Disconnect {
            return;
        }
    }
}

fn assert_sound(action: &Action, parameters: &TransmissionParameters) {
    let (range, length_max, changes) = match *action {
        Action::Flush => return,
        Action::Read { range, one_chunk } => {
            assert!(one_chunk || parameters.structured_replies);
            (range, REQUEST_BYTES_MAX, false)
        }
        Action::Cache { range } => (range, u32::MAX, false),
        Action::Write { range, .. } => (range, REQUEST_BYTES_MAX, true),
        Action::Trim { range, .. } => (range, u32::MAX, true),
        Action::WriteZeroes { range, mode: ZeroMode { .. } } => (range, u32::MAX, true),
        Action::BlockStatus { range, .. } => {
            assert!(parameters.contexts);
            (range, u32::MAX, false)
        }
    };
    assert!(!(changes && parameters.read_only), "{action:?} on a read-only export");
    assert!((1..=length_max).contains(&range.length), "{action:?}");
    assert!(
        u128::from(range.offset) + u128::from(range.length) <= u128::from(parameters.size_bytes),
        "{action:?}"
    );
}

/// An option's header and its data; what the header says of their length is not believed.
pub fn fuzz_option(bytes: &[u8]) {
    let Some((header, data)) = bytes.split_first_chunk::<OPTION_HEADER_BYTES>() else { return };
    let Ok((code, _)) = parse_option_header(header) else { return };
    let mut answer = OptionAnswer::to(code);
    let bytes = match parse_option(code, data) {
        Err(error) => answer.refuse(OptionRefusal::Invalid, &error.message),
        Ok(ClientOption::Info { name, wants, .. }) => {
            assert!(name.len() <= STRING_BYTES_MAX);
            let export =
                ExportDescription { size_bytes: 1, read_only: false, multi_conn: false, about: name.into() };
            answer.info(name, &export, true, wants);
            answer.ack()
        }
        Ok(ClientOption::MetaContext { set, name, queries }) => {
            assert!(name.len() <= STRING_BYTES_MAX);
            assert!(queries.len() <= CONTEXT_QUERIES_MAX as usize);
            if mean_base_allocation(&queries, set) {
                answer.context(1, BASE_ALLOCATION);
            }
            answer.ack()
        }
        Ok(ClientOption::ExportName(name)) => {
            assert!(name.len() <= STRING_BYTES_MAX);
            return;
        }
        Ok(_) => answer.ack(),
    };
    // Header, facts with a name each twice, and an acknowledgement at most.
    assert!((20..3 * STRING_BYTES_MAX).contains(&bytes.len()), "an answer of {} bytes", bytes.len());
}
