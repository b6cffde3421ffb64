//! The fuzz targets of this crate, callable from a fuzzer and from tests alike. Whatever the bytes are: no panic, no memory
//! beyond the limits, and what is taken for true in form is.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use prost::Message;

use crate::error::TransferError;
use crate::limits::{
    ASK_BLOCKS_MAX, ASK_ENTRIES_MAX, GROUP_MAX, HELD_BLOCKS_PER_CHUNK, HELD_RUNS_PER_CHUNK, HOPS_MAX,
    STEPS_MAX,
};
use crate::protocol::convert::{self, CandidateBase, TransferPlan, Upstream};
use crate::protocol::group::{self, Reservation};
use crate::protocol::held::{self, Held};
use crate::protocol::known;
use crate::protocol::stream::{self, StreamMessage};
use crate::protocol::{
    Body, Comparison, Description, Noted, Plan, Request, ReservedTogether, StreamHeader, Swapped,
    check_request,
};

/// Any bytes as a call of a peer, as an answer to one, and as the header of a stream.
pub fn fuzz_call(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes)
        && let Ok(body) = check_request(request)
    {
        // What is wrong with it, each call finds out by itself.
        let _ = convert_body(&body);
    }
    if let Ok(plan) = Plan::decode(bytes)
        && let Ok(plan) = TransferPlan::from_message(&plan)
    {
        assert!(plan.steps.len() <= STEPS_MAX && (plan.base.is_some() || !plan.steps.is_empty()));
        let again = TransferPlan::from_message(&plan.to_message());
        assert!(again.is_ok_and(|again| again == plan), "what was read is written the same");
    }
    if let Ok(Plan { origin: Some(origin), .. }) = Plan::decode(bytes)
        && let Ok(upstream) = Upstream::from_message(&origin)
    {
        assert!(upstream.follows.len() <= HOPS_MAX);
        let again = Upstream::from_message(&upstream.to_message());
        assert!(again.is_ok_and(|again| again == upstream), "what was read is written the same");
    }
    if let Ok(Description { size_bytes, origin, .. }) = Description::decode(bytes) {
        let _ = convert::size(size_bytes);
        let _ = origin.as_ref().map(Upstream::from_message);
    }
    if let Ok(comparison) = Comparison::decode(bytes) {
        let _ = comparison.base.as_ref().map(CandidateBase::from_message);
    }
    if let Ok(comparison) = Comparison::decode(bytes) {
        let _ = convert::places(&comparison.follows);
    }
    if let Ok(noted) = Noted::decode(bytes) {
        let _ = convert::standing(noted.standing);
    }
    if let Ok(reserved) = ReservedTogether::decode(bytes)
        && let Ok(moments) = group::moments(&reserved, reserved.snapshots.len())
    {
        assert!(moments.len() <= GROUP_MAX);
    }
    if let Ok(swapped) = Swapped::decode(bytes) {
        let _ = swapped.snapshot.as_ref().map(CandidateBase::from_message);
    }
    if let Ok(header) = StreamHeader::decode(bytes) {
        let _ = Held::from_number(header.held).and(convert::uuid(&header.transfer));
    }
}

