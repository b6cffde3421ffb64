//! What every script of a contender finds in its environment. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::{Carries, Site};

/// Everything that a run knows and its scripts may ask for.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Each site's own directory is `SITE` below this one.
    pub run: PathBuf,
    /// Addresses of a, one a path.
    pub a_addresses: Vec<Ipv4Addr>,
    /// Addresses of b, one a path.
    pub b_addresses: Vec<Ipv4Addr>,
    /// Of the host behind a; none where it is not laid.
    pub server_addresses: Vec<Ipv4Addr>,
    /// Of the host behind b.
    pub client_addresses: Vec<Ipv4Addr>,
    /// Directory of the generation before; absent at the first.
    pub old: Option<PathBuf>,
    /// Directory of the generation to bring over; absent for probes.
    pub new: Option<PathBuf>,
    /// Its name.
    pub generation: Option<String>,
    /// What is to be brought over.
    pub kind: Carries,
    /// Number of images in a generation; 0 for probes.
    pub volumes: u32,
    /// Rate from a to b, bits a second.
    pub rate_bits: u64,
    /// Round trip without queues.
    pub rtt_ms: f64,
    /// Share of packets lost from a to b, 0 to 1.
    pub loss: f64,
    /// How much of the data is to be brought over, bytes; absent: all.
    pub portion: Option<u64>,
    /// Of the contender's variant. A name that the run itself uses keeps the run's value.
    pub settings: BTreeMap<String, String>,
    /// Directory of `farside` and `farsided`.
    pub farside_bin: PathBuf,
    /// The laboratory's own program, for its helpers (`copy-changed`).
    pub lab: PathBuf,
    /// Directory of the contenders' files, with the shell functions that they share.
    pub contenders: PathBuf,
}

impl Environment {
    /// The directory of `site` in this run.
    pub fn here(&self, site: Site) -> PathBuf {
        self.run.join(site.as_str())
    }

    /// The variables of a script at `site`. Beside the run's own: a `HOME` below `HERE`, so that no tool keeps state
    /// anywhere else, and one language, so that outputs can be read.
    pub fn variables(&self, site: Site) -> Vec<(String, String)> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let optional = |directory: &Option<PathBuf>| directory.as_deref().map(path).unwrap_or_default();
        let list =
            |addresses: &[Ipv4Addr]| addresses.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(" ");
        let first = |addresses: &[Ipv4Addr]| addresses.first().map(Ipv4Addr::to_string).unwrap_or_default();
        let portion = self.portion.map(|bytes| bytes.to_string()).unwrap_or_default();
        let own = [
            ("SITE", site.to_string()),
            ("HERE", path(&self.here(site))),
            ("A_HERE", path(&self.here(Site::A))),
            ("B_HERE", path(&self.here(Site::B))),
            ("SERVER_HERE", path(&self.here(Site::Server))),
            ("CLIENT_HERE", path(&self.here(Site::Client))),
            ("SERVER_ADDR", first(&self.server_addresses)),
            ("CLIENT_ADDR", first(&self.client_addresses)),
            ("A_ADDR", first(&self.a_addresses)),
            ("B_ADDR", first(&self.b_addresses)),
            ("A_ADDRS", list(&self.a_addresses)),
            ("B_ADDRS", list(&self.b_addresses)),
            ("OLD", optional(&self.old)),
            ("NEW", optional(&self.new)),
            ("GENERATION", self.generation.clone().unwrap_or_default()),
            ("KIND", self.kind.to_string()),
            ("VOLUMES", self.volumes.to_string()),
            ("LINK_RATE_BITS", self.rate_bits.to_string()),
            ("LINK_RTT_MS", self.rtt_ms.to_string()),
            ("LINK_LOSS", self.loss.to_string()),
            ("PORTION_BYTES", portion),
            ("FARSIDE_BIN", path(&self.farside_bin)),
            ("FARSIDE_LAB", path(&self.lab)),
            ("CONTENDERS", path(&self.contenders)),
            ("HOME", path(&self.here(site).join("home"))),
            ("LC_ALL", "C.UTF-8".to_owned()),
        ];
        // The later of two values of a name holds.
        let settings = self.settings.iter().map(|(name, value)| (name.clone(), value.clone()));
        settings.chain(own.into_iter().map(|(name, value)| (name.to_owned(), value))).collect()
    }
}
