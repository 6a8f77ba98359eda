//! Histories written by hand: the checker finds each anomaly and lets each legal history pass.

use super::{Element, Ending, Level, ListHistory, ListTransaction, Operation};

fn append(key: i64, element: Element) -> Operation {
    Operation::Append { key, element, undone: None }
}

fn undone(key: i64, element: Element, before: usize) -> Operation {
    Operation::Append { key, element, undone: Some(before) }
}

fn read(key: i64, list: &[Element]) -> Operation {
    Operation::Read { key, list: list.to_vec() }
}

/// A history of transactions that all overlap.
struct Writer {
    history: ListHistory,
}

impl Writer {
    fn new() -> Self {
        Self { history: ListHistory::default() }
    }

    fn add(mut self, level: Level, ending: Ending, operations: Vec<Operation>) -> Self {
        let number = self.history.transactions.len() as u64;
        let ended = (ending != Ending::Unknown).then_some(1_000 + number);
        self.history.transactions.push(ListTransaction { level, operations, ending, begun: number, ended });
        self
    }

    fn committed(self, operations: Vec<Operation>) -> Self {
        self.add(Level::Snapshot, Ending::Committed, operations)
    }

    fn committed_reads(self, operations: Vec<Operation>) -> Self {
        self.add(Level::ReadCommitted, Ending::Committed, operations)
    }

    /// The last one: it reads all lists after all others have ended.
    fn check(mut self, lists: &[(i64, &[Element])]) -> Result<(), String> {
        let operations = lists.iter().map(|(key, list)| read(*key, list)).collect();
        let (begun, ended) = (10_000, Some(10_001));
        let ending = Ending::Committed;
        self.history.transactions.push(ListTransaction { level: Level::Snapshot, operations, ending, begun, ended });
        self.history.check()
    }
}

fn finds(found: Result<(), String>, name: &str) {
    let text = found.expect_err(name);
    assert!(text.contains(name), "expected {name}, found {text}");
}

#[test]
fn a_serial_history_passes() {
    Writer::new()
        .committed(vec![read(1, &[]), append(1, 10), read(1, &[10]), append(2, 20)])
        .committed(vec![read(1, &[10]), append(1, 11), append(1, 12), read(1, &[10, 11, 12])])
        .committed_reads(vec![read(2, &[20]), append(2, 21)])
        .add(Level::Snapshot, Ending::RolledBack, vec![append(1, 13), read(1, &[10, 11, 12, 13])])
        .check(&[(1, &[10, 11, 12]), (2, &[20, 21])])
        .expect("nothing is wrong");
}

#[test]
fn write_skew_passes_because_snapshot_isolation_allows_it() {
    Writer::new()
        .committed(vec![read(1, &[]), append(2, 20)])
        .committed(vec![read(2, &[]), append(1, 10)])
        .check(&[(1, &[10]), (2, &[20])])
        .expect("two rw edges follow each other");
}

#[test]
fn write_skew_is_found_among_serializable_transactions() {
    let history = |one, other| {
        Writer::new()
            .add(one, Ending::Committed, vec![read(1, &[]), append(2, 20)])
            .add(other, Ending::Committed, vec![read(2, &[]), append(1, 10)])
            .check(&[(1, &[10]), (2, &[20])])
    };
    finds(history(Level::Serializable, Level::Serializable), "G2 among SERIALIZABLE");
    history(Level::Serializable, Level::Snapshot).expect("the other one promised nothing of the kind");
}

#[test]
fn a_cycle_of_serializable_transactions_passes_over_others() {
    let history = |ending| {
        Writer::new()
            .add(Level::Serializable, ending, vec![read(1, &[]), append(2, 20)])
            .committed_reads(vec![append(1, 9)])
            .add(Level::Serializable, Ending::Committed, vec![read(2, &[]), append(1, 10)])
            .check(&[(1, &[9, 10]), (2, if ending == Ending::Committed { &[20] } else { &[] })])
    };
    finds(history(Ending::Committed), "G2 among SERIALIZABLE");
    history(Ending::RolledBack).expect("one of them did not commit");
}

#[test]
fn a_report_between_two_is_found_among_serializable_transactions() {
    let history = |level| {
        Writer::new()
            .add(Level::Serializable, Ending::Committed, vec![read(1, &[]), append(2, 20), read(2, &[20])])
            .add(Level::Serializable, Ending::Committed, vec![append(1, 10)])
            .add(level, Ending::Committed, vec![read(1, &[10]), read(2, &[])])
            .check(&[(1, &[10]), (2, &[20])])
    };
    finds(history(Level::Serializable), "G2 among SERIALIZABLE");
    history(Level::Snapshot).expect("who reports promised nothing of the kind");
}

#[test]
fn a_cycle_of_writes_is_found() {
    let history = Writer::new()
        .committed_reads(vec![append(1, 10), append(2, 20)])
        .committed_reads(vec![append(1, 11), append(2, 21)]);
    finds(history.check(&[(1, &[10, 11]), (2, &[21, 20])]), "G0");
}

#[test]
fn a_read_of_what_was_rolled_back_is_found() {
    let history = Writer::new()
        .add(Level::ReadCommitted, Ending::RolledBack, vec![append(1, 10)])
        .committed_reads(vec![read(1, &[10])]);
    finds(history.check(&[(1, &[])]), "G1a");
    let part =
        Writer::new().committed_reads(vec![undone(1, 10, 1), append(1, 11)]).committed_reads(vec![read(1, &[10])]);
    finds(part.check(&[(1, &[10, 11])]), "G1a");
}

