//! Bytes in the files of a database.
#![no_main]

use eris_fuzz::bounded::in_time;
use eris_fuzz::files::files;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| in_time(|| files(data)));
