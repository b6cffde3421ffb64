//! `[accelerator]` of `farside.toml`, read and checked. Pure.

use std::collections::BTreeMap;
use std::fmt;

use farside_accel::control::Interception;
use farside_accel::policy::{Action, Policy, WrittenPolicy};
use farside_api::parse_size;
use farside_link::split_address;
use ipnet::IpNet;
use serde::Deserialize;

/// The port at which accelerators meet.
pub(crate) const PORT: u16 = 7442;
/// Where other accelerators are met by default.
pub(crate) const LISTEN_DEFAULT: &str = "0.0.0.0:7442";
/// What the chunk store may have at most by default.
pub(crate) const STORE_SIZE_DEFAULT: u64 = 10 << 30;
/// What is done where no policy fits, unless the file says otherwise.
pub(super) const OTHERWISE_DEFAULT: Action = Action::Full;
/// Interfaces towards this site's hosts, at most.
const LAN_MAX: usize = 64;
/// Places where forwards of peers may end, at most.
const FORWARD_TO_MAX: usize = 1024;
/// Longest name of an interface, bytes: one less than the kernel's IFNAMSIZ.
const INTERFACE_NAME_MAX: usize = 15;

/// `[accelerator]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceleratorTable {
    #[serde(default)]
    lan: Vec<String>,
    wan: Option<String>,
    listen: Option<String>,
    store_size: Option<Size>,
    #[serde(default)]
    forward_to: Vec<String>,
    #[serde(default)]
    policies: Vec<WrittenPolicy>,
    otherwise: Option<Action>,
    #[serde(default)]
    peers: BTreeMap<String, PeerBox>,
}

/// `[accelerator.peers.NAME]`: what is said of a peer's accelerator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerBox {
    /// Where it is dialled, `HOST:PORT`.
    pub(crate) address: Option<String>,
    /// What lies behind it.
    #[serde(default)]
    pub(crate) subnets: Vec<IpNet>,
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AcceleratorConfig {
    pub(crate) interception: Option<Interception>,
    pub(crate) listen: Option<String>,
    pub(crate) store_size_bytes: Option<u64>,
    pub(crate) forward_to: Vec<String>,
    pub(crate) policies: Vec<WrittenPolicy>,
    pub(crate) otherwise: Option<Action>,
    pub(crate) peers: BTreeMap<String, PeerBox>,
}

impl AcceleratorTable {
    /// Checks all of it.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(crate) fn resolve(self) -> Result<AcceleratorConfig, String> {
        let interception = check_interception(self.lan, self.wan)?;
        self.listen.iter().try_for_each(|address| check_listen(address))?;
        check_forward_to(&self.forward_to)?;
        for policy in &self.policies {
            Policy::try_from(policy).map_err(|error| error.to_string())?;
        }
        for (name, peer) in &self.peers {
            let wrong = |why| format!("peers.{name}: {why}");
            peer.address.iter().try_for_each(|address| check_address(address)).map_err(wrong)?;
        }
        Ok(AcceleratorConfig {
            interception,
            listen: self.listen,
            store_size_bytes: self.store_size.map(|Size(bytes)| bytes),
            forward_to: self.forward_to,
            policies: self.policies,
            otherwise: self.otherwise,
            peers: self.peers,
        })
    }
}

impl AcceleratorConfig {
    /// Whether the file has the accelerator on, unless somebody has said otherwise since.
    pub(crate) fn is_on(&self) -> bool {
        self.interception.is_some() || self.listen.is_some() || !self.forward_to.is_empty()
    }
}

/// Interfaces on both sides, or none at all.
pub(crate) fn check_interception(
    lan: Vec<String>,
    wan: Option<String>,
) -> Result<Option<Interception>, String> {
    lan.iter().chain(&wan).try_for_each(|name| check_interface(name))?;
    if lan.len() > LAN_MAX {
        return Err(format!("{} LAN interfaces are more than {LAN_MAX}", lan.len()));
    }
    match (lan.is_empty(), wan) {
        (true, None) => Ok(None),
        (true, Some(wan)) => Err(format!(
            "the WAN interface {wan} needs a LAN interface beside it: the one towards this site's hosts"
        )),
        (false, None) => Err(format!(
            "the LAN interface {} needs a WAN interface beside it: the one towards the other sites",
            lan.join(", ")
        )),
        // The same one on both sides is a box with one leg.
        (false, Some(wan)) => Ok(Some(Interception { lan, wan })),
    }
}

/// As the kernel names interfaces: what is not allowed there would also be structure in a packet filter's rules.
fn check_interface(name: &str) -> Result<(), String> {
    let is_fit = |c: char| c.is_ascii_graphic() && !"/:\"\\*".contains(c);
    let is_name = (1..=INTERFACE_NAME_MAX).contains(&name.len()) && name.chars().all(is_fit);
    if is_name && name != "." && name != ".." {
        return Ok(());
    }
    Err(format!("{name:?} is no interface's name; ip link shows the interfaces of this host"))
}

