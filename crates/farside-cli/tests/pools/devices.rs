//! Raw devices: what is not ours is not destroyed, and a pool is open in one place only. With real loop devices; needs root.
//! Where there are none the tests say that they are skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Site, eventually, text};

const DEVICE_BYTES: u64 = 64 << 20;

/// A loop device on a file; detached in the end.
struct Loop(PathBuf);

impl Loop {
    /// A new device on `file`; none where there are no loop devices.
    fn on(file: &Path) -> Option<Loop> {
        Loop::with(file, &[])
    }

    /// One that sees at once what is written to the device below it, as partitions and device mapper do.
    fn above(device: &Loop) -> Option<Loop> {
        Loop::with(&device.0, &["--direct-io=on"])
    }

    fn with(file: &Path, arguments: &[&str]) -> Option<Loop> {
        // Two processes that look for a free one at once can choose the same.
        for _ in 0..20 {
            let output =
                Command::new("losetup").args(["--find", "--show"]).args(arguments).arg(file).output();
            match output {
                Ok(output) if output.status.success() => {
                    return Some(Loop(text(&output.stdout).trim().into()));
                }
                Ok(output) if text(&output.stderr).contains("busy") => {}
                other => return skipped(&format!("{other:?}")),
            }
        }
        skipped("no loop device became free")
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

fn skipped<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "no loop devices: {why}");
    eprintln!("**** skipped, no loop devices (root is needed): {why}");
    None
}

fn blank(directory: &Path) -> PathBuf {
    let file = directory.join("disk");
    std::fs::File::create(&file).unwrap().set_len(DEVICE_BYTES).unwrap();
    file
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_device_that_is_in_use_or_not_blank_is_not_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let file = blank(root.path());
    let Some(device) = Loop::on(&file) else { return };
    let site = Site::start(root.path(), "a");
    let create = format!("pool create raw --path {}", device.path());

    for (program, arguments, name) in [
        ("mkfs.ext4", &["-q", "-F", "-L", "precious"][..], "ext4 file system (labelled \"precious\")"),
        ("mkfs.btrfs", &["-q", "-f", "-m", "single", "-M"], "a btrfs file system"),
        ("mkfs.xfs", &["-q", "-f"], "an xfs file system"),
        ("mkswap", &[], "swap space"),
    ] {
        let path = device.path();
        if !run(program, &[arguments, &[path.as_str()]].concat()) {
            eprintln!("**** skipped, no {program}");
            continue;
        }
        let before = std::fs::read(&file).unwrap();
        let said = site.fails(4, &create);
        assert!(said.contains(name) && said.contains("--overwrite"), "{said}");
        let plan = site.json(&format!("{create} --plan"));
        assert!(plan["lost"][0].as_str().unwrap().contains(name), "{plan}");
        assert!(plan["refused"].is_string(), "{plan}");
        // Nobody can be asked here.
        site.fails(2, &format!("{create} --overwrite"));
        assert!(std::fs::read(&file).unwrap() == before, "{program}: something was written");
        assert_eq!(site.json("pool list").as_array().unwrap().len(), 0);
        run("wipefs", &["--all", "--quiet", &path]);
    }

    if run("mkfs.ext4", &["-q", "-F", &device.path()]) {
        let at = root.path().join("at");
        std::fs::create_dir(&at).unwrap();
        let at_text = at.display().to_string();
        if run("mount", &[&device.path(), &at_text]) {
            let mounted = Mounted(at.clone());
            std::fs::write(at.join("letter"), "dear").unwrap();
            let said = site.fails(4, &format!("{create} --overwrite --yes"));
            assert!(said.contains(&format!("mounted at {at_text}")), "{said}");
            drop(mounted);
            assert!(run("mount", &[&device.path(), &at_text]), "the file system is gone");
            let _mounted = Mounted(at.clone());
            assert_eq!(std::fs::read_to_string(at.join("letter")).unwrap(), "dear");
        }
    }

    site.ok(&format!("{create} --overwrite --yes"));
    site.ok("volume create raw/v --size 1M");
    // What is deleted leaves a device that is blank again where it is looked at.
    site.ok("pool delete raw --yes");
    site.ok(&create);
    let said = site.fails(4, &format!("pool create other --path {}", device.path()));
    assert!(said.contains("is the place of pool raw"), "{said}");
}

