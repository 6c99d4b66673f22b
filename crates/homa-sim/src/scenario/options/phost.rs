//! Parameters of pHost. Defaults follow its paper and the network.
//!
//! BDP is the bandwidth-delay product in packets: RTTbytes of the network divided by the size of a
//! full packet.

use serde::{Deserialize, Serialize};

use crate::scenario::units;

/// Parameters of pHost (CoNEXT 2015). A packet time is the time of a full packet on the host's
/// link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PHostOptions {
    /// Bytes of a full IP packet; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets are sent without Ethernet framing and are 38 bytes smaller, as YAPS counts. Default:
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<bool>,
    /// Packets of a message that may be sent without tokens. Default: BDP (pHost §3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_tokens: Option<u32>,
    /// Whether messages that need more tokens get the free ones, too. Default: true. YAPS: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_for_long: Option<bool>,
    /// A message with this many unused tokens is downgraded. Default: BDP (pHost §3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Duration of the downgrade, packet times. Default: three round trips (pHost §3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downgrade: Option<f64>,
    /// Lifetime of a token, packet times. Default: 1.5 (pHost §3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<f64>,
    /// Time until missing packets get new tokens, packet times. Default: three round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend: Option<f64>,
    /// Which data has the higher of two priorities. Default: data sent without tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<PHostFirst>,
    /// Whether a receiver's token slots are those of YAPS: slots for what comes unasked pass
    /// unused, and a receiver without a message to serve sleeps until the time that was the next
    /// one then. Default: false. A token goes out whenever one is due and a message may get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_slots: Option<bool>,
    /// Packets that can wait at a port of a switch, unless `fabric.buffer` sets a limit. Default:
    /// 3 BDP (pHost §4.1: 36 KB).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
}

/// The data that has the higher of pHost's two priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PHostFirst {
    /// Data sent without tokens (Homa §2.2).
    Blind,
    /// Messages that need no more than the free tokens (YAPS).
    Short,
    /// All data: there is one priority.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_accepts_units_of_bytes() {
        let mtu = |text: &str| {
            let options: Result<PHostOptions, _> =
                serde_json::from_str(&format!("{{\"mtu\": \"{text}\"}}"));
            options.map(|options| options.mtu).map_err(|error| error.to_string())
        };
        for (text, bytes) in [("1500", 1_500), ("1KB", 1_000), ("2KiB", 2_048), ("1.5k", 1_500)] {
            assert_eq!(mtu(text), Ok(Some(bytes)));
        }
        for text in ["1.5", "1kb", "many", "5ms"] {
            let said = mtu(text).unwrap_err();
            assert!(said.contains(&format!("`{text}`")) && said.contains("write "), "{said}");
        }
    }
}
