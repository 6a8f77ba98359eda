//! Schemas, rows and predicates at random, from small domains so that things collide.

use eris_platform::SeededRandom;
use eris_storage::{
    AddressingMode, Attribute, AttributeId, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId,
    IndexKind, IndexOrder, Layout, LayoutMember, PhysicalLayout, Predicate, ROW_STATIC, ReadRequest, Registry, Schema,
    SchemaVersion, SegmentLayouts, Test, Value,
};
use std::sync::Arc;

pub const SERIAL: AttributeId = AttributeId(0);
pub const KEY: AttributeId = AttributeId(1);
const TEXT: AttributeId = AttributeId(2);
const AMOUNT: AttributeId = AttributeId(3);
const UNIQUE: AttributeId = AttributeId(7);
const OTHER: AttributeId = AttributeId(8);

/// Attributes of fixed width that no index holds at first: an update of these may be in place.
pub const OVERWRITABLE: [u16; 5] = [3, 4, 5, 6, 8];

pub const KEYS: i64 = 40;

/// Attributes at first; histories add integers.
const GENERATED: usize = 9;

pub fn schema(random: &mut SeededRandom, with_second_unique: bool) -> Schema {
    let attribute = |name: &str, data_type, nullable| Attribute { name: name.into(), data_type, nullable };
    let index = |id, name: &str, attributes: &[AttributeId], unique, kind| IndexDefinition {
        id: IndexId(id),
        name: name.into(),
        attributes: attributes.into(),
        unique,
        primary: id == 1,
        kind,
    };
    let mut indexes = vec![
        index(1, "pk", &[KEY], true, index_kind(random)),
        index(2, "by_text", &[TEXT, KEY], false, [IndexKind::Ordered, IndexKind::Inverted][random.index(2)]),
    ];
    if with_second_unique {
        indexes.push(index(3, "second", &[UNIQUE], true, index_kind(random)));
    }
    let attributes = [
        attribute("serial", DataType::Int64, false),
        attribute("key", DataType::Int32, false),
        attribute("text", DataType::Text, true),
        attribute("amount", DataType::Decimal { precision: 12, scale: 2 }, true),
        attribute("big", DataType::Decimal { precision: 30, scale: 4 }, false),
        attribute("ratio", DataType::Float64, true),
        attribute("flag", DataType::Boolean, false),
        attribute("second", DataType::Int16, true),
        attribute("other", DataType::Int32, true),
    ];
    let physical = random.chance(0.4).then(|| Arc::new(layouts(random, &attributes)));
    Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: attributes.into(),
        indexes: indexes.into(),
        layout: [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)],
        physical,
        segment_rows: random.between(4, 64) as u32,
    }
}

fn index_kind(random: &mut SeededRandom) -> IndexKind {
    [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted][random.index(3)]
}

/// A layout of up to four members, with attributes held several times, of whatever modules hold them.
pub fn layout(random: &mut SeededRandom, attributes: &[Attribute]) -> PhysicalLayout {
    let rows =
        |module: &&'static dyn eris_storage::AccessPathFactory| module.properties().addressing != AddressingMode::Value;
    let modules: Vec<_> = Registry::standard().iter().filter(rows).collect();
    let all: Vec<AttributeId> = (0..attributes.len() as u16).map(AttributeId).collect();
    let mut members: Vec<LayoutMember> = Vec::new();
    let mut left = all.clone();
    while !left.is_empty() || members.len() < 4 && random.chance(0.4) {
        let module = modules[random.index(modules.len())];
        let mut chosen = if random.chance(0.6) { left.clone() } else { all.clone() };
        random.shuffle(&mut chosen);
        chosen.truncate(random.index(chosen.len().max(1)) + 1);
        let properties = module.properties();
        chosen.retain(|id| {
            let attribute = &attributes[id.index()];
            (properties.nulls || !attribute.nullable)
                && (properties.variable_length || !attribute.data_type.is_variable_length())
        });
        if let eris_storage::Count::AtMost(most) = properties.attributes {
            chosen.truncate(usize::from(most));
        }
        if chosen.is_empty() {
            continue;
        }
        left.retain(|id| !chosen.contains(id));
        members.push(LayoutMember { module: module.name().into(), attributes: chosen.into() });
    }
    PhysicalLayout::new(members)
}

/// Whether a layout is what is left of `target` without the attributes that it does not know.
pub fn agree_on_known_attributes(layout: &PhysicalLayout, target: &PhysicalLayout) -> bool {
    let known = |id: &AttributeId| layout.members().iter().any(|member| member.attributes.contains(id));
    let left = target.members().iter().map(|member| {
        let attributes: Vec<AttributeId> = member.attributes.iter().filter(|id| known(id)).copied().collect();
        (&member.module, attributes)
    });
    let left = left.filter(|(_, attributes)| !attributes.is_empty());
    left.eq(layout.members().iter().map(|member| (&member.module, member.attributes.to_vec())))
}

