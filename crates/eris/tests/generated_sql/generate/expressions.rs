//! Expressions of a wanted type, over the columns in sight.

use super::{Construct, Generator, Visible};
use crate::expression::{Expr, Function, Node, Operator, Test};
use crate::value::{Kind, Type, Value};

/// Digits of a product at most, so that no numeric grows out of 38 digits.
const PRODUCT_DIGITS_MAX: u32 = 26;

/// Digits before and behind the point that a numeric or integer expression may have.
pub(super) fn digits(expr: &Expr) -> (u32, u32) {
    let widest = |exprs: &[&Expr]| {
        let all = exprs.iter().filter(|expr| expr.kind.is_number()).map(|expr| digits(expr));
        all.fold((1, 0), |(whole, scale), (other, behind)| (whole.max(other), scale.max(behind)))
    };
    match (&expr.node, expr.kind) {
        (_, Kind::Int2) => (5, 0),
        (_, Kind::Int4) => (10, 0),
        (_, Kind::Int8) => (19, 0),
        (Node::Column { declared: Type::Numeric(precision, scale), .. }, _) => (precision - scale, *scale),
        (Node::Cast(_, Type::Numeric(precision, scale)), _) => (precision - scale, *scale),
        (Node::Literal { .. }, _) => (10, 4),
        (Node::Binary(Operator::Multiply, left, right), _) => {
            let (left, right) = (digits(left), digits(right));
            (left.0 + right.0, left.1 + right.1)
        }
        (Node::Binary(..), _) => {
            let (whole, scale) = widest(&expr.children());
            (whole + 1, scale)
        }
        // Results of subqueries and aggregates.
        (Node::Scalar(_) | Node::Aggregate { .. }, _) => (24, 14),
        _ => widest(&expr.children()),
    }
}

impl Generator {
    fn columns_of(&self, kind: Kind) -> Vec<Visible> {
        self.visible.iter().filter(|column| column.declared.kind() == kind).cloned().collect()
    }

    fn leaf(&mut self, kind: Kind) -> Expr {
        let columns = self.columns_of(kind);
        if columns.is_empty() || self.chance(25) {
            return self.literal(kind);
        }
        let column = self.pick(&columns);
        column.expr()
    }

    /// A type that some column in sight has, most times.
    pub(super) fn kind(&mut self) -> Kind {
        if self.visible.is_empty() || self.chance(15) {
            return self.pick(&Kind::ALL);
        }
        let at = self.random.index(self.visible.len());
        self.visible[at].declared.kind()
    }

    fn boxed(&mut self, kind: Kind, depth: usize) -> Box<Expr> {
        Box::new(self.expr(kind, depth))
    }

    pub(super) fn expr(&mut self, kind: Kind, depth: usize) -> Expr {
        if depth == 0 || self.chance(35) {
            return self.leaf(kind);
        }
        let depth = depth - 1;
        if self.chance(20) && self.allows(Construct::Choice) {
            return self.choice(kind, depth);
        }
        match kind {
            Kind::Bool => self.boolean(depth),
            Kind::Text => self.text(depth),
            Kind::Date if self.chance(30) => {
                Expr::new(kind, Node::Cast(self.boxed(Kind::Timestamp, depth), Type::Plain(kind)))
            }
            Kind::Date => {
                let operator = self.pick(&[Operator::Add, Operator::Subtract]);
                let (date, days) = (self.expr(kind, depth), self.integer(-400, 400));
                Expr::binary(kind, operator, date, days)
            }
            Kind::Timestamp => Expr::new(kind, Node::Cast(self.boxed(Kind::Date, depth), Type::Plain(kind))),
            _ => self.number(kind, depth),
        }
    }

    /// CASE, COALESCE, NULLIF, GREATEST and LEAST of any type.
    fn choice(&mut self, kind: Kind, depth: usize) -> Expr {
        let node = match self.random.below(6) {
            0 | 1 => {
                let branches =
                    (0..=self.random.index(2)).map(|_| (self.boolean(depth), self.expr(kind, depth))).collect();
                let otherwise = self.chance(70).then(|| self.boxed(kind, depth));
                Node::Case { operand: None, branches, otherwise }
            }
            2 => {
                let operand = self.kind();
                let branches = (0..=self.random.index(2))
                    .map(|_| (self.literal_or_null(operand), self.expr(kind, depth)))
                    .collect();
                let otherwise = self.chance(70).then(|| self.boxed(kind, depth));
                Node::Case { operand: Some(self.boxed(operand, depth)), branches, otherwise }
            }
            3 | 4 => {
                let function =
                    self.pick(&[Function::Coalesce, Function::Coalesce, Function::Greatest, Function::Least]);
                let arguments = (0..2 + self.random.index(2)).map(|_| self.expr(kind, depth)).collect();
                Node::Call(function, arguments)
            }
            _ => Node::Call(Function::NullIf, vec![self.expr(kind, depth), self.expr(kind, depth)]),
        };
        Expr::new(kind, node)
    }

