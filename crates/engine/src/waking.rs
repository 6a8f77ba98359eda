//! Who is woken for what there is to do.
//!
//! For work that anybody of a node can do: the worker who watches, whom nobody has to unpark, or a sleeper; if neither
//! is there, one of the node that helps. For a timer: a sleeper, who has to shorten its sleep.

use eris_platform::NodeId;
use eris_sync::Claimed;

use crate::runtime::{Runtime, keeps_work};

impl Runtime {
    /// Wakes one sleeping worker of the node, unless the current one is about to do the work itself.
    pub fn wake_node(&self, node: NodeId) {
        if !keeps_work(node) {
            self.wake_others(node);
        }
    }

    /// Wakes one sleeping worker of the node, or of the one that helps it.
    pub fn wake_others(&self, node: NodeId) {
        if !self.wake_worker(node)
            && let Some(helper) = self.helpers.helper_of(node)
        {
            self.wake_worker(helper);
        }
    }

    /// A timer began that may be due before any other: a sleeping worker of the node has to shorten its sleep. One who
    /// watches need not be told, and may have something else to do by then.
    pub fn wake_for_timer(&self, node: NodeId) {
        if !self.shorten_sleep(node)
            && let Some(helper) = self.helpers.helper_of(node)
        {
            self.shorten_sleep(helper);
        }
    }

    fn shorten_sleep(&self, node: NodeId) -> bool {
        let node = self.node(node);
        let sleeper = node.sleepers.claim_one_of(0..node.sleepers.workers());
        if let Some(index) = sleeper {
            node.reactors[index].unpark();
        }
        sleeper.is_some()
    }

    fn wake_worker(&self, node: NodeId) -> bool {
        let node = self.node(node);
        let claimed = node.sleepers.claim_one();
        if let Some(Claimed::Sleeper(index)) = claimed {
            node.reactors[index].unpark();
        }
        claimed.is_some()
    }
}
