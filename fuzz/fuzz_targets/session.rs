//! Messages in any order against the session states. They are framed here, so that the fuzzer spends its time behind
//! the frames; a record may also hold several statements of the scripted backend's language.
//!
//! ```text
//!   piece size | flags | records...        record: kind | length of the body | body
//! ```
#![no_main]

use eris_fuzz::{STARTUP, converse};
use libfuzzer_sys::fuzz_target;

const KINDS: &[u8] = b"QPBDECHSdcfFX";

fuzz_target!(|data: &[u8]| {
    let [piece, flags, records @ ..] = data else { return };
    let mut stream = STARTUP.to_vec();
    let mut rest = records;
    while let [kind, length, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        stream.push(KINDS[usize::from(*kind) % KINDS.len()]);
        stream.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        stream.extend_from_slice(body);
        rest = tail;
    }
    converse(&stream, *piece, *flags);
});
