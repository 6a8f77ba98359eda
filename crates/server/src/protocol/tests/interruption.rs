//! Cancel requests, clients that vanish or do not read, a server that stops.

use super::{Request, bind, client, execute, parse, query, read, sync};
use crate::protocol::pipe::Conversation;
use crate::protocol::reply::REPLY_BYTES;

/// A second connection that asks to cancel.
fn cancel(client: &Conversation, process: u32, secret: u32) {
    let mut other = Conversation::new(&client.registry, 100);
    let code = 80_877_102u32;
    other.send(&[16, code, process, secret].map(u32::to_be_bytes).concat());
    assert!(other.run().is_empty(), "a cancel request is not answered");
    assert!(other.ended());
}

#[test]
fn a_running_statement_is_cancelled_by_who_knows_the_secret() {
    let mut client = client();
    assert!(client.query("wait").is_empty());
    cancel(&client, 1, 2);
    assert!(client.run().is_empty(), "a wrong secret does nothing");
    cancel(&client, 1, 1);
    let answers = read(&client.run());
    assert_eq!(answers, ["error 57014 canceling statement due to user request", "ready idle"]);
    assert_eq!(client.query("rows 0").last().unwrap(), "ready idle");
}

#[test]
fn a_cancel_that_the_backend_does_not_hear_is_asked_again() {
    let mut client = client();
    assert!(client.query("deaf").is_empty());
    cancel(&client, 1, 1);
    let answers = read(&client.run());
    assert_eq!(answers, ["error 57014 canceling statement due to user request", "ready idle"]);
}

#[test]
fn a_cancel_between_statements_hits_nothing() {
    let mut client = client();
    cancel(&client, 1, 1);
    assert_eq!(client.query("rows 1").len(), 4);
    client.query("begin");
    client.ask([parse("", "rows 4"), bind("", "", &[]), execute("", 1), sync()]);
    cancel(&client, 1, 1);
    assert_eq!(client.ask([execute("", 0), sync()]).len(), 5, "a suspended portal is not running");
}

#[test]
fn a_copy_that_waits_for_data_is_cancelled() {
    let mut client = client();
    client.query("copy");
    cancel(&client, 1, 1);
    assert_eq!(read(&client.run())[0], "error 57014 canceling statement due to user request");
    assert_eq!(client.query("rows 0").last().unwrap(), "ready idle");
}

#[test]
fn a_client_that_does_not_read_makes_its_statement_wait() {
    let mut client = client();
    client.stall(true);
    client.send(&super::bytes([query("rows 10000")]));
    assert!(client.run().is_empty());
    let finished = |client: &Conversation| client.calls().iter().any(|call| call.starts_with("finish"));
    assert!(!finished(&client), "ten thousand rows do not fit in {REPLY_BYTES} bytes");
    client.stall(false);
    let answers = read(&client.run());
    assert_eq!(answers.len(), 10_003);
    assert!(finished(&client));
}

#[test]
fn rows_are_set_aside_while_their_client_does_not_read() {
    let mut client = client();
    client.stall(true);
    client.send(&super::bytes([query("bulky 10000")]));
    assert!(client.run().is_empty());
    assert!(client.calls().contains(&"set aside".to_owned()));
    client.stall(false);
    let answers = read(&client.run());
    let numbers =
        answers.iter().filter_map(|answer| answer.strip_prefix("row ")?.split('|').next()?.parse::<u32>().ok());
    assert!(numbers.eq(0..10_000), "each row once, in order");
    assert_eq!(answers[10_001..], ["complete SELECT 10000", "ready idle"]);
}

#[test]
fn rows_that_cannot_be_set_aside_end_in_an_error_behind_what_was_sent() {
    let mut client = client();
    client.stall(true);
    client.send(&super::bytes([query("broken 10000")]));
    client.run();
    client.stall(false);
    let answers = read(&client.run());
    assert!(answers.len() < 10_000, "{} answers", answers.len());
    assert_eq!(answers[answers.len() - 2..], ["error 22012 division by zero", "ready idle"]);
    assert_eq!(client.query("rows 1").len(), 4);
}

