//! The server against clients of other projects: libnbd's tools, QEMU's, fio.
//!
//! A client that is not installed skips its tests, loudly; `FARSIDE_REQUIRE_TOOLS=1` makes that a failure.

mod support;

use std::path::Path;
use std::sync::Arc;

use farside_platform::{OsRandomness, Randomness};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use support::memory::{MemoryExport, MemorySource};
use support::serve::TestServer;
use support::tools::tool;

const MIB: u64 = 1 << 20;

fn seeded() -> StdRng {
    let seed = std::env::var("FARSIDE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| OsRandomness.next_u64());
    println!("seed {seed} (FARSIDE_SEED={seed} repeats this run)");
    StdRng::seed_from_u64(seed)
}

/// An image of `bytes` with runs of data and holes; a run is 4 KiB to 1 MiB.
fn image_with_holes(bytes: usize, random: &mut StdRng) -> Vec<u8> {
    let mut image = vec![0; bytes];
    let mut at = 0;
    while at < bytes {
        let run = (random.random_range(1..=256) * 4096).min(bytes - at);
        if random.random() {
            random.fill_bytes(&mut image[at..at + run]);
        }
        at += run;
    }
    image
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdinfo_shows_size_capabilities_and_exports() {
    let Some(nbdinfo) = tool("nbdinfo") else { return };
    let volume = Arc::new(MemoryExport::new(10 * MIB + 7));
    let snapshot = Arc::new(MemoryExport::new(4096).read_only().single_conn());
    let source = MemorySource::default().with("pool/volume", &volume).with("pool/volume@monday", &snapshot);
    let server = TestServer::start(source, farside_nbd::Limits::default());

    assert_eq!(nbdinfo.run(["--size", &server.uri("pool/volume")]).await.trim(), "10485767");

    let text = nbdinfo.run([server.uri("pool/volume")]).await;
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "in memory",
        "base:allocation",
        "is_read_only: false",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "can_cache: true",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let text = nbdinfo.run([server.uri("pool/volume@monday")]).await;
    for line in ["is_read_only: true", "can_multi_conn: false", "can_trim: false", "can_zero: false"] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }

    let list = nbdinfo.run(["--list", &server.uri("")]).await;
    assert!(list.contains("export=\"pool/volume\":"), "{list}");
    assert!(list.contains("export=\"pool/volume@monday\":"), "{list}");

    let refused = nbdinfo.run_failing([server.uri("pool/nothing")]).await;
    assert!(refused.contains("nbdinfo"), "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdinfo_maps_data_and_holes() {
    let Some(nbdinfo) = tool("nbdinfo") else { return };
    let export = Arc::new(MemoryExport::new(MIB));
    export.fill(64 << 10, &[1; 128 << 10]);
    let server = TestServer::of(&export);
    let map = nbdinfo.run(["--map", &server.uri("pool/volume")]).await;
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["0", "65536", "3", "hole,zero"],
            vec!["65536", "131072", "0", "data"],
            vec!["196608", "851968", "3", "hole,zero"]
        ]
    );
    server.stop().await;
}

