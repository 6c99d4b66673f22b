//! A network that an attacker controls, between both ends of a TLS handshake.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| homa::arbitrary::handshake(bytes));
