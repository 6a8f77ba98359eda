//! The extended protocol: statements, portals, row limits.

use eris_platform::MemoryPool;

use super::{bind, bytes, client, client_within, close, describe, execute, flush, parse, query, read, sync};

#[test]
fn a_statement_is_prepared_once_and_run_often() {
    let mut client = client();
    let answers = client.ask([parse("s", "echo 2"), describe(b'S', "s"), sync()]);
    assert_eq!(answers, ["parsed", "parameters [25, 25]", "columns number:25 text:25", "ready idle"]);
    for value in ["x", "y"] {
        let answers = client.ask([bind("", "s", &[Some(value), None]), execute("", 0), sync()]);
        assert_eq!(answers, ["bound", &format!("row {value}|NULL"), "complete SELECT 1", "ready idle"]);
    }
    assert_eq!(client.calls().iter().filter(|call| call.starts_with("parse")).count(), 1);
    assert_eq!(client.ask([close(b'S', "s"), sync()]), ["closed", "ready idle"]);
    assert!(client.ask([bind("", "s", &[]), sync()])[0].starts_with("error 26000"));
}

#[test]
fn nothing_is_sent_before_sync_or_flush() {
    let mut client = client();
    assert!(client.ask([parse("", "rows 1"), bind("", "", &[]), execute("", 0)]).is_empty());
    assert_eq!(client.ask([flush()]).len(), 4);
    assert_eq!(client.ask([sync()]), ["ready idle"]);
}

#[test]
fn after_an_error_everything_waits_for_sync() {
    let mut client = client();
    let answers = client.ask([
        parse("", "fail 22012"),
        bind("", "", &[]),
        execute("", 0),
        parse("", "rows 1"),
        query("rows 1"),
        sync(),
        parse("", ""),
        bind("", "", &[]),
        describe(b'P', ""),
        execute("", 0),
        sync(),
    ]);
    let expected = [
        "parsed",
        "bound",
        "error 22012 as ordered",
        "ready idle",
        "parsed",
        "bound",
        "no data",
        "empty",
        "ready idle",
    ];
    assert_eq!(answers, expected);
}

#[test]
fn bad_requests_have_their_sqlstate() {
    let mut client = client();
    for (requests, sqlstate) in [
        (vec![bind("", "nobody", &[])], "26000"),
        (vec![execute("nobody", 0)], "34000"),
        (vec![describe(b'P', "nobody")], "34000"),
        (vec![describe(b'S', "nobody")], "26000"),
        (vec![describe(b'X', "")], "08P01"),
        (vec![parse("", "rows 1; rows 2")], "42601"),
        (vec![parse("", "echo 1"), bind("", "", &[])], "08P01"),
        (vec![parse("twice", "rows 1"), parse("twice", "rows 1")], "42P05"),
        (vec![parse("", "rows 1"), bind("p", "", &[]), bind("p", "", &[])], "42P03"),
        (vec![parse("", "begin"), bind("", "", &[]), execute("", 0), execute("", 0)], "55000"),
    ] {
        let answers = client.ask(requests.into_iter().chain([sync()]));
        let error = &answers[answers.len() - 2];
        assert!(error.starts_with(&format!("error {sqlstate} ")), "{answers:?}");
        client.query("rollback");
    }
    assert_eq!(client.ask([close(b'S', "nobody"), close(b'P', "nobody"), sync()]).len(), 3, "closing twice is fine");
}

#[test]
fn a_portal_gives_its_rows_in_portions() {
    let mut client = client();
    client.query("begin");
    let mut answers = client.ask([parse("", "rows 5"), bind("p", "", &[]), execute("p", 2), sync()]);
    assert_eq!(answers.split_off(2), ["row 0|row 0", "row 1|NULL", "suspended", "ready block"]);
    assert_eq!(client.ask([execute("p", 2), flush()]), ["row 2|row 2", "row 3|NULL", "suspended"]);
    assert_eq!(client.ask([execute("p", 2), sync()]), ["row 4|row 4", "complete SELECT 5", "ready block"]);
    assert_eq!(client.ask([execute("p", 2), sync()]), ["complete SELECT 0", "ready block"]);
}

#[test]
fn a_suspended_portal_survives_other_statements_in_its_transaction() {
    let mut client = client();
    client.query("begin");
    client.ask([parse("", "rows 4"), bind("p", "", &[]), execute("p", 1), sync()]);
    client.ask([parse("", "rows 7"), bind("q", "", &[]), execute("q", 4), sync()]);
    assert_eq!(client.query("rows 1").len(), 4);
    assert_eq!(client.ask([execute("p", 2), sync()]), ["row 1|NULL", "row 2|row 2", "suspended", "ready block"]);
    assert_eq!(client.ask([execute("q", 1), sync()]), ["row 4|row 4", "suspended", "ready block"]);
    assert_eq!(client.ask([execute("p", 0), sync()]), ["row 3|NULL", "complete SELECT 4", "ready block"]);
    client.query("commit");
    assert!(client.ask([execute("q", 0), sync()])[0].starts_with("error 34000"), "a portal ends with its transaction");
}

