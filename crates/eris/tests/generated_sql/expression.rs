//! Expressions as a tree with types, and their text. Parentheses stand only where precedence needs them, so that the
//! parser has something to get wrong.

use std::fmt;

use crate::query::Query;
use crate::value::{Kind, Type, Value, date_text, timestamp_text};

#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: Kind,
    pub node: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Concat,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Distinct,
    NotDistinct,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Null,
    NotNull,
    True,
    NotTrue,
    False,
    NotFalse,
    Unknown,
    NotUnknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Abs,
    Length,
    Upper,
    Lower,
    Substr,
    Coalesce,
    NullIf,
    Greatest,
    Least,
    Round,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    BoolAnd,
    BoolOr,
}

#[derive(Clone, Debug)]
pub enum Node {
    /// With its type written out, unless it is bare.
    Literal {
        value: Value,
        bare: bool,
    },
    /// Of the query that many levels further out.
    Column {
        depth: usize,
        index: usize,
        name: String,
        declared: Type,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Between {
        input: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    InList {
        input: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    Like {
        input: Box<Expr>,
        pattern: String,
        negated: bool,
    },
    Is(Test, Box<Expr>),
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Cast(Box<Expr>, Type),
    Call(Function, Vec<Expr>),
    /// `count(*)` without an argument.
    Aggregate {
        function: Aggregate,
        distinct: bool,
        argument: Option<Box<Expr>>,
    },
    InQuery {
        input: Box<Expr>,
        query: Box<Query>,
        negated: bool,
    },
    Exists {
        query: Box<Query>,
        negated: bool,
    },
    Scalar(Box<Query>),
}

impl Expr {
    pub fn new(kind: Kind, node: Node) -> Expr {
        Expr { kind, node }
    }

    pub fn binary(kind: Kind, operator: Operator, left: Expr, right: Expr) -> Expr {
        Expr::new(kind, Node::Binary(operator, Box::new(left), Box::new(right)))
    }

    /// The expressions right below, subqueries left out.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.node {
            Node::Literal { .. } | Node::Column { .. } | Node::Exists { .. } | Node::Scalar(_) => Vec::new(),
            Node::Negate(inner) | Node::Not(inner) | Node::Is(_, inner) | Node::Cast(inner, _) => vec![inner],
            Node::Binary(_, left, right) => vec![left, right],
            Node::Between { input, low, high, .. } => vec![input, low, high],
            Node::InList { input, list, .. } => std::iter::once(&**input).chain(list).collect(),
            Node::Like { input, .. } | Node::InQuery { input, .. } => vec![input],
            Node::Case { operand, branches, otherwise } => {
                let branches = branches.iter().flat_map(|(when, then)| [when, then]);
                operand.as_deref().into_iter().chain(branches).chain(otherwise.as_deref()).collect()
            }
            Node::Call(_, arguments) => arguments.iter().collect(),
            Node::Aggregate { argument, .. } => argument.as_deref().into_iter().collect(),
        }
    }

    /// The same, to be changed.
    pub fn children_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.node {
            Node::Literal { .. } | Node::Column { .. } | Node::Exists { .. } | Node::Scalar(_) => Vec::new(),
            Node::Negate(inner) | Node::Not(inner) | Node::Is(_, inner) | Node::Cast(inner, _) => vec![inner],
            Node::Binary(_, left, right) => vec![left, right],
            Node::Between { input, low, high, .. } => vec![input, low, high],
            Node::InList { input, list, .. } => std::iter::once(&mut **input).chain(list).collect(),
            Node::Like { input, .. } | Node::InQuery { input, .. } => vec![input],
            Node::Case { operand, branches, otherwise } => {
                let branches = branches.iter_mut().flat_map(|(when, then)| [when, then]);
                operand.as_deref_mut().into_iter().chain(branches).chain(otherwise.as_deref_mut()).collect()
            }
            Node::Call(_, arguments) => arguments.iter_mut().collect(),
            Node::Aggregate { argument, .. } => argument.as_deref_mut().into_iter().collect(),
        }
    }

