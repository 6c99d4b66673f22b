//! A phantom queue on a real port of a stock kernel (HULL, NSDI 2012, §2.1): a classifier of some
//! hundred instructions that counts the passing bytes and marks packets before the link behind it
//! is full.
//!
//! At the *ingress* of the device behind the link it sees packets in series, after they left the
//! link, as the paper asks. At an *egress* it sees them before the queueing discipline, in
//! parallel, and also counts packets that the discipline drops. On Linux 6.6 and later the
//! attachment belongs to this process and ends with it. On older kernels it is a filter of the
//! device's `clsact` discipline, which is removed when the value is dropped; the discipline stays
//! because others may use it.
//!
//! Invariant: packets are never delayed, dropped or steered; a program that is attached behind it
//! decides. Left out: devices in other network namespaces; queues per priority; ticks.

mod program;

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use homa_bpf::{self as bpf, Capabilities, ProgramKind, TCX_EGRESS, TCX_INGRESS, WordMap};
use homa_proto::Rate;

use crate::sys::current_network;
use crate::sys::netlink::{Netlink, NetlinkRequest, interface_index};
use program::{DrainClock, WORDS};

/// Name of the map, by which [`attached`] finds it, and of the program.
const NAME: &CStr = c"homa_phantom";

/// The position of a phantom queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// At the ingress of the device behind the link: in series (HULL §2.1, remark 1).
    Ingress,
    /// At the egress, before the queueing discipline: in parallel.
    Egress,
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress, in series with the link before it",
            Self::Egress => "egress, parallel: it counts what the queueing discipline then drops",
        })
    }
}

/// Why there can be no phantom queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HullError {
    /// No device of that name in this network namespace.
    #[error("there is no device `{device}` here ({source})")]
    NoDevice {
        /// Its name.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The process lacks a capability.
    #[error("{what} needs {capability}, which this process does not have")]
    Lacks {
        /// The step.
        what: &'static str,
        /// As capabilities(7) calls it.
        capability: &'static str,
    },
    /// The kernel refused a step for another reason.
    #[error("cannot {what}: {source}")]
    Refused {
        /// The step.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> HullError {
    move |source| HullError::Refused { what, source }
}

/// A phantom queue's parameters, and its counters since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhantomStatus {
    /// Drain rate.
    pub drain: Rate,
    /// It marks when more bytes than these are virtually queued.
    pub threshold_bytes: u32,
    /// Its position.
    pub place: HookPoint,
    /// Packets that passed; frames that the kernel joined are one.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
    /// Packets that left with CE, including those that arrived with it. Only packets whose sender
    /// set ECT can be marked.
    pub marked: u64,
}

impl PhantomStatus {
    fn of(value: &[u64; WORDS]) -> Self {
        Self {
            drain: Rate(value[program::DRAIN_BPS]),
            threshold_bytes: value[program::THRESHOLD_BYTES] as u32,
            place: if value[program::PLACE] == 0 { HookPoint::Ingress } else { HookPoint::Egress },
            packets: value[program::PACKETS],
            bytes: value[program::BYTES],
            marked: value[program::MARKED],
        }
    }
}

/// An attached phantom queue; dropping it detaches it.
#[derive(Debug)]
pub struct PhantomPort {
    // Dropped first.
    _hook: Hook,
    map: ListedMap,
}

/// The map of a queue. It is emptied when the queue is detached, because the kernel keeps it for a
/// while and a search for attached queues would find it.
#[derive(Debug)]
struct ListedMap(WordMap<WORDS>);

impl Drop for ListedMap {
    fn drop(&mut self) {
        let _ = self.0.write(&[0; WORDS]);
    }
}

impl PhantomPort {
    /// Attaches a queue to a device of the calling thread's network namespace.
    pub fn attach(
        device: &str,
        place: HookPoint,
        (drain, threshold_bytes): (Rate, u32),
    ) -> Result<Self, HullError> {
        Self::attach_by(device, place, (drain, threshold_bytes), Hook::attach)
    }

