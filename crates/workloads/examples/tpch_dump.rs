//! Writes TPC-H data, schema and queries of a scale factor into a directory: `tpch_dump SCALE_FACTOR DIRECTORY`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scale_factor, directory] = arguments.as_slice() else {
        eprintln!("usage: tpch_dump SCALE_FACTOR DIRECTORY");
        return ExitCode::FAILURE;
    };
    let Some(scale_factor) = scale_factor.parse().ok().filter(|factor: &f64| *factor > 0.0) else {
        eprintln!("a scale factor is a positive number, not \"{scale_factor}\"");
        return ExitCode::FAILURE;
    };
    match eris_workloads::tpch::dump::write_directory(Path::new(directory), scale_factor) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{directory}: {error}");
            ExitCode::FAILURE
        }
    }
}
