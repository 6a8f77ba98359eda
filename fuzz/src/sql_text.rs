//! SQL text out of bytes. The first byte chooses how:
//!
//! ```text
//!   1     tokens of a list, with repetition: deep nesting and long chains out of few bytes
//!   2     `sql.grammar`, where each byte chooses an alternative
//!   else  the bytes themselves, this one included
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Longer texts find nothing new, only slowly. Long enough for the parser's limits on nesting and chains.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes from here on repeat.
const REPEAT: u8 = 240;

/// The text that `data` stands for.
pub fn text_of(data: &[u8]) -> Cow<'_, str> {
    match data {
        [1, choices @ ..] => repeated_tokens(choices).into(),
        [2, choices @ ..] => grammatical(choices).into(),
        text => String::from_utf8_lossy(text),
    }
}

/// Token by token; `REPEAT + n, count` repeats the last n + 1 tokens (which may themselves be repetitions).
fn repeated_tokens(choices: &[u8]) -> String {
    let mut choices = choices.iter();
    let mut pieces: Vec<String> = Vec::new();
    let mut bytes = 0;
    while let Some(choice) = choices.next() {
        let piece = if *choice < REPEAT {
            format!("{} ", TOKENS[usize::from(*choice) % TOKENS.len()])
        } else {
            let count = usize::from(choices.next().copied().unwrap_or(1));
            let start = pieces.len().saturating_sub(usize::from(choice - REPEAT) + 1);
            let unit = pieces.split_off(start).concat();
            bytes -= unit.len();
            unit.repeat(count.min(TEXT_BYTES_MAX / unit.len().max(1)))
        };
        bytes += piece.len();
        if bytes > TEXT_BYTES_MAX {
            break;
        }
        pieces.push(piece);
    }
    pieces.concat()
}

/// Expands `{statements}` until nothing is left to expand; without choices the first alternative is taken, which for
/// every rule ends.
fn grammatical(choices: &[u8]) -> String {
    let mut choices = choices.iter();
    let mut text = String::new();
    let mut open = vec!["{statements}"];
    while let Some(template) = open.pop() {
        let Some((plain, rest)) = template.split_once('{') else {
            text.push_str(template);
            continue;
        };
        text.push_str(plain);
        let Some((name, tail)) = rest.split_once('}') else { unreachable!("a rule's name ends: {template}") };
        open.push(tail);
        let choice = if text.len() < TEXT_BYTES_MAX { choices.next().copied() } else { None };
        let alternatives = alternatives(name);
        open.push(&alternatives[usize::from(choice.unwrap_or(0)) % alternatives.len()]);
    }
    text
}

fn alternatives(name: &str) -> &'static [String] {
    GRAMMAR.get(name).unwrap_or_else(|| unreachable!("the grammar has no rule {name}"))
}

/// Alternatives by the name of their rule.
static GRAMMAR: LazyLock<BTreeMap<&str, Vec<String>>> = LazyLock::new(|| {
    let mut rules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut alternatives = Vec::new();
    for line in include_str!("sql.grammar").lines().rev() {
        if let Some(alternative) = line.strip_prefix('|') {
            alternatives.insert(0, alternative.strip_prefix(' ').unwrap_or("").replace("\\n", "\n"));
        } else if let Some(name) = line.strip_suffix(':') {
            rules.insert(name, std::mem::take(&mut alternatives));
        }
    }
    rules
});

/// What texts are made of. Words in the order in which they were thought of; the fuzzer does not mind.
#[rustfmt::skip]
const TOKENS: &[&str] = &[
    "select", "from", "where", "(", ")", ",", ";", "1", "t", "a", "+", "-", "*", "/", "=", "and", "or", "not", "'x'",
    "$1", "insert into", "values", "update", "set", "delete from", "create table", "int", "primary key", "join", "on",
    "left", "using", "group by", "order by", "limit", "offset", "having", "union", "all", "distinct", "case", "when",
    "then", "else", "end", "in", "exists", "between", "like", "is", "null", "cast", "as", "::", ".", "[", "]", "{", "}",
    "begin", "commit", "rollback", "copy", "stdin", "with", "csv", "drop table", "if exists", "create index", "unique",
    "explain", "analyze", "prepare", "execute", "deallocate", "show", "reset", "interval", "date", "timestamp",
    "numeric", "varchar", "text", "boolean", "default", "not null", "references", "check", "over", "partition by",
    "rows", "preceding", "current row", "window", "filter", "within group", "extract", "substring", "trim", "position",
    "overlay", "for", "\"q\"", "E'\\n'", "U&'\\0041'", "$$d$$", "B'1'", "X'ff'", "0x1f", "1e400", "1.5", ".5",
    "99999999999999999999", "true", "<>", "<", ">", "<=", ">=", "||", "~", "!~*", "<<", ">>", "&", "|", "#", "^", "%",
    "@", "!", "?", ":", "->", "->>", "@>", "/*", "*/", "--", "\n", "recursive", "lateral", "natural", "cross", "full",
    "any", "some", "array", "row", "collate", "at time zone", "similar to", "escape", "grouping sets", "cube", "rollup",
    "intersect", "except", "fetch first", "only", "tablesample", "returning", "conflict", "do nothing", "truncate",
    "alter table", "add column", "merge into", "savepoint", "release", "isolation level", "serializable", "read only",
    "transaction", "local", "session", "to", "off", "all", "discard", "grant", "view", "materialized", "int",
    "double precision", "char", "bytea", "layout", "mixed", "partitions", "segment_rows", "müller", "\u{1F388}",
    "\u{a0}", "'", "\"", "$", "\\", "pg_sleep", "count", "(*)", "sum", "null", "ilike", "isnull", "unknown", "of",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_refer_to_rules() {
        assert_eq!(alternatives("alias")[..2], ["", " as {name}"]);
        for (name, alternatives) in GRAMMAR.iter() {
            for template in alternatives {
                for rest in template.split('{').skip(1) {
                    let (referred, _) = rest.split_once('}').unwrap();
                    assert!(GRAMMAR.contains_key(referred), "{name}: {template}");
                }
            }
        }
    }

    #[test]
    fn every_rule_ends_without_choices() {
        for choice in 0..=255 {
            assert!(!grammatical(&[choice, choice, choice, choice]).is_empty());
        }
        assert_eq!(grammatical(&[]), "select 1");
    }

    #[test]
    fn repetition_nests() {
        let at = |token: &str| TOKENS.iter().position(|known| *known == token).unwrap() as u8;
        assert_eq!(repeated_tokens(&[at("select"), at("("), REPEAT, 3, at("1")]), "select ( ( ( 1 ");
        let deep = [at("select"), at("("), REPEAT, 200, REPEAT, 200, at("1")];
        assert_eq!(repeated_tokens(&deep).matches('(').count(), TEXT_BYTES_MAX / 400 * 200);
        assert!(repeated_tokens(&[at("("), REPEAT, 255, REPEAT, 255, REPEAT, 255]).len() <= TEXT_BYTES_MAX);
    }
}
