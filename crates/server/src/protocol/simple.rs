//! The simple protocol: one Query message, any number of statements, results in text form.

use std::pin::pin;

use crate::protocol::backend::{Backend, Commit, Outcome, RowStream};
use crate::protocol::connection::Connection;
use crate::protocol::copy::copy_in;
use crate::protocol::frontend::{Format, Formats};
use crate::protocol::report::{Report, SqlState};
use crate::protocol::rows::Sender;
use crate::protocol::wire::{Failure, Transport, step_back};

impl<T: Transport, B: Backend> Connection<T, B> {
    /// Runs the statements one after the other; the first that fails ends the message.
    pub(crate) async fn simple(&mut self, mut script: B::Script) -> Result<(), Failure> {
        let mut statements = 0_u64;
        while let Some(statement) = self.backend.next_of(&mut script)? {
            let statement = &statement;
            if statements > 0 {
                // Planning one may take long, and running it may never wait.
                step_back().await;
            }
            statements += 1;
            if B::parameter_count(statement) > 0 {
                return Err(Report::error(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")
                    .with_hint("Parameters belong to the extended protocol: prepare the statement and bind them.")
                    .into());
            }
            self.wire.signal.statement_begins();
            let Some(tag) = self.simple_statement(statement).await? else {
                self.wire.reply.empty_query();
                continue;
            };
            self.wire.signal.statement_ends();
            for notice in self.backend.take_notices() {
                self.wire.reply.report(&notice);
            }
            self.complete(&tag);
        }
        if statements == 0 {
            self.wire.reply.empty_query();
        }
        self.ready().await
    }

    async fn simple_statement(&mut self, statement: &B::Statement) -> Result<Option<String>, Failure> {
        let wire = &mut self.wire;
        let outcome = wire.watch(pin!(self.backend.execute(statement, &[], Commit::WithText))).await?;
        match outcome {
            Outcome::Empty => Ok(None),
            Outcome::Complete(tag) => Ok(Some(tag)),
            Outcome::Rows(mut rows) => {
                if rows.has_ended() {
                    wire.signal.statement_ends();
                }
                let columns = rows.columns();
                let described = (0..B::column_count(&columns)).map(|index| (B::column(&columns, index), Format::Text));
                wire.reply.row_description(described)?;
                let mut sender = Sender::<B>::new(columns);
                sender.send(wire, &mut rows, &Formats::default(), None).await?;
                Ok(Some(wire.watch(pin!(rows.finish(sender.sent))).await?))
            }
            Outcome::CopyIn(sink) => copy_in(wire, sink).await.map(Some),
        }
    }
}
