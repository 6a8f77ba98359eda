//! How models are explored.
//!
//! loom prunes interleavings by remembering only the *last* access to an atomic. When one thread's loads come
//! before another's load and store of the same atomic, the second thread's own load hides the first's, and the order
//! "store first" is never tried. So models run all their work in spawned threads, and are explored once in
//! each spawning order: in one of them the store comes first by itself.

/// Explores `model` in both spawning orders with at most three preemptions each.
pub fn explore(model: impl Fn(bool) + Clone + Send + Sync + 'static) {
    for reversed in [false, true] {
        let model = model.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || model(reversed));
    }
}

/// Runs all at once; their results in order.
pub fn run<R: 'static>(threads: Vec<Box<dyn FnOnce() -> R + Send>>) -> Vec<R> {
    let handles: Vec<_> = threads.into_iter().map(loom::thread::spawn).collect();
    handles.into_iter().map(|handle| handle.join().unwrap()).collect()
}
