//! What a panic inside a partition stops: a read that panics fails its query; a panic while rows are being changed
//! stops the process, because nobody could say what state they are in (the log is what recovers them).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use eris_platform::messages::tell;
use eris_storage::StorageError;

use super::{LivingPartition, PartitionState};
use crate::error::EngineError;
use crate::runtime::Runtime;
use crate::transactions::TransactionObject;

/// Changes rows and registers the transaction with this partition's first word of it, also when the change failed
/// half-way: the words it left behind name the transaction. Also for commands that a task runs in place.
pub(crate) fn write_registered<T>(
    runtime: &Runtime,
    partition: &LivingPartition,
    state: &mut PartitionState,
    object: &Arc<TransactionObject>,
    change: impl FnOnce(&mut PartitionState) -> Result<T, StorageError>,
) -> Result<T, EngineError> {
    let known = state.store.has_pending(object.id);
    let result = stop_on_panic(|| change(state));
    if !known && state.store.has_pending(object.id) {
        runtime.transactions.touch(object, partition.id);
    }
    result.map_err(EngineError::from)
}

/// Runs code that only reads: a panic becomes an error of the query.
pub(crate) fn contain_panic<T>(read: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| Err(EngineError::OperatorPanicked(panic_text(&*panic))))
}

/// Runs code that changes rows: a panic stops the process.
fn stop_on_panic<T>(change: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(change)).unwrap_or_else(|panic| {
        tell(format_args!("panic while a partition was being changed ({}); stopping", panic_text(&*panic)));
        std::process::abort()
    })
}

/// The message of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command as Process;

    use eris_platform::NodeId;
    use eris_storage::{ContainerId, PartitionId, Store};

    use super::*;
    use crate::options::EngineOptions;
    use crate::partition::Bounds;
    use crate::partition::tests::schema;
    use crate::simulator::Simulation;

    /// Set for the process that is to stop.
    const CHILD: &str = "ERIS_PANIC_IN_A_WRITE";
    const SIGABRT: i32 = 6;

    fn panic_in_a_write() {
        let simulation = Simulation::new(1, EngineOptions::default()).expect("starts");
        let runtime = simulation.engine().runtime();
        let dictionaries = runtime.dictionaries(ContainerId(1));
        let store = Store::new(runtime.store_options(&schema(), &dictionaries));
        let partition = LivingPartition::new(PartitionId(0), ContainerId(1), NodeId(0), store, Bounds::default());
        let mut state = partition.try_latch().expect("nobody else is here");
        let object = runtime.transactions.begin();
        // Whoever runs a task or a visit contains panics; this one must not get there.
        let contained = contain_panic(|| {
            write_registered(runtime, &partition, &mut state, &object, |_| -> Result<(), StorageError> {
                panic!("half of a change")
            })
        });
        println!("went on behind a change that panicked: {contained:?}");
    }

    #[test]
    fn a_panic_while_rows_are_changed_stops_the_process() {
        if std::env::var_os(CHILD).is_some() {
            return panic_in_a_write();
        }
        let (_crate, module) = module_path!().split_once("::").expect("a module of the crate");
        let name = format!("{module}::a_panic_while_rows_are_changed_stops_the_process");
        let this = std::env::current_exe().expect("a test is a program");
        let mut process = Process::new(this);
        let output = process.args(["--exact", &name, "--nocapture"]).env(CHILD, "1").output().expect("starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{}: {text}", output.status);
        assert!(
            text.contains("eris: panic while a partition was being changed (half of a change); stopping"),
            "{text}"
        );
    }
}
