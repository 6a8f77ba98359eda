//! The same conversations over real sockets and simulated ones, and what only one of them can do.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use eris_platform::simulated::{Cut, FileFault, NetworkOptions};
use eris_platform::{ByteStream, Env, Nanos, Reactor, ReactorHandle, RealEnv, SeededRandom, SimulatedEnv, test_load};

/// Set by a wake.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Polls only what was woken, and blocks in the reactor while nothing is: a lost wake-up hangs and is reported.
fn run(reactor: &mut dyn Reactor, mut tasks: Vec<Task<'_>>) {
    let flags: Vec<Arc<Flag>> = tasks.iter().map(|_| Arc::new(Flag(AtomicBool::new(true)))).collect();
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    let started = Instant::now();
    while !open.is_empty() {
        let mut progressed = false;
        open.retain(|&task| {
            if !flags[task].0.swap(false, Ordering::SeqCst) {
                return true;
            }
            progressed = true;
            let waker = Waker::from(Arc::clone(&flags[task]));
            tasks[task].as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        let timeout = if progressed { Duration::ZERO } else { Duration::from_secs(5) };
        reactor.poll(Some(timeout)).unwrap_or_else(|error| panic!("{error}"));
        assert!(started.elapsed() < Duration::from_secs(30), "tasks {open:?} were never woken");
    }
}

async fn read(stream: &mut dyn ByteStream, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|context| stream.poll_read(context, buffer)).await
}

async fn write_all(stream: &mut dyn ByteStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = poll_fn(|context| stream.poll_write(context, bytes)).await?;
        assert!(count > 0);
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Everything until the end of the stream.
async fn read_all(stream: &mut dyn ByteStream) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 3_000]);
    loop {
        match read(stream, &mut buffer).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes);
    bytes
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Several clients send more than any buffer holds; the server echoes; all bytes come back in order.
fn echo(env: &dyn Env, clients: u64) {
    let mut reactor = env.reactor().unwrap_or_else(|error| panic!("{error}"));
    let handle = reactor.handle();
    let mut listener = handle.listen(loopback(0)).unwrap_or_else(|error| panic!("{error}"));
    let address = listener.local_address();
    assert_ne!(address.port(), 0);
    let mut tasks: Vec<Task<'_>> = Vec::new();
    let accepted = handle.clone();
    tasks.push(Box::pin(async move {
        let mut streams = Vec::new();
        for _ in 0..clients {
            let stream = poll_fn(|context| listener.poll_accept(context, &accepted)).await;
            streams.push(stream.unwrap_or_else(|error| panic!("{error}")));
        }
        // All at once, on one task: each poll serves whoever is ready.
        let mut echoes: Vec<_> = streams.into_iter().map(|stream| Some(Box::pin(echo_one(stream)))).collect();
        poll_fn(|context| {
            for echo in &mut echoes {
                if echo.as_mut().is_some_and(|future| future.as_mut().poll(context).is_ready()) {
                    *echo = None;
                }
            }
            if echoes.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }));
    for client in 0..clients {
        let handle = handle.clone();
        tasks.push(Box::pin(async move {
            let sent = bytes(client, 1_000_000);
            let mut stream = handle.connect(address).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(stream.peer(), address.to_string());
            let received = exchange(&mut *stream, &sent).await.unwrap_or_else(|error| panic!("{error}"));
            assert!(received == sent, "client {client} got other bytes back");
            stream.shutdown();
        }));
    }
    run(&mut *reactor, tasks);
}

async fn echo_one(mut stream: Box<dyn ByteStream>) {
    let mut buffer = [0; 10_000];
    loop {
        match read(&mut *stream, &mut buffer).await {
            Ok(0) => return,
            Ok(count) => write_all(&mut *stream, &buffer[..count]).await.unwrap_or_else(|error| panic!("{error}")),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes and reads at once, until as much has come back as was sent.
async fn exchange(stream: &mut dyn ByteStream, sent: &[u8]) -> io::Result<Vec<u8>> {
    let (mut written, mut received, mut buffer) = (0, Vec::new(), vec![0; 8_000]);
    poll_fn(|context| {
        loop {
            let mut progressed = false;
            if written < sent.len()
                && let Poll::Ready(count) = stream.poll_write(context, &sent[written..])
            {
                written += count?;
                progressed = true;
            }
            if let Poll::Ready(count) = stream.poll_read(context, &mut buffer) {
                let count = count?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                received.extend_from_slice(&buffer[..count]);
                progressed = true;
            }
            if received.len() >= sent.len() {
                return Poll::Ready(Ok(std::mem::take(&mut received)));
            }
            if !progressed {
                return Poll::Pending;
            }
        }
    })
    .await
}

#[test]
fn real_sockets_echo() {
    echo(&RealEnv::new(), 4);
}

#[test]
fn simulated_streams_echo() {
    for seed in 0..test_load(10) {
        let options = NetworkOptions { pipe_bytes: 1 << (4 + seed), short_probability: 0.5 };
        echo(&SimulatedEnv::with_network(seed, options), 3);
    }
}

/// Bytes in one direction only: a writer that waits for room is woken by the reader alone.
#[test]
fn a_waiting_writer_is_woken_by_room() {
    for env in [&RealEnv::new() as &dyn Env, &SimulatedEnv::new(4)] {
        let mut reactor = env.reactor().unwrap();
        let handle = reactor.handle();
        let mut listener = handle.listen(loopback(0)).unwrap();
        let address = listener.local_address();
        let accepted = handle.clone();
        let reader: Task<'_> = Box::pin(async move {
            let mut stream = poll_fn(|context| listener.poll_accept(context, &accepted)).await.unwrap();
            let all = read_all(&mut *stream).await.unwrap();
            assert!(all == bytes(6, 20_000_000), "other bytes arrived");
        });
        let writer: Task<'_> = Box::pin(async move {
            let mut stream = handle.connect(address).unwrap();
            write_all(&mut *stream, &bytes(6, 20_000_000)).await.unwrap();
        });
        run(&mut *reactor, vec![reader, writer]);
    }
}

/// The end of a stream is seen whether it comes with the last bytes or long after them.
fn end_of_stream(env: &dyn Env, pause: Duration) {
    let mut reactor = env.reactor().unwrap_or_else(|error| panic!("{error}"));
    let handle = reactor.handle();
    let mut listener = handle.listen(loopback(0)).unwrap_or_else(|error| panic!("{error}"));
    let address = listener.local_address();
    let accepted = handle.clone();
    let server: Task<'_> = Box::pin(async move {
        let stream = poll_fn(|context| listener.poll_accept(context, &accepted)).await;
        let mut stream = stream.unwrap_or_else(|error| panic!("{error}"));
        // The client goes on when this one already waits: bytes and end then arrive as one event.
        write_all(&mut *stream, b"!").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read_all(&mut *stream).await.unwrap_or_else(|error| panic!("{error}")), bytes(5, 100));
        let again = read(&mut *stream, &mut [0; 10]).await;
        assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), 0, "the end stays the end");
    });
    let client: Task<'_> = Box::pin(async move {
        let mut stream = handle.connect(address).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read(&mut *stream, &mut [0]).await.ok(), Some(1));
        write_all(&mut *stream, &bytes(5, 100)).await.unwrap_or_else(|error| panic!("{error}"));
        std::thread::sleep(pause);
    });
    run(&mut *reactor, vec![server, client]);
}

