//! Inverted indexes in a partition: what the micro-QEP compiler uses them for, and which of several it takes.

use crate::history::generate;
use crate::history::model::Table;
use crate::index_accesses::{KEY, SECOND, compare, equal, keys, request, store_of};
use eris_platform::SeededRandom;
use eris_storage::{
    AttributeId, Comparison, Condition, IndexDefinition, IndexId, IndexKind, IndexOrder, Layout, ReadRequest, Schema,
    Store, Test, Value,
};

const OTHER: AttributeId = AttributeId(8);

fn index(id: u32, name: &str, attributes: &[AttributeId], kind: IndexKind) -> IndexDefinition {
    let (unique, primary) = (id == 1, id == 1);
    IndexDefinition { id: IndexId(id), name: name.into(), attributes: attributes.into(), unique, primary, kind }
}

/// An ordered primary key, and these indexes.
fn schema(indexes: &[IndexDefinition]) -> Schema {
    let mut schema = generate::schema(&mut SeededRandom::new(5), false);
    (schema.layout, schema.physical, schema.segment_rows) = (Layout::Default, None, 1 << 12);
    let mut all = vec![index(1, "pk", &[KEY], IndexKind::Ordered)];
    all.extend_from_slice(indexes);
    schema.indexes = all.into();
    schema
}

/// Keys 0 to 5,999; `second` is the key modulo 100, `other` modulo 7, or NULL.
fn filled(indexes: &[IndexDefinition], table: &Table) -> Store {
    let schema = schema(indexes);
    let mut random = SeededRandom::new(8);
    let row = |key: i32| {
        let mut row = generate::row(&mut random, &schema, i64::from(key));
        let other = if key % 11 == 0 { Value::Null } else { Value::Int32(key % 7) };
        (row[1], row[7], row[8]) = (Value::Int32(key), Value::Int16((key % 100) as i16), other);
        row
    };
    let rows: Vec<Vec<Value>> = (0..6_000).map(row).collect();
    store_of(schema, &rows, table)
}

#[test]
fn serve_equality_lists_ranges_and_order() {
    let table = Table::default();
    let both = index(2, "postings", &[SECOND, OTHER], IndexKind::Inverted);
    let mut store = filled(&[both], &table);
    let mut check = |conditions: Vec<Condition>, step: &str, accepts: &dyn Fn(i32) -> bool| {
        let request = request(conditions);
        let mut found = keys(&mut store, &table, &request);
        found.sort();
        let expected = (0..6_000).filter(|key| accepts(*key)).map(Value::Int32);
        assert_eq!(found, expected.collect::<Vec<_>>(), "{request:?}");
        assert_eq!(store.explain(&request).unwrap().steps[0], step);
    };
    let second = |value| equal(SECOND, Value::Int16(value));
    let scan = |rest: &str| format!("inverted index scan postings(second, other) where {rest}");
    check(vec![second(5)], &scan("second = 5"), &|key| key % 100 == 5);
    let one = vec![second(5), equal(OTHER, Value::Int32(6))];
    let other_is = |key: i32, other| key % 11 > 0 && key % 7 == other;
    check(one, &scan("second = 5 AND other = 6"), &|key| key % 100 == 5 && other_is(key, 6));
    let list = Condition { attribute: SECOND, test: Test::In([3, 98, 3, 200].map(Value::Int16).into()) };
    check(vec![list], &scan("second IN (3, 98, 3, 200)"), &|key| [3, 98].contains(&(key % 100)));
    let range = vec![compare(SECOND, Comparison::GreaterOrEqual, Value::Int16(98))];
    check(range, &scan("second >= 98"), &|key| key % 100 >= 98);
    let behind = vec![second(7), compare(OTHER, Comparison::Less, Value::Int32(2))];
    let below = |key: i32| key % 100 == 7 && (other_is(key, 0) || other_is(key, 1));
    check(behind, &scan("second = 7 AND other < 2"), &below);

    for descending in [false, true] {
        let order = Some(IndexOrder { index: IndexId(2), descending });
        let found = keys(&mut store, &table, &ReadRequest { order, ..request(vec![]) });
        assert_eq!(found.len(), 6_000);
        // NULL is above all values.
        let key = |key: &Value| match key {
            Value::Int32(key) => (*key % 100, if *key % 11 == 0 { 7 } else { *key % 7 }),
            other => panic!("{other:?} is no key"),
        };
        let sorted = if descending {
            found.is_sorted_by_key(|row| std::cmp::Reverse(key(row)))
        } else {
            found.is_sorted_by_key(key)
        };
        assert!(sorted, "descending: {descending}");
    }
    assert!(store.highest_key(&[SECOND]).is_some());
    assert_eq!(store.has_entries_from(&[SECOND], &[Value::Int16(99)]), Some(true));
    assert_eq!(store.has_entries_from(&[SECOND], &[Value::Int16(100)]), Some(false));
}

/// Of those that fit alike: hash, inverted, ordered.
#[test]
fn come_behind_hash_indexes_and_before_ordered_ones() {
    let table = Table::default();
    let hash = index(2, "hash", &[SECOND], IndexKind::Hash);
    let inverted = index(3, "inverted", &[SECOND], IndexKind::Inverted);
    let ordered = index(4, "ordered", &[SECOND], IndexKind::Ordered);
    let first_step = |indexes: &[IndexDefinition], condition: Condition| {
        let store = filled(indexes, &table);
        store.explain(&request(vec![condition])).unwrap().steps[0].clone()
    };
    let equal = || equal(SECOND, Value::Int16(5));
    let above = || compare(SECOND, Comparison::Greater, Value::Int16(98));
    for all in [[&hash, &inverted, &ordered], [&ordered, &inverted, &hash]] {
        let all: Vec<IndexDefinition> = all.into_iter().cloned().collect();
        assert_eq!(first_step(&all, equal()), "hash index lookup hash(second) where second = 5");
        assert_eq!(first_step(&all, above()), "inverted index scan inverted(second) where second > 98");
    }
    for two in [[&inverted, &ordered], [&ordered, &inverted]] {
        let two: Vec<IndexDefinition> = two.into_iter().cloned().collect();
        assert_eq!(first_step(&two, equal()), "inverted index scan inverted(second) where second = 5");
    }
    assert_eq!(first_step(&[ordered], above()), "ordered index scan ordered(second) where second > 98");
}
