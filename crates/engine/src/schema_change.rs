//! Changes of a container's schema: an index comes or goes.
//!
//! ```text
//!   partitions build the index --> partitions move to the new schema --> the container does
//!        `-- one cannot ---------------> partitions move back       --> the container stays as it was
//! ```
//! One at a time for each container, and in a task of its own: whoever asked may cease to wait, and neither the
//! container nor a partition is left in between.

use std::future::Future;
use std::sync::Arc;

use eris_storage::{IndexDefinition, Schema, StorageError};

use crate::cancel::CancelHandle;
use crate::container::Container;
use crate::definition::Definition;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::table_locks::TableLockMode;
use crate::ticket::Ticket;
use crate::transaction::{Transaction, until_visible};

impl Engine {
    /// Builds an index in every partition, then moves the container to `schema`, which has it. Waits for transactions
    /// that write to the container, and keeps new ones out meanwhile. If a partition cannot (a key is not unique,
    /// memory, [`Transaction::create_index`] was cancelled), the container stays as it was. It goes on if the future is
    /// dropped.
    ///
    /// # Errors
    /// [`StorageError::Busy`] while another change of the container's schema is under way.
    pub async fn create_index(&self, definition: IndexDefinition, schema: Arc<Schema>) -> Result<(), EngineError> {
        let mut transaction = self.begin();
        transaction.create_index(definition, schema).await?;
        transaction.commit().await.map(drop)
    }

    /// The same while somebody keeps writers out, or there are none. `cancel` ends it while the index is being built.
    pub(crate) async fn add_index(
        &self,
        definition: IndexDefinition,
        schema: Arc<Schema>,
        cancel: CancelHandle,
    ) -> Result<(), EngineError> {
        let container = self.runtime().container(schema.container)?;
        let engine = self.clone();
        let change = {
            let container = Arc::clone(&container);
            async move {
                let before = container.schema();
                let mut transaction = engine.begin_internal();
                transaction.set_cancel(cancel);
                let built = transaction.build_index(&container, definition).await;
                // All partitions get one schema, the new one or the one before.
                transaction.set_cancel(CancelHandle::default());
                let built = match built {
                    Ok(()) => transaction.alter(&container, Arc::clone(&schema)).await,
                    Err(error) => Err(error),
                };
                if built.is_ok() {
                    // What the partitions took for gone is gone for every snapshot from here on: a snapshot of what
                    // exists, taken when the index does, has no two rows of one key.
                    let transactions = &engine.runtime().transactions;
                    until_visible(transactions, transactions.last_taken()).await;
                }
                let established = built.and_then(|()| {
                    let definitions = engine.begin_definition();
                    definitions.note(|| Definition::Schema(Arc::clone(&schema)))?;
                    container.set_schema(Arc::clone(&schema));
                    Ok(())
                });
                match established {
                    Ok(()) => {}
                    Err(error) => {
                        transaction.alter(&container, before).await?;
                        return Err(error);
                    }
                }
                transaction.commit().await.map(drop)
            }
        };
        self.change_schema(container, change).await
    }

    /// Moves a container to a schema with the same attributes and fewer indexes. It goes on if the future is dropped.
    ///
    /// # Errors
    /// [`EngineError::ForeignKey`] if a foreign key relies on one of them; [`StorageError::Busy`] while another change
    /// of the container's schema is under way.
    pub async fn drop_index(&self, schema: Arc<Schema>) -> Result<(), EngineError> {
        let container = self.runtime().container(schema.container)?;
        Self::check_keeps_keys(&container, &schema)?;
        let engine = self.clone();
        let change = {
            let container = Arc::clone(&container);
            async move {
                let mut transaction = engine.begin_internal();
                {
                    let definitions = engine.begin_definition();
                    definitions.note(|| Definition::Schema(Arc::clone(&schema)))?;
                    container.announce_schema(Arc::clone(&schema));
                }
                transaction.alter(&container, Arc::clone(&schema)).await?;
                container.set_schema(schema);
                transaction.commit().await.map(drop)
            }
        };
        self.change_schema(container, change).await
    }

    async fn change_schema(
        &self,
        container: Arc<Container>,
        change: impl Future<Output = Result<(), EngineError>> + Send + 'static,
    ) -> Result<(), EngineError> {
        let Some(turn) = Turn::of(container) else {
            let reason = "another change of the container's schema is under way";
            return Err(StorageError::Busy { reason }.into());
        };
        let ticket = Ticket::new();
        let end = End(ticket.clone());
        self.spawn(async move {
            let outcome = change.await;
            drop(turn);
            end.0.resolve(outcome);
        });
        ticket.outcome().await
    }
}

impl Transaction {
    /// [`Engine::create_index`] beside what the transaction itself has written: it keeps
    /// [`Share`](TableLockMode::Share) until it ends. The index stays, whatever becomes of the transaction.
    ///
    /// # Errors
    /// As there, and as [`Transaction::lock_table`].
    pub async fn create_index(&mut self, definition: IndexDefinition, schema: Arc<Schema>) -> Result<(), EngineError> {
        self.lock_table(schema.container, TableLockMode::Share).await?;
        self.engine().add_index(definition, schema, self.cancel_handle()).await
    }
}

/// The right to change a container's schema.
struct Turn(Arc<Container>);

impl Turn {
    fn of(container: Arc<Container>) -> Option<Self> {
        container.begin_schema_change().then_some(Self(container))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.end_schema_change();
    }
}

/// Tells whoever waits, even if the task ends early.
struct End(Ticket<Result<(), EngineError>>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.resolve(Err(EngineError::ShuttingDown));
    }
}
