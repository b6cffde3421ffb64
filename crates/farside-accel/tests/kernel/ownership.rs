//! Whose the rules are, and what is left when their owner goes.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside_accel::kernel::{KernelError, MarkRoutes, OwnedTable, SynQueue, TableOwner, table_owner};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableMessage};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::space::{PATIENCE, Space, at_server};
use super::{A_WHILE, OWN_PORT, connect, install, join, lab, listen, ruleset};

/// Set in a process that is to be killed.
const OWNER: &str = "FARSIDE_TEST_OWNER";
/// Set in a process without capabilities.
const POWERLESS: &str = "FARSIDE_TEST_POWERLESS";

fn named_farside() -> TableMessage {
    TableMessage { attributes: vec![TableAttribute::Name("farside".to_owned())] }
}

/// One change of nf_tables from a socket of its own; what the kernel says to it.
fn change(message: NfTablesMessage) -> io::Result<()> {
    let header = |family, subsystem| NetfilterHeader::new(family, 0, subsystem);
    let (unspecified, inet) = (NetfilterProtoFamily::Unspec, NetfilterProtoFamily::Inet);
    let messages = [
        (0, NetfilterMessage::new(header(unspecified, 10), ControlMessage::BatchBegin)),
        (NLM_F_ACK | NLM_F_CREATE, NetfilterMessage::new(header(inet, 0), message)),
        (0, NetfilterMessage::new(header(unspecified, 10), ControlMessage::BatchEnd)),
    ];
    let mut bytes = Vec::new();
    for (flags, message) in messages {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let start = bytes.len();
        bytes.resize(start + message.buffer_len(), 0);
        message.serialize(&mut bytes[start..]);
    }
    let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(&bytes, &netlink_sys::SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<NetfilterMessage>::deserialize(&answer).unwrap().payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        other => panic!("{other:?}"),
    }
}

/// What `nft list ruleset` prints, if nft is installed.
fn nft(space: &Space) -> Option<String> {
    let mut command = Command::new("nft");
    command.args(["list", "ruleset"]);
    match space.program(command) {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(error) => {
            eprintln!("not compared with what nft prints: {error}");
            None
        }
    }
}

/// Waits until the table is gone. It goes when its socket is closed; a program that another test is just starting has a copy of
/// that until it is executed.
async fn gone(since: Instant) {
    while table_owner().unwrap().is_some() {
        assert!(since.elapsed() < Duration::from_millis(200), "the table is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn the_table_is_its_owners_and_goes_with_it() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        assert_eq!(table_owner().unwrap(), None);
        let installed = install();
        assert!(matches!(table_owner().unwrap(), Some(TableOwner::Port(_))));
        if let Some(text) = nft(&lab.middle) {
            assert!(text.contains("flags owner"), "{text}");
            for words in [
                "chain hold",
                "hook prerouting priority mangle",
                "tcp flags syn / fin,syn,rst,ack",
                "fib daddr type != local",
                "fib daddr oifname != \"lan1\"",
                "socket transparent 1",
                "tproxy ip to :",
                "tproxy ip6 to :",
                "reject with tcp reset",
            ] {
                assert!(text.contains(words), "no {words:?} in {text}");
            }
        }
        let error = change(NfTablesMessage::DeleteTable(named_farside())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(matches!(table_owner().unwrap(), Some(TableOwner::Port(_))));

        let error = OwnedTable::install(&ruleset(1)).unwrap_err();
        assert!(matches!(error, KernelError::TableOwned { .. }), "{error}");
        let error = SynQueue::open(super::QUEUE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");

        drop(installed);
        gone(Instant::now()).await;
    });
}

#[test]
fn a_table_that_nobody_owns_is_left_alone() {
    let Some(lab) = lab() else { return };
    lab.middle.run(move || async move {
        change(NfTablesMessage::NewTable(named_farside())).unwrap();
        assert_eq!(table_owner().unwrap(), Some(TableOwner::Nobody));
        let error = OwnedTable::install(&ruleset(1)).unwrap_err();
        assert!(matches!(error, KernelError::TableThere), "{error}");
        change(NfTablesMessage::DeleteTable(named_farside())).unwrap();
        drop(OwnedTable::install(&ruleset(1)).unwrap());
    });
}

/// Not a test: what [`the_rules_go_with_a_process_that_is_killed`] starts and kills.
#[test]
fn owner_process() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut installed = install();
        println!("\nready");
        let held = installed.held().await;
        println!("\nheld");
        tokio::time::sleep(PATIENCE).await;
        drop(held);
    });
}

