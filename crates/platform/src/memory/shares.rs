//! Which part of a database's limit who may take, or is left to whom; `docs/memory.md` has them as a table.

/// Of the limit, one part in so many is kept for what gives memory back. A deleted row costs up to 44 bytes until
/// its transaction ends (a lock of 24, a run of dying rows of 20), so this is enough to delete many rows at a time.
pub(super) const KEPT_SHARE: u64 = 16;
/// What is kept at most: enough for three million rows.
pub(super) const KEPT_BYTES_MAX: u64 = 128 << 20;
/// A limit below this keeps nothing: no database runs in so little.
const KEPT_FROM_BYTES: u64 = 1 << 20;

/// What can be written to files leaves the part of short transactions, and what four long statements start with: files
/// are read and written in it, and operators that cannot use files work in it.
const ROOM_FLOORS: u64 = 4;
/// That is an eighth of the limit at most.
const ROOM_SHARE_MAX: u64 = 8;
/// So much each such consumer may have all the same, to be worth the trouble.
pub(super) const SPILL_FLOOR_BYTES: u64 = 2 << 20;

/// A long statement starts with this part of the limit, within bounds.
const STATEMENT_FLOOR_SHARE: u64 = 64;
const STATEMENT_FLOOR_MIN: u64 = 256 << 10;
const STATEMENT_FLOOR_MAX: u64 = 8 << 20;

/// Beside what is kept, one part in so many is left to short transactions by what statements work with: joins, sorts,
/// groups and results may fill the rest, and one row is still written and found.
const SHORT_SHARE: u64 = 32;
/// Enough for many short transactions, however large the limit.
const SHORT_BYTES_MAX: u64 = 64 << 20;

/// The first bytes of a long statement, one part in so many of the limit as configured, are refused by no limit either.
const FIRST_SHARE: u64 = 128;
const FIRST_BYTES_MAX: u64 = 256 << 10;

pub(super) fn kept_of(limit: u64) -> u64 {
    if limit < KEPT_FROM_BYTES { 0 } else { (limit / KEPT_SHARE).min(KEPT_BYTES_MAX) }
}

/// Of a limit without what is kept of it.
pub(super) fn room_of(limit: u64, unkept: u64) -> u64 {
    (short_of(limit) + ROOM_FLOORS * floor_of(limit)).min(unkept / ROOM_SHARE_MAX)
}

pub(super) fn floor_of(limit: u64) -> u64 {
    (limit / STATEMENT_FLOOR_SHARE).clamp(STATEMENT_FLOOR_MIN, STATEMENT_FLOOR_MAX)
}

pub(super) fn short_of(limit: u64) -> u64 {
    if limit < KEPT_FROM_BYTES { 0 } else { (limit / SHORT_SHARE).min(SHORT_BYTES_MAX) }
}

pub(super) fn first_of(limit: u64) -> u64 {
    if limit < KEPT_FROM_BYTES { 0 } else { (limit / FIRST_SHARE).min(FIRST_BYTES_MAX) }
}
