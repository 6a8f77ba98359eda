//! What a partition tells about itself.

use super::Store;
use crate::ids::SegmentNumber;
use crate::modules::{COMPOSITE, ROW_DYNAMIC, ROW_SPARSE, ROW_STATIC};
use crate::physical::PhysicalLayout;
use crate::segment::{Segment, State};

/// Events since the store was made; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    pub inserted: u64,
    pub updated: u64,
    /// Of these, in place: with a before-image instead of a new version.
    pub updated_in_place: u64,
    /// Before-images that went back into their rows: the update was rolled back, or met somebody undecided.
    pub images_restored: u64,
    /// Before-images that nobody could see any more.
    pub images_freed: u64,
    /// Before-images that became versions of their own.
    pub images_spilled: u64,
    pub deleted: u64,
    pub sealed: u64,
    pub attached: u64,
    pub thawed: u64,
    /// Segments evacuated.
    pub compacted: u64,
    /// Segments rebuilt in another layout.
    pub rebuilt: u64,
    /// Rows that moved to the tail.
    pub rows_moved: u64,
    /// Segments dropped.
    pub dropped: u64,
    /// Segments whose end was cut off: what was rolled back there.
    pub cut: u64,
    /// Splits finished.
    pub splits: u64,
    pub pins: u64,
    /// Transactions settled.
    pub settled: u64,
    pub micro_qep_hits: u64,
    pub micro_qep_misses: u64,
    pub maintenance_out_of_memory: u64,
    /// Segments whose columns followed the partition to another home.
    pub relocated: u64,
}

impl StoreCounters {
    /// Adds another store's counters.
    pub fn add(&mut self, other: &Self) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.updated_in_place += other.updated_in_place;
        self.images_restored += other.images_restored;
        self.images_freed += other.images_freed;
        self.images_spilled += other.images_spilled;
        self.deleted += other.deleted;
        self.sealed += other.sealed;
        self.attached += other.attached;
        self.thawed += other.thawed;
        self.compacted += other.compacted;
        self.rebuilt += other.rebuilt;
        self.rows_moved += other.rows_moved;
        self.dropped += other.dropped;
        self.cut += other.cut;
        self.splits += other.splits;
        self.pins += other.pins;
        self.settled += other.settled;
        self.micro_qep_hits += other.micro_qep_hits;
        self.micro_qep_misses += other.micro_qep_misses;
        self.maintenance_out_of_memory += other.maintenance_out_of_memory;
        self.relocated += other.relocated;
    }
}

/// A partition's size and shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Rows without an end, counting undecided inserts.
    pub rows_live_estimate: u64,
    /// Rows in segments, dead ones included.
    pub rows_total: u64,
    /// Rows that nobody sees or soon nobody will.
    pub dead_rows: u64,
    pub bytes: u64,
    pub open_segments: u64,
    pub sealed_segments: u64,
    pub row_segments: u64,
    pub column_segments: u64,
    /// Segments whose attributes are divided among several access paths.
    pub composite_segments: u64,
    pub index_entries: u64,
    /// Earlier versions of rows that were updated in place.
    pub before_images: u64,
    pub counters: StoreCounters,
}

/// One segment in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDescription {
    pub number: SegmentNumber,
    pub sealed: bool,
    pub tail: bool,
    /// [`COMPOSITE`](crate::COMPOSITE) if there are several.
    pub module: &'static str,
    /// Which modules hold which attributes.
    pub layout: PhysicalLayout,
    pub rows: u32,
    pub dead_rows: u32,
    pub locked_words: u32,
    pub bytes: u64,
}

fn dead(segment: &Segment) -> u32 {
    segment.vacated_count() + segment.ending()
}

/// What `part` of `whole` things costs that cost `bytes` together.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(whole.max(1))) as u64
}

impl Store {
    /// The partition's size and shape.
    pub fn statistics(&self) -> StoreStatistics {
        let before_images = self.before_image_count();
        let mut statistics = StoreStatistics { before_images, counters: self.counters, ..StoreStatistics::default() };
        for segment in self.live_segments() {
            statistics.rows_total += u64::from(segment.rows());
            statistics.dead_rows += u64::from(dead(segment));
            statistics.bytes += segment.bytes();
            match segment.state {
                State::Open { .. } => statistics.open_segments += 1,
                State::Sealed { .. } => statistics.sealed_segments += 1,
            }
            match segment.path().module() {
                ROW_STATIC | ROW_DYNAMIC | ROW_SPARSE => statistics.row_segments += 1,
                COMPOSITE => statistics.composite_segments += 1,
                _ => statistics.column_segments += 1,
            }
        }
        statistics.rows_live_estimate = statistics.rows_total - statistics.dead_rows;
        for index in self.indexes.iter().chain(&self.building) {
            statistics.index_entries += index.path.entries();
            statistics.bytes += index.path.bytes();
        }
        statistics
    }

    /// Bytes of versions whose end is decided and that some snapshot may still see, or that maintenance has not come
    /// to yet. An estimate: a version costs what its segment's rows cost on average, and its share of the indexes.
    pub fn old_version_bytes(&self) -> u64 {
        let images = self.before_images.superseded_bytes();
        let rows = self.dying.rows();
        if rows == 0 {
            return images;
        }
        let (mut ending, mut ending_bytes, mut all) = (0, 0, 0);
        for segment in self.live_segments() {
            let (of_segment, ends) = (u64::from(segment.rows()), u64::from(segment.ending()));
            all += of_segment;
            ending += ends;
            ending_bytes += share(segment.bytes(), ends, of_segment);
        }
        let indexes: u64 = self.indexes.iter().chain(&self.building).map(|index| index.path.bytes()).sum();
        images + share(ending_bytes, rows.min(ending), ending) + share(indexes, rows.min(all), all)
    }

    /// The segments, by number.
    pub fn segments(&self) -> Vec<SegmentDescription> {
        let describe = |segment: &Segment| SegmentDescription {
            number: segment.number,
            sealed: !segment.is_open(),
            tail: self.tail == Some(segment.number),
            module: segment.path().module(),
            layout: segment.layout().clone(),
            rows: segment.rows(),
            dead_rows: dead(segment),
            locked_words: segment.locks,
            bytes: segment.bytes(),
        };
        self.live_segments().map(describe).collect()
    }
}
