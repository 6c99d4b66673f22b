//! The options of `homa_socket`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, size_of};
use std::ptr;
use std::time::Duration;

use homa::proto;
use homa::{Config, PriorityMap};

use crate::error::Error;
use crate::keys::{HOMA_EARLY_DATA, homa_keys};
use crate::protection::protected;

/// Flag of homa_options: exchanges plaintext with other hosts, by choice. Hosts on the path can
/// read and forge every packet.
pub const HOMA_PLAINTEXT: u32 = 1;

/// Value of padding in homa_options: datagrams have the full size that the path takes.
pub const HOMA_PADDING_FULL: u32 = 0xffff_ffff;

/// Options of a socket. Initialize them with HOMA_OPTIONS_INIT. A member that is zero or null has
/// its default. Later versions add members at the end. Then `size` tells libhoma which members the
/// program has.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct homa_options {
    /// sizeof(struct homa_options).
    pub size: usize,
    /// How packets are sent: "udp" (default; no privileges), "raw-ip" (IP protocol 146, as the
    /// kernel module; needs CAP_NET_RAW) or "memory" (between sockets of this process, for tests).
    pub driver: *const c_char,
    /// The rules of the protocol: "default", "linux" (default of raw-ip),
    /// "linux-upstream" or "sigcomm18".
    pub profile: *const c_char,
    /// How the IP header carries priorities: "operator" (default; CS0-CS5), "linux" (default of
    /// raw-ip; CS0-CS7) or "flat" (not at all).
    pub priority_map: *const c_char,
    /// How long a call may take before it fails with ETIMEDOUT, in milliseconds. Default: 10,000.
    pub deadline_ms: u32,
    /// The longest message that is sent or accepted, in bytes. Default: 16 MiB, or 1,000,000 with
    /// "linux".
    pub max_message: u32,
    /// The largest number of calls in progress, and of requests. Default: 100,000 each.
    pub max_rpcs: u32,
    /// The rate of the link in Mbit/s, for all peers. If it is set, packets leave at no more than
    /// this rate. Default: the rate of the interface by which the route to each peer leads. If that
    /// rate is unknown, sending is paced by the kernel's queue, and windows are measured ("linux"
    /// assumes 25 Gbit/s instead).
    pub link_mbps: u32,
    /// The limit of the bytes of outgoing messages. Default: 1 GiB.
    pub send_memory: u64,
    /// The limit of the bytes of incoming messages. Default: 256 MiB.
    pub receive_memory: u64,
    /// The size of the largest IP packet, in bytes, at least 576. Default: the MTU of the route and
    /// the path to each peer, up to 9000.
    pub mtu: u32,
    /// HOMA_PLAINTEXT or 0.
    pub flags: u32,
    /// A file with the key of the cluster (`homa key new`), with which every packet is encrypted
    /// and both ends are verified. Peers need the same key. Not with raw-ip. Without a key,
    /// packets are plaintext: over UDP only on loopback, unless HOMA_PLAINTEXT is set.
    pub key_file: *const c_char,
    /// PEM files with which every packet is encrypted and both ends are verified by certificates:
    /// the certificate of this socket, followed by those that lead to its authority; its private
    /// key; and the authorities that vouch for peers. Changed files are read by themselves. All of
    /// them or none, and not with key_file.
    pub cert_file: *const c_char,
    /// The private key of cert_file.
    pub cert_key_file: *const c_char,
    /// The authorities.
    pub ca_file: *const c_char,
    /// The name that servers must prove with their certificates: a DNS name or an IP address.
    /// Default: the address that is called.
    pub server_name: *const c_char,
    /// Decides whether a verified peer may exchange packets with this socket: returns 0 to refuse
    /// it. The identity is what homa_peer_identity returns, and is valid during the call. Any
    /// thread may call it while the socket is open, also several at once. It must return at once,
    /// and must not call functions of libhoma. It needs keys, key_file or cert_file. Default: all
    /// verified peers.
    pub admit: Option<unsafe extern "C" fn(identity: *const c_char, user: *mut c_void) -> c_int>,
    /// The second argument of admit.
    pub admit_user: *mut c_void,
    /// If it is not 0, homa_recv returns each request as soon as its first packet is here, and
    /// homa_read reads its bytes while they arrive. At most about twice this number of unread bytes
    /// is held of each message that homa_read reads. If it is 0, homa_recv returns whole requests,
    /// and the number for responses (HOMA_SEND_PIECES) is 1 MiB. Default: 0.
    pub early: u32,
    /// Pads encrypted datagrams, so that a host on the path learns less about the lengths of
    /// messages: to a multiple of this number of bytes, at most 65,535, or to the full size with
    /// HOMA_PADDING_FULL. It costs bandwidth, and needs keys, key_file or cert_file. Peers need not
    /// set it. Default: 0, no padding.
    pub padding: u32,
    /// The largest number of calls in progress to one server, so that a server that hangs does not
    /// take all of max_rpcs. With raw-ip, to one host. Another call fails with EAGAIN. Default: 0,
    /// no limit.
    pub max_calls_per_server: u32,
    /// How many peers are remembered. Idle ones are forgotten first, and with them which of their
    /// requests were executed. Default: 65,536.
    pub max_peers: u32,
    /// Keys of homa_keys_open, in place of key_file: sockets with the same keys share tickets. They
    /// may be closed once the socket is open. Default: none.
    pub keys: *const homa_keys,
}

