//! Several addresses of one name, tried almost at once ("happy eyeballs", RFC 8305).
//!
//! A name has several addresses where a host has both IP versions, several lines, or a stand-in; and any of them may swallow
//! packets. Each is dialled a moment after the one before, the first that connects wins, and the others are dropped. Which
//! one won is remembered: the other connections of a session go there at once.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::{DIAL_NEXT_ADDRESS_AFTER, DIAL_TIMEOUT};

/// One address has so long, counted from its own start: half of what all may take, name resolution included.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
const _: () = assert!(ADDRESS_TIMEOUT.as_secs() < DIAL_TIMEOUT.as_secs());
/// Names whose winner is remembered: more than a site has peers and paths.
const REMEMBERED_MAX: usize = 64;

/// What connected last, by name and the address it was dialled from.
static WINNERS: Mutex<Winners> = Mutex::new(Winners(VecDeque::new()));

type Name = (String, Option<IpAddr>);

struct Winners(VecDeque<(Name, SocketAddr)>);

impl Winners {
    fn of(&self, name: &Name) -> Option<SocketAddr> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, winner)| *winner)
    }

    fn remember(&mut self, name: Name, winner: SocketAddr) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push_front((name, winner));
        self.0.truncate(REMEMBERED_MAX);
    }
}

/// Dials the addresses of `name` by `dial` until one connects.
///
/// # Errors
/// None did: each address with its reason.
pub(super) async fn first_to_connect<T, F>(
    name: (&str, Option<IpAddr>),
    addresses: Vec<SocketAddr>,
    dial: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let name = (name.0.to_owned(), name.1);
    let winner = WINNERS.lock().of(&name);
    let is_only = addresses.len() == 1;
    let raced = race(in_order(addresses, winner), dial).await;
    let (address, connection) = raced.map_err(|failed| all_failed(&name.0, failed))?;
    if !is_only {
        WINNERS.lock().remember(name, address);
    }
    Ok(connection)
}

/// The last winner first, then the IP versions in turn, each in the order of the resolver: one that does not work at all
/// costs one pause.
fn in_order(addresses: Vec<SocketAddr>, winner: Option<SocketAddr>) -> VecDeque<SocketAddr> {
    let mut order: VecDeque<SocketAddr> =
        winner.filter(|winner| addresses.contains(winner)).into_iter().collect();
    let is_first_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == is_first_v6);
    while !first.is_empty() || !second.is_empty() {
        for version in [&mut first, &mut second] {
            if let Some(address) = version.pop_front()
                && !order.contains(&address)
            {
                order.push_back(address);
            }
        }
    }
    order
}

async fn race<T, F>(
    mut untried: VecDeque<SocketAddr>,
    dial: impl Fn(SocketAddr) -> F,
) -> Result<(SocketAddr, T), Vec<(SocketAddr, io::Error)>>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut dialling = JoinSet::new();
    let mut failed: Vec<(SocketAddr, io::Error)> = Vec::new();
    let mut next_at = Instant::now();
    loop {
        if Instant::now() >= next_at || dialling.is_empty() {
            if let Some(address) = untried.pop_front() {
                let dialled = dial(address);
                dialling.spawn(async move {
                    let silent = || io::Error::new(io::ErrorKind::TimedOut, "does not answer");
                    (address, timeout(ADDRESS_TIMEOUT, dialled).await.unwrap_or_else(|_| Err(silent())))
                });
                next_at = Instant::now() + DIAL_NEXT_ADDRESS_AFTER;
            } else if dialling.is_empty() {
                return Err(failed);
            }
        }
        let ended = tokio::select! {
            biased;
            ended = dialling.join_next() => ended,
            () = sleep_until(next_at), if !untried.is_empty() => continue,
        };
        match ended {
            // The others end with the set.
            Some(Ok((address, Ok(connection)))) => return Ok((address, connection)),
            Some(Ok((address, Err(error)))) => {
                failed.push((address, error));
                next_at = Instant::now();
            }
            Some(Err(_)) | None => {}
        }
    }
}