    fn text(&mut self, depth: usize) -> Expr {
        let node = match self.random.below(6) {
            0 | 1 => {
                let (left, right) = (self.expr(Kind::Text, depth), self.expr(Kind::Text, depth));
                return Expr::binary(Kind::Text, Operator::Concat, left, right);
            }
            2 if self.changes_case() => {
                let function = self.pick(&[Function::Upper, Function::Lower]);
                Node::Call(function, vec![self.expr(Kind::Text, depth)])
            }
            2 | 3 => {
                let (start, count) = (self.integer(-2, 5), self.integer(0, 5));
                Node::Call(Function::Substr, vec![self.expr(Kind::Text, depth), start, count])
            }
            4 => {
                let from = self.pick(&[Kind::Int2, Kind::Int4, Kind::Int8, Kind::Bool, Kind::Date]);
                Node::Cast(self.boxed(from, depth), Type::Plain(Kind::Text))
            }
            _ => Node::Cast(self.boxed(Kind::Text, depth), Type::Varchar(1 + self.random.index(6))),
        };
        Expr::new(Kind::Text, node)
    }

    fn number(&mut self, kind: Kind, depth: usize) -> Expr {
        let first = if kind.is_integer() && !self.allows(Construct::LeastInteger) { 2 } else { 0 };
        let node = match self.random.between(first, 9) {
            0 => Node::Negate(self.boxed(kind, depth)),
            1 => Node::Call(Function::Abs, vec![self.expr(kind, depth)]),
            2 | 3 => self.number_cast(kind, depth),
            4 if kind == Kind::Int4 => Node::Call(Function::Length, vec![self.expr(Kind::Text, depth)]),
            5 if kind == Kind::Int4 => {
                let (left, right) = (self.expr(Kind::Date, depth), self.expr(Kind::Date, depth));
                return Expr::binary(kind, Operator::Subtract, left, right);
            }
            4 if kind == Kind::Numeric && self.allows(Construct::Round) => {
                Node::Call(Function::Round, vec![self.expr(kind, depth), self.integer(0, 2)])
            }
            _ => return self.arithmetic(kind, depth),
        };
        Expr::new(kind, node)
    }

    fn number_cast(&mut self, kind: Kind, depth: usize) -> Node {
        let to = match kind {
            Kind::Numeric if !self.allows(Construct::NarrowNumeric) => Type::Numeric(30, 10),
            Kind::Numeric => {
                let scale = self.random.below(4) as u32;
                Type::Numeric(scale + 1 + self.random.below(9) as u32, scale)
            }
            kind => Type::Plain(kind),
        };
        let mut from = vec![Kind::Int2, Kind::Int4, Kind::Int8, Kind::Numeric];
        if kind != Kind::Numeric {
            from.extend([Kind::Float4, Kind::Float8]);
        }
        if kind == Kind::Int4 {
            from.push(Kind::Bool);
        }
        let from = self.pick(&from);
        Node::Cast(self.boxed(from, depth), to)
    }

    /// An operator whose operands make it this type, as PostgreSQL resolves it.
    fn arithmetic(&mut self, kind: Kind, depth: usize) -> Expr {
        let (mut left, mut right) = match kind {
            Kind::Int2 => (kind, kind),
            Kind::Int4 => (kind, self.pick(&[Kind::Int2, Kind::Int4, Kind::Int4])),
            Kind::Int8 => (kind, self.pick(&[Kind::Int2, Kind::Int4, Kind::Int8])),
            Kind::Numeric => (kind, self.pick(&[Kind::Int2, Kind::Int4, Kind::Numeric, Kind::Numeric])),
            Kind::Float4 | Kind::Float8 if kind == Kind::Float4 || !self.allows(Construct::FloatBesideOther) => {
                (kind, kind)
            }
            _ if self.chance(20) => (Kind::Float4, self.pick(&[Kind::Int2, Kind::Int4, Kind::Int8, Kind::Numeric])),
            _ => (kind, self.pick(&[Kind::Int4, Kind::Int8, Kind::Numeric, Kind::Float4, Kind::Float8, Kind::Float8])),
        };
        if self.chance(50) {
            (left, right) = (right, left);
        }
        let (left, right) = (self.expr(left, depth), self.expr(right, depth));
        let operators: &[Operator] = match kind {
            Kind::Numeric => &[Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Modulo],
            Kind::Float4 | Kind::Float8 => &[Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide],
            _ => &[Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Modulo],
        };
        let mut operator = self.pick(operators);
        if kind == Kind::Numeric && operator == Operator::Multiply {
            let ((left, behind_left), (right, behind_right)) = (digits(&left), digits(&right));
            if left + behind_left + right + behind_right > PRODUCT_DIGITS_MAX {
                operator = Operator::Add;
            }
        }
        Expr::binary(kind, operator, left, right)
    }