    /// Whether it depends on no row: such an expression may be computed when it is planned.
    pub fn is_constant(&self) -> bool {
        let depends = matches!(
            self.node,
            Node::Column { .. } | Node::Aggregate { .. } | Node::InQuery { .. } | Node::Exists { .. } | Node::Scalar(_)
        );
        !depends && self.children().into_iter().all(Expr::is_constant)
    }

    pub fn has_null(&self) -> bool {
        matches!(self.node, Node::Literal { value: Value::Null, .. }) || self.children().into_iter().any(Expr::has_null)
    }

    pub fn has_cast(&self) -> bool {
        matches!(self.node, Node::Cast(..)) || self.children().into_iter().any(Expr::has_cast)
    }

    pub fn has_subquery(&self) -> bool {
        matches!(self.node, Node::InQuery { .. } | Node::Exists { .. } | Node::Scalar(_))
            || self.children().into_iter().any(Expr::has_subquery)
    }

    /// PostgreSQL's precedence, the strongest highest.
    fn strength(&self) -> u8 {
        match &self.node {
            Node::Binary(operator, ..) => operator.strength(),
            Node::Not(_) => 3,
            Node::Is(..) => 4,
            Node::Between { .. } | Node::InList { .. } | Node::Like { .. } | Node::InQuery { .. } => 6,
            Node::Exists { negated: true, .. } => 3,
            _ => ATOM,
        }
    }
}

const ATOM: u8 = 20;

impl Operator {
    pub const COMPARISONS: [Operator; 6] = [
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
    ];

    fn strength(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And => 2,
            Operator::Distinct | Operator::NotDistinct => 4,
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => 5,
            Operator::Concat => 7,
            Operator::Add | Operator::Subtract => 8,
            Operator::Multiply | Operator::Divide | Operator::Modulo => 9,
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
            Operator::Concat => "||",
            Operator::Equal => "=",
            Operator::NotEqual => "<>",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Distinct => "IS DISTINCT FROM",
            Operator::NotDistinct => "IS NOT DISTINCT FROM",
            Operator::And => "AND",
            Operator::Or => "OR",
        }
    }
}

impl Test {
    pub const TRUTH: [Test; 6] =
        [Test::True, Test::NotTrue, Test::False, Test::NotFalse, Test::Unknown, Test::NotUnknown];

    fn sql(self) -> &'static str {
        match self {
            Test::Null => "IS NULL",
            Test::NotNull => "IS NOT NULL",
            Test::True => "IS TRUE",
            Test::NotTrue => "IS NOT TRUE",
            Test::False => "IS FALSE",
            Test::NotFalse => "IS NOT FALSE",
            Test::Unknown => "IS UNKNOWN",
            Test::NotUnknown => "IS NOT UNKNOWN",
        }
    }
}

impl Function {
    fn sql(self) -> &'static str {
        match self {
            Function::Abs => "abs",
            Function::Length => "length",
            Function::Upper => "upper",
            Function::Lower => "lower",
            Function::Substr => "substr",
            Function::Coalesce => "coalesce",
            Function::NullIf => "nullif",
            Function::Greatest => "greatest",
            Function::Least => "least",
            Function::Round => "round",
        }
    }
}

impl Aggregate {
    fn sql(self) -> &'static str {
        match self {
            Aggregate::Count => "count",
            Aggregate::Sum => "sum",
            Aggregate::Min => "min",
            Aggregate::Max => "max",
            Aggregate::Avg => "avg",
            Aggregate::BoolAnd => "bool_and",
            Aggregate::BoolOr => "bool_or",
        }
    }
}

/// An operand that stands in parentheses if it binds less than this.
struct Operand<'a>(&'a Expr, u8);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.strength() < self.1 { write!(f, "({})", self.0) } else { self.0.fmt(f) }
    }
}

