//! What opening a database after a kill tells: at the terminal and in `eris.recovery`.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use eris_workloads::connection::SqlConnection;

use super::Process;
use crate::support::{Place, eris, serve};

/// Rows, each of which is a commit and so a record of the log; the last one is longer than a few sectors.
const ROWS: i64 = 10;
const RECOVERY: &str = "SELECT stopped, transactions, stopped_file, stopped_offset, bytes_after, records_after, \
                        put_aside, log_from < log_to, took_us >= 0, checkpoint_timestamp FROM eris.recovery";

fn start(directory: &str, options: &[&str]) -> Result<Process, String> {
    let mut command = serve(eris(), directory);
    command.args(options);
    Process::start(command).map_err(|(status, text)| {
        assert_eq!(status.code(), Some(1), "{text}");
        text
    })
}

/// A directory of a server that was killed, its last log file, and where the records in it end.
fn killed(place: &Place) -> (String, PathBuf, u64) {
    let directory = place.path("db");
    let server = start(&directory, &[]).unwrap();
    server.run("CREATE TABLE t (id int PRIMARY KEY, text text)").unwrap();
    for id in 0..ROWS {
        server.run(&format!("INSERT INTO t VALUES ({id}, '{}')", "text".repeat(500))).unwrap();
    }
    drop(server);
    let logs = std::fs::read_dir(Path::new(&directory).join("log")).unwrap().map(|entry| entry.unwrap().path());
    let last = logs.filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap();
    let bytes = std::fs::read(&last).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    (directory, last, end)
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

/// What `eris.recovery` says, as text.
fn told(server: &Process) -> Vec<String> {
    let answer = server.try_connect().unwrap().execute(RECOVERY, &[]).unwrap();
    assert_eq!(answer.rows.len(), 1);
    answer.rows[0].iter().map(ToString::to_string).collect()
}

fn rows(server: &Process) -> Option<i64> {
    server.run("SELECT count(*) FROM t").unwrap()
}

#[test]
fn a_kill_leaves_whole_records_and_nothing_is_told() {
    let place = Place::new("operation-recovery-kill");
    let (directory, _, _) = killed(&place);
    let server = start(&directory, &[]).unwrap();
    assert_eq!(rows(&server), Some(ROWS));
    let said = told(&server);
    assert_eq!((&*said[0], &*said[4], &*said[5], &*said[6]), ("end", "0", "0", "NULL"), "{said:?}");
    assert_eq!((&*said[7], &*said[8], &*said[9]), ("true", "true", "NULL"), "{said:?}");
    assert_eq!(server.stop(), "");
}

#[test]
fn a_torn_record_is_the_end_and_is_told() {
    let place = Place::new("operation-recovery-torn");
    let (directory, log, end) = killed(&place);
    overwrite(&log, end - 1_000, &[0; 1_000]);
    let server = start(&directory, &[]).unwrap();
    assert_eq!(rows(&server), Some(ROWS - 1));
    let said = told(&server);
    assert_eq!((&*said[0], &*said[2], &*said[5]), ("torn", log.to_str().unwrap(), "0"), "{said:?}");
    let (offset, after): (u64, u64) = (said[3].parse().unwrap(), said[4].parse().unwrap());
    assert!(offset < end - 1_000 && after >= 500, "{said:?}");
    server.run("INSERT INTO t VALUES (100, '')").unwrap();
    let text = server.stop();
    let words = [log.to_str().unwrap(), &offset.to_string(), &after.to_string()];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    // What stands there now is the end.
    let server = start(&directory, &[]).unwrap();
    assert_eq!((rows(&server), &*told(&server)[0]), (Some(ROWS), "end"));
    assert_eq!(server.stop(), "");
}

/// `eris verify` finds nothing wrong with it, and says in a line of its own what the server will say.
#[test]
fn verification_tells_of_a_torn_record_what_the_server_tells() {
    let place = Place::new("operation-recovery-verified");
    let (directory, log, end) = killed(&place);
    let verified = || {
        let output = Command::new(eris()).args(["verify", "--workers", "1", &directory]).output().unwrap();
        let (printed, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(0), "{printed}{errors}");
        assert!(printed.contains("is whole"), "{printed}{errors}");
        printed.lines().find(|line| line.contains("it stops at byte")).map(|line| line.trim().to_owned())
    };
    assert_eq!(verified(), None, "a kill alone leaves whole records");
    overwrite(&log, end - 1_000, &[0; 1_000]);
    let line = verified().unwrap();
    assert!(line.starts_with("the log ends with what was being written when the server ended"), "{line}");
    let server = start(&directory, &[]).unwrap();
    let said = server.stop();
    assert!(said.contains(&line), "{line}: {said}");
}

/// With a file for messages the same is told there, and nowhere else.
#[test]
fn a_torn_record_is_told_in_the_file_of_messages() {
    let place = Place::new("operation-recovery-torn-told");
    let (directory, log, end) = killed(&place);
    overwrite(&log, end - 1_000, &[0; 1_000]);
    let messages = place.path("messages");
    let server = start(&directory, &["--log", &messages]).unwrap();
    let said = told(&server);
    assert_eq!(said[0], "torn", "{said:?}");
    server.run("INSERT INTO t VALUES (100, '')").unwrap();
    assert_eq!(server.stop(), "", "standard error is not written to");
    let lines = || {
        let text = std::fs::read_to_string(&messages).unwrap();
        text.lines().filter(|line| line.contains("it stops at byte")).map(str::to_owned).collect::<Vec<_>>()
    };
    let told_first = lines();
    let [line] = &told_first[..] else { panic!("{told_first:?}") };
    let words = [log.to_str().unwrap(), &format!("byte {} of", said[3]), &format!("{} bytes with 0 whole", said[4])];
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    // What stands there now is the end: it is told once.
    start(&directory, &["--log", &messages]).unwrap().stop();
    assert_eq!(lines().len(), 1, "{:?}", lines());
}

#[test]
fn a_flipped_bit_is_refused_unless_it_is_asked_for() {
    let place = Place::new("operation-recovery-bit");
    let (directory, log, end) = killed(&place);
    // Of the text of the last row, which is a record that was written whole.
    let at = end - 700;
    let before = std::fs::read(&log).unwrap()[at as usize];
    assert!(b"text".contains(&before), "{before}");
    overwrite(&log, at, &[before ^ 0x10]);
    for _ in 0..2 {
        let text = start(&directory, &[]).map(drop).unwrap_err();
        let words =
            [log.to_str().unwrap(), "damaged at byte", "no crash leaves it like that", "--damaged-log=end-there"];
        assert!(text.starts_with("error: ") && words.iter().all(|word| text.contains(word)), "{text}");
        let text = start(&directory, &["--damaged-log", "refuse"]).map(drop).unwrap_err();
        assert!(text.contains("damaged at byte"), "{text}");
    }
    let server = start(&directory, &["--damaged-log", "end-there"]).unwrap();
    assert_eq!(rows(&server), Some(ROWS - 1));
    let said = told(&server);
    assert_eq!((&*said[0], &*said[2], &*said[5]), ("damage", log.to_str().unwrap(), "0"), "{said:?}");
    assert!(said[3].parse::<u64>().unwrap() < at && said[4].parse::<u64>().unwrap() > 700, "{said:?}");
    server.run("INSERT INTO t VALUES (100, '')").unwrap();
    let text = server.stop();
    assert!(text.contains(log.to_str().unwrap()) && text.contains(&said[3]), "{text}");
    let server = start(&directory, &[]).unwrap();
    assert_eq!(rows(&server), Some(ROWS), "what stands in front of it, and what came then");
    server.stop();
}

#[test]
fn damage_in_front_of_whole_records_tells_how_many_they_are() {
    let place = Place::new("operation-recovery-middle");
    let (directory, log, end) = killed(&place);
    // Each record has about 2,000 bytes: that of the third last row.
    let at = end - 5_000;
    let before = std::fs::read(&log).unwrap()[at as usize];
    overwrite(&log, at, &[before ^ 0x10]);
    let text = start(&directory, &[]).map(drop).unwrap_err();
    assert!(text.contains("2 whole records"), "{text}");
    let server = start(&directory, &["--damaged-log", "end-there"]).unwrap();
    assert_eq!(rows(&server), Some(ROWS - 3));
    let said = told(&server);
    assert_eq!((&*said[0], &*said[5]), ("damage", "2"), "{said:?}");
    server.stop();
}

/// What is put aside is told by its name, and nothing that was put aside before is overwritten.
#[test]
fn what_is_put_aside_is_told_and_overwrites_nothing() {
    let place = Place::new("operation-recovery-aside");
    let (directory, log, _) = killed(&place);
    let mut kept: Vec<(String, Vec<u8>)> = Vec::new();
    for turn in 1..=3 {
        // The position of the first record: nothing stands before the damage.
        let before = std::fs::read(&log).unwrap()[64 + 8];
        overwrite(&log, 64 + 8, &[before ^ 1]);
        let damaged = std::fs::read(&log).unwrap();
        let text = start(&directory, &[]).map(drop).unwrap_err();
        assert!(text.contains("damaged at byte"), "{text}");
        let server = start(&directory, &["--damaged-log", "end-there"]).unwrap();
        let aside = format!("{}.abandoned.{turn}", log.display());
        let said = told(&server);
        assert_eq!((&*said[0], &*said[6]), ("damage", &*aside), "{said:?}");
        kept.push((aside, damaged));
        for (path, bytes) in &kept {
            assert!(std::fs::read(path).unwrap() == *bytes, "{path} is not as it was");
        }
        server.run("CREATE TABLE t (id int PRIMARY KEY, text text)").unwrap();
        for id in 0..turn {
            server.run(&format!("INSERT INTO t VALUES ({id}, 'text')")).unwrap();
        }
        drop(server);
    }
    let server = start(&directory, &[]).unwrap();
    assert_eq!((rows(&server), &*told(&server)[6]), (Some(3), "NULL"), "it is told once");
    server.stop();
}
