//! UNION, INTERSECT and EXCEPT.
//!
//! ```text
//!   SELECT a FROM t UNION SELECT b FROM u        Distinct  #9
//!                                          ->      Union     #9 = #4, #8
//!                                                    Project   #4 = #0::bigint
//!                                                      Scan      t
//!                                                    Scan      u  #8
//! ```
//! The columns of both sides are brought to the type that they have in common. INTERSECT and EXCEPT are joins in which
//! NULL equals NULL.

use eris_query::{ColumnId, Join, JoinKind, Projected, Relation, Scalar, TypedColumn, Unplanned, common_type};

use super::scope::Scope;
use super::{Binder, Binding, BoundSelect, OutputColumn, QUERIES_MAX};
use crate::ast::{SetExpr, SetOperator, SetQuantifier};

impl Binder<'_> {
    /// Operations in a row, which lean to the left; without an order.
    pub(super) fn set_operations(&mut self, body: &SetExpr, outside: Option<&Scope<'_>>) -> Binding<BoundSelect> {
        let mut links = Vec::new();
        let mut first = body;
        while let SetExpr::SetOperation { left, op, set_quantifier, right } = first {
            links.push((*op, *set_quantifier, right.as_ref()));
            first = left;
        }
        let mut bound = self.operand(first, outside)?;
        for (op, quantifier, right) in links.into_iter().rev() {
            let right = self.operand(right, outside)?;
            bound = self.combined(bound, op, quantifier, right)?;
        }
        Ok(bound)
    }

    fn operand(&mut self, operand: &SetExpr, outside: Option<&Scope<'_>>) -> Binding<BoundSelect> {
        self.all_queries += 1;
        if self.all_queries > QUERIES_MAX {
            return Err(Unplanned::because("many subqueries"));
        }
        match operand {
            SetExpr::Select(select) if !select.projection.is_empty() => self.select(select, None, None, outside),
            SetExpr::SetOperation { .. } => self.deeper(|binder| binder.set_operations(operand, outside)),
            SetExpr::Query(query) => self.query_below(query, outside),
            _ => Err(Unplanned::because("an operand that is no SELECT")),
        }
    }

    fn combined(
        &mut self,
        left: BoundSelect,
        op: SetOperator,
        quantifier: SetQuantifier,
        right: BoundSelect,
    ) -> Binding<BoundSelect> {
        if left.output.len() != right.output.len() {
            return Err(Unplanned::because("operands with different numbers of columns"));
        }
        let is_all = match quantifier {
            SetQuantifier::All => true,
            SetQuantifier::None | SetQuantifier::Distinct => false,
            _ => return Err(Unplanned::because("BY NAME")),
        };
        let mut output = Vec::with_capacity(left.output.len());
        for (one, other) in left.output.iter().zip(&right.output) {
            let sql_type = common_type(&[one.sql_type, other.sql_type])
                .ok_or_else(|| Unplanned(format!("{} beside {}", one.sql_type, other.sql_type)))?;
            output.push(OutputColumn { name: one.name.clone(), column: self.new_column(), sql_type });
        }
        let (left, left_columns) = self.brought_to(left, &output);
        let (right, right_columns) = self.brought_to(right, &output);
        match op {
            SetOperator::Union => {
                let columns = output.iter().map(|own| TypedColumn { column: own.column, sql_type: own.sql_type });
                let inputs = vec![(left, left_columns), (right, right_columns)];
                let mut relation = Relation::Union { inputs, columns: columns.collect() };
                if !is_all {
                    let columns = output.iter().map(|own| own.column).collect();
                    relation = Relation::Distinct { input: Box::new(relation), columns };
                }
                Ok(BoundSelect { relation, output })
            }
            SetOperator::Intersect | SetOperator::Except if !is_all => {
                let is_intersect = op == SetOperator::Intersect;
                let kind = if is_intersect { JoinKind::Semi } else { JoinKind::Anti { null_aware: false } };
                let key = |((one, other), own): ((&ColumnId, &ColumnId), &OutputColumn)| {
                    (Scalar::column(*one, own.sql_type), Scalar::column(*other, own.sql_type))
                };
                let keys = left_columns.iter().zip(&right_columns).zip(&output).map(key).collect();
                for (own, column) in output.iter_mut().zip(&left_columns) {
                    own.column = *column;
                }
                let left = Relation::Distinct { input: Box::new(left), columns: left_columns };
                let join = Join { kind, left, right, keys, condition: None, null_equal: true };
                Ok(BoundSelect { relation: Relation::Join(Box::new(join)), output })
            }
            _ => Err(Unplanned(format!("{op} {quantifier}"))),
        }
    }

    /// The rows of an operand with columns of these types.
    fn brought_to(&mut self, bound: BoundSelect, output: &[OutputColumn]) -> (Relation, Vec<ColumnId>) {
        let BoundSelect { relation, output: own } = bound;
        let is_stored_alike =
            |(own, to): (&OutputColumn, &OutputColumn)| own.sql_type.data_type() == to.sql_type.data_type();
        if own.iter().zip(output).all(is_stored_alike) {
            return (relation, own.iter().map(|column| column.column).collect());
        }
        let items: Vec<Projected> = own
            .iter()
            .zip(output)
            .map(|(own, to)| Projected {
                column: self.new_column(),
                value: Scalar::column(own.column, own.sql_type).cast(to.sql_type),
            })
            .collect();
        let columns = items.iter().map(|item| item.column).collect();
        (Relation::Project { input: Box::new(relation), items }, columns)
    }
}
