//! A change that copies rows: a split, a merge, a move to another node.
//!
//! ```text
//!   requested  new commands wait until no cursor is saved (for a limited time)
//!   copying    rows are copied, a few per call; commands run as usual
//!   switching  all is copied; new commands wait again until no cursor is saved
//!   publish    the copies count from now on; table version + 1; the source passes older messages on
//! ```
//!
//! Until the switch the source answers for everything; at the switch, under all latches, the target does. A change has
//! one part for each member of the partition group: usually one. The partition that wanted it *drives* it: it keeps the
//! change, and its maintenance takes it further, with the latches of all others; if one is taken, it comes again. The
//! others are *guests*: they begin no change of their own and hold commands back when the driver says so.

use std::sync::{Arc, Weak};
use std::time::Duration;

use eris_platform::{Nanos, NodeId};
use eris_storage::{Batch, Key, SplitBoundary, StorageError, Store};
use eris_sync::Guard;

use super::error::{PlacementError, Ticket};
use super::publish::publish;
use crate::assignments::Urgency;
use crate::container::Container;
use crate::counters::Event;
use crate::options::{LATCHED_RETRY, SPLIT_RETRY};
use crate::partition::{LivingPartition, Partition, PartitionState};
use crate::partition_table::Partitioning;
use crate::runtime::Runtime;

/// How long new commands wait for saved cursors to go before the change is put off: a reader that takes its results
/// slowly must not block others for longer.
const CURSOR_WAIT: Duration = Duration::from_millis(20);
/// How long a change that was put off lets others work before it tries again.
const RETRY_WAIT: Duration = Duration::from_millis(200);

/// A definition waits this long for a change, which is then given up: PostgreSQL's `deadlock_timeout`.
const DEFINITION_WAIT: Duration = Duration::from_secs(1);

/// What a change does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// What lies at or above `at` goes to a fresh sibling; none: an empty sibling for what comes.
    Split { at: Option<Key> },
    /// Everything goes to a fresh partition on another node.
    Copy { node: NodeId },
    /// Everything goes to the neighbour.
    Merge,
}

/// What one member of the group does. Weak: a partition keeps its change, and its container keeps the partition.
pub(super) struct Part {
    container: Weak<Container>,
    source: Weak<LivingPartition>,
    pub target: Target,
}

/// Where rows go.
pub(super) enum Target {
    /// A store that nobody else knows, once copying has begun.
    Fresh(Option<Box<Store>>),
    /// A partition in use.
    Live(Weak<LivingPartition>),
}

impl Part {
    pub fn new(container: &Arc<Container>, source: &Partition, survivor: Option<&Partition>) -> Self {
        let target = survivor.map_or(Target::Fresh(None), |survivor| Target::Live(Arc::downgrade(survivor)));
        Self { container: Arc::downgrade(container), source: Arc::downgrade(source), target }
    }

    fn place(&self) -> Option<Place> {
        let live = match &self.target {
            Target::Fresh(_) => None,
            Target::Live(survivor) => Some(survivor.upgrade()?),
        };
        Some(Place { container: self.container.upgrade()?, source: self.source.upgrade()?, live })
    }
}

/// A part's partitions, held for one step.
pub(super) struct Place {
    pub container: Arc<Container>,
    pub source: Partition,
    /// The target in use.
    pub live: Option<Partition>,
}

enum Phase {
    Requested {
        until: Nanos,
    },
    Copying,
    Switching {
        until: Nanos,
    },
    /// Cursors stood in the way of the switch; copies follow the changes meanwhile.
    PutOff {
        until: Nanos,
    },
}

/// A change under way, kept by the partition that drives it.
pub(crate) struct Change {
    kind: Kind,
    /// The driver's first.
    parts: Vec<Part>,
    phase: Phase,
    /// When a definition began to wait for the end of this change; `None` if none waits.
    definition_waits_since: Option<Nanos>,
    ticket: Ticket,
}

/// A partition's part in a change that another one drives.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Whether commands without a cursor wait.
    pub draining: bool,
}

/// What maintenance does next about a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChangeNext {
    /// There is no change any more.
    Over,
    /// Call again as soon as possible.
    Again,
    /// Call again at this time.
    At(Nanos),
}

/// How a step ended.
enum Step {
    Goes(Phase),
    Done,
    GivenUp(PlacementError),
}

