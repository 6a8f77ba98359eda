//! Queries: joins, filters, groups, subqueries, set operations, order and limits.

use super::expressions::digits;
use super::{Construct, Generator, Visible};
use crate::expression::{Aggregate, Expr, Node, Operator};
use crate::query::{Body, From, JoinKind, OrderBy, Query, Select, SetOperator, Source};
use crate::value::{Kind, Type};

/// How large a query may get.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub tables_max: usize,
    pub grouped: bool,
    pub subqueries: usize,
}

impl Generator {
    pub(super) fn query(&mut self, shape: Shape) -> Query {
        self.subqueries = if self.allows(Construct::Subquery) { shape.subqueries } else { 0 };
        let select = self.select(shape);
        let kinds: Vec<Kind> = select.items.iter().map(|item| item.kind).collect();
        let mut body = Body::Select(Box::new(select));
        if shape.grouped && self.chance(12) {
            let right = self.select_of(&kinds);
            let operators = [SetOperator::Union, SetOperator::UnionAll, SetOperator::Intersect, SetOperator::Except];
            body = Body::Set(self.pick(&operators), Box::new(body), Box::new(Body::Select(Box::new(right))));
        }
        let mut query = Query { body, order: Vec::new(), limit: None, offset: None };
        if self.chance(40) {
            self.order(&mut query, kinds.len());
        }
        query
    }

    fn order(&mut self, query: &mut Query, width: usize) {
        let mut positions: Vec<usize> = (0..width).collect();
        self.random.shuffle(&mut positions);
        let limited = self.chance(50);
        if !limited {
            positions.truncate(1 + self.random.index(width));
        }
        for position in positions {
            let nulls_first = if self.chance(30) { Some(self.chance(50)) } else { None };
            query.order.push(OrderBy { position, descending: self.chance(50), nulls_first });
        }
        // With every column in the order, what a limit cuts off is the same everywhere.
        if limited {
            query.limit = self.chance(80).then(|| self.random.index(12));
            query.offset = self.chance(30).then(|| self.random.index(5));
        }
    }

    /// FROM, with its columns put in sight.
    fn from(&mut self, tables_max: usize) -> Vec<From> {
        let mut list = Vec::new();
        let mut width = 0;
        for number in 0..=self.random.index(tables_max) {
            let alias = format!("q{}", self.aliases);
            self.aliases += 1;
            let before = self.visible.len();
            let (source, columns) = if tables_max > 1 && self.chance(8) && self.allows(Construct::Derived) {
                self.derived()
            } else {
                self.table_source()
            };
            for (at, (name, declared, summable)) in columns.iter().enumerate() {
                let name = format!("{alias}.{name}");
                let (declared, summable) = (*declared, *summable);
                self.visible.push(Visible { depth: 0, index: width + at, name, declared, summable });
            }
            let joins =
                [JoinKind::Inner, JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Cross];
            let (mut join, mut condition) = (self.pick(&joins), None);
            if number == 0 {
                join = JoinKind::Cross;
            } else if join != JoinKind::Cross {
                condition = self.join_condition(before, join);
                if condition.is_none() {
                    join = JoinKind::Cross;
                }
            }
            width += columns.len();
            list.push(From { source, alias, join, condition, width: columns.len() });
        }
        list
    }

    fn table_source(&mut self) -> (Source, Vec<(String, Type, bool)>) {
        let at = self.random.index(self.tables.len());
        let table = &self.tables[at];
        let columns = table.columns.iter().map(|column| (column.name.clone(), column.declared, column.summable));
        (Source::Table(at, table.name.clone()), columns.collect())
    }

    fn derived(&mut self) -> (Source, Vec<(String, Type, bool)>) {
        // It sees nothing of the query around it.
        let hidden = std::mem::take(&mut self.visible);
        let subqueries = std::mem::take(&mut self.subqueries);
        let select = self.select(Shape { tables_max: 1, grouped: true, subqueries: 0 });
        (self.visible, self.subqueries) = (hidden, subqueries);
        let declared = |item: &Expr| match item.kind {
            Kind::Numeric => {
                let (whole, scale) = digits(item);
                Type::Numeric(whole + scale, scale)
            }
            kind => Type::Plain(kind),
        };
        let columns = select.items.iter().enumerate().map(|(at, item)| (format!("c{at}"), declared(item), false));
        let columns = columns.collect();
        (Source::Derived(Box::new(Query::of(select))), columns)
    }

