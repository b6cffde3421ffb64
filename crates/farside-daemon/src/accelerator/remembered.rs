//! What was said on the command line, as the state database keeps it, and what the accelerator runs with then. Pure.

use std::net::SocketAddr;

use farside_accel::control::{Forward, Interception};
use farside_api::StartAccelerator;
use farside_peer::{PeerId, PeerRecord};
use serde::{Deserialize, Serialize};

use super::settings::{
    AcceleratorConfig, LISTEN_DEFAULT, STORE_SIZE_DEFAULT, check_forward_to, check_interception, check_listen,
};

/// What was said by `accel up` and `accel down`; what was not is as the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Remembered {
    /// Whether it is on.
    on: Option<bool>,
    /// Interfaces towards this site's hosts; empty: nothing is intercepted, whatever the file says.
    lan: Option<Vec<String>>,
    /// The interface towards the other sites; empty likewise.
    wan: Option<String>,
    store_size_bytes: Option<u64>,
    listen: Option<String>,
    forward_to: Option<Vec<String>>,
}

impl Remembered {
    /// The same after `accel up` with these words.
    pub(super) fn up(&self, words: StartAccelerator) -> Remembered {
        let mut now = self.clone();
        let is_off =
            words.lan.as_ref().is_some_and(Vec::is_empty) || words.wan.as_ref().is_some_and(String::is_empty);
        if is_off {
            (now.lan, now.wan) = (Some(Vec::new()), Some(String::new()));
        } else if words.lan.is_some() || words.wan.is_some() {
            // An interface is named again: the file's other one counts again.
            now.lan = now.lan.filter(|lan| !lan.is_empty());
            now.wan = now.wan.filter(|wan| !wan.is_empty());
        }
        Remembered {
            on: Some(true),
            lan: words.lan.filter(|_| !is_off).or(now.lan),
            wan: words.wan.filter(|_| !is_off).or(now.wan),
            store_size_bytes: words.store_size_bytes.or(now.store_size_bytes),
            listen: words.listen.or(now.listen),
            forward_to: words.forward_to.or(now.forward_to),
        }
    }

    /// The same after `accel down`.
    pub(super) fn down(&self) -> Remembered {
        Remembered { on: Some(false), ..self.clone() }
    }

    /// Whether it is on, and nothing else.
    pub(super) fn without_words(&self) -> Remembered {
        Remembered { on: self.on, ..Remembered::default() }
    }

    /// Whether the accelerator is on.
    pub(super) fn is_on(&self, config: &AcceleratorConfig) -> bool {
        self.on.unwrap_or_else(|| config.is_on())
    }
}

/// What the accelerator runs with besides policies, peers and forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) interception: Option<Interception>,
    pub(super) listen: String,
    pub(super) store_size_bytes: u64,
    pub(super) forward_to: Vec<String>,
}

impl Setup {
    /// Merges what was said, the file and the defaults.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(super) fn new(remembered: &Remembered, config: &AcceleratorConfig) -> Result<Setup, String> {
        let file = Setup::of_file(config);
        let (lan, wan) = file.interception.map(|interception| (interception.lan, interception.wan)).unzip();
        let lan = remembered.lan.clone().or(lan).unwrap_or_default();
        let wan = remembered.wan.clone().or(wan).filter(|wan| !wan.is_empty());
        let setup = Setup {
            interception: check_interception(lan, wan)?,
            listen: remembered.listen.clone().unwrap_or(file.listen),
            store_size_bytes: remembered.store_size_bytes.unwrap_or(file.store_size_bytes),
            forward_to: remembered.forward_to.clone().unwrap_or(file.forward_to),
        };
        check_listen(&setup.listen)?;
        check_forward_to(&setup.forward_to)?;
        Ok(setup)
    }

    /// The file and the defaults.
    pub(super) fn of_file(config: &AcceleratorConfig) -> Setup {
        Setup {
            interception: config.interception.clone(),
            listen: config.listen.clone().unwrap_or_else(|| LISTEN_DEFAULT.to_owned()),
            store_size_bytes: config.store_size_bytes.unwrap_or(STORE_SIZE_DEFAULT),
            forward_to: config.forward_to.clone(),
        }
    }
}

