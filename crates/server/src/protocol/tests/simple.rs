//! The simple protocol and COPY.

use postgres_protocol::message::frontend;

use super::{Request, client, parse, query, read, sync};

fn data(text: &str) -> Request {
    let data = frontend::CopyData::new(text.as_bytes()).unwrap();
    Request::certain(|bytes| data.write(bytes))
}

fn done() -> Request {
    Request::certain(frontend::copy_done)
}

#[test]
fn several_statements_answer_in_order() {
    let answers = client().query("rows 2; begin; notice well; echo 0");
    let expected = [
        "columns number:25 text:25",
        "row 0|row 0",
        "row 1|NULL",
        "complete SELECT 2",
        "complete BEGIN",
        "notice 01000 well",
        "complete NOTICE",
        "columns ",
        "row ",
        "complete SELECT 1",
        "ready block",
    ];
    assert_eq!(answers, expected);
}

#[test]
fn columns_may_be_known_only_when_a_statement_runs() {
    let answers = client().query("begin; late 1");
    let expected = ["complete BEGIN", "columns number:25 text:25", "row 0|row 0", "complete SELECT 1", "ready block"];
    assert_eq!(answers, expected);
}

#[test]
fn a_text_without_statements_is_answered() {
    assert_eq!(client().query(" ; "), ["empty", "ready idle"]);
}

#[test]
fn the_first_error_ends_the_message_but_not_the_connection() {
    let mut client = client();
    assert_eq!(client.query("rows 0; fail 22012; rows 1").last().unwrap(), "ready idle");
    assert!(!client.calls().contains(&"execute rows 1 []".to_owned()));
    assert_eq!(client.query("gibberish"), ["error 42601 syntax error at \"gibberish\"", "ready idle"]);
    assert_eq!(client.query("begin; fail 22012")[1..], ["error 22012 as ordered", "ready failed"]);
    assert_eq!(client.query("rows 1")[0], "error 25P02 current transaction is aborted");
    assert_eq!(client.query("rollback"), ["complete ROLLBACK", "ready idle"]);
    assert_eq!(client.query("echo 1")[0], "error 42P02 there is no parameter $1");
}

#[test]
fn settings_that_change_are_told() {
    let answers = client().query("set TimeZone Europe/Berlin; set something else");
    assert_eq!(answers, ["set TimeZone=Europe/Berlin", "complete SET", "complete SET", "ready idle"]);
}

#[test]
fn copy_takes_data_in_any_pieces() {
    let mut client = client();
    assert_eq!(client.query("copy"), ["copy in 2"]);
    assert!(client.ask([data("a\nb\n"), data(""), sync(), data("c\n")]).is_empty());
    assert_eq!(client.ask([done()]), ["complete COPY 3", "ready idle"]);
    assert_eq!(client.query("rows 0").last().unwrap(), "ready idle");
}

#[test]
fn a_copy_that_fails_swallows_the_rest_of_its_data() {
    let mut client = client();
    client.query("copy");
    let answers = client.ask([data("bad\n"), data("a\n"), done()]);
    assert_eq!(answers, ["error 22P02 bad line", "ready idle"]);
    client.query("copy");
    let answers = client.ask([data("a\n"), Request::new(|bytes| frontend::copy_fail("no more", bytes))]);
    assert_eq!(answers, ["error 57014 COPY from stdin failed: no more", "ready idle"]);
    client.query("copy");
    assert!(client.ask([parse("", "rows 1")])[0].starts_with("error 08P01"));
    assert_eq!(client.query("rows 0").last().unwrap(), "ready idle");
}

#[test]
fn a_client_that_vanishes_in_a_copy_leaves_nothing() {
    let mut client = client();
    client.query("copy");
    client.ask([data("a\n")]);
    client.close();
    client.run();
    assert!(client.ended());
    assert!(client.registry.is_empty());
    assert_eq!(client.calls().last().unwrap(), "close");
}

#[test]
fn text_that_is_not_text_is_an_error_of_the_statement() {
    let mut client = client();
    client.send(b"Q\0\0\0\x0drows \xc3\x281\0");
    let answers = read(&client.run());
    assert!(answers[0].starts_with("error 22021"), "{answers:?}");
    assert_eq!(answers[1], "ready idle");
    client.send(b"F\0\0\0\x04");
    assert_eq!(read(&client.run()).last().unwrap(), "ready idle");
    assert_eq!(client.ask([query("rows 0")]).last().unwrap(), "ready idle");
}
