//! How a connection begins.

use std::sync::Arc;

use super::{read, startup};
use crate::protocol::pipe::Conversation;
use crate::protocol::signal::{CONNECTIONS_MAX, Registry};

fn fresh() -> Conversation {
    Conversation::new(&Arc::new(Registry::default()), 1000)
}

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

#[test]
fn encryption_is_declined_and_the_client_goes_on() {
    let mut client = fresh();
    client.send(&SSL_REQUEST);
    assert_eq!(client.run(), b"N");
    client.send(&GSS_REQUEST);
    assert_eq!(client.run(), b"N");
    client.send(&startup(&[("user", "eris"), ("application_name", "there")]));
    let answers = read(&client.run());
    assert_eq!(answers[0], "authenticated");
    assert!(answers.contains(&"set client_encoding=UTF8".to_owned()), "{answers:?}");
    assert!(answers.iter().any(|answer| answer.starts_with("set server_version=15.")));
    assert_eq!(answers.last().unwrap(), "ready idle");
    assert_eq!(client.calls(), ["open there"]);
}

#[test]
fn a_client_that_only_asks_for_encryption_is_dismissed() {
    let mut client = fresh();
    for _ in 0..3 {
        client.send(&SSL_REQUEST);
    }
    let output = client.run();
    assert!(output.starts_with(b"NNN"));
    assert!(read(&output[3..])[0].starts_with("error 08P01"));
    assert!(client.ended());
}

#[test]
fn strangers_hear_why_and_are_gone() {
    for (parameters, sqlstate) in [
        (&[("user", "postgres")][..], "28000"),
        (&[("user", "eris"), ("database", "postgres")], "3D000"),
        (&[("database", "eris")], "28000"),
        (&[("user", "eris"), ("client_encoding", "latin1")], "22023"),
        (&[("user", "eris"), ("replication", "1")], "0A000"),
    ] {
        let mut client = fresh();
        client.send(&startup(parameters));
        let answers = read(&client.run());
        assert_eq!(answers.len(), 1, "{parameters:?}");
        assert!(answers[0].starts_with(&format!("error {sqlstate} ")), "{answers:?}");
        assert!(client.ended());
        assert!(client.registry.is_empty());
    }
}

#[test]
fn settings_of_the_start_are_set_before_the_client_is_ready() {
    let mut client = fresh();
    client.send(&startup(&[("user", "eris"), ("DateStyle", "ISO, 'DMY'")]));
    client.run();
    assert_eq!(client.calls()[1], "parse SET \"DateStyle\" TO 'ISO, ''DMY''' []");
}

#[test]
fn newer_minor_versions_are_negotiated_down() {
    let mut client = fresh();
    let mut bytes = startup(&[("user", "eris"), ("_pq_.feature", "on")]);
    bytes[7] = 2;
    client.send(&bytes);
    let answers = read(&client.run());
    assert_eq!(answers[0], "negotiated 0 without _pq_.feature");
    assert_eq!(answers.last().unwrap(), "ready idle");
}

#[test]
fn older_and_foreign_protocols_are_refused() {
    for start in [&b"\0\0\0\x08\0\x02\0\0"[..], b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\0\x01\0\x01", b"\0\0\x27\x11"]
    {
        let mut client = fresh();
        client.send(start);
        let answers = read(&client.run());
        assert!(answers[0].starts_with("error 0"), "{answers:?}");
        assert!(client.ended(), "{start:?}");
    }
}

#[test]
fn half_open_connections_wait_and_are_counted() {
    let registry = Arc::new(Registry::default());
    let mut silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| Conversation::new(&registry, 1)).collect();
    for client in &mut silent {
        client.send(b"\0\0");
        assert!(client.run().is_empty());
    }
    assert_eq!(registry.len(), CONNECTIONS_MAX);
    assert_eq!(registry.admit(1).err().unwrap().sqlstate.as_str(), "53300");
    silent[0].close();
    silent[0].run();
    assert!(silent[0].ended());
    assert!(registry.admit(1).is_ok());
}