/// The latches of everybody but the driver, in the order of the parts. A part whose container is gone has none.
pub(super) struct Latched<'a> {
    sources: Vec<Option<Guard<'a, PartitionState>>>,
    targets: Vec<Option<Guard<'a, PartitionState>>>,
}

impl<'a> Latched<'a> {
    /// None if somebody is at one of them.
    fn all(places: &'a [Option<Place>]) -> Option<Self> {
        let mut latched = Self { sources: Vec::new(), targets: Vec::new() };
        for (index, place) in places.iter().enumerate() {
            let latch = |partition: Option<&'a Partition>| match partition {
                None => Some(None),
                Some(partition) => partition.try_latch().map(Some),
            };
            let source = place.as_ref().filter(|_| index > 0).map(|place| &place.source);
            latched.sources.push(latch(source)?);
            latched.targets.push(latch(place.as_ref().and_then(|place| place.live.as_ref()))?);
        }
        Some(latched)
    }

    /// Everybody but the driver.
    fn guests(&mut self) -> impl Iterator<Item = &mut PartitionState> {
        self.sources.iter_mut().chain(&mut self.targets).flatten().map(|guard| &mut **guard)
    }

    /// The source of a part, and its target if that is in use.
    fn both<'s>(
        &'s mut self,
        part: usize,
        driver: &'s mut PartitionState,
    ) -> (&'s mut PartitionState, Option<&'s mut PartitionState>) {
        let source = if part == 0 { Some(driver) } else { self.sources[part].as_deref_mut() };
        let Some(source) = source else { unreachable!("a change goes on only with all its partitions") };
        (source, self.targets[part].as_deref_mut())
    }
}

impl Change {
    /// A change that waits for the cursors of its partitions to go. The caller holds the driver's latch; the first part
    /// is the driver's. None if another change is under way somewhere.
    pub(super) fn request(runtime: &Runtime, kind: Kind, parts: Vec<Part>, ticket: Ticket) -> Option<Box<Self>> {
        let places: Vec<Option<Place>> = parts.iter().map(Part::place).collect();
        let Some(driver) = places.first().and_then(Option::as_ref) else { unreachable!("the driver is latched") };
        let guest = || Some(Guest { draining: true });
        let free = Latched::all(&places).is_some_and(|mut latched| {
            let free = latched.guests().all(|state| !state.is_changing() && !state.is_forwarder());
            latched.guests().filter(|_| free).for_each(|state| state.guest = guest());
            free
        });
        if !free {
            ticket.resolve(Err(PlacementError::Busy(driver.source.id)));
            return None;
        }
        if let Kind::Copy { node } = kind {
            // Who copies rows decides where their memory comes from.
            places.iter().flatten().for_each(|place| place.source.set_carer(node));
        }
        let phase = Phase::Requested { until: runtime.env.now() + CURSOR_WAIT };
        Some(Box::new(Self { kind, parts, phase, definition_waits_since: None, ticket }))
    }

    /// Whether the driver's commands without a cursor wait.
    pub fn is_draining(&self) -> bool {
        match self.phase {
            Phase::Requested { .. } | Phase::Switching { .. } => true,
            Phase::Copying | Phase::PutOff { .. } => false,
        }
    }

    /// Whether somebody stands in the way of the switch, so that it was put off.
    pub fn is_put_off(&self) -> bool {
        matches!(self.phase, Phase::PutOff { .. })
    }
}

