//! Text for people: headings, numbers, and a progress line that exists on terminals only.

use std::io::{IsTerminal, Write};
use std::time::Duration;

pub fn heading(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.chars().count()));
}

/// A line that is overwritten until it is done. Into a pipe or a file only what stays is written.
pub struct Progress {
    terminal: bool,
    width: usize,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { terminal: std::io::stdout().is_terminal(), width: 0 }
    }

    pub fn show(&mut self, text: &str) {
        if self.terminal {
            self.overwrite(text, "");
        }
    }

    /// Leaves a last line behind.
    pub fn done(mut self, text: &str) {
        self.overwrite(text, "\n");
    }

    fn overwrite(&mut self, text: &str, end: &str) {
        let width = text.chars().count();
        let rest = " ".repeat(self.width.saturating_sub(width));
        self.width = width;
        let start = if self.terminal { "\r" } else { "" };
        let rest = if self.terminal { rest.as_str() } else { "" };
        let mut output = std::io::stdout().lock();
        // Progress that nobody reads is no reason to stop.
        let _ = write!(output, "{start}{text}{rest}{end}").and_then(|()| output.flush());
    }
}

/// A whole number with spaces between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

pub fn megabytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} kB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MB", bytes >> 20),
        _ => format!("{:.1} GB", bytes as f64 / f64::from(1 << 30)),
    }
}

pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(megabytes(512), "512 B");
        assert_eq!(megabytes(300 << 10), "300 kB");
        assert_eq!(megabytes(64 << 20), "64 MB");
        assert_eq!(megabytes(16 << 30), "16.0 GB");
    }
}
