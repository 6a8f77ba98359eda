//! Bytes as they come against the wire protocol.
#![no_main]

use eris_fuzz::bounded::in_time;
use eris_fuzz::conversation::protocol;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| in_time(|| protocol(data)));
