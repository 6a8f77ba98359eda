//! Reconciles what is accounted with what the operating system sees, and keeps the process under its limit.
//!
//! ```text
//! configured limit |------------------------------------------------------|
//! resident         |== accounted ======|== unaccounted ==|
//! in force         |-------------------------------------|   = configured - unaccounted
//!                                      |----- free -----|    what consumers may still reserve
//! ```
//! Consumers reserve what they know of: columns, results, hash tables. Nobody reserves code, stacks, the allocator's
//! rest, or a buffer somebody forgot. The difference between resident and accounted memory is *unaccounted*; the limit
//! in force is the configured one without it, so that the process stays under the configured limit when consumers take
//! all that is left. A control group that is nearly full, whoever filled it, tightens the limit to what is still free.
//!
//! The decision is the pure function [`reconcile`]; [`MemoryObserver`] reads a few small files below a root. The
//! [`MemoryController`] puts them together for whoever has time: it starts no thread and sets no timer.
//!
//! A part of what is unaccounted is *kept* by the allocator and used again by whoever reserves next. So nobody is
//! refused because of a look that is over, or of memory that can be given back: the pool asks first.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::allocator;
use crate::code_pages;
use crate::limits::{self, GroupFiles};
use crate::memory::{MemoryPool, Relief};
use crate::origin::Origin;
use crate::time::Nanos;

/// The least time between two looks of who has time: reading takes about ten microseconds, so this is a ten-thousandth
/// of a processor.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The least time between two looks because somebody is to be refused: a hundredth, while a full database refuses row
/// after row.
const RELIEF_INTERVAL: Duration = Duration::from_millis(1);

/// The least time between two times that the allocator has to give back what it keeps.
const GIVE_BACK_INTERVAL: Duration = Duration::from_millis(100);

/// It is not asked for less than this share of the limit.
const GIVE_BACK_SHARE: u64 = 64;

/// Below this a limit bounds the consumers only: code and stacks of the process alone may be as large.
pub const WATCHED_FROM_BYTES: u64 = 256 << 20;

/// Unaccounted memory takes at most this share of the limit. It may belong to the program the database is part of, and
/// a database that gets nothing at all could not even be emptied.
pub const UNACCOUNTED_SHARE_MAX: u64 = 2;

/// As much of the limit stays free for what is allocated between two looks without a reservation: plans, texts of
/// statements, copies of a moment.
const HEADROOM_SHARE: u64 = 32;
/// More than this is not needed for that, ...
const HEADROOM_BYTES_MAX: u64 = 64 << 20;
/// ... and less is used up before the next look.
const HEADROOM_BYTES_MIN: u64 = 32 << 20;
/// All but this share of it is given to a database that is opened and finds no room: there are no statements yet.
const HEADROOM_OPENING_SHARE: u64 = 4;

/// Blocks below this share of the limit, and below this size, are copied when they grow. The headroom has space for
/// two such copies at once.
const COPIED_SHARE: u64 = 64;
const COPIED_BYTES_MAX: u64 = 32 << 20;
const _: () = assert!(COPIED_SHARE >= 2 * HEADROOM_SHARE && 2 * COPIED_BYTES_MAX <= HEADROOM_BYTES_MAX);

/// With a limit below this the process has small pages only.
const HUGE_PAGES_FROM_BYTES: u64 = 1 << 30;

/// Where the program counts what it allocates, it is the database's own: all of the limit but this share may be taken
/// from consumers. What gives memory back is not refused even then.
const OWN_LEAST_SHARE: u64 = 8;

/// The limit is decided anew each time that this share of what is still free was reserved, so that what comes along
/// unaccounted is seen before it is too much ...
const LOOK_SHARE: u64 = 8;
/// ... down to this share of the limit.
const LOOK_LEAST_SHARE: u64 = 256;

/// The allocator gives freed memory back at once while more than all but this share of the limit is resident, ...
const TIGHT_SHARE: u64 = 8;
/// ... or all but this many bytes: what it caches, and what threads allocate before the next look, does not shrink with
/// the limit.
const TIGHT_BYTES: u64 = 64 << 20;

