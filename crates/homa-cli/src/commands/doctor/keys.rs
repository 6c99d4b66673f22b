//! Probes of encryption: the cipher, a key file, and certificates.

use std::path::Path;
use std::time::{Duration, SystemTime};

use homa::{Keys, KeysError};

use super::{DoctorCheck, Status};
use crate::commands::protection::KEY_REMEDY;

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
        .remedy(KEY_REMEDY),
    }
}

/// A certificate that expires within this time should have been replaced: the alert rule of
/// `contrib/monitoring` fires.
const SOON: Duration = Duration::from_secs(7 * DAY);
const DAY: u64 = 86_400;

/// Whether an engine can use certificates, and for how long.
pub fn certificates(read: Result<Keys, KeysError>) -> DoctorCheck {
    let keys = match read {
        Ok(keys) => keys,
        Err(error) => {
            let consequence = "an engine with these files does not open";
            return DoctorCheck::new("certificate", Status::Fatal, error.to_string(), consequence)
                .remedy("name PEM files that belong together");
        }
    };
    validity(&keys.to_string(), keys.certificate_expiry(), SystemTime::now())
}

/// What follows from the time at which a certificate expires, which is not always known.
fn validity(name: &str, expiry: Option<SystemTime>, now: SystemTime) -> DoctorCheck {
    let check = |status, found: String, consequence: &str| {
        DoctorCheck::new("certificate", status, format!("{name} {found}"), consequence)
    };
    let replace = "replace the files; engines that run read them by themselves";
    match expiry.map(|expiry| expiry.duration_since(now)) {
        None => check(Status::Limited, "has no readable end".into(), "peers may refuse it"),
        Some(Err(since)) => {
            let found = format!("expired {} ago", days(since.duration()));
            check(Status::Fatal, found, "peers refuse it").remedy(replace)
        }
        Some(Ok(left)) => {
            let (found, soon) = (format!("expires in {}", days(left)), left < SOON);
            match soon {
                true => check(Status::Limited, found, "peers will refuse it").remedy(replace),
                false => check(Status::Ok, found, "peers that trust its authority accept it"),
            }
        }
    }
}

/// A time in words.
fn days(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 2 * DAY => format!("{} hours", seconds / 3600),
        seconds => format!("{} days", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_expires_soon_is_to_be_replaced() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 * DAY);
        let day = |day: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY));
        for (expiry, status, found, replaced) in [
            (day(1_007), Status::Ok, "tls.crt expires in 7 days", false),
            (day(1_006), Status::Limited, "tls.crt expires in 6 days", true),
            (day(1_001), Status::Limited, "tls.crt expires in 24 hours", true),
            (day(990), Status::Fatal, "tls.crt expired 10 days ago", true),
            (None, Status::Limited, "tls.crt has no readable end", false),
        ] {
            let check = validity("tls.crt", expiry, now);
            assert_eq!((check.status, &check.found[..]), (status, found));
            assert_eq!(check.remedy.is_some(), replaced, "{found}");
        }
    }
}