/// Takes a change one piece further.
pub(crate) fn continue_change(runtime: &Arc<Runtime>, partition: &Partition, state: &mut PartitionState) -> ChangeNext {
    let Some(mut change) = state.change.take() else { return ChangeNext::Over };
    let now = runtime.env.now();
    let places: Vec<Option<Place>> = change.parts.iter().map(Part::place).collect();
    let gone = places.iter().any(|place| place.as_ref().is_none_or(|place| place.container.is_dropped()));
    if let Phase::PutOff { until } = change.phase
        && now < until
        && !gone
    {
        state.change = Some(change);
        return ChangeNext::At(until);
    }
    let Some(mut latched) = Latched::all(&places) else {
        state.change = Some(change);
        return ChangeNext::At(now + LATCHED_RETRY);
    };
    let places_present: Vec<&Place> = places.iter().flatten().collect();
    let step = if gone {
        Step::GivenUp(PlacementError::NoSuchPartition(partition.id))
    } else {
        step(runtime, &places_present, &mut change, state, &mut latched)
    };
    let next = match step {
        Step::Goes(phase) => {
            change.phase = phase;
            let draining = change.is_draining();
            latched.guests().filter_map(|state| state.guest.as_mut()).for_each(|guest| guest.draining = draining);
            let next = match change.phase {
                Phase::PutOff { until } => ChangeNext::At(until),
                Phase::Requested { .. } | Phase::Copying | Phase::Switching { .. } => ChangeNext::Again,
            };
            state.change = Some(change);
            next
        }
        Step::Done => {
            latched.guests().for_each(|state| state.guest = None);
            change.ticket.resolve(Ok(()));
            ChangeNext::Over
        }
        Step::GivenUp(error) => {
            give_up(runtime, &places, state, &mut latched);
            if matches!(error, PlacementError::OutOfMemory(_)) {
                state.no_split_until = now + SPLIT_RETRY;
                runtime.queue_maintenance_at(partition, state.no_split_until);
            }
            change.ticket.resolve(Err(error));
            ChangeNext::Over
        }
    };
    drop(latched);
    for place in places_present {
        for other in [Some(&place.source), place.live.as_ref()].into_iter().flatten() {
            // What waited may go on; what came may want to be settled.
            runtime.visit(other, Urgency::Urgent);
            if next == ChangeNext::Over {
                runtime.queue_maintenance(other);
            }
        }
    }
    next
}

fn step(
    runtime: &Arc<Runtime>,
    places: &[&Place],
    change: &mut Change,
    state: &mut PartitionState,
    latched: &mut Latched<'_>,
) -> Step {
    let now = runtime.env.now();
    let busy = Step::GivenUp(PlacementError::Busy(places[0].source.id));
    // The transaction that blocks this change may itself wait for the lock of the definition that waits here. Rows may
    // also change as fast as they are copied.
    if state.holds_definition() || latched.guests().any(|state| state.holds_definition()) {
        let since = *change.definition_waits_since.get_or_insert(now);
        if now >= since + DEFINITION_WAIT {
            return busy;
        }
    } else {
        change.definition_waits_since = None;
    }
    match change.phase {
        Phase::Requested { until } => {
            if state.has_saved_cursors() || latched.guests().any(|state| state.has_saved_cursors()) {
                return if now < until { Step::Goes(Phase::Requested { until }) } else { busy };
            }
            if change.kind == (Kind::Split { at: None }) {
                return finish(runtime, places, change, state, latched);
            }
            match begin(runtime, places, change, state, latched) {
                Ok(()) => Step::Goes(Phase::Copying),
                // Busy with an index or the rests of an earlier change.
                Err(_) => busy,
            }
        }
        Phase::PutOff { .. } => Step::Goes(Phase::Copying),
        Phase::Copying => copy(runtime, places, change, state, latched, now + CURSOR_WAIT),
        Phase::Switching { until } => copy(runtime, places, change, state, latched, until),
    }
}

fn begin(
    runtime: &Runtime,
    places: &[&Place],
    change: &mut Change,
    state: &mut PartitionState,
    latched: &mut Latched<'_>,
) -> Result<(), StorageError> {
    for (index, part) in change.parts.iter_mut().enumerate() {
        let (source, target) = latched.both(index, state);
        match (&change.kind, &mut part.target, target) {
            (Kind::Split { at: Some(at) }, Target::Fresh(store), _) => {
                source.store.begin_split(boundary(&places[index].container.partitioning(), at.clone()))?;
                *store = Some(Box::new(runtime.store_beside(&source.store)));
            }
            (Kind::Copy { .. }, Target::Fresh(store), _) => {
                source.store.begin_handover(false)?;
                *store = Some(Box::new(runtime.store_beside(&source.store)));
            }
            (Kind::Merge, Target::Live(_), Some(target)) => {
                if source.store.schema().version != target.store.schema().version {
                    return Err(StorageError::Busy { reason: "the schema is being changed" });
                }
                target.store.begin_absorbing()?;
                source.store.begin_handover(true)?;
            }
            (Kind::Split { .. } | Kind::Copy { .. } | Kind::Merge, _, _) => {
                unreachable!("splits and copies have fresh targets, merges have live ones")
            }
        }
    }
    Ok(())
}

