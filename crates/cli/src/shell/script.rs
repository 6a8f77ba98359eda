//! Cuts input into statements and meta commands.
//!
//! A statement ends at a `;` outside of quotes, comments and dollar quotes. A meta command is a line that starts with a
//! backslash between two statements. Behind a `COPY ... FROM STDIN` lines are data, up to `\\.` on a line of its own.

use std::io::{self, Read};

/// A piece of input that can be worked on.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// With its `;`.
    Statement(String),
    /// Without the backslash.
    Meta(String),
}

/// The first item of the input and where it ends; `None` if none is complete.
pub fn next_item(input: &str) -> Option<(Item, usize)> {
    let start = input.len() - input.trim_start().len();
    let text = &input[start..];
    if text.starts_with('\\') {
        let end = text.find('\n')? + 1;
        return Some((Item::Meta(text[1..end].trim().to_owned()), start + end));
    }
    let end = statement_end(text)?;
    Some((Item::Statement(text[..end].to_owned()), start + end))
}

/// Where the data of a `COPY ... FROM STDIN` comes from.
pub trait DataLines {
    /// Goes to where data begins.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The next line without its end; `None` where the input ends.
    fn next_line(&mut self) -> io::Result<Option<String>>;
}

/// The line that ends data.
const END_OF_DATA: &str = "\\.";

/// Data as it is read: lines up to [`END_OF_DATA`], which is not part of it.
pub struct Data<'a> {
    lines: &'a mut dyn DataLines,
    line: Vec<u8>,
    read: usize,
    ended: bool,
}

impl<'a> Data<'a> {
    pub fn new(lines: &'a mut dyn DataLines) -> Data<'a> {
        Data { lines, line: Vec::new(), read: 0, ended: false }
    }

    /// Reads past what a failed statement has left, so that it is not taken for statements.
    pub fn skip(mut self) -> io::Result<()> {
        while !self.ended {
            self.next_line()?;
        }
        Ok(())
    }

    fn next_line(&mut self) -> io::Result<()> {
        self.read = 0;
        self.line.clear();
        // Where reading failed there is nothing more to read.
        let line = self.lines.next_line().inspect_err(|_| self.ended = true)?;
        match line {
            Some(line) if line.trim_end_matches('\r') != END_OF_DATA => {
                self.line.extend(line.into_bytes());
                self.line.push(b'\n');
            }
            _ => self.ended = true,
        }
        Ok(())
    }
}

impl Read for Data<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() && !self.ended {
            let rest = &self.line[self.read..];
            if rest.is_empty() {
                self.next_line()?;
                continue;
            }
            let count = rest.len().min(into.len() - filled);
            into[filled..filled + count].copy_from_slice(&rest[..count]);
            self.read += count;
            filled += count;
        }
        Ok(filled)
    }
}

/// Statements, meta commands and data of a text, one after the other.
pub struct Script<'a> {
    /// What errors call it.
    name: Option<&'a str>,
    rest: &'a str,
    /// Lines before `rest`.
    line: usize,
    /// Line of the item that was taken last, from 1.
    item_line: usize,
}

impl<'a> Script<'a> {
    pub fn new(text: &'a str, name: Option<&'a str>) -> Script<'a> {
        Script { name, rest: text, line: 0, item_line: 1 }
    }

    /// What an error of the last item starts with: nothing for a text without a name.
    pub fn place(&self) -> String {
        self.name.map_or(String::new(), |name| format!("{name}:{}: ", self.item_line))
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }
}

impl Iterator for Script<'_> {
    type Item = Item;

    /// The last statement needs no semicolon, the last meta command no end of line.
    fn next(&mut self) -> Option<Item> {
        let blank = blank_len(self.rest);
        let start = self.rest[..blank].matches('\n').count();
        let (item, end) = match next_item(self.rest) {
            Some(found) => found,
            None if blank == self.rest.len() => return None,
            None => match self.rest.trim().strip_prefix('\\') {
                Some(meta) => (Item::Meta(meta.to_owned()), self.rest.len()),
                None => (Item::Statement(self.rest.trim_start().to_owned()), self.rest.len()),
            },
        };
        self.item_line = self.line + start + 1;
        self.advance(end);
        Some(item)
    }
}

impl DataLines for Script<'_> {
    /// Data begins on the line behind the one where the statement ends.
    fn begin(&mut self) -> io::Result<()> {
        match self.next_line()? {
            Some(rest) if !is_blank(&rest) => {
                Err(io::Error::other("data begins on the next line: leave nothing behind the semicolon"))
            }
            _ => Ok(()),
        }
    }

    fn next_line(&mut self) -> io::Result<Option<String>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let end = self.rest.find('\n').map_or(self.rest.len(), |end| end + 1);
        let line = self.advance(end);
        Ok(Some(line.strip_suffix('\n').unwrap_or(line).to_owned()))
    }
}

/// Whether nothing but space and comments is left.
pub fn is_blank(input: &str) -> bool {
    blank_len(input) == input.len()
}

/// Length of the space and the comments at the start.
fn blank_len(input: &str) -> usize {
    let mut rest = input.trim_start();
    while let Some(comment) = comment_end(rest) {
        rest = rest[comment.min(rest.len())..].trim_start();
    }
    input.len() - rest.len()
}

