//! `eris shell` as it is used: from the command line, from files, with data in between, into a pipe that closes.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn eris(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eris"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str], input: &str) -> Output {
    let mut process = eris(arguments).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// A file of this test, with its path as text.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, text: &str) -> Script {
        let path = std::env::temp_dir().join(format!("eris-shell-{}-{name}.sql", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Script(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const SHELL: [&str; 4] = ["shell", "--workers", "1", "--format=csv"];

#[test]
fn data_follows_a_copy_from_stdin_as_in_psql() {
    let text = "CREATE TABLE t (id int, name text);\nCOPY t FROM STDIN WITH (FORMAT csv);\n1,\"a;b\"\n2,'\n\\.\n\
                SELECT * FROM t;\n";
    let (printed, errors) = texts(&run(&SHELL, text));
    assert_eq!((printed.as_str(), errors.as_str()), ("id,name\n1,a;b\n2,'\n", ""));
    let script = Script::new("copy", text);
    let (from_file, errors) = texts(&run(&[&SHELL[..], &["-f", script.path()]].concat(), ""));
    assert_eq!((from_file, errors.as_str()), (printed, ""));
    // For a statement of the command line it comes from standard input.
    let arguments =
        [&SHELL[..], &["-c", "CREATE TABLE t (a int)", "-c", "copy t from stdin", "-c", "SELECT sum(a) FROM t"]]
            .concat();
    for input in ["1\n2\n", "1\n2\n\\.\nrest", "1\n2"] {
        assert_eq!(texts(&run(&arguments, input)), ("sum\n3\n".to_owned(), String::new()));
    }
}

#[test]
fn errors_say_in_which_line_of_which_file() {
    let inner = Script::new("inner", "\nSELECT 1;\n-- a comment\n\nSELECT nothing;\nSELECT 2;\n");
    let outer = Script::new("outer", &format!("SELECT 0;\n\\i {}\nSELECT 3;\n", inner.path()));
    let output = run(&[&SHELL[..], &["-f", outer.path()]].concat(), "");
    let (printed, errors) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(printed.lines().filter(|line| *line == "2" || *line == "3").count(), 0, "{printed}");
    assert!(errors.starts_with(&format!("{}:5: ERROR:  42703: ", inner.path())), "{errors}");
    let bad_data = Script::new("data", "CREATE TABLE t (a int);\nCOPY t FROM STDIN;\n1\nx\n\\.\nSELECT 1;\n");
    let (_, errors) = texts(&run(&[&SHELL[..], &["-f", bad_data.path()]].concat(), ""));
    assert!(errors.starts_with(&format!("{}:2: ERROR:  22P02: ", bad_data.path())), "{errors}");
    assert!(errors.contains("line 2, column a"), "{errors}");
    let (_, errors) = texts(&run(&SHELL, "SELECT 1;\n\n\\nonsense\n"));
    assert!(errors.starts_with("<stdin>:3: invalid command \\nonsense"), "{errors}");
    let (_, errors) = texts(&run(&[&SHELL[..], &["-c", "SELECT nothing"]].concat(), ""));
    assert!(errors.starts_with("ERROR:  42703: "), "{errors}");
}

#[test]
fn notices_are_shown() {
    let (_, errors) = texts(&run(&SHELL, "COMMIT;\nDROP TABLE IF EXISTS nothing;\n"));
    let expected = "<stdin>:1: WARNING:  there is no transaction in progress\n\
                    <stdin>:2: NOTICE:  table \"nothing\" does not exist, skipping\n";
    assert_eq!(errors, expected);
}

#[test]
fn a_reader_that_goes_ends_it_quietly() {
    let rows = "SELECT a.n, b.n FROM (VALUES (1), (2), (3), (4)) a(n), (VALUES (1), (2), (3), (4)) b(n);\n";
    for arguments in [&SHELL[..], &["demo", "--sf", "0.01", "--seconds", "0.1", "--subscribers", "100"]] {
        let mut process = eris(arguments).spawn().unwrap();
        let mut output = process.stdout.take().unwrap();
        let mut input = process.stdin.take().unwrap();
        let feed = std::thread::spawn(move || {
            // The reader of this pipe may go as well.
            let _ = input.write_all(rows.repeat(5_000).as_bytes());
        });
        output.read_exact(&mut [0; 8]).unwrap();
        drop(output);
        let mut errors = String::new();
        process.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = process.wait().unwrap();
        feed.join().unwrap();
        assert!(errors.is_empty() && status.code() != Some(101), "{arguments:?}: {status}: {errors}");
    }
}

#[test]
fn figures_of_a_benchmark_may_go_to_a_reader_that_is_gone() {
    let arguments = ["bench", "tatp", "--subscribers", "100", "--seconds", "0.1", "--warm-up", "0.1", "--workers", "1"];
    let mut process = eris(&arguments).spawn().unwrap();
    drop((process.stdout.take(), process.stderr.take()));
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_memory_limit_above_the_memory_there_is_is_told_and_obeyed() {
    let arguments = [&SHELL[..], &["--memory-limit", "900000G", "-c", "SELECT 1"]].concat();
    let output = run(&arguments, "");
    let (printed, errors) = texts(&output);
    assert!(output.status.success(), "{errors}");
    assert_eq!(printed, "?column?\n1\n");
    let given = (900_000_u64 << 30).to_string();
    let words = ["warning: --memory-limit", &given, "has", "may end"];
    let by_group = errors.contains("may use");
    assert!(words.iter().all(|word| errors.contains(word) || by_group && *word == "has"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}