    /// A type that can be compared with this one, most times the same.
    fn partner(&mut self, kind: Kind) -> Kind {
        if self.chance(70) {
            return kind;
        }
        let mixed = self.allows(Construct::FloatBesideOther);
        let times = self.allows(Construct::DateBesideTimestamp);
        let fits = |other: &Kind| {
            kind.compares_with(*other)
                && (mixed || kind.is_float() == other.is_float())
                && (times || kind.is_number() || kind == *other)
        };
        let partners: Vec<Kind> = Kind::ALL.into_iter().filter(fits).collect();
        self.pick(&partners)
    }

    pub(super) fn boolean(&mut self, depth: usize) -> Expr {
        let node = match self.random.below(if depth == 0 { 14 } else { 20 }) {
            0 => return self.leaf(Kind::Bool),
            1..=6 => {
                let kind = self.kind();
                let mut operators = Operator::COMPARISONS.to_vec();
                operators.extend([Operator::Equal, Operator::Distinct, Operator::NotDistinct]);
                let (operator, partner) = (self.pick(&operators), self.partner(kind));
                let left = self.expr(kind, depth);
                let right = if self.chance(40) { self.literal_or_null(partner) } else { self.expr(partner, depth) };
                return Expr::binary(Kind::Bool, operator, left, right);
            }
            7 | 8 => {
                let (kind, negated) = (self.kind(), self.chance(30));
                let (low, high) = (self.partner(kind), self.partner(kind));
                let (input, low, high) = (self.boxed(kind, depth), self.boxed(low, 0), self.boxed(high, 0));
                Node::Between { input, low, high, negated }
            }
            9 | 10 => {
                let (kind, negated) = (self.kind(), self.chance(40));
                let count = if self.chance(20) { 9 } else { 1 + self.random.index(4) };
                let nulls = !negated || self.allows(Construct::NotInNull);
                let list: Vec<Expr> = (0..count).map(|_| self.literal_or_null(kind)).collect();
                let is_null = |item: &Expr| matches!(item.node, Node::Literal { value: Value::Null, .. });
                let mut list: Vec<Expr> = list.into_iter().filter(|item| nulls || !is_null(item)).collect();
                if list.is_empty() {
                    let value = self.value_of(Type::Plain(kind), true);
                    list.push(Expr::new(kind, Node::Literal { value, bare: false }));
                }
                Node::InList { input: self.boxed(kind, depth), list, negated }
            }
            11 | 12 => {
                let (kind, test) = (self.kind(), self.pick(&[Test::Null, Test::NotNull]));
                if self.chance(30) {
                    let test = self.pick(&Test::TRUTH);
                    return Expr::new(Kind::Bool, Node::Is(test, self.boxed(Kind::Bool, depth)));
                }
                Node::Is(test, self.boxed(kind, depth))
            }
            13 => {
                let (pattern, negated) = (self.pattern(), self.chance(30));
                Node::Like { input: self.boxed(Kind::Text, depth), pattern, negated }
            }
            14 | 15 => Node::Not(Box::new(self.boolean(depth - 1))),
            _ => {
                let operator = self.pick(&[Operator::And, Operator::Or]);
                let (left, right) = (self.boolean(depth - 1), self.boolean(depth - 1));
                return Expr::binary(Kind::Bool, operator, left, right);
            }
        };
        Expr::new(Kind::Bool, node)
    }

    /// A literal that may be stored in a column, though not always without an error.
    pub(super) fn stored(&mut self, declared: Type, summable: bool, not_null: bool) -> Expr {
        let kind = declared.kind();
        if self.chance(if not_null { 1 } else { 12 }) {
            return Expr::new(kind, Node::Literal { value: Value::Null, bare: self.random.chance(0.5) });
        }
        if !kind.is_float() && self.chance(8) {
            let from: &[Kind] = match kind {
                Kind::Int2 | Kind::Int4 | Kind::Int8 => &[Kind::Int4, Kind::Int8, Kind::Numeric, Kind::Float8],
                Kind::Numeric => &[Kind::Int4, Kind::Numeric],
                Kind::Text => &[Kind::Text, Kind::Int4],
                Kind::Date | Kind::Timestamp => &[Kind::Date, Kind::Timestamp],
                _ => &[Kind::Bool],
            };
            let (from, depth) = (self.pick(from), self.random.index(2));
            return self.expr(from, depth);
        }
        let mut value = self.value_of(declared, summable);
        if let Value::Numeric(number) = &mut value
            && number.scale == 0
        {
            *number = number.rounded(1);
        }
        Expr::new(kind, Node::Literal { value, bare: false })
    }
}
