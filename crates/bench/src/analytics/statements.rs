//! SQL that changes rows of the tables, for those who move rows beside or before the queries.

use eris_workloads::tpch::Table;
use std::ops::Range;

/// Says of a column that its value is one of `keys`.
pub(super) fn within(column: &str, keys: &Range<i64>) -> String {
    format!("{column} >= {} AND {column} < {}", keys.start, keys.end)
}

/// Copies the rows that meet a condition, with other values in some columns: each a name and an expression.
pub(super) fn copy(table: Table, changed: &[(&str, String)], condition: &str) -> String {
    let value = |name: &str| {
        let change = changed.iter().find(|(column, _)| *column == name);
        change.map_or_else(|| name.to_owned(), |(_, expression)| expression.clone())
    };
    let values: Vec<String> = table.columns().iter().map(|column| value(column.name)).collect();
    let (name, values) = (table.name(), values.join(", "));
    format!("INSERT INTO {name} SELECT {values} FROM {name} WHERE {condition}")
}

pub(super) fn update(table: Table, assignments: &str, condition: &str) -> String {
    format!("UPDATE {} SET {assignments} WHERE {condition}", table.name())
}

pub(super) fn delete(table: Table, condition: &str) -> String {
    format!("DELETE FROM {} WHERE {condition}", table.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_all_columns_in_order() {
        let changed = [("r_regionkey", "r_regionkey + 5".to_owned())];
        let sql = copy(Table::Region, &changed, &within("r_regionkey", &(0..5)));
        let expected = "INSERT INTO region SELECT r_regionkey + 5, r_name, r_comment FROM region \
                        WHERE r_regionkey >= 0 AND r_regionkey < 5";
        assert_eq!(sql, expected);
    }
}
