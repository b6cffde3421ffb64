//! How sites lie and how packets find their way: `a ═══ WAN ═══ b`, with the addresses 198.18.N.1 and 198.18.N.2 on path N,
//! counted from 0. Where hosts are asked for, `server ── a ═══ WAN ═══ b ── client`: a and b are their routers, in the
//! networks 198.19.1.0/24 and 198.19.2.0/24.
//!
//! 198.18.0.0/15 is set aside for benchmarks and routed nowhere.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::Ipv4Addr;

use super::error::TestBedError;
use super::netns::Netns;
use super::sandbox::TestBed;
use super::site::Site;
use crate::emulator::{Emulator, EmulatorError, LinkCounters, Tun};
use crate::link::Link;

/// More than any device aggregates.
pub const MAX_PATHS: usize = 16;
/// What all hosts of a topology have in common.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hosts {
    /// `tcp_congestion_control`; always set, because the machine's own may be any.
    pub congestion: String,
    /// Largest receive buffer of TCP, bytes; the machine's own where absent.
    pub tcp_rmem_max_bytes: Option<u64>,
    /// Largest send buffer of TCP, bytes; the machine's own where absent.
    pub tcp_wmem_max_bytes: Option<u64>,
}

/// Sites with links between them, running. Dropping it ends the sites' processes and the links.
#[derive(Debug)]
pub struct Laid {
    // Order matters: a link's devices go before the namespaces that hold them.
    emulators: Vec<Emulator>,
    /// Their names.
    links: Vec<String>,
    sites: BTreeMap<String, Site>,
}

impl Laid {
    /// The sites by name.
    pub fn sites(&self) -> &BTreeMap<String, Site> {
        &self.sites
    }

    /// One of them.
    ///
    /// # Errors
    /// `NoSite`.
    pub fn site(&self, name: &str) -> Result<&Site, TestBedError> {
        self.sites.get(name).ok_or_else(|| TestBedError::NoSite {
            name: name.to_owned(),
            known: self.sites.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }

    /// The links' emulators, in the links' order.
    pub fn emulators(&self) -> &[Emulator] {
        &self.emulators
    }

    /// Counters of all links begin anew.
    ///
    /// # Errors
    /// `Emulator` when a link has failed: what ran over it does not count.
    pub fn mark(&self) -> Result<(), TestBedError> {
        self.emulators
            .iter()
            .zip(&self.links)
            .try_for_each(|(emulator, link)| emulator.mark().map_err(of_link(link)))
    }

    /// Counters of each link since the mark (or the start), in the links' order.
    ///
    /// # Errors
    /// `Emulator` when a link has failed: what ran over it does not count.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, TestBedError> {
        let each = self.emulators.iter().zip(&self.links);
        each.map(|(emulator, link)| emulator.counters().map_err(of_link(link))).collect()
    }

    /// `A_ADDR` and `B_ADDR` for scripts: the first address of each site; with several
    /// paths also `A_ADDRS` and so on, all of them with a space between.
    pub fn address_variables(&self) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for site in self.sites.values() {
            let name = site.name().to_uppercase();
            let addresses: Vec<String> = site.addresses().iter().map(Ipv4Addr::to_string).collect();
            variables.push((format!("{name}_ADDR"), addresses.first().cloned().unwrap_or_default()));
            if addresses.len() > 1 {
                variables.push((format!("{name}_ADDRS"), addresses.join(" ")));
            }
        }
        variables
    }
}

impl TestBed {
    /// Lays sites and links; with several links between a and b, each is a path with a pair of addresses. With `behind`, a
    /// server lies behind a and a client behind b, and their packets take the first path. The seed
    /// decides which packets are lost, late and overtaken.
    ///
    /// # Errors
    /// `Hosts` for what hosts cannot have, `Emulator`, and the system's; nothing is left of it then.
    pub fn lay(&self, links: &[Link], hosts: &Hosts, behind: bool, seed: u64) -> Result<Laid, TestBedError> {
        if links.is_empty() || links.len() > MAX_PATHS {
            return Err(TestBedError::Hosts(format!(
                "{} links between a and b; 1 to {MAX_PATHS} can be laid",
                links.len()
            )));
        }
        self.check()?;
        let number = self.next_number();
        let mut laid = Laid { emulators: Vec::new(), links: Vec::new(), sites: BTreeMap::new() };
        let ends =
            behind.then(|| BEHIND.map(|(name, _, lan)| (name, vec![host(lan, 2)]))).into_iter().flatten();
        for (name, addresses) in plan(links.len()).into_iter().chain(ends) {
            let netns = Netns::create(self.namespaces().join(format!("{name}-{number}")))?;
            configure(&netns, hosts)?;
            let cgroup = self.site_group(&format!("{name}-{number}"));
            laid.sites
                .insert(name.to_owned(), Site::new(name, addresses, netns, cgroup, self.interrupt().clone()));
        }
        for (path, link) in links.iter().enumerate() {
            let emulator = join(&laid, path, link, hosts, seed)?;
            laid.emulators.push(emulator);
            laid.links.push(link.name.clone());
        }
        if behind {
            put_hosts_behind(&laid, hosts)?;
        }
        Ok(laid)
    }
}