pub struct List<'a, T>(pub &'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn literal(f: &mut fmt::Formatter<'_>, kind: Kind, value: &Value, bare: bool) -> fmt::Result {
    let cast = |f: &mut fmt::Formatter<'_>, text: &str| write!(f, "CAST({text} AS {})", kind.sql());
    match value {
        Value::Null if bare => f.write_str("NULL"),
        Value::Null => cast(f, "NULL"),
        Value::Bool(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
        Value::Text(text) => f.write_str(&quoted(text)),
        Value::Date(date) => write!(f, "DATE '{}'", date_text(*date)),
        Value::Timestamp(micros) => write!(f, "TIMESTAMP '{}'", timestamp_text(*micros)),
        Value::Float(value) => cast(f, &format!("'{value:e}'")),
        Value::Numeric(value) if value.digits < 0 => write!(f, "({value})"),
        Value::Numeric(value) => write!(f, "{value}"),
        Value::Int(value) => {
            // PostgreSQL's type of the digits alone; of the least integers that of the digits does not hold the value.
            let natural = if i32::try_from(*value).is_ok() { Kind::Int4 } else { Kind::Int8 };
            if *value == kind.range().0 || *value == i64::from(i32::MIN) {
                cast(f, &format!("'{value}'"))
            } else if natural != kind {
                cast(f, &value.to_string())
            } else if *value < 0 {
                write!(f, "({value})")
            } else {
                write!(f, "{value}")
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match &self.node {
            Node::Literal { value, bare } => literal(f, self.kind, value, *bare),
            Node::Column { name, .. } => f.write_str(name),
            // In parentheses as an operand: `--` begins a comment.
            Node::Negate(inner) => write!(f, "(- {})", Operand(inner, ATOM)),
            Node::Not(inner) => write!(f, "NOT {}", Operand(inner, 3)),
            Node::Binary(operator, left, right) => {
                let own = operator.strength();
                // Comparisons do not associate, everything else does to the left.
                let left_strength = if matches!(own, 4 | 5) { own + 1 } else { own };
                let (left, right) = (Operand(left, left_strength), Operand(right, own + 1));
                write!(f, "{left} {} {right}", operator.sql())
            }
            Node::Between { input, low, high, negated } => {
                let (input, low, high) = (Operand(input, 7), Operand(low, 7), Operand(high, 7));
                write!(f, "{input} {}BETWEEN {low} AND {high}", not(*negated))
            }
            Node::InList { input, list, negated } => {
                write!(f, "{} {}IN ({})", Operand(input, 7), not(*negated), List(list))
            }
            Node::Like { input, pattern, negated } => {
                write!(f, "{} {}LIKE {}", Operand(input, 7), not(*negated), quoted(pattern))
            }
            Node::Is(test, inner) => write!(f, "{} {}", Operand(inner, 5), test.sql()),
            Node::Case { operand, branches, otherwise } => {
                f.write_str("CASE")?;
                if let Some(operand) = operand {
                    write!(f, " {operand}")?;
                }
                for (when, then) in branches {
                    write!(f, " WHEN {when} THEN {then}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {otherwise}")?;
                }
                f.write_str(" END")
            }
            Node::Cast(inner, to) => write!(f, "CAST({inner} AS {to})"),
            Node::Call(function, arguments) => write!(f, "{}({})", function.sql(), List(arguments)),
            Node::Aggregate { function, argument: None, .. } => write!(f, "{}(*)", function.sql()),
            Node::Aggregate { function, distinct, argument: Some(argument) } => {
                write!(f, "{}({}{argument})", function.sql(), if *distinct { "DISTINCT " } else { "" })
            }
            Node::InQuery { input, query, negated } => {
                write!(f, "{} {}IN ({query})", Operand(input, 7), not(*negated))
            }
            Node::Exists { query, negated } => write!(f, "{}EXISTS ({query})", not(*negated)),
            Node::Scalar(query) => write!(f, "({query})"),
        }
    }
}
