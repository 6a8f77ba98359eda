//! Tables in parts, as `.tbl` text, and as a directory.

use super::{SCALE_FACTORS, population};
use crate::jcch::{ParameterSet, Population, dump, generate, row_count};
use crate::tpch::tbl::{TblReader, write_chunk};
use crate::tpch::{Chunk, Table, TablePart};

fn text_of(table: Table, population: &Population, part: TablePart) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in generate(table, population, part) {
        write_chunk(&mut text, &chunk).unwrap();
    }
    text
}

#[test]
fn parts_make_the_whole_and_lines_are_cut_evenly() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        for table in Table::ALL {
            let whole = text_of(table, &population, TablePart::WHOLE);
            let parts: Vec<Vec<u8>> =
                (0..7).map(|index| text_of(table, &population, TablePart { index, count: 7 })).collect();
            assert_eq!(whole, parts.concat(), "{}", table.name());
            if matches!(table, Table::LineItem | Table::PartSupp) {
                let rows = parts.iter().map(|part| part.iter().filter(|byte| **byte == b'\n').count());
                let (least, most) = rows.fold((usize::MAX, 0), |(least, most), rows| (least.min(rows), most.max(rows)));
                assert!(most - least <= 1, "{}: {least} to {most} rows", table.name());
            }
        }
    }
}

#[test]
fn the_number_of_rows_is_known_before() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        for table in Table::ALL {
            let rows: usize = generate(table, &population, TablePart::WHOLE).map(|chunk| chunk.rows()).sum();
            assert_eq!(rows as u64, row_count(table, &population), "{}", table.name());
        }
    }
}

#[test]
fn a_dump_reads_back_and_is_not_written_twice() {
    let population = population(0.003);
    let directory = std::env::temp_dir().join(format!("eris-jcch-{}", std::process::id()));
    dump::write_directory(&directory, &population).unwrap();
    for table in Table::ALL {
        let path = directory.join(format!("{}.tbl", table.name()));
        let mut reader = TblReader::open(&path, table).unwrap();
        let read: Vec<Chunk> = std::iter::from_fn(|| reader.next_chunk().unwrap()).collect();
        let generated: Vec<Chunk> = generate(table, &population, TablePart::WHOLE).collect();
        assert_eq!(read, generated, "{}", table.name());
    }
    let region = directory.join("region.tbl");
    std::fs::write(&region, "kept").unwrap();
    dump::write_directory(&directory, &population).unwrap();
    assert_eq!(std::fs::read_to_string(&region).unwrap(), "kept");
    for set in ParameterSet::ALL {
        let directory = directory.join(set.name());
        let workload = std::fs::read_to_string(directory.join("workload.sql")).unwrap();
        assert_eq!(workload.matches(";\n").count(), 200);
        assert!(std::fs::read_to_string(directory.join("q22.sql")).unwrap().contains("cntrycode"));
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
