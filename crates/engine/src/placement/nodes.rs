//! Nodes that help others, and nodes that are given up.
//!
//! **Help.** By order of a controller the workers of one node look, when they have nothing to do, into the queues of
//! another: tasks, partitions, maintenance, timers, its coordinator's buffers. A partition does not care who holds its
//! latch, a task not who polls it; only memory is farther away. Off by default.
//!
//! **Giving a node up.** The topology shrinks: the node takes nothing new, its partitions are linked to the other
//! nodes, what waits in its queues moves to its *successor*, and for what comes late the successor helps it for ever.
//! Its workers, if they still run, hand out what they have buffered and do nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use eris_platform::NodeId;

use super::error::PlacementError;
use super::orders::link;
use crate::assignments::Urgency;
use crate::counters::Event;
use crate::engine::Engine;
use crate::runtime::Runtime;

const NOBODY: u16 = u16::MAX;

/// Who helps whom.
pub(crate) struct Helpers {
    /// By node: the node that helps it.
    helper_of: Box<[AtomicU16]>,
    /// Whether anybody helps anybody.
    any: AtomicBool,
}

impl Helpers {
    pub fn new(nodes: usize) -> Self {
        Self { helper_of: (0..nodes).map(|_| AtomicU16::new(NOBODY)).collect(), any: AtomicBool::new(false) }
    }

    fn set(&self, helped: NodeId, helper: Option<NodeId>) {
        self.helper_of[usize::from(helped.0)].store(helper.map_or(NOBODY, |helper| helper.0), Ordering::SeqCst);
        let any = self.helper_of.iter().any(|helper| helper.load(Ordering::SeqCst) != NOBODY);
        self.any.store(any, Ordering::SeqCst);
    }

    pub fn helper_of(&self, helped: NodeId) -> Option<NodeId> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let helper = self.helper_of[usize::from(helped.0)].load(Ordering::SeqCst);
        (helper != NOBODY).then_some(NodeId(helper))
    }

    /// The nodes that this one helps.
    pub fn helped_by(&self, helper: NodeId) -> impl Iterator<Item = NodeId> {
        let nodes = if self.any.load(Ordering::Acquire) { self.helper_of.len() } else { 0 };
        let helps = move |node: &usize| self.helper_of[*node].load(Ordering::SeqCst) == helper.0;
        (0..nodes).filter(helps).map(|node| NodeId(node as u16))
    }
}

impl Engine {
    /// Has the workers of `helper`, when they have nothing to do, take work from the queues of `helped`. A node has at
    /// most one helper; the last order counts.
    pub fn set_help(&self, helper: NodeId, helped: NodeId) -> Result<(), PlacementError> {
        let runtime = self.runtime();
        for node in [helper, helped] {
            if usize::from(node.0) >= runtime.nodes.len() || runtime.node(node).is_given_up() {
                return Err(PlacementError::NoSuchNode(node));
            }
        }
        runtime.helpers.set(helped, (helper != helped).then_some(helper));
        if runtime.node(helped).has_work() {
            runtime.wake_node(helper);
        }
        Ok(())
    }

    /// Nobody helps the node any more.
    pub fn end_help(&self, helped: NodeId) -> Result<(), PlacementError> {
        self.set_help(helped, helped)
    }

    /// Gives a node up: everything on it moves to the other nodes, and nothing is placed there any more. Its workers
    /// may have stopped, but not in the middle of a step.
    pub fn evacuate_node(&self, node: NodeId) -> Result<(), PlacementError> {
        let runtime = self.runtime();
        if usize::from(node.0) >= runtime.nodes.len() || runtime.node(node).is_given_up() {
            return Err(PlacementError::NoSuchNode(node));
        }
        let mut others = runtime.nodes.iter().filter(|other| other.id != node && !other.is_given_up());
        let successor = others.next().ok_or(PlacementError::LastNode)?.id;
        // First nothing new is sent there, then what is there leaves; what was decided before and arrives later is the
        // helper's.
        let before: Vec<NodeId> = runtime.helpers.helped_by(node).collect();
        runtime.helpers.set(node, Some(successor));
        runtime.node(node).give_up();
        for helped in before {
            runtime.helpers.set(helped, (helped != successor).then_some(successor));
        }
        self.move_partitions_away(node, successor);
        move_queues(runtime, node, successor);
        runtime.wake_node(successor);
        Ok(())
    }

    fn move_partitions_away(&self, node: NodeId, successor: NodeId) {
        let runtime = self.runtime();
        for container in runtime.containers() {
            let table = container.table();
            for partition in table.partitions().filter(|partition| partition.home() == node) {
                // One that gives everything away at this moment is a forwarder, which follows below.
                let _ = link(runtime, &container, partition, runtime.next_node());
            }
            for forwarder in container.forwarders() {
                if forwarder.home() == node {
                    forwarder.set_home(successor);
                }
            }
        }
    }
}

fn move_queues(runtime: &Arc<Runtime>, node: NodeId, successor: NodeId) {
    let (from, to) = (runtime.node(node), runtime.node(successor));
    while let Some(task) = from.tasks.pop_any() {
        task.set_node(successor);
        to.push_task(task);
    }
    while let Some(task) = from.pieces.pop() {
        task.set_node(successor);
        to.push_piece(task);
    }
    while let Some((partition, urgency)) = from.assignments.pop(1, Urgency::Later) {
        runtime.acting_node(partition.home()).assignments.push(partition, urgency);
    }
    while let Some(partition) = from.maintenance.pop() {
        runtime.acting_node(partition.carer()).maintenance.push(partition);
    }
    from.timers.move_to(&to.timers);
    runtime.nodes.iter().for_each(|node| runtime.wake_node(node.id));
}

impl Runtime {
    /// The node, or the one that took its place.
    pub fn acting_node(&self, node: NodeId) -> &crate::node::Node {
        let mut acting = self.node(node);
        // A successor may have been given up, too; its own successor then helps both.
        while acting.is_given_up()
            && let Some(successor) = self.helpers.helper_of(acting.id)
        {
            acting = self.node(successor);
        }
        acting
    }

    /// Notes work done for another node.
    pub fn count_help(&self) {
        self.counters.add(Event::Helped, 1);
    }
}