#[test]
fn a_pool_takes_what_its_device_has_become() {
    let root = tempfile::tempdir().unwrap();
    let file = blank(root.path());
    let Some(device) = Loop::on(&file) else { return };
    let mut site = Site::start(root.path(), "a");
    site.ok(&format!("pool create raw --path {}", device.path()));
    let before = site.json("pool status raw")["size_bytes"].as_u64().unwrap();
    let said = site.fails(4, &format!("pool grow raw --size {}", 2 * before));
    assert!(said.contains("larger first"), "{said}");
    std::fs::File::options().write(true).open(&file).unwrap().set_len(2 * before).unwrap();
    assert!(run("losetup", &["--set-capacity", &device.path()]));
    assert_eq!(site.json("pool grow raw")["size_bytes"], 2 * before);
    site.ok("volume create raw/v --size 1M");
    assert_eq!(site.stop(), Some(0));
    crate::support::check_pool(Path::new(&device.path()));
}

#[test]
fn another_node_of_the_device_does_not_open_the_pool_twice() {
    let root = tempfile::tempdir().unwrap();
    let Some(device) = Loop::on(&blank(root.path())) else { return };
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    a.ok(&format!("pool create raw --path {}", device.path()));
    let number = {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&device.0).unwrap().rdev()
    };
    let node = root.path().join("othernode");
    let (major, minor) = (rustix::fs::major(number).to_string(), rustix::fs::minor(number).to_string());
    if !run("mknod", &[&node.display().to_string(), "b", &major, &minor]) {
        return;
    }
    let said = b.fails(4, &format!("pool import raw --path {}", node.display()));
    assert!(said.contains("in use"), "{said}");
}

