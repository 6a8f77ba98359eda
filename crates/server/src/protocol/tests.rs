//! Conversations with the scripted backend, written and read with the codec of the crate `postgres-protocol`: a second
//! opinion on every byte we read and send.

mod conversation;
mod extended;
mod fuzz_corpus;
mod garbage;
mod interruption;
mod simple;
mod start;

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use eris_platform::MemoryPool;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{ErrorFields, Message as Answer};
use postgres_protocol::message::frontend;

use crate::protocol::pipe::Conversation;
use crate::protocol::signal::Registry;

/// A client that has started up.
pub(super) fn client() -> Conversation {
    client_within(&MemoryPool::unlimited())
}

pub(super) fn client_within(memory: &Arc<MemoryPool>) -> Conversation {
    let mut client = Conversation::within(&Arc::new(Registry::default()), 7, memory);
    client.send(&startup(&[("user", "eris"), ("application_name", "test")]));
    let answers = read(&client.run());
    assert_eq!(answers.last().map(String::as_str), Some("ready idle"), "{answers:?}");
    client
}

/// What a client sends.
pub(super) struct Request(BytesMut);

impl Request {
    /// A request as the codec writes it.
    pub(super) fn new<E: std::fmt::Debug>(write: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Self {
        let mut bytes = BytesMut::new();
        write(&mut bytes).unwrap();
        Self(bytes)
    }

    /// A request that cannot fail to be written.
    pub(super) fn certain(write: impl FnOnce(&mut BytesMut)) -> Self {
        Self::new(|bytes| {
            write(bytes);
            Ok::<(), std::convert::Infallible>(())
        })
    }
}

pub(super) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    bytes([Request::new(|bytes| frontend::startup_message(parameters.iter().copied(), bytes))])
}

pub(super) fn bytes(requests: impl IntoIterator<Item = Request>) -> Vec<u8> {
    requests.into_iter().flat_map(|request| request.0).collect()
}

impl Conversation {
    /// Sends requests and reads the answers.
    pub(super) fn ask(&mut self, requests: impl IntoIterator<Item = Request>) -> Vec<String> {
        self.send(&bytes(requests));
        read(&self.run())
    }

    pub(super) fn query(&mut self, sql: &str) -> Vec<String> {
        self.ask([query(sql)])
    }
}

pub(super) fn query(sql: &str) -> Request {
    Request::new(|bytes| frontend::query(sql, bytes))
}

pub(super) fn parse(name: &str, sql: &str) -> Request {
    Request::new(|bytes| frontend::parse(name, sql, [], bytes))
}

pub(super) fn bind(portal: &str, statement: &str, parameters: &[Option<&str>]) -> Request {
    let write = |parameter: Option<&str>, bytes: &mut BytesMut| {
        let Some(text) = parameter else { return Ok(IsNull::Yes) };
        bytes.put_slice(text.as_bytes());
        Ok(IsNull::No)
    };
    Request::new(|bytes| {
        frontend::bind(portal, statement, [], parameters.iter().copied(), write, [], bytes).map_err(|error| match error
        {
            frontend::BindError::Conversion(error) => error.to_string(),
            frontend::BindError::Serialization(error) => error.to_string(),
        })
    })
}

pub(super) fn describe(target: u8, name: &str) -> Request {
    Request::new(|bytes| frontend::describe(target, name, bytes))
}

pub(super) fn execute(portal: &str, limit: i32) -> Request {
    Request::new(|bytes| frontend::execute(portal, limit, bytes))
}

pub(super) fn close(target: u8, name: &str) -> Request {
    Request::new(|bytes| frontend::close(target, name, bytes))
}

pub(super) fn sync() -> Request {
    Request::certain(frontend::sync)
}

pub(super) fn flush() -> Request {
    Request::certain(frontend::flush)
}

