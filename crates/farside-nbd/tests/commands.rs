//! What commands do, in what order they are answered, and how connections end.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use farside_nbd::{BindError, ErrorKind, Limits, NbdError, bind_unix};
use support::gate::gated;
use support::memory::{Call, MemoryExport, MemorySource};
use support::raw::*;
use support::serve::{TestServer, ended, serve_pair, server_of};
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;

/// A client of `export`, structured, with the task that serves it.
async fn client_of(
    export: &Arc<MemoryExport>,
    limits: Limits,
    shutdown: &CancellationToken,
) -> (RawClient, tokio::task::JoinHandle<()>) {
    let (stream, served) = serve_pair(&server_of(export, limits), shutdown);
    (RawClient::opened(stream, "pool/volume", true).await, served)
}

async fn simple_client_of(export: &Arc<MemoryExport>) -> RawClient {
    let (stream, _) = serve_pair(&server_of(export, Limits::default()), &CancellationToken::new());
    RawClient::opened(stream, "pool/volume", false).await
}

#[tokio::test]
async fn holes_travel_as_holes_unless_the_client_wants_one_piece() {
    let export = Arc::new(MemoryExport::new(MIB));
    export.fill(0, &[1; 4096]);
    export.fill(256 << 10, &[2; 8192]);
    let length = (256 << 10) + 4096;
    let mut expected = vec![0; length];
    expected[..4096].fill(1);
    expected[256 << 10..].fill(2);

    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    let answer = client.command(0, READ, 0, length as u32).await;
    assert_eq!(answer.chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(answer.chunks[0].1[8..], expected[..4096]);
    assert_eq!(answer.chunks[1].1, [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 3, 0xf0, 0]);
    assert_eq!(answer.chunks[2].1[8..], expected[256 << 10..]);
    let read: u64 = export.calls().iter().filter(|call| call.name == "read").map(|call| call.length).sum();
    assert_eq!(read, 8192, "holes are not read");

    let answer = client.command(DF, READ, 0, length as u32).await;
    assert_eq!(answer.chunks.len(), 1);
    assert_eq!(answer.chunks[0].1[8..], expected);

    let whole_hole = client.command(0, READ, 512 << 10, 128 << 10).await;
    assert_eq!(whole_hole.chunks, [(2, vec![0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0])]);

    let short = client.command(0, READ, 32 << 10, 4096).await;
    assert_eq!(short.chunks[0].1[8..], [0; 4096], "a short read is not looked through for holes");

    let mut client = simple_client_of(&export).await;
    assert_eq!(client.command(0, READ, 0, length as u32).await.chunks, [(1, expected)]);
}

#[tokio::test]
async fn block_status_reports_extents_from_any_byte() {
    let export = Arc::new(MemoryExport::new(MIB));
    export.fill(8192, &[1; 4096]);
    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    let extents = |answer: Answer| -> Vec<(u32, u32)> {
        assert_eq!(answer.chunks.len(), 1);
        let (kind, payload) = &answer.chunks[0];
        assert_eq!((*kind, &payload[..4]), (5, &[0, 0, 0, 1][..]));
        let words: Vec<u32> =
            payload[4..].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        words.chunks(2).map(|pair| (pair[0], pair[1])).collect()
    };
    let told = extents(client.command(0, BLOCK_STATUS, 100, 20_000).await);
    assert_eq!(told, [(8092, 3), (4096, 0), (7812, 3)]);
    let told = extents(client.command(REQ_ONE, BLOCK_STATUS, 9000, 20_000).await);
    assert_eq!(told, [(3288, 0)]);
}

#[tokio::test]
async fn a_context_counts_for_the_export_it_was_chosen_for() {
    let export = Arc::new(MemoryExport::new(MIB));
    let source = MemorySource::default().with("one", &export).with("two", &export);
    let server = TestServer::start(source, Limits::default());
    for (opened, error) in [("one", 0), ("two", EINVAL)] {
        let mut client = RawClient::connect(&server.socket).await;
        client.send(&3_u32.to_be_bytes()).await;
        client.option(OPT_STRUCTURED_REPLY, &[]).await;
        let query = [string("one"), vec![0, 0, 0, 1], string("base:allocation")].concat();
        assert_eq!(client.option(OPT_SET_META_CONTEXT, &query).await[0].0, REP_META_CONTEXT);
        client.option(OPT_GO, &go(opened)).await;
        client.structured = true;
        assert_eq!(client.command(0, BLOCK_STATUS, 0, 4096).await.error, error, "{opened}");
    }
    server.stop().await;
}

#[tokio::test]
async fn flags_reach_the_export() {
    let export = Arc::new(MemoryExport::new(MIB));
    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    for flags in [0, FUA] {
        assert_eq!(client.write(flags, 1, b"x").await.error, 0);
        assert_eq!(client.command(flags, TRIM, 2, 9000).await.error, 0);
        assert_eq!(client.command(flags, WRITE_ZEROES, 3, 9000).await.error, 0);
        assert_eq!(client.command(flags, FLUSH, 0, 0).await.error, 0);
    }
    let call = |name, offset, length, fua| Call { name, offset, length, fua };
    let expected = [
        call("write", 1, 1, false),
        call("trim", 2, 9000, false),
        call("write_zeroes", 3, 9000, false),
        call("flush", 0, 0, false),
        call("write", 1, 1, true),
        call("trim", 2, 9000, true),
        call("write_zeroes", 3, 9000, true),
        call("flush", 0, 0, false),
    ];
    assert_eq!(export.calls(), expected);
}

/// The memory export cannot zero fast without making holes, and says so.
#[tokio::test]
async fn zeros_that_must_be_fast_or_keep_their_room() {
    let export = Arc::new(MemoryExport::new(MIB));
    export.fill(0, &[1; 16384]);
    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    assert_eq!(client.command(FAST_ZERO | NO_HOLE, WRITE_ZEROES, 0, 8192).await.error, ENOTSUP);
    assert_eq!(export.bytes(0, 8192), [1; 8192], "nothing was changed");
    assert_eq!(client.command(NO_HOLE, WRITE_ZEROES, 0, 8192).await.error, 0);
    assert_eq!(export.allocated_bytes(), 16384);
    assert_eq!(client.command(FAST_ZERO, WRITE_ZEROES, 0, 8192).await.error, 0);
    assert_eq!(export.allocated_bytes(), 8192);
    assert_eq!(export.bytes(0, 16384), [vec![0; 8192], vec![1; 8192]].concat());
}

#[tokio::test]
async fn errors_of_the_export_reach_the_client_with_number_and_text() {
    let kinds = [
        (ErrorKind::Io, EIO),
        (ErrorKind::NoSpace, ENOSPC),
        (ErrorKind::NotPermitted, EPERM),
        (ErrorKind::Invalid, EINVAL),
        (ErrorKind::NotSupported, ENOTSUP),
        (ErrorKind::ShuttingDown, 108),
    ];
    let export = Arc::new(MemoryExport::with_hook(MIB, move |call| {
        let (kind, _) = kinds[(call.offset / 4096) as usize];
        Err(NbdError::new(kind, format_args!("block {} is not what it was", call.offset / 4096)))
    }));
    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    let mut simple = simple_client_of(&export).await;
    for (block, (_, number)) in (0_u64..).zip(kinds) {
        let answer = client.command(0, READ, block * 4096, 4096).await;
        assert_eq!(answer.error, number);
        let text = String::from_utf8_lossy(&answer.chunks[0].1[6..]).into_owned();
        assert_eq!(text, format!("block {block} is not what it was"));
        assert_eq!(simple.write(0, block * 4096, b"x").await.error, number);
    }
}

/// Writes of so many bytes each, in one piece: number `n` fills its place with `n`.
fn writes(lengths: &[u32]) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut offset = 0;
    for (number, length) in (0..).zip(lengths) {
        sent.extend(request(0, WRITE, number, offset, *length));
        sent.extend(vec![number as u8; *length as usize]);
        offset += u64::from(*length);
    }
    sent
}

