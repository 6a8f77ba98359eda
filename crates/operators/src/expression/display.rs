//! How EXPLAIN shows expressions.

use std::fmt;

use super::Expression;

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Expression], word: &str) -> fmt::Result {
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            write!(f, " {word} ")?;
        }
        write!(f, "({part})")?;
    }
    Ok(())
}

fn word(negated: bool) -> &'static str {
    if negated { "not " } else { "" }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column { index, .. } => write!(f, "#{index}"),
            Self::Constant { value, .. } => write!(f, "{value}"),
            Self::Parameter { index, .. } => write!(f, "${}", index + 1),
            Self::Arithmetic { operator, left, right, .. } => write!(f, "({left} {operator} {right})"),
            Self::Compare { comparison, left, right } => write!(f, "{left} {comparison} {right}"),
            Self::And(parts) => joined(f, parts, "and"),
            Self::Or(parts) => joined(f, parts, "or"),
            Self::Not(inner) => write!(f, "not ({inner})"),
            Self::IsNull { input, negated } => write!(f, "{input} is {}null", word(*negated)),
            Self::IsTruth { input, truth, negated } => write!(f, "({input}) is {}{truth}", word(*negated)),
            Self::Distinct { left, right, same } => write!(f, "{left} is {}distinct from {right}", word(*same)),
            Self::Case { branches, otherwise, .. } => {
                f.write_str("case")?;
                for (when, then) in branches {
                    write!(f, " when {when} then {then}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " else {otherwise}")?;
                }
                f.write_str(" end")
            }
            Self::Like { input, pattern, negated } => {
                let like = if pattern.folds() { "ilike" } else { "like" };
                write!(f, "{input} {}{like} {pattern}", word(*negated))
            }
            Self::InList { input, set, negated } => {
                write!(f, "{input} {}in (", word(*negated))?;
                for (at, value) in set.values().iter().enumerate() {
                    write!(f, "{}{value}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Self::Extract { part, input } => write!(f, "extract({part} from {input})"),
            Self::Substring { input, span } => {
                let (start, count) = span.bounds();
                write!(f, "substring({input} from {start}")?;
                count.map_or(Ok(()), |count| write!(f, " for {count}"))?;
                f.write_str(")")
            }
            Self::Cast { input, data_type } => write!(f, "cast({input} as {data_type})"),
            Self::Foreign(foreign) => write!(f, "{foreign}"),
        }
    }
}
