//! Messages to the server, one behind the other, written with the codec of the crate `postgres-protocol`.

use bytes::{BufMut, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use crate::statement::Parameter;

const TEXT: i16 = 0;
const BINARY: i16 = 1;

#[derive(Default)]
pub struct Requests(BytesMut);

/// The parameters of a Bind, and how its values and those of its result are written.
#[derive(Clone, Copy)]
pub struct Binding<'b> {
    pub portal: &'b str,
    pub statement: &'b str,
    pub parameters: &'b [Parameter],
    pub parameters_in_binary: bool,
    pub result_in_binary: bool,
}

impl Requests {
    pub fn take(&mut self) -> Vec<u8> {
        self.0.split().to_vec()
    }

    pub fn startup(&mut self, application_name: &str) {
        let parameters = [("user", "eris"), ("application_name", application_name)];
        frontend::startup_message(parameters, &mut self.0).expect("a message that fits");
    }

    pub fn query(&mut self, text: &str) {
        frontend::query(text, &mut self.0).expect("a message that fits");
    }

    pub fn parse(&mut self, name: &str, text: &str, types: &[u32]) {
        frontend::parse(name, text, types.iter().copied(), &mut self.0).expect("a message that fits");
    }

    pub fn bind(&mut self, binding: Binding<'_>) {
        let binary = binding.parameters_in_binary;
        let write = |parameter: &Parameter, bytes: &mut BytesMut| {
            match parameter {
                Parameter::Integer(value) if binary => bytes.put_i64(*value),
                Parameter::Integer(value) => bytes.put_slice(value.to_string().as_bytes()),
                Parameter::Text(Some(text)) => bytes.put_slice(text.as_bytes()),
                Parameter::Text(None) => return Ok(IsNull::Yes),
            }
            Ok(IsNull::No)
        };
        let format = |binary| if binary { BINARY } else { TEXT };
        let bound = frontend::bind(
            binding.portal,
            binding.statement,
            [format(binary)],
            binding.parameters,
            write,
            [format(binding.result_in_binary)],
            &mut self.0,
        );
        assert!(bound.is_ok(), "a message that fits");
    }

    pub fn describe_statement(&mut self, name: &str) {
        frontend::describe(b'S', name, &mut self.0).expect("a message that fits");
    }

    /// At most `limit` rows; 0 means all.
    pub fn execute(&mut self, portal: &str, limit: i32) {
        frontend::execute(portal, limit, &mut self.0).expect("a message that fits");
    }

    pub fn close_portal(&mut self, portal: &str) {
        frontend::close(b'P', portal, &mut self.0).expect("a message that fits");
    }

    pub fn sync(&mut self) {
        frontend::sync(&mut self.0);
    }

    pub fn flush(&mut self) {
        frontend::flush(&mut self.0);
    }

    pub fn copy_data(&mut self, data: &[u8]) {
        frontend::CopyData::new(data).expect("a message that fits").write(&mut self.0);
    }

    pub fn copy_done(&mut self) {
        frontend::copy_done(&mut self.0);
    }

    pub fn copy_fail(&mut self) {
        frontend::copy_fail("no more", &mut self.0).expect("a message that fits");
    }

    pub fn terminate(&mut self) {
        frontend::terminate(&mut self.0);
    }

    pub fn cancel(&mut self, process: i32, secret: i32) {
        frontend::cancel_request(process, secret, &mut self.0);
    }
}

pub fn query(text: &str) -> Vec<u8> {
    let mut requests = Requests::default();
    requests.query(text);
    requests.take()
}