// A member that is added must not lie where earlier programs have padding with any content.
const _: () = assert!(
    std::mem::offset_of!(homa_options, keys) + size_of::<*const homa_keys>()
        == size_of::<homa_options>()
);

/// Reads a structure that begins with its size. The program's version of the structure may have
/// fewer members (the others are 0), or more (which must be 0).
///
/// # Safety
///
/// `from` points to a size and to that many bytes. `T` is a C structure, and all zeroes are a valid
/// value of it.
pub unsafe fn read_sized<T: Copy>(from: *const T, what: &str) -> Result<T, Error> {
    // SAFETY: the caller guarantees the size.
    let size = unsafe { ptr::read_unaligned(from.cast::<usize>()) };
    if !(size_of::<usize>()..=4096).contains(&size) {
        let text = format!("`{what}->size` is {size}: initialize with the structure's _INIT macro");
        return Err(Error::invalid(text));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: the caller guarantees `size` bytes, and `known` bytes fit into the value.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), known) };
    for at in known..size {
        // SAFETY: within the `size` bytes that the caller guarantees.
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            let text =
                format!("`{what}` has members that this libhoma does not know: set them to 0");
            return Err(Error::new(libc::E2BIG, text));
        }
    }
    // SAFETY: the caller guarantees that zeroes are a value of `T`, and C wrote valid members.
    Ok(unsafe { value.assume_init() })
}

/// How packets are sent.
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

/// The checked options.
pub struct Settings {
    /// How packets are sent.
    pub driver: DriverKind,
    /// The engine's parameters.
    pub config: Config,
    /// The deadline of calls without their own.
    pub deadline: Duration,
    /// The window of requests that are read while they arrive, in bytes; 0 if they are not.
    pub early: u32,
}

impl Settings {
    /// Reads options. Null means all defaults.
    ///
    /// # Safety
    ///
    /// `options` is null or points to options with their `size`. Their names are null or end with a
    /// zero byte, and their keys are null or open.
    pub unsafe fn read(options: *const homa_options) -> Result<Self, Error> {
        // SAFETY: zeroes are a value of this structure: null pointers and numbers.
        let mut given: homa_options = unsafe { std::mem::zeroed() };
        if !options.is_null() {
            // SAFETY: the caller guarantees the size, and zeroes are a value.
            given = unsafe { read_sized(options, "options")? };
        }
        if given.flags & HOMA_EARLY_DATA != 0 {
            let text = "HOMA_EARLY_DATA in `options->flags` is a flag of homa_keys_open: open the \
                        keys with it, and set `options->keys`";
            return Err(Error::invalid(text));
        }
        if given.flags & !HOMA_PLAINTEXT != 0 {
            return Err(Error::invalid(
                "`options->flags` has unknown bits: it is HOMA_PLAINTEXT or 0",
            ));
        }
        // SAFETY: the caller guarantees the names.
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
        // SAFETY: the caller guarantees the names and the keys, and the program its policy.
        let config = unsafe { protected(config, &given)? };
        let deadline = match given.deadline_ms {
            0 => homa::CallOptions::default().deadline,
            ms => Duration::from_millis(ms.into()),
        };
        Ok(Self { driver, config, deadline, early: given.early })
    }
}

/// Reads a name, or `None` if it is null.
///
/// # Safety
///
/// `name` is null or ends with a zero byte.
pub unsafe fn name<'a>(name: *const c_char) -> Result<Option<&'a str>, Error> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees the zero byte.
    let text = unsafe { CStr::from_ptr(name) };
    text.to_str().map(Some).map_err(|_| Error::invalid("a name in `options` is not UTF-8"))
}

fn unknown(what: &str, given: &str, choices: &str) -> Error {
    Error::invalid(format!("no {what} `{given}`: choose {choices}"))
}

fn rules(profile: Option<&str>, driver: DriverKind) -> Result<Config, Error> {
    let users = Config::default();
    match profile.unwrap_or(if driver == DriverKind::RawIp { "linux" } else { "default" }) {
        "default" => Ok(users),
        "linux" if driver == DriverKind::RawIp => Ok(Config::linux()),
        "linux-upstream" if driver == DriverKind::RawIp => Ok(Config::linux_upstream()),
        "linux-upstream" => Ok(Config::linux_upstream().priority_map(users.priority_map)),
        "linux" => Ok(Config::linux().priority_map(users.priority_map)),
        "sigcomm18" => {
            let protocol = proto::Config::sigcomm18(users.protocol.link_rate)
                .max_message(users.protocol.max_message);
            Ok(users.protocol(protocol))
        }
        other => Err(unknown("profile", other, "default, linux, linux-upstream or sigcomm18")),
    }
}

fn limits(config: &mut Config, given: &homa_options) -> Result<(), Error> {
    if given.max_message > c_int::MAX as u32 {
        let text = "`options->max_message` is more than `homa_recv` can return: at most INT_MAX";
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
    if given.max_calls_per_server != 0 {
        config.max_calls_per_server = Some(given.max_calls_per_server);
    }
    if given.max_peers != 0 {
        config.max_peers = given.max_peers;
    }
    Ok(())
}
