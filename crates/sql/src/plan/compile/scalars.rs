//! Subqueries that do not refer to rows outside: each becomes a stage whose only value is a parameter from then on.

use eris_query::Scalar;

use super::{Compiler, Lowering, Needed};
use crate::native::{self, SinkPlan};

impl Compiler<'_> {
    /// Makes stages of the subqueries whose values these scalars refer to, unless there are some already.
    pub(super) fn ready<'s>(&mut self, scalars: impl IntoIterator<Item = &'s Scalar>) -> Lowering<()> {
        if self.query.values.len() == self.ready.len() {
            return Ok(());
        }
        let mut parameters = Vec::new();
        for scalar in scalars {
            scalar.parameters(&mut |parameter| parameters.push(parameter));
        }
        let query = self.query;
        for value in query.values.iter().filter(|value| parameters.contains(&value.parameter)) {
            if !self.ready.insert(value.parameter) {
                continue;
            }
            let needed: Needed = [value.column].into();
            let stream = self.stream(&value.relation, &needed)?.arranged(&[value.column])?;
            let stage = self.end(&stream, SinkPlan::Collect);
            self.scalars.push(native::Scalar { stage, parameter: value.parameter });
        }
        Ok(())
    }
}