/// The allocator may retain this share of what is not resident yet. More would be lost to fragmentation: live blocks
/// are placed among the retained pages, which then cannot be returned.
const RETAINED_SHARE_MAX: u64 = 16;

/// When less than this share of the limit is free, and more than it kept by the allocator, memory is scarce.
const SCARCE_SHARE: u64 = 8;

/// What the operating system says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryObservation {
    /// Physical memory of the process.
    pub resident_bytes: Option<u64>,
    /// Of that, pages of files: the program's code.
    pub file_bytes: Option<u64>,
    /// Allocated by the program, if its allocator counts. Not resident as a whole: what was not touched is not.
    pub heap_bytes: Option<u64>,
    /// The limited group that is the fullest, if any.
    pub group: Option<GroupMemory>,
}

/// A control group with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMemory {
    pub limit_bytes: u64,
    /// What its processes hold, without file pages that the kernel can drop at once.
    pub held_bytes: u64,
}

impl GroupMemory {
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.held_bytes)
    }
}

/// Why the limit in force is what it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LimitReason {
    /// As configured: nothing is unaccounted.
    Configured,
    /// As configured: it is too small to be compared with the memory of a process.
    TooSmall,
    /// As configured: the system does not say what the process holds.
    Unobserved,
    /// Without what is unaccounted.
    Unaccounted,
    /// Half: more than that is unaccounted.
    MostlyUnaccounted,
    /// What the control group has left.
    Group,
}

impl fmt::Display for LimitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LimitReason::Configured => "as configured",
            LimitReason::TooSmall => "as configured: too small to be compared with the memory of the process",
            LimitReason::Unobserved => "as configured: the system does not tell what the process holds",
            LimitReason::Unaccounted => "tightened by what the process holds unaccounted",
            LimitReason::MostlyUnaccounted => "half, because more than half of it is held unaccounted",
            LimitReason::Group => "tightened to what the control group has left",
        })
    }
}

/// Accounted, seen, and in force: one look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryReport {
    pub configured_bytes: u64,
    /// The limit in force from now on.
    pub limit_bytes: u64,
    pub reason: LimitReason,
    pub accounted_bytes: u64,
    pub observation: MemoryObservation,
    /// For what gives memory back.
    pub release_bytes: u64,
    /// Resident and not accounted, or allocated and not accounted; 0 while consumers hold more than they have touched,
    /// and the program does not count what it allocates.
    pub unaccounted_bytes: u64,
    /// Of the figures seen: `Unavailable` if the process's memory is not known.
    pub origin: Origin,
}

impl MemoryReport {
    /// Whether what the allocator keeps is missed. It is no use to give it back before: fresh pages take their time.
    pub fn is_scarce(&self) -> bool {
        if let LimitReason::TooSmall = self.reason {
            return false;
        }
        let group = self.observation.group.map_or(u64::MAX, |group| group.limit_bytes);
        let share = self.configured_bytes.min(group) / SCARCE_SHARE;
        self.kept_bytes() > share && self.limit_bytes.saturating_sub(self.accounted_bytes) < share
    }

    /// Whether the allocator retains freed memory for the next allocation: while there is room and it retains little.
    fn keeps(&self) -> bool {
        let room = self.configured_bytes.saturating_sub(self.observation.resident_bytes.unwrap_or(0));
        self.configured_bytes < WATCHED_FROM_BYTES
            || !is_tight(self.configured_bytes, &self.observation) && self.kept_bytes() <= room / RETAINED_SHARE_MAX
    }

    /// When so much more was reserved, it is time for another look.
    fn until_look(&self) -> u64 {
        if self.observation.resident_bytes.is_none() || self.configured_bytes < WATCHED_FROM_BYTES {
            return u64::MAX;
        }
        let free = self.limit_bytes.saturating_sub(self.accounted_bytes);
        (free / LOOK_SHARE).max(self.configured_bytes / LOOK_LEAST_SHARE)
    }

