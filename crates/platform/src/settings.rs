//! Settings are declared once, in the crate that obeys them, and everything else follows from the declaration: parsing,
//! bounds, `SHOW`, command-line flags, documentation.
//!
//! ```
//! use std::time::Duration;
//! use eris_platform::settings::{ByteSize, SettingValues};
//!
//! eris_platform::settings! {
//!     /// All settings of this crate.
//!     pub static SETTINGS;
//!
//!     /// The longest time a command keeps a living partition before it saves its cursor and queues again.
//!     pub const QUANTUM: Duration = {
//!         name: "quantum", scope: Session, default: Duration::from_micros(200),
//!         min: Duration::from_micros(1), max: Duration::from_secs(10),
//!     };
//!     /// Where rows of new segments are stored.
//!     pub const LAYOUT: Choice = { name: "layout", scope: Session, default: "mixed", choices: ["row", "column",
//!     "mixed"] }; /// Whether tasks run commands in place when they may.
//!     pub const IN_PLACE: bool = { name: "in_place", scope: Global, default: true };
//!     /// The most memory the database takes; by default 80 % of what the process may use.
//!     pub const MEMORY_LIMIT: ByteSize = { name: "memory_limit", scope: Global, min: ByteSize(16 << 20), max:
//!     ByteSize::MAX };
//! }
//!
//! assert_eq!(SETTINGS.len(), 4);
//! let mut values = SettingValues::default();
//! assert_eq!(values.get(QUANTUM), Duration::from_micros(200));
//! values.set_text(SETTINGS[0], "1ms").unwrap();
//! assert_eq!(values.get(QUANTUM), Duration::from_millis(1));
//! let error = values.set_text(SETTINGS[0], "1h").unwrap_err();
//! assert_eq!(error.to_string(), "setting quantum must be between 1us and 10s, not 1h");
//! assert_eq!(values.get_or(MEMORY_LIMIT, ByteSize(1 << 30)), ByteSize(1 << 30));
//! ```

mod declaration;
mod parse;
mod types;
mod values;

pub use declaration::{Scope, Setting, SettingDeclaration, SettingError, SettingKind};
pub use types::{ByteSize, Choice, SettingType, SettingValue, Timeout};
pub use values::SettingValues;

/// Declares settings as typed constants, and a slice of all their declarations. See the [module](self).
///
/// The doc comment of a setting is its description. A setting without `default` is `auto`: its default is determined
/// from the machine when the database opens. Types: `bool`, `i64`, `Duration`, `Timeout`, `ByteSize`, `Choice`,
/// `Text`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$list_attribute:meta])*
        $list_visibility:vis static $list:ident;
        $(
            $(#[doc = $description:literal])+
            $visibility:vis const $setting:ident: $kind:ident = {
                name: $name:literal, scope: $scope:ident
                $(, default: $default:expr)?
                $(, min: $min:expr, max: $max:expr)?
                $(, choices: [$($choice:literal),+ $(,)?])?
                $(,)?
            };
        )*
    ) => {
        $(
            $(#[doc = $description])+
            $visibility const $setting: $crate::settings::Setting<$crate::__setting_type!($kind)> = {
                const DECLARATION: &$crate::settings::SettingDeclaration = &$crate::settings::SettingDeclaration {
                    name: $name,
                    scope: $crate::settings::Scope::$scope,
                    kind: $crate::__setting_kind!($kind $(, $min, $max)? $(, [$($choice),+])?),
                    default: $crate::__setting_default!($kind $(, $default)?),
                    description: ::std::concat!($($description, "\n"),+),
                };
                $crate::settings::Setting::new(DECLARATION)
            };
        )*
        $(#[$list_attribute])*
        $list_visibility static $list: &[&$crate::settings::SettingDeclaration] = &[$($setting.declaration()),*];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __setting_type {
    (bool) => {
        bool
    };
    (i64) => {
        i64
    };
    (Duration) => {
        ::std::time::Duration
    };
    (Timeout) => {
        $crate::settings::Timeout
    };
    (ByteSize) => {
        $crate::settings::ByteSize
    };
    (Choice) => {
        $crate::settings::Choice
    };
    (Text) => {
        ::std::string::String
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __setting_kind {
    (bool) => { $crate::settings::SettingKind::Bool };
    (i64, $min:expr, $max:expr) => { $crate::settings::SettingKind::Integer { min: $min, max: $max } };
    (Duration, $min:expr, $max:expr) => { $crate::settings::SettingKind::Duration { min: $min, max: $max } };
    (Timeout) => { $crate::settings::SettingKind::Timeout };
    (ByteSize, $min:expr, $max:expr) => { $crate::settings::SettingKind::Bytes { min: $min, max: $max } };
    (Choice, [$($choice:literal),+]) => { $crate::settings::SettingKind::Choice { choices: &[$($choice),+] } };
    (Text) => { $crate::settings::SettingKind::Text };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __setting_default {
    ($kind:ident) => {
        ::std::option::Option::None
    };
    (bool, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Bool($default))
    };
    (i64, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Integer($default))
    };
    (Duration, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Duration($default))
    };
    (Timeout, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Timeout($default))
    };
    (ByteSize, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Bytes($default))
    };
    (Choice, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Choice($default))
    };
    (Text, $default:expr) => {
        ::std::option::Option::Some($crate::settings::SettingValue::Text(::std::borrow::Cow::Borrowed($default)))
    };
}
