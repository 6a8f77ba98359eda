//! Where a figure comes from: never a silent zero.

use std::fmt;

/// The origin every derived figure carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Read from the machine.
    Measured,
    /// Computed from an assumption, because the machine does not tell.
    Modelled,
    /// Not known; the value is a placeholder and must not be shown as a figure.
    Unavailable,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Origin::Measured => "measured",
            Origin::Modelled => "modelled",
            Origin::Unavailable => "unavailable",
        })
    }
}
