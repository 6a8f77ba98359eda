//! A command inside its partition: the message, its dataflow and how far it got.

use std::sync::Arc;

use eris_storage::{AttachCursor, Batch, IndexBuildCursor, ReadCursor, SealedSegment};

use super::lookup::{Gathered, LookingUp};
use crate::dataflow::Dataflow;
use crate::lookup::ArrivedKeys;
use crate::message::{Class, Message};
use crate::operator::OperatorState;

use super::within::Within;

/// A message that reached its partition.
pub(crate) struct Command {
    pub message: Message,
    pub dataflow: Arc<Dataflow>,
    /// How many messages it stands for: what its end is worth to the dataflow's counter.
    pub messages: usize,
    pub progress: Progress,
}

/// What a command saves between two quanta.
pub(crate) enum Progress {
    Fresh,
    Reading {
        cursor: ReadCursor,
        state: Box<dyn OperatorState>,
        within: Option<Within>,
    },
    Changing {
        cursor: ReadCursor,
        within: Option<Within>,
    },
    /// Keys of all messages that it stands for.
    Gathered(Box<ArrivedKeys>),
    LookingUp(Box<LookingUp>),
    /// Attachments still to do are in `pending`, last first.
    Inserting {
        pending: Vec<u32>,
        rows: Batch,
        done: usize,
    },
    Attaching {
        pending: Vec<u32>,
        segment: Arc<SealedSegment>,
        cursor: AttachCursor,
    },
    BuildingIndex {
        cursor: IndexBuildCursor,
    },
}

impl Command {
    pub fn new(message: Message, dataflow: Arc<Dataflow>) -> Self {
        Self { message, dataflow, messages: 1, progress: Progress::Fresh }
    }

    /// One command for several messages with keys.
    pub fn of_keys(gathered: Gathered) -> Self {
        let Gathered { dataflow, header, messages, keys } = gathered;
        Self { message: Message::new(header, &[]), dataflow, messages, progress: Progress::Gathered(Box::new(keys)) }
    }

    /// How urgent it is. A read that was not done within a quantum may take hours: it is none of the short ones.
    pub fn class(&self) -> Class {
        let class = self.message.header.primitive.class();
        match self.progress {
            Progress::Reading { .. } | Progress::LookingUp(_) => class.max(Class::Scan),
            _ => class,
        }
    }

    /// Whether it is between two quanta: it holds a cursor, or a part of its rows is written.
    pub fn has_started(&self) -> bool {
        !matches!(self.progress, Progress::Fresh | Progress::Gathered(_))
    }
}