#[test]
fn the_end_of_a_stream_is_seen() {
    for pause in [Duration::ZERO, Duration::from_millis(20)] {
        end_of_stream(&RealEnv::new(), pause);
        end_of_stream(&SimulatedEnv::new(1), pause);
    }
}

#[test]
fn a_port_without_listener_refuses() {
    let env = RealEnv::new();
    let mut reactor = env.reactor().unwrap();
    let handle = reactor.handle();
    // A port that was free a moment ago.
    let address = handle.listen(loopback(0)).unwrap().local_address();
    let client: Task<'_> = Box::pin(async move {
        let error = match handle.connect(address) {
            Ok(mut stream) => read(&mut *stream, &mut [0]).await.err(),
            Err(error) => Some(error),
        };
        assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));
    });
    run(&mut *reactor, vec![client]);
    let simulated = SimulatedEnv::new(0);
    assert_eq!(simulated.network().connect(5).err().map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));
    let listening = simulated.reactor().unwrap().handle();
    let _listener = listening.listen(loopback(5)).unwrap();
    assert_eq!(listening.listen(loopback(5)).err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
}

#[test]
fn unpark_ends_a_blocked_poll_and_a_later_one() {
    let env = RealEnv::new();
    let mut reactor = env.reactor().unwrap();
    let handle = reactor.handle();
    handle.unpark();
    assert_eq!(reactor.poll(None).unwrap(), 0, "an unpark before the poll counts");
    let thread = env
        .spawn(
            "waker",
            None,
            Box::new(move || {
                std::thread::sleep(Duration::from_millis(20));
                handle.unpark();
            }),
        )
        .unwrap();
    let started = env.now();
    reactor.poll(Some(Duration::from_secs(20))).unwrap();
    let waited = env.now() - started;
    assert!((Duration::from_millis(10)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    thread.join().unwrap();
    let started = env.now();
    reactor.poll(Some(Duration::from_millis(5))).unwrap();
    assert!(env.now() - started >= Duration::from_millis(4), "nothing is left of the unpark");
}

/// A stream accepted for another worker is watched by that worker's reactor.
#[test]
fn accepted_streams_belong_to_the_reactor_they_are_attached_to() {
    for env in [&RealEnv::new() as &dyn Env, &SimulatedEnv::new(3)] {
        let mut accepting = env.reactor().unwrap();
        let mut serving = env.reactor().unwrap();
        let mut listener = accepting.handle().listen(loopback(0)).unwrap();
        let mut client = accepting.handle().connect(listener.local_address()).unwrap();
        let mut accepted = None;
        let serving_handle = serving.handle();
        let accept: Task<'_> = Box::pin(async {
            accepted = poll_fn(|context| listener.poll_accept(context, &serving_handle)).await.ok();
        });
        run(&mut *accepting, vec![accept]);
        let mut accepted = accepted.unwrap();
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut buffer = [0; 4];
        assert!(accepted.poll_read(&mut Context::from_waker(&waker), &mut buffer).is_pending());
        let write: Task<'_> = Box::pin(async { write_all(&mut *client, b"ping").await.unwrap() });
        run(&mut *accepting, vec![write]);
        while !flag.0.load(Ordering::SeqCst) {
            assert!(serving.poll(Some(Duration::from_secs(5))).unwrap() > 0, "the wrong reactor was told");
        }
        let mut read_so_far = 0;
        while read_so_far < 4 {
            if let Poll::Ready(count) = accepted.poll_read(&mut Context::from_waker(&waker), &mut buffer[read_so_far..])
            {
                read_so_far += count.unwrap();
            }
        }
        assert_eq!(&buffer, b"ping");
    }
}

