//! The recovery page of the manual, run as written: every fence marked `sh,recovery`, in order, at a site whose
//! source has been killed.

mod support;

use std::path::Path;
use std::process::Command;

use support::Site;

/// Where a fence runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// At the far site, its daemon running.
    South,
    /// At the far site, its daemon stopped.
    SouthStopped,
    /// At the site that had died, running again.
    North,
}

/// The marked fences of the page, in order.
fn fences(page: &str) -> Vec<(At, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let at = match line.trim() {
            "```sh,recovery" => At::South,
            "```sh,recovery,stopped" => At::SouthStopped,
            "```sh,recovery,north" => At::North,
            other => {
                assert!(!other.starts_with("```sh,recovery"), "an unknown mark: {other}");
                continue;
            }
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
        found.push((at, body.join("\n")));
    }
    found
}

fn run(site: &Site, work: &Path, script: &str) {
    let path = format!(
        "{}:{}",
        Path::new(support::FARSIDE).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(work)
        .env("PATH", path)
        .env("DATA", &site.dir)
        .env("FARSIDE_SOCKET", site.dir.join("farside.sock"))
        .output()
        .unwrap();
    let (out, err) = (support::text(&output.stdout), support::text(&output.stderr));
    assert!(output.status.success(), "at {}:\n{script}\n{out}{err}", site.name);
}

#[test]
fn the_page_works_as_written() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/recovery.md");
    let fences = fences(&std::fs::read_to_string(page).unwrap());
    assert!(fences.len() >= 5, "only {} fences are marked", fences.len());

    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let (mut north, mut south) = (Site::start(root.path(), "north"), Site::start(root.path(), "south"));
    let pool = |site: &Site, name: &str| {
        site.ok(&format!(
            "pool create {name} --path {} --size 512M",
            site.dir.join(format!("{name}.pool")).display()
        ));
    };
    pool(&north, "tank");
    pool(&south, "vault");
    north.ok("volume create tank/mail --size 64M");
    // A real file system, with real files.
    run(
        &north,
        &work,
        "mkdir files && cp /etc/services /etc/passwd files/ && truncate -s 64M image && \
         mke2fs -q -t ext4 -d files image && \
         nbdcopy --flush image \"nbd+unix:///tank/mail?socket=$DATA/nbd.sock\"",
    );
    north.ok("snapshot create tank/mail@monday");
    std::fs::write(work.join("code"), north.ok("peer invite")).unwrap();
    south.ok(&format!(
        "peer join {} --code-file {}",
        north.published("peer.addr"),
        work.join("code").display()
    ));
    north.ok("peer allow south tank/mail");
    south.ok("mirror create north:tank/mail vault/mail");
    south.ok("mirror initialize vault/mail");
    south.ok("mirror update vault/mail");
    std::fs::remove_file(work.join("image")).unwrap();
    north.kill();

    let mut is_north_back = false;
    for (at, script) in fences {
        match at {
            At::South => run(&south, &work, &script),
            At::SouthStopped => {
                assert_eq!(south.stop(), Some(0));
                run(&south, &work, &script);
                south.restart();
            }
            At::North => {
                if !is_north_back {
                    north.restart();
                    is_north_back = true;
                }
                run(&north, &work, &script);
            }
        }
    }
}
