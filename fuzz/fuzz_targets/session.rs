//! Framed messages in any order against the session states.
#![no_main]

use eris_fuzz::bounded::in_time;
use eris_fuzz::conversation::session;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| in_time(|| session(data)));
