//! At which side of this box an address is, by the kernel's own routing: a peer's box speaks for clients at the WAN, of servers at
//! the LAN, and for nobody else.

use std::io;
use std::net::IpAddr;

use crate::control::Interception;
use crate::kernel::{Leads, Lookup, interfaces};
use crate::rules::Bridge;

/// Asks the kernel, each time: routes change. They do not tell the sides of a bridge apart: an inline box only checks that an address
/// is on neither another interface nor itself.
#[derive(Debug)]
pub(super) struct Placement {
    lookup: Lookup,
    lan: Vec<String>,
    wan: String,
}

impl Placement {
    pub(super) fn new(interception: &Interception, bridge: Option<&Bridge>) -> io::Result<Placement> {
        let Interception { lan, wan } = match bridge {
            None => interception.clone(),
            Some(bridge) => Interception { lan: vec![bridge.name.clone()], wan: bridge.name.clone() },
        };
        Ok(Placement { lookup: Lookup::open()?, lan, wan })
    }

    /// Whether a client's address is where answers to it leave by the WAN.
    ///
    /// # Errors
    /// If not: a sentence for whoever administers the peer.
    pub(super) fn must_be_at_wan(&self, client: IpAddr) -> Result<(), String> {
        match self.lookup.leads(client) {
            Ok(Leads::Out(index)) if interfaces::index(&self.wan) == Some(index) => Ok(()),
            Ok(Leads::Out(index)) => Err(format!(
                "{client} cannot be a client at the other side: the way to it leaves by {}, and not by the WAN interface {}",
                interfaces::name(index),
                self.wan
            )),
            Ok(Leads::Here) => Err(format!("{client} is an address of this box")),
            Ok(Leads::Nowhere) => Err(format!("there is no route back to {client}")),
            Err(error) => Err(format!("the way to {client} is not known: {error}")),
        }
    }

    /// Whether a server is behind a LAN interface, or on this box.
    pub(super) fn is_at_lan(&self, server: IpAddr) -> bool {
        match self.lookup.leads(server) {
            Ok(Leads::Here) => true,
            Ok(Leads::Out(index)) => self.lan.iter().any(|name| interfaces::index(name) == Some(index)),
            Ok(Leads::Nowhere) => false,
            Err(error) => {
                tracing::debug!(%server, %error, "the way to a server is not known");
                false
            }
        }
    }
}
