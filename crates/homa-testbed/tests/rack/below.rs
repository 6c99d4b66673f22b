//! What Homa's pacer leaves below it, at the device's queue and the socket.

use super::*;

/// A full packet as the kernel counts it.
const FULL_PACKET: u32 = 2_304;
/// Two full packets, and two small ones, which leave without a question.
const TWO_PACKETS: u32 = 2 * (FULL_PACKET + 1_280);

/// Bytes queued below Homa during a call.
#[derive(Debug)]
struct Below {
    most: u32,
    /// Of all looks: this thread spins.
    median: u32,
    /// This thread stood still for longer than a packet takes.
    paused: bool,
}

impl Below {
    /// An engine that is given the rate sends each packet when the link is free for it. An engine
    /// that is not given it infers from the queue that the link is busy, and learns the rate: half
    /// of the time there are two packets at most, but for moments more, while the clock is
    /// corrected.
    fn is_allowed(&self, told: bool) -> bool {
        if told { self.most < FULL_PACKET } else { self.most > 0 && self.median <= TWO_PACKETS }
    }
}

/// Makes a call to host 1 and looks after every turn at what the kernel still holds.
fn below(host: Host<'_>, engine: &mut Engine) -> Result<Below, TestbedError> {
    let failed = |source| TestbedError::Transport { host: 0, what: "calling", source };
    let to = (host.address_of(1), HOMA_PORT).into();
    let options = CallOptions::deadline(Duration::from_secs(60));
    engine.call(to, vec![7; 1_000_000], 0, &options).map_err(io::Error::other).map_err(failed)?;
    let (mut seen, mut paused, mut looked) = (Vec::new(), false, Instant::now());
    loop {
        engine.poll(Wait::No).map_err(failed)?;
        seen.push(link::unsent_bytes(engine).map_err(failed)?);
        let now = Instant::now();
        paused |= now - looked > Duration::from_nanos(host.rack.full_frame_ns());
        looked = now;
        if let Some(Completion::Response { result, .. }) = engine.next() {
            result.map_err(io::Error::other).map_err(failed)?;
            seen.sort_unstable();
            let (most, median) = (seen[seen.len() - 1], seen[seen.len() / 2]);
            return Ok(Below { most, median, paused });
        }
    }
}

/// Bytes queued below host 0's engine in calls of 1 MB. The queue is polled, not timed. Between two
/// polls the pacer uses a clock, and it cannot know how much of that time a link lost in a pause of
/// the machine. If there was such a pause, the call is tried again.
fn tries(
    host: Host<'_>,
    told: bool,
    (ready, done): (&Barrier, &AtomicBool),
) -> Result<Vec<Below>, TestbedError> {
    let failed = |source| TestbedError::Transport { host: host.index, what: "Homa", source };
    let config = Config::default()
        .protocol(homa_proto::Config::for_users(host.rack.link))
        .link_rate(told.then_some(host.rack.link))
        .plaintext();
    let at = (host.address(), HOMA_PORT).into();
    let bound = Engine::bind(at, config).map(|mut engine| {
        engine.listen().unwrap();
        engine
    });
    // The call starts after the server, and the server stops if the client fails.
    ready.wait();
    done.fetch_or(bound.is_err(), Ordering::Relaxed);
    let mut engine = bound.map_err(io::Error::other).map_err(failed)?;
    let mut seen = Vec::new();
    if host.index == 0 {
        let again = |below: &Below| below.paused && !below.is_allowed(told);
        let mut end = Ok(());
        while end.is_ok() && seen.len() < 20 && seen.last().is_none_or(again) {
            end = below(host, &mut engine).map(|below| seen.push(below));
        }
        // Otherwise the server would never end.
        done.store(true, Ordering::Relaxed);
        return end.map(|()| seen);
    }
    while !done.load(Ordering::Relaxed) {
        engine.poll(Wait::For(Duration::from_millis(5))).map_err(failed)?;
        while let Some(completion) = engine.next() {
            if let Completion::Request { id, .. } = completion {
                engine.reply(id, [1]).map_err(io::Error::other).map_err(failed)?;
            }
        }
    }
    Ok(seen)
}

pub fn homa_keeps_two_packets_below_it(inside: &Isolation) -> Outcome {
    let rack = Rack::build(small_rack(2), inside)?;
    for told in [false, true] {
        let (ready, done) = (Barrier::new(2), AtomicBool::new(false));
        let seen = rack.on_every_host(|host| tries(host, told, (&ready, &done)))?.swap_remove(0);
        let allowed = seen.last().is_some_and(|below| below.is_allowed(told));
        ensure(allowed, format!("rate told: {told}; what was below: {seen:?}"))?;
    }
    Ok(())
}
