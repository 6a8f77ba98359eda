//! How a connection begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{read, startup};
use crate::protocol::pipe::Conversation;
use crate::protocol::signal::{CONNECTIONS_MAX, Registry, STRANGERS_MAX};

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
fn connections_that_say_nothing_keep_nobody_out() {
    let registry = Arc::new(Registry::default());
    let mut silent: Vec<_> = (0..STRANGERS_MAX).map(|_| Conversation::new(&registry, 1000)).collect();
    for (number, client) in silent.iter_mut().enumerate() {
        // Half of a packet is as little as none.
        client.send(if number % 2 == 0 { b"\0\0" } else { b"" });
        assert!(client.run().is_empty());
    }
    let mut late = Conversation::new(&registry, 1000);
    late.send(&startup(&[("user", "eris")]));
    assert_eq!(read(&late.run()).last().unwrap(), "ready idle");
    let answers = read(&silent[0].run());
    assert!(answers[0].starts_with("error 53300 too many connections without a startup packet"), "{answers:?}");
    assert!(silent[0].ended());
    for client in &mut silent[1..] {
        assert!(client.run().is_empty() && !client.ended());
    }
    // One place is free now, and those that go free theirs.
    let another = Conversation::new(&registry, 1000);
    assert!(silent[1].run().is_empty());
    silent[2].close();
    silent[2].run();
    let _more = Conversation::new(&registry, 1000);
    assert!(silent[1].run().is_empty());
    drop(another);
    assert_eq!(registry.len(), STRANGERS_MAX, "all but three of the first, and two others");
}

#[test]
fn who_gives_way_hears_which_bound_was_met() {
    let registry = Arc::new(Registry::for_connections(2));
    let mut silent = Conversation::new(&registry, 1000);
    assert!(silent.run().is_empty());
    let _second = Conversation::new(&registry, 1000);
    let _third = Conversation::new(&registry, 1000);
    let answers = read(&silent.run());
    assert!(silent.ended());
    assert!(
        answers[0].starts_with("error 53300 too many connections: there are file descriptors for 2"),
        "{answers:?}"
    );
    assert!(!answers[0].contains(&STRANGERS_MAX.to_string()), "{answers:?}");
}

#[test]
fn all_listeners_of_a_database_share_its_numbers_and_its_bounds() {
    let registry = Arc::new(Registry::for_connections(3));
    // Each conversation has an endpoint of its own.
    let mut clients: Vec<_> = (0..3).map(|_| Conversation::new(&registry, 1000)).collect();
    let mut processes = BTreeSet::new();
    for client in &mut clients {
        client.send(&startup(&[("user", "eris")]));
        let answers = client.run();
        assert_eq!(read(&answers).last().unwrap(), "ready idle");
        // The tail is BackendKeyData (13 bytes, its number the four from the sixth) and ReadyForQuery (6 bytes).
        let key_data = &answers[answers.len() - 19..answers.len() - 6];
        assert_eq!(key_data[0], b'K');
        processes.insert(key_data[5..9].to_vec());
        assert_eq!(client.endpoint.len(), 1);
    }
    assert_eq!((processes.len(), registry.len()), (3, 3));
    let refused = clients[0].endpoint.admit(1).err().expect("three are all there may be, whatever they came through");
    assert_eq!(refused.message, "sorry, too many clients already: the limit is 3 connections");
    // A listener that stops takes its own connections along, and no others.
    clients[0].endpoint.stop();
    assert!(!clients[0].run().is_empty() && clients[0].ended());
    assert!(clients[1].run().is_empty() && !clients[1].ended());
    assert!(clients[0].endpoint.admit(1).is_err() && clients[1].endpoint.admit(1).is_ok());
}

#[test]
fn a_session_too_many_hears_so_when_it_can_understand() {
    let registry = Arc::new(Registry::default());
    let begin = |client: &mut Conversation| {
        client.send(&startup(&[("user", "eris")]));
        read(&client.run())
    };
    let mut sessions = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut client = Conversation::new(&registry, 1000);
        assert_eq!(begin(&mut client).last().unwrap(), "ready idle");
        sessions.push(client);
    }
    let mut refused = Conversation::new(&registry, 1000);
    refused.send(&SSL_REQUEST);
    assert_eq!(refused.run(), b"N", "an error instead would not be shown");
    let answers = begin(&mut refused);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0].starts_with("error 53300 sorry, too many clients already"), "{answers:?}");
    assert!(refused.ended());
    sessions[0].close();
    sessions[0].run();
    let mut admitted = Conversation::new(&registry, 1000);
    assert_eq!(begin(&mut admitted).last().unwrap(), "ready idle");
}
