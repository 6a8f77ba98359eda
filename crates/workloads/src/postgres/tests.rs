//! The client against a scripted server: a thread that reads whole client messages and answers from a script.

use super::{CancelToken, PostgresConnection, PostgresUrl};
use crate::connection::{SqlConnection, SqlFailure, SqlValue};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn error(sqlstate: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0C{sqlstate}\0M{text}\0\0").as_bytes())
}

fn row_description(columns: &[(&str, u32)]) -> Vec<u8> {
    let mut body = (columns.len() as i16).to_be_bytes().to_vec();
    for (name, oid) in columns {
        body.extend(name.as_bytes());
        body.extend([0; 7]);
        body.extend(oid.to_be_bytes());
        body.extend([0; 8]);
    }
    message(b'T', &body)
}

fn data_row(fields: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = (fields.len() as i16).to_be_bytes().to_vec();
    for field in fields {
        match field {
            Some(bytes) => {
                body.extend((bytes.len() as i32).to_be_bytes());
                body.extend(*bytes);
            }
            None => body.extend((-1i32).to_be_bytes()),
        }
    }
    message(b'D', &body)
}

fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn read_message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
    stream.read_exact(&mut body).unwrap();
    (head[0], body)
}

/// One step: read messages until one with this tag has come, then send the answer.
type Step = (u8, Vec<u8>);

/// Starts a server for one connection; its thread returns the bodies of the messages that ended each step.
fn server(steps: Vec<Step>) -> (PostgresUrl, JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://eris:secret@127.0.0.1:{}/eris", listener.local_addr().unwrap().port());
    let handle = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut startup).unwrap();
        assert!(startup.windows(11).any(|window| window == b"user\0eris\0d"), "{}", startup.escape_ascii());
        let mut greeting = message(b'R', &0i32.to_be_bytes());
        greeting.extend(message(b'S', b"server_version\x0015\0"));
        greeting.extend(message(b'K', &[0, 0, 0, 7, 1, 2, 3, 4]));
        greeting.extend(ready());
        stream.write_all(&greeting).unwrap();
        let mut seen = Vec::new();
        for (until, answer) in steps {
            let mut last = read_message(&mut stream);
            while last.0 != until {
                seen.push(last.1);
                last = read_message(&mut stream);
            }
            seen.push(last.1);
            stream.write_all(&answer).unwrap();
        }
        seen
    });
    (url.parse().unwrap(), handle)
}

#[test]
fn a_prepared_statement_sends_and_reads_binary() {
    let described = [
        message(b'1', b""),
        message(b't', &[0, 2, 0, 0, 0, 23, 0, 0, 4, 19]), // int4, varchar
        row_description(&[("id", 20), ("name", 1043), ("price", 1700)]),
        ready(),
    ]
    .concat();
    let answered = [
        message(b'2', b""),
        data_row(&[Some(&7i64.to_be_bytes()), Some("grün".as_bytes()), Some(b"12.50")]),
        data_row(&[Some(&(-1i64).to_be_bytes()), None, None]),
        complete("SELECT 2"),
        ready(),
    ]
    .concat();
    let (url, handle) = server(vec![(b'S', described), (b'S', answered)]);
    let mut connection = PostgresConnection::connect(&url).unwrap();
    let statement = connection.prepare("SELECT id, name, price FROM t WHERE id > $1 AND name < $2").unwrap();
    let result = connection.execute_prepared(statement, &[SqlValue::Int(300), SqlValue::from("x")]).unwrap();
    assert_eq!(result.rows_affected, 2);
    assert_eq!(result.rows[0], [SqlValue::Int(7), SqlValue::from("grün"), SqlValue::from("12.50")]);
    assert_eq!(result.rows[1], [SqlValue::Int(-1), SqlValue::Null, SqlValue::Null]);
    let wrong = connection.execute_prepared(statement, &[]).unwrap_err();
    assert_eq!(wrong.sqlstate, "08P01");
    drop(connection);
    let bind = &handle.join().unwrap()[3];
    // Unnamed portal, statement s0; binary and text; the values; binary, binary and text results.
    let expected: &[u8] = b"\0s0\0\0\x02\0\x01\0\0\0\x02\0\0\0\x04\0\0\x01\x2c\0\0\0\x01x\0\x03\0\x01\0\x01\0\0";
    assert_eq!(bind, expected, "{}", bind.escape_ascii());
}

