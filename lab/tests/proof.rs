//! The proof that all contenders' scripts share (`same` in `lab/contenders/data.sh`) sees what it must see: a copy that
//! differs in one thing does not count.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// Runs `same` on `copy` as a `verify` script would, with more commands after it.
fn same(kind: &str, volumes: u32, new: &Path, copy: &Path) -> Output {
    let contenders = Path::new(env!("CARGO_MANIFEST_DIR")).join("contenders");
    Command::new("bash")
        .args(["-euo", "pipefail", "-c"])
        .arg(". \"$CONTENDERS/data.sh\"\nverify() { if true; then same \"$1\"; fi; echo proved; }\nverify \"$COPY\"")
        .env("CONTENDERS", contenders)
        .env("KIND", kind)
        .env("VOLUMES", volumes.to_string())
        .env("NEW", new)
        .env("COPY", copy)
        .output()
        .expect("bash is there")
}

fn is_proved(output: &Output) -> bool {
    let proved = String::from_utf8_lossy(&output.stdout).contains("proved");
    assert_eq!(proved, output.status.success(), "what failed must not go on: {output:?}");
    proved
}

#[test]
fn images_are_compared_byte_by_byte_and_all_of_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let [new, copy] = ["new", "copy"].map(|name| directory.path().join(name));
    let whole = vec![7; 100_000];
    let lay = || {
        for place in [&new, &copy] {
            fs::create_dir_all(place).expect("made");
            for volume in ["0.img", "1.img"] {
                fs::write(place.join(volume), &whole).expect("written");
            }
        }
    };
    lay();
    assert!(is_proved(&same("image", 2, &new, &copy)));
    for volume in ["0.img", "1.img"] {
        let mut other = whole.clone();
        other[50_000] = 8;
        for damaged in [other, whole[..99_999].to_vec(), [whole.clone(), vec![7]].concat()] {
            lay();
            fs::write(copy.join(volume), damaged).expect("written");
            assert!(!is_proved(&same("image", 2, &new, &copy)), "{volume}");
        }
        lay();
        fs::remove_file(copy.join(volume)).expect("removed");
        assert!(!is_proved(&same("image", 2, &new, &copy)), "{volume} is missing");
    }
}

fn lay_tree(tree: &Path) {
    fs::create_dir_all(tree.join("empty")).expect("made");
    for (name, text) in [("file", "text"), ("of two\nlines", "x"), ("tool", "#!/bin/sh"), ("linked", "y")] {
        fs::write(tree.join(name), text).expect("written");
    }
    fs::set_permissions(tree.join("tool"), Permissions::from_mode(0o755)).expect("set");
    fs::hard_link(tree.join("linked"), tree.join("also linked")).expect("linked");
    symlink("file", tree.join("link")).expect("linked");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for name in ["file", "of two\nlines", "tool", "linked", "empty", ""] {
        fs::File::open(tree.join(name)).and_then(|file| file.set_modified(then)).expect("set");
    }
    // A link's own time is set by no call of the standard library: one tree is the other's copy.
}

#[test]
fn trees_are_compared_in_content_names_modes_links_and_times() {
    let directory = tempfile::tempdir().expect("a directory");
    let [new, copy] = ["new", "copy"].map(|name| directory.path().join(name));
    let tree = new.join("tree");
    lay_tree(&tree);
    let lay = || {
        let _: std::io::Result<()> = fs::remove_dir_all(&copy);
        let status = Command::new("cp").arg("-a").args([&tree, &copy]).status().expect("cp is there");
        assert!(status.success());
    };
    lay();
    let output = same("tree", 1, &new, &copy);
    assert!(is_proved(&output), "{output:?}");
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let keep_time = |name: &str| fs::File::open(copy.join(name)).and_then(|file| file.set_modified(past));
    type Damage<'a> = (&'a str, &'a dyn Fn());
    let damages: [Damage<'_>; 9] = [
        ("content", &|| {
            fs::write(copy.join("file"), "test").expect("written");
            keep_time("file").expect("set");
        }),
        ("a missing file", &|| {
            fs::remove_file(copy.join("of two\nlines")).expect("removed");
            keep_time("").expect("set");
        }),
        ("one too many", &|| {
            fs::write(copy.join("empty/more"), "").expect("written");
            keep_time("empty").expect("set");
        }),
        ("a missing directory", &|| {
            fs::remove_dir(copy.join("empty")).expect("removed");
            keep_time("").expect("set");
        }),
        ("a mode", &|| fs::set_permissions(copy.join("tool"), Permissions::from_mode(0o644)).expect("set")),
        ("a link's target", &|| {
            fs::remove_file(copy.join("link")).expect("removed");
            symlink("tool", copy.join("link")).expect("linked");
            keep_time("").expect("set");
        }),
        ("a link that became a file", &|| {
            fs::remove_file(copy.join("link")).expect("removed");
            fs::copy(copy.join("file"), copy.join("link")).expect("copied");
            keep_time("").expect("set");
        }),
        ("a hard link that became a file", &|| {
            fs::remove_file(copy.join("also linked")).expect("removed");
            fs::copy(copy.join("linked"), copy.join("also linked")).expect("copied");
            keep_time("also linked").and_then(|()| keep_time("")).expect("set");
        }),
        ("a time", &|| {
            let later = past + Duration::from_secs(1);
            fs::File::open(copy.join("tool")).and_then(|file| file.set_modified(later)).expect("set");
        }),
    ];
    for (what, damage) in damages {
        lay();
        damage();
        assert!(!is_proved(&same("tree", 1, &new, &copy)), "{what} is not seen");
    }
}