#[test]
fn without_a_block_a_portal_ends_at_sync() {
    let mut client = client();
    let answers =
        client.ask([parse("", "rows 5"), bind("p", "", &[]), execute("p", 1), sync(), execute("p", 1), sync()]);
    assert_eq!(answers[3..5], ["suspended", "ready idle"]);
    assert!(answers[5].starts_with("error 34000"), "{answers:?}");
    assert!(client.calls().contains(&"finish 1".to_owned()), "the statement came to an orderly end");
}

#[test]
fn a_portal_closed_early_frees_the_session() {
    let mut client = client();
    client.query("begin");
    client.ask([parse("", "rows 9"), bind("p", "", &[]), execute("p", 1), sync()]);
    assert_eq!(client.ask([close(b'P', "p"), sync()]), ["closed", "ready block"]);
    assert!(client.calls().contains(&"finish 1".to_owned()));
    assert!(client.ask([execute("p", 1), sync()])[0].starts_with("error 34000"));
}

#[test]
fn rows_of_a_suspended_portal_are_set_aside() {
    let mut client = client();
    client.query("begin");
    client.ask([parse("", "bulky 4"), bind("p", "", &[]), execute("p", 1), sync()]);
    assert!(client.calls().contains(&"set aside".to_owned()));
    let answers = client.ask([execute("p", 0), sync()]);
    assert_eq!(answers[..2], ["row 1|NULL", "row 2|row 2"]);
    assert_eq!(answers[2..], ["row 3|NULL", "complete SELECT 4", "ready block"]);
}

/// The error of a suspended portal is that of its next execution, and no answer to anything else.
#[test]
fn a_suspended_portal_that_cannot_be_set_aside_says_so_when_it_is_asked() {
    let mut client = client();
    client.query("begin");
    let answers = client.ask([parse("", "broken 4"), bind("p", "", &[]), execute("p", 1), sync()]);
    assert_eq!(answers[2..], ["row 0|row 0", "suspended", "ready block"]);
    assert!(client.calls().contains(&"set aside".to_owned()));
    assert_eq!(client.query("rows 1").len(), 4, "the statement that came between is not to blame");
    assert_eq!(client.ask([execute("p", 1), sync()]), ["error 22012 division by zero", "ready failed"]);
}

#[test]
fn held_rows_are_bounded() {
    let memory = MemoryPool::new(64 << 20);
    let mut client = client_within(&memory);
    client.query("begin");
    client.ask([parse("", "heavy 30"), bind("p", "", &[]), execute("p", 1), sync()]);
    assert_eq!(client.query("rows 1").len(), 4, "the statement that came between is not to blame");
    let answers = client.ask([execute("p", 1), sync()]);
    assert!(answers[0].starts_with("error 53200 out of memory: suspended portal asked for"), "{answers:?}");
    assert_eq!(answers[1..], ["ready failed"], "it is an error of the block all the same");
    client.query("rollback");
    client.query("begin");
    client.ask([parse("", "heavy 4"), bind("q", "", &[]), execute("q", 1), sync()]);
    assert_eq!(client.query("rows 1").len(), 4, "one page is within the bound");
    let beside = memory.used() - (32 << 20);
    assert!(beside < 4 << 10, "the portal itself is counted, too: {beside}");
    assert_eq!(client.ask([execute("q", 0), sync()]).len(), 5);
    client.query("rollback");
    assert_eq!(memory.used(), 0, "what portals held is given back with them");
}

#[test]
fn a_large_row_is_reserved_until_it_is_sent() {
    const BYTES: usize = 1 << 20;
    let memory = MemoryPool::new(4 << 20);
    let mut client = client_within(&memory);
    client.stall_after(1_000);
    client.send(&bytes([query(&format!("long {BYTES}"))]));
    let mut answer = client.run();
    assert_eq!(answer.len(), 1_000);
    let reserved = memory.used() as usize;
    assert!((BYTES..BYTES + 100).contains(&reserved), "one row, and no more than it has: {reserved}");
    client.stall(false);
    answer.extend(client.run());
    let answers = read(&answer);
    assert_eq!((answers.len(), answers[1].len(), answers[2].len()), (5, BYTES + 6, BYTES + 6));
    assert_eq!(memory.used(), 0, "an idle session holds nothing of it");
}