/// Where this site listens; port 0 takes any free one.
pub(crate) fn check_listen(address: &str) -> Result<(), String> {
    match split_address(address) {
        Some((host, _)) if is_host(host) => Ok(()),
        _ => Err(format!("{address:?} is not ADDR:PORT, such as {LISTEN_DEFAULT}")),
    }
}

/// Where something is dialled.
pub(crate) fn check_address(address: &str) -> Result<(), String> {
    match split_address(address) {
        Some((host, 1..)) if is_host(host) => Ok(()),
        _ => Err(format!("{address:?} is not HOST:PORT, such as 10.2.0.5:5432")),
    }
}

/// Where explicit forwards of peers may end.
pub(crate) fn check_forward_to(places: &[String]) -> Result<(), String> {
    if places.len() > FORWARD_TO_MAX {
        return Err(format!("{} places to forward to are more than {FORWARD_TO_MAX}", places.len()));
    }
    places.iter().try_for_each(|place| check_address(place))
}

fn is_host(host: &str) -> bool {
    host.len() <= 255 && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-:%".contains(c))
}

/// Bytes, as a number or as people write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl serde::de::Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"10G\", or bytes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
        parse_size(text).map(Size).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
        u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
    }

    fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AcceleratorConfig, String> {
        toml::from_str::<AcceleratorTable>(text).map_err(|error| error.to_string())?.resolve()
    }

    #[test]
    fn all_of_it() {
        let config = read(
            "lan = [\"eth1\", \"br-lan.7\"]\nwan = \"eth0\"\nlisten = \"0.0.0.0:7442\"\nstore_size = \"10G\"\n\
             forward_to = [\"10.2.0.5:5432\", \"db.example:5432\"]\notherwise = \"transport\"\n\
             [[policies]]\napplication = \"lab\"\nports = [\"8080-8089\"]\nclients = [\"10.1.0.0/16\"]\naction = \"lz\"\n\
             [peers.north]\naddress = \"north.example:7442\"\nsubnets = [\"10.2.0.0/16\"]\n[peers.south]\n",
        )
        .unwrap();
        let interception =
            Interception { lan: vec!["eth1".into(), "br-lan.7".into()], wan: "eth0".to_owned() };
        assert_eq!(config.interception, Some(interception));
        assert_eq!(config.store_size_bytes, Some(10 << 30));
        assert_eq!((config.policies.len(), config.otherwise), (1, Some(Action::Transport)));
        assert_eq!(config.peers["north"].subnets[0].to_string(), "10.2.0.0/16");
        assert_eq!(config.peers["south"], PeerBox::default());
        assert!(config.is_on());
    }

    #[test]
    fn what_the_file_has_decides_whether_it_is_on() {
        assert_eq!(read("").unwrap(), AcceleratorConfig::default());
        for (text, is_on) in [
            ("", false),
            ("store_size = 1000000", false),
            ("otherwise = \"full\"", false),
            ("listen = \"127.0.0.1:0\"", true),
            ("forward_to = [\"10.2.0.5:5432\"]", true),
            ("lan = [\"eth1\"]\nwan = \"eth0\"", true),
        ] {
            assert_eq!(read(text).unwrap().is_on(), is_on, "{text}");
        }
    }

    #[test]
    fn an_error_names_what_is_wrong() {
        for (text, said) in [
            ("lan = [\"eth1\"]", "needs a WAN interface"),
            ("wan = \"eth0\"", "needs a LAN interface"),
            ("lan = [\"eth1; drop\"]\nwan = \"eth0\"", "eth1; drop"),
            ("lan = [\"a-name-of-16-char\"]\nwan = \"eth0\"", "no interface's name"),
            ("lan = [\"eth/1\"]\nwan = \"eth0\"", "no interface's name"),
            ("lan = [\"..\"]\nwan = \"eth0\"", "no interface's name"),
            ("listen = \"7442\"", "ADDR:PORT"),
            ("forward_to = [\"10.2.0.5\"]", "HOST:PORT"),
            ("forward_to = [\"10.2.0.5:0\"]", "HOST:PORT"),
            ("forward_to = [\"a b:1\"]", "HOST:PORT"),
            ("store_size = \"10GB\"", "10G"),
            ("store_size = -1", "not negative"),
            ("store_size = true", "a size such as"),
            ("otherwise = \"fast\"", "pass-through"),
            ("[[policies]]\napplication = \"x\"\nports = [\"81-80\"]\naction = \"lz\"", "81-80"),
            ("[[policies]]\napplication = \"x\"", "action"),
            ("[peers.north]\naddress = \"north\"", "peers.north"),
            ("[peers.north]\nsubnets = [\"10.2.0.0/33\"]", "subnets"),
            ("lans = [\"eth1\"]", "lans"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