async fn answers(client: &mut RawClient, count: u64) -> Vec<u32> {
    let mut errors = vec![u32::MAX; count as usize];
    for _ in 0..count {
        let answer = client.answer(0).await;
        errors[answer.cookie as usize] = answer.error;
    }
    errors
}

#[tokio::test]
async fn small_writes_that_arrive_together_are_carried_out_together_and_answered_each_for_itself() {
    let export = Arc::new(MemoryExport::with_hook(16 * MIB, |call| {
        if call.offset == 2 * 4096 { Err(NbdError::new(ErrorKind::NoSpace, "no room")) } else { Ok(()) }
    }));
    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    client.send(&writes(&[4096; 7])).await;
    assert_eq!(answers(&mut client, 7).await, [0, 0, ENOSPC, 0, 0, 0, 0]);
    assert!(export.joined().iter().any(|count| *count > 1), "{:?}", export.joined());
    assert_eq!(export.bytes(4 * 4096, 4096), [4; 4096]);

    // As many as there is room for; a long one goes alone.
    let before = export.joined().len();
    let lengths = [&[4096; 100][..], &[200_000], &[32768; 10], &[1; 100]].concat();
    client.send(&writes(&lengths)).await;
    let errors = answers(&mut client, lengths.len() as u64).await;
    assert_eq!(errors.iter().filter(|error| **error != 0).count(), 1);
    let joined = export.joined().split_off(before);
    assert_eq!(joined.iter().sum::<usize>(), lengths.len());
    assert!(joined.iter().all(|count| *count <= 64), "{joined:?}");
}