#[test]
fn an_error_leaves_the_connection_usable() {
    let failed = [error("40001", "could not serialize access"), ready()].concat();
    let worked = [row_description(&[("n", 23)]), data_row(&[Some(b"5")]), complete("SELECT 1"), ready()].concat();
    let (url, handle) = server(vec![(b'Q', failed), (b'Q', worked)]);
    let mut connection = PostgresConnection::connect(&url).unwrap();
    let failure = connection.execute("UPDATE t SET a = 1", &[]).unwrap_err();
    assert_eq!(failure, SqlFailure::new("40001", "could not serialize access"));
    assert!(failure.is_retryable() && !failure.is_constraint_violation());
    assert_eq!(connection.execute("SELECT 5", &[]).unwrap().rows, [[SqlValue::Int(5)]]);
    drop(connection);
    handle.join().unwrap();
}

#[test]
fn copy_sends_every_piece() {
    let copying = message(b'G', &[0, 0, 0]);
    let (url, handle) = server(vec![(b'Q', copying), (b'c', [complete("COPY 3"), ready()].concat())]);
    let mut connection = PostgresConnection::connect(&url).unwrap();
    let mut pieces = vec![b"1\n2\n".to_vec(), b"3\n".to_vec()].into_iter();
    assert_eq!(connection.copy_in("COPY t FROM STDIN", &mut pieces).unwrap(), 3);
    drop(connection);
    assert_eq!(handle.join().unwrap()[1..3].concat(), b"1\n2\n3\n");
}

#[test]
fn a_refused_copy_and_a_lost_server_are_errors() {
    let refused = [error("42P01", "relation \"t\" does not exist"), ready()].concat();
    // The second answer ends in the middle of a row.
    let torn = data_row(&[Some(b"12345")])[..8].to_vec();
    let (url, handle) = server(vec![(b'Q', refused), (b'Q', torn)]);
    let mut connection = PostgresConnection::connect(&url).unwrap();
    let failure = connection.copy_in("COPY t FROM STDIN", &mut std::iter::empty()).unwrap_err();
    assert_eq!(failure.sqlstate, "42P01");
    let failure = connection.execute("SELECT 1", &[]).unwrap_err();
    assert_eq!(failure.sqlstate, "08006", "{failure}");
    handle.join().unwrap();
}

#[test]
fn garbage_is_a_protocol_violation() {
    for garbage in [message(b'D', b"\0\x01\0\0"), message(b'D', b"\0\x01\0\0\0\x7f"), message(b'?', b"")] {
        let answer = [row_description(&[("n", 25)]), garbage, ready()].concat();
        let (url, handle) = server(vec![(b'Q', answer)]);
        let mut connection = PostgresConnection::connect(&url).unwrap();
        assert_eq!(connection.execute("SELECT 1", &[]).unwrap_err().sqlstate, "08P01");
        drop(connection);
        handle.join().unwrap();
    }
}

#[test]
fn a_request_to_cancel_names_process_and_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, handle) = server(Vec::new());
    let token = PostgresConnection::connect(&url).unwrap().cancel_token().unwrap();
    handle.join().unwrap();
    CancelToken { server: listener.local_addr().unwrap(), ..token }.cancel().unwrap();
    let mut request = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut request).unwrap();
    assert_eq!(request, [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 7, 1, 2, 3, 4]);
}

#[test]
fn nobody_listening_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://eris@127.0.0.1:{port}/eris").parse().unwrap();
    assert_eq!(PostgresConnection::connect(&url).unwrap_err().sqlstate, "08001");
}