/// Whether a statement may be a COPY: only then it is worth asking.
pub fn begins_with_copy(statement: &str) -> bool {
    statement[blank_len(statement)..].get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"))
}

/// The position behind the `;` that ends the first statement.
fn statement_end(input: &str) -> Option<usize> {
    let mut at = 0;
    while at < input.len() {
        let rest = &input[at..];
        let first = rest.as_bytes()[0];
        at += match first {
            b';' => return Some(at + 1),
            b'\'' => {
                let escapes = input[..at].ends_with(['e', 'E']) && !ends_with_word(&input[..at.saturating_sub(1)]);
                quoted(rest, '\'', escapes)?
            }
            b'"' => quoted(rest, '"', false)?,
            b'$' if !ends_with_word(&input[..at]) => dollar_quoted(rest)?,
            _ => match comment_end(rest) {
                Some(end) if end > rest.len() => return None,
                Some(end) => end,
                None => rest.chars().next().map_or(1, char::len_utf8),
            },
        };
    }
    None
}

fn ends_with_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// Length of a quoted piece at the start; `None` if it does not end. A doubled quote is two pieces, which is the same.
fn quoted(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == quote {
            return Some(at + 1);
        }
        if escapes && c == '\\' {
            characters.next();
        }
    }
    None
}

/// Length of `$tag$...$tag$` at the start, or of the `$` alone when it starts none (a parameter).
fn dollar_quoted(text: &str) -> Option<usize> {
    let Some(end) = text[1..].find('$') else { return Some(1) };
    let tag = &text[..end + 2];
    let name = &tag[1..tag.len() - 1];
    if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Some(1);
    }
    text[tag.len()..].find(tag).map(|close| close + 2 * tag.len())
}

/// Length of a comment at the start. An unfinished block comment is longer than the text.
fn comment_end(text: &str) -> Option<usize> {
    if text.starts_with("--") {
        return Some(text.find('\n').map_or(text.len(), |end| end + 1));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(text.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(input: &str) -> (Vec<String>, String) {
        let mut rest = input;
        let mut items = Vec::new();
        while let Some((item, end)) = next_item(rest) {
            items.push(text(item));
            rest = &rest[end..];
        }
        (items, rest.trim_start().to_owned())
    }

    fn text(item: Item) -> String {
        match item {
            Item::Statement(sql) => sql,
            Item::Meta(meta) => format!("\\{meta}"),
        }
    }

    #[test]
    fn statements_end_where_sql_says() {
        for whole in [
            "select ';' ;",
            "select 'it''s; fine';",
            "select E'a\\';b';",
            "select \"a;b\" from t;",
            "select 1 -- no; end\n;",
            "select /* a; /* b; */ c; */ 1;",
            "select $$ a; $$;",
            "select $tag$ a; $$ ; $tag$;",
            "select $1 + $2;",
            "select 'Grüße; 世界';",
        ] {
            let (items, rest) = cut(&format!(" {whole} \n select"));
            assert_eq!((items, rest.as_str()), (vec![whole.to_owned()], "select"), "{whole}");
        }
    }

    #[test]
    fn unfinished_input_stays() {
        for open in ["select 1", "select 'a;", "select /* ;", "select $$ ; $", "select \"a;", "\\timing"] {
            assert_eq!(cut(open), (vec![], open.to_owned()));
        }
    }

    #[test]
    fn meta_commands_are_lines() {
        let (items, rest) = cut("select 1;\\timing on\nselect 2;\n\\q\n");
        assert_eq!(items, ["select 1;", "\\timing on", "select 2;", "\\q"]);
        assert!(rest.is_empty());
    }

    #[test]
    fn blank_is_space_and_comments() {
        assert!(is_blank(" \n -- c\n /* d; */ "));
        assert!(is_blank(""));
        assert!(!is_blank("-- c\n select"));
    }

    #[test]
    fn a_script_knows_its_lines() {
        let mut script = Script::new("-- first\n\nselect\n1; select 2;\n\\timing\n/* a\nb */ select 3", Some("a.sql"));
        let mut found = Vec::new();
        while let Some(item) = script.next() {
            found.push(format!("{}{}", script.place(), text(item).replace('\n', " ")));
        }
        let expected =
            ["a.sql:3: -- first  select 1;", "a.sql:4: select 2;", "a.sql:5: \\timing", "a.sql:7: /* a b */ select 3"];
        assert_eq!(found, expected);
        assert_eq!(Script::new("x", None).place(), "");
    }

    #[test]
    fn data_stands_between_statements() {
        let mut script = Script::new("copy t from stdin; \n1;\n2\n\\.\nselect 1;", None);
        script.next();
        assert_eq!(script.rest, " \n1;\n2\n\\.\nselect 1;");
        let mut data = String::new();
        script.begin().unwrap();
        Data::new(&mut script).read_to_string(&mut data).unwrap();
        assert_eq!((data.as_str(), script.rest), ("1;\n2\n", "select 1;"));
        let mut unended = Script::new("1\n2", None);
        Data::new(&mut unended).skip().unwrap();
        assert_eq!(unended.next(), None);
        assert!(Script::new(" select 1;\n1", None).begin().is_err());
        assert!(begins_with_copy("-- c\n Copy t from stdin") && !begins_with_copy("co"));
    }
}