/// Layouts for open and sealed segments, now and then the same.
pub fn layouts(random: &mut SeededRandom, attributes: &[Attribute]) -> SegmentLayouts {
    // Rows are what updates overwrite.
    let in_rows = random.chance(0.5);
    let open = if in_rows { PhysicalLayout::single(ROW_STATIC, attributes.len()) } else { layout(random, attributes) };
    let sealed = if random.chance(0.3) { open.clone() } else { layout(random, attributes) };
    SegmentLayouts { open, sealed }
}

pub fn new_index(random: &mut SeededRandom) -> IndexDefinition {
    IndexDefinition {
        id: IndexId(9),
        name: "by_amount".into(),
        attributes: [AMOUNT, OTHER].into(),
        unique: false,
        primary: false,
        kind: index_kind(random),
    }
}

fn or_null(random: &mut SeededRandom, value: Value) -> Value {
    if random.chance(0.2) { Value::Null } else { value }
}

const TEXTS: [&str; 8] =
    ["", "a", "b\0", "straße", "日本語のテキストは長い文字列です", "aa", "zebra crossing ahead", "ab"];

pub fn value(random: &mut SeededRandom, attribute: AttributeId) -> Value {
    match attribute.0 {
        0 => Value::Int64(random.between(0, 200)),
        2 => Value::Text(TEXTS[random.index(TEXTS.len())].into()),
        3 => Value::Decimal { unscaled: i128::from(random.between(-500, 500)), scale: 2 },
        4 => Value::Decimal { unscaled: i128::from(random.between(-3, 3)) << 70, scale: 4 },
        5 => Value::Float64([-1.5, 0.0, -0.0, f64::NAN, f64::INFINITY, 7.25][random.index(6)]),
        6 => Value::Boolean(random.chance(0.5)),
        7 => Value::Int16(random.between(0, 300) as i16),
        _ => Value::Int32(random.between(0, KEYS) as i32),
    }
}

pub fn row(random: &mut SeededRandom, schema: &Schema, serial: i64) -> Vec<Value> {
    let attributes = schema.attributes.iter().enumerate();
    attributes
        .map(|(position, attribute)| {
            if position == 0 {
                return Value::Int64(serial);
            }
            let value = value(random, AttributeId(position as u16));
            if attribute.nullable { or_null(random, value) } else { value }
        })
        .collect()
}

fn condition(random: &mut SeededRandom) -> Condition {
    let attribute = AttributeId(if random.chance(0.4) { 1 } else { random.below(9) as u16 });
    let comparison = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ][random.index(6)];
    let test = match random.below(10) {
        0 => Test::IsNull,
        1 => Test::IsNotNull,
        2 => {
            let n = random.below(12);
            Test::In((0..n).map(|_| if random.chance(0.1) { Value::Null } else { value(random, attribute) }).collect())
        }
        3 if attribute == TEXT => Test::StartsWith(["a", "", "日本", "st"][random.index(4)].into()),
        4 => return Condition { attribute: KEY, test: Test::CompareAttribute(comparison, AttributeId(8)) },
        5 if random.chance(0.2) => Test::Compare(comparison, Value::Null),
        _ => Test::Compare(comparison, value(random, attribute)),
    };
    Condition { attribute, test }
}

pub fn predicate(random: &mut SeededRandom) -> Predicate {
    let conditions: Vec<Condition> = (0..random.below(4)).map(|_| condition(random)).collect();
    Predicate::new(conditions)
}

pub fn request(random: &mut SeededRandom, schema: &Schema) -> ReadRequest {
    let ordered: Vec<&IndexDefinition> = schema.indexes.iter().filter(|index| index.kind.has_key_order()).collect();
    let order = random
        .chance(0.2)
        .then(|| IndexOrder { index: ordered[random.index(ordered.len())].id, descending: random.chance(0.5) });
    let mut desired: Vec<AttributeId> = (0..schema.attributes.len() as u16).map(AttributeId).collect();
    if random.chance(0.5) {
        random.shuffle(&mut desired);
        desired.truncate(random.index(9) + 1);
    }
    let mut conditions = predicate(random).conditions.to_vec();
    if schema.attributes.len() > GENERATED && random.chance(0.3) {
        let attribute = AttributeId((GENERATED + random.index(schema.attributes.len() - GENERATED)) as u16);
        let test = match random.below(4) {
            0 => Test::IsNull,
            1 => Test::IsNotNull,
            2 => Test::CompareAttribute(Comparison::LessOrEqual, AttributeId(8)),
            _ => Test::Compare(Comparison::Less, value(random, attribute)),
        };
        conditions.push(Condition { attribute, test });
    }
    ReadRequest { predicate: Predicate::new(conditions), desired: Arc::from(desired), order }
}
