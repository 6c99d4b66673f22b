//! Accounts: the hosts to which scarce resources are charged. A host is an IPv4 address, or the
//! first 64 bits of an IPv6 address, which a network assigns to one customer or machine. A host
//! with many ports or addresses has one share.

use std::net::{IpAddr, Ipv6Addr};

use hashbrown::HashMap;

/// The number of an account; numbers are small and reused.
pub type AccountId = u32;

/// Replies of at most this many bytes may use the reserve.
const SHORT: u64 = 64 * 1024;
/// One part in this many of the memory for outgoing messages is reserved.
const RESERVE: u64 = 16;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Accounts {
    by_host: HashMap<IpAddr, AccountId>,
    all: Vec<Account>,
    free: Vec<AccountId>,
}

#[derive(Debug)]
struct Account {
    host: IpAddr,
    peers: u32,
}

/// The part of an address that identifies its host.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        // One machine may have all addresses of its network's 64 bits.
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

/// The host of an address as a number. Unlike an account's number, it is never reused.
pub fn host_key(address: IpAddr) -> u64 {
    match address {
        // No IPv6 network begins with these 64 bits.
        IpAddr::V4(v4) => 0xffff << 32 | u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

impl Accounts {
    /// Adds a peer at an address.
    pub fn open(&mut self, address: IpAddr) -> AccountId {
        let host = host_of(address);
        if let Some(&id) = self.by_host.get(&host) {
            self.all[id as usize].peers += 1;
            return id;
        }
        let account = Account { host, peers: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = account;
                id
            }
            None => {
                self.all.push(account);
                self.all.len() as AccountId - 1
            }
        };
        self.by_host.insert(host, id);
        id
    }

    /// The account of an address that has peers, and their number.
    pub fn of(&self, address: IpAddr) -> Option<(AccountId, usize)> {
        let id = *self.by_host.get(&host_of(address))?;
        Some((id, self.all[id as usize].peers as usize))
    }

    /// Removes a peer.
    pub fn close(&mut self, id: AccountId) {
        let account = &mut self.all[id as usize];
        account.peers -= 1;
        // Its number is free for another host.
        if account.peers == 0 {
            self.by_host.remove(&account.host);
            self.free.push(id);
        }
    }
}

/// Checks the memory for a reply of `length` bytes to a host whose replies hold `of_host` bytes, if
/// all replies hold `held` of at most `most` bytes. A host gets no more than is left for all
/// others, so it never has more than half. Long replies leave a reserve for short ones.
pub fn has_capacity(length: u64, of_host: u64, held: u64, most: u64) -> bool {
    // If nothing is held, a long reply may have everything: no short one waits.
    let reserve = if length > SHORT && held > 0 { most / RESERVE } else { 0 };
    let left = most.saturating_sub(held + reserve);
    length <= left && (of_host == 0 || of_host + length <= most.saturating_sub(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_addresses_of_one_host_are_one_account() {
        let mut accounts = Accounts::default();
        let [a, b, c] = ["2001:db8::1", "2001:db8::9:9", "2001:db8:0:1::1"]
            .map(|text| accounts.open(text.parse().unwrap()));
        assert!(a == b && a != c);
        let [d, e] = ["10.0.0.1", "10.0.0.2"].map(|text| accounts.open(text.parse().unwrap()));
        assert!(d != e);
        accounts.close(a);
        accounts.close(a);
        assert_eq!(accounts.open("10.0.0.3".parse().unwrap()), a, "numbers are used again");
        assert_eq!(accounts.open("10.0.0.1".parse().unwrap()), d);
    }

    #[test]
    fn one_host_fills_half_and_short_replies_have_a_reserve() {
        const MOST: u64 = 1 << 30;
        const LONG: u64 = 16 << 20;
        let mut held = 0;
        while has_capacity(LONG, held, held, MOST) {
            held += LONG;
        }
        assert!(held > MOST / 2 - 2 * LONG && held <= MOST / 2, "{held}");
        while has_capacity(LONG, 0, held, MOST) {
            held += LONG;
        }
        assert!(held > MOST - MOST / 8, "{held}");
        assert!(has_capacity(SHORT, 0, held, MOST) && has_capacity(100, 10_000, held, MOST));
        assert!(has_capacity(MOST, 0, 0, MOST), "alone it may take all");
    }
}
