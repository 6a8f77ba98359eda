//! Weakens one ordering of the models, `ERIS_LOOM_WEAK=try_latch_try`, without building what they depend on again.

fn main() {
    println!("cargo::rerun-if-env-changed=ERIS_LOOM_WEAK");
    // Only for models: nothing else may ever run with a weakened ordering.
    if let (Ok(name), Some(_)) = (std::env::var("ERIS_LOOM_WEAK"), std::env::var_os("CARGO_CFG_LOOM")) {
        println!("cargo::rustc-cfg=loom_weak=\"{name}\"");
    }
}
