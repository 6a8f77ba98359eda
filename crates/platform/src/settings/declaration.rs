//! What is known about a setting.

use std::marker::PhantomData;
use std::time::Duration;

use super::types::{ByteSize, SettingType, SettingValue, Timeout};

/// Where a setting can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// For the whole database, when it is opened.
    Global,
    /// For a session at any time; the database's value is its default.
    Session,
}

/// The type of a setting and what its values may be. Bounds are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingKind {
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    Duration {
        min: Duration,
        max: Duration,
    },
    /// 0 up to [`Timeout::MAX`].
    Timeout,
    Bytes {
        min: ByteSize,
        max: ByteSize,
    },
    Choice {
        choices: &'static [&'static str],
    },
    Text,
}

/// One setting, as [`settings!`](crate::settings!) declares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingDeclaration {
    pub name: &'static str,
    pub scope: Scope,
    pub kind: SettingKind,
    /// `None`: determined from the machine when the database opens.
    pub default: Option<SettingValue>,
    /// The doc comment, lines ended by line feeds; see [`description`](Self::description).
    pub description: &'static str,
}

impl SettingDeclaration {
    /// The description on one line.
    pub fn description(&self) -> String {
        self.description.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The default as text; `auto` if it depends on the machine.
    pub fn default_text(&self) -> String {
        self.default.as_ref().map_or("auto".to_owned(), ToString::to_string)
    }

    /// The name of the type, for `eris.settings`.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            SettingKind::Bool => "bool",
            SettingKind::Integer { .. } => "integer",
            SettingKind::Duration { .. } => "duration",
            SettingKind::Timeout => "timeout",
            SettingKind::Bytes { .. } => "bytes",
            SettingKind::Choice { .. } => "enum",
            SettingKind::Text => "text",
        }
    }

    /// The smallest and the largest value as text, for types that have them.
    pub fn bounds(&self) -> Option<(String, String)> {
        let (min, max) = match self.kind {
            SettingKind::Integer { min, max } => (SettingValue::Integer(min), SettingValue::Integer(max)),
            SettingKind::Duration { min, max } => (SettingValue::Duration(min), SettingValue::Duration(max)),
            SettingKind::Bytes { min, max } => (SettingValue::Bytes(min), SettingValue::Bytes(max)),
            SettingKind::Timeout => (SettingValue::Timeout(Timeout::NEVER), SettingValue::Timeout(Timeout::MAX)),
            SettingKind::Bool | SettingKind::Choice { .. } | SettingKind::Text => return None,
        };
        Some((min.to_string(), max.to_string()))
    }
}

/// A setting whose values are read as `T`.
pub struct Setting<T> {
    declaration: &'static SettingDeclaration,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Setting<T> {
    fn clone(&self) -> Setting<T> {
        *self
    }
}

impl<T> Copy for Setting<T> {}

impl<T> Setting<T> {
    /// For [`settings!`](crate::settings!), which sees to it that `T` fits the declaration.
    #[doc(hidden)]
    pub const fn new(declaration: &'static SettingDeclaration) -> Setting<T> {
        Setting { declaration, value: PhantomData }
    }

    pub const fn declaration(&self) -> &'static SettingDeclaration {
        self.declaration
    }

    pub const fn name(&self) -> &'static str {
        self.declaration.name
    }
}

impl<T: SettingType> Setting<T> {
    /// The declared default, or `None` if it depends on the machine.
    pub fn default_value(&self) -> Option<T> {
        self.declaration.default.as_ref().and_then(T::from_value)
    }
}

/// A value that a setting cannot take.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    #[error("setting {setting} must be {expected}, not \"{value}\"")]
    Malformed { setting: &'static str, value: String, expected: String },
    #[error("setting {setting} must be between {min} and {max}, not {value}")]
    OutOfBounds { setting: &'static str, value: String, min: String, max: String },
}

impl SettingError {
    pub fn setting(&self) -> &'static str {
        match self {
            SettingError::Malformed { setting, .. } | SettingError::OutOfBounds { setting, .. } => setting,
        }
    }
}
