//! Physical layouts: which storage modules hold which attributes of a segment's rows (004, section 5.2.3).
//!
//! ```text
//! attributes      id      name     phone    age
//!               +------+---------------------------+
//! row static    |      |  name     phone    age    |     one member: module and attributes
//! column        |  id  |                    age    |     another; `age` is held twice, reads take the cheaper
//!               +------+---------------------------+
//! ```
//! A segment has one layout; segments of one partition may have different ones. The enum [`Layout`](crate::Layout)
//! names the layouts of a single module; this file is for those that are set by hand.

use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::modules::{AccessPathFactory, AddressingMode, COLUMN, Count, ENCODED, ROW_DYNAMIC, Registry};
use crate::schema::{Attribute, Schema};
use std::sync::Arc;

/// Access paths of one segment at most: further ones would cost every insert more than any read can win.
pub const LAYOUT_MEMBERS_MAX: usize = 64;

/// One access path of a layout: a module, by name, and the attributes it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutMember {
    pub module: Box<str>,
    pub attributes: Box<[AttributeId]>,
}

/// How a segment's rows are held: every attribute by one member at least. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalLayout {
    members: Arc<[LayoutMember]>,
}

/// The layouts of a partition's open and of its sealed segments, set by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLayouts {
    pub open: PhysicalLayout,
    pub sealed: PhysicalLayout,
}

impl SegmentLayouts {
    /// The same with attributes that the schema gained.
    pub(crate) fn widened(&self, first: AttributeId, attribute_count: usize) -> Self {
        Self { open: self.open.widened(first, attribute_count), sealed: self.sealed.widened(first, attribute_count) }
    }
}

impl PhysicalLayout {
    /// A layout of these members.
    pub fn new(members: impl Into<Arc<[LayoutMember]>>) -> Self {
        Self { members: members.into() }
    }

    /// All attributes in one access path.
    pub fn single(module: &str, attribute_count: usize) -> Self {
        let attributes = (0..attribute_count as u16).map(AttributeId).collect();
        Self::new([LayoutMember { module: module.into(), attributes }])
    }

    /// The same with plain columns in the place of encoded ones.
    pub(crate) fn unencoded(&self) -> Self {
        let plain = |member: &LayoutMember| match &*member.module {
            ENCODED => LayoutMember { module: COLUMN.into(), attributes: member.attributes.clone() },
            _ => member.clone(),
        };
        Self::new(self.members.iter().map(plain).collect::<Vec<_>>())
    }

    /// The same with attributes that the schema gained: they go to the catch-all, a *row dynamic* member.
    pub(crate) fn widened(&self, first: AttributeId, attribute_count: usize) -> Self {
        let added: Vec<AttributeId> = (first.0..attribute_count as u16).map(AttributeId).collect();
        let mut members = self.members.to_vec();
        let catch_all = members.iter_mut().find(|member| *member.module == *ROW_DYNAMIC);
        match catch_all {
            Some(member) => member.attributes = member.attributes.iter().chain(&added).copied().collect(),
            None => members.push(LayoutMember { module: ROW_DYNAMIC.into(), attributes: added.into() }),
        }
        Self::new(members)
    }

    /// What is left of it without the attributes from `count` on: the layout of a segment from before they were added.
    pub(crate) fn restricted(&self, count: usize) -> Self {
        let restrict = |member: &LayoutMember| LayoutMember {
            module: member.module.clone(),
            attributes: member.attributes.iter().filter(|id| id.index() < count).copied().collect(),
        };
        let members = self.members.iter().map(restrict).filter(|member| !member.attributes.is_empty());
        Self::new(members.collect::<Arc<[_]>>())
    }

    /// Attributes held: those below this number.
    pub(crate) fn attribute_count(&self) -> usize {
        let ids = self.members.iter().flat_map(|member| &member.attributes);
        ids.map(|id| id.index() + 1).max().unwrap_or(0)
    }

    /// The members.
    pub fn members(&self) -> &[LayoutMember] {
        &self.members
    }

    /// Whether this is the very same value, not only an equal one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.members, &other.members)
    }

    /// The layout in words: `column [id, age] + row static [name, phone, age]`.
    pub fn describe(&self, schema: &Schema) -> String {
        let member = |member: &LayoutMember| {
            let name = |id: &AttributeId| schema.attribute(*id).map_or("?", |attribute| &attribute.name);
            let names: Vec<&str> = member.attributes.iter().map(name).collect();
            format!("{} [{}]", member.module, names.join(", "))
        };
        self.members.iter().map(member).collect::<Vec<_>>().join(" + ")
    }

    /// Refuses a layout that leaves an attribute out or gives a module what it cannot hold (its
    /// [`Properties`](crate::Properties) say what it can).
    pub fn check(&self, attributes: &[Attribute], modules: &Registry) -> Result<(), StorageError> {
        let refuse = |reason: String| Err(StorageError::Layout { reason });
        if self.members.is_empty() || self.members.len() > LAYOUT_MEMBERS_MAX {
            return refuse(format!("{} access paths; there must be 1 to {LAYOUT_MEMBERS_MAX}", self.members.len()));
        }
        let mut held = vec![false; attributes.len()];
        for member in self.members.iter() {
            let Some(module) = modules.module(&member.module) else {
                return refuse(format!("there is no storage module \"{}\"", member.module));
            };
            if let Some(reason) = member_misfit(member, module, attributes) {
                return refuse(reason);
            }
            for id in &member.attributes {
                held[id.index()] = true;
            }
        }
        match held.iter().position(|held| !held) {
            Some(left_out) => refuse(format!("no access path holds \"{}\"", attributes[left_out].name)),
            None => Ok(()),
        }
    }
}

