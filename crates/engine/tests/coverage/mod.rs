//! What the runs reached: every kind of message, wait, fault and piece of maintenance. A kind that no run reached has
//! not been tested, so the test fails with its name, or the script that runs many of them lists it.

use std::collections::BTreeMap;
use std::fmt;

use eris_engine::message::{PRIMITIVES, Primitive};
use eris_engine::{EVENTS, Event, FAULTS, Simulation};

/// Counts over all seeds, by kind; 0 for what nobody reached yet.
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

/// Steps that stores count themselves.
const STORE: [&str; 7] =
    ["sealed", "thawed", "compacted", "rebuilt", "updated in place", "images restored", "images spilled"];

/// What the clients and the runs count.
const CLIENTS: [&str; 42] = [
    "admission refused",
    "committed",
    "committed in part",
    "container vanished",
    "coordinated group",
    "duet met an error",
    "duet released by a commit",
    "duet released by a restart",
    "duet released by a rollback",
    "duet released by a savepoint",
    "duet shared a lock",
    "duet waited",
    "duplicate key",
    "families seen",
    "family released by a commit",
    "family released by a savepoint",
    "foreign key kept",
    "index moved",
    "lock not obtained",
    "lost",
    "node given up",
    "node helped",
    "one-message buffers",
    "operator panicked, told",
    "out of memory",
    "ring committed",
    "rolled back",
    "row locks held",
    "schema moved",
    "sequence exhausted",
    "sibling by size",
    "snapshot too old",
    "statement cancelled",
    "statement dropped",
    "table dropped and made anew",
    "table locked",
    "table truncated",
    "task dropped",
    "task panicked",
    "truncation taken back",
    "unserializable",
    "ways of reading compared",
];

/// Starts the name of a kind that depends on which reservations are refused: rare, and not asked of a few seeds.
const NO_MEMORY: &str = "no memory for ";

/// What no simulated run can reach, and why.
fn is_out_of_reach(event: Event) -> bool {
    // Workers are stepped by the simulator and never sleep, and its clock stands still within a step.
    matches!(event, Event::Parks | Event::Watches | Event::LongPolls)
}

impl Coverage {
    /// Nothing is reached of what can be.
    pub fn new() -> Self {
        let events = EVENTS.iter().filter(|event| !is_out_of_reach(**event)).map(|event| event.name().to_owned());
        // Nobody makes temporary containers yet, so nothing is inserted into them.
        let sent = PRIMITIVES.iter().filter(|primitive| **primitive != Primitive::ConditionalInsert);
        let faults = FAULTS.iter().map(|fault| fault.name().to_owned());
        let counted = STORE.iter().chain(&CLIENTS).map(|name| (*name).to_owned());
        let all = events.chain(sent.map(|primitive| message(*primitive))).chain(faults).chain(counted);
        Self { counts: all.map(|name| (name, 0)).collect() }
    }

    pub fn add(&mut self, what: &str, count: u64) {
        if let Some(known) = self.counts.get_mut(what) {
            *known += count;
        }
    }

    pub fn add_run(&mut self, simulation: &Simulation) {
        let statistics = simulation.engine().statistics();
        for (event, count) in &statistics.events {
            self.add(event.name(), *count);
        }
        for (primitive, count) in &statistics.messages {
            self.add(&message(*primitive), *count);
        }
        for fault in FAULTS {
            self.add(fault.name(), simulation.fault_count(fault));
        }
        // Whoever asks for memory must be seen without it: a kind of its own for each.
        for (consumer, count) in simulation.memory_refusals() {
            *self.counts.entry(format!("{NO_MEMORY}{consumer}")).or_default() += count;
        }
        let store = &statistics.store;
        let images = [store.updated_in_place, store.images_restored, store.images_spilled];
        let life = [store.sealed, store.thawed, store.compacted, store.rebuilt];
        for (name, count) in STORE.into_iter().zip(life.into_iter().chain(images)) {
            self.add(name, count);
        }
    }

    /// The names of what no run reached, and a few seeds should.
    pub fn missing(&self) -> Vec<&str> {
        let asked = self.counts.iter().filter(|(name, _)| !name.starts_with(NO_MEMORY));
        asked.filter(|(_, count)| **count == 0).map(|(name, _)| name.as_str()).collect()
    }
}

/// One line of JSON, which `scripts/simulate` adds up.
impl fmt::Display for Coverage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.counts.iter().map(|(name, count)| format!("{name:?}: {count}")).collect();
        write!(formatter, "coverage {{{}}}", counts.join(", "))
    }
}

fn message(primitive: Primitive) -> String {
    format!("message {}", primitive.name())
}
