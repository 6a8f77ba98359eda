//! Conversations with the scripted backend, written and read with the codec of the crate `pgwire`: a second opinion on
//! every byte we read and send.

mod conversation;
mod extended;
mod garbage;
mod interruption;
mod simple;
mod start;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use eris_platform::MemoryPool;
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Flush, Parse, Sync};
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::simplequery::Query;
use pgwire::messages::{DecodeContext, Message, PgWireBackendMessage as Answer, PgWireFrontendMessage as Request};

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

pub(super) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut message = pgwire::messages::startup::Startup::default();
    for (name, value) in parameters {
        message.parameters.insert((*name).to_owned(), (*value).to_owned());
    }
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes).unwrap();
    bytes.to_vec()
}

pub(super) fn bytes(requests: impl IntoIterator<Item = Request>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    for request in requests {
        request.encode(&mut bytes).unwrap();
    }
    bytes.to_vec()
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
    Request::Query(Query::new(sql.to_owned()))
}

pub(super) fn parse(name: &str, sql: &str) -> Request {
    Request::Parse(Parse::new(named(name), sql.to_owned(), Vec::new()))
}

pub(super) fn bind(portal: &str, statement: &str, parameters: &[Option<&str>]) -> Request {
    let parameters = parameters.iter().map(|p| p.map(|text| Bytes::copy_from_slice(text.as_bytes()))).collect();
    Request::Bind(Bind::new(named(portal), named(statement), Vec::new(), parameters, Vec::new()))
}

pub(super) fn describe(target: u8, name: &str) -> Request {
    Request::Describe(Describe::new(target, named(name)))
}

pub(super) fn execute(portal: &str, limit: i32) -> Request {
    Request::Execute(Execute::new(named(portal), limit))
}

pub(super) fn close(target: u8, name: &str) -> Request {
    Request::Close(Close::new(target, named(name)))
}

pub(super) fn sync() -> Request {
    Request::Sync(Sync::new())
}

pub(super) fn flush() -> Request {
    Request::Flush(Flush::new())
}

fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// The answers in a short notation.
pub(super) fn read(output: &[u8]) -> Vec<String> {
    let mut context = DecodeContext::default();
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    let mut buffer = BytesMut::new();
    buffer.put_slice(output);
    let mut answers = Vec::new();
    while let Some(answer) = Answer::decode(&mut buffer, &context).unwrap() {
        answers.push(describe_answer(answer));
    }
    assert!(buffer.is_empty(), "the output ends with a whole message, not {buffer:?} after {answers:?}");
    answers
}

fn describe_answer(answer: Answer) -> String {
    let fields = |fields: Vec<(u8, String)>| {
        let field = |code: u8| fields.iter().find(|(c, _)| *c == code).map_or("", |(_, text)| text.as_str()).to_owned();
        format!("{} {}", field(b'C'), field(b'M'))
    };
    match answer {
        Answer::DataRow(row) => {
            let mut data = &row.data[..];
            let mut values = Vec::new();
            for _ in 0..row.field_count {
                let length = i32::from_be_bytes(data[..4].try_into().unwrap());
                data = &data[4..];
                if length < 0 {
                    values.push("NULL".to_owned());
                } else {
                    values.push(String::from_utf8(data[..length as usize].to_vec()).unwrap());
                    data = &data[length as usize..];
                }
            }
            assert!(data.is_empty(), "a row has no more than its values");
            format!("row {}", values.join("|"))
        }
        Answer::RowDescription(description) => {
            let names: Vec<_> = description.fields.iter().map(|f| format!("{}:{}", f.name, f.type_id)).collect();
            format!("columns {}", names.join(" "))
        }
        Answer::ParameterDescription(description) => format!("parameters {:?}", description.types),
        Answer::ErrorResponse(response) => format!("error {}", fields(response.fields)),
        Answer::NoticeResponse(response) => format!("notice {}", fields(response.fields)),
        Answer::CommandComplete(complete) => format!("complete {}", complete.tag),
        Answer::ReadyForQuery(ready) => match ready.status {
            TransactionStatus::Idle => "ready idle".to_owned(),
            TransactionStatus::Transaction => "ready block".to_owned(),
            TransactionStatus::Error => "ready failed".to_owned(),
        },
        Answer::ParameterStatus(status) => format!("set {}={}", status.name, status.value),
        Answer::CopyInResponse(response) => format!("copy in {}", response.columns),
        Answer::ParseComplete(_) => "parsed".to_owned(),
        Answer::BindComplete(_) => "bound".to_owned(),
        Answer::CloseComplete(_) => "closed".to_owned(),
        Answer::NoData(_) => "no data".to_owned(),
        Answer::PortalSuspended(_) => "suspended".to_owned(),
        Answer::EmptyQueryResponse(_) => "empty".to_owned(),
        other => format!("{other:?}"),
    }
}