#[tokio::test]
async fn what_is_remembered_is_read_where_it_arrives_and_the_rest_by_a_call() {
    let export = Arc::new(MemoryExport::new(MIB).remembering(|offset| offset / 4096 % 3 == 0));
    export.fill(0, &(0..MIB).map(|at| (at / 4096) as u8).collect::<Vec<u8>>());
    for structured in [true, false] {
        let mut client = match structured {
            true => client_of(&export, Limits::default(), &CancellationToken::new()).await.0,
            false => simple_client_of(&export).await,
        };
        let before = export.calls().len();
        // More than are carried out where they arrive, and one that is long.
        let lengths = [&[4096; 60][..], &[40_000]].concat();
        let sent = (0..).zip(&lengths).map(|(n, length)| request(0, READ, n, n * 4096, *length));
        client.send(&sent.collect::<Vec<_>>().concat()).await;
        let mut answered = vec![false; lengths.len()];
        for _ in &lengths {
            // A simple reply does not say how long it is: the long one comes alone.
            let answer = client.answer(4096).await;
            let (number, payload) = (answer.cookie as usize, &answer.chunks[0].1);
            assert_eq!(answer.error, 0);
            let data = if structured { &payload[8..] } else { &payload[..] };
            assert!(data.iter().take(4096).all(|byte| *byte == number as u8), "{number}");
            if !structured && lengths[number] > 4096 {
                client.take(lengths[number] as usize - 4096).await;
            }
            assert!(!std::mem::replace(&mut answered[number], true), "{number} was answered twice");
        }
        let read: Vec<u64> = export.calls().split_off(before).iter().map(|call| call.offset / 4096).collect();
        assert!((0..60).filter(|n| n % 3 != 0).all(|n| read.contains(&n)), "{read:?}");
        assert!(read.iter().filter(|n| *n % 3 == 0).count() < 20, "{read:?}");
    }
}

#[tokio::test]
async fn what_arrived_whole_waits_for_nothing_that_comes_after_it() {
    let export = Arc::new(MemoryExport::new(MIB));
    // Room for two commands: the third waits for those before it.
    let limits = Limits { requests_in_flight_max: 2, ..Limits::default() };
    let (mut client, _) = client_of(&export, limits, &CancellationToken::new()).await;
    client.send(&writes(&[512; 9])).await;
    assert_eq!(answers(&mut client, 9).await, [0; 9]);
    // The next command's header is cut off, then its payload.
    let whole = writes(&[4096, 4096]);
    for cut in [4096 + 28 + 5, 4096 + 28 + 28 + 100] {
        client.send(&whole[..cut]).await;
        assert_eq!(client.answer(0).await.cookie, 0);
        client.send(&whole[cut..]).await;
        assert_eq!(client.answer(0).await.cookie, 1);
    }
}

