//! Records shorter and longer than what is read at a time, whole and damaged.

use eris_platform::SeededRandom;
use eris_platform::simulated::SimulatedFiles;

use super::*;
use crate::log::file::{file_name, header};
use crate::log::record::append;

const ID: DatabaseId = DatabaseId(77);
const LOG: &str = "/log";

/// A log in memory: where each record stands, and its body.
struct Written {
    files: SimulatedFiles,
    records: Vec<(u64, Vec<u8>)>,
    end: u64,
}

/// Two files of records, the largest of three windows and the others around the end of one; zeros follow.
fn written(seed: u64) -> Written {
    let mut random = SeededRandom::new(seed);
    let files = SimulatedFiles::new(seed);
    let (mut records, mut position) = (Vec::new(), 0);
    for file in 0..2 {
        let first = position;
        let mut bytes = header(ID, first).to_vec();
        for number in 0..40 {
            let length = match number % 10 {
                7 if file == 0 => 3 * WINDOW_BYTES,
                3 => WINDOW_BYTES - random.below(100),
                _ => random.below(WINDOW_BYTES / 20),
            };
            let body: Vec<u8> = (0..length).map(|place| 1 + (place.wrapping_mul(seed | 1) >> 3) as u8 % 200).collect();
            let record = Record { position, durable: position, timestamp: number, kind: Kind::Part, body: &body };
            append(&mut bytes, ID, record, |_| {});
            records.push((position, body));
            position = first + bytes.len() as u64 - FILE_HEADER_BYTES;
        }
        if file == 1 {
            bytes.resize(bytes.len() + 3 * WINDOW_BYTES as usize, 0);
        }
        files.insert(format!("{LOG}/{}", file_name(first)), bytes);
    }
    Written { files, records, end: position }
}

fn open(written: &Written, from: u64) -> LogReader<'_> {
    LogReader::open(&written.files, Path::new(LOG), ID, from).unwrap()
}

#[test]
fn every_record_is_read_from_wherever_reading_begins() {
    for seed in 1..4 {
        let written = written(seed);
        for skipped in [0, 1, 37, 39, 40, 41, 79] {
            let mut reader = open(&written, written.records[skipped].0);
            for (position, body) in &written.records[skipped..] {
                let Step::Record(record) = reader.next().unwrap() else { panic!("seed {seed}: ends at {position}") };
                assert_eq!(record.position, *position, "seed {seed}");
                assert!(record.body == body, "seed {seed}: another body at {position}");
            }
            assert!(matches!(reader.next(), Ok(Step::End)), "seed {seed}");
            assert_eq!(reader.position(), written.end);
            let rest = reader.rest().unwrap();
            assert_eq!((rest.bytes, rest.records), (0, 0), "seed {seed}");
            assert!(reader.bytes.capacity() as u64 <= 2 * WINDOW_BYTES, "{} bytes", reader.bytes.capacity());
        }
    }
}

#[test]
fn damage_is_found_wherever_it_is_and_what_stands_behind_is_counted() {
    let written = written(5);
    for damaged in [0, 7, 8, 39, 40, 43, 78] {
        let (position, body) = &written.records[damaged];
        let first = if damaged < 40 { 0 } else { written.records[40].0 };
        let path = format!("{LOG}/{}", file_name(first));
        let good = written.files.contents(&path).unwrap();
        let mut bad = good.clone();
        bad[(FILE_HEADER_BYTES + position - first) as usize + HEADER_BYTES + body.len() / 2] ^= 1;
        written.files.insert(&path, bad);
        let mut reader = open(&written, 0);
        for _ in 0..damaged {
            assert!(matches!(reader.next(), Ok(Step::Record(_))));
        }
        let Err(DurabilityError::Damaged { offset, help: CUT, .. }) = reader.next() else {
            panic!("record {damaged} is damaged")
        };
        assert_eq!(offset, Some(FILE_HEADER_BYTES + position - first));
        assert_eq!(reader.position(), *position);
        let rest = reader.rest().unwrap();
        assert_eq!(rest.records as usize, written.records.len() - damaged - 1, "record {damaged}");
        // The last bytes of a record without a body are zeros.
        assert!((written.end - position - 16..=written.end - position).contains(&rest.bytes), "{rest:?}");
        written.files.insert(&path, good);
    }
}
