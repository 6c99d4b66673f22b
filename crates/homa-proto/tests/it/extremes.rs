//! A configuration with any numbers is either refused with a reason, or the protocol works: no
//! value of a field makes it panic.

use homa_proto::{
    Completion, Config, Duration, GrantWindow, Granting, Overcommitment, PriorityAllocation, Rate,
    UnscheduledLimit,
};

use crate::common::{CLIENT, ClientAndServer};

type Field = (&'static str, fn(&mut Config, u64));

/// Cut to the field's width.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn short(value: u64) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn byte(value: u64) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

const FIELDS: &[Field] = &[
    ("max_message", |c, n| c.max_message = narrow(n)),
    ("max_rpcs", |c, n| c.max_rpcs = narrow(n)),
    ("memory_budget", |c, n| c.memory_budget = n),
    ("link_rate", |c, n| c.link_rate = Some(Rate(n))),
    ("no link_rate", |c, _| c.link_rate = None),
    ("rtt_bytes", |c, n| c.rtt_bytes = narrow(n)),
    ("rtt_bytes_max", |c, n| c.rtt_bytes_max = narrow(n)),
    ("both rtt_bytes", |c, n| (c.rtt_bytes, c.rtt_bytes_max) = (narrow(n), narrow(n))),
    ("receive_buffer", |c, n| c.receive_buffer = narrow(n)),
    ("unscheduled", |c, n| c.unscheduled = UnscheduledLimit::Fixed(narrow(n))),
    ("scheduled_extra", |c, n| c.scheduled_extra = narrow(n)),
    ("window shared", |c, n| c.window = GrantWindow::Shared { max_incoming: narrow(n) }),
    ("window", |c, n| c.window = GrantWindow::RttBytesShared { max_incoming: narrow(n) }),
    ("window in wire bytes", |c, n| c.window = GrantWindow::WireBytes(narrow(n))),
    ("least_packets", |c, n| c.granting = Granting::PerMessage { least_packets: byte(n) }),
    ("packets ahead", |c, n| c.granting = Granting::Ahead { packets: byte(n) }),
    ("overcommitment", |c, n| c.overcommitment = Overcommitment::Fixed(byte(n))),
    ("unlimited, rtt_bytes", |c, n| {
        c.overcommitment = Overcommitment::Unlimited;
        (c.rtt_bytes, c.rtt_bytes_max) = (narrow(n), narrow(n));
    }),
    ("sharing", |c, n| c.sharing = short(n)),
    ("fifo_permille", |c, n| c.fifo_permille = short(n)),
    ("fifo_increment", |c, n| c.fifo_increment = narrow(n)),
    ("levels", |c, n| c.levels = byte(n)),
    ("network_levels", |c, n| c.network_levels = byte(n)),
    ("priorities", |c, n| c.priorities = PriorityAllocation::Fixed { cutoffs: [narrow(n); 8] }),
    ("tail_boost", |c, n| c.tail_boost = narrow(n)),
    ("resend_after", |c, n| c.loss.resend_after = Duration(n)),
    ("loss.timeout", |c, n| c.loss.timeout = Some(Duration(n))),
    ("server_silence", |c, n| c.loss.server_silence = Duration(n)),
    ("need_ack_after", |c, n| acked(c).0.0 = n),
    ("need_ack_interval", |c, n| acked(c).1.0 = n),
    ("give_up", |c, n| acked(c).2.0 = n),
    ("incast.threshold", |c, n| c.incast.iter_mut().for_each(|i| i.threshold = narrow(n))),
    ("max_unscheduled", |c, n| c.incast.iter_mut().for_each(|i| i.max_unscheduled = short(n))),
    ("incast.budget", |c, n| c.incast.iter_mut().for_each(|i| i.budget = narrow(n))),
    ("incast.burst", |c, n| c.incast.iter_mut().for_each(|i| i.burst = narrow(n))),
];

/// The three times of acknowledgements.
fn acked(config: &mut Config) -> (&mut Duration, &mut Duration, &mut Duration) {
    match &mut config.completion {
        Completion::Acked { need_ack_after, need_ack_interval, give_up, .. } => {
            (need_ack_after, need_ack_interval, give_up)
        }
        Completion::AtLeastOnce => panic!("not in these profiles"),
    }
}

#[test]
fn no_number_in_a_configuration_makes_the_protocol_panic() {
    let bases = [Config::linux(), Config::for_users(Rate::gbps(10))];
    let values = [0, 1, 2, 1_000, 1_000_000, 1 << 31, u64::from(u32::MAX), 1 << 62, u64::MAX];
    for (name, set) in FIELDS {
        for (value, base) in values.iter().flat_map(|value| bases.iter().map(move |b| (value, b))) {
            let mut config = base.clone();
            set(&mut config, *value);
            if config.clone().validate().is_err() {
                continue;
            }
            // The last line before a panic.
            println!("{:?}: {name} {value}", base.profile);
            let mut pair = ClientAndServer::new(config.clone(), config);
            pair.lose = Box::new(|_, _, ordinal| ordinal.is_multiple_of(7));
            pair.reply = Some((30_000, Duration::micros(1)));
            for cookie in 0..15 {
                let length = [100, 5_000, 60_000][cookie as usize % 3];
                let request = pair.request(length, cookie);
                // Refused if such a call is not possible.
                let _ = pair.ends[CLIENT].submit(pair.now, homa_proto::Submit::Request(request));
                pair.drain(CLIENT);
            }
            pair.run_for(Duration::millis(20));
        }
    }
}
