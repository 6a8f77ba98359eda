//! SQL text through the parser and the pass that refuses what is not planned.
#![no_main]

use eris_fuzz::ast_pass::judge;
use eris_fuzz::bounded::in_time;
use eris_fuzz::sql_text::text_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = text_of(data);
    in_time(|| judge(&text));
});
