//! What a round trip over loopback takes on its own: as many bytes as a statement and its answer have, sent by one
//! thread and answered by another that does nothing else.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

pub(super) struct EchoProbe {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl EchoProbe {
    /// A connection whose other end answers until this one is dropped.
    pub fn connect(request_bytes: usize, answer_bytes: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (answering, _) = listener.accept()?;
        for end in [&stream, &answering] {
            end.set_nodelay(true)?;
        }
        std::thread::Builder::new().name("echo".to_owned()).spawn(move || {
            // It ends with the connection, which is an error here and the end of the probe there.
            let _ = answer_all(answering, request_bytes, answer_bytes);
        })?;
        Ok(Self { stream, request: vec![0xA5; request_bytes], answer: vec![0; answer_bytes] })
    }

    /// So many round trips; gives the nanoseconds of each.
    pub fn run(&mut self, count: u32) -> io::Result<Vec<u64>> {
        (0..count).map(|_| self.round_trip()).collect()
    }

    fn round_trip(&mut self) -> io::Result<u64> {
        let begun = Instant::now();
        self.stream.write_all(&self.request)?;
        self.stream.read_exact(&mut self.answer)?;
        Ok(begun.elapsed().as_nanos() as u64)
    }
}

fn answer_all(mut stream: TcpStream, request_bytes: usize, answer_bytes: usize) -> io::Result<()> {
    let (mut request, answer) = (vec![0; request_bytes], vec![0x5A; answer_bytes]);
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&answer)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_answered() {
        let mut probe = EchoProbe::connect(50, 30).unwrap();
        assert_eq!(probe.run(10).unwrap().len(), 10);
        assert!(probe.answer.iter().all(|byte| *byte == 0x5A));
    }
}
