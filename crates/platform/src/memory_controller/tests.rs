//! Decisions of the controller for given observations.

use super::*;

#[test]
fn what_is_kept_is_given_back_if_that_is_enough() {
    let observed = |resident, heap, group: Option<(u64, u64)>| MemoryObservation {
        resident_bytes: Some(resident * MIB),
        heap_bytes: Some(heap * MIB),
        file_bytes: None,
        group: group.map(|(limit, held)| GroupMemory { limit_bytes: limit * MIB, held_bytes: held * MIB }),
    };
    let would = |report: &MemoryReport, stays, missing| would_relieve(report, stays * MIB, missing * MIB);
    // Of 300 that are not accounted, 250 are kept.
    let report = reconcile(1_024 * MIB, 500 * MIB, observed(800, 550, None));
    assert_eq!((report.kept_bytes(), report.limit_bytes), (250 * MIB, 692 * MIB));
    assert!(would(&report, 0, 250) && !would(&report, 0, 251));
    assert!(would(&report, 100, 150) && !would(&report, 100, 151), "what stayed once stays");
    assert!(would(&report, 234, 1) && !would(&report, 235, 1), "for a little nobody is asked");
    // An eighth of the limit is in force whatever goes back.
    let report = reconcile(1_024 * MIB, 100 * MIB, observed(1_020, 1_000, None));
    assert_eq!((report.kept_bytes(), report.reason), (20 * MIB, LimitReason::MostlyUnaccounted));
    assert!(!would(&report, 0, 1));
    // A group has room again for what goes back.
    let report = reconcile(4_096 * MIB, 500 * MIB, observed(800, 550, Some((1_000, 950))));
    assert_eq!((report.limit_bytes, report.reason), (550 * MIB, LimitReason::Group));
    assert!(would(&report, 0, 250) && !would(&report, 0, 251));
}

#[test]
fn memory_is_scarce_when_the_allocator_keeps_what_is_missed() {
    let report = |configured, accounted, resident, heap: Option<u64>, group: Option<(u64, u64)>| {
        let group = group.map(|(limit, held)| GroupMemory { limit_bytes: limit * MIB, held_bytes: held * MIB });
        let observation = MemoryObservation {
            resident_bytes: Some(resident * MIB),
            heap_bytes: heap.map(|heap| heap * MIB),
            file_bytes: None,
            group,
        };
        reconcile(configured, accounted * MIB, observation)
    };
    let limit = 1_000 * MIB;
    assert!(report(limit, 700, 950, Some(750), None).is_scarce());
    assert!(!report(limit, 500, 750, Some(550), None).is_scarce(), "a quarter is free");
    assert!(!report(limit, 700, 950, Some(900), None).is_scarce(), "it is in use, if by nobody who said so");
    assert!(!report(limit, 950, 960, Some(100), None).is_scarce(), "nothing is kept");
    assert!(!report(limit, 700, 950, None, None).is_scarce(), "nobody counts");
    assert!(!report(200 * MIB, 100, 190, Some(100), None).is_scarce(), "such a limit is not compared");
    assert!(report(u64::MAX, 700, 950, Some(750), Some((1_000, 950))).is_scarce(), "a group's limit");
    assert!(!report(u64::MAX, 700, 950, Some(750), Some((9_000, 950))).is_scarce());
}

const MIB: u64 = 1 << 20;

fn seen(resident_mib: u64, group: Option<(u64, u64)>) -> MemoryObservation {
    let group = group.map(|(limit, held)| GroupMemory { limit_bytes: limit * MIB, held_bytes: held * MIB });
    MemoryObservation { resident_bytes: Some(resident_mib * MIB), group, ..MemoryObservation::default() }
}