#[test]
fn a_second_host_on_the_same_disk_is_refused_and_force_stops_the_first() {
    let root = tempfile::tempdir().unwrap();
    // Two devices of one disk: what two hosts see of a LUN, or one host by two paths. The disk is no file that could be locked.
    let Some(disk) = Loop::on(&blank(root.path())) else { return };
    let (Some(one), Some(two)) = (Loop::on(&disk.0), Loop::on(&disk.0)) else { return };
    let (mut a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    a.ok(&format!("pool create raw --path {}", one.path()));
    a.ok("volume create raw/v --size 4M");
    let mut host = a.nbd("raw/v");
    host.write(0, &[7; 4096]).unwrap();
    host.flush().unwrap();

    let import = format!("pool import raw --path {}", two.path());
    let said = b.fails(4, &import);
    assert!(said.contains(&format!("process {}", a.pid())) && said.contains("--force"), "{said}");
    host.write(4096, &[8; 4096]).unwrap();
    host.flush().unwrap();

    b.ok(&format!("{import} --force"));
    eventually("the first stops", || a.json("pool list")[0]["state"] == "read-only");
    assert!(host.write(8192, &[9; 4096]).and_then(|()| host.flush()).is_err());
    let health = a.http("/healthz");
    assert!(
        health.contains("somebody else has written") && health.contains("farside pool reopen raw"),
        "{health}"
    );
    let mut back = b.nbd("raw/v");
    assert_eq!(
        (back.bytes(0, 4096).unwrap(), back.bytes(4096, 4096).unwrap()),
        (vec![7; 4096], vec![8; 4096])
    );
    back.write(8192, &[10; 4096]).unwrap();
    back.flush().unwrap();

    // The other way round, with the other closed in good order: at once.
    drop(back);
    drop(b);
    a.ok("pool reopen raw --force");
    assert_eq!(a.nbd("raw/v").bytes(8192, 4096).unwrap(), vec![10; 4096]);
    // A daemon of this machine that was killed is known to be gone.
    a.kill();
    a.restart();
    assert_eq!(a.json("pool list")[0]["state"], "open");
    assert!(!a.log().lines().last().unwrap_or_default().contains("watched"), "{}", a.log());
}

/// Who comes second is refused with the first's process, and the first goes on.
fn only_the_first_has_it(first: &Site, second: &Site, path: &str, number: usize) {
    let mut host = first.nbd("p/v");
    let said = second.fails(4, &format!("pool import p --path {path}"));
    assert!(said.contains(&format!("process {}", first.pid())) && said.contains("in use"), "{said}");
    for at in 0..8 {
        host.write(at * 4096, &[number as u8; 4096]).unwrap();
        host.flush().unwrap();
    }
    first.ok(&format!("volume create p/more{number} --size 1M"));
    assert_eq!(host.bytes(4096, 4096).unwrap(), vec![number as u8; 4096]);
    assert_eq!(first.json("pool list")[0]["state"], "open");
}

#[test]
fn a_pool_file_and_a_loop_device_of_it_are_not_open_at_once() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("p.pool");
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    a.ok(&format!("pool create p --path {} --size 64M", file.display()));
    a.ok("volume create p/v --size 4M");
    let Some(device) = Loop::on(&file) else { return };

    // The file first.
    only_the_first_has_it(&a, &b, &device.path(), 1);
    let said = a.fails(4, &format!("pool import q --path {}", device.path()));
    assert!(said.contains(&format!("process {}", a.pid())), "{said}");
    // Nothing of this machine can be taken by force.
    b.fails(4, &format!("pool import p --path {} --force", device.path()));
    drop(a);

    // The device first.
    b.ok(&format!("pool import p --path {}", device.path()));
    let a = Site::start(root.path(), "a");
    assert_eq!(a.json("pool list")[0]["state"], "failed");
    a.ok("pool delete p --yes");
    only_the_first_has_it(&b, &a, &file.display().to_string(), 2);
    drop(b);
    drop(device);
    check_passes(&file);
}

#[test]
fn what_lies_on_a_loop_device_of_a_pool_file_is_told_by_the_claim() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("p.pool");
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    a.ok(&format!("pool create p --path {} --size 64M", file.display()));
    a.ok("volume create p/v --size 4M");
    let Some(below) = Loop::on(&file) else { return };
    // No file lies behind it: the kernel's locks know nothing of each other.
    let Some(above) = Loop::above(&below) else { return };
    only_the_first_has_it(&a, &b, &above.path(), 1);
    drop(a);
    b.ok(&format!("pool import p --path {}", above.path()));
    let a = Site::start(root.path(), "a");
    let error = a.json("pool list")[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains(&format!("process {}", b.pid())), "{error}");
    a.ok("pool delete p --yes");
    only_the_first_has_it(&b, &a, &file.display().to_string(), 2);
    drop((b, above, below));
    check_passes(&file);
}

#[test]
fn a_restart_waits_for_no_claim_where_the_pool_is_a_file() {
    let root = tempfile::tempdir().unwrap();
    let mut a = Site::start(root.path(), "a");
    a.ok(&format!("pool create p --path {} --size 64M", root.path().join("p.pool").display()));
    a.ok("volume create p/v --size 4M");
    a.kill();
    a.restart();
    assert_eq!(a.json("pool list")[0]["state"], "open");
    // A copy that was made while the pool was open says that it is open, by a process that lives.
    let copy = root.path().join("copy.pool");
    std::fs::copy(root.path().join("p.pool"), &copy).unwrap();
    let b = Site::start(root.path(), "b");
    b.ok(&format!("pool import p --path {}", copy.display()));
    assert!(!(a.log() + &b.log()).contains("watched"), "{}\n{}", a.log(), b.log());
}

fn check_passes(pool: &Path) {
    let output = Command::new(crate::support::FARSIDE).args(["pool", "check"]).arg(pool).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