    /// Resident, but of no file, and neither allocated nor accounted: what the allocator keeps of what was freed. 0
    /// if the program does not count what it allocates.
    pub fn kept_bytes(&self) -> u64 {
        let MemoryObservation { resident_bytes, heap_bytes, file_bytes, .. } = self.observation;
        match (resident_bytes, heap_bytes) {
            (Some(resident), Some(heap)) => {
                resident.saturating_sub(heap.max(self.accounted_bytes) + file_bytes.unwrap_or(0))
            }
            _ => 0,
        }
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryReport { configured_bytes, limit_bytes, accounted_bytes, .. } = self;
        write!(formatter, "{accounted_bytes} bytes accounted, ")?;
        if let Some(heap) = self.observation.heap_bytes {
            write!(formatter, "{heap} allocated, ")?;
        }
        match self.observation.resident_bytes {
            Some(resident) => write!(formatter, "{resident} resident, {} unaccounted, ", self.unaccounted_bytes)?,
            None => formatter.write_str("resident unavailable, ")?,
        }
        write!(formatter, "limit {limit_bytes} of {configured_bytes}: {}", self.reason)
    }
}

/// Whether enough room for `missing` bytes comes of it if the allocator gives back what it keeps, without the part that
/// stayed the last time.
fn would_relieve(report: &MemoryReport, stays_bytes: u64, missing: u64) -> bool {
    let returned = report.kept_bytes().saturating_sub(stays_bytes);
    let mut observation = report.observation;
    observation.resident_bytes = observation.resident_bytes.map(|resident| resident - returned);
    if let Some(group) = &mut observation.group {
        group.held_bytes = group.held_bytes.saturating_sub(returned);
    }
    let limit_bytes = reconcile(report.configured_bytes, report.accounted_bytes, observation).limit_bytes;
    let enough = missing.max(report.configured_bytes / GIVE_BACK_SHARE);
    limit_bytes.saturating_sub(report.limit_bytes) >= enough
}

/// Whether so little of the limit is left that the process returns all it can do without.
fn is_tight(configured_bytes: u64, observation: &MemoryObservation) -> bool {
    let room = (configured_bytes / TIGHT_SHARE).max(TIGHT_BYTES);
    observation.resident_bytes.unwrap_or(0).saturating_add(room) > configured_bytes
}

/// What the process will hold once all that is allocated or reserved was touched, and what is executed all the time is
/// resident again.
fn reached_bytes(accounted_bytes: u64, observation: &MemoryObservation) -> u64 {
    let resident = observation.resident_bytes.unwrap_or(0);
    let Some(heap) = observation.heap_bytes else { return resident };
    let file = observation.file_bytes.unwrap_or(0);
    let code = observation.file_bytes.map_or(0, |file| file.max(code_pages::EXECUTED_BYTES));
    (resident.saturating_sub(file) + code).max(heap.max(accounted_bytes) + code)
}

/// What is left free of a limit.
fn headroom_of(configured_bytes: u64) -> u64 {
    (configured_bytes / HEADROOM_SHARE).clamp(HEADROOM_BYTES_MIN, HEADROOM_BYTES_MAX)
}

/// The limit that keeps the process under `configured_bytes`, and within its control group.
pub fn reconcile(configured_bytes: u64, accounted_bytes: u64, observation: MemoryObservation) -> MemoryReport {
    reconcile_beside(configured_bytes, accounted_bytes, observation, headroom_of(configured_bytes))
}

