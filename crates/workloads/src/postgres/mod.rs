//! A small PostgreSQL client, so that workloads drive ERIS over the wire and PostgreSQL itself with the same code.
//!
//! Protocol 3.0 over a blocking TCP stream: simple queries, prepared statements with one write and one flush per
//! execution, COPY FROM STDIN. Integers, floats, booleans and text travel in binary, everything else as text.
//! Authentication is trust or a cleartext password; no TLS.

mod client;
mod url;
mod values;
mod wire;

#[cfg(test)]
mod tests;

pub use client::{CancelToken, PostgresConnection};
pub use url::{PostgresUrl, UrlError};
