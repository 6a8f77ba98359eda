//! Functions without arguments that answer about the session or the moment.

use eris_query::Scalar;
use eris_storage::Value;

use super::Binder;
use crate::types::SqlType;

const MICROS_OF_DAY: i64 = 86_400_000_000;

impl Binder<'_> {
    /// What a function of the session gives now; `None`: it is none.
    pub(super) fn session_value(&mut self, name: &str) -> Option<Scalar> {
        let now = self.names.unix_micros;
        let session = self.names.session;
        let text = |text: &str| Scalar::constant(Value::Text(text.into()), SqlType::Text);
        let scalar = match name {
            "now" | "current_timestamp" => Scalar::constant(Value::Timestamp(now), SqlType::Timestamp),
            "current_date" => {
                let day = i32::try_from(now.div_euclid(MICROS_OF_DAY)).ok()?;
                Scalar::constant(Value::Date(day), SqlType::Date)
            }
            "version" => text(&session.version),
            "current_user" | "session_user" | "user" | "current_role" => text(&session.user),
            "current_database" | "current_catalog" => text(&session.database),
            "current_schema" => text("public"),
            _ => return None,
        };
        self.momentary = true;
        Some(scalar)
    }
}
