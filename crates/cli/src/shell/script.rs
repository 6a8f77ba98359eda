//! Cuts input into statements and meta commands.
//!
//! A statement ends at a `;` outside of quotes, comments and dollar quotes. A meta command is a line that starts with a
//! backslash between two statements.

/// A piece of input that can be worked on.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// With its `;`.
    Statement(String),
    /// Without the backslash.
    Meta(String),
}

/// Takes the complete items off the front of `input`; what stays is not complete yet.
pub fn take_items(input: &mut String) -> Vec<Item> {
    let mut items = Vec::new();
    loop {
        let blank = input.len() - input.trim_start().len();
        input.drain(..blank);
        let end = if input.starts_with('\\') {
            match input.find('\n') {
                Some(end) => end + 1,
                None => return items,
            }
        } else {
            match statement_end(input) {
                Some(end) => end,
                None => return items,
            }
        };
        let item: String = input.drain(..end).collect();
        items.push(match item.strip_prefix('\\') {
            Some(meta) => Item::Meta(meta.trim().to_owned()),
            None => Item::Statement(item),
        });
    }
}

/// Whether nothing but space and comments is left.
pub fn is_blank(input: &str) -> bool {
    let mut rest = input.trim_start();
    loop {
        let Some(comment) = comment_end(rest) else { return rest.is_empty() };
        rest = rest[comment.min(rest.len())..].trim_start();
    }
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
        let mut rest = input.to_owned();
        let items = take_items(&mut rest)
            .into_iter()
            .map(|item| match item {
                Item::Statement(sql) => sql,
                Item::Meta(meta) => format!("\\{meta}"),
            })
            .collect();
        (items, rest)
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
}
