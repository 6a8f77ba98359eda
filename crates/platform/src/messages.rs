//! Messages to whoever runs the process.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error, with the name of the program in front.
///
/// `eprintln!` panics where standard error is a pipe without a reader or a terminal that is gone; that must not end the
/// thread that writes the log. Here the message is lost then, and nothing else.
pub fn tell(message: impl Display) {
    let line = format!("eris: {message}\n");
    // In one piece: lines of several threads stay apart, in a file that is appended to as well.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
