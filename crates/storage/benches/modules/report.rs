//! Measurements, and how they are printed.

use std::fmt::Write;

/// Measurements so far.
pub struct Report {
    lines: Vec<String>,
    /// Runs of each measurement; the best counts.
    runs: usize,
    run_nanos_min: f64,
    hash: u64,
}

/// Calls between two looks at the clock.
const CALLS: u32 = 2;

/// A run takes at least this long.
const RUN_NANOS_MIN: f64 = 2e8;

/// A field of a line: a name, and a word or a number.
pub enum Field {
    Text(&'static str, String),
    Number(&'static str, f64),
}

/// A field with text.
pub fn text(name: &'static str, value: &str) -> Field {
    Field::Text(name, value.to_owned())
}

/// A field with a number.
pub fn number(name: &'static str, value: f64) -> Field {
    Field::Number(name, value)
}

/// Time this thread was on a core: other work on the machine does not count.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Nanoseconds of a call, and what it gives.
pub fn time<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let start = cpu_nanos();
    let result = run();
    ((cpu_nanos() - start) as f64, result)
}

impl Report {
    pub fn new(runs: usize) -> Self {
        let run_nanos_min = if runs > 1 { RUN_NANOS_MIN } else { 0.0 };
        Self { lines: Vec::new(), runs, run_nanos_min, hash: 0 }
    }

    /// The time of one of many calls, the best of some runs; results go into the hash, so that nothing is left out by
    /// the compiler. The clock ticks every few milliseconds: a run repeats the call until it takes many of them.
    pub fn best(&mut self, mut call: impl FnMut() -> u64) -> f64 {
        self.note(call());
        let mut best = f64::INFINITY;
        for _ in 0..self.runs {
            let (mut calls, mut nanos) = (0.0, 0.0);
            while calls == 0.0 || (nanos < self.run_nanos_min && calls < 1e6) {
                nanos += time(|| (0..CALLS).fold(0, |sum: u64, _| sum.wrapping_add(call()))).0;
                calls += f64::from(CALLS);
            }
            best = best.min(nanos / calls);
        }
        best
    }

    /// Whether nothing is to be measured, only run.
    pub fn is_tiny(&self) -> bool {
        self.runs == 1
    }

    /// Enters a result into the hash.
    pub fn note(&mut self, result: u64) {
        self.hash = self.hash.rotate_left(5) ^ result;
    }

    /// Adds a line.
    pub fn add(&mut self, fields: &[Field]) {
        let mut line = String::from("{");
        for (position, field) in fields.iter().enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            let written = match field {
                Field::Text(name, value) => write!(line, "{comma}\"{name}\": \"{value}\""),
                // Too short to be measured: JSON has no word for it.
                Field::Number(name, value) if !value.is_finite() => write!(line, "{comma}\"{name}\": null"),
                Field::Number(name, value) if value.fract() == 0.0 => write!(line, "{comma}\"{name}\": {value:.0}"),
                Field::Number(name, value) => write!(line, "{comma}\"{name}\": {value:.3}"),
            };
            written.unwrap();
        }
        line.push('}');
        eprintln!("{line}");
        self.lines.push(line);
    }

    /// Prints all as one array.
    pub fn print(&self) {
        println!("[\n  {},\n  {{\"hash\": \"{:016x}\"}}\n]", self.lines.join(",\n  "), self.hash);
    }
}
