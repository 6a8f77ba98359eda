//! What signals do, and that a stuck worker does not keep a server from ending.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use super::held::{hold, see_the_end, threads};
use super::{PATIENCE, Process};
use crate::support::{Place, eris, serve};

fn server(directory: &str, options: &[&str]) -> Process {
    let mut command = serve(eris(), directory);
    command.args(options);
    Process::start(command).unwrap_or_else(|(status, text)| panic!("{status}: {text}"))
}

#[test]
fn signals_without_a_meaning_do_no_harm() {
    let place = Place::new("operation-harmless");
    let server = server(&place.path("db"), &[]);
    server.run("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    let named = [
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGPIPE,
        libc::SIGXFSZ,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCHLD,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGCONT,
    ];
    for (id, signal) in named.into_iter().chain([libc::SIGRTMIN(), libc::SIGRTMAX()]).enumerate() {
        server.signal(signal);
        server.run(&format!("INSERT INTO t VALUES ({id})")).unwrap_or_else(|error| panic!("signal {signal}: {error}"));
    }
    assert!(server.stop().contains("SIGHUP: there is nothing to be read again"));
}

#[test]
fn sighup_opens_the_log_again() {
    let place = Place::new("operation-log");
    let [log, moved] = ["log.txt", "log.1"].map(|name| place.path(name));
    let server = server(&place.path("db"), &["--log", &log]);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    assert!(read(&log).contains("accepts connections on"), "{}", read(&log));
    std::fs::rename(&log, &moved).unwrap();
    server.signal(libc::SIGHUP);
    let begun = Instant::now();
    while !read(&log).contains("SIGHUP") {
        assert!(begun.elapsed() < PATIENCE, "{} {}", read(&log), read(&moved));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.stop(), "", "standard error is not written to");
    assert!(read(&log).contains("stops") && !read(&moved).contains("stops"));
    // What cannot be opened is told where it was started, and nothing is begun.
    for (path, says) in [("/dev/full", "not a regular file"), ("/none/log", "No such file")] {
        let mut command = serve(eris(), &place.path("other"));
        command.args(["--log", path]);
        let (status, text) = Process::start(command).map(drop).unwrap_err();
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains(path) && text.contains(says), "{text}");
    }
    // So is what keeps a server from starting, in both places.
    let mut command = serve(eris(), &place.path("none/db"));
    command.args(["--log", &log]);
    let (_, text) = Process::start(command).map(drop).unwrap_err();
    assert!(text.contains("does not exist") && read(&log).contains("does not exist"), "{text}");
}

#[test]
fn sigquit_ends_at_once_and_loses_nothing() {
    let place = Place::new("operation-quit");
    let directory = place.path("db");
    let server = self::server(&directory, &[]);
    server.run("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    server.run("INSERT INTO t VALUES (7)").unwrap();
    server.signal(libc::SIGQUIT);
    let (status, text) = server.end();
    assert_eq!(status.code(), Some(131), "{text}");
    assert!(text.contains("SIGQUIT"), "{text}");
    let server = self::server(&directory, &[]);
    assert_eq!(server.run("SELECT id FROM t").unwrap(), Some(7));
    server.stop();
}

#[test]
fn stuck_workers_do_not_keep_a_server_from_ending() {
    let place = Place::new("operation-stuck");
    let directory = place.path("db");
    for (second, code, says) in [(None, 1, "a worker is stuck"), (Some(libc::SIGINT), 130, "asked twice")] {
        let server = self::server(&directory, &[]);
        server.run("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)").unwrap();
        server.run(&format!("INSERT INTO t VALUES ({code})")).unwrap();
        let workers = threads(server.child.id(), "eris-worker");
        assert_eq!(workers.len(), 2);
        if !hold(&workers) {
            println!("skipped: no thread may be held ({})", Error::last_os_error());
            return;
        }
        let begun = Instant::now();
        server.signal(libc::SIGTERM);
        if let Some(second) = second {
            // The first one must have been heard.
            std::thread::sleep(Duration::from_millis(300));
            server.signal(second);
        }
        see_the_end(&workers);
        let took = begun.elapsed();
        let (status, text) = server.end();
        assert_eq!(status.code(), Some(code), "{text}");
        assert!(text.contains(says) && text.contains("in the log"), "{text}");
        // It is promised in ten seconds; a machine may be busy.
        assert!(took < Duration::from_secs(20), "it took {took:?}");
        assert!(second.is_none() || took < Duration::from_secs(9), "the second signal ends it: {took:?}");
    }
    let server = self::server(&directory, &[]);
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(2), "nothing is lost");
    server.stop();
}

/// Fills the pipe that is a server's standard error, which is not read. The pipe stays full.
fn fill_standard_error(server: &Process) {
    let path = format!("/proc/{}/fd/2", server.child.id());
    let mut pipe: File = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    for piece in [&[b'.'; 4_096][..], b"."] {
        let refused = loop {
            if let Err(error) = pipe.write(piece) {
                break error;
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    }
}

/// Every message of the server waits for ever, and it ends all the same.
#[test]
fn a_full_standard_error_does_not_keep_a_server_from_ending() {
    let place = Place::new("operation-full-pipe");
    let directory = place.path("db");
    for (signals, code) in [
        (&[libc::SIGQUIT][..], 131),
        (&[libc::SIGHUP, libc::SIGQUIT], 131),
        (&[libc::SIGHUP, libc::SIGHUP, libc::SIGTERM], 0),
    ] {
        let server = self::server(&directory, &[]);
        server.run("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)").unwrap();
        fill_standard_error(&server);
        let begun = Instant::now();
        for signal in signals {
            server.signal(*signal);
            // Signals that wait at once are heard in the order of their numbers.
            std::thread::sleep(Duration::from_millis(200));
        }
        let (status, _) = server.end();
        assert_eq!(status.code(), Some(code), "{signals:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{signals:?} took {:?}", begun.elapsed());
    }
}

#[test]
fn a_second_signal_ends_a_server_that_is_stuck_and_cannot_say_so() {
    let place = Place::new("operation-full-pipe-stuck");
    let server = self::server(&place.path("db"), &[]);
    let workers = threads(server.child.id(), "eris-worker");
    fill_standard_error(&server);
    if !hold(&workers) {
        println!("skipped: no thread may be held ({})", Error::last_os_error());
        return;
    }
    let begun = Instant::now();
    for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGTERM] {
        server.signal(signal);
        std::thread::sleep(Duration::from_millis(200));
    }
    see_the_end(&workers);
    let took = begun.elapsed();
    let (status, _) = server.end();
    assert_eq!(status.code(), Some(130));
    assert!(took < Duration::from_secs(8), "the second signal ends it: {took:?}");
}
