//! Bytes that tell what happens to the segments of a partition.
#![no_main]

use eris_fuzz::bounded::in_time;
use eris_fuzz::segment::segments;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    in_time(|| segments(data));
});
