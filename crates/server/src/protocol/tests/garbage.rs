//! Bytes from outside that follow no rule: no panic, no spinning, well-formed answers, nothing left behind.

use std::sync::Arc;

use super::{bind, bytes, client, close, describe, execute, flush, parse, query, read, startup, sync};
use crate::protocol::pipe::Conversation;
use crate::protocol::signal::Registry;

/// `SplitMix64`: small, and good enough to pick bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Some honest messages in a random order.
fn honest(random: &mut Random) -> Vec<u8> {
    let names = ["", "a", "b"];
    let texts = ["rows 5", "echo 2", "copy", "begin", "commit", "fail 22012", "rows 1; rows 2", "", "x", "notice n"];
    let mut requests = Vec::new();
    for _ in 0..random.below(12) {
        let name = names[random.below(3)];
        let text = texts[random.below(texts.len())];
        requests.push(match random.below(9) {
            0 => query(text),
            1 => parse(name, text),
            2 => bind(name, names[random.below(3)], &[Some("1"), None][..random.below(3)]),
            3 => describe(if random.below(2) == 0 { b'S' } else { b'P' }, name),
            4 => execute(name, random.below(4) as i32),
            5 => close(if random.below(2) == 0 { b'S' } else { b'P' }, name),
            6 => flush(),
            _ => sync(),
        });
    }
    let mut stream = bytes(requests);
    if random.below(3) == 0 {
        stream.extend_from_slice(
            [&b"d\0\0\0\x06a\n"[..], b"c\0\0\0\x04", b"f\0\0\0\x05\0", b"d\0\0\0\x08bad\n"][random.below(4)],
        );
    }
    stream
}

fn mutate(random: &mut Random, stream: &mut Vec<u8>) {
    for _ in 0..random.below(6) {
        if stream.is_empty() {
            return;
        }
        let at = random.below(stream.len());
        match random.below(4) {
            0 => stream[at] = random.next() as u8,
            1 => stream.truncate(at),
            2 => drop(stream.drain(at..(at + 1 + random.below(9)).min(stream.len()))),
            _ => stream.insert(at, random.next() as u8),
        }
    }
}

#[test]
fn broken_conversations_end_or_go_on_but_never_break_the_server() {
    let (mut ended, mut went_on) = (0, 0);
    for seed in 0..3_000u64 {
        let mut random = Random(seed);
        let registry = Arc::new(Registry::default());
        let mut client = Conversation::new(&registry, 1 + random.below(200));
        let mut stream = if random.below(8) == 0 { Vec::new() } else { startup(&[("user", "eris")]) };
        let keep = stream.len();
        stream.extend(honest(&mut random));
        if random.below(4) == 0 {
            mutate(&mut random, &mut stream);
        } else {
            let mut tail = stream.split_off(keep);
            mutate(&mut random, &mut tail);
            stream.extend(tail);
        }
        let piece = 1 + random.below(40);
        let mut output = Vec::new();
        for part in stream.chunks(piece) {
            client.send(part);
            output.extend(client.run());
        }
        let answers = read(output.strip_prefix(b"N").unwrap_or(&output));
        if client.ended() {
            ended += 1;
        } else {
            went_on += 1;
            client.close();
            client.run();
        }
        assert!(client.ended(), "seed {seed}: the connection ends with its client, after {answers:?}");
        assert!(registry.is_empty(), "seed {seed}");
        let calls = client.calls();
        if calls.iter().any(|call| call.starts_with("open")) {
            assert_eq!(calls.last().unwrap(), "close", "seed {seed}: the session is closed");
        }
    }
    assert!(ended > 300 && went_on > 300, "both kinds are exercised: {ended} ended, {went_on} went on");
}

#[test]
fn bytes_without_any_sense() {
    for seed in 0..2_000u64 {
        let mut random = Random(seed | 1 << 40);
        let mut client = client();
        let noise: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
        client.send(&noise);
        read(&client.run());
        client.close();
        client.run();
        assert!(client.ended(), "seed {seed}");
    }
}

#[test]
fn a_broken_frame_is_named_and_ends_the_connection() {
    for (bytes, message) in [
        (&b"\x99\0\0\0\x04"[..], "invalid frontend message type 153"),
        (b"S\0\0\0\x02", "invalid message length 2"),
        (b"Q\x7f\xff\xff\xff", "invalid message length 2147483647"),
    ] {
        let mut client = client();
        client.send(bytes);
        let answers = read(&client.run());
        assert!(answers[0].starts_with(&format!("error 08P01 {message}")), "{answers:?}");
        assert!(client.ended());
    }
}

#[test]
fn a_whole_message_with_a_broken_body_is_an_error_only() {
    let mut client = client();
    client.send(b"B\0\0\0\x08\0\0\0\x05S\0\0\0\x04");
    let answers = read(&client.run());
    assert!(answers[0].starts_with("error 08P01"), "{answers:?}");
    assert_eq!(answers[1], "ready idle");
}