/// The sites with the addresses under which others reach them.
fn plan(paths: usize) -> [(&'static str, Vec<Ipv4Addr>); 2] {
    [("a", 1), ("b", 2)].map(|(name, host)| (name, (0..paths).map(|path| wan(path, host)).collect()))
}

/// A host, the site behind which it lies, and the third number of their network.
const BEHIND: [(&str, &str, u8); 2] = [("server", "a", 1), ("client", "b", 2)];

/// Address in a network of hosts.
fn host(lan: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, lan, number)
}

/// A wire from each site to its host, and the ways from host to host.
fn put_hosts_behind(laid: &Laid, hosts: &Hosts) -> Result<(), TestBedError> {
    let congestion = &hosts.congestion;
    for ((name, site, lan), (_, _, far)) in BEHIND.into_iter().zip(BEHIND.into_iter().rev()) {
        let (site, end) = (laid.site(site)?.namespace(), laid.site(name)?.namespace());
        // The namespaces are files that only the laboratory's mounts have, so ip finds the other one by its path.
        site.ip(&format!("link add lan0 type veth peer name eth0 netns {}\n", end.path().display()))?;
        let (router, own) = (host(lan, 1), host(lan, 2));
        site.ip(&format!(
            "address add {router}/24 dev lan0\nlink set lan0 up\nroute add {}/24 dev wan0 congctl {congestion}\n",
            host(far, 0)
        ))?;
        end.ip(&format!(
            "address add {own}/24 dev eth0\nlink set eth0 up\nroute add default via {router} congctl {congestion}\n"
        ))?;
        site.sysctl("net.ipv4.ip_forward", "1")?;
    }
    Ok(())
}

/// Address on a path. Paths are at most [`MAX_PATHS`].
fn wan(path: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, u8::try_from(path).unwrap_or(u8::MAX), host)
}

/// What all hosts have in common, whatever the machine's own settings are.
fn configure(netns: &Netns, hosts: &Hosts) -> Result<(), TestBedError> {
    match netns.sysctl("net.ipv4.tcp_congestion_control", &hosts.congestion) {
        Ok(()) => {}
        // Known to the kernel, but not among tcp_allowed_congestion_control, which only the machine itself can change:
        // then no namespace can make it its default. A route can, and every route of ours names it (`attach`).
        Err(TestBedError::System { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {}
        Err(_) => {
            let known = netns.read_sysctl("net.ipv4.tcp_available_congestion_control")?;
            let name = &hosts.congestion;
            return Err(TestBedError::Hosts(format!(
                "this kernel has no congestion control {name}; it has {known}. A module may have it: modprobe tcp_{name}"
            )));
        }
    }
    // What one run's connections learned of the path must not start the next one's.
    netns.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
    // Several paths may answer each other's packets.
    netns.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
    netns.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
    limit(netns, "net.ipv4.tcp_rmem", hosts.tcp_rmem_max_bytes)?;
    limit(netns, "net.ipv4.tcp_wmem", hosts.tcp_wmem_max_bytes)
}

/// Lines of `ip -batch`: `device` up with an address, and the host or network at its other end reached over it. Takes the
/// place of the route that the kernel makes by itself, which would not name the congestion control.
fn attach(device: &str, here: &str, there: &str, hosts: &Hosts) -> String {
    let source = here.split(['/', ' ']).next().unwrap_or(here);
    let congestion = &hosts.congestion;
    format!(
        "address add {here} dev {device}\nlink set {device} up\n\
         route replace {there} dev {device} scope link src {source} congctl {congestion}\n"
    )
}

/// Sets the last of the three numbers; the first two no larger than it.
fn limit(netns: &Netns, name: &str, max_bytes: Option<u64>) -> Result<(), TestBedError> {
    let Some(max) = max_bytes else { return Ok(()) };
    let now = netns.read_sysctl(name)?;
    let mut fields = now.split_whitespace().map_while(|field| field.parse::<u64>().ok());
    let (Some(least), Some(usual)) = (fields.next(), fields.next()) else {
        return Err(TestBedError::Hosts(format!("{name} is `{now}`, not three numbers")));
    };
    netns.sysctl(name, &format!("{} {} {max}", least.min(max), usual.min(max)))
}

/// Starts the emulator of one path, its devices at both sites up, with addresses.
fn join(laid: &Laid, path: usize, link: &Link, hosts: &Hosts, seed: u64) -> Result<Emulator, TestBedError> {
    let (a, b) = (laid.site("a")?.namespace(), laid.site("b")?.namespace());
    let device = format!("wan{path}");
    let at_a = Tun::open(Some(a.path()), &device, link.forward.mtu).map_err(of_link(&link.name))?;
    let at_b = Tun::open(Some(b.path()), &device, link.back.mtu).map_err(of_link(&link.name))?;
    let (address_a, address_b) = (wan(path, 1), wan(path, 2));
    let there = |address| format!("{address}/32");
    a.ip(&attach(&device, &format!("{address_a} peer {address_b}/32"), &there(address_b), hosts))?;
    b.ip(&attach(&device, &format!("{address_b} peer {address_a}/32"), &there(address_a), hosts))?;
    // Each path has losses of its own.
    Emulator::start(at_a, at_b, link, seed.wrapping_add(path as u64)).map_err(of_link(&link.name))
}

fn of_link(link: &str) -> impl FnOnce(EmulatorError) -> TestBedError {
    move |source| TestBedError::Emulator { link: link.to_owned(), source }
}
