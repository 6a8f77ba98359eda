//! Functions of values.

use eris_operators::{DatePart, Expression, Span};

/// A function of one value, with what else it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `extract(part from moment)`, as an integer.
    Extract(DatePart),
    /// `substring(text from start for count)` with constant bounds.
    Substring(Span),
}

impl Function {
    /// The expression that computes it.
    pub(crate) fn of(self, input: Expression) -> Expression {
        let input = Box::new(input);
        match self {
            Self::Extract(part) => Expression::Extract { part, input },
            Self::Substring(span) => Expression::Substring { input, span },
        }
    }
}