/// The same with another headroom.
fn reconcile_beside(
    configured_bytes: u64,
    accounted_bytes: u64,
    observation: MemoryObservation,
    headroom: u64,
) -> MemoryReport {
    let resident = observation.resident_bytes;
    let unaccounted_bytes =
        resident.map_or(0, |_| reached_bytes(accounted_bytes, &observation)).saturating_sub(accounted_bytes);
    let own = observation.heap_bytes.is_some();
    let (headroom, taken_max) = if own {
        (headroom, configured_bytes - configured_bytes / OWN_LEAST_SHARE)
    } else {
        (0, configured_bytes / UNACCOUNTED_SHARE_MAX)
    };
    let taken = unaccounted_bytes + headroom;
    let (mut limit_bytes, mut reason) = match resident {
        None => (configured_bytes, LimitReason::Unobserved),
        Some(_) if configured_bytes < WATCHED_FROM_BYTES => (configured_bytes, LimitReason::TooSmall),
        Some(_) if unaccounted_bytes == 0 => (configured_bytes, LimitReason::Configured),
        Some(_) if taken > taken_max => (configured_bytes - taken_max, LimitReason::MostlyUnaccounted),
        Some(_) => (configured_bytes - taken, LimitReason::Unaccounted),
    };
    let mut release_bytes = configured_bytes;
    // What was reserved and not touched yet is still to come out of the group's rest.
    let untouched = resident.map_or(0, |resident| accounted_bytes.saturating_sub(resident));
    if let Some(group) = &observation.group {
        let reachable = accounted_bytes + group.free_bytes().saturating_sub(untouched);
        release_bytes = release_bytes.min(reachable);
        if reachable < limit_bytes {
            (limit_bytes, reason) = (reachable, LimitReason::Group);
        }
    }
    let origin = if resident.is_some() { Origin::Measured } else { Origin::Unavailable };
    MemoryReport {
        configured_bytes,
        limit_bytes,
        reason,
        accounted_bytes,
        observation,
        release_bytes,
        unaccounted_bytes,
        origin,
    }
}

/// Reads what the operating system says about this process.
#[derive(Clone, Debug)]
pub struct MemoryObserver {
    statistics: PathBuf,
    page_bytes: u64,
    groups: Vec<GroupFiles>,
}

impl MemoryObserver {
    /// Finds the files below `root` (`/` for the real machine); the groups are those of now.
    pub fn new(root: &Path) -> MemoryObserver {
        // SAFETY: the call reads a constant of the system.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        MemoryObserver {
            statistics: root.join("proc/self/statm"),
            page_bytes: u64::try_from(page_bytes).unwrap_or(4_096),
            groups: limits::memory_groups(root),
        }
    }

    pub fn observe(&self) -> MemoryObservation {
        // `total resident shared text lib data dt`, in pages.
        let text = fs::read_to_string(&self.statistics).unwrap_or_default();
        let mut bytes = text.split_whitespace().skip(1).map_while(|pages| pages.parse().ok());
        let mut bytes = || bytes.next().map(|pages: u64| pages.saturating_mul(self.page_bytes));
        let groups = self.groups.iter().filter_map(GroupFiles::read);
        let groups = groups.map(|(limit_bytes, held_bytes)| GroupMemory { limit_bytes, held_bytes });
        MemoryObservation {
            resident_bytes: bytes(),
            file_bytes: bytes(),
            heap_bytes: allocator::heap_bytes(),
            group: groups.min_by_key(GroupMemory::free_bytes),
        }
    }
}

/// Looks at most every [`SAMPLE_INTERVAL`], when somebody asks it to, or more often when somebody is to be refused, and
/// puts the limit in force.
#[derive(Debug)]
pub struct MemoryController {
    pool: Arc<MemoryPool>,
    observer: MemoryObserver,
    /// When the next look is due, in nanoseconds of the environment's clock.
    next_look: AtomicU64,
    last: Mutex<Option<MemoryReport>>,
    /// The least that the allocator has kept since it was made to give back all it could.
    stays_bytes: AtomicU64,
    relieved: Mutex<Relieved>,
}

/// When somebody who was to be refused has last asked for more.
#[derive(Debug, Default)]
struct Relieved {
    looked: Option<Instant>,
    gave_back: Option<Instant>,
}

impl MemoryController {
    /// Watches `pool`, the memory of a database, with files below `root`; the pool asks before it refuses.
    pub fn new(pool: &Arc<MemoryPool>, root: &Path) -> Arc<MemoryController> {
        let limit = pool.configured_limit();
        if limit >= WATCHED_FROM_BYTES {
            allocator::map_blocks_grown_to((limit / COPIED_SHARE).min(COPIED_BYTES_MAX));
            if limit < HUGE_PAGES_FROM_BYTES {
                allocator::take_no_huge_pages();
            }
        }
        let controller = Arc::new(MemoryController {
            pool: Arc::clone(pool),
            observer: MemoryObserver::new(root),
            next_look: AtomicU64::new(0),
            last: Mutex::default(),
            stays_bytes: AtomicU64::new(0),
            relieved: Mutex::default(),
        });
        let relief: Weak<MemoryController> = Arc::downgrade(&controller);
        pool.relieved_by(relief);
        controller
    }