    fn attach_by(
        device: &str,
        place: HookPoint,
        (drain, threshold_bytes): (Rate, u32),
        hook: impl Fn(BorrowedFd<'_>, u32, HookPoint) -> Result<Hook, HullError>,
    ) -> Result<Self, HullError> {
        let interface = index_of(device)?;
        let capabilities = Capabilities::of_this_process();
        if !capabilities.has_bpf() {
            let what = "loading an eBPF program";
            return Err(HullError::Lacks { what, capability: "CAP_BPF" });
        }
        if !capabilities.has(Capabilities::NET_ADMIN) {
            let what = "attaching to a device";
            return Err(HullError::Lacks { what, capability: "CAP_NET_ADMIN" });
        }
        let map = WordMap::create(NAME).map_err(refused("make a map for the queue"))?;
        let place_word = u64::from(place == HookPoint::Egress);
        let where_to = (interface, place_word, namespace()?);
        let value = program::initial((drain.0, threshold_bytes), where_to);
        map.write(&value).map_err(refused("write the queue's rate and threshold"))?;
        let code = program::assemble(map.descriptor(), DrainClock::Kernel);
        let program =
            bpf::load(ProgramKind::Classifier, &code, NAME).map_err(refused("load the program"))?;
        let hook = hook(program.as_fd(), interface, place)?;
        Ok(Self { _hook: hook, map: ListedMap(map) })
    }

    /// The counters so far.
    pub fn status(&self) -> Result<PhantomStatus, HullError> {
        let value = self.map.0.read().map_err(refused("read the queue's counters"))?;
        Ok(PhantomStatus::of(&value))
    }
}

/// Phantom queues that processes of this machine keep attached to a device, found by name. Reading
/// them changes nothing.
#[derive(Debug)]
pub struct Attached(Vec<WordMap<WORDS>>);

impl Attached {
    /// Those of a device of the calling thread's network namespace.
    pub fn to(device: &str) -> Result<Self, HullError> {
        let port = (u64::from(index_of(device)?), namespace()?);
        if !Capabilities::of_this_process().has(Capabilities::SYS_ADMIN) {
            let what = "looking for what others attached";
            return Err(HullError::Lacks { what, capability: "CAP_SYS_ADMIN" });
        }
        let mut found = Vec::new();
        for map in WordMap::<WORDS>::find(NAME).map_err(refused("list eBPF maps"))? {
            let value = map.read().map_err(refused("read a queue's counters"))?;
            let its = (value[program::INTERFACE], value[program::NAMESPACE]);
            found.extend((its == port).then_some(map));
        }
        Ok(Self(found))
    }

    /// The counters of each so far; a queue that was detached since the search drains nothing.
    pub fn status(&self) -> Result<Vec<PhantomStatus>, HullError> {
        let read = |map: &WordMap<WORDS>| Ok(PhantomStatus::of(&map.read()?));
        let all: io::Result<Vec<PhantomStatus>> = self.0.iter().map(read).collect();
        all.map_err(refused("read a queue's counters"))
    }
}

fn index_of(device: &str) -> Result<u32, HullError> {
    let none = |source| HullError::NoDevice { device: device.into(), source };
    if device.is_empty() || device.len() >= libc::IFNAMSIZ {
        return Err(none(io::ErrorKind::InvalidInput.into()));
    }
    interface_index(device).map_err(none)
}

/// The calling thread's network namespace. It matters because interfaces of several namespaces may
/// have the same index.
fn namespace() -> Result<u64, HullError> {
    let of = |network: File| Ok(network.metadata()?.ino());
    current_network().and_then(of).map_err(refused("look at this network namespace in /proc"))
}

/// The attachment of a program to a device.
#[derive(Debug)]
enum Hook {
    /// A link, which the kernel removes with its descriptor.
    Link { _fd: OwnedFd },
    /// A filter of the discipline `clsact`.
    Filter { interface: u32, parent: u32 },
}

/// The discipline's number, and those of its two places.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const CLSACT_EGRESS: u32 = 0xffff_fff3;
/// Priority of the filter, "HQ", and all protocols.
const FILTER_PRIORITY: u32 = 0x4851 << 16;
const FILTER_HANDLE: u32 = 1;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's result is the action.
const DIRECT_ACTION: u32 = 1;

impl Hook {
    fn attach(
        program: BorrowedFd<'_>,
        interface: u32,
        place: HookPoint,
    ) -> Result<Self, HullError> {
        match Self::link(program, interface, place) {
            // Kernels before 6.6 do not have this attachment point.
            Err(HullError::Refused { source, .. })
                if source.raw_os_error() == Some(libc::EINVAL) =>
            {
                Self::filter(program, interface, place)
            }
            attached => attached,
        }
    }

