//! What this host's interfaces are, and what is wrong with their parameters. Looks only.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

use super::error::KernelError;
use crate::rules::{Bridge, Concerns, Sysctl, sysctls};

/// The networks that these interfaces are in, by their addresses and prefix lengths. Link-local ones are left out: they are on no
/// other link.
pub fn prefixes_of(names: &[String]) -> io::Result<Vec<IpNet>> {
    let mut prefixes: Vec<IpNet> = addresses()?
        .filter(|(name, ..)| names.contains(name))
        .filter(|(_, address, _)| !is_link_local(*address) && !address.is_loopback())
        .filter_map(|(_, address, mask)| IpNet::with_netmask(address, mask?).ok())
        .map(|prefix| prefix.trunc())
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    Ok(prefixes)
}

/// Every address of this host, those of `lo` too.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut own: Vec<IpAddr> = addresses()?.map(|(_, address, _)| address).collect();
    own.sort_unstable();
    own.dedup();
    Ok(own)
}

/// Whether there is an interface of this name.
pub fn exists(name: &str) -> bool {
    if_nametoindex(name).is_ok()
}

/// An interface's index, if there is one of this name.
pub fn index(name: &str) -> Option<u32> {
    if_nametoindex(name).ok()
}

/// The name of the interface with this index, or the index in words.
pub fn name(index: u32) -> String {
    let name = if_indextoname(index).ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| format!("interface {index}"))
}

/// Whether this host has IPv6, and it is not turned off where taken connections arrive.
pub fn has_ipv6() -> bool {
    read("net.ipv6.conf.lo.disable_ipv6").is_some_and(|value| value == "0")
}

/// What is wrong with interfaces and kernel parameters: a sentence each, with what to type. Interception works for most connections all
/// the same, so none of it is an error.
pub fn warnings(lan: &[String], wan: &str, bridge: Option<&Bridge>) -> Vec<String> {
    let mut names: Vec<&str> = lan.iter().map(String::as_str).chain([wan]).collect();
    names.sort_unstable();
    names.dedup();

    let missing = names.iter().filter(|name| !exists(name)).map(|name| {
        format!(
            "there is no interface {name}; what comes in by it is taken once there is. `ip -brief link` lists interfaces"
        )
    });
    let has_bridge = bridge.is_some()
        || names.iter().any(|name| Path::new("/sys/class/net").join(name).join("bridge").is_dir());
    let has_ipv6 =
        prefixes_of(lan).is_ok_and(|prefixes| prefixes.iter().any(|prefix| prefix.addr().is_ipv6()));
    let wrong = sysctls(lan, wan, bridge.map(|bridge| bridge.name.as_str()))
        .into_iter()
        .filter(|sysctl| match sysctl.concerns {
            Concerns::All => true,
            Concerns::Ipv6 => has_ipv6,
            Concerns::Bridges => has_bridge,
        })
        .filter_map(|sysctl| sysctl.judge(read));
    missing.chain(wrong).collect()
}

/// Whether the rules of IP stay out of bridges, as an inline box needs.
pub fn bridges_are_apart() -> Result<(), KernelError> {
    let names = ["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"];
    let wrong = names.into_iter().find(|name| read(name).is_some_and(|value| value != "0"));
    wrong.map_or(Ok(()), |parameter| Err(KernelError::BridgeCallsRules { parameter }))
}

/// A kernel parameter of this thread's network namespace.
fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(Sysctl::path(name))).ok()?;
    Some(text.trim().to_owned())
}

/// Interface, address and mask.
fn addresses() -> io::Result<impl Iterator<Item = (String, IpAddr, Option<IpAddr>)>> {
    Ok(getifaddrs()?.filter_map(|interface| {
        let address = ip(interface.address.as_ref()?)?;
        Some((interface.interface_name, address, interface.netmask.as_ref().and_then(ip)))
    }))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
