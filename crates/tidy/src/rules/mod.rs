//! The rules. Each is one file with one `check`; a new rule is a file, a line here and a line in `tests/tidy.rs`.

pub mod comparators;
pub mod dead_files;
pub mod drawers;
pub mod file_length;
pub mod leftovers;
pub mod lines;
pub mod machine_paths;
pub mod module_budget;
pub mod opening;
pub mod setup_commands;
pub mod unsafe_reasons;
pub mod vocabulary;
