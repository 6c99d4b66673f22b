//! The speed that a network device reports (`SIOCETHTOOL`).
//!
//! `/sys/class/net` is not used because it shows the interfaces of the network namespace in which
//! `/sys` was mounted, which need not be the caller's.

use std::os::fd::AsRawFd;

use homa_proto::Rate;

/// Negotiated settings of a link (`struct ethtool_link_settings`, 48 bytes, then three masks).
const GET_LINK_SETTINGS: u32 = 0x4c;
/// Words of four bytes before the masks, and the longest masks.
const FIXED: usize = 12;
const MASKS: usize = 3 * 127;
/// The word of the speed, Mbit/s, and the word whose last byte is the length of a mask in words.
const SPEED: usize = 1;
const MASK_WORDS: usize = 3;

/// The speed that the device `name` negotiated, in the network namespace of `socket`, which may be
/// of any kind. `None` if the driver does not report it, the link is down, or the system refuses.
pub fn speed(socket: &impl AsRawFd, name: &str) -> Option<Rate> {
    let mut settings = [0u32; FIXED + MASKS];
    settings[0] = GET_LINK_SETTINGS;
    // The first answer contains the length of the masks, as a negative number.
    ask(socket, name, &mut settings)?;
    let mut bytes = settings[MASK_WORDS].to_ne_bytes();
    let words = i8::from_ne_bytes([bytes[3]]).checked_neg().filter(|&words| words > 0)?;
    bytes[3] = words.to_ne_bytes()[0];
    settings[0] = GET_LINK_SETTINGS;
    settings[MASK_WORDS] = u32::from_ne_bytes(bytes);
    ask(socket, name, &mut settings)?;
    // Unknown is -1; some drivers return 0.
    let megabits = i32::try_from(settings[SPEED]).ok().filter(|&megabits| megabits > 0)?;
    Some(Rate::mbps(megabits.unsigned_abs().into()))
}

fn ask(socket: &impl AsRawFd, name: &str, settings: &mut [u32; FIXED + MASKS]) -> Option<()> {
    // SAFETY: ifreq is plain data for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = settings.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads the name, which ends with a zero, and reads and writes the settings
    // that `ifru_data` points to: the fixed part and three masks of at most 127 words, for which
    // there is room. Both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    (result == 0).then_some(())
}