/// More extents than one answer may hold: the client has to come back for the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdinfo_maps_more_extents_than_one_reply_holds() {
    let Some(nbdinfo) = tool("nbdinfo") else { return };
    let export = Arc::new(MemoryExport::new(128 * MIB));
    for block in (0..128 * MIB / 4096).step_by(2) {
        export.fill(block * 4096, &[1]);
    }
    let server = TestServer::of(&export);
    let map = nbdinfo.run(["--map", &server.uri("pool/volume")]).await;
    assert_eq!(map.lines().count() as u64, 128 * MIB / 4096);
    assert!(export.count(|call| call.name == "block_status") > 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdcopy_both_ways_over_several_connections() {
    let Some(nbdcopy) = tool("nbdcopy") else { return };
    let mut random = seeded();
    let image = image_with_holes(64 << 20, &mut random);
    for multi_conn in [true, false] {
        let export = MemoryExport::new(image.len() as u64);
        let export = Arc::new(if multi_conn { export } else { export.single_conn() });
        let server = TestServer::of(&export);
        let (from, to) = (path(server.directory.path(), "from"), path(server.directory.path(), "to"));
        std::fs::write(&from, &image).unwrap();
        nbdcopy.run(["--connections=4", "--flush", &from, &server.uri("pool/volume")]).await;
        assert!(export.bytes(0, image.len()) == image, "the volume is not what was copied into it");
        assert!(export.count(|call| call.name == "flush") > 0);

        nbdcopy.run(["--connections=4", &server.uri("pool/volume"), &to]).await;
        assert!(std::fs::read(&to).unwrap() == image, "the copy is not what the volume holds");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_img_converts_and_compares() {
    let Some(qemu_img) = tool("qemu-img") else { return };
    let mut random = seeded();
    let image = image_with_holes(48 << 20, &mut random);
    let export = Arc::new(MemoryExport::new(image.len() as u64));
    // What was there before must not shine through where the image has holes.
    export.fill(0, &vec![0xaa; image.len()]);
    let server = TestServer::of(&export);
    let uri = server.uri("pool/volume");
    let (from, to) = (path(server.directory.path(), "from"), path(server.directory.path(), "to.qcow2"));
    std::fs::write(&from, &image).unwrap();

    qemu_img.run(["convert", "-n", "-W", "-f", "raw", "-O", "raw", &from, &uri]).await;
    assert!(export.bytes(0, image.len()) == image, "the volume is not what was converted into it");
    qemu_img.run(["compare", "-f", "raw", "-F", "raw", &from, &uri]).await;

    qemu_img.run(["convert", "-f", "raw", "-O", "qcow2", &uri, &to]).await;
    qemu_img.run(["compare", "-f", "qcow2", "-F", "raw", &to, &uri]).await;

    export.fill(5 * MIB + 3, b"another byte or two");
    let told = qemu_img.run_failing(["compare", "-f", "raw", "-F", "raw", &from, &uri]).await;
    assert!(told.contains("mismatch at offset 5242880"), "{told}");

    let map = qemu_img.run(["map", "--output=json", "-f", "raw", &uri]).await;
    assert!(map.contains("\"zero\": true") && map.contains("\"zero\": false"), "{map}");

    for write in [false, true] {
        let mut arguments = vec!["bench", "-c", "4000", "-d", "32", "-s", "4096", "-f", "raw"];
        arguments.extend(write.then_some("-w"));
        arguments.push(&uri);
        println!("{}", qemu_img.run(arguments).await);
    }
    server.stop().await;
}

/// Runs commands of qemu-io on `uri`, in order, and returns what it said.
async fn qemu_io(tool: &support::tools::Tool, options: &[&str], uri: &str, commands: &[&str]) -> String {
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(options);
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(uri);
    tool.run(arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_io_sees_its_own_patterns_at_any_offset() {
    let Some(qemu) = tool("qemu-io") else { return };
    let export = Arc::new(MemoryExport::new(8 * MIB));
    let server = TestServer::of(&export);
    let said = qemu_io(
        &qemu,
        &["-t", "writeback"], // otherwise every write asks for FUA
        &server.uri("pool/volume"),
        &[
            "write -P 0x11 0 1M",
            "write -P 0x22 513 4099",
            "read -P 0x11 0 513",
            "read -P 0x22 513 4099",
            "read -P 0x11 4612 1043964",
            "write -z 4097 8190",
            "read -P 0 4097 8190",
            "write -z -u 100k 300k",
            "read -P 0 100k 300k",
            "write -P 0x33 -f 1M 3k",
            "read -P 0x33 1M 3k",
            "discard 512k 64k",
            "read -P 0 512k 64k",
            "write -P 0x44 8388607 1",
            "read -P 0x44 8388607 1",
            "flush",
        ],
    )
    .await;
    assert!(!said.contains("Pattern verification failed"), "{said}");
    assert_eq!(export.bytes(513, 1), [0x22]);
    assert_eq!(export.bytes(8 * MIB - 1, 1), [0x44]);
    assert_eq!(export.bytes(600 << 10, 1), [0x11], "past the discard");
    let count = |name: &str, fua: bool| export.count(|call| call.name == name && call.fua == fua);
    assert_eq!(count("write", true), 1, "the write with -f, and no other");
    assert_eq!(count("trim", false), 1);
    assert!(count("write_zeroes", false) >= 2);
    assert!(count("flush", false) >= 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_io_cannot_write_to_a_read_only_export() {
    let Some(qemu) = tool("qemu-io") else { return };
    let export = Arc::new(MemoryExport::new(MIB).read_only());
    export.fill(0, &[7; 4096]);
    let server = TestServer::of(&export);
    let uri = server.uri("pool/volume");
    let said = qemu_io(&qemu, &["-r"], &uri, &["read -P 7 0 4k", "read -P 0 4k 4k"]).await;
    assert!(!said.contains("failed"), "{said}");
    let said = qemu.run_failing(["-f", "raw", "-c", "write 0 4k", &uri]).await;
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(export.count(|call| call.name == "write"), 0);
    server.stop().await;
}

/// fio writes blocks that name their own place and checksum, many at once, and reads all of them back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fio_verifies_what_it_wrote() {
    let Some(fio) = tool("fio") else { return };
    let seed = seeded().next_u32();
    let export = Arc::new(MemoryExport::new(64 * MIB));
    let server = TestServer::of(&export);
    // 1536 bytes: most of them begin and end within a block that a neighbour in flight also writes to.
    for (name, block) in [("small", "4096"), ("unaligned", "1536"), ("large", "1048576")] {
        let report = fio
            .run([
                &format!("--name={name}"),
                "--ioengine=nbd",
                &format!("--uri={}", server.uri("pool/volume")),
                "--rw=randwrite",
                &format!("--bs={block}"),
                "--size=48m",
                "--iodepth=32",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
                "--verify_state_save=0", // it would leave files in the current directory
                "--fsync=200",
                &format!("--randseed={seed}"),
                "--thread",
            ])
            .await;
        assert!(report.contains("err= 0"), "{report}");
        let facts = report.lines().filter(|line| line.contains("IOPS="));
        facts.for_each(|line| println!("{name}: {}", line.trim()));
    }
    assert!(export.count(|call| call.name == "flush") > 0);
    server.stop().await;
}

/// An independent server of NBD as our client: what it passes on is what libnbd understood of us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdkit_proves_two_exports_equal() {
    let (Some(nbdkit), Some(_)) = (tool("nbdkit"), tool("nbdcopy")) else { return };
    let mut random = seeded();
    let image = image_with_holes(16 << 20, &mut random);
    let (one, two) = (MemoryExport::new(16 * MIB), MemoryExport::new(16 * MIB));
    one.fill(0, &image);
    two.fill(0, &image);
    let (one, two) = (Arc::new(one), Arc::new(two));
    let source = MemorySource::default().with("a/one", &one).with("a/two", &two);
    let server = TestServer::start(source, farside_nbd::Limits::default());
    let compare = format!("nbdcopy '{}' \"$uri\"", server.uri("a/one"));
    let target = format!("uri={}", server.uri("a/two"));
    let arguments = ["-U", "-", "--filter=checkwrite", "nbd", &target, "--run", &compare];
    nbdkit.run(arguments).await;

    two.fill(7 * MIB + 1, &[one.bytes(7 * MIB + 1, 1)[0] ^ 1]);
    nbdkit.run_failing(arguments).await;
    server.stop().await;
}