    /// Looks if a look is due; one caller at a time does. Costs one load and a comparison otherwise.
    pub fn look_if_due(&self, now: Nanos) -> Option<MemoryReport> {
        let due = self.next_look.load(Ordering::Relaxed);
        if now.0 < due {
            return None;
        }
        let next = now + SAMPLE_INTERVAL;
        self.next_look.compare_exchange(due, next.0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(self.look())
    }

    /// Looks now and puts the limit in force.
    pub fn look(&self) -> MemoryReport {
        // Two looks at once must not end with the older one's limit.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Accounted first: what is reserved between the two readings then counts as unaccounted rather than as room.
        let accounted_bytes = self.pool.used();
        let mut observation = self.observer.observe();
        if is_tight(self.pool.configured_limit(), &observation) && self.drop_code(&observation) {
            observation = self.observer.observe();
        }
        self.put_in_force(&mut last, accounted_bytes, observation)
    }

    /// Drops code pages if more are resident than execution needs; true if so. Faults bring the needed ones back within
    /// milliseconds.
    fn drop_code(&self, seen: &MemoryObservation) -> bool {
        let own = seen.heap_bytes.is_some() && self.pool.configured_limit() >= WATCHED_FROM_BYTES;
        let drops = own && seen.file_bytes.unwrap_or(0) > code_pages::EXECUTED_BYTES;
        if drops {
            code_pages::give_back();
        }
        drops
    }

    /// Decides anew by what was seen last and what is accounted now, which is right for as long as little is touched.
    fn decide_again(&self) -> MemoryReport {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let observation = last.map_or_else(|| self.observer.observe(), |report| report.observation);
        self.put_in_force(&mut last, self.pool.used(), observation)
    }

    fn put_in_force(
        &self,
        last: &mut Option<MemoryReport>,
        accounted_bytes: u64,
        observation: MemoryObservation,
    ) -> MemoryReport {
        let configured_bytes = self.pool.configured_limit();
        let share = if self.pool.may_take_what_is_kept() { HEADROOM_OPENING_SHARE } else { 1 };
        let headroom = headroom_of(configured_bytes) / share;
        let report = reconcile_beside(configured_bytes, accounted_bytes, observation, headroom);
        self.pool.tighten(report.limit_bytes, report.release_bytes, report.until_look());
        allocator::keep(report.keeps());
        self.stays_bytes.fetch_min(report.kept_bytes(), Ordering::Relaxed);
        *last = Some(report);
        report
    }

    /// The last look.
    pub fn last(&self) -> Option<MemoryReport> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relief for MemoryController {
    fn look_again(&self) {
        self.look();
    }

    /// Looks again: what the allocator kept may have been used meanwhile. If room is missing still, has it give back
    /// what it keeps, if that is enough, and drops code pages. One caller at a time does; who waited for another finds
    /// what that one found.
    fn relieve(&self, missing: u64) {
        let mut relieved = self.relieved.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| now.duration_since(last) >= interval);
        let limit_before = self.pool.limit();
        let report = if is_due(relieved.looked, RELIEF_INTERVAL) {
            relieved.looked = Some(now);
            self.look()
        } else {
            self.decide_again()
        };
        let missing = missing.saturating_sub(report.limit_bytes.saturating_sub(limit_before));
        if missing == 0 || !is_due(relieved.gave_back, GIVE_BACK_INTERVAL) {
            return;
        }
        let collects = would_relieve(&report, self.stays_bytes.load(Ordering::Relaxed), missing);
        if collects {
            allocator::give_back();
            // What blocks of other threads left is theirs to give back, if too late for who asks now.
            allocator::ask();
            self.stays_bytes.store(u64::MAX, Ordering::Relaxed);
        }
        if self.drop_code(&report.observation) || collects {
            self.look();
            relieved.gave_back = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