#[test]
fn a_read_of_half_a_transaction_is_found() {
    let history =
        Writer::new().committed_reads(vec![append(1, 10), append(1, 11)]).committed_reads(vec![read(1, &[10])]);
    finds(history.check(&[(1, &[10, 11])]), "G1b");
}

#[test]
fn two_transactions_that_see_each_other_are_found() {
    let history = Writer::new()
        .committed_reads(vec![append(1, 10), read(2, &[20])])
        .committed_reads(vec![append(2, 20), read(1, &[10])]);
    finds(history.check(&[(1, &[10]), (2, &[20])]), "G1c");
}

#[test]
fn read_skew_is_found_in_a_snapshot_and_allowed_at_read_committed() {
    let history = |level| {
        Writer::new()
            .add(level, Ending::Committed, vec![read(1, &[]), read(2, &[20])])
            .committed(vec![append(1, 10), append(2, 20)])
            .check(&[(1, &[10]), (2, &[20])])
    };
    finds(history(Level::Snapshot), "G-single");
    history(Level::ReadCommitted).expect("each statement has its own snapshot");
}

#[test]
fn a_reader_that_was_rolled_back_had_a_snapshot_too() {
    let history = Writer::new()
        .add(Level::Snapshot, Ending::RolledBack, vec![read(1, &[]), read(2, &[20])])
        .committed(vec![append(1, 10), append(2, 20)]);
    finds(history.check(&[(1, &[10]), (2, &[20])]), "G-single");
}

#[test]
fn a_lost_update_is_found() {
    let history =
        Writer::new().committed(vec![read(1, &[]), append(1, 10)]).committed(vec![read(1, &[]), append(1, 11)]);
    finds(history.check(&[(1, &[10, 11])]), "lost update");
}

#[test]
fn a_snapshot_that_changes_is_found() {
    let history = |level| {
        Writer::new()
            .add(level, Ending::Committed, vec![read(1, &[]), read(1, &[10])])
            .committed(vec![append(1, 10)])
            .check(&[(1, &[10])])
    };
    finds(history(Level::Snapshot), "a snapshot changes");
    history(Level::ReadCommitted).expect("reads need not repeat");
}

#[test]
fn snapshots_that_contradict_each_other_are_found() {
    let history = Writer::new()
        .committed(vec![append(1, 10)])
        .committed(vec![append(2, 20)])
        .committed(vec![read(1, &[10]), read(2, &[])])
        .committed(vec![read(1, &[]), read(2, &[20])]);
    finds(history.check(&[(1, &[10]), (2, &[20])]), "G-nonadjacent");
}

#[test]
fn a_stale_snapshot_is_found_and_a_concurrent_one_is_not() {
    let history = |begun| {
        let mut writer = Writer::new().committed(vec![append(1, 10)]).committed(vec![read(1, &[])]);
        writer.history.transactions[0].ended = Some(500);
        writer.history.transactions[1].begun = begun;
        writer.check(&[(1, &[10])])
    };
    finds(history(600), "a stale snapshot");
    history(400).expect("it began before the commit was known");
}

#[test]
fn appends_arrive_once_and_are_not_lost() {
    let twice = Writer::new().committed(vec![append(1, 10)]).committed_reads(vec![read(1, &[10, 10])]);
    finds(twice.check(&[(1, &[10])]), "an element is there twice");
    let lost = Writer::new().committed(vec![append(1, 10)]).committed(vec![append(2, 20)]);
    finds(lost.check(&[(1, &[]), (2, &[20])]), "element 10 is lost");
    let invented = Writer::new().committed(vec![append(1, 10)]);
    finds(invented.check(&[(1, &[10, 99])]), "nobody appended");
}

#[test]
fn a_list_that_grows_in_two_ways_is_found() {
    let history = Writer::new()
        .committed_reads(vec![append(1, 10)])
        .committed_reads(vec![append(1, 11)])
        .committed_reads(vec![read(1, &[11])]);
    finds(history.check(&[(1, &[10, 11])]), "grew in two ways");
}

#[test]
fn a_transaction_sees_its_own_appends_and_not_those_it_took_back() {
    let blind = Writer::new().committed(vec![append(1, 10), read(1, &[])]);
    finds(blind.check(&[(1, &[10])]), "does not see its own appends");
    let haunted = Writer::new().committed(vec![undone(1, 10, 1), read(1, &[10])]);
    finds(haunted.check(&[(1, &[])]), "it has taken back");
    Writer::new()
        .committed(vec![undone(1, 10, 2), read(1, &[10]), read(1, &[])])
        .check(&[(1, &[])])
        .expect("it was there until it was taken back");
}

#[test]
fn a_commit_that_nobody_heard_of_is_whole_or_not_at_all() {
    let unknown = |lists: &[(i64, &[Element])]| {
        Writer::new().add(Level::Snapshot, Ending::Unknown, vec![append(1, 10), append(2, 20)]).check(lists)
    };
    unknown(&[(1, &[10]), (2, &[20])]).expect("it committed");
    unknown(&[(1, &[]), (2, &[])]).expect("it did not");
    finds(unknown(&[(1, &[10]), (2, &[])]), "element 20 is lost");
}

#[test]
fn the_report_names_the_shortest_cycle_with_its_operations() {
    let history = Writer::new()
        .committed(vec![read(1, &[]), append(1, 10)])
        .committed(vec![read(1, &[]), append(1, 11)])
        .committed(vec![read(1, &[10, 11]), append(2, 20)]);
    let text = history.check(&[(1, &[10, 11]), (2, &[20])]).expect_err("an update is lost");
    assert!(text.contains("T0") && text.contains("T1") && !text.contains("T2"), "{text}");
    assert!(text.contains("-rw-> appends to list 1") && text.contains("append 11 to 1"), "{text}");
}
