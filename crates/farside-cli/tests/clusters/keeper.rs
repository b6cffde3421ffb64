//! A volume with a host, in a pool of either engine, and the cluster's own programs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Site, text};

pub(crate) const MIB: u64 = 1 << 20;

/// Where a site keeps its volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Embedded,
    Rbd,
}

/// A pool of a site, and whoever uses its volumes beside farside.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) kind: Kind,
    pub(crate) pool: String,
    conf: String,
    namespace: String,
}

impl Keeper {
    /// Makes a pool at a site: of the other kind in a namespace of its own.
    pub(crate) fn make(site: &Site, kind: Kind, pool: &str, conf: &str) -> Keeper {
        let namespace = format!("test-{}-{:08x}", site.name, rand::random::<u32>());
        let keeper = Keeper { kind, pool: pool.into(), conf: conf.into(), namespace };
        match kind {
            Kind::Embedded => {
                let path = site.dir.join("pool");
                site.ok(&format!("pool create {pool} --path {} --size 1G", path.display()));
            }
            Kind::Rbd => {
                keeper.rbd(&["namespace", "create", &format!("rbd/{}", keeper.namespace)]);
                site.ok(&format!("pool create {pool} {}", keeper.words()));
            }
        }
        keeper
    }

    /// What names the pool of Ceph.
    pub(crate) fn words(&self) -> String {
        format!("--engine rbd --rbd-pool rbd --rbd-namespace {} --conf {}", self.namespace, self.conf)
    }

    /// As `rbd` names an image, or a snapshot of it.
    pub(crate) fn image(&self, image: &str) -> String {
        format!("rbd/{}/{image}", self.namespace)
    }

    fn try_rbd(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut rbd = Command::new("rbd");
        rbd.args(["--conf", &self.conf, "--id", "farside"]).args(arguments);
        let mut rbd = rbd
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rbd runs");
        let mut stdin = rbd.stdin.take().unwrap();
        let input = input.to_vec();
        // It may end before it has read all.
        let fed = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let done = rbd.wait_with_output().unwrap();
        fed.join().unwrap();
        done
    }

    /// What `rbd` says; it must succeed.
    pub(crate) fn rbd(&self, arguments: &[&str]) -> Vec<u8> {
        let done = self.try_rbd(arguments, &[]);
        assert!(done.status.success(), "rbd {arguments:?}: {}", text(&done.stderr));
        done.stdout
    }

    /// Reads all of an image, and keeps nothing of it.
    pub(crate) fn read_whole(&self, volume: &str) {
        let mut rbd = Command::new("rbd");
        rbd.args([
            "--conf",
            &self.conf,
            "--id",
            "farside",
            "export",
            "--no-progress",
            &self.image(volume),
            "-",
        ]);
        assert!(rbd.stdout(Stdio::null()).status().unwrap().success());
    }

    /// A host writes: pieces of (offset, bytes) of a volume of `size` bytes, all flushed when this returns.
    pub(crate) fn write(&self, site: &Site, volume: &str, size: u64, pieces: &[(u64, &[u8])]) {
        match self.kind {
            Kind::Embedded => {
                let mut host = site.nbd(&format!("{}/{volume}", self.pool));
                for (offset, bytes) in pieces {
                    host.write(*offset, bytes).unwrap();
                }
                host.flush().unwrap();
            }
            Kind::Rbd => {
                let done = self.try_write(volume, size, pieces);
                assert!(done.status.success(), "{}", text(&done.stderr));
            }
        }
    }

    /// The same as a client of the cluster, which may be refused.
    pub(crate) fn try_write(&self, volume: &str, size: u64, pieces: &[(u64, &[u8])]) -> Output {
        // The form of `rbd export-diff`, version 1.
        let mut diff = b"rbd diff v1\ns".to_vec();
        diff.extend(size.to_le_bytes());
        for (offset, bytes) in pieces {
            diff.push(b'w');
            diff.extend(offset.to_le_bytes());
            diff.extend((bytes.len() as u64).to_le_bytes());
            diff.extend_from_slice(bytes);
        }
        diff.push(b'e');
        self.try_rbd(&["import-diff", "--no-progress", "-", &self.image(volume)], &diff)
    }

    /// The address of an image as QEMU has it.
    pub(crate) fn qemu_address(&self, volume: &str) -> String {
        format!("rbd:{}:id=farside:conf={}", self.image(volume), self.conf)
    }

    /// What hosts see of a volume.
    pub(crate) fn bytes(&self, site: &Site, volume: &str) -> Vec<u8> {
        match self.kind {
            Kind::Embedded => site.nbd(&format!("{}/{volume}", self.pool)).read_all(),
            Kind::Rbd => self.rbd(&["export", "--no-progress", &self.image(volume), "-"]),
        }
    }
}

/// B is a peer of A.
pub(crate) fn pair(root: &Path, a: &Site, b: &Site) {
    let code = root.join("code");
    std::fs::write(&code, a.ok("peer invite")).unwrap();
    b.ok(&format!("peer join {} --code-file {}", a.published("peer.addr"), code.display()));
}
