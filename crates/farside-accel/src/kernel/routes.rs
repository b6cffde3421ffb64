//! The way of a taken connection to a socket of this box: a routing rule for its mark, and a table that delivers everything here.
//!
//! ```text
//! ip rule add fwmark 0xfa lookup 7442 priority 74        and the same for IPv6
//! ip route add local default dev lo table 7442
//! ```
//!
//! The kernel ties these to no process. What a crash leaves behind is harmless, as nothing sets the mark without the rules, and
//! [`MarkRoutes::remove_stale`] or the next [`MarkRoutes::install`] deals with it.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{EAFNOSUPPORT, EEXIST, ENOENT, EOPNOTSUPP, ESRCH};

use super::error::KernelError;
use super::interfaces::has_ipv6;
use super::netlink::Netlink;
use crate::rules::{ROUTE_TABLE, RULE_PRIORITY, TAKEN};

/// `lo` has this index in every network namespace (LOOPBACK_IFINDEX).
const LOOPBACK: u32 = 1;
/// Most rules of one mark that are removed: one is ours; a person may have added some.
const RULES_MAX: usize = 16;

/// Rule and route of IPv4, and of IPv6 where the host has it. Dropping it removes them, as [`MarkRoutes::remove`] does.
#[derive(Debug)]
pub struct MarkRoutes {
    socket: Netlink,
    is_installed: bool,
}

impl MarkRoutes {
    /// Installs them in the network namespace of this thread. What is there already is kept.
    pub fn install() -> Result<MarkRoutes, KernelError> {
        const WHAT: &str =
            "add the routing rule for taken connections (`ip rule add fwmark 0xfa lookup 7442`)";
        const ROUTE: &str = "add their route (`ip route add local default dev lo table 7442`; is `lo` up?)";
        let mut routes = MarkRoutes { socket: open(WHAT)?, is_installed: true };
        let families: &[AddressFamily] =
            if has_ipv6() { &[AddressFamily::Inet, AddressFamily::Inet6] } else { &[AddressFamily::Inet] };
        for &family in families {
            // The route first: a marked packet never finds the rule and no route.
            routes
                .add(RouteNetlinkMessage::NewRoute(route(family)))
                .map_err(|error| KernelError::of(ROUTE, error))?;
            routes
                .add(RouteNetlinkMessage::NewRule(rule(family)))
                .map_err(|error| KernelError::of(WHAT, error))?;
        }
        Ok(routes)
    }

    /// Removes them.
    pub fn remove(mut self) -> Result<(), KernelError> {
        self.is_installed = false;
        remove_all(&mut self.socket)
    }

    /// Removes what a process that died has left behind, if anything.
    pub fn remove_stale() -> Result<(), KernelError> {
        remove_all(&mut open(REMOVE)?)
    }

    fn add(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        match self.socket.request(NLM_F_CREATE | NLM_F_EXCL, message) {
            Err(error) if error.raw_os_error() == Some(EEXIST) => Ok(()),
            result => result,
        }
    }
}

impl Drop for MarkRoutes {
    fn drop(&mut self) {
        if self.is_installed {
            // Nobody is left to be told, and what stays is harmless.
            let _ = remove_all(&mut self.socket);
        }
    }
}

const REMOVE: &str = "remove rule and route for taken connections (`ip rule del fwmark 0xfa`)";

fn open(what: &'static str) -> Result<Netlink, KernelError> {
    Netlink::open(NETLINK_ROUTE).map_err(|error| KernelError::of(what, error))
}

/// Removes rules and route of both families. All are tried; the first error is told.
fn remove_all(socket: &mut Netlink) -> Result<(), KernelError> {
    let mut result = Ok(());
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for _ in 0..RULES_MAX {
            match remove(socket, RouteNetlinkMessage::DelRule(any_rule(family))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    result = result.and(Err(error));
                    break;
                }
            }
        }
        let removed = remove(socket, RouteNetlinkMessage::DelRoute(any_route(family)));
        result = result.and(removed.map(drop));
    }
    result.map_err(|error| KernelError::of(REMOVE, error))
}

/// Whether there was such a one.
fn remove(socket: &mut Netlink, message: RouteNetlinkMessage) -> io::Result<bool> {
    match socket.request(0, message) {
        Ok(()) => Ok(true),
        // None, or no IPv6 at all.
        Err(error) if matches!(error.raw_os_error(), Some(ENOENT | ESRCH | EAFNOSUPPORT | EOPNOTSUPP)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn rule(family: AddressFamily) -> RuleMessage {
    let mut rule = any_rule(family);
    rule.attributes.push(RuleAttribute::Priority(RULE_PRIORITY));
    rule
}

/// At any place.
fn any_rule(family: AddressFamily) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header = RuleHeader { family, action: RuleAction::ToTable, ..RuleHeader::default() };
    message.attributes = vec![RuleAttribute::FwMark(TAKEN), RuleAttribute::Table(ROUTE_TABLE)];
    message
}

fn route(family: AddressFamily) -> RouteMessage {
    let mut route = any_route(family);
    route.header.protocol = RouteProtocol::Static;
    route
}

/// Of any origin.
fn any_route(family: AddressFamily) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family,
        scope: RouteScope::Host,
        kind: RouteType::Local,
        ..RouteHeader::default()
    };
    message.attributes = vec![RouteAttribute::Oif(LOOPBACK), RouteAttribute::Table(ROUTE_TABLE)];
    message
}