#[tokio::test]
async fn writes_that_came_before_the_end_are_carried_out() {
    for end in [request(0, DISC, 9, 0, 0), b"this is no command, but it is as long".to_vec()] {
        let export = Arc::new(MemoryExport::new(MIB));
        let (mut client, served) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
        client.send(&[writes(&[4096, 100]), end].concat()).await;
        ended(served).await;
        assert_eq!(export.bytes(4096, 100), [1; 100]);
    }
}

#[tokio::test]
async fn a_panic_in_an_export_fails_one_command() {
    let export = Arc::new(MemoryExport::with_hook(MIB, |call| {
        assert!(call.offset != 4096, "on purpose");
        Ok(())
    }));
    let limits = Limits { threads_max: 1, ..Limits::default() };
    let (mut client, _) = client_of(&export, limits, &CancellationToken::new()).await;
    assert_eq!(client.command(0, READ, 4096, 512).await.error, EIO);
    assert_eq!(client.command(0, READ, 0, 512).await.error, 0);
}

#[tokio::test]
async fn the_old_way_in_gives_simple_replies() {
    let export = Arc::new(MemoryExport::new(MIB));
    export.fill(0, b"hello");
    let server = TestServer::of(&export);
    for (client_flags, zeros) in [(1_u32, 124), (3, 0)] {
        let mut client = RawClient::connect(&server.socket).await;
        client.send(&client_flags.to_be_bytes()).await;
        client.send(&option(OPT_EXPORT_NAME, b"pool/volume")).await;
        assert_eq!(client.take(8).await, MIB.to_be_bytes());
        assert_eq!(client.take(2).await, 0b1101_0110_1101_u16.to_be_bytes());
        assert_eq!(client.take(zeros).await, vec![0; zeros]);
        assert_eq!(client.command(0, READ, 0, 5).await.chunks, [(1, b"hello".to_vec())]);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_command_is_answered_when_the_export_has_done_it_and_others_meanwhile() {
    let (export, gate, mut arrivals) = gated(MIB, "write");
    let (mut client, _) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    client.send(&request(0, WRITE, 1, 0, 4)).await;
    client.send(b"late").await;
    arrivals.next().await;
    for _ in 0..3 {
        assert_eq!(client.command(0, READ, 0, 4).await.chunks[0].1[8..], [0; 4], "the write is not done");
    }
    gate.let_pass(1);
    assert_eq!(client.answer(0).await.cookie, 1);
    assert_eq!(client.command(0, READ, 0, 4).await.chunks[0].1[8..], *b"late");
}

#[tokio::test]
async fn commands_in_flight_are_bounded_in_number() {
    let (export, gate, mut arrivals) = gated(MIB, "read");
    let limits = Limits { requests_in_flight_max: 4, ..Limits::default() };
    let (mut client, _) = client_of(&export, limits, &CancellationToken::new()).await;
    for cookie in 0..20 {
        client.send(&request(0, READ, cookie, 0, 1)).await;
    }
    for _ in 0..4 {
        arrivals.next().await;
    }
    for _ in 0..20 {
        gate.let_pass(1);
        client.answer(1).await;
    }
    assert_eq!(gate.inside_max(), 4);
}

#[tokio::test]
async fn commands_in_flight_are_bounded_in_bytes() {
    let (export, gate, mut arrivals) = gated(64 * MIB, "write");
    let limits = Limits { connection_bytes_max: 0, ..Limits::default() }; // raised to one longest request
    let (client, _) = client_of(&export, limits, &CancellationToken::new()).await;
    let (mut from, mut to) = client.stream.into_split();
    let sent = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        for cookie in 0..6 {
            to.write_all(&request(0, WRITE, cookie, 0, 12 << 20)).await.unwrap();
            to.write_all(&vec![1; 12 << 20]).await.unwrap();
        }
        to
    });
    arrivals.next().await;
    arrivals.next().await;
    gate.let_pass(6);
    use tokio::io::AsyncReadExt;
    from.read_exact(&mut [0; 6 * 16]).await.unwrap();
    assert_eq!(gate.inside_max(), 2, "three of 12 MiB are more than 32 MiB");
    sent.await.unwrap();
}