fn boundary(partitioning: &Arc<Partitioning>, at: Key) -> SplitBoundary {
    let attributes: Box<[_]> = partitioning.attributes().into();
    let partitioning = Arc::clone(partitioning);
    let position = Arc::new(move |keys: &Batch, row: usize| partitioning.position_of_key_row(keys, row));
    SplitBoundary { attributes, position, at }
}

/// The store that a part copies to.
fn store_of<'s>(target: &'s mut Target, live: Option<&'s mut PartitionState>) -> &'s mut Store {
    match (target, live) {
        (Target::Fresh(Some(store)), _) => store,
        (Target::Live(_), Some(state)) => &mut state.store,
        (Target::Fresh(None) | Target::Live(_), _) => unreachable!("a change that copies has a target"),
    }
}

fn copy(
    runtime: &Arc<Runtime>,
    places: &[&Place],
    change: &mut Change,
    state: &mut PartitionState,
    latched: &mut Latched<'_>,
    until: Nanos,
) -> Step {
    let out_of_memory = Step::GivenUp(PlacementError::OutOfMemory(places[0].source.id));
    let mut complete = true;
    let budget = (runtime.options.maintenance_rows / change.parts.len()).max(1);
    for (index, part) in change.parts.iter_mut().enumerate() {
        let (source, target) = latched.both(index, state);
        match source.store.copy_step(store_of(&mut part.target, target), budget) {
            Ok(all) => complete &= all,
            // The copies go, the rows are where they were.
            Err(_) => return out_of_memory,
        }
    }
    if !complete {
        return Step::Goes(Phase::Copying);
    }
    // Not only cursors of commands stand in the way: a load that failed does until its transaction is settled.
    let free = |state: &PartitionState| !state.has_saved_cursors() && state.store.may_switch();
    if !free(state) || !latched.guests().all(|state| free(state)) {
        let now = runtime.env.now();
        return if now >= until {
            Step::Goes(Phase::PutOff { until: now + RETRY_WAIT })
        } else {
            Step::Goes(Phase::Switching { until })
        };
    }
    for (index, part) in change.parts.iter_mut().enumerate() {
        let (source, target) = latched.both(index, state);
        if source.store.prepare_switch(store_of(&mut part.target, target)).is_err() {
            return out_of_memory;
        }
    }
    finish(runtime, places, change, state, latched)
}

/// The switch: nothing fails once the first table is published.
fn finish(
    runtime: &Arc<Runtime>,
    places: &[&Place],
    change: &mut Change,
    state: &mut PartitionState,
    latched: &mut Latched<'_>,
) -> Step {
    let group = places[0].container.group();
    let _held = group.as_ref().map(|group| group.hold());
    if group.as_ref().is_some_and(|group| group.members().len() != places.len()) {
        // A member came or went meanwhile.
        return Step::GivenUp(PlacementError::Busy(places[0].source.id));
    }
    let home = match change.kind {
        Kind::Split { .. } => runtime.next_node(),
        Kind::Copy { node } => node,
        Kind::Merge => places[0].source.home(),
    };
    for (index, part) in change.parts.iter_mut().enumerate() {
        publish(runtime, &change.kind, places[index], &mut part.target, home, latched.both(index, state));
    }
    Step::Done
}

fn give_up(runtime: &Runtime, places: &[Option<Place>], state: &mut PartitionState, latched: &mut Latched<'_>) {
    runtime.counters.add(Event::ChangesGivenUp, 1);
    for (index, place) in places.iter().enumerate() {
        let Some(place) = place else { continue };
        let (source, target) = latched.both(index, state);
        place.source.set_carer(place.source.home());
        match target {
            None => source.store.abandon_split(),
            Some(target) => {
                source.store.abandon_handover(&mut target.store);
                target.store.end_absorbing();
            }
        }
    }
    latched.guests().for_each(|state| state.guest = None);
}

impl Drop for Change {
    fn drop(&mut self) {
        // Only if it went with its partition: otherwise the order is settled.
        let driver = self.parts.first().and_then(|part| part.source.upgrade());
        self.ticket.resolve(Err(driver.map_or(PlacementError::Gone, |driver| PlacementError::Busy(driver.id))));
    }
}
