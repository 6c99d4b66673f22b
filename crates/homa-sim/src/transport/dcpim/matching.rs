//! The decisions of a round of the matching, for senders and receivers alike (authors' simulator:
//! `send_all_req`, `handle_all_req`, `handle_all_grants`).
//!
//! A host has k channels in either role, each with 1/k of the rate of its link. A receiver asks
//! each sender for as many channels as the rest of its shortest message needs in one data phase.
//! Senders divide their free channels among the requests, and receivers divide theirs among the
//! grants. In the first round the shortest message goes first, later the order is random.

use homa_workload::rng::Rng;

/// Channels of a host in one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// All of them.
    pub count: u32,
    /// Those that may be used at once, before the data phase of their epoch begins (*prompt*).
    pub prompt: u32,
}

/// The channels of a host in one role that are taken in the epoch under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenChannels {
    /// Matched in this epoch.
    matched: u32,
    /// In use before the data phase: those of the epoch before and prompt ones of this one.
    busy: u32,
}

impl TakenChannels {
    /// The free ones of `k`.
    pub fn free(self, k: u32) -> Channels {
        let (count, prompt) = (k.saturating_sub(self.matched), k.saturating_sub(self.busy));
        Channels { count, prompt }
    }

    /// Takes channels.
    pub fn take(&mut self, channels: Channels) {
        self.matched += channels.count;
        self.busy += channels.prompt;
    }

    /// The next epoch begins: the matched channels are used in its time.
    pub fn turn(&mut self) {
        *self = Self { matched: 0, busy: self.matched };
    }
}

/// How many channels a receiver requests for a message with `left` packets missing, if a channel
/// carries `carries` packets in a data phase and `held` channels of the sender are matched already.
pub(super) fn wanted(left: u32, carries: u32, held: u32, free: Channels) -> Option<Channels> {
    let count = left.div_ceil(carries.max(1)).saturating_sub(held).min(free.count);
    (count > 0).then(|| Channels { count, prompt: count.min(free.prompt) })
}

/// A request or a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bid {
    /// Packets that are missing of the message.
    pub left: u32,
    /// Of equal messages the older goes first.
    pub order: u32,
    /// The channels that it is for.
    pub wants: Channels,
}

/// In which order bids are served.
#[derive(Debug)]
pub(super) enum BidOrder<'a> {
    /// The shortest message first.
    Shortest,
    /// At random.
    Random(&'a mut Rng),
}

/// Divides free channels among bids: the indexes of those that get some, and how many.
pub(super) fn divide(
    bids: &[Bid],
    mut free: Channels,
    order: BidOrder<'_>,
) -> Vec<(usize, Channels)> {
    let mut turns: Vec<usize> = (0..bids.len()).collect();
    match order {
        BidOrder::Shortest => turns.sort_by_key(|&at| (bids[at].left, bids[at].order)),
        BidOrder::Random(rng) => {
            for end in (2..=turns.len()).rev() {
                turns.swap(end - 1, rng.uniform_below(end as u32) as usize);
            }
        }
    }
    let mut given = Vec::new();
    for at in turns {
        let Channels { count, prompt } = bids[at].wants;
        let count = count.min(free.count);
        if count == 0 {
            continue;
        }
        let prompt = prompt.min(count).min(free.prompt);
        free = Channels { count: free.count - count, prompt: free.prompt - prompt };
        given.push((at, Channels { count, prompt }));
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn channels(count: u32, prompt: u32) -> Channels {
        Channels { count, prompt }
    }

    #[test]
    fn a_receiver_requests_what_a_data_phase_can_use() {
        // Packets missing, channels of the sender, free channels: the request.
        for (left, held, free, request) in [
            (1, 0, (4, 4), Some((1, 1))),
            (56, 0, (4, 4), Some((1, 1))),
            (57, 0, (4, 4), Some((2, 2))),
            (57, 1, (4, 4), Some((1, 1))),
            (57, 2, (4, 4), None),
            (1_000, 0, (4, 1), Some((4, 1))),
            (1_000, 0, (3, 4), Some((3, 3))),
            (1_000, 0, (0, 4), None),
        ] {
            let wanted = wanted(left, 56, held, channels(free.0, free.1));
            let request = request.map(|(count, prompt)| channels(count, prompt));
            assert_eq!(wanted, request, "{left} packets, {held} held, {free:?} free");
        }
    }

    #[test]
    fn the_shortest_message_gets_channels_first() {
        let bid = |left, order, count, prompt| Bid { left, order, wants: channels(count, prompt) };
        let bids = [bid(300, 0, 4, 4), bid(60, 1, 2, 2), bid(60, 2, 1, 1), bid(50, 3, 1, 0)];
        for (free, given) in [
            (channels(4, 4), vec![(3, channels(1, 0)), (1, channels(2, 2)), (2, channels(1, 1))]),
            (channels(2, 2), vec![(3, channels(1, 0)), (1, channels(1, 1))]),
            (channels(4, 1), vec![(3, channels(1, 0)), (1, channels(2, 1)), (2, channels(1, 0))]),
            (channels(0, 4), vec![]),
        ] {
            assert_eq!(divide(&bids, free, BidOrder::Shortest), given, "{free:?} free");
        }
        let all = divide(&bids, channels(9, 9), BidOrder::Shortest);
        assert_eq!(all.last(), Some(&(0, channels(4, 4))), "the longest is last");
    }

    #[test]
    fn later_rounds_are_random_and_give_no_more_than_there_is() {
        let mut rng = Rng::stream(1, "rounds");
        let bids: Vec<_> =
            (0..3).map(|order| Bid { left: 10 * order, order, wants: channels(2, 1) }).collect();
        let mut first = [0; 3];
        for _ in 0..3_000 {
            let given = divide(&bids, channels(3, 1), BidOrder::Random(&mut rng));
            assert_eq!(given.iter().map(|(_, got)| got.count).sum::<u32>(), 3);
            assert_eq!(given.iter().map(|(_, got)| got.prompt).sum::<u32>(), 1);
            first[given[0].0] += 1;
        }
        assert!(first.iter().all(|&times| (900..1_100).contains(&times)), "{first:?}");
    }

    #[test]
    fn channels_of_the_epoch_before_are_busy_until_the_data_phase() {
        let mut taken = TakenChannels::default();
        taken.take(channels(3, 2));
        assert_eq!(taken.free(4), channels(1, 2));
        taken.turn();
        assert_eq!(taken.free(4), channels(4, 1));
        taken.turn();
        assert_eq!(taken.free(4), channels(4, 4));
    }
}