#[tokio::test]
async fn a_shutdown_finishes_what_is_under_way() {
    let (export, gate, mut arrivals) = gated(MIB, "write");
    let server = TestServer::of(&export);
    let mut client = RawClient::open(&server.socket, "pool/volume", false).await;
    let mut in_handshake = RawClient::connect(&server.socket).await;
    client.send(&request(0, WRITE, 1, 0, 4)).await;
    client.send(b"last").await;
    arrivals.next().await;
    let socket = server.socket.clone();
    server.shutdown.cancel();
    assert_eq!(in_handshake.take_to_end().await, b"");
    gate.let_pass(1);
    assert_eq!(client.answer(0).await.error, 0);
    assert_eq!(client.take_to_end().await, b"");
    server.stop().await;
    assert_eq!(export.bytes(0, 4), b"last");
    assert!(!socket.exists(), "the socket's file is removed");
}

#[tokio::test]
async fn a_shutdown_without_grace_for_clients_still_waits_for_calls() {
    let (export, gate, mut arrivals) = gated(MIB, "write");
    let limits = Limits { shutdown_grace: Duration::ZERO, ..Limits::default() };
    let shutdown = CancellationToken::new();
    let (mut client, served) = client_of(&export, limits, &shutdown).await;
    client.send(&request(0, WRITE, 1, 0, 4)).await;
    client.send(b"slow").await;
    arrivals.next().await;
    shutdown.cancel();
    // Not to wait for anything: it gives a server that does not wait the time to be wrong.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!served.is_finished());
    gate.let_pass(1);
    ended(served).await;
    assert_eq!(export.bytes(0, 4), b"slow");
    assert_eq!(Arc::strong_count(&export), 1, "server and connection have released it");
}

#[tokio::test]
async fn an_owner_can_end_the_connections_of_an_export() {
    let (export, gate, mut arrivals) = gated(MIB, "read");
    let (mut client, served) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    client.send(&request(0, READ, 1, 0, 4)).await;
    arrivals.next().await;
    export.closed.cancel();
    gate.let_pass(1);
    assert_eq!(client.answer(4).await.error, 0);
    assert_eq!(client.take_to_end().await, b"");
    ended(served).await;
    assert_eq!(Arc::strong_count(&export), 1, "server and connection have released it");
}

#[tokio::test]
async fn a_client_that_dies_leaves_its_commands_to_be_done() {
    let (export, gate, mut arrivals) = gated(MIB, "write");
    let (mut client, served) = client_of(&export, Limits::default(), &CancellationToken::new()).await;
    for (cookie, bytes) in (0..).zip([b"one!", b"two!"]) {
        client.send(&request(0, WRITE, cookie, 4 * cookie, 4)).await;
        client.send(bytes).await;
        arrivals.next().await;
    }
    drop(client);
    gate.let_pass(2);
    ended(served).await;
    assert_eq!(export.bytes(0, 8), b"one!two!");
    assert_eq!(Arc::strong_count(&export), 1, "server and connection have released it");
}