    /// An equality of a column from each side, and now and then more. PostgreSQL's FULL JOIN takes nothing else.
    fn join_condition(&mut self, before: usize, join: JoinKind) -> Option<Expr> {
        let own = |column: &&Visible| column.depth == 0;
        let lefts: Vec<Visible> = self.visible[..before].iter().filter(own).cloned().collect();
        let rights: Vec<Visible> = self.visible[before..].to_vec();
        let mut pairs = Vec::new();
        for left in &lefts {
            let fits = |right: &&Visible| right.declared.kind() == left.declared.kind();
            pairs.extend(rights.iter().filter(fits).map(|right| (left.clone(), right.clone())));
        }
        if pairs.is_empty() {
            return None;
        }
        let (left, right) = self.pick(&pairs);
        let equal = Expr::binary(Kind::Bool, Operator::Equal, left.expr(), right.expr());
        if join == JoinKind::Full || self.chance(70) {
            return Some(equal);
        }
        let more = self.boolean(1);
        let operator = self.pick(&[Operator::And, Operator::And, Operator::Or]);
        Some(Expr::binary(Kind::Bool, operator, equal, more))
    }

    fn filter(&mut self) -> Expr {
        let filter = self.boolean(2);
        if self.subqueries == 0 || !self.chance(45) {
            return filter;
        }
        self.subqueries -= 1;
        let subquery = self.subquery_condition();
        let operator = self.pick(&[Operator::And, Operator::And, Operator::Or]);
        if self.chance(40) { subquery } else { Expr::binary(Kind::Bool, operator, subquery, filter) }
    }

    pub(super) fn select(&mut self, shape: Shape) -> Select {
        let before = self.visible.len();
        let from = self.from(shape.tables_max);
        let filter = self.chance(65).then(|| self.filter());
        let mut select =
            Select { from, filter, group: None, having: None, items: Vec::new(), distinct: self.chance(12) };
        if shape.grouped && self.chance(30) {
            self.group(&mut select);
        } else {
            for _ in 0..=self.random.index(4) {
                let (kind, depth) = (self.kind(), self.random.index(3));
                select.items.push(self.expr(kind, depth));
            }
        }
        self.visible.truncate(before);
        select
    }

    /// A query whose items have these types.
    pub(super) fn select_of(&mut self, kinds: &[Kind]) -> Select {
        let before = self.visible.len();
        let from = self.from(1);
        let filter = self.chance(50).then(|| self.boolean(1));
        let items = kinds.iter().map(|kind| self.expr(*kind, 1)).collect();
        self.visible.truncate(before);
        Select { from, filter, group: None, having: None, items, distinct: false }
    }

    fn group(&mut self, select: &mut Select) {
        let mut keys = Vec::new();
        let own: Vec<Visible> = self.visible.iter().filter(|column| column.depth == 0).cloned().collect();
        for _ in 0..self.random.index(3) {
            let column = self.pick(&own);
            let key = column.expr();
            // A constant would be the number of an item.
            let computed = if self.chance(20) { self.expr(key.kind, 1) } else { key.clone() };
            keys.push(if computed.is_constant() || !self.is_groupable(&computed) { key } else { computed });
        }
        for _ in 0..=self.random.index(3) {
            let item = if !keys.is_empty() && self.chance(40) { self.pick(&keys) } else { self.aggregate(&own) };
            select.items.push(item);
        }
        if self.chance(30) {
            let aggregate = self.aggregate(&own);
            let operators = Operator::COMPARISONS;
            let (operator, literal) = (self.pick(&operators), self.literal(aggregate.kind));
            select.having = Some(Expr::binary(Kind::Bool, operator, aggregate, literal));
        }
        let aggregates = select.items.iter().any(|item| matches!(item.node, Node::Aggregate { .. }));
        if keys.is_empty() && !aggregates && select.having.is_none() {
            select.items.push(self.aggregate(&own));
        }
        select.group = Some(keys);
    }

    fn is_groupable(&self, expr: &Expr) -> bool {
        self.allows(Construct::GroupedCast) || !expr.has_cast()
    }

