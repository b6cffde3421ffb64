//! A small file system, so that a disk can be full.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs; unmounted in the end.
pub struct Small(pub PathBuf);

impl Small {
    /// At `path`, of `size` as mount wants it (`12m`); none, loudly, where that cannot be had.
    pub fn at(path: &Path, size: &str) -> Option<Small> {
        std::fs::create_dir_all(path).unwrap();
        let size = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        match mount {
            Ok(output) if output.status.success() => Some(Small(path.to_owned())),
            other => {
                assert!(
                    std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(),
                    "no file system of its own: {other:?}"
                );
                eprintln!("**** skipped, no file system of its own (root is needed): {other:?}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
