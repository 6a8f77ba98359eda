//! Dictionaries that grow, and segments that are sealed and read beside each other.

use super::*;
use crate::batch::{Batch, Values};
use crate::ids::{ContainerId, SchemaVersion};
use crate::modules::{AccessPathScanState, PathFilter};
use crate::predicate::{Comparison, Condition, Test};
use crate::schema::{Attribute, Layout, Schema};
use crate::segment::{BuildForm, BuildOptions, SealedSegment};
use crate::types::DataType;
use crate::value::Value;
use eris_platform::{SeededRandom, test_load};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

fn text(number: usize) -> String {
    if number.is_multiple_of(3) { format!("{number}") } else { format!("a longer text, number {number}") }
}

fn grown(dictionary: &SharedDictionary, numbers: impl IntoIterator<Item = usize>) -> Option<Arc<DictionaryTexts>> {
    let state = dictionary.texts();
    let texts: BTreeSet<String> = numbers.into_iter().map(text).collect();
    let missing: Vec<&[u8]> = texts.iter().map(String::as_bytes).filter(|text| state.id_of(text).is_none()).collect();
    if missing.is_empty() { Some(state) } else { dictionary.grow(&state, &missing) }
}

#[test]
fn ids_are_stable_and_in_order_after_each_growth() {
    let mut random = SeededRandom::new(1);
    for _ in 0..20 * test_load(1) {
        let dictionary = SharedDictionary::new(&MemoryPool::unlimited());
        let mut states = vec![dictionary.texts()];
        for _ in 0..10 {
            let numbers: Vec<usize> = (0..random.index(60)).map(|_| random.index(500)).collect();
            let state = grown(&dictionary, numbers.iter().copied()).unwrap();
            assert!(numbers.iter().all(|number| state.id_of(text(*number).as_bytes()).is_some()));
            states.push(state);
        }
        let newest = dictionary.texts();
        let texts =
            |state: &DictionaryTexts| (0..state.len()).map(|id| state.texts().get(id).to_vec()).collect::<Vec<_>>();
        for state in &states {
            assert!(state.is_same_dictionary(&newest));
            assert!(texts(&newest).starts_with(&texts(state)), "an id stands for its text for ever");
            let in_order: Vec<&[u8]> = state.order().iter().map(|id| state.texts().get(usize::from(*id))).collect();
            assert!(in_order.is_sorted_by(|a, b| a < b));
            let every: BTreeSet<u16> = state.order().iter().copied().collect();
            assert_eq!(every, (0..state.len() as u16).collect());
            for id in 0..state.len() {
                assert_eq!(newest.id_of(state.texts().get(id)), Some(id as u16));
            }
        }
        assert!(!newest.is_same_dictionary(&SharedDictionary::new(&MemoryPool::unlimited()).texts()));
    }
}

#[test]
fn who_measured_an_older_state_measures_again() {
    let dictionary = SharedDictionary::new(&MemoryPool::unlimited());
    let old = dictionary.texts();
    assert!(dictionary.grow(&old, &[b"a", b"c"]).is_some());
    assert!(dictionary.grow(&old, &[b"b"]).is_none());
    assert_eq!(dictionary.texts().len(), 2);
}

#[test]
fn a_dictionary_has_a_limit() {
    let dictionary = SharedDictionary::new(&MemoryPool::unlimited());
    assert!(dictionary.has_room(DICTIONARY_TEXTS_MAX, DICTIONARY_BYTES_MAX));
    assert!(!dictionary.has_room(DICTIONARY_TEXTS_MAX + 1, 0));
    assert!(!dictionary.has_room(1, DICTIONARY_BYTES_MAX + 1));
    for number in 0..DICTIONARY_GROWTHS_MAX {
        assert!(dictionary.has_room(1, 4), "before growth {number}");
        grown(&dictionary, [number as usize]).unwrap();
    }
    assert!(!dictionary.has_room(1, 1));
    assert!(dictionary.has_room(0, 0), "what it has may be used");
}

#[test]
fn memory_is_charged_once_and_comes_back() {
    let pool = MemoryPool::new(1 << 20);
    let dictionary = SharedDictionary::new(&pool);
    let first = grown(&dictionary, 0..30).unwrap();
    let long: usize = (0..30).map(text).map(|text| text.len()).filter(|len| *len > VIEW_INLINE_MAX).sum();
    assert_eq!(pool.used(), (30 * 18 + long) as u64);
    let held = first.counted_apart();
    let second = grown(&dictionary, 0..31).unwrap();
    // Views and order once for each state, long texts once for all.
    assert_eq!(pool.used(), ((30 + 31) * 18 + long) as u64);
    drop((first, held));
    assert_eq!(pool.used(), (31 * 18 + long) as u64);
    // Without memory nothing changes.
    pool.set_limit(pool.used() + 100);
    assert!(grown(&dictionary, 31..60).is_none());
    assert_eq!((dictionary.texts().len(), pool.used()), (31, (31 * 18 + long) as u64));
    // Who still reads keeps the texts.
    drop(dictionary);
    assert_eq!(second.texts().get(usize::from(second.id_of(b"9").unwrap())), b"9");
    drop(second);
    assert_eq!(pool.used(), 0);
}

