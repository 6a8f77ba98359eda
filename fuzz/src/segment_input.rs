//! What the fuzzer's bytes say, read from front to back: schemas, layouts, rows and predicates. Every byte string says
//! something; behind its end there are zeros.
//!
//! Values are taken from the bytes as they are, so NaNs of every pattern, the ends of all ranges, and texts of any
//! length below and above what a view holds inline occur; half of them come from a small domain, so that values meet.

use std::sync::Arc;

use eris_storage::{
    AddressingMode, Attribute, AttributeId, Comparison, Condition, ContainerId, Count, DataType, IndexDefinition,
    IndexId, IndexKind, Layout, LayoutMember, PhysicalLayout, Predicate, Registry, Schema, SchemaVersion,
    SegmentLayouts, Test, Value,
};

/// The attribute that tells rows apart; the others are the fuzzer's.
pub const SERIAL: AttributeId = AttributeId(0);

const ATTRIBUTES_MAX: usize = 10;
const MEMBERS_MAX: usize = 4;
const TEXT_BYTES_MAX: usize = 40;

/// Bytes that are left.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// Below `end`, which is at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let length = N.min(self.0.len());
        array[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        array
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn data_type(&mut self) -> DataType {
        match self.below(12) {
            0 => DataType::Boolean,
            1 => DataType::Int16,
            2 => DataType::Int32,
            3 => DataType::Int64,
            4 => DataType::Float32,
            5 => DataType::Float64,
            6 => DataType::Decimal { precision: 12, scale: 2 },
            7 => DataType::Decimal { precision: 38, scale: 10 },
            8 => DataType::Date,
            9 => DataType::Timestamp,
            10 => DataType::Text,
            _ => DataType::Bytes,
        }
    }

    pub fn attribute(&mut self, position: usize) -> Attribute {
        let name = format!("attribute {position}").into();
        Attribute { name, data_type: self.data_type(), nullable: self.below(2) == 0 }
    }

    pub fn schema(&mut self) -> Schema {
        let serial = Attribute { name: "serial".into(), data_type: DataType::Int64, nullable: false };
        let others = 1 + self.below(ATTRIBUTES_MAX);
        let mut attributes = vec![serial];
        attributes.extend((1..=others).map(|position| self.attribute(position)));
        let indexes = (0..self.below(3) as u32).map(|number| self.index(number, attributes.len())).collect();
        let layout = [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][self.below(4)];
        let physical = (self.below(2) == 0).then(|| Arc::new(self.layouts(&attributes)));
        Schema {
            container: ContainerId(1),
            version: SchemaVersion(1),
            attributes: attributes.into(),
            indexes,
            layout,
            physical,
            segment_rows: 2 + self.below(40) as u32,
        }
    }

    /// Keys are any values, often equal.
    fn index(&mut self, number: u32, attributes: usize) -> IndexDefinition {
        let key: Vec<AttributeId> = (0..=self.below(2)).map(|_| AttributeId(self.below(attributes) as u16)).collect();
        let repeats = key.len() > 1 && key[0] == key[1];
        IndexDefinition {
            id: IndexId(number + 1),
            name: format!("index {number}").into(),
            attributes: if repeats { [key[0]].into() } else { key.into() },
            unique: false,
            primary: false,
            kind: if self.below(2) == 0 { IndexKind::Hash } else { IndexKind::Ordered },
        }
    }

    /// Layouts for open and for sealed segments, of whatever modules hold rows.
    pub fn layouts(&mut self, attributes: &[Attribute]) -> SegmentLayouts {
        SegmentLayouts { open: self.layout(attributes), sealed: self.layout(attributes) }
    }

    /// Some members as the bytes choose, and what they leave out in the last one.
    fn layout(&mut self, attributes: &[Attribute]) -> PhysicalLayout {
        let modules: Vec<_> = Registry::standard()
            .iter()
            .filter(|module| module.properties().addressing != AddressingMode::Value)
            .collect();
        let mut left: Vec<bool> = vec![true; attributes.len()];
        let mut members = Vec::new();
        for _ in 0..self.below(MEMBERS_MAX) {
            let module = modules[self.below(modules.len())];
            let properties = module.properties();
            let chosen = u16::from_le_bytes(self.array());
            let holds = |id: &AttributeId| {
                let attribute = &attributes[id.index()];
                chosen >> (id.0 % 16) & 1 == 1
                    && (properties.nulls || !attribute.nullable)
                    && (properties.variable_length || !attribute.data_type.is_variable_length())
            };
            let mut held: Vec<AttributeId> = (0..attributes.len() as u16).map(AttributeId).filter(holds).collect();
            if let Count::AtMost(most) = properties.attributes {
                held.truncate(usize::from(most));
            }
            if !held.is_empty() {
                for id in &held {
                    left[id.index()] = false;
                }
                members.push(LayoutMember { module: module.name().into(), attributes: held.into() });
            }
        }
        let rest: Box<[AttributeId]> =
            (0..attributes.len() as u16).map(AttributeId).filter(|id| left[id.index()]).collect();
        if !rest.is_empty() {
            let catch_all: Vec<_> = modules
                .iter()
                .filter(|module| {
                    let properties = module.properties();
                    properties.nulls && properties.variable_length && properties.attributes == Count::Any
                })
                .collect();
            let module = catch_all[self.below(catch_all.len())].name().into();
            members.push(LayoutMember { module, attributes: rest });
        }
        PhysicalLayout::new(members)
    }

    /// A row of any values.
    pub fn row(&mut self, attributes: &[Attribute], serial: i64) -> Vec<Value> {
        let others = attributes[1..].iter();
        std::iter::once(Value::Int64(serial)).chain(others.map(|attribute| self.value(attribute))).collect()
    }

    /// A value that an attribute may have.
    pub fn value(&mut self, attribute: &Attribute) -> Value {
        let how = self.byte();
        if attribute.nullable && how.is_multiple_of(5) {
            return Value::Null;
        }
        if how.is_multiple_of(2) { small(attribute.data_type, how / 16) } else { self.any(attribute.data_type) }
    }

    fn any(&mut self, data_type: DataType) -> Value {
        match data_type {
            DataType::Boolean => Value::Boolean(self.byte() % 2 == 1),
            DataType::Int16 => Value::Int16(i16::from_le_bytes(self.array())),
            DataType::Int32 => Value::Int32(i32::from_le_bytes(self.array())),
            DataType::Int64 => Value::Int64(i64::from_le_bytes(self.array())),
            DataType::Float32 => Value::Float32(f32::from_le_bytes(self.array())),
            DataType::Float64 => Value::Float64(f64::from_le_bytes(self.array())),
            DataType::Decimal { precision, scale } => {
                let digits = 10_i128.pow(u32::from(precision));
                Value::Decimal { unscaled: i128::from_le_bytes(self.array()) % digits, scale }
            }
            DataType::Date => Value::Date(i32::from_le_bytes(self.array())),
            DataType::Timestamp => Value::Timestamp(i64::from_le_bytes(self.array())),
            DataType::Text => {
                let length = self.below(TEXT_BYTES_MAX);
                Value::Text(String::from_utf8_lossy(self.bytes(length)).into())
            }
            DataType::Bytes => {
                let length = self.below(TEXT_BYTES_MAX);
                Value::Bytes(self.bytes(length).into())
            }
        }
    }

    /// A predicate of up to two conditions.
    pub fn predicate(&mut self, attributes: &[Attribute]) -> Predicate {
        let conditions: Vec<Condition> = (0..self.below(3)).map(|_| self.condition(attributes)).collect();
        Predicate::new(conditions)
    }

    fn condition(&mut self, attributes: &[Attribute]) -> Condition {
        let position = self.below(attributes.len());
        let attribute = &attributes[position];
        let comparison = [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
        ][self.below(6)];
        let test = match self.below(6) {
            0 => Test::IsNull,
            1 => Test::IsNotNull,
            2 => Test::In((0..self.below(4)).map(|_| self.value(attribute)).filter(|value| !value.is_null()).collect()),
            _ => match self.value(attribute) {
                Value::Null => Test::IsNotNull,
                value => Test::Compare(comparison, value),
            },
        };
        Condition { attribute: AttributeId(position as u16), test }
    }
}

/// One of a few values of a type.
fn small(data_type: DataType, which: u8) -> Value {
    match data_type {
        DataType::Boolean => Value::Boolean(which % 2 == 1),
        DataType::Int16 => Value::Int16(i16::from(which) - 4),
        DataType::Int32 => Value::Int32(i32::from(which) - 4),
        DataType::Int64 => Value::Int64(i64::from(which) - 4),
        DataType::Float32 => Value::Float32([0.0, -0.0, 1.5, f32::NAN, f32::INFINITY, -1.0][usize::from(which) % 6]),
        DataType::Float64 => Value::Float64([0.0, -0.0, 1.5, f64::NAN, f64::INFINITY, -1.0][usize::from(which) % 6]),
        DataType::Decimal { scale, .. } => Value::Decimal { unscaled: i128::from(which) - 4, scale },
        DataType::Date => Value::Date(i32::from(which) - 4),
        DataType::Timestamp => Value::Timestamp(i64::from(which) - 4),
        DataType::Text => Value::Text("straße, eine sehr lange Straße".chars().take(usize::from(which) * 2).collect()),
        DataType::Bytes => Value::Bytes([0, 255].repeat(usize::from(which)).into()),
    }
}
