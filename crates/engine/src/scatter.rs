//! Moving messages into the inboxes of their partitions: one append per partition, however many messages there are.
//!
//! ```text
//!   bytes:  [m -> 4][m -> 7][m -> 4][m -> 4][m -> 9]
//!   groups: 4: [m][m][m]    7: [m]    9: [m]   --> inboxes, or the outgoing buffers of other nodes
//! ```
//! A partition is looked up once per pass. Groups keep the order of first appearance, so a run repeats itself.

use eris_platform::NodeId;
use eris_storage::PartitionId;

use crate::assignments::Urgency;
use crate::message::Envelope;
use crate::partition::Partition;
use crate::runtime::Runtime;

/// Buffers of groups kept for the next pass at most, and the largest that is kept.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 256 << 10;

/// Groups messages by target. Empty between two passes.
#[derive(Default)]
pub(crate) struct Scatter {
    /// By partition id: one more than the place of its group, 0 if it has none.
    places: Vec<u32>,
    groups: Vec<Group>,
    spare: Vec<Vec<u8>>,
}

struct Group {
    partition: Partition,
    bytes: Vec<u8>,
    messages: usize,
    /// How many of them are as urgent as a point access, or more.
    urgent: usize,
}

impl Scatter {
    /// Adds every addressed message; gives the others (for several partitions) to `broadcast`.
    pub fn add_all(&mut self, runtime: &Runtime, bytes: &[u8], mut broadcast: impl FnMut(&mut Self, &[u8])) {
        let mut at = 0;
        while at < bytes.len() {
            let Envelope { length, target } = Envelope::of(&bytes[at..]);
            let message = &bytes[at..at + length];
            match target {
                Some(target) => self.add(runtime, target, message),
                None => broadcast(self, message),
            }
            at += length;
        }
    }

    fn add(&mut self, runtime: &Runtime, target: PartitionId, message: &[u8]) {
        let place = match self.places.get(target.0 as usize) {
            Some(place) if *place > 0 => *place as usize - 1,
            _ => self.new_group(runtime.partition(target)),
        };
        let group = &mut self.groups[place];
        group.bytes.extend_from_slice(message);
        group.messages += 1;
        group.urgent += usize::from(Envelope::is_urgent(message));
    }

    /// Adds a copy of a broadcast for one partition.
    pub fn add_copy(&mut self, partition: &Partition, message: &[u8]) {
        let place = match self.places.get(partition.id.0 as usize) {
            Some(place) if *place > 0 => *place as usize - 1,
            _ => self.new_group(Partition::clone(partition)),
        };
        let group = &mut self.groups[place];
        let start = group.bytes.len();
        group.bytes.extend_from_slice(message);
        Envelope::readdress(&mut group.bytes[start..], partition.id);
        group.messages += 1;
        group.urgent += usize::from(Envelope::is_urgent(message));
    }

    fn new_group(&mut self, partition: Partition) -> usize {
        let id = partition.id.0 as usize;
        if self.places.len() <= id {
            self.places.resize(id + 1, 0);
        }
        let bytes = self.spare.pop().unwrap_or_default();
        self.groups.push(Group { partition, bytes, messages: 0, urgent: 0 });
        self.places[id] = self.groups.len() as u32;
        self.groups.len() - 1
    }

