//! Bytes as they come against framing, start-up and decoding.
//!
//! ```text
//!   piece size | flags | bytes to send
//! ```
#![no_main]

use eris_fuzz::{STARTUP, converse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [piece, flags, bytes @ ..] = data else { return };
    converse(bytes, *piece, *flags);
    converse(&[STARTUP, bytes].concat(), *piece, *flags);
});