#[tokio::test]
async fn the_socket_is_private_from_the_start_and_never_taken_from_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let listener = bind_unix(&path, 0o660).unwrap();
    assert_eq!(mode(&path), 0o660);
    assert!(matches!(bind_unix(&path, 0o660), Err(BindError::InUse { .. })));
    drop(listener); // as a server that was killed leaves it
    let _listener = bind_unix(&path, 0o600).unwrap();
    assert_eq!(mode(&path), 0o600);

    let file = directory.path().join("file");
    std::fs::write(&file, b"precious").unwrap();
    assert!(matches!(bind_unix(&file, 0o660), Err(BindError::NotASocket { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");

    let long = directory.path().join("x".repeat(120));
    assert!(matches!(bind_unix(&long, 0o660), Err(BindError::Io { .. })));
}

fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(export);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|number| u32::from_be_bytes(number.try_into().expect("four bytes"))).collect()
}

#[tokio::test]
async fn several_contexts_are_answered_side_by_side() {
    let export = Arc::new(MemoryExport::new(MIB));
    export.fill(4096, &[1; 4096]);
    let server = TestServer::of(&export);
    let mut client = RawClient::connect(&server.socket).await;
    client.send(&3_u32.to_be_bytes()).await;
    client.option(OPT_STRUCTURED_REPLY, &[]).await;
    let listed = client.option(OPT_LIST_META_CONTEXT, &contexts("pool/volume", &["test:"])).await;
    assert_eq!(listed.len(), 99 + 1);
    assert!(listed[..99].iter().all(|answer| answer.0 == REP_META_CONTEXT && answer.1[..4] == [0; 4]));

    let many: Vec<String> = (1..=17).map(|number| format!("test:multiples:{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = client.option(OPT_SET_META_CONTEXT, &contexts("pool/volume", &many)).await;
    assert_eq!(refused[0].0, REP_ERR_TOO_BIG);
    let too_many = vec!["x:y"; 65];
    let refused = client.option(OPT_SET_META_CONTEXT, &contexts("pool/volume", &too_many)).await;
    assert_eq!(refused[0].0, REP_ERR_INVALID);

    let wanted =
        ["test:multiples:3", "base:allocation", "test:multiples:3", "other:thing", "test:multiples:2"];
    let chosen = client.option(OPT_SET_META_CONTEXT, &contexts("pool/volume", &wanted)).await;
    let names: Vec<String> =
        chosen[..3].iter().map(|a| String::from_utf8(a.1[4..].to_vec()).unwrap()).collect();
    assert_eq!(names, ["base:allocation", "test:multiples:3", "test:multiples:2"]);
    let ids: Vec<u32> = chosen[..3].iter().map(|answer| numbers(&answer.1[..4])[0]).collect();
    client.option(OPT_GO, &go("pool/volume")).await;
    client.structured = true;
    let answer = client.command(0, BLOCK_STATUS, 2048, 4 * 4096).await;
    let said: Vec<Vec<u32>> = answer.chunks.iter().map(|(_, chunk)| numbers(chunk)).collect();
    assert_eq!(answer.chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), [5, 5, 5]);
    assert_eq!(said[0], [ids[0], 2048, 3, 4096, 0, 2 * 4096 + 2048, 3]);
    assert_eq!(said[1], [ids[1], 2048, 1, 2 * 4096, 0, 4096, 1, 2048, 0]);
    assert_eq!(said[2], [ids[2], 2048, 1, 4096, 0, 4096, 1, 4096, 0, 2048, 1]);
    let one = client.command(REQ_ONE, BLOCK_STATUS, 0, 4 * 4096).await;
    assert_eq!(one.chunks.iter().map(|(_, chunk)| chunk.len()).collect::<Vec<_>>(), [12, 12, 12]);
    server.stop().await;
}

#[tokio::test]
async fn cache_is_a_command_without_payload() {
    let export = Arc::new(MemoryExport::new(MIB).read_only());
    let server = TestServer::of(&export);
    let mut client = RawClient::open(&server.socket, "pool/volume", true).await;
    assert_eq!(client.command(0, CACHE, 4096, MIB as u32 - 4096).await.error, 0);
    assert_eq!(export.count(|call| call.name == "cache" && call.offset == 4096), 1);
    assert_eq!(client.command(0, CACHE, 4096, MIB as u32).await.error, EINVAL);
    assert_eq!(client.command(FAST_ZERO, CACHE, 0, 4096).await.error, EINVAL);
    server.stop().await;
}
