//! File systems on volumes, mounted where nobody else sees them: nbdfuse makes a file of an NBD export, and a loop device a device of
//! that. It needs root, FUSE and loop devices.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use super::{eventually, text};

/// What a file system on a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub fn maker(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "mke2fs",
            FileSystem::Xfs => "mkfs.xfs",
        }
    }

    /// Why it cannot be mounted here, if it cannot.
    pub fn is_missing(self) -> Option<String> {
        if !has_tool(self.maker()) {
            return Some(format!("{} is missing", self.maker()));
        }
        let name = match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        };
        let is_known = || {
            let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
            known.lines().any(|line| line.trim() == name)
        };
        if !is_known() {
            let _ = Command::new("modprobe").arg(name).stderr(Stdio::null()).status();
        }
        (!is_known()).then(|| format!("the kernel has no {name}"))
    }

    pub fn make(self, device: &str) -> String {
        match self {
            FileSystem::Ext4 => format!("mke2fs -q -t ext4 -F {device}"),
            FileSystem::Xfs => format!("mkfs.xfs -q -f {device}"),
        }
    }

    /// Of two copies of one the kernel mounts both.
    fn mount_options(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "loop",
            FileSystem::Xfs => "loop,nouuid",
        }
    }

    /// Whether an unmounted one is sound by its own checker.
    pub fn check(self, device: &str) -> String {
        match self {
            FileSystem::Ext4 => format!("e2fsck -fn {device}"),
            FileSystem::Xfs => format!("xfs_repair -n {device}"),
        }
    }
}

/// Where programs are that Debian keeps out of the way of users, and a PostgreSQL's.
pub fn path_of_tools() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    for version in std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        path = format!("{}:{path}", version.path().join("bin").display());
    }
    path
}

pub fn has_tool(tool: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("command -v {tool}")]).env("PATH", path_of_tools());
    shell.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Where mounts are seen; gone with it.
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// None where there is no root, or no FUSE.
    pub fn new() -> Option<Namespace> {
        if !Path::new("/dev/fuse").exists() {
            return None;
        }
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "sleep", "infinity"]);
        let mut namespace = Namespace { holder: holder.stderr(Stdio::null()).spawn().ok()? };
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let own = namespace.holder.id().to_string();
        let mut is_over = false;
        eventually("a namespace of its own", || {
            is_over = namespace.holder.try_wait().is_ok_and(|status| status.is_some());
            is_over || of(&own) != of("self")
        });
        (!is_over).then_some(namespace)
    }

    /// A path in it, as this process reaches it.
    pub fn reach(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.holder.id(), path.display()))
    }

    pub fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--mount").arg(format!("--target={}", self.holder.id()));
        command.args(["sh", "-c", script]).env("PATH", path_of_tools()).env("LC_ALL", "C");
        command
    }

    pub fn run(&self, script: &str) -> Output {
        self.shell(script).output().unwrap()
    }

    #[track_caller]
    pub fn ok(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{script}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What is mounted there goes with the last process in it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A file system on an export of a site, mounted at `mounted` below a directory.
pub struct Mounted<'a> {
    pub namespace: &'a Namespace,
    pub directory: PathBuf,
    nbdfuse: Child,
}

impl<'a> Mounted<'a> {
    /// Mounts what is there, or makes one first.
    pub fn start(
        namespace: &'a Namespace,
        socket: &Path,
        export: &str,
        directory: &Path,
        (file_system, is_new): (FileSystem, bool),
    ) -> Mounted<'a> {
        let directory = directory.to_path_buf();
        for name in ["device", "mounted"] {
            std::fs::create_dir_all(directory.join(name)).unwrap();
        }
        let at = directory.display();
        let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
        let mut nbdfuse = namespace.shell(&format!("exec nbdfuse {at}/device/disk '{uri}'"));
        let nbdfuse = nbdfuse.stdout(Stdio::null()).spawn().unwrap();
        let mounted = Mounted { namespace, directory: directory.clone(), nbdfuse };
        eventually("the volume is a file", || {
            namespace.run(&format!("test -e {at}/device/disk")).status.success()
        });
        if is_new {
            namespace.ok(&file_system.make(&format!("{at}/device/disk")));
        }
        namespace.ok(&format!("mount -o {} {at}/device/disk {at}/mounted", file_system.mount_options()));
        mounted
    }

    /// Unmounted, with all that was written.
    pub fn stop(mut self) {
        let at = self.directory.display();
        // Whoever looks at every mount of the machine for a moment keeps it busy.
        let unmount = format!("! mountpoint -q {at}/mounted || umount {at}/mounted; umount {at}/device");
        eventually("it is unmounted", || self.namespace.run(&unmount).status.success());
        let _ = self.nbdfuse.wait();
    }

    /// Everything away, whatever state it is in.
    pub fn tear_away(mut self) {
        let at = self.directory.display();
        self.namespace
            .run(&format!("umount -f {at}/mounted || umount -l {at}/mounted; umount -l {at}/device"));
        let _ = self.nbdfuse.kill();
        let _ = self.nbdfuse.wait();
    }
}

/// The same of a file, for as long as `look` takes; then its own checker looks.
pub fn look_at_image(
    namespace: &Namespace,
    image: &Path,
    directory: &Path,
    file_system: FileSystem,
    look: impl FnOnce(&Path),
) {
    std::fs::create_dir_all(directory).unwrap();
    let (image, at) = (image.display(), directory.display());
    namespace.ok(&format!("mount -o {} {image} {at}", file_system.mount_options()));
    look(&namespace.reach(directory));
    namespace.ok(&format!("umount {at}"));
    namespace.ok(&file_system.check(&image.to_string()));
}