#[test]
fn the_rules_go_with_a_process_that_is_killed() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let address = at_server(80)[0];
        let _listener = listen(&lab.server, address);
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ownership::owner_process", "--nocapture"])
            .env(OWNER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        let found = table_owner().unwrap();
        assert!(matches!(found, Some(TableOwner::Port(_))), "{found:?}");

        let held = connect(&lab.client, address);
        assert!(lines.any(|line| line.unwrap() == "held"));
        tokio::time::sleep(A_WHILE).await;
        assert!(!held.is_finished());

        owner.kill().unwrap();
        let killed = Instant::now();
        gone(killed).await;
        let took = killed.elapsed();
        let begin = Instant::now();
        join(connect(&lab.client, address)).await.unwrap();
        let connected = begin.elapsed();
        eprintln!("the table was gone after {took:?}; the next connection took {connected:?}");
        assert!(connected < Duration::from_millis(200), "{connected:?}");
        // The one whose SYN was held: its client sends another after a second.
        join(held).await.unwrap();
        owner.wait().unwrap();

        // What the process could not take back.
        assert!(lab.middle.ip_says("rule").contains("fwmark 0xfa"));
        MarkRoutes::remove_stale().unwrap();
        assert!(!lab.middle.ip_says("rule").contains("fwmark 0xfa"));
        assert!(!lab.middle.ip_says("-6 rule").contains("fwmark 0xfa"));
    });
}

#[test]
fn what_is_not_to_be_held_is_not() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        // Nobody reads the queue: what is held stays held.
        let installed = install();
        assert!(installed.table.means().leaves_out_local);
        let here: [SocketAddr; 3] =
            ["10.1.0.1:22", "[fd00:1::1]:22", "10.2.0.1:22"].map(|address| address.parse().unwrap());
        let near: [SocketAddr; 2] = ["10.3.0.4:80", "[fd00:3::4]:80"].map(|address| address.parse().unwrap());
        let own = at_server(OWN_PORT);
        let mut listeners = Vec::new();
        for (space, addresses) in [(&lab.middle, &here[..]), (&lab.neighbour, &near), (&lab.server, &own)] {
            listeners.extend(addresses.iter().map(|address| listen(space, *address)));
        }
        for address in here.into_iter().chain(near).chain(own) {
            let begin = Instant::now();
            join(connect(&lab.client, address)).await.unwrap();
            assert!(begin.elapsed() < Duration::from_millis(500), "{address} was held");
        }
    });
}

/// Not a test: what [`without_the_capability_it_says_so`] starts.
#[test]
fn powerless_process() {
    if std::env::var_os(POWERLESS).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let error = OwnedTable::install(&ruleset(1)).unwrap_err();
        assert!(matches!(error, KernelError::NotPermitted { .. }), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"));
        let error = MarkRoutes::install().unwrap_err();
        assert!(matches!(error, KernelError::NotPermitted { .. }), "{error}");
        let error = SynQueue::open(super::QUEUE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    });
}

#[test]
fn without_the_capability_it_says_so() {
    let Some(lab) = lab() else { return };
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "ownership::powerless_process", "--nocapture"])
        .env(POWERLESS, "1");
    match lab.middle.program(command) {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("skipped: no setpriv: {error}"),
    }
}
