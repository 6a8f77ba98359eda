//! Every definition comes back from its JSON, and the names of the format stay as they are.

use super::*;

/// Every type, as the format calls it: what was written once is read for ever.
const TYPES: [(DataType, &str); 13] = [
    (DataType::Boolean, "\"boolean\""),
    (DataType::Int16, "\"int16\""),
    (DataType::Int32, "\"int32\""),
    (DataType::Int64, "\"int64\""),
    (DataType::Float32, "\"float32\""),
    (DataType::Float64, "\"float64\""),
    (DataType::Decimal { precision: 1, scale: 0 }, "{\"decimal\":{\"precision\":1,\"scale\":0}}"),
    (DataType::Decimal { precision: 18, scale: 4 }, "{\"decimal\":{\"precision\":18,\"scale\":4}}"),
    (DataType::Decimal { precision: 38, scale: 38 }, "{\"decimal\":{\"precision\":38,\"scale\":38}}"),
    (DataType::Date, "\"date\""),
    (DataType::Timestamp, "\"timestamp\""),
    (DataType::Text, "\"text\""),
    (DataType::Bytes, "\"bytes\""),
];

/// Does not compile when there is a type that the list above may lack.
fn is_listed(data_type: DataType) -> bool {
    let is_kind = |listed: DataType| std::mem::discriminant(&listed) == std::mem::discriminant(&data_type);
    match data_type {
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal { .. }
        | DataType::Date
        | DataType::Timestamp
        | DataType::Text
        | DataType::Bytes => TYPES.iter().any(|(listed, _)| is_kind(*listed)),
    }
}

fn some_layouts() -> SegmentLayouts {
    let member =
        |module: &str, attributes: &[u16]| LayoutMember { module: module.into(), attributes: ids(attributes.to_vec()) };
    SegmentLayouts {
        open: PhysicalLayout::new([member("row static", &[0, 1])]),
        sealed: PhysicalLayout::new([member("encoded", &[1]), member("column", &[0])]),
    }
}

fn schema_with(layout: Layout, physical: Option<SegmentLayouts>) -> Schema {
    let attribute = |(place, (data_type, _)): (usize, &(DataType, &str))| Attribute {
        name: format!("a\"{place} 漢").into(),
        data_type: *data_type,
        nullable: place % 2 == 0,
    };
    let index = |id: u32, unique, primary, kind| IndexDefinition {
        id: IndexId(id),
        name: format!("index {id}").into(),
        attributes: ids(vec![id as u16, 0]),
        unique,
        primary,
        kind,
    };
    Schema {
        container: ContainerId(u32::MAX),
        version: SchemaVersion(7),
        attributes: TYPES.iter().enumerate().map(attribute).collect(),
        indexes: Box::new([
            index(1, true, true, IndexKind::Ordered),
            index(2, true, false, IndexKind::Hash),
            index(3, false, false, IndexKind::Ordered),
            index(4, false, false, IndexKind::Inverted),
        ]),
        layout,
        physical: physical.map(Arc::new),
        segment_rows: 1 << 16,
    }
}

fn assert_comes_back(definition: &Definition) {
    let text = to_text(definition);
    assert_eq!(from_text(text.as_bytes()).as_ref(), Ok(definition), "{text}");
}

#[test]
fn every_type_has_its_name_in_the_format() {
    for (data_type, name) in TYPES {
        assert!(is_listed(data_type));
        let mut schema = schema_with(Layout::Default, None);
        schema.attributes[0].data_type = data_type;
        let text = to_text(&Definition::Schema(Arc::new(schema)));
        let first = text.split("\"data_type\":").nth(1).map(|rest| rest.starts_with(name));
        assert_eq!(first, Some(true), "{name}: {text}");
    }
}

#[test]
fn schemas_come_back_with_every_type_index_and_layout() {
    for layout in [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default] {
        for physical in [None, Some(some_layouts())] {
            assert_comes_back(&Definition::Schema(Arc::new(schema_with(layout, physical))));
        }
    }
}

#[test]
fn every_definition_comes_back() {
    let attributes: Box<[AttributeId]> = ids(vec![0, 3]);
    let child = ContainerId(9);
    let schema = Arc::new(schema_with(Layout::Default, None));
    for (partitioning, cuts, like) in [
        (Partitioning::Range(attributes.clone()), vec![vec![0], vec![0xff; 100]], None),
        (Partitioning::Hash { attributes: attributes.clone(), partitions: 7 }, Vec::new(), Some(ContainerId(3))),
        (Partitioning::Size { partitions: 64 }, Vec::new(), None),
    ] {
        let cuts = cuts.iter().map(|cut| Key::from_bytes(cut)).collect();
        let schema = Arc::clone(&schema);
        assert_comes_back(&Definition::Container { schema, partitioning, cuts, like });
    }
    for layouts in [None, Some(Arc::new(some_layouts()))] {
        assert_comes_back(&Definition::Layouts(child, layouts));
    }
    let name = "of \"them\"\n";
    let index = GlobalIndexSpec { container: child, name: name.into(), attributes: attributes.clone(), partitions: 3 };
    assert_comes_back(&Definition::GlobalIndex(index, ContainerId(10)));
    let side = |container| KeySide { container, name: name.into(), attributes: attributes.clone() };
    let actions = [ReferentialAction::NoAction, ReferentialAction::Restrict];
    for (on_delete, on_update) in [(actions[0], actions[1]), (actions[1], actions[0])] {
        let (child, parent) = (side(child), side(ContainerId(11)));
        let spec = ForeignKeySpec { name: name.into(), child, parent, on_delete, on_update };
        assert_comes_back(&Definition::ForeignKey(spec));
    }
    let sequence = SequenceSpec {
        increment: i64::MIN,
        minimum: i64::MIN,
        maximum: i64::MAX,
        start: -1,
        cache: u64::MAX,
        cycle: true,
        ..SequenceSpec::new(name)
    };
    for is_called in [false, true] {
        let state = SequenceState { last: i64::MIN, is_called };
        assert_comes_back(&Definition::Sequence(SequenceId(5), sequence.clone(), state));
    }
    assert_comes_back(&Definition::ContainerDropped(child));
    assert_comes_back(&Definition::ForeignKeyDropped(child, name.into()));
    assert_comes_back(&Definition::SequenceDropped(SequenceId(5)));
}

#[test]
fn what_is_no_definition_is_refused() {
    let good = to_text(&Definition::Schema(Arc::new(schema_with(Layout::Default, None))));
    for bad in [
        String::new(),
        good.replacen("\"int16\"", "\"int8\"", 1),
        good.replacen("\"segment_rows\"", "\"rows\"", 1),
        good.replacen('{', "{\"more\":1,", 1),
        good[..good.len() - 1].to_owned(),
    ] {
        assert!(from_text(bad.as_bytes()).is_err(), "{bad}");
    }
}
