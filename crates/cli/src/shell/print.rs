//! Prints results: aligned, as CSV, as JSON. CSV and JSON are written while rows arrive; the aligned form needs all
//! rows for its widths.

use std::io::{self, Write};

use eris::{Batch, ColumnDescription, SqlType};

use crate::shell::format::Format;

/// One result on its way to the output.
pub struct Printer<'a> {
    output: &'a mut dyn Write,
    format: Format,
    columns: Vec<ColumnDescription>,
    /// Text of all rows, for the aligned form.
    cells: Vec<Option<String>>,
    rows: u64,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
}

impl<'a> Printer<'a> {
    pub fn new(output: &'a mut dyn Write, format: Format) -> Printer<'a> {
        Printer { output, format, columns: Vec::new(), cells: Vec::new(), rows: 0, failure: None }
    }

    pub fn columns(&mut self, columns: Vec<ColumnDescription>) {
        self.columns = columns;
        self.cells.clear();
        self.rows = 0;
        let names: Vec<_> = self.columns.iter().map(|column| csv_field(&column.name)).collect();
        match self.format {
            Format::Table | Format::Expanded => (),
            Format::Csv => self.write(&format!("{}\n", names.join(","))),
            Format::Json => self.write("["),
        }
    }

    pub fn batch(&mut self, batch: &Batch) {
        for row in 0..batch.rows {
            let cells: Vec<Option<String>> = self
                .columns
                .iter()
                .enumerate()
                .map(|(index, column)| eris::text_of(batch, row, index, column.sql_type))
                .collect();
            self.row(cells);
        }
    }

    /// A row of texts, one for each column.
    pub fn row(&mut self, cells: Vec<Option<String>>) {
        match self.format {
            Format::Table => self.cells.extend(cells),
            Format::Expanded => self.record(&cells),
            Format::Csv => {
                let fields: Vec<_> =
                    cells.iter().map(|cell| cell.as_deref().map_or(String::new(), csv_field)).collect();
                self.write(&format!("{}\n", fields.join(",")));
            }
            Format::Json => {
                let members: Vec<_> = std::iter::zip(&self.columns, &cells)
                    .map(|(column, cell)| {
                        format!("{}: {}", json_text(&column.name), json_value(column, cell.as_deref()))
                    })
                    .collect();
                let separator = if self.rows == 0 { "\n" } else { ",\n" };
                self.write(&format!("{separator}  {{{}}}", members.join(", ")));
            }
        }
        self.rows += 1;
    }

    /// Ends a statement. `tag` is printed where it says more than the rows.
    pub fn done(&mut self, tag: &str) {
        match self.format {
            Format::Table | Format::Expanded if self.columns.is_empty() => {
                if !tag.is_empty() {
                    self.write(&format!("{tag}\n"));
                }
            }
            Format::Table => self.table(),
            Format::Expanded if self.rows == 0 => self.write("(0 rows)\n\n"),
            Format::Expanded => self.write("\n"),
            Format::Json if !self.columns.is_empty() => self.write(if self.rows == 0 { "]\n" } else { "\n]\n" }),
            Format::Csv | Format::Json => (),
        }
        self.columns.clear();
    }

    /// The first failure to write, if there was one.
    pub fn finish(self) -> io::Result<()> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.output.flush(),
        }
    }

    fn write(&mut self, text: &str) {
        if self.failure.is_none() {
            self.failure = self.output.write_all(text.as_bytes()).err();
        }
    }

    /// A row as a line for each value.
    fn record(&mut self, cells: &[Option<String>]) {
        let widest = self.columns.iter().map(|column| width(&column.name)).max().unwrap_or(0);
        let mut text = format!("-[ RECORD {} ]", self.rows + 1);
        text.push_str(&"-".repeat((widest + 3).saturating_sub(width(&text))));
        text.push('\n');
        for (column, cell) in std::iter::zip(&self.columns, cells) {
            let space = " ".repeat(widest - width(&column.name));
            let line = format!("{}{space} | {}", column.name, cell.as_deref().unwrap_or(""));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        self.write(&text);
    }

    fn table(&mut self) {
        let count = self.columns.len();
        let cells = std::mem::take(&mut self.cells);
        let widths: Vec<usize> = (0..count)
            .map(|index| {
                let cells = cells.iter().skip(index).step_by(count.max(1));
                let widest = cells.map(|cell| cell.as_deref().map_or(0, width)).max().unwrap_or(0);
                widest.max(width(&self.columns[index].name))
            })
            .collect();
        let header: Vec<_> = std::iter::zip(&self.columns, &widths)
            .map(|(column, wide)| {
                let space = wide - width(&column.name);
                format!(" {}{}{} ", " ".repeat(space / 2), column.name, " ".repeat(space - space / 2))
            })
            .collect();
        self.write(&format!("{}\n", header.join("|").trim_end()));
        let rule: Vec<_> = widths.iter().map(|wide| "-".repeat(wide + 2)).collect();
        self.write(&format!("{}\n", rule.join("+")));
        for row in cells.chunks(count.max(1)) {
            let line: Vec<_> = (0..count)
                .map(|index| {
                    let text = row[index].as_deref().unwrap_or("");
                    let space = " ".repeat(widths[index] - width(text));
                    if is_number(self.columns[index].sql_type) {
                        format!(" {space}{text} ")
                    } else {
                        format!(" {text}{space} ")
                    }
                })
                .collect();
            self.write(&format!("{}\n", line.join("|").trim_end()));
        }
        let rows = self.rows;
        self.write(&format!("({rows} row{})\n\n", if rows == 1 { "" } else { "s" }));
    }
}

