//! Probes of the machine: cores, clock, timers, wake-ups, namespaces.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use homa::doctor::missing_xdp_capabilities;
use homa_testbed::{Isolation, VethPair};
use nix::sys::prctl::{get_timerslack, set_timerslack};

use crate::commands::bench;
use crate::{cores, values};

use super::{DoctorCheck, Status, setting, sockets};

/// Cores that this process may use.
pub fn cores() -> DoctorCheck {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let found = format!("{cores} for this process");
    match cores {
        1 => DoctorCheck::new(
            "cores",
            Status::Limited,
            found,
            "client and server share a core: `bench` runs, its latencies mean little",
        )
        .remedy("use a machine, or a container limit, with two cores or more"),
        _ => DoctorCheck::new(
            "cores",
            Status::Ok,
            found,
            "`bench` has a core for its switch and at least one for its hosts",
        ),
    }
}

/// The clock behind every time stamp.
pub fn clock() -> DoctorCheck {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = setting(path).unwrap_or_else(|| "unknown".into());
    let calls = 20_000u32;
    let start = Instant::now();
    for _ in 0..calls {
        std::hint::black_box(Instant::now());
    }
    let each = start.elapsed().as_nanos() / u128::from(calls);
    let found = format!("{source}, {each} ns per reading");
    match each {
        0..200 => {
            DoctorCheck::new("clock", Status::Ok, found, "reading the time costs next to nothing")
        }
        _ => DoctorCheck::new(
            "clock",
            Status::Limited,
            found,
            "reading the time is a system call: small RPCs get slower",
        )
        .remedy("boot with clocksource=tsc if the machine's TSC is reliable"),
    }
}

/// How late a sleep of 50 us ends.
pub fn timers() -> DoctorCheck {
    let slack = get_timerslack().unwrap_or(50_000);
    let usual = overshoot();
    let _ = set_timerslack(1);
    let tight = overshoot();
    let _ = set_timerslack(slack.unsigned_abs().into());
    let found = format!(
        "sleeps end {:.0} us late (median), {:.0} us with a timer slack of 1 ns",
        usual.as_nanos() as f64 / 1e3,
        tight.as_nanos() as f64 / 1e3
    );
    let consequence = "Homa does not change the slack: if a paced packet waits for more than 100 \
                       us, or if `spin` is 0, it leaves as late as this";
    match usual.as_micros() {
        0..100 => DoctorCheck::new("timers", Status::Ok, found, consequence),
        _ => DoctorCheck::new("timers", Status::Limited, found, consequence)
            .remedy("use an inline engine that polls, or a kernel with high-resolution timers"),
    }
}

/// The median excess over a sleep of 50 us.
fn overshoot() -> Duration {
    let wanted = Duration::from_micros(50);
    let mut late: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            std::thread::sleep(wanted);
            start.elapsed().saturating_sub(wanted)
        })
        .collect();
    late.sort_unstable();
    late[late.len() / 2]
}

/// How long a thread that sleeps in the kernel needs to be woken from another core.
pub fn wake_up() -> DoctorCheck {
    let us = match wake_up_time() {
        Ok(median) => median.as_nanos() as f64 / 1e3,
        Err(error) => {
            return DoctorCheck::new("wake-up", Status::Limited, error.to_string(), "not measured")
                .remedy("allow Unix sockets and threads in the sandbox");
        }
    };
    let found = format!("{us:.0} us from a thread to one that sleeps on another core (median)");
    let consequence = "a blocking call pays this at the server and again at the client";
    match us {
        0.0..25.0 => DoctorCheck::new("wake-up", Status::Ok, found, consequence),
        _ => DoctorCheck::new("wake-up", Status::Limited, found, consequence).remedy(
            "idle cores are slow to return: use an inline engine that polls, or boot with \
             idle=poll (bare metal: limit C-states)",
        ),
    }
}

/// Half the median time of an echo between two threads that block.
fn wake_up_time() -> io::Result<Duration> {
    let [own, other] = cores::two();
    let (mut here, mut there) = UnixStream::pair()?;
    let echo = std::thread::spawn(move || -> io::Result<()> {
        cores::stay_on(other)?;
        let mut byte = [0];
        while there.read(&mut byte)? > 0 {
            there.write_all(&byte)?;
        }
        Ok(())
    });
    let asking = std::thread::spawn(move || -> io::Result<Vec<Duration>> {
        cores::stay_on(own)?;
        let mut times = Vec::new();
        for _ in 0..500 {
            let start = Instant::now();
            here.write_all(&[1])?;
            here.read_exact(&mut [0])?;
            times.push(start.elapsed() / 2);
        }
        Ok(times)
    });
    let died = || io::Error::other("a thread died");
    let mut times = asking.join().map_err(|_| died())??;
    echo.join().map_err(|_| died())??;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Networks of one's own, which `bench` builds its rack in. Moves the process into one.
pub fn namespaces() -> Vec<DoctorCheck> {
    let name = "namespaces";
    // In a user namespace it seems to have all.
    let missing = missing_xdp_capabilities();
    let inside = match homa_testbed::isolate() {
        Ok(inside) => inside,
        Err(error) => {
            let consequence = "`bench` simulates its rows and says so";
            return vec![
                DoctorCheck::new(name, Status::Missing, "refused by the kernel", consequence)
                    .remedy(error.to_string()),
                sockets::xdp(&missing, None),
            ];
        }
    };
    let found = match inside.by_user_namespace() {
        true => "granted to an ordinary user",
        false => "granted to root",
    };
    let consequence = "`bench` can build hosts with real kernel TCP inside this machine";
    let mut checks = vec![DoctorCheck::new(name, Status::Ok, found, consequence)];
    match VethPair::new(&inside, 1500) {
        Ok(pair) => {
            let consequence = "`bench --micro` can run";
            checks.push(DoctorCheck::new("veth", Status::Ok, "made a pair", consequence));
            let end = (!inside.by_user_namespace()).then_some(&pair.ends[0]);
            checks.push(sockets::xdp(&missing, end));
        }
        Err(error) => {
            let consequence = "`bench --micro` cannot run";
            let check = DoctorCheck::new("veth", Status::Missing, "no pair", consequence);
            checks.extend([check.remedy(error.to_string()), sockets::xdp(&missing, None)]);
        }
    }
    checks.push(rack(&inside));
    checks
}

/// The rack of `bench` at the fastest link rate that this machine keeps up with now, by the same
/// trials as `bench` itself.
fn rack(inside: &Isolation) -> DoctorCheck {
    let simulates = "`bench` simulates its rows and says so";
    let (trials, chosen) = match bench::find(&bench::Args::defaults(), inside) {
        Ok(found) => found,
        Err(failure) => {
            return DoctorCheck::new("rack", Status::Missing, "cannot be built", simulates)
                .remedy(failure.to_string());
        }
    };
    let found: Vec<String> = trials.iter().map(|trial| trial.sentence()).collect();
    let found = found.join("; ");
    match chosen {
        Some(link) => {
            let rate = values::show_rate(link);
            let consequence = format!("`bench` measures over links of {rate}");
            DoctorCheck::new("rack", Status::Ok, found, consequence)
        }
        None => DoctorCheck::new("rack", Status::Limited, found, simulates).remedy(
            "end what else runs on this machine (`top` shows it), then try again; on a virtual \
             machine, other guests may take the time (`top`: st)",
        ),
    }
}
