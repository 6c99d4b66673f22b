//! What `homa_socket` can be told.

use std::ffi::{CStr, c_char, c_int};
use std::mem::{MaybeUninit, size_of};
use std::ptr;
use std::time::Duration;

use homa::proto;
use homa::{Config, PriorityMap};

use crate::error::Error;

/// Options of a socket. Start from HOMA_OPTIONS_INIT; a zero or null member means its default.
/// Later versions add members at the end: `size` tells which this program knows.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct homa_options {
    /// sizeof(struct homa_options).
    pub size: usize,
    /// "udp" (default; no privileges), "raw-ip" (IP protocol 146, as the kernel module; needs
    /// CAP_NET_RAW) or "memory" (sockets of this process only, for tests).
    pub driver: *const c_char,
    /// Rules of the protocol: "default", "linux" (default of raw-ip) or "sigcomm18".
    pub profile: *const c_char,
    /// How priorities travel in the IP header: "operator" (default; CS0-CS5), "linux" (default of
    /// raw-ip; CS0-CS7) or "flat" (none).
    pub priority_map: *const c_char,
    /// How long a call may take before it fails with ETIMEDOUT, milliseconds. Default 10,000.
    pub deadline_ms: u32,
    /// Longest message sent or accepted, bytes. Default: 16 MiB, with "linux" 1,000,000.
    pub max_message: u32,
    /// Most calls in progress, and most requests. Default 100,000 each.
    pub max_rpcs: u32,
    /// Rate of the link, Mbit/s, the same for all peers; packets also leave at no more than this
    /// rate. Default: of the interface that the route to each peer takes; where nobody tells it,
    /// packets leave as the kernel's queue empties, and what the protocol would take from it is
    /// measured (with "linux" it counts on 25 Gbit/s in any case).
    pub link_mbps: u32,
    /// Bytes of outgoing messages held at a time. Default 1 GiB.
    pub send_memory: u64,
    /// Bytes of incoming messages held at a time. Default 256 MiB.
    pub receive_memory: u64,
    /// Largest IP packet, bytes, at least 576. Default: what the route and the path to each peer
    /// take, up to 9000.
    pub mtu: u32,
    /// Must be 0.
    pub flags: u32,
}

/// Reads a structure that begins with its size, from a program that may know fewer members (the
/// others are 0), or more (which must be 0).
///
/// # Safety
/// `from` points to a size and to that many bytes. `T` is a C structure of which all zeroes are a
/// value.
pub unsafe fn read_sized<T: Copy>(from: *const T, what: &str) -> Result<T, Error> {
    // SAFETY: the caller vouches for the size.
    let size = unsafe { ptr::read_unaligned(from.cast::<usize>()) };
    if !(size_of::<usize>()..=4096).contains(&size) {
        let text = format!("`{what}->size` is {size}: begin with the structure's _INIT macro");
        return Err(Error::invalid(text));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: the caller vouches for `size` bytes, of which `known` fit into the value.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), known) };
    for at in known..size {
        // SAFETY: within the `size` bytes that the caller vouches for.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            let text = format!("`{what}` asks for something that this libhoma does not know");
            return Err(Error::new(libc::E2BIG, text));
        }
    }
    // SAFETY: zeroes are a value of `T` as the caller vouches, and so is what C wrote over them.
    Ok(unsafe { value.assume_init() })
}

/// How packets travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverKind {
    /// UDP datagrams.
    #[default]
    Udp,
    /// IP protocol 146.
    RawIp,
    /// Queues in this process.
    Memory,
}

/// Options understood.
pub struct Settings {
    /// How packets travel.
    pub driver: DriverKind,
    /// The engine's parameters.
    pub config: Config,
    /// Of calls that name none.
    pub deadline: Duration,
}