/// The answers in a short notation.
pub(super) fn read(output: &[u8]) -> Vec<String> {
    let mut buffer = BytesMut::from(output);
    let mut answers = Vec::new();
    loop {
        if buffer.starts_with(b"v") {
            answers.push(negotiated(&mut buffer));
        } else if let Some(answer) = Answer::parse(&mut buffer).unwrap() {
            answers.push(describe_answer(&answer));
        } else {
            break;
        }
    }
    assert!(buffer.is_empty(), "the output ends with a whole message, not {buffer:?} after {answers:?}");
    answers
}

/// The codec does not know `NegotiateProtocolVersion`: tag, length, newest minor version, names of unknown options.
fn negotiated(buffer: &mut BytesMut) -> String {
    let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
    let message = buffer.split_to(1 + length);
    let minor = u32::from_be_bytes(message[5..9].try_into().unwrap());
    let count = u32::from_be_bytes(message[9..13].try_into().unwrap()) as usize;
    let names: Vec<&[u8]> = message[13..].split(|byte| *byte == 0).collect();
    assert_eq!(names.len(), count + 1, "each name ends with a zero byte");
    let names: Vec<_> = names[..count].iter().map(|name| str::from_utf8(name).unwrap()).collect();
    format!("negotiated {minor} without {}", names.join(" "))
}

/// The text of one field of an error or a notice.
pub(crate) fn field(mut fields: ErrorFields<'_>, code: u8) -> String {
    let found = fields.find(|field| Ok(field.type_() == code)).unwrap();
    found.map(|field| String::from_utf8(field.value_bytes().to_vec()).unwrap()).unwrap_or_default()
}

fn describe_answer(answer: &Answer) -> String {
    match answer {
        Answer::DataRow(row) => {
            let value = |range: Option<std::ops::Range<usize>>| {
                Ok(range.map_or("NULL".to_owned(), |range| String::from_utf8(row.buffer()[range].to_vec()).unwrap()))
            };
            let values: Vec<String> = row.ranges().map(value).collect().unwrap();
            format!("row {}", values.join("|"))
        }
        Answer::RowDescription(description) => {
            let name = |field: postgres_protocol::message::backend::Field<'_>| {
                Ok(format!("{}:{}", field.name(), field.type_oid()))
            };
            let names: Vec<String> = description.fields().map(name).collect().unwrap();
            format!("columns {}", names.join(" "))
        }
        Answer::ParameterDescription(description) => {
            let types: Vec<u32> = description.parameters().collect().unwrap();
            format!("parameters {types:?}")
        }
        Answer::ErrorResponse(body) => format!("error {} {}", field(body.fields(), b'C'), field(body.fields(), b'M')),
        Answer::NoticeResponse(body) => format!("notice {} {}", field(body.fields(), b'C'), field(body.fields(), b'M')),
        Answer::CommandComplete(complete) => format!("complete {}", complete.tag().unwrap()),
        Answer::ReadyForQuery(ready) => match ready.status() {
            b'I' => "ready idle".to_owned(),
            b'T' => "ready block".to_owned(),
            b'E' => "ready failed".to_owned(),
            other => panic!("no transaction status: {other}"),
        },
        Answer::ParameterStatus(status) => format!("set {}={}", status.name().unwrap(), status.value().unwrap()),
        Answer::CopyInResponse(response) => format!("copy in {}", response.column_formats().count().unwrap()),
        Answer::BackendKeyData(key) => format!("key {} {}", key.process_id(), key.secret_key()),
        Answer::AuthenticationOk => "authenticated".to_owned(),
        Answer::ParseComplete => "parsed".to_owned(),
        Answer::BindComplete => "bound".to_owned(),
        Answer::CloseComplete => "closed".to_owned(),
        Answer::NoData => "no data".to_owned(),
        Answer::PortalSuspended => "suspended".to_owned(),
        Answer::EmptyQueryResponse => "empty".to_owned(),
        _ => panic!("an answer that no request of these tests has"),
    }
}
