//! What a run was of, as a digest: runs of one cell are compared only if theirs are equal. Pure.
//!
//! In it: how the link is laid and what it does, the hosts' settings, the data's bytes, the contender's scripts, the
//! farside programs where the contender uses them, and the laboratory's own version. Not in it: titles, expectations,
//! the number of repetitions and what other cells do, so that a changed contender spoils no other's runs.

use super::file::DataKind;
use crate::data::Manifest;
use crate::link::Link;
use crate::record::RECORD_VERSION;

/// Everything that decides what a run of a cell measures, beside its seed.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Parallel links.
    pub paths: u32,
    /// The link.
    pub link: &'a Link,
    /// How much of the data goes over it, bytes; all where absent.
    pub portion: Option<u64>,
    /// Congestion control of all hosts.
    pub congestion: &'a str,
    /// Largest receive and send buffer of a TCP connection, where set.
    pub tcp_buffers: (Option<u64>, Option<u64>),
    /// The data and what of it the contender gets; nothing for probes.
    pub data: Option<(&'a Manifest, DataKind)>,
    /// The contender's whole file.
    pub contender: &'a str,
    /// Digest of farside's programs; nothing where the contender does not use them.
    pub farside: Option<&'a str>,
}

impl Subject<'_> {
    /// The digest, 16 bytes in hex.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut text = serde_json::json!({
            "lab": [env!("CARGO_PKG_VERSION"), RECORD_VERSION.to_string()],
            "paths": self.paths,
            "link": self.link,
            "congestion": self.congestion,
            "tcp_buffers": self.tcp_buffers,
            "data": self.data.map(|(manifest, _)| manifest),
            "kind": self.data.map(|(_, kind)| kind.as_str()),
            "contender": self.contender,
            "farside": self.farside,
        });
        // Only where there is one: runs of whole data sets keep the digest that they had before there were portions.
        if let Some(portion) = self.portion {
            text["portion"] = portion.into();
        }
        let mut hasher = blake3::Hasher::new_derive_key("farside-lab 2026 what a run was of");
        hasher.update(text.to_string().as_bytes());
        short(&hasher.finalize())
    }
}

/// One digest of many, in their order: of all cells of an experiment.
#[must_use]
pub fn of_all<'a>(digests: impl Iterator<Item = &'a str>) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("farside-lab 2026 what an experiment was of");
    for digest in digests {
        hasher.update(digest.as_bytes());
    }
    short(&hasher.finalize())
}

fn short(hash: &blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::MANIFEST_VERSION;
    use crate::link::LinkTerms;

    #[test]
    fn whatever_decides_a_measurement_changes_the_digest() {
        let build = |rate| LinkTerms { rate: Some(rate), ..LinkTerms::default() }.build("l").expect("a link");
        let (link, faster) = (build(1_000_000), build(2_000_000));
        let manifest = |seed| Manifest {
            version: MANIFEST_VERSION,
            set: "random".to_owned(),
            size_bytes: 1,
            seed,
            generator: 1,
            programs: [].into(),
            inputs: [].into(),
            generations: Vec::new(),
        };
        let (data, other_data) = (manifest(1), manifest(2));
        let subject = Subject {
            paths: 1,
            link: &link,
            portion: None,
            congestion: "cubic",
            tcp_buffers: (None, None),
            data: Some((&data, DataKind::Image)),
            contender: "name = \"rsync\"",
            farside: None,
        };
        let all = [
            subject,
            Subject { paths: 2, ..subject },
            Subject { link: &faster, ..subject },
            Subject { portion: Some(1), ..subject },
            Subject { congestion: "bbr", ..subject },
            Subject { tcp_buffers: (Some(1), None), ..subject },
            Subject { tcp_buffers: (None, Some(1)), ..subject },
            Subject { data: None, ..subject },
            Subject { data: Some((&other_data, DataKind::Image)), ..subject },
            Subject { data: Some((&data, DataKind::Tree)), ..subject },
            Subject { contender: "name = \"rsync\" ", ..subject },
            Subject { farside: Some("1"), ..subject },
            Subject { farside: Some("2"), ..subject },
        ];
        let digests: std::collections::BTreeSet<String> = all.iter().map(Subject::digest).collect();
        assert_eq!(digests.len(), all.len());
        assert_eq!(subject.digest(), subject.digest());
        assert_eq!(subject.digest().len(), 32);
        assert_ne!(of_all(["a", "b"].into_iter()), of_all(["b", "a"].into_iter()));
    }
}
