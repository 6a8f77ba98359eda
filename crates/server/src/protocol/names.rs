//! What a client has given names to: prepared statements, portals.

use std::collections::BTreeMap;

/// Values by name. The one without a name is what most clients use, and use anew with every statement, so it has a
/// place of its own.
pub(crate) struct ByName<V> {
    unnamed: Option<V>,
    named: BTreeMap<String, V>,
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        ByName { unnamed: None, named: BTreeMap::new() }
    }
}

impl<V> ByName<V> {
    pub fn get(&self, name: &str) -> Option<&V> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// How many have a name.
    pub fn named(&self) -> usize {
        self.named.len()
    }

    /// Replaces what had the name.
    pub fn insert(&mut self, name: String, value: V) {
        if name.is_empty() {
            self.unnamed = Some(value);
        } else {
            self.named.insert(name, value);
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<V> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    pub fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_name_is_one_among_others() {
        let mut values = ByName::default();
        for (name, value) in [("", 1), ("a", 2), ("", 3), ("a", 4)] {
            values.insert(name.to_owned(), value);
            assert_eq!(values.get(name), Some(&value));
        }
        assert_eq!((values.remove(""), values.remove("")), (Some(3), None));
        assert_eq!((values.remove("a"), values.get("a")), (Some(4), None));
        values.insert(String::new(), 5);
        values.insert("b".to_owned(), 6);
        values.clear();
        assert_eq!((values.get(""), values.get("b")), (None, None));
    }
}