/// Why a module cannot hold what a member gives it.
fn member_misfit(member: &LayoutMember, module: &dyn AccessPathFactory, attributes: &[Attribute]) -> Option<String> {
    let properties = module.properties();
    let name = &member.module;
    if properties.addressing == AddressingMode::Value || properties.attributes == Count::None {
        return Some(format!("storage module \"{name}\" is an index and holds no rows"));
    }
    if member.attributes.is_empty() && !attributes.is_empty() {
        return Some(format!("an access path of \"{name}\" without attributes"));
    }
    if let Count::AtMost(most) = properties.attributes
        && member.attributes.len() > usize::from(most)
    {
        let count = member.attributes.len();
        return Some(format!("storage module \"{name}\" holds at most {most} attributes, not {count}"));
    }
    for (position, id) in member.attributes.iter().enumerate() {
        let Some(attribute) = attributes.get(id.index()) else { return Some(format!("there is no attribute {id}")) };
        let text = &attribute.name;
        if member.attributes[..position].contains(id) {
            return Some(format!("an access path of \"{name}\" holds \"{text}\" twice"));
        }
        if attribute.nullable && !properties.nulls {
            return Some(format!("storage module \"{name}\" cannot hold NULL, which \"{text}\" may be"));
        }
        if attribute.data_type.is_variable_length() && !properties.variable_length {
            let data_type = attribute.data_type;
            return Some(format!(
                "storage module \"{name}\" cannot hold values of any length (\"{text}\" {data_type})"
            ));
        }
    }
    None
}

impl SegmentLayouts {
    /// Checks both, see [`PhysicalLayout::check`].
    pub fn check(&self, attributes: &[Attribute], modules: &Registry) -> Result<(), StorageError> {
        self.open.check(attributes, modules)?;
        self.sealed.check(attributes, modules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::{COLUMN, ORDERED_INDEX, ROW_STATIC};
    use crate::types::DataType;

    fn attributes() -> [Attribute; 3] {
        [("a", DataType::Int32, false), ("b", DataType::Text, true), ("c", DataType::Int64, true)]
            .map(|(name, data_type, nullable)| Attribute { name: name.into(), data_type, nullable })
    }

    fn layout(members: &[(&str, &[u16])]) -> PhysicalLayout {
        let member = |(module, ids): &(&str, &[u16])| LayoutMember {
            module: (*module).into(),
            attributes: ids.iter().map(|id| AttributeId(*id)).collect(),
        };
        PhysicalLayout::new(members.iter().map(member).collect::<Vec<_>>())
    }

    #[test]
    fn layouts_that_do_not_fit_are_errors_with_a_reason() {
        let check = |members| match layout(members).check(&attributes(), Registry::standard()) {
            Ok(()) => String::new(),
            Err(StorageError::Layout { reason }) => reason,
            Err(other) => other.to_string(),
        };
        assert_eq!(check(&[(COLUMN, &[0, 1]), (ROW_STATIC, &[1, 2])]), "");
        assert!(check(&[]).contains("0 access paths"));
        assert!(check(&[(COLUMN, &[0, 1])]).contains("no access path holds \"c\""));
        assert!(check(&[("stone tablet", &[0, 1, 2])]).contains("no storage module \"stone tablet\""));
        assert!(check(&[(ORDERED_INDEX, &[0, 1, 2])]).contains("holds no rows"));
        assert!(check(&[(COLUMN, &[0, 1, 2, 7])]).contains("no attribute 7"));
        assert!(check(&[(COLUMN, &[0, 1, 2, 1])]).contains("\"b\" twice"));
        assert!(check(&[(COLUMN, &[]), (COLUMN, &[0, 1, 2])]).contains("without attributes"));
    }

    #[test]
    fn properties_of_modules_are_obeyed() {
        struct Narrow;
        impl AccessPathFactory for Narrow {
            fn name(&self) -> &'static str {
                "narrow"
            }

            fn properties(&self) -> crate::modules::Properties {
                crate::modules::Properties {
                    addressing: AddressingMode::Direct,
                    attributes: Count::AtMost(1),
                    keys: Count::None,
                    nulls: false,
                    undefined: false,
                    variable_length: false,
                    shares_frozen_columns: true,
                    updates_in_place: false,
                    key_order: false,
                }
            }

            fn create(&self, _: crate::modules::PathConfiguration<'_>) -> crate::modules::PathInstance {
                unreachable!("only asked for its properties")
            }
        }
        let misfit = |ids: &[u16]| {
            let attributes_of = ids.iter().map(|id| AttributeId(*id)).collect();
            let member = LayoutMember { module: "narrow".into(), attributes: attributes_of };
            member_misfit(&member, &Narrow, &attributes()).unwrap_or_default()
        };
        assert_eq!(misfit(&[0]), "");
        assert!(misfit(&[0, 2]).contains("at most 1 attributes"));
        assert!(misfit(&[2]).contains("NULL"));
        assert!(misfit(&[1]).contains("NULL"));
        let mut text = attributes();
        text[1].nullable = false;
        let member = LayoutMember { module: "narrow".into(), attributes: [AttributeId(1)].into() };
        assert!(member_misfit(&member, &Narrow, &text).unwrap_or_default().contains("any length"));
    }
}
