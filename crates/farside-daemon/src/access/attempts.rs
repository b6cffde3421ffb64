//! How often somebody may try a password: by address, and by account wherever the tries come from.
//!
//! An account under attack cannot log in while that lasts. Tokens and the control socket go on.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Tries of one address at once, and how long one takes to come back.
const ADDRESS_BURST: NonZeroU32 = NonZeroU32::new(5).expect("it is not 0");
const ADDRESS_EVERY: Duration = Duration::from_secs(6);
/// The same for an account.
const ACCOUNT_BURST: NonZeroU32 = NonZeroU32::new(20).expect("it is not 0");
const ACCOUNT_EVERY: Duration = Duration::from_secs(10);
/// Addresses that are remembered; with more, none but those may try until some are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// Counts tries.
pub(super) struct Attempts {
    by_address: DefaultKeyedRateLimiter<IpAddr>,
    /// None: all names that nobody has.
    by_account: DefaultKeyedRateLimiter<Option<String>>,
}

impl Attempts {
    pub(super) fn new() -> Attempts {
        let quota = |every, burst| Quota::with_period(every).map(|quota| quota.allow_burst(burst));
        let address = quota(ADDRESS_EVERY, ADDRESS_BURST).expect("the period is not zero");
        let account = quota(ACCOUNT_EVERY, ACCOUNT_BURST).expect("the period is not zero");
        Attempts { by_address: RateLimiter::keyed(address), by_account: RateLimiter::keyed(account) }
    }

    /// Whether there may be one more; it counts.
    pub(super) fn allow(&self, from: IpAddr, account: Option<&str>) -> bool {
        if self.by_address.len() >= ADDRESSES_MAX {
            self.by_address.retain_recent();
            if self.by_address.len() >= ADDRESSES_MAX {
                return false;
            }
        }
        self.by_address.check_key(&network(from)).is_ok()
            && self.by_account.check_key(&account.map(str::to_owned)).is_ok()
    }

    /// Forgets those that may try as if they never had.
    pub(super) fn tidy(&self) {
        self.by_address.retain_recent();
        self.by_account.retain_recent();
    }
}

/// What one customer of a provider has: of IPv6 a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_few_tries_and_an_account_some_more() {
        let attempts = Attempts::new();
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        let tries =
            |from: IpAddr, account: Option<&str>| (0..100).filter(|_| attempts.allow(from, account)).count();
        assert_eq!(tries(here, Some("ann")), 5);
        assert_eq!(
            tries("::ffff:192.0.2.1".parse().unwrap(), Some("ann")),
            0,
            "the same address, written otherwise"
        );
        assert_eq!(tries("2001:db8::1".parse().unwrap(), Some("bob")), 5);
        assert_eq!(tries("2001:db8::2".parse().unwrap(), Some("bob")), 0, "the same network");
        let many = (0..50).map(|n| tries(IpAddr::from([198, 51, 100, n]), Some("ann"))).sum::<usize>();
        assert_eq!(many, 15, "an account that is tried from everywhere");
        attempts.tidy();
        assert_eq!(tries(here, Some("carl")), 0, "who has just tried is remembered");
    }
}