    pub(super) fn aggregate(&mut self, own: &[Visible]) -> Expr {
        let make = |kind, function, distinct, argument: Option<Expr>| {
            Expr::new(kind, Node::Aggregate { function, distinct, argument: argument.map(Box::new) })
        };
        let column = self.pick(own);
        let kind = column.declared.kind();
        let argument = if self.chance(25) && !kind.is_float() { self.expr(kind, 1) } else { column.expr() };
        let argument = if self.is_groupable(&argument) { argument } else { column.expr() };
        let distinct = self.chance(20);
        match (self.random.below(6), kind) {
            (0, _) => make(Kind::Int8, Aggregate::Count, false, None),
            (1, _) => make(Kind::Int8, Aggregate::Count, distinct, Some(argument)),
            (_, Kind::Bool) => {
                let function = self.pick(&[Aggregate::BoolAnd, Aggregate::BoolOr]);
                make(Kind::Bool, function, false, Some(argument))
            }
            (2 | 3, Kind::Int2 | Kind::Int4 | Kind::Int8) => make(Kind::Int8, Aggregate::Sum, distinct, Some(argument)),
            (2 | 3, Kind::Numeric) => make(kind, Aggregate::Sum, distinct, Some(argument)),
            (2 | 3, Kind::Float8) if column.summable => {
                let function = self.pick(&[Aggregate::Sum, Aggregate::Avg]);
                make(kind, function, distinct, Some(argument))
            }
            (4, Kind::Int2 | Kind::Int4 | Kind::Numeric) => {
                make(Kind::Numeric, Aggregate::Avg, false, Some(column.expr()))
            }
            _ => make(kind, self.pick(&[Aggregate::Min, Aggregate::Max]), distinct, Some(argument)),
        }
    }

    pub(super) fn subquery_condition(&mut self) -> Expr {
        let negated = self.chance(35);
        let node = match self.random.below(4) {
            0 | 1 => {
                let kind = self.kind();
                let input = Box::new(self.expr(kind, 1));
                let query = self.nested(|generator| vec![generator.expr(kind, 1)]);
                Node::InQuery { input, query: Box::new(query), negated }
            }
            2 => {
                let query = self.nested(|generator| {
                    let kind = generator.kind();
                    vec![generator.expr(kind, 0)]
                });
                Node::Exists { query: Box::new(query), negated }
            }
            _ => {
                let mut scalar = self.nested(|generator| {
                    let own: Vec<Visible> =
                        generator.visible.iter().filter(|column| column.depth == 0).cloned().collect();
                    vec![generator.aggregate(&own)]
                });
                if let Body::Select(select) = &mut scalar.body {
                    select.group = Some(Vec::new());
                }
                let kind = scalar.body.kinds()[0];
                let scalar = Expr::new(kind, Node::Scalar(Box::new(scalar)));
                let operator = self.pick(&Operator::COMPARISONS);
                return Expr::binary(Kind::Bool, operator, self.expr(kind, 1), scalar);
            }
        };
        Expr::new(Kind::Bool, node)
    }

    /// A query inside of the one whose columns are in sight; every other one depends on it by an equality.
    fn nested(&mut self, items: impl FnOnce(&mut Generator) -> Vec<Expr>) -> Query {
        let outer = std::mem::take(&mut self.visible);
        let from = self.from(1);
        let mut filter = self.chance(50).then(|| self.boolean(1));
        let items = items(self);
        if self.chance(50) {
            let inner = self.pick(&self.visible.clone());
            let fits = |column: &&Visible| column.depth == 0 && column.declared.kind() == inner.declared.kind();
            let partners: Vec<Visible> = outer.iter().filter(fits).cloned().collect();
            if !partners.is_empty() {
                let partner = self.pick(&partners);
                let partner = Visible { depth: 1, ..partner }.expr();
                let equal = Expr::binary(Kind::Bool, Operator::Equal, inner.expr(), partner);
                filter = Some(match filter {
                    Some(filter) => Expr::binary(Kind::Bool, Operator::And, equal, filter),
                    None => equal,
                });
            }
        }
        self.visible = outer;
        Query::of(Select { from, filter, group: None, having: None, items, distinct: false })
    }
}
