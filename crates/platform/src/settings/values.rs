//! The values in force: of a database, or of a session over it.

use std::collections::BTreeMap;

use super::declaration::{Setting, SettingDeclaration, SettingError};
use super::types::{SettingType, SettingValue};

/// What was set, by name; everything else has its default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SettingValues {
    set: BTreeMap<&'static str, SettingValue>,
}

impl SettingValues {
    /// The value in force.
    ///
    /// # Panics
    /// If the setting was not set and its default depends on the machine: those are read with [`get_or`](Self::get_or).
    pub fn get<T: SettingType>(&self, setting: Setting<T>) -> T {
        let value = self.explicit(setting).or_else(|| setting.default_value());
        value.unwrap_or_else(|| unreachable!("setting {} has neither a value nor a fixed default", setting.name()))
    }

    /// The value in force, or `fallback` if nothing was set and the default depends on the machine.
    pub fn get_or<T: SettingType>(&self, setting: Setting<T>, fallback: T) -> T {
        self.explicit(setting).or_else(|| setting.default_value()).unwrap_or(fallback)
    }

    fn explicit<T: SettingType>(&self, setting: Setting<T>) -> Option<T> {
        self.set.get(setting.name()).and_then(T::from_value)
    }

    /// Parses, checks and sets.
    pub fn set_text(&mut self, declaration: &'static SettingDeclaration, text: &str) -> Result<(), SettingError> {
        let value = declaration.parse(text)?;
        self.set.insert(declaration.name, value);
        Ok(())
    }

    /// Back to the default.
    pub fn reset(&mut self, declaration: &SettingDeclaration) {
        self.set.remove(declaration.name);
    }

    /// The value in force as text; `auto` if it is determined from the machine.
    pub fn text(&self, declaration: &SettingDeclaration) -> String {
        self.set.get(declaration.name).map_or_else(|| declaration.default_text(), ToString::to_string)
    }

    pub fn is_set(&self, declaration: &SettingDeclaration) -> bool {
        self.set.contains_key(declaration.name)
    }
}