#[test]
fn a_row_beyond_the_memory_is_refused_and_the_connection_stays() {
    let memory = MemoryPool::new(4 << 20);
    let mut client = client_within(&memory);
    let answers = client.query("long 5000000");
    assert_eq!(answers[0], "columns number:25 text:25");
    assert!(answers[1].starts_with("error 53200 out of memory: reply asked for 50000"), "{answers:?}");
    assert_eq!(answers[2..], ["ready idle"]);
    let answers = client.ask([parse("", "long 5000000"), bind("", "", &[]), execute("", 0), sync()]);
    assert!(answers[2].starts_with("error 53200"), "{answers:?}");
    assert_eq!(client.query("rows 1").len(), 4);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_message_beyond_the_memory_is_refused_and_the_connection_stays() {
    let memory = MemoryPool::new(1 << 20);
    let mut client = client_within(&memory);
    let large = "x".repeat(3 << 20);
    let answers = client.ask([query(&large), query("rows 0")]);
    assert!(answers[0].starts_with("error 54000"), "a text has a bound of its own: {answers:?}");
    assert_eq!(answers[1..3], ["ready idle", "columns number:25 text:25"]);
    let answers = client.ask([parse("", "echo 1"), bind("", "", &[Some(&large)]), execute("", 0), sync()]);
    assert!(answers[1].starts_with("error 53200"), "{answers:?}");
    assert_eq!(answers[2..], ["ready idle"]);
    client.query("begin");
    client.ask([parse("", "rows 4"), bind("p", "", &[]), execute("p", 1), sync()]);
    assert!(client.query(&large)[0].starts_with("error 54000"));
    let answers = client.ask([execute("p", 0), sync()]);
    assert!(answers[0].starts_with("error 25P02"), "the block has failed, and its portals: {answers:?}");
    assert!(memory.used() < 4 << 10, "only what the portal itself takes: {}", memory.used());
}

#[test]
fn an_error_is_sent_without_a_sync() {
    let mut client = client();
    let answers = client.ask([parse("", "gibberish"), bind("", "", &[]), flush()]);
    assert_eq!(answers.len(), 1, "a client may wait for it before it sends Sync: {answers:?}");
    assert!(answers[0].starts_with("error 42601"));
    assert_eq!(client.ask([sync()]), ["ready idle"]);
}

#[test]
fn a_long_pipeline_is_answered_whole() {
    let mut client = client();
    client.ask([parse("s", "echo 1"), sync()]);
    let mut requests = Vec::new();
    for number in 0..500 {
        requests.push(bind("", "s", &[Some(&number.to_string())]));
        requests.push(execute("", 0));
    }
    requests.push(sync());
    for piece in bytes(requests).chunks(313) {
        client.send(piece);
    }
    let answers = read(&client.run());
    assert_eq!(answers.len(), 1501);
    assert_eq!(answers[1498], "row 499");
}

#[test]
fn what_is_executed_between_two_syncs_is_committed_at_the_second() {
    let mut client = client();
    client.ask([parse("s", "set a 1"), sync()]);
    let run = || [bind("", "s", &[]), execute("", 0)];
    let syncs = |client: &crate::protocol::pipe::Conversation| client.calls().iter().filter(|c| *c == "sync").count();
    client.ask(run().into_iter().chain(run()).chain([flush()]));
    assert_eq!(syncs(&client), 0, "more may follow");
    client.ask([sync()]);
    assert_eq!(syncs(&client), 1);
    client.ask(run());
    client.query("set b 2");
    assert_eq!(syncs(&client), 2, "the end of a simple query is an end for what was before it");
    client.ask(run().into_iter().chain([parse("", "fail 22012"), bind("", "", &[]), execute("", 0), sync()]));
    assert_eq!(syncs(&client), 2, "after an error there is nothing left to commit");
    client.query("begin");
    client.ask(run().into_iter().chain([sync()]));
    assert_eq!(syncs(&client), 2, "a block ends by COMMIT");
}

#[test]
fn portals_end_with_a_transaction_that_ends_between_two_syncs() {
    let mut client = client();
    let answers = client.ask([
        parse("", "rows 3"),
        bind("p", "", &[]),
        execute("p", 1),
        parse("", "commit"),
        bind("", "", &[]),
        execute("", 0),
        execute("p", 1),
        sync(),
    ]);
    assert_eq!(answers[2..4], ["row 0|row 0", "suspended"]);
    assert_eq!(answers[6], "complete COMMIT");
    assert!(answers[7].starts_with("error 34000"), "{answers:?}");
}
