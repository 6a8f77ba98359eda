//! A worker: a value with [`Worker::step`], so that a thread may loop over it and the simulator may call all of them in
//! any order.
//!
//! A step plays the three roles of Algorithm 1 of the sources within budgets: some tasks, some partitions, one pass as
//! the node's coordinator. It also looks at its sockets, fires timers and grants maintenance its share.

use std::sync::Arc;
use std::time::Duration;

use eris_platform::{Nanos, NodeId, Reactor, allocator};

use crate::assignments::Urgency;
use crate::counters::{Event, count_as};
use crate::keepers::Keeper;
use crate::maintenance::maintain;
use crate::near::Near;
use crate::node::Node;
use crate::options::{
    LONG_POLL_QUANTA, LONG_WORK_SHARE, MAINTENANCE_SHARE, MEMORY_SHARE, PATIENCE, REACTOR_SHARE, SLEEP_MIN,
    STEP_TASKS_MAX, STEP_VISITS_IN_VAIN_MAX, STEP_VISITS_MAX, TASK_QUANTA, TASK_ROUNDS,
};
use crate::partition::Quantum;
use crate::runtime::{Outbox, Runtime, keep_work, swap_outbox};
use crate::spinning::Spinning;
use crate::task::Task;
use crate::visit::visit;

/// Who slept for so long after work gives memory back.
const IDLE: Duration = Duration::from_secs(1);

/// One worker (LPV).
pub(crate) struct Worker {
    runtime: Near<Runtime>,
    number: usize,
    /// Its place among the workers of its node.
    index: usize,
    node: NodeId,
    reactor: Box<dyn Reactor>,
    outbox: Outbox,
    steps: u64,
    spinning: Spinning,
    keeper: Keeper,
    /// Whether it has said that it watches.
    watches: bool,
    /// How often it was asked to give memory back, and whether it did anything since.
    asked: usize,
    keeps_memory: bool,
    /// When the sockets were polled last.
    polled: Nanos,
}

