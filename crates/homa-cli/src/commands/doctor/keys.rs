//! Probes of encryption: the cipher, and a key file.

use std::path::Path;

use homa::Keys;

use super::{DoctorCheck, Status};

/// The cipher that this machine asks for.
pub fn cipher() -> DoctorCheck {
    let cipher = Keys::preferred_cipher();
    match cipher {
        "AES-128-GCM" => DoctorCheck::new(
            "cipher",
            Status::Ok,
            format!("{cipher}, by instructions of the processor"),
            "with keys, encryption takes a small part of a core",
        ),
        _ => DoctorCheck::new(
            "cipher",
            Status::Limited,
            format!("{cipher}, because the processor has no instructions for AES"),
            "with keys, encryption takes more of a core",
        ),
    }
}

/// Whether an engine can use a key file.
pub fn file(path: &Path) -> DoctorCheck {
    match Keys::from_file(path) {
        Ok(_) => DoctorCheck::new(
            "key",
            Status::Ok,
            format!("{}: a cluster key that only its owner and group can read", path.display()),
            "engines with this file exchange encrypted packets, and nothing else",
        ),
        Err(error) => DoctorCheck::new(
            "key",
            Status::Fatal,
            error.to_string(),
            "an engine with this file does not open",
        )
        .remedy("`homa key new FILE` writes a key file; copy it to each host"),
    }
}