/// An explicit forward as it is remembered: of its peer the key, since names change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RememberedForward {
    pub(super) listen: SocketAddr,
    pub(super) destination: String,
    /// 64 hexadecimal digits.
    peer: String,
}

impl RememberedForward {
    pub(super) fn new(listen: SocketAddr, destination: String, peer: PeerId) -> RememberedForward {
        RememberedForward { listen, destination, peer: peer.to_string() }
    }

    /// With the name that the peer has now; none if it is not paired any more.
    pub(super) fn forward(&self, peers: &[PeerRecord]) -> Option<Forward> {
        let peer = peers.iter().find(|peer| peer.id.to_string() == self.peer)?;
        let (listen, destination) = (self.listen, self.destination.clone());
        Some(Forward { listen, destination, peer: peer.name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lan: &[&str], wan: &str) -> StartAccelerator {
        StartAccelerator {
            lan: Some(lan.iter().map(ToString::to_string).collect()),
            wan: Some(wan.to_owned()),
            ..StartAccelerator::default()
        }
    }

    fn file() -> AcceleratorConfig {
        AcceleratorConfig {
            interception: Some(Interception { lan: vec!["eth1".into()], wan: "eth0".into() }),
            store_size_bytes: Some(5),
            ..AcceleratorConfig::default()
        }
    }

    fn interfaces(remembered: &Remembered, config: &AcceleratorConfig) -> String {
        match Setup::new(remembered, config).unwrap().interception {
            Some(interception) => format!("{}>{}", interception.lan.join("+"), interception.wan),
            None => String::from("none"),
        }
    }

    #[test]
    fn what_was_said_counts_more_than_the_file_and_is_kept_while_it_is_down() {
        let nothing = Remembered::default();
        assert!(nothing.is_on(&file()) && !nothing.is_on(&AcceleratorConfig::default()));
        assert_eq!(interfaces(&nothing, &file()), "eth1>eth0");
        assert_eq!(interfaces(&nothing, &AcceleratorConfig::default()), "none");

        let said = nothing.up(words(&["lan0", "lan1"], "wan0"));
        assert_eq!(interfaces(&said, &file()), "lan0+lan1>wan0");
        let again = said.down().up(StartAccelerator::default());
        assert!(!said.down().is_on(&file()));
        assert_eq!(again, said);

        let sized = said.up(StartAccelerator { store_size_bytes: Some(7), ..StartAccelerator::default() });
        let setup = Setup::new(&sized, &file()).unwrap();
        assert_eq!((setup.store_size_bytes, setup.listen.as_str()), (7, LISTEN_DEFAULT));
        assert_eq!(interfaces(&sized, &file()), "lan0+lan1>wan0");
        let text = serde_json::to_string(&sized).unwrap();
        assert_eq!(serde_json::from_str::<Remembered>(&text).unwrap(), sized);
    }

    #[test]
    fn interception_can_be_switched_off_and_on_again() {
        let off =
            Remembered::default().up(StartAccelerator { wan: Some(String::new()), ..Default::default() });
        assert_eq!(interfaces(&off, &file()), "none");
        assert_eq!(interfaces(&off.down().up(StartAccelerator::default()), &file()), "none");
        let lan = StartAccelerator { lan: Some(vec!["lan0".into()]), ..Default::default() };
        assert_eq!(interfaces(&off.up(lan.clone()), &file()), "lan0>eth0", "the file's WAN counts again");
        let alone = Setup::new(&off.up(lan), &AcceleratorConfig::default()).unwrap_err();
        assert!(alone.contains("WAN interface"), "{alone}");
    }

    #[test]
    fn a_forward_follows_the_name_of_its_peer() {
        let record = |name: &str| PeerRecord {
            id: PeerId([7; 32]),
            name: name.to_owned(),
            address: None,
            link: farside_link::LinkOptions::default(),
            added_at: farside_platform::Timestamp(0),
        };
        let forward = RememberedForward::new("127.0.0.1:1".parse().unwrap(), "h:2".into(), PeerId([7; 32]));
        assert_eq!(forward.forward(&[record("south")]).unwrap().peer, "south");
        assert_eq!(forward.forward(&[record("north")]).unwrap().peer, "north");
        assert_eq!(forward.forward(&[]), None);
    }
}