fn schema() -> Schema {
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: true };
    Schema {
        container: ContainerId(7),
        version: SchemaVersion(1),
        attributes: [attribute("number", DataType::Int32), attribute("name", DataType::Text)].into(),
        indexes: Box::default(),
        layout: Layout::Default,
        physical: None,
        segment_rows: 1 << 16,
    }
}

fn rows(random: &mut SeededRandom, different: usize) -> Batch {
    let (first, texts) = (random.index(different), 1 + random.index(different));
    let row = |_| {
        let number = (first + random.index(texts)) % different;
        let name = if random.chance(0.1) { Value::Null } else { Value::Text(text(number).into()) };
        vec![Value::Int32(number as i32), name]
    };
    let rows: Vec<Vec<Value>> = (0..3_000).map(row).collect();
    Batch::from_rows(&schema().data_types(), &rows)
}

fn check(segment: &SealedSegment, rows: &Batch, random: &mut SeededRandom) {
    let schema = schema();
    assert_eq!(&segment.to_rows(&schema), rows);
    let test = match random.index(3) {
        0 => Test::Compare(Comparison::Less, Value::Text(text(random.index(400)).into())),
        1 => Test::In((0..5).map(|_| Value::Text(text(random.index(400)).into())).collect()),
        _ => Test::StartsWith("a longer text, number 1".into()),
    };
    let conditions = [Condition { attribute: AttributeId(1), test }];
    let filter = PathFilter { conditions: &conditions, selected: &[0] };
    let mut found = Vec::new();
    segment.path().scan(&mut AccessPathScanState::default(), filter, 0..segment.rows(), &mut found).unwrap();
    let expected = (0..rows.rows as u32).filter(|row| conditions[0].accepts(|_| rows.value(*row as usize, 1)));
    assert_eq!(found, expected.collect::<Vec<_>>(), "{:?}", conditions[0]);
}

/// Partitions of one container seal while others read what was sealed before.
#[test]
fn segments_are_sealed_and_read_side_by_side() {
    const THREADS: u64 = 4;
    let pool = MemoryPool::new(1 << 30);
    let dictionaries = ContainerDictionaries::new(&pool);
    let sealed: Mutex<Vec<(Arc<SealedSegment>, Batch)>> = Mutex::default();
    let shared = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (dictionaries, pool, sealed, shared) = (&dictionaries, &pool, &sealed, &shared);
            scope.spawn(move || {
                let mut random = SeededRandom::new(seed);
                for _ in 0..8 * test_load(1) {
                    let different = [20, 400][random.index(2)];
                    let rows = rows(&mut random, different);
                    let dictionaries = Some(dictionaries);
                    let options = BuildOptions { memory: pool, dictionaries, arena: None, form: BuildForm::AsLaidOut };
                    let segment = SealedSegment::build_in(&schema(), &rows, &options).unwrap();
                    let name = segment.encodings().into_iter().find(|(attribute, ..)| *attribute == AttributeId(1));
                    shared.fetch_add(usize::from(name.unwrap().1 == "shared dictionary"), Ordering::Relaxed);
                    check(&segment, &rows, &mut random);
                    locked(sealed).push((segment, rows));
                    let (segment, rows) = {
                        let sealed = locked(sealed);
                        let (segment, rows) = &sealed[random.index(sealed.len())];
                        (Arc::clone(segment), rows.clone())
                    };
                    check(&segment, &rows, &mut random);
                }
            });
        }
    });
    let sealed = sealed.into_inner().unwrap();
    assert!(shared.into_inner() * 2 > sealed.len(), "most segments share");
    assert!(matches!(dictionaries.describe()[..], [(AttributeId(1), 20.., 1..)]), "{dictionaries:?}");
    let newest = dictionaries.of(AttributeId(1)).texts();
    let mut random = SeededRandom::new(9);
    for (segment, rows) in &sealed {
        check(segment, rows, &mut random);
        let Values::Bytes(views) = segment.path().shared(AttributeId(1), 0..segment.rows()).unwrap().values else {
            unreachable!("names are texts")
        };
        let Some(coded) = views.coded() else { continue };
        assert!(coded.texts.is_same_dictionary(&newest));
        for (row, id) in coded.ids.iter().enumerate().filter(|(row, _)| !rows.columns[1].is_null(*row)) {
            assert_eq!(
                Value::Text(String::from_utf8_lossy(newest.texts().get(usize::from(*id))).into()),
                rows.value(row, 1)
            );
        }
    }
    drop((sealed, newest, dictionaries));
    assert_eq!(pool.used(), 0);
}
