//! Whether interfaces are ports of a bridge. Asks only; takes no privilege.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::error::KernelError;
use super::netlink::Netlink;
use crate::rules::Bridge;

const WHAT: &str = "look at the interfaces";

/// The bridge whose ports `lan` and `wan` are, if they are. Interfaces that are not there are ports of none.
///
/// # Errors
/// If only some are ports of a bridge: what comes in by a port is never seen there by IP, so that nothing would be taken. And if
/// the kernel does not say.
pub fn bridge_of(lan: &[String], wan: &str) -> Result<Option<Bridge>, KernelError> {
    let failed = |error| KernelError::of(WHAT, error);
    let mut socket = Netlink::open(NETLINK_ROUTE).map_err(failed)?;
    let mut ports = Vec::new();
    for name in lan.iter().map(String::as_str).chain([wan]) {
        let link = ask(&mut socket, 0, Some(name)).map_err(failed)?;
        let bridge = match &link {
            Some(link) => bridge_over(&mut socket, link).map_err(failed)?,
            None => None,
        };
        ports.push((name, link, bridge));
    }
    let Some((port, Some(bridge))) =
        ports.iter().find_map(|(name, _, b)| b.as_ref().map(|b| (name, Some(b))))
    else {
        return Ok(None);
    };
    // A box with one leg would bridge nothing.
    let is_inline =
        ports.iter().all(|(_, _, other)| other.as_ref() == Some(bridge)) && !lan.iter().any(|l| l == wan);
    let address = ports.first().and_then(|(_, link, _)| address(link.as_ref()?));
    match address {
        Some(address) if is_inline => Ok(Some(Bridge { name: bridge.clone(), address })),
        _ => Err(KernelError::BridgePort { port: (*port).to_owned(), bridge: bridge.clone() }),
    }
}

/// The name of the bridge that a link is a port of. A bond or a VRF has ports too, which are something else.
fn bridge_over(socket: &mut Netlink, link: &LinkMessage) -> io::Result<Option<String>> {
    let controller = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(index) if *index != 0 => Some(*index),
        _ => None,
    });
    let Some(controller) = controller else { return Ok(None) };
    let Some(controller) = ask(socket, controller, None)? else { return Ok(None) };
    let is_bridge = controller.attributes.iter().any(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => {
            infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Bridge)))
        }
        _ => false,
    });
    let name = controller.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    Ok(name.filter(|_| is_bridge))
}

fn address(link: &LinkMessage) -> Option<[u8; 6]> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
        _ => None,
    })
}

/// A link, by its index or its name; none if there is none.
fn ask(socket: &mut Netlink, index: u32, name: Option<&str>) -> io::Result<Option<LinkMessage>> {
    let mut question = LinkMessage::default();
    question.header.index = index;
    question.attributes.extend(name.map(|name| LinkAttribute::IfName(name.to_owned())));
    let answers = socket.exchange(vec![(0, RouteNetlinkMessage::GetLink(question))])?;
    match answers.refusal {
        Some((_, error)) if error.raw_os_error() == Some(nix::libc::ENODEV) => return Ok(None),
        Some((_, error)) => return Err(error),
        None => {}
    }
    Ok(answers.told.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }))
}
