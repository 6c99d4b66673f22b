//! Arbitrary bytes, decoded as messages of gRPC of either side: no panic, and a decoded message is
//! unchanged after it was encoded and decoded again.
#![no_main]

use bytes::Bytes;
use homa_tonic::wire::{Answer, ClientMessage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let message = Bytes::copy_from_slice(bytes);
    if let Ok(decoded) = ClientMessage::decode(message.clone()) {
        let again = decoded.encode().expect("it came in a shorter message").concat();
        assert_eq!(ClientMessage::decode(again.into()), Ok(decoded));
    }
    if let Ok(decoded) = Answer::decode(message) {
        let again = decoded.clone().encode().expect("it came in a shorter message").concat();
        assert_eq!(Answer::decode(again.into()), Ok(decoded));
    }
});