#[test]
fn handles_of_another_environment_are_refused() {
    let real = RealEnv::new().reactor().unwrap();
    let simulated = SimulatedEnv::new(1);
    let mut listener = simulated.reactor().unwrap().handle().listen(loopback(1)).unwrap();
    let accepted = listener.poll_accept(&mut Context::from_waker(Waker::noop()), &real.handle());
    assert!(matches!(accepted, Poll::Ready(Err(_))));
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_silent_cut_leaves_the_peer_waiting_and_a_reset_does_not() {
    let env = SimulatedEnv::with_network(1, NetworkOptions { pipe_bytes: 8, short_probability: 0.0 });
    let (mut near, mut far) = env.network().pair();
    assert!(matches!(poll_once(write_all(&mut near, b"12345678")), Poll::Ready(Ok(()))));
    assert!(poll_once(write_all(&mut near, b"9")).is_pending(), "the pipe is full");
    near.cut(Cut::Silent);
    assert!(poll_once(read(&mut far, &mut [0; 4])).is_pending(), "what was under way is lost");
    assert!(matches!(poll_once(write_all(&mut far, &[0; 100])), Poll::Ready(Ok(()))), "into nowhere");
    drop(near);
    assert!(poll_once(read(&mut far, &mut [0; 4])).is_pending(), "the peer never hears of it");
    far.cut(Cut::Reset);
    assert!(matches!(poll_once(read(&mut far, &mut [0; 4])), Poll::Ready(Err(_))));
}

#[test]
fn a_closed_simulated_stream_delivers_what_was_written() {
    let env = SimulatedEnv::new(2);
    let (mut near, mut far) = env.network().pair();
    assert!(matches!(poll_once(write_all(&mut near, b"last words")), Poll::Ready(Ok(()))));
    drop(near);
    let Poll::Ready(Ok(all)) = poll_once(read_all(&mut far)) else { panic!("the stream does not end") };
    assert_eq!(all, b"last words");
    let Poll::Ready(Err(error)) = poll_once(write_all(&mut far, b"reply")) else { panic!("nobody is there") };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

/// The same seed makes the same history: short reads, ports, random numbers.
#[test]
fn a_simulation_repeats_itself() {
    fn history(seed: u64) -> Vec<usize> {
        let env = SimulatedEnv::new(seed);
        let (mut near, mut far) = env.network().pair();
        let mut counts = Vec::new();
        for _ in 0..50 {
            assert!(matches!(poll_once(write_all(&mut near, &[7; 1_000])), Poll::Ready(Ok(()))));
            let mut left = 1_000;
            while left > 0 {
                let Poll::Ready(Ok(count)) = poll_once(read(&mut far, &mut [0; 1_000])) else { panic!("no bytes") };
                counts.push(count);
                left -= count;
            }
        }
        counts.push(env.random_u64() as usize);
        counts
    }
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
    assert!(history(3).len() > 60, "some reads are short");
}

#[test]
fn simulated_time_passes_only_when_told() {
    let env = SimulatedEnv::new(0);
    let start = env.unix_micros();
    assert_eq!(env.now(), Nanos::ZERO);
    env.advance(Duration::from_micros(1_500));
    assert_eq!((env.now(), env.unix_micros() - start), (Nanos(1_500_000), 1_500));
    env.advance_to(Nanos(5));
    assert_eq!(env.now(), Nanos(1_500_000), "time does not go back");
    assert!(env.spawn("worker", None, Box::new(|| ())).is_err());
    let mut reactor = env.reactor().unwrap();
    reactor.handle().unpark();
    assert_eq!(reactor.poll(None).unwrap(), 0, "a simulated poll never blocks");
}

fn files_behave(env: &dyn Env, directory: &Path) {
    let path = directory.join("table.csv");
    let files = env.files();
    assert!(!files.exists(&path));
    assert_eq!(files.open(&path).err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    let mut file = files.create(&path).unwrap_or_else(|error| panic!("{error}"));
    file.write_all(b"a,b\n").and_then(|()| file.write_all("ä\n".as_bytes())).unwrap_or_else(|error| panic!("{error}"));
    file.sync().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.len().ok(), Some(7));
    assert!(file.read(&mut [0]).is_err(), "a file opened for writing cannot be read");
    assert_eq!(files.read_to_string(&path).ok().as_deref(), Some("a,b\nä\n"));
    let mut file = files.open(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut all = Vec::new();
    io::Read::read_to_end(&mut *file, &mut all).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(all, "a,b\nä\n".as_bytes());
    assert!(file.write(b"x").is_err(), "a file opened for reading cannot be written");
    let emptied = files.create(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(emptied.is_empty().unwrap_or(false));
    files.remove(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(!files.exists(&path));
    assert!(files.remove(&path).is_err());
}

#[test]
fn files_are_the_same_in_both_worlds() {
    let root = std::env::temp_dir().join(format!("eris-files-{}", std::process::id()));
    std::fs::create_dir_all(root.join("data")).unwrap();
    files_behave(&RealEnv::with_file_root(root.clone()), Path::new("/data"));
    files_behave(&RealEnv::new(), &root);
    assert!(RealEnv::new().files().open(&root).is_err(), "a directory is not a file");
    std::fs::remove_dir_all(&root).unwrap();
    let env = SimulatedEnv::new(0);
    env.files().create_directory(Path::new("/data")).unwrap();
    files_behave(&env, Path::new("/data"));
}

#[test]
fn planned_faults_hit_their_operation() {
    let env = SimulatedEnv::new(0);
    let files = env.simulated_files();
    files.insert("/in", vec![0xff, 0xfe]);
    assert_eq!(env.files().read_to_string(Path::new("/in")).unwrap_err().kind(), io::ErrorKind::InvalidData);
    files.fail_at(files.operations() + 1, FileFault::Broken);
    files.fail_at(files.operations() + 2, FileFault::NoSpace);
    let mut input = env.files().open(Path::new("/in")).unwrap();
    assert_eq!(input.read(&mut [0; 2]).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(input.read(&mut [0; 2]).unwrap(), 2, "no space does not matter to a read");
    let mut output = env.files().create(Path::new("/out"));
    assert_eq!(output.as_mut().err().and_then(|error| error.raw_os_error()), Some(28));
    output = env.files().create(Path::new("/out"));
    output.unwrap().write_all(b"fits").unwrap();
    assert_eq!(files.contents("/out").as_deref(), Some(&b"fits"[..]));
}

/// `ReactorHandle` goes wherever a task goes.
#[test]
fn handles_are_send_and_sync() {
    fn check<T: Send + Sync + Clone>(_: &T) {}
    let handle: ReactorHandle = RealEnv::new().reactor().unwrap().handle();
    check(&handle);
}