impl Settings {
    /// Reads options; null means all defaults.
    ///
    /// # Safety
    /// `options` is null or points to options of the size they say, whose names are null or end
    /// with a zero byte.
    pub unsafe fn read(options: *const homa_options) -> Result<Self, Error> {
        // SAFETY: zeroes are a value of this structure: null pointers and numbers.
        let mut given: homa_options = unsafe { std::mem::zeroed() };
        if !options.is_null() {
            // SAFETY: the caller vouches for the size; zeroes are a value.
            given = unsafe { read_sized(options, "options")? };
        }
        if given.flags != 0 {
            return Err(Error::invalid("`options->flags` must be 0"));
        }
        // SAFETY: the caller vouches for the names.
        let [driver, profile, map] =
            unsafe { [name(given.driver)?, name(given.profile)?, name(given.priority_map)?] };
        let driver = match driver {
            None | Some("udp") => DriverKind::Udp,
            Some("raw-ip") => DriverKind::RawIp,
            Some("memory") => DriverKind::Memory,
            Some(other) => return Err(unknown("driver", other, "udp, raw-ip or memory")),
        };
        let mut config = rules(profile, driver)?;
        match map {
            None => {}
            Some("operator") => config.priority_map = PriorityMap::Operator,
            Some("linux") => config.priority_map = PriorityMap::Linux,
            Some("flat") => config.priority_map = PriorityMap::Flat,
            Some(other) => return Err(unknown("priority_map", other, "operator, linux or flat")),
        }
        limits(&mut config, &given)?;
        let deadline = match given.deadline_ms {
            0 => homa::CallOptions::default().deadline,
            ms => Duration::from_millis(ms.into()),
        };
        Ok(Self { driver, config, deadline })
    }
}

/// A name, if one is given.
///
/// # Safety
/// `name` is null or points to bytes of which one is zero.
unsafe fn name<'a>(name: *const c_char) -> Result<Option<&'a str>, Error> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for the zero byte.
    let text = unsafe { CStr::from_ptr(name) };
    text.to_str().map(Some).map_err(|_| Error::invalid("a name in `options` is no UTF-8"))
}

fn unknown(what: &str, given: &str, choices: &str) -> Error {
    Error::invalid(format!("no {what} `{given}`: choose {choices}"))
}

fn rules(profile: Option<&str>, driver: DriverKind) -> Result<Config, Error> {
    let users = Config::default();
    match profile.unwrap_or(if driver == DriverKind::RawIp { "linux" } else { "default" }) {
        "default" => Ok(users),
        "linux" if driver == DriverKind::RawIp => Ok(Config::linux()),
        "linux" => Ok(Config::linux().priority_map(users.priority_map)),
        "sigcomm18" => {
            let protocol = proto::Config::sigcomm18(users.protocol.link_rate)
                .max_message(users.protocol.max_message);
            Ok(users.protocol(protocol))
        }
        other => Err(unknown("profile", other, "default, linux or sigcomm18")),
    }
}

fn limits(config: &mut Config, given: &homa_options) -> Result<(), Error> {
    if given.max_message > c_int::MAX as u32 {
        let text = "`options->max_message` is beyond what `homa_recv` can return: at most INT_MAX";
        return Err(Error::invalid(text));
    }
    let protocol = &mut config.protocol;
    if given.max_message != 0 {
        protocol.max_message = given.max_message;
    }
    if given.max_rpcs != 0 {
        protocol.max_rpcs = given.max_rpcs;
    }
    if given.receive_memory != 0 {
        protocol.memory_budget = given.receive_memory;
    }
    if given.link_mbps != 0 {
        config.link_rate = Some(proto::Rate::mbps(given.link_mbps.into()));
    }
    if given.send_memory != 0 {
        config.send_memory = given.send_memory;
    }
    if given.mtu != 0 {
        let too_large = |_| Error::invalid("`options->mtu` must be 576 to 65,535");
        config.mtu = Some(u16::try_from(given.mtu).map_err(too_large)?);
    }
    Ok(())
}