/// Columns on a terminal, near enough: one per character.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn is_number(sql_type: SqlType) -> bool {
    match sql_type {
        SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Real
        | SqlType::Double
        | SqlType::Numeric { .. } => true,
        SqlType::Boolean
        | SqlType::Date
        | SqlType::Timestamp
        | SqlType::Text
        | SqlType::Varchar(_)
        | SqlType::Char(_)
        | SqlType::Bytea
        | SqlType::Interval
        | SqlType::Unknown => false,
    }
}

/// NULL is an empty field, an empty text a quoted one, as PostgreSQL's COPY writes and reads them.
fn csv_field(text: &str) -> String {
    if text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn json_value(column: &ColumnDescription, text: Option<&str>) -> String {
    let Some(text) = text else { return "null".to_owned() };
    match column.sql_type {
        SqlType::Boolean => (text == "t").to_string(),
        // Not-a-number and the infinities are no JSON numbers.
        sql_type if is_number(sql_type) && text.ends_with(|c: char| c.is_ascii_digit()) => text.to_owned(),
        _ => json_text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(format: Format, rows: &[[Option<&str>; 3]]) -> String {
        let mut output = Vec::new();
        let mut printer = Printer::new(&mut output, format);
        let column = |name: &str, sql_type| ColumnDescription { name: name.to_owned(), sql_type };
        printer.columns(vec![
            column("id", SqlType::Integer),
            column("a name", SqlType::Text),
            column("b", SqlType::Boolean),
        ]);
        for row in rows {
            printer.row(row.iter().map(|cell| cell.map(str::to_owned)).collect());
        }
        printer.done("SELECT");
        printer.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    const ROWS: [[Option<&str>; 3]; 2] = [[Some("1"), Some("say \"hi\", ü"), Some("t")], [Some("-20"), None, None]];

    #[test]
    fn tables_are_aligned() {
        let expected = " id  |   a name    | b\n\
                        -----+-------------+---\n   \
                        1 | say \"hi\", ü | t\n \
                        -20 |             |\n\
                        (2 rows)\n\n";
        assert_eq!(print(Format::Table, &ROWS), expected);
        assert!(print(Format::Table, &[]).ends_with("(0 rows)\n\n"));
    }

    #[test]
    fn records_have_a_line_for_each_value() {
        let expected = "-[ RECORD 1 ]\nid     | 1\na name | say \"hi\", ü\nb      | t\n\
                        -[ RECORD 2 ]\nid     | -20\na name |\nb      |\n\n";
        assert_eq!(print(Format::Expanded, &ROWS), expected);
        assert_eq!(print(Format::Expanded, &[]), "(0 rows)\n\n");
    }

    #[test]
    fn csv_can_be_read_back() {
        assert_eq!(print(Format::Csv, &ROWS), "id,a name,b\n1,\"say \"\"hi\"\", ü\",t\n-20,,\n");
        assert_eq!(csv_field(""), "\"\"");
    }

    #[test]
    fn json_is_json() {
        let parsed: serde_json::Value = serde_json::from_str(&print(Format::Json, &ROWS)).unwrap();
        assert_eq!(parsed[0], serde_json::json!({"id": 1, "a name": "say \"hi\", ü", "b": true}));
        assert_eq!(parsed[1], serde_json::json!({"id": -20, "a name": null, "b": null}));
        let empty: serde_json::Value = serde_json::from_str(&print(Format::Json, &[])).unwrap();
        assert_eq!(empty, serde_json::json!([]));
        let double = ColumnDescription { name: String::new(), sql_type: SqlType::Double };
        assert_eq!(json_value(&double, Some("NaN")), "\"NaN\"");
    }
}