fn all_failed(name: &str, mut failed: Vec<(SocketAddr, io::Error)>) -> io::Error {
    if let [(address, _)] = &failed[..]
        && address.to_string() == name
        && let Some((_, error)) = failed.pop()
    {
        return error;
    }
    let kind = failed.last().map_or(io::ErrorKind::NotFound, |(_, error)| error.kind());
    let said: Vec<String> = failed.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    match &said[..] {
        [] => io::Error::new(kind, "the name has no address"),
        [one] => io::Error::new(kind, one.clone()),
        several => io::Error::new(
            kind,
            format!("none of {} addresses connects: {}", several.len(), several.join("; ")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Dials by what the addresses are called: 10.0.0.0/24 swallows all, 10.0.1.0/24 refuses, others connect after 40 ms.
    async fn by_name(to: SocketAddr, dialled: Arc<Mutex<Vec<SocketAddr>>>) -> io::Result<SocketAddr> {
        dialled.lock().push(to);
        match to.to_string() {
            name if name.starts_with("10.0.0.") => std::future::pending().await,
            name if name.starts_with("10.0.1.") => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => {
                tokio::time::sleep(Duration::from_millis(40)).await;
                Ok(to)
            }
        }
    }

    async fn dialled(name: &str, addresses: &[&str]) -> (io::Result<SocketAddr>, Vec<SocketAddr>, Duration) {
        let addresses = addresses.iter().map(|text| address(text)).collect();
        let (dialled, began) = (Arc::new(Mutex::default()), Instant::now());
        let log = Arc::clone(&dialled);
        let won = first_to_connect((name, None), addresses, move |to| by_name(to, Arc::clone(&log))).await;
        let order = dialled.lock().clone();
        (won, order, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_swallow_all_cost_a_moment_each_and_once() {
        let name = "two of three are dead";
        let three = ["10.0.0.77:1", "10.0.0.78:1", "192.0.2.1:1"];
        let (won, order, took) = dialled(name, &three).await;
        assert_eq!(won.unwrap(), address("192.0.2.1:1"));
        assert_eq!(order.len(), 3);
        assert!(took < Duration::from_millis(700), "{took:?}");
        let (won, order, took) = dialled(name, &three).await;
        assert_eq!((won.unwrap(), order.len()), (address("192.0.2.1:1"), 1), "it is known by now");
        assert!(took < Duration::from_millis(60), "{took:?}");
        // From another address of this host another one may answer.
        let another = first_to_connect((name, "127.0.0.1".parse().ok()), vec![address(three[2])], |to| {
            by_name(to, Arc::default())
        });
        assert!(another.await.is_ok());
        // One that is no longer among the name's is forgotten.
        let (won, order, _) = dialled(name, &["192.0.2.2:1", "192.0.2.3:1"]).await;
        assert_eq!((won.unwrap(), order.len()), (address("192.0.2.2:1"), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_refuses_costs_nothing_and_all_that_fails_is_told() {
        let (won, order, took) = dialled("refused", &["10.0.1.1:1", "10.0.1.2:1", "192.0.2.1:1"]).await;
        assert_eq!((won.unwrap(), order.len()), (address("192.0.2.1:1"), 3));
        assert!(took < Duration::from_millis(60), "{took:?}");

        let (won, _, took) = dialled("dead", &["10.0.0.1:1", "10.0.1.2:1", "10.0.0.3:1"]).await;
        let error = won.unwrap_err().to_string();
        assert!(took < DIAL_TIMEOUT, "its own time each, side by side: {took:?}");
        for part in
            ["none of 3", "10.0.0.1:1: does not answer", "10.0.1.2:1: ", "refused", "10.0.0.3:1: does"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        let (won, ..) = dialled("no address", &[]).await;
        assert!(won.unwrap_err().to_string().contains("no address"));
    }

    #[test]
    fn the_versions_of_ip_take_turns() {
        let all = ["[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1", "192.0.2.2:1"].map(address);
        let order = |winner| Vec::from(in_order(all.to_vec(), winner));
        assert_eq!(order(None), [all[0], all[2], all[1], all[3]]);
        assert_eq!(order(Some(all[3])), [all[3], all[0], all[2], all[1]]);
        assert_eq!(order(Some(address("192.0.2.9:1"))), order(None), "one that the name no longer has");
    }
}