fn convert_body(body: &Body) -> Result<(), TransferError> {
    match body {
        Body::Describe(m) => {
            convert::uuid(&m.relationship)?;
            convert::volume(&m.volume)?;
        }
        Body::Begin(m) => {
            convert::uuid(&m.relationship)?;
            convert::uuid(&m.transfer)?;
            convert::volume(&m.volume)?;
            convert::volume(&m.destination)?;
            convert::kind(m.kind)?;
            convert::candidates(&m.candidates)?;
            convert::staged_transfer(m.staged.as_ref())?;
            convert::role_change(m.role_change)?;
            group::optional(&m.until)?;
        }
        Body::Reserve(m) => drop(Reservation::from_message(m)?),
        Body::ReserveTogether(m) => {
            let members = group::reservations(m)?;
            assert!(!members.is_empty() && members.len() <= GROUP_MAX);
        }
        Body::Acknowledge(m) => {
            convert::uuid(&m.snapshot)?;
            convert::content_root(&m.content_root)?;
        }
        Body::End(m) => drop(stream::cut(&m.failure)),
        Body::Release(m) => drop(convert::volume(&m.volume)?),
        Body::Compare(m) => drop(convert::candidates(&m.candidates)?),
        Body::Overtaken(m) => {
            m.snapshot.as_ref().map(CandidateBase::from_message).transpose()?;
            convert::place_text(&m.beyond)?;
        }
        Body::Swap(m) => {
            convert::uuid(&m.reverse)?;
            convert::volume(&m.destination)?;
            convert::swap_phase(m.phase)?;
            convert::role_change(m.role_change)?;
        }
    }
    Ok(())
}

/// Any bytes as what comes on a data stream: the first byte says from which side, and which held list.
pub fn fuzz_stream(bytes: &[u8]) {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let held = if first & 2 == 0 { Held::Positions } else { Held::Fingerprints };
    let blocks = if first & 4 == 0 { 1 << 20 } else { 1 << 42 };
    let mut from = 0;
    loop {
        let message = if first & 1 == 0 {
            at_once(stream::read(&mut rest))
        } else {
            at_once(stream::read_held(&mut rest))
        };
        let Ok(message) = message else { return };
        let mut written = Vec::new();
        let done = at_once(async {
            stream::write(&mut written, &message).await.map_err(|e| TransferError::Internal(e.to_string()))
        });
        assert!(done.is_ok() && !written.is_empty());
        let StreamMessage::Held(chunk) = message else { continue };
        let Ok(runs) = held::decode_chunk(&chunk, held, from, blocks) else { return };
        assert!(!runs.is_empty() && runs.len() as u64 <= HELD_RUNS_PER_CHUNK);
        let fingerprints: usize = runs.iter().map(|r| r.fingerprints.len()).sum();
        assert!(fingerprints as u64 <= HELD_BLOCKS_PER_CHUNK);
        for run in &runs {
            assert!(run.position >= from && run.blocks > 0 && run.end() <= blocks);
            from = run.end();
        }
        assert_eq!(held::encode_chunk(&runs), chunk, "one list has one encoding");
    }
}

/// Any bytes as a question for known data, or as the answer to one: the first byte says which, and about how much.
pub fn fuzz_known(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let size = u64::from(first >> 1);
    if first & 1 == 0 {
        let volume_blocks = 1 << (size % 43);
        let Ok(ask) = known::decode_ask(rest, volume_blocks) else { return };
        assert!(ask.entries() > 0 && ask.entries() as u64 <= ASK_ENTRIES_MAX);
        assert!(ask.wanted_blocks() <= ASK_BLOCKS_MAX);
        for (list, limit) in [(&ask.nodes, volume_blocks / known::NODE_BLOCKS), (&ask.blocks, volume_blocks)]
        {
            assert!(list.is_sorted_by(|a, b| a.position < b.position));
            assert!(list.iter().all(|entry| entry.position < limit && entry.short != 0));
        }
        assert_eq!(known::encode_ask(&ask), rest, "one question has one encoding");
    } else {
        let entries = 16 * size as usize + 1;
        let Ok(answer) = known::decode_answer(rest, entries) else { return };
        assert!(answer.held.is_sorted_by(|a, b| a.end < b.start));
        assert!(answer.held.iter().all(|run| !run.is_empty() && run.end <= entries));
        assert_eq!(known::encode_answer(&answer), rest, "one answer has one encoding");
    }
}

/// The result of a future that has nothing to wait for.
fn at_once<T>(future: impl Future<Output = Result<T, TransferError>>) -> Result<T, TransferError> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(TransferError::Internal("bytes in memory are always there".into())),
    }
}
