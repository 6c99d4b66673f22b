//! A phantom queue on a host's device, as `homa hull attach` puts it there, and the kernel's TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use homa_testbed::hull::{HookPoint, PhantomPort, PhantomStatus};

use super::*;

const PORT: u16 = 7_300;
/// What the queue drains: 0.3 of the link. A busy machine, whose switch is late, still carries
/// twice as much without a queue.
const DRAIN: Rate = Rate::mbps(6);
/// Eight packets: of bursts at the link's rate, eleven pass unmarked.
const THRESHOLD: u32 = 12_000;
/// Slow start ends within the first second; then the flow is looked at for three.
const SETTLES: Duration = Duration::from_secs(1);
const LOOKED_AT: Duration = Duration::from_secs(3);

/// What a flow did after it had settled.
#[derive(Debug)]
struct Flow {
    /// Bits of frames, from the Ethernet header on as a phantom queue counts them, a second.
    bits_per_s: f64,
    /// Where there was a queue.
    queue: Option<PhantomStatus>,
}

/// TCP that heeds marks. Every kernel has reno; its default may be another that does not.
fn heed_marks() -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")?;
    std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno")
}

/// Sends until the receiver is gone.
fn send(host: Host<'_>) -> io::Result<()> {
    let mut stream = TcpStream::connect((host.address_of(1), PORT))?;
    while stream.write_all(&[7; 16_384]).is_ok() {}
    Ok(())
}

fn receive(listener: &TcpListener, queue: Option<&PhantomPort>) -> io::Result<Flow> {
    let (mut stream, _) = listener.accept()?;
    let (begin, mut buffer) = (Instant::now(), [0; 65_536]);
    let (mut bytes, mut since) = (0, None);
    loop {
        let length = stream.read(&mut buffer)?;
        let now = Instant::now();
        match since {
            None if now - begin >= SETTLES => since = Some(now),
            None => {}
            Some(since) => {
                bytes += length;
                let time = now - since;
                if time >= LOOKED_AT || length == 0 {
                    // 1448 bytes of it are in a frame of 1514.
                    let frames = bytes as f64 / 1_448.0 * 1_514.0;
                    let bits_per_s = frames * 8.0 / time.as_secs_f64();
                    let queue = queue.map(|queue| queue.status().map_err(io::Error::other));
                    return Ok(Flow { bits_per_s, queue: queue.transpose()? });
                }
            }
        }
    }
}

/// One flow of TCP with ECN over 20 Mbit/s, twenty milliseconds to and fro: at the drain rate ten
/// packets are under way, so that windows decide how fast it is. `None`: no queue can be attached
/// here.
fn flow(inside: &Isolation, attach: bool) -> Result<Option<Flow>, TestbedError> {
    let config = RackConfig { uplink_delay: Duration::from_millis(10), ..small_rack(2) };
    let rack = Rack::build(config, inside)?;
    let (ready, possible) = (Barrier::new(2), AtomicBool::new(true));
    let flows = rack.on_every_host(|host| {
        let failed =
            |source| TestbedError::Transport { host: host.index, what: "one flow of TCP", source };
        if host.index == 0 {
            let prepared = heed_marks();
            possible.fetch_and(prepared.is_ok(), Ordering::SeqCst);
            ready.wait();
            let go = possible.load(Ordering::SeqCst);
            return prepared
                .and_then(|()| if go { send(host) } else { Ok(()) })
                .map_err(failed)
                .map(|()| None);
        }
        let listener = TcpListener::bind((host.address(), PORT)).map_err(failed)?;
        let queue =
            attach.then(|| PhantomPort::attach("eth0", HookPoint::Ingress, (DRAIN, THRESHOLD)));
        let queue = queue.transpose();
        possible.fetch_and(queue.is_ok(), Ordering::SeqCst);
        ready.wait();
        match queue {
            Ok(queue) if possible.load(Ordering::SeqCst) => {
                receive(&listener, queue.as_ref()).map(Some).map_err(failed)
            }
            Ok(_) => Ok(None),
            Err(why) => {
                skip::part(&format!("eBPF on devices ({why})"));
                Ok(None)
            }
        }
    })?;
    Ok(flows.into_iter().flatten().next())
}

/// A mark halves the window, so that the flow goes up and down between half of the drain rate and
/// all of it.
pub fn tcp_is_held_near_a_drain_rate(inside: &Isolation) -> Outcome {
    let Some(held) = flow(inside, true)? else { return Ok(()) };
    let free = flow(inside, false)?.ok_or("no flow")?;
    let drain = DRAIN.0 as f64;
    ensure(free.bits_per_s > 1.4 * drain, format!("slow without a queue too: {free:?}"))?;
    let near = held.bits_per_s < 1.05 * drain && held.bits_per_s > 0.5 * drain;
    ensure(near, format!("not near {drain}: {held:?}"))?;
    let marked = held.queue.is_some_and(|queue| queue.marked > 0);
    ensure(marked, format!("held by something else: {held:?}"))
}