impl Worker {
    pub fn new(runtime: &Arc<Runtime>, number: usize, index: usize, node: NodeId, reactor: Box<dyn Reactor>) -> Self {
        let runtime = Near::new(Arc::clone(runtime));
        let outbox = Outbox::of_worker(node, &runtime);
        let (steps, spinning, watches) = (0, Spinning::new(), false);
        let keeper = Keeper::new(index);
        let (asked, keeps_memory, polled) = (allocator::asked(), true, Nanos::ZERO);
        Self {
            runtime,
            number,
            index,
            node,
            reactor,
            outbox,
            steps,
            spinning,
            keeper,
            watches,
            asked,
            keeps_memory,
            polled,
        }
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Loops until the engine halts; sleeps when there is nothing to do.
    pub fn run(mut self) {
        while !self.runtime.is_halted() {
            if self.step() {
                self.keeps_memory = true;
                continue;
            }
            if self.watch() {
                // Not at the cost of anybody who has something to do.
                std::thread::yield_now();
            } else if self.spinning.looks_on() {
                std::hint::spin_loop();
            } else {
                // A claim that was not noticed is in front of the last look.
                self.stop_watching();
                self.park();
                self.spinning.slept();
            }
        }
    }

    /// Whether to look on, for what the log tells in less time than it takes to fall asleep and be woken. One worker
    /// does, of the node that is told. It stays on watch when it spins on, until it is busy or sleeps: it may have been
    /// claimed for something by then.
    fn watch(&mut self) -> bool {
        let told = self.runtime.log().and_then(|log| log.about_to_tell());
        if told.is_none_or(|node| self.runtime.acting_node(node).id != self.node) {
            return false;
        }
        let watches = self.runtime.node(self.node).sleepers.watch(self.index);
        if watches && !self.watches {
            self.runtime.counters.add(Event::Watches, 1);
        }
        self.watches = watches;
        watches
    }

    /// Returns whether it watched.
    fn stop_watching(&mut self) -> bool {
        let watched = std::mem::take(&mut self.watches);
        if watched {
            self.runtime.node(self.node).sleepers.stop_watching(self.index);
        }
        watched
    }

    /// To be said in front of anything that may take long: whoever does it does not look for other work. What there is
    /// beside it, which this worker may have been claimed for as the one who watches, others are woken for.
    fn be_busy(&mut self) {
        if self.stop_watching() {
            let own = std::iter::once(self.node);
            for node in own.chain(self.runtime.helpers.helped_by(self.node)).map(|node| self.runtime.node(node)) {
                if node.has_work() {
                    self.runtime.wake_others(node.id);
                }
            }
        }
    }

    /// Does a bounded amount of work; returns whether there was any.
    pub fn step(&mut self) -> bool {
        count_as(self.number);
        let own = std::mem::replace(&mut self.outbox, Outbox::new(self.node));
        let before = swap_outbox(Some(own));
        let watched = self.watches;
        let worked = self.play_roles();
        let Some(outbox) = swap_outbox(before) else { unreachable!("a step leaves its outbox in place") };
        self.outbox = outbox;
        if !worked || self.steps.is_multiple_of(MAINTENANCE_SHARE) || self.runtime.memory_is_awaited() {
            drop(self.outbox.take_views(!worked));
            self.give_back_if_asked();
        }
        let flushed = self.runtime.flush(&mut self.outbox);
        let coordinated = self.runtime.node(self.node).coordinate(&self.runtime);
        let helped = (!worked || self.steps.is_multiple_of(MAINTENANCE_SHARE)) && self.help_coordinate();
        let worked = worked || flushed || coordinated || helped || !self.outbox.messages.is_empty();
        if worked {
            self.spinning.step_worked(!watched);
        } else {
            self.spinning.step_in_vain();
        }
        worked
    }

    /// Of a worker that takes no more steps: messages that found no room when it took its last one go on if they find
    /// some now, and its views pin no table any more; returns whether any message went.
    pub fn hand_out(&mut self) -> bool {
        drop(self.outbox.take_views(true));
        self.runtime.flush(&mut self.outbox)
    }

    fn play_roles(&mut self) -> bool {
        let runtime = self.runtime.clone();
        let node = runtime.node(self.node);
        self.steps += 1;
        let mut worked = false;
        let mut begun = runtime.env.now();
        // The first task that a timer or a socket makes ready is polled right below, so nobody is woken for it.
        keep_work(1);
        let others_first = self.keeper.leaves_tasks() && node.has_long_work();
        let patience = if others_first { PATIENCE } else { Duration::ZERO };
        worked |= node.fire_timers_late_by(&runtime, patience);
        // A request that arrives beside long work waits for one piece of it, not for one in each of several steps.
        let is_due = begun >= self.polled + runtime.options.quantum;
        if is_due || self.steps.is_multiple_of(REACTOR_SHARE) || self.spinning.is_idle() {
            worked |= self.poll_sockets(Some(Duration::ZERO));
            self.polled = begun;
            begun = runtime.env.now();
        }
        keep_work(0);
        if self.steps.is_multiple_of(MEMORY_SHARE) {
            runtime.watch_memory();
            begun = runtime.env.now();
        }
        if node.is_given_up() {
            return worked;
        }
        let (any, now) = self.run_tasks(&runtime, node, begun, patience);
        self.keeper.count_tasks(&node.keepers, any, begun, now);
        worked |= any;
        // Tasks that are still ready are behind: only some steps do long work beside them.
        let behind = node.tasks.own_len() > 0 && !self.steps.is_multiple_of(LONG_WORK_SHARE);
        let leaves = !behind && self.keeper.leaves_long_work(&node.keepers, now);
        if leaves && node.has_long_work() {
            // Whoever queued it may have relied on this worker.
            runtime.wake_others(self.node);
        }
        let least = if behind || leaves {
            Urgency::Urgent
        } else {
            worked |= self.run_piece(&runtime, node);
            Urgency::Later
        };
        worked |= self.visit_partitions(&runtime, node, least);
        if (!worked || self.steps.is_multiple_of(MAINTENANCE_SHARE) || runtime.memory_is_awaited())
            && let Some(partition) = node.maintenance.pop()
        {
            self.be_busy();
            runtime.counters.add(Event::MaintenanceCalls, 1);
            maintain(&runtime, &partition);
            worked = true;
        }
        // Who was given up gets its share also from a successor that is busy.
        if !worked || self.steps.is_multiple_of(MAINTENANCE_SHARE) {
            worked |= self.help(&runtime, worked);
        }
        worked
    }

    /// Polls the tasks that are ready, and those that they and timers make ready; returns whether there were any, and
    /// the time then. Tasks are short: they wait for one quantum of partitions at most, and get the larger share if
    /// they are many. With `patience` what is not late by so much is left to others.
    fn run_tasks(&mut self, runtime: &Arc<Runtime>, node: &Node, begun: Nanos, patience: Duration) -> (bool, Nanos) {
        let mut now = begun;
        let quantum = Quantum::start_several(runtime, now, TASK_QUANTA);
        let mut worked = false;
        for round in 0.. {
            if round > 0 {
                now = runtime.env.now();
                if quantum.is_over_at(now) {
                    break;
                }
                // Who is due by now does not wait for the partitions' quantum.
                keep_work(1);
                let fired = node.fire_timers_late_by(runtime, patience);
                keep_work(0);
                worked |= fired;
                // Others may have taken what the timers made ready; that is no reason to go on for ever.
                if !fired && round >= TASK_ROUNDS {
                    break;
                }
            }
            let due = if patience.is_zero() { node.tasks.due() } else { node.tasks.due_if_behind() };
            for _ in 0..STEP_TASKS_MAX.min(due) {
                let Some(task) = node.tasks.pop() else { break };
                self.be_busy();
                now = poll(runtime, &task, now);
                worked = true;
                if quantum.is_over_at(now) {
                    return (true, now);
                }
            }
        }
        (worked, now)
    }

    /// Polls a task that goes on with a piece of long work: one a step, however many others are ready.
    fn run_piece(&mut self, runtime: &Arc<Runtime>, node: &Node) -> bool {
        let Some(task) = node.pieces.pop() else { return false };
        self.be_busy();
        poll(runtime, &task, runtime.env.now());
        true
    }

    /// Visits partitions that are at least as urgent, for a quantum; returns whether anything could be done. A scan
    /// that let go of its partition for somebody goes on within the same quantum: it gives way, but its share of the
    /// worker stays.
    fn visit_partitions(&mut self, runtime: &Runtime, node: &Node, least: Urgency) -> bool {
        if node.assignments.is_empty() {
            return false;
        }
        let quantum = Quantum::start(runtime);
        let (mut visited, mut in_vain) = (0, 0);
        while visited < STEP_VISITS_MAX && in_vain < STEP_VISITS_IN_VAIN_MAX {
            let Some((partition, urgency)) = node.assignments.pop(self.steps, least) else { break };
            self.be_busy();
            if visit(runtime, &partition, urgency, &quantum) {
                visited += 1;
            } else {
                in_vain += 1;
            }
            if quantum.is_over() {
                break;
            }
        }
        visited > 0
    }

    /// Does a piece of each kind of work for the nodes that this one helps.
    fn help(&mut self, runtime: &Arc<Runtime>, busy: bool) -> bool {
        let mut helped = false;
        for node in runtime.helpers.helped_by(self.node).map(|node| runtime.node(node)) {
            if busy && !node.is_given_up() {
                continue;
            }
            helped |= node.fire_timers(runtime);
            if let Some(task) = node.tasks.pop_any().or_else(|| node.pieces.pop()) {
                self.be_busy();
                poll(runtime, &task, runtime.env.now());
                runtime.count_help();
                helped = true;
            }
            let assigned = node.assignments.pop(self.steps, Urgency::Later);
            if assigned.is_some() {
                self.be_busy();
            }
            if assigned
                .is_some_and(|(partition, urgency)| visit(runtime, &partition, urgency, &Quantum::start(runtime)))
            {
                runtime.count_help();
                helped = true;
            } else if let Some(partition) = node.maintenance.pop() {
                // Also behind a visit in vain: it may be what commands there wait for.
                self.be_busy();
                maintain(runtime, &partition);
                runtime.count_help();
                helped = true;
            }
        }
        helped
    }

    /// Moves the messages of the nodes that this one helps.
    fn help_coordinate(&self) -> bool {
        let runtime = &self.runtime;
        let mut moved = false;
        for node in runtime.helpers.helped_by(self.node) {
            moved |= runtime.node(node).coordinate(runtime);
        }
        moved
    }

    fn poll_sockets(&mut self, timeout: Option<Duration>) -> bool {
        // An interrupted or failed poll is an empty one; the next step polls again.
        self.reactor.poll(timeout).is_ok_and(|events| events > 0)
    }

    /// Sleeps until someone claims this worker, a socket is ready or a timer is due.
    fn park(&mut self) {
        let runtime = self.runtime.clone();
        let node = runtime.node(self.node);
        let until_timer = || {
            let now = runtime.env.now();
            let helped = runtime.helpers.helped_by(self.node).filter_map(|node| runtime.node(node).timers.next());
            let next = helped.chain(node.timers.next()).min();
            next.map(|deadline| Duration::from_nanos(deadline.0.saturating_sub(now.0)))
        };
        if until_timer().is_some_and(|timeout| timeout < SLEEP_MIN) {
            return;
        }
        node.sleepers.announce(self.index);
        // Announced first, then looked: whoever publishes work or a timer after this look sees the announcement.
        let mut helped = runtime.helpers.helped_by(self.node).map(|node| runtime.node(node));
        if node.has_work() || helped.any(Node::has_work) || runtime.is_halted() {
            node.sleepers.retract(self.index);
            // What there is to do is in the hands of somebody who may have lost its processor, perhaps to this thread.
            std::thread::yield_now();
            return;
        }
        runtime.counters.add(Event::Parks, 1);
        // Nobody looks while all sleep: what the work left behind is seen now.
        runtime.watch_memory();
        self.keeper.sleeps(&node.keepers);
        let mut timeout = until_timer();
        let (started, keeps_memory) = (runtime.env.now(), std::mem::take(&mut self.keeps_memory));
        if keeps_memory {
            timeout = Some(timeout.map_or(IDLE, |timeout| timeout.min(IDLE)));
        }
        if timeout.is_none_or(|timeout| !timeout.is_zero()) {
            // What wakes this worker is its own to do: nobody else is woken for it.
            let mut own = Outbox::new(self.node);
            own.keep = 1;
            let before = swap_outbox(Some(own));
            self.poll_sockets(timeout);
            swap_outbox(before);
        }
        let claimed = !node.sleepers.retract(self.index);
        // Who was idle for so long may be for longer, unless it was woken just now.
        self.polled = runtime.env.now();
        let idle = !claimed && self.polled >= started + IDLE && !node.has_work();
        self.keeps_memory = keeps_memory && !idle;
        if keeps_memory && idle {
            allocator::give_back();
        }
    }

    fn give_back_if_asked(&mut self) {
        let asked = allocator::asked();
        if std::mem::replace(&mut self.asked, asked) != asked {
            allocator::give_back();
        }
    }
}

/// Polls a task; returns the time then. `now` is the time before: of the last look at the clock, so that a poll costs
/// one.
fn poll(runtime: &Runtime, task: &Arc<Task>, now: Nanos) -> Nanos {
    task.poll(runtime);
    let then = runtime.env.now();
    if then > now + runtime.options.quantum * LONG_POLL_QUANTA {
        runtime.counters.add(Event::LongPolls, 1);
    }
    then
}
