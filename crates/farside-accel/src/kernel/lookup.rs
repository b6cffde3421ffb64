//! Where the kernel's own routing sends what goes to an address. Asks only.

use std::fmt;
use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, ESRCH};
use parking_lot::Mutex;

use super::netlink::Netlink;

/// Where something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// Out of the interface with this index.
    Out(u32),
    /// To this host itself.
    Here,
    /// There is no route, or one that forbids it.
    Nowhere,
}

/// Asks the routing of the network namespace in which it was opened. A question takes about 10 µs and no privilege.
pub struct Lookup(Mutex<Netlink>);

impl Lookup {
    /// Opens it.
    pub fn open() -> io::Result<Lookup> {
        Ok(Lookup(Mutex::new(Netlink::open(NETLINK_ROUTE)?)))
    }

    /// Where a packet of this host to `to` goes. An IPv4 address written as one of IPv6 is asked for as IPv4.
    pub fn leads(&self, to: IpAddr) -> io::Result<Leads> {
        let to = to.to_canonical();
        let (address_family, destination_prefix_length) =
            if to.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
        let mut question = RouteMessage::default();
        question.header = RouteHeader { address_family, destination_prefix_length, ..RouteHeader::default() };
        question.attributes = vec![RouteAttribute::Destination(to.into())];
        let answers = self.0.lock().exchange(vec![(0, RouteNetlinkMessage::GetRoute(question))])?;
        if let Some((_, error)) = answers.refusal {
            let is_nowhere = [ENETUNREACH, EHOSTUNREACH, ESRCH, EACCES, EINVAL]
                .iter()
                .any(|code| error.raw_os_error() == Some(*code));
            return if is_nowhere { Ok(Leads::Nowhere) } else { Err(error) };
        }
        let route = answers.told.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        let route = route.ok_or_else(|| io::Error::other("the kernel said nothing of a route"))?;
        let out = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        Ok(match (route.header.kind, out) {
            (RouteType::Local, _) => Leads::Here,
            (RouteType::Unicast, Some(index)) => Leads::Out(index),
            _ => Leads::Nowhere,
        })
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}
