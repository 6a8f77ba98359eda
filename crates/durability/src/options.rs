//! How a database is opened and its log is kept.

use std::time::Duration;

/// What is done about damage in the middle of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// The database is not opened.
    #[default]
    Refuse,
    /// What comes after the damage is left out. Files that have nothing before it are put aside under another name.
    EndThere,
}

/// Options of [`crate::open`].
#[derive(Clone, Debug)]
pub struct DurabilityOptions {
    /// Bytes of a log file. A transaction that needs more gets a file of its own size.
    pub log_file_bytes: u64,
    /// How long asynchronous commits wait for others before they are written.
    pub asynchronous_delay: Duration,
    /// A checkpoint is taken when the log has grown by so many bytes, ...
    pub checkpoint_log_bytes: u64,
    /// ... and this long after the first commit behind the last one.
    pub checkpoint_interval: Duration,
    /// Rows that are committed together when the log is done again.
    pub replay_rows: usize,
    /// So many consecutive keys, as a power of two, are done again in one lane.
    pub replay_key_bits: u32,
    /// What is done about damage in the middle of the log.
    pub damage: Damage,
}

impl Default for DurabilityOptions {
    fn default() -> Self {
        Self {
            log_file_bytes: 16 << 20,
            asynchronous_delay: Duration::from_millis(10),
            checkpoint_log_bytes: 256 << 20,
            checkpoint_interval: Duration::from_mins(5),
            replay_rows: 8_192,
            replay_key_bits: 12,
            damage: Damage::default(),
        }
    }
}
