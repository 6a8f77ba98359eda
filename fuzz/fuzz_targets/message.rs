//! Bytes against the decoder of the engine's messages.
#![no_main]

use eris_fuzz::bounded::in_time;
use eris_fuzz::message::messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| in_time(|| messages(data)));
