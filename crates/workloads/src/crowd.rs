//! Many clients on one thread, each waiting for its own socket, as load generators do it.
//!
//! With a thread per client every answer of a server wakes a thread, which takes the processor from the server if both
//! share a machine. Here whatever was answered meanwhile goes on with one wake-up.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A client's work. Where it waits, it waits for its socket to be readable, with [`until_readable`]; without a socket
/// it does not wait.
pub struct Member<'a, T> {
    pub socket: Option<OwnedFd>,
    pub work: Pin<Box<dyn Future<Output = T> + 'a>>,
}

/// Runs all members to their ends on this thread; the outputs are in their order.
pub fn run<T>(members: Vec<Member<'_, T>>) -> io::Result<Vec<T>> {
    let mut context = Context::from_waker(Waker::noop());
    let mut outputs: Vec<Option<T>> = members.iter().map(|_| None).collect();
    let mut waiting = Vec::with_capacity(members.len());
    for (number, Member { socket, mut work }) in members.into_iter().enumerate() {
        match (work.as_mut().poll(&mut context), socket) {
            (Poll::Ready(output), _) => outputs[number] = Some(output),
            (Poll::Pending, Some(socket)) => waiting.push((number, socket, work)),
            (Poll::Pending, None) => unreachable!("without a socket nothing is waited for"),
        }
    }
    while !waiting.is_empty() {
        let mut sockets: Vec<_> = waiting.iter().map(|(_, socket, _)| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut sockets, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut readable = sockets.iter().map(|socket| !socket.revents().is_empty()).collect::<Vec<_>>().into_iter();
        waiting.retain_mut(|(number, _, work)| {
            if readable.next() != Some(true) {
                return true;
            }
            let Poll::Ready(output) = work.as_mut().poll(&mut context) else { return true };
            outputs[*number] = Some(output);
            false
        });
    }
    Ok(outputs.into_iter().flatten().collect())
}

/// Gives the thread to the other members until this one's socket is readable.
pub(crate) async fn until_readable() {
    let mut waited = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// The output of work that holds its thread where it has to wait.
pub(crate) fn blocking<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("its thread was not shared"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Asks `rounds` times and adds up the answers.
    async fn ask(mut stream: &UnixStream, rounds: u32) -> u32 {
        let mut sum = 0;
        for round in 0..rounds {
            stream.write_all(&[round as u8]).unwrap();
            until_readable().await;
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
            sum += u32::from(answer[0]);
        }
        sum
    }

    #[test]
    fn members_wait_for_their_own_sockets_and_none_for_another() {
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        let (ours, mut theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let server = std::thread::spawn(move || {
            let mut request = [0];
            // The first one asks first, and is answered when all others are done.
            theirs[0].read_exact(&mut request).unwrap();
            for (stream, rounds) in theirs[1..].iter_mut().zip([2, 3]) {
                for _ in 0..rounds {
                    stream.read_exact(&mut request).unwrap();
                    stream.write_all(&[request[0] + 10]).unwrap();
                }
            }
            theirs[0].write_all(&[99]).unwrap();
        });
        let members = ours.iter().zip([1, 2, 3]).map(|(stream, rounds)| Member {
            socket: Some(stream.try_clone().unwrap().into()),
            work: Box::pin(ask(stream, rounds)) as _,
        });
        assert_eq!(run(members.collect()).unwrap(), [99u32, 10 + 11, 10 + 11 + 12]);
        server.join().unwrap();
    }

    #[test]
    fn work_without_a_socket_runs_at_once() {
        let member = |value| Member { socket: None, work: Box::pin(std::future::ready(value)) as _ };
        assert_eq!(run(vec![member(1), member(2)]).unwrap(), [1, 2]);
        assert_eq!(run::<()>(Vec::new()).unwrap(), []);
    }
}
