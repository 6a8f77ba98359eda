//! Where a sample looks.

use std::ops::Range;
use std::sync::Arc;

use eris_storage::PinnedSegment;

/// A sample looks at so many rows in so many places, which lie evenly over the segments: values that occur together in
/// a part of the table must not decide alone.
const WINDOW_ROWS: u32 = 32;
const WINDOWS: u64 = 64;

/// Parts of segments.
pub fn sample_windows(segments: &[Arc<PinnedSegment>]) -> Vec<(&Arc<PinnedSegment>, Range<u32>)> {
    let rows: u64 = segments.iter().map(|segment| u64::from(segment.rows())).sum();
    let step = (rows / WINDOWS).max(u64::from(WINDOW_ROWS));
    let (mut next, mut first) = (0, 0);
    let mut windows = Vec::new();
    for segment in segments {
        let end = first + u64::from(segment.rows());
        while next < end {
            let start = (next - first) as u32;
            windows.push((segment, start..segment.rows().min(start + WINDOW_ROWS)));
            next += step;
        }
        first = end;
    }
    windows
}
