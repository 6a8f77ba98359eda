//! Simulated scaling, small: what must hold of its counts whatever the schedule, and that a seed repeats itself.

#![expect(clippy::float_cmp, reason = "shares of whole counts, exact in the cases that are compared")]

use eris_workloads::kv::{Configuration, KvError, ScalingOptions, ScalingReport, Step, scaling};

const NODES: [usize; 4] = [1, 2, 4, 8];

fn options() -> ScalingOptions {
    ScalingOptions { nodes: NODES.to_vec(), pairs: 40_000, transactions_per_task: 1, ..ScalingOptions::default() }
}

fn found<'r>(report: &'r ScalingReport, partitioned: &str, locality: &str, coalescing: &str) -> &'r Configuration {
    let same = |one: &&Configuration| {
        one.partitioned == partitioned && one.locality == locality && one.coalescing == coalescing
    };
    let found = report.configurations.iter().find(same);
    found.unwrap_or_else(|| unreachable!("{partitioned}, {locality}, {coalescing} is simulated"))
}

/// What crosses distances adds up to what crosses nodes.
fn assert_adds_up(step: &Step) {
    let messages: f64 = step.by_distance.iter().map(|crossing| crossing.messages_per_lookup).sum();
    let remote = step.messages_per_lookup * step.remote_message_share;
    assert!((messages - remote).abs() < 1e-9, "{messages} of {remote} remote messages have a distance");
    let bytes = |crossing: &eris_workloads::kv::ByDistance| {
        crossing.message_bytes_per_lookup + crossing.answer_bytes_per_lookup
    };
    let bytes: f64 = step.by_distance.iter().map(bytes).sum();
    assert!((bytes - step.interconnect_bytes_per_lookup).abs() < 1e-9);
    let modelled = &step.modelled;
    assert!(modelled.throughput_per_s > 0.0 && modelled.throughput_per_s <= modelled.worker_bound_per_s);
    assert!(modelled.share_of_linear <= 1.0 + 1e-9, "without caches nothing is better than linear");
    assert_eq!(modelled.origin, "modelled");
}

#[test]
fn simulated_scaling_counts_what_must_be_sent() -> Result<(), KvError> {
    let report = scaling(&options(), &mut |_| {})?;
    for coalescing in ["none", "partition", "sender"] {
        for locality in ["local", "shifted", "random"] {
            for (step, nodes) in found(&report, "key", locality, coalescing).steps.iter().zip(NODES) {
                assert_eq!((step.nodes, step.lookups), (nodes, 12_000 * nodes as u64));
                assert_adds_up(step);
                let plain = coalescing != "sender";
                assert_eq!(plain, (step.messages_per_lookup - 1.0).abs() < 1e-9, "a message for each lookup, or fewer");
                assert_eq!(step.executed_per_lookup, step.messages_per_lookup, "each is executed once");
                let share = (nodes - 1) as f64 / nodes as f64;
                match locality {
                    "local" => assert_eq!((step.remote_message_share, step.interconnect_bytes_per_lookup), (0.0, 0.0)),
                    "shifted" if nodes > 1 => assert_eq!(step.remote_message_share, 1.0),
                    "shifted" => assert_eq!(step.remote_message_share, 0.0),
                    _ => assert!((step.remote_message_share - share).abs() < 0.02, "{step:?}"),
                }
            }
        }
    }
    Ok(())
}

#[test]
fn coalescing_saves_messages_and_bytes_as_far_as_keys_share_a_partition() -> Result<(), KvError> {
    let report = scaling(&options(), &mut |_| {})?;
    for locality in ["local", "shifted"] {
        for step in &found(&report, "key", locality, "sender").steps {
            // A task's thousand keys go to the twelve partitions of one node.
            assert!((step.commands_per_message - 1_000.0 / 12.0).abs() < 1e-6, "{step:?}");
        }
    }
    let random = &found(&report, "key", "random", "sender").steps;
    for step in random {
        let partitions = step.workers as f64;
        let met = partitions * (1.0 - (1.0 - 1.0 / partitions).powi(1_000));
        assert!((step.commands_per_message / (1_000.0 / met) - 1.0).abs() < 0.02, "{step:?}");
    }
    for pair in random.windows(2) {
        assert!(pair[1].messages_per_lookup > pair[0].messages_per_lookup, "more partitions share fewer keys");
    }
    let bytes = |coalescing| found(&report, "key", "random", coalescing).steps[3].interconnect_bytes_per_lookup;
    assert!(bytes("sender") < bytes("none") / 2.0, "headers and answers are shared");
    assert!(bytes("partition") <= bytes("none"));
    for locality in ["local", "shifted", "random"] {
        let steps = |coalescing| found(&report, "key", locality, coalescing).steps.iter();
        for (plain, gathered) in steps("none").zip(steps("partition")) {
            assert_eq!(plain.keys_per_answer, 1.0, "an answer for each message");
            assert_eq!(gathered.messages_per_lookup, plain.messages_per_lookup, "only partitions put them together");
            assert!(gathered.keys_per_answer > 2.0, "{locality}: {gathered:?}");
        }
    }
    let by_key = |coalescing: &str| found(&report, "key", "random", coalescing).steps[3].modelled.share_of_linear;
    assert!(by_key("sender") > by_key("none"), "fewer waits for far nodes");

    let by_value = |coalescing: &str| found(&report, "value", "random", coalescing).steps.clone();
    for step in by_value("none") {
        assert_eq!(step.messages_per_lookup, step.nodes as f64, "a broadcast goes to each node once");
        assert_eq!(step.executed_per_lookup, step.workers as f64, "and is executed by every partition");
        assert_adds_up(&step);
    }
    for step in by_value("sender") {
        assert_eq!(step.commands_per_message, 1_000.0);
        assert_adds_up(&step);
    }
    Ok(())
}

#[test]
fn a_seed_repeats_its_counts() -> Result<(), KvError> {
    let options = ScalingOptions { nodes: vec![1, 2], pairs: 5_000, ..options() };
    let report = scaling(&options, &mut |_| {})?;
    assert_eq!(report, scaling(&options, &mut |_| {})?);
    let other = scaling(&ScalingOptions { seed: 2, ..options }, &mut |_| {})?;
    assert_ne!(report.configurations, other.configurations, "another seed is other keys in another order");
    Ok(())
}

#[test]
fn nodes_that_the_machine_does_not_have_are_refused() {
    for nodes in [vec![], vec![2], vec![1, 3], vec![1, 66], vec![1, 4, 2]] {
        let options = ScalingOptions { nodes, ..options() };
        assert!(matches!(scaling(&options, &mut |_| {}), Err(KvError::Options(_))), "{options:?}");
    }
}
