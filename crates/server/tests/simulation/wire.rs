//! A client's end of a simulated connection, read with the codec of the crate `postgres-protocol`.

use std::future::poll_fn;
use std::task::Poll;

use bytes::BytesMut;
use eris_platform::ByteStream;
use eris_platform::simulated::{Cut, SimulatedNetwork, SimulatedStream};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Message as Answer};

use crate::model::TextRow;
use crate::requests::Requests;

/// What `ReadyForQuery` tells.
pub const IDLE: u8 = b'I';
pub const IN_BLOCK: u8 = b'T';
pub const FAILED: u8 = b'E';

/// Why a conversation does not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The connection is gone.
    Gone,
    /// The server does not keep to the protocol.
    Broken(String),
}

/// How values of a result are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultFormat {
    Text,
    /// Three integers of eight bytes and a text.
    Binary,
}

/// One statement's part of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub rows: Vec<TextRow>,
    pub tag: String,
}

/// What has been read of a reply.
#[derive(Default, Debug)]
pub struct Reply {
    pub done: Vec<Done>,
    /// Rows of the statement that is not done.
    pub rows: Vec<TextRow>,
    pub error: Option<String>,
    pub parsed: bool,
    pub suspended: bool,
    pub copy_in: bool,
    pub status: Option<u8>,
}

pub struct Connection {
    /// The name with which it introduced itself.
    pub name: String,
    network: SimulatedNetwork,
    port: u16,
    stream: SimulatedStream,
    received: BytesMut,
    key: Option<(i32, i32)>,
    pub format: ResultFormat,
}

impl Connection {
    /// Connects and introduces itself.
    pub async fn open(network: &SimulatedNetwork, port: u16, name: String) -> Result<Connection, Trouble> {
        let stream = network.connect(port).map_err(|_| Trouble::Gone)?;
        let mut connection = Connection {
            name,
            network: network.clone(),
            port,
            stream,
            received: BytesMut::new(),
            key: None,
            format: ResultFormat::Text,
        };
        let mut requests = Requests::default();
        requests.startup(&connection.name);
        connection.send(&requests.take()).await?;
        let reply = connection.reply().await?;
        match (reply.error, reply.status, &connection.key) {
            (None, Some(IDLE), Some(_)) => Ok(connection),
            (error, status, _) => Err(Trouble::Broken(format!("start-up ends with {error:?}, {status:?}"))),
        }
    }

