//! What the peers of one host hold together.

use crate::peer::Peer;
use alloc::vec::Vec;

/// What one host holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Memory for incoming messages.
    pub(crate) memory: u64,
    /// Requests of it in progress.
    pub(crate) served: u32,
}

/// By number.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Vec<Account>);

impl Accounts {
    pub(crate) fn open(&mut self, account: u32) {
        if self.0.len() <= account as usize {
            self.0.resize(account as usize + 1, Account::default());
        }
    }

    /// What the host of a peer holds; where hosts have no accounts, what the peer does.
    pub(crate) fn of(&self, peer: &Peer) -> Account {
        let alone = Account { memory: peer.more.memory, served: peer.more.served };
        peer.more.account.map_or(alone, |account| self.0[account as usize])
    }

    /// The account of a peer's host.
    pub(crate) fn of_mut(&mut self, peer: &Peer) -> Option<&mut Account> {
        peer.more.account.map(|account| &mut self.0[account as usize])
    }
}
