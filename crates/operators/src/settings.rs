//! The settings that operators obey.

use eris_platform::settings::SettingValues;

eris_platform::settings! {
    /// The settings of the operators.
    pub static SETTINGS;

    /// What aggregation works on. codes: texts of a shared dictionary are grouped by their ids, and a group's text is
    /// looked up once. values: every value is looked up in its dictionary first, whatever is done with it, as systems
    /// do whose operators know no codes; this makes accesses to dictionaries frequent, for measurements of caches.
    pub const AGGREGATION_INPUT: Choice = {
        name: "aggregation_input", scope: Session, default: "codes", choices: ["codes", "values"],
    };
}

/// What aggregation works on, see [`AGGREGATION_INPUT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AggregationInput {
    /// Ids of dictionaries, where values have some.
    #[default]
    Codes,
    /// Values that were looked up.
    Values,
}

impl AggregationInput {
    /// As these settings say.
    pub fn of(settings: &SettingValues) -> Self {
        if settings.get(AGGREGATION_INPUT).0 == "values" { Self::Values } else { Self::Codes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_unless_values_are_asked_for() {
        let mut settings = SettingValues::default();
        assert_eq!(AggregationInput::of(&settings), AggregationInput::Codes);
        settings.set_text(AGGREGATION_INPUT.declaration(), "values").unwrap();
        assert_eq!(AggregationInput::of(&settings), AggregationInput::Values);
        assert!(settings.set_text(AGGREGATION_INPUT.declaration(), "texts").is_err());
    }
}