    fn link(program: BorrowedFd<'_>, interface: u32, place: HookPoint) -> Result<Self, HullError> {
        let point = match place {
            HookPoint::Ingress => TCX_INGRESS,
            HookPoint::Egress => TCX_EGRESS,
        };
        let attached = bpf::attach(program, (interface, point), 0);
        attached.map(|fd| Self::Link { _fd: fd }).map_err(refused("attach the program"))
    }

    fn filter(
        program: BorrowedFd<'_>,
        interface: u32,
        place: HookPoint,
    ) -> Result<Self, HullError> {
        let netlink = Netlink::open().map_err(refused("open a netlink socket"))?;
        let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let discipline = NetlinkRequest::new(libc::RTM_NEWQDISC, create)
            .fixed(&message(interface, (CLSACT_HANDLE, CLSACT), 0))
            .text(TCA_KIND, "clsact");
        match netlink.call(discipline) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            made => made.map_err(refused("add the queueing discipline clsact"))?,
        }
        let parent = match place {
            HookPoint::Ingress => CLSACT_INGRESS,
            HookPoint::Egress => CLSACT_EGRESS,
        };
        let (filter, options) =
            filter_request(libc::RTM_NEWTFILTER, create, (interface, parent)).begin(TCA_OPTIONS);
        let filter = filter
            .attribute(TCA_BPF_FD, &(program.as_raw_fd() as u32).to_ne_bytes())
            .text(TCA_BPF_NAME, "homa_phantom")
            .attribute(TCA_BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes())
            .end(options);
        match netlink.call(filter) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Err(HullError::Refused {
                what: "attach the program: another phantom queue is there",
                source: error,
            }),
            attached => attached.map_err(refused("attach the program")),
        }?;
        Ok(Self::Filter { interface, parent })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Self::Filter { interface, parent } = *self {
            let filter = filter_request(libc::RTM_DELTFILTER, 0, (interface, parent));
            // The device may be gone, and the filter with it.
            let _ = Netlink::open().and_then(|netlink| netlink.call(filter));
        }
    }
}

/// Names our filter at a place of a device.
fn filter_request(
    kind: u16,
    flags: libc::c_int,
    (interface, parent): (u32, u32),
) -> NetlinkRequest {
    let every_protocol = u32::from((libc::ETH_P_ALL as u16).to_be());
    let message = message(interface, (FILTER_HANDLE, parent), FILTER_PRIORITY | every_protocol);
    NetlinkRequest::new(kind, flags).fixed(&message).text(TCA_KIND, "bpf")
}

/// A `tcmsg`.
fn message(interface: u32, (handle, parent): (u32, u32), info: u32) -> [u8; 20] {
    let mut message = [0; 20];
    message[4..8].copy_from_slice(&interface.to_ne_bytes());
    message[8..12].copy_from_slice(&handle.to_ne_bytes());
    message[12..16].copy_from_slice(&parent.to_ne_bytes());
    message[16..20].copy_from_slice(&info.to_ne_bytes());
    message
}

#[cfg(test)]
mod kernel_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_named() {
        for name in ["no-such-device", "", "a-name-longer-than-any"] {
            let error = PhantomPort::attach(name, HookPoint::Ingress, (Rate::gbps(1), 1_000));
            assert!(matches!(error, Err(HullError::NoDevice { .. })), "{name}: {error:?}");
        }
    }
}