#[test]
fn a_statement_whose_client_does_not_read_can_be_cancelled() {
    let mut client = client();
    client.stall(true);
    client.send(&super::bytes([query("rows 10000")]));
    client.run();
    cancel(&client, 1, 1);
    client.run();
    client.stall(false);
    let answers = read(&client.run());
    assert!(answers.len() < 10_000);
    assert_eq!(answers[answers.len() - 2], "error 57014 canceling statement due to user request");
    assert_eq!(client.query("rows 1").len(), 4);
}

/// Has a client that does not read ask for rows, and cancels them; what it reads then.
fn cancelled_while_sent(client: &mut Conversation, requests: impl IntoIterator<Item = Request>) -> Vec<String> {
    client.stall(true);
    client.send(&super::bytes(requests));
    client.run();
    cancel(client, 1, 1);
    client.run();
    client.stall(false);
    read(&client.run())
}

#[test]
fn a_command_that_has_ended_is_not_cancelled_while_its_answer_is_sent() {
    let mut client = client();
    let answers = cancelled_while_sent(&mut client, [query("done 10000")]);
    assert_eq!((answers.len(), answers[10_001].as_str()), (10_003, "complete SELECT 10000"));
}

#[test]
fn a_command_that_has_ended_is_not_cancelled_behind_a_suspension_either() {
    let suspended = |client: &mut Conversation| {
        client.query("begin");
        let answers = client.ask([parse("", "done 10000"), bind("p", "", &[]), execute("p", 1), sync()]);
        assert_eq!(answers[2..], ["row 0|row 0", "suspended", "ready block"]);
    };
    // Its result is still a stream.
    let mut client = client();
    suspended(&mut client);
    let answers = cancelled_while_sent(&mut client, [execute("p", 0), sync()]);
    assert_eq!((answers.len(), answers[9_999].as_str()), (10_001, "complete SELECT 10000"));
    // It was moved into memory, because something else came between.
    let mut client = super::client();
    suspended(&mut client);
    client.ask([parse("", "rows 1"), bind("", "", &[]), execute("", 0), sync()]);
    let answers = cancelled_while_sent(&mut client, [execute("p", 0), sync()]);
    assert_eq!((answers.len(), answers[9_999].as_str()), (10_001, "complete SELECT 10000"));
}

#[test]
fn a_client_that_vanishes_ends_its_statement() {
    let mut client = client();
    client.query("wait");
    client.close();
    client.run();
    assert!(client.ended());
    assert_eq!(client.calls().last().unwrap(), "close");
}

#[test]
fn a_server_that_stops_says_so_to_idle_and_busy() {
    let mut idle = client();
    let mut busy = client();
    busy.query("wait");
    for client in [&mut idle, &mut busy] {
        client.endpoint.stop();
        let answers = read(&client.run());
        assert_eq!(answers, ["error 57P01 terminating connection due to administrator command"]);
        assert!(client.ended());
        assert_eq!(client.calls().last().unwrap(), "close");
    }
    assert!(idle.endpoint.admit(1).is_err());
}

#[test]
fn a_server_that_stops_does_not_wait_for_who_does_not_read() {
    let mut client = client();
    client.stall(true);
    client.send(&super::bytes([query("rows 10000")]));
    client.run();
    client.endpoint.stop();
    client.run();
    assert!(client.ended());
}

#[test]
fn rows_that_are_not_sent_to_their_end_spoil_the_block() {
    let mut client = client();
    client.query("begin");
    client.stall(true);
    client.send(&super::bytes([query("rows 10000")]));
    client.run();
    cancel(&client, 1, 1);
    client.run();
    client.stall(false);
    assert_eq!(read(&client.run()).last().unwrap(), "ready failed");
}
