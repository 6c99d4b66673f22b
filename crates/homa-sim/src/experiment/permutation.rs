//! A permutation: every host sends one message to one other host, all at the start.

use crate::time::SimTime;
use crate::traffic::open_loop::ScheduledMessage;

/// Every host sends to the next one in a random cycle of all hosts, so that no host sends to
/// itself.
pub(super) fn permutation(hosts: u32, bytes: u32, seed: u64) -> Vec<ScheduledMessage> {
    let mut rng = homa_workload::rng::Rng::stream(seed, "permutation");
    let mut circle: Vec<u32> = (0..hosts).collect();
    for i in (1..hosts).rev() {
        circle.swap(i as usize, rng.uniform_below(i + 1) as usize);
    }
    let next = circle.iter().cycle().skip(1);
    let pairs = circle.iter().zip(next);
    pairs.map(|(&src, &dst)| ScheduledMessage { at: SimTime::ZERO, src, dst, bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_receives_one_message_from_another() {
        let list = permutation(144, 10, 3);
        let mut received = vec![0; 144];
        for flow in &list {
            assert_ne!(flow.src, flow.dst);
            received[flow.dst as usize] += 1;
        }
        assert_eq!(received, vec![1; 144]);
    }
}
