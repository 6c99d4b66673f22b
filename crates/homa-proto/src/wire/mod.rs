//! Bytes on the wire.
