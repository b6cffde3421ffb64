//! How much of a source's log one destination can fill.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use farside_link::LinkSettings;
use farside_mirror::Schedule;
use farside_peer::PeerLink;
use farside_transfer::TransferKind;
use farside_transfer::limits::{LINES_EVERY, LINES_MAX};
use farside_transfer::protocol::convert;
use farside_transfer::protocol::stream::{self, StreamMessage};
use farside_transfer::protocol::{Begin, Body, End, PROTOCOL_VERSION, Request, StreamHeader};
use parking_lot::Mutex;
use prost::Message;
use uuid::Uuid;

use crate::site::{PATIENCE, Pair, assert_ok};

/// What this thread has logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn count(&self, of: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock()).lines().filter(|line| line.contains(of)).count()
    }
}

fn request(body: Body) -> Bytes {
    Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec().into()
}

fn begin(relationship: Uuid, transfer: Uuid) -> Bytes {
    request(Body::Begin(Begin {
        relationship: relationship.as_bytes().to_vec(),
        transfer: transfer.as_bytes().to_vec(),
        volume: "p/v".into(),
        destination: "q/r".into(),
        kind: convert::kind_number(TransferKind::Initialize),
        role_change: 1,
        ..Begin::default()
    }))
}

/// Opens a stream for a step that there is not.
async fn ask_in_vain(link: &dyn PeerLink, transfer: Uuid) {
    let header = StreamHeader {
        version: PROTOCOL_VERSION,
        transfer: transfer.as_bytes().to_vec(),
        step: 77,
        ..StreamHeader::default()
    };
    let header = header.encode_to_vec().into();
    let mut opened = link.open_stream(header, farside_link::StreamOptions::default()).await.unwrap();
    assert!(matches!(stream::read(&mut opened.io).await.unwrap(), StreamMessage::Failure(_)));
}

#[tokio::test(start_paused = true)]
async fn what_fails_at_a_destination_again_and_again_is_counted() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let mut pair = Pair::new(950, 1 << 20, LinkSettings::default()).await;
    pair.scribble(3);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let started = tokio::time::Instant::now();
    for n in 0..300 {
        let (relationship, transfer) = (mirror.status().relationship.id, Uuid::from_u128(1000 + n));
        link.call(begin(relationship, transfer), None).await.unwrap();
        ask_in_vain(&*link, transfer).await;
        let end = End { transfer: transfer.as_bytes().to_vec(), failure: "x".repeat(900), ..End::default() };
        link.call(request(Body::End(end)), None).await.unwrap();
    }
    let minutes = 1 + started.elapsed().as_secs() / LINES_EVERY.as_secs();
    let seen = lines.count("transfer failed at the destination") + lines.count("step not sent");
    println!("{seen} lines in {:?}", started.elapsed());
    assert!(seen >= 1 && seen as u64 <= minutes * u64::from(LINES_MAX), "{seen} lines");
    tokio::time::sleep(LINES_EVERY).await;
    let (relationship, transfer) = (mirror.status().relationship.id, Uuid::from_u128(5000));
    link.call(begin(relationship, transfer), None).await.unwrap();
    ask_in_vain(&*link, transfer).await;
    assert!(lines.count("suppressed=5") + lines.count("suppressed=4") >= 1, "what was left out is told");
}