#[test]
fn the_limit_in_force_leaves_room_for_what_is_not_accounted() {
    for (configured, accounted, observation, limit, reason) in [
        (1_000, 300, seen(300, None), 1_000, LimitReason::Configured),
        // Reserved, not yet touched.
        (1_000, 300, seen(100, None), 1_000, LimitReason::Configured),
        (1_000, 300, seen(420, None), 880, LimitReason::Unaccounted),
        (1_000, 300, seen(900, None), 500, LimitReason::MostlyUnaccounted),
        (100, 10, seen(900, None), 100, LimitReason::TooSmall),
        // Others filled the group: only 50 are left. 30 of them are reserved and not yet touched.
        (1_000, 300, seen(300, Some((2_000, 1_950))), 350, LimitReason::Group),
        (1_000, 330, seen(300, Some((2_000, 1_950))), 350, LimitReason::Group),
        (1_000, 300, seen(300, Some((2_000, 2_100))), 300, LimitReason::Group),
        (1_000, 300, seen(420, Some((2_000, 500))), 880, LimitReason::Unaccounted),
        (1_000, 300, MemoryObservation::default(), 1_000, LimitReason::Unobserved),
    ] {
        let report = reconcile(configured * MIB, accounted * MIB, observation);
        assert_eq!((report.limit_bytes / MIB, report.reason), (limit, reason), "{report}");
        let resident = observation.resident_bytes.unwrap_or(0) / MIB;
        assert_eq!(report.unaccounted_bytes / MIB, resident.saturating_sub(accounted));
        // When consumers take all that is in force, the process is at its limit.
        if reason == LimitReason::Unaccounted {
            assert_eq!(report.limit_bytes + report.unaccounted_bytes, configured * MIB);
        }
    }
}

/// What is allocated or reserved, and not touched yet, will be resident some time: it must not hide the rest.
#[test]
fn where_allocations_are_counted_the_process_never_passes_its_limit() {
    let counted = |accounted: u64, resident: u64, heap: u64| {
        let observation = MemoryObservation {
            resident_bytes: Some(resident * MIB),
            file_bytes: Some(30 * MIB),
            heap_bytes: Some(heap * MIB),
            group: None,
        };
        reconcile(1_024 * MIB, accounted * MIB, observation)
    };
    for (accounted, resident, heap, limit) in [
        (0, 40, 5, 1_024 - 32 - 42),
        // Reserved and untouched; the code stays, and comes to be 32.
        (300, 40, 5, 1_024 - 32 - 32),
        // Allocated without a reservation.
        (300, 200, 400, 1_024 - 32 - 132),
        (300, 600, 300, 1_024 - 32 - 302),
        (10, 1_000, 900, 128),
    ] {
        let report = counted(accounted, resident, heap);
        assert_eq!(report.limit_bytes / MIB, limit, "{report}");
        assert_eq!(report.release_bytes, report.configured_bytes, "to give memory back is not refused");
        let free = limit.saturating_sub(accounted) * MIB;
        assert!(report.until_look() == (free / 8).max(4 * MIB), "{report}");
    }
}

#[test]
fn what_is_freed_is_kept_while_there_is_room_and_little_is_kept() {
    let keeps = |limit: u64, resident: u64, heap| {
        let observation = MemoryObservation {
            resident_bytes: Some(resident * MIB),
            file_bytes: Some(30 * MIB),
            heap_bytes: Some(heap * MIB),
            group: None,
        };
        reconcile(limit * MIB, 0, observation).keeps()
    };
    assert!(keeps(1_024, 896, 866) && !keeps(1_024, 897, 867), "an eighth is not resident");
    assert!(keeps(256, 192, 162) && !keeps(256, 193, 163), "or 64 MiB");
    assert!(keeps(1_024, 800, 756) && !keeps(1_024, 800, 755), "a sixteenth of what is not resident is kept");
    assert!(keeps(255, 400, 100), "such a limit is not compared");
}

#[test]
fn a_report_says_why() {
    let report = reconcile(1_000 * MIB, 300 * MIB, seen(420, None));
    let text = report.to_string();
    assert!(text.contains("125829120 unaccounted") && text.contains("holds unaccounted"), "{text}");
    let report = reconcile(1_000 * MIB, 300 * MIB, MemoryObservation::default());
    assert_eq!(report.origin, Origin::Unavailable);
    assert!(report.to_string().contains("resident unavailable"), "{report}");
}