    /// Puts the groups of partitions of `node` into their inboxes and has workers look at them; gives the others to
    /// `remote`. Returns how many messages were delivered.
    pub fn deliver(&mut self, runtime: &Runtime, node: NodeId, mut remote: impl FnMut(NodeId, &[u8], usize)) -> usize {
        let mut delivered = 0;
        for Group { partition, mut bytes, messages, urgent } in self.groups.drain(..) {
            self.places[partition.id.0 as usize] = 0;
            let home = partition.home();
            if home == node {
                partition.push(&bytes, messages, urgent);
                runtime.visit(&partition, if urgent > 0 { Urgency::Urgent } else { Urgency::Later });
                delivered += messages;
            } else {
                remote(home, &bytes, messages);
            }
            if self.spare.len() < SPARE_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eris_storage::{
        Attribute, AttributeId, ContainerId, DataType, Layout, Schema, SchemaVersion, StatementNumber, TransactionId,
    };

    use super::*;
    use crate::container::ContainerSpec;
    use crate::ids::{DataflowId, OperatorIndex, TableVersion};
    use crate::message::{Header, Message, MessageView, Primitive};
    use crate::options::EngineOptions;
    use crate::partition_table::Partitioning;
    use crate::simulator::Simulation;

    /// An engine of two nodes with a container of so many partitions, in turn on one and the other.
    fn engine(partitions: usize) -> (Simulation, Vec<Partition>) {
        let options = EngineOptions { workers: 2, nodes: 2, ..EngineOptions::default() };
        let simulation = Simulation::new(1, options).expect("starts");
        let key = Attribute { name: "key".into(), data_type: DataType::Int64, nullable: false };
        let schema = Arc::new(Schema {
            container: simulation.engine().next_container_id(),
            version: SchemaVersion(1),
            attributes: Box::new([key]),
            indexes: Box::new([]),
            layout: Layout::Column,
            physical: None,
            segment_rows: 16,
        });
        let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions };
        let container = simulation.engine().create_container(ContainerSpec { schema, partitioning }).expect("created");
        let partitions = container.table().partitions().cloned().collect();
        (simulation, partitions)
    }

    /// Appends a message; `number` tells it from the others.
    fn append(bytes: &mut Vec<u8>, target: Option<PartitionId>, primitive: Primitive, number: u32) {
        let header = Header {
            primitive,
            operator: OperatorIndex(0),
            target,
            container: ContainerId(1),
            schema_version: SchemaVersion(1),
            table_version: TableVersion(1),
            dataflow: DataflowId(1),
            transaction: TransactionId(1),
            statement: StatementNumber(number),
            source: NodeId(0),
            forwarded: false,
            range: None,
        };
        Message::new(header, &[&number.to_le_bytes()]).encode(bytes);
    }

    fn numbers(mut bytes: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let (message, length) = MessageView::decode(bytes).expect("whole messages");
            found.push(message.header.statement.0);
            bytes = &bytes[length..];
        }
        found
    }

    #[test]
    fn messages_for_one_partition_are_appended_at_once() {
        let (simulation, partitions) = engine(4);
        let runtime = simulation.engine().runtime();
        let node = partitions[0].home();
        let far = partitions[1].home();
        assert_eq!([partitions[2].home(), partitions[3].home()], [node, far], "they lie in turn");
        let mut scatter = Scatter::default();
        // A second pass begins with nothing of the first.
        for pass in 1..=2 {
            let mut bytes = Vec::new();
            for (number, target) in [0, 1, 0, 2, 3, 0, 1, 0].into_iter().enumerate() {
                let primitive = if target == 2 { Primitive::UnorderedScan } else { Primitive::Insert };
                append(&mut bytes, Some(partitions[target].id), primitive, number as u32);
            }
            append(&mut bytes, None, Primitive::UnorderedScan, 8);
            let mut broadcasts = Vec::new();
            scatter.add_all(runtime, &bytes, |_, message| broadcasts.extend(numbers(message)));
            assert_eq!(broadcasts, [8]);
            let mut remote = Vec::new();
            let delivered = scatter.deliver(runtime, node, |to, bytes, messages| {
                remote.push((to, numbers(bytes), messages));
            });
            assert_eq!(delivered, 5, "of two partitions here");
            assert_eq!(remote, [(far, vec![1, 6], 2), (far, vec![4], 1)], "one piece for each partition");
            let counts = [0, 1, 2, 3].map(|partition: usize| partitions[partition].inbox_counts());
            assert_eq!(counts, [(pass, 4 * pass), (0, 0), (pass, pass), (0, 0)], "(appends, messages)");
        }
        let urgency = [0, 2].map(|partition: usize| partitions[partition].inbox_urgency());
        assert_eq!(urgency, [Some(Urgency::Urgent), Some(Urgency::Later)]);
    }
}
