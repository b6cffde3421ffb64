//! A clock that steps. The machine's own is everybody's, so both sites' processes have one of their own: a few lines of C before the C
//! library, which add what a file says.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bed::{Bed, Wanted};
use crate::traffic::{MIB, Transfer, fetch, fetch_slowly, send_slowly};
use crate::watch::{UNNOTICED, report};

/// Monotonic time is not touched: no step changes that.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id != CLOCK_REALTIME || result) return result;
    char text[32] = {0};
    const char *path = getenv("STEPPED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
        close(file);
    }
    return result;
}
"#;

const DAY: i64 = 86_400;

fn compile(directory: &Path) -> std::path::PathBuf {
    let (source, shim) = (directory.join("clock.c"), directory.join("clock.so"));
    fs::write(&source, SHIM).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&shim, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success(), "cc");
    shim
}

#[test]
fn the_clock_steps() {
    let directory = tempfile::tempdir().unwrap();
    let (shim, offset) = (compile(directory.path()), directory.path().join("offset"));
    fs::write(&offset, "0").unwrap();
    let environment = vec![
        ("LD_PRELOAD".to_owned(), shim.display().to_string()),
        ("STEPPED_CLOCK".to_owned(), offset.display().to_string()),
    ];
    let Some(bed) = Bed::wanted(Wanted { environment, ..Wanted::default() }) else { return };
    bed.optimises(fetch(1, 4 * MIB));
    let opened_at =
        || bed.near.site.json("accel connections")[0]["opened_at"].as_str().unwrap()[..4].to_owned();
    let open = [fetch_slowly(1, 12 * MIB), send_slowly(2, 12 * MIB)];
    let open = open.map(|request| Transfer::start(&bed.client, request));
    open.iter().for_each(|transfer| transfer.is_at(MIB));
    let year = opened_at();

    let (watch, at) = (bed.watch(), Instant::now());
    for days in [3650, -3650, 1, 0] {
        // At once for both, as whoever reads it must not find half of it.
        let beside = directory.path().join("offset.new");
        fs::write(&beside, (days * DAY).to_string()).unwrap();
        fs::rename(&beside, &offset).unwrap();
        sleep(Duration::from_millis(500));
        if days == 3650 {
            assert_ne!(opened_at(), year, "the clock of the box has not stepped");
        }
    }
    let whole = open.map(|transfer| bed.whole_or_reset(transfer));
    let seen = watch.end(at, || bed.plain_ports());
    // What is started anew meets as well, with years between the two.
    fs::write(&offset, (-3650 * DAY).to_string()).unwrap();
    bed.near.signal(Signal::KILL);
    sleep(Duration::from_millis(500));
    bed.meet();
    bed.optimises(fetch(1, 4 * MIB));
    report("clock steps by ten years, to and fro", bed.resets() + seen.resets, &seen, "nothing is noticed");
    assert_eq!((whole, seen.resets), ([true; 2], 0), "{seen:?}");
    assert!(seen.is_mostly_optimised() && seen.slowest <= UNNOTICED, "{seen:?}");
}