    /// Sends everything. What arrives meanwhile is taken in: a server that cannot send does not read either.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let mut sent = 0;
        poll_fn(|context| {
            while sent < bytes.len() {
                match self.stream.poll_write(context, &bytes[sent..]) {
                    Poll::Ready(Ok(count)) => sent += count,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Trouble::Gone)),
                    Poll::Pending => match self.poll_receive(context) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    },
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    fn poll_receive(&mut self, context: &mut std::task::Context<'_>) -> Poll<Result<(), Trouble>> {
        let mut bytes = [0; 4_096];
        match self.stream.poll_read(context, &mut bytes) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(Trouble::Gone)),
            Poll::Ready(Ok(count)) => {
                self.received.extend_from_slice(&bytes[..count]);
                Poll::Ready(Ok(()))
            }
        }
    }

    async fn answer(&mut self) -> Result<Answer, Trouble> {
        loop {
            let decoded = Answer::parse(&mut self.received);
            if let Some(answer) = decoded.map_err(|error| Trouble::Broken(error.to_string()))? {
                return Ok(answer);
            }
            poll_fn(|context| self.poll_receive(context)).await?;
        }
    }

    /// Reads until the server waits for the next request.
    pub async fn reply(&mut self) -> Result<Reply, Trouble> {
        self.read(|reply| reply.status.is_some()).await
    }

    /// Reads until the server is ready, or wants the data of a COPY.
    pub async fn reply_or_copy(&mut self) -> Result<Reply, Trouble> {
        self.read(|reply| reply.copy_in || reply.status.is_some()).await
    }

    /// Reads until one Execute is answered.
    pub async fn executed(&mut self) -> Result<Reply, Trouble> {
        self.read(|reply| reply.copy_in || reply.suspended || reply.error.is_some() || !reply.done.is_empty()).await
    }

    async fn read(&mut self, complete: impl Fn(&Reply) -> bool) -> Result<Reply, Trouble> {
        let mut reply = Reply::default();
        while !complete(&reply) {
            match self.answer().await? {
                Answer::DataRow(row) => reply.rows.push(values(&row, self.format)?),
                Answer::CommandComplete(complete) => {
                    let tag = complete.tag().map_err(|error| Trouble::Broken(error.to_string()))?.to_owned();
                    reply.done.push(Done { rows: std::mem::take(&mut reply.rows), tag });
                }
                Answer::ParseComplete => reply.parsed = true,
                Answer::PortalSuspended => reply.suspended = true,
                Answer::CopyInResponse(_) => reply.copy_in = true,
                Answer::ErrorResponse(error) => {
                    if field(error.fields(), b'S') == "FATAL" {
                        return Err(Trouble::Gone);
                    }
                    let sqlstate = field(error.fields(), b'C');
                    if reply.error.is_some() || sqlstate.starts_with("XX") {
                        let message = field(error.fields(), b'M');
                        return Err(Trouble::Broken(format!("{sqlstate} {message} after {reply:?}")));
                    }
                    reply.error = Some(sqlstate);
                }
                Answer::ReadyForQuery(ready) => reply.status = Some(ready.status()),
                Answer::BackendKeyData(key) => self.key = Some((key.process_id(), key.secret_key())),
                Answer::AuthenticationOk
                | Answer::ParameterStatus(_)
                | Answer::BindComplete
                | Answer::CloseComplete
                | Answer::ParameterDescription(_)
                | Answer::RowDescription(_)
                | Answer::NoData
                | Answer::NoticeResponse(_) => {}
                _ => return Err(Trouble::Broken("a message that nobody asked for".to_owned())),
            }
        }
        Ok(reply)
    }

    /// Asks over a second connection to cancel what runs on this one, and waits until the server has heard it.
    pub async fn cancel(&self) {
        let (Some((process, secret)), Ok(mut stream)) = (self.key, self.network.connect(self.port)) else { return };
        let mut requests = Requests::default();
        requests.cancel(process, secret);
        let bytes = requests.take();
        let mut sent = 0;
        poll_fn(|context| {
            while sent < bytes.len() {
                match stream.poll_write(context, &bytes[sent..]) {
                    Poll::Ready(Ok(count)) => sent += count,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
            stream.poll_read(context, &mut [0; 64]).map(|_| ())
        })
        .await;
    }

    /// Hangs up, in one of three ways.
    pub async fn hang_up(mut self, how: u64) {
        match how {
            0 => self.stream.cut(Cut::Reset),
            1 => {
                let mut requests = Requests::default();
                requests.terminate();
                // Whether it arrives does not matter.
                let _ = self.send(&requests.take()).await;
            }
            _ => {}
        }
    }
}

fn field(mut fields: ErrorFields<'_>, code: u8) -> String {
    let found = fields.find(|field| Ok(field.type_() == code)).ok().flatten();
    found.map(|field| String::from_utf8_lossy(field.value_bytes()).into_owned()).unwrap_or_default()
}

/// The values of a row as text.
fn values(row: &DataRowBody, format: ResultFormat) -> Result<TextRow, Trouble> {
    let broken = |what: &dyn std::fmt::Display| Trouble::Broken(format!("a row: {what}"));
    let ranges: Vec<_> = row.ranges().collect().map_err(|error| broken(&error))?;
    let mut values = Vec::with_capacity(ranges.len());
    for (column, range) in ranges.into_iter().enumerate() {
        let Some(value) = range.map(|range| &row.buffer()[range]) else {
            values.push(None);
            continue;
        };
        values.push(Some(if format == ResultFormat::Binary && column < 3 {
            let integer = value.try_into().map_err(|error| broken(&error))?;
            i64::from_be_bytes(integer).to_string()
        } else {
            String::from_utf8(value.to_vec()).map_err(|error| broken(&error))?
        }));
    }
    Ok(values)
}
