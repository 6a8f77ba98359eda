//! Writes JCC-H data, schema, queries and workload of a scale factor into a directory: `jcch_dump SCALE_FACTOR
//! DIRECTORY`.

use eris_workloads::jcch::{Population, dump};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scale_factor, directory] = arguments.as_slice() else {
        eprintln!("usage: jcch_dump SCALE_FACTOR DIRECTORY");
        return ExitCode::FAILURE;
    };
    let Ok(scale_factor) = scale_factor.parse() else {
        eprintln!("a scale factor is a number, not \"{scale_factor}\"");
        return ExitCode::FAILURE;
    };
    let written = match Population::new(scale_factor) {
        Ok(population) => dump::write_directory(Path::new(directory), &population),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{directory}: {error}");
            ExitCode::FAILURE
        }
    }
}
