//! Splitting a text into statements and parsing each.
//!
//! The text is cut at the token level, so that a semicolon inside a string is no end, each statement keeps its own text
//! (the key of the plan cache), and an error's position is counted from the start of the whole text.
//!
//! Hostile input: the parser limits its own recursion; operator chains (`1+1+1+...`, `UNION` after `UNION`) make trees
//! as deep as they are long without recursion, so chains are limited here, before anything walks the tree. How often
//! the parser may try again is limited for expressions by the [dialect](super::dialect), for queries here.

use super::bounds::{BOUNDS_DEFAULT, Bounds, too_complex};
use super::dialect::BoundedDialect;
use super::{nothing, operators};
use crate::ast::{
    Expr, Keyword, Location, Parser, ParserError, PostgreSqlDialect, Query, SelectItem, SetExpr, Statement, Token,
    TokenWithSpan, Tokenizer,
};
use crate::errors::{SqlError, SqlState};

/// Tokens between two commas of one bracket level. A chain this long is at most this deep a tree, which every pass
/// over it can walk on a worker's stack.
const CHAIN_MAX: usize = 6_000;
/// How often a query may be read because of the parentheses around it and the queries it stands in: before a query the
/// parser takes each of several parentheses for its beginning. Ten queries within each other, all in double
/// parentheses.
const READINGS_MAX: usize = 1 << 10;
/// What a query begins with.
const BEGINNINGS: [Keyword; 8] = [
    Keyword::SELECT,
    Keyword::WITH,
    Keyword::VALUES,
    Keyword::TABLE,
    Keyword::INSERT,
    Keyword::UPDATE,
    Keyword::DELETE,
    Keyword::MERGE,
];
/// One statement of a text.
#[derive(Clone, Debug)]
pub struct ParsedStatement {
    /// Its own text, without the semicolon.
    pub text: String,
    /// Characters of the whole text before it.
    pub offset: usize,
    /// Its tree.
    pub ast: Statement,
}

/// All statements of a text within the bounds that a session begins with; empty ones are left out.
pub fn parse(sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
    parse_within(sql, &BOUNDS_DEFAULT)
}

/// The same within these bounds. What they say of whole texts is looked at, the rest is for who
/// [cuts](super::Cutter) and [measures](super::Size).
pub fn parse_within(sql: &str, bounds: &Bounds) -> Result<Vec<ParsedStatement>, SqlError> {
    bounds.check_text(sql.len())?;
    if sql.contains('\0') {
        return Err(SqlError::new(SqlState::INVALID_ENCODING, "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, sql)
        .tokenize_with_location()
        .map_err(|error| tokenizer_error(sql, &error.message, error.location))?;
    let tokens = operators::split(tokens);
    let mut place = Place::default();
    let mut offset = 0;
    let mut statements = Vec::new();
    let mut rest = tokens.as_slice();
    while !rest.is_empty() {
        let end = rest.iter().position(|token| token.token == Token::SemiColon).unwrap_or(rest.len());
        let own = &rest[..end];
        rest = &rest[(end + 1).min(rest.len())..];
        let Some(first) = own.iter().position(|token| !is_space(token)) else { continue };
        let last = own.iter().rposition(|token| !is_space(token)).unwrap_or(first);
        let own = &own[first..=last];
        check_chains(own)?;
        check_readings(own)?;
        let before = place.byte;
        let start = place.advance(sql, own[0].span.start);
        offset += sql[before..start].chars().count();
        let stop = place.advance(sql, own[own.len() - 1].span.end);
        let text = sql[start..stop].to_string();
        let ast = parse_one(own, bounds.nesting).map_err(|error| parser_error(sql, own, &error))?;
        statements.push(ParsedStatement { text, offset, ast });
        offset += sql[start..stop].chars().count();
    }
    Ok(statements)
}

/// The query that a text of our own stands for, to be changed as a tree.
pub fn template(query: &str) -> Query {
    let parsed = parse(query).unwrap_or_default();
    let Some(Statement::Query(query)) = parsed.into_iter().next().map(|statement| statement.ast) else {
        unreachable!("the template is a query")
    };
    *query
}

/// One expression, as it is printed.
pub fn parse_expression(text: &str) -> Result<Expr, SqlError> {
    let refused = || SqlError::syntax(text, None).detail("One expression is expected.");
    let mut statements = parse(&format!("SELECT {text}"))?;
    let (Some(ParsedStatement { ast: Statement::Query(mut query), .. }), true) =
        (statements.pop(), statements.is_empty())
    else {
        return Err(refused());
    };
    // All of the query must be the expression: no alias, no FROM.
    let printed = query.to_string();
    match query.body.as_mut() {
        SetExpr::Select(select) if select.projection.len() == 1 => match select.projection.pop() {
            Some(SelectItem::UnnamedExpr(expr)) if printed == format!("SELECT {expr}") => Ok(expr),
            _ => Err(refused()),
        },
        _ => Err(refused()),
    }
}

/// A place in a text that is walked once, however many statements it has.
struct Place {
    byte: usize,
    line: u64,
    column: u64,
}

impl Default for Place {
    fn default() -> Self {
        Self { byte: 0, line: 1, column: 1 }
    }
}

impl Place {
    /// Goes on to `location`, as the tokenizer counts; gives the byte.
    fn advance(&mut self, sql: &str, location: Location) -> usize {
        for c in sql[self.byte..].chars() {
            if (self.line, self.column) >= (location.line, location.column) {
                break;
            }
            self.byte += c.len_utf8();
            (self.line, self.column) = if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.byte
    }
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

fn begins_query(token: &TokenWithSpan) -> bool {
    matches!(&token.token, Token::Word(word) if BEGINNINGS.contains(&word.keyword))
}

fn parse_one(tokens: &[TokenWithSpan], nesting_max: usize) -> Result<Statement, ParserError> {
    if let Some(call) = as_call(tokens) {
        return Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(call).parse_statement();
    }
    let dialect = BoundedDialect::new(tokens.len());
    let is_empty_named = tokens.iter().any(|token| match &token.token {
        Token::Word(word) if word.value.len() > 3 && word.value.as_bytes()[2] == b'_' => {
            nothing::is_empty(&word.value.to_lowercase())
        }
        _ => false,
    });
    let mut terminated = tokens.to_vec();
    // The parser wants a semicolon after COPY ... FROM STDIN and reads data behind it; there is none, and no data.
    let copy = matches!(&tokens[0].token, Token::Word(word) if word.value.eq_ignore_ascii_case("copy"));
    if copy {
        terminated.push(TokenWithSpan::wrap(Token::SemiColon));
    }
    let mut parser = Parser::new(&dialect).with_recursion_limit(nesting_max).with_tokens_with_locations(terminated);
    let mut statement = parser.parse_statement()?;
    // A walk over the whole tree: only for who names such a table.
    if is_empty_named {
        nothing::qualify(&mut statement);
    }
    while parser.consume_token(&Token::SemiColon) {}
    let next = parser.peek_token();
    // What EXPLAIN cannot read it takes for the name of a table; the query has the error that is meant.
    if let Statement::ExplainTable { table_name, .. } = &statement
        && let Some(query) =
            tokens.iter().position(|token| begins_query(token) && token.token.to_string() == table_name.to_string())
    {
        parse_one(&tokens[query..], nesting_max)?;
    }
    if next.token == Token::EOF {
        return Ok(statement);
    }
    let at = next.span.start;
    Err(ParserError::ParserError(format!(
        "Expected: end of statement, found: {} at Line: {}, Column: {}",
        next.token, at.line, at.column
    )))
}

/// Statements that the parser does not know, but what they mean: `CHECKPOINT` is a call without arguments, `BACKUP TO
/// 'directory'` one with an argument.
fn as_call(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let is = |token: &TokenWithSpan, name: &str| match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let words: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_space(token)).collect();
    let added = |token| TokenWithSpan::wrap(token);
    let call = added(Token::make_keyword("CALL"));
    match words[..] {
        [only] if is(only, "checkpoint") => Some(vec![call, only.clone()]),
        [name, to, directory]
            if is(name, "backup")
                && is(to, "to")
                && matches!(directory.token, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)) =>
        {
            Some(vec![call, name.clone(), added(Token::LParen), directory.clone(), added(Token::RParen)])
        }
        _ => None,
    }
}

fn check_chains(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut lengths = vec![0_usize];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => lengths.push(0),
            Token::RParen | Token::RBracket | Token::RBrace if lengths.len() > 1 => {
                lengths.pop();
            }
            Token::Comma => {
                if let Some(length) = lengths.last_mut() {
                    *length = 0;
                }
            }
            Token::Whitespace(_) => {}
            _ => {
                if let Some(length) = lengths.last_mut() {
                    *length += 1;
                    if *length > CHAIN_MAX {
                        return Err(too_complex());
                    }
                }
            }
        }
    }
    Ok(())
}

/// Refuses queries within queries whose parentheses the parser would read over and over again.
fn check_readings(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    // For each open parenthesis how often what is behind it is read; parentheses directly before this token.
    let mut readings = vec![1_usize];
    let mut run = 0;
    for token in tokens.iter().filter(|token| !is_space(token)) {
        match &token.token {
            Token::LParen => {
                run += 1;
                readings.push(readings[readings.len() - 1]);
                continue;
            }
            Token::RParen if readings.len() > 1 => drop(readings.pop()),
            Token::Word(_) if run > 1 && begins_query(token) => {
                if let Some(innermost) = readings.last_mut() {
                    *innermost = innermost.saturating_mul(run);
                    if *innermost > READINGS_MAX {
                        return Err(too_complex());
                    }
                }
            }
            _ => {}
        }
        run = 0;
    }
    Ok(())
}

/// Counted when an error is told, and nothing is kept for it: a text may have as many lines as bytes.
fn byte_offset(sql: &str, location: Location) -> usize {
    let mut starts = std::iter::once(0).chain(sql.match_indices('\n').map(|(at, _)| at + 1));
    let Some(start) = (location.line as usize).checked_sub(1).and_then(|line| starts.nth(line)) else {
        return sql.len();
    };
    let column = (location.column as usize).saturating_sub(1);
    sql[start..].char_indices().nth(column).map_or(sql.len(), |(at, _)| start + at)
}

fn position_of(sql: &str, location: Location) -> Option<usize> {
    (location.line > 0).then(|| sql[..byte_offset(sql, location)].chars().count() + 1)
}

fn tokenizer_error(sql: &str, message: &str, location: Location) -> SqlError {
    let position = position_of(sql, location);
    let text = if message.starts_with("Unterminated") {
        let mut text = message.to_string();
        text.replace_range(..1, "u");
        text
    } else {
        format!("syntax error: {message}")
    };
    SqlError::new(SqlState::SYNTAX, text).at(position)
}

fn parser_error(sql: &str, tokens: &[TokenWithSpan], error: &ParserError) -> SqlError {
    let message = match error {
        ParserError::RecursionLimitExceeded => return too_complex(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let (head, place) = match message.rfind(" at Line: ") {
        Some(at) => (&message[..at], parse_place(&message[at..])),
        None => (message.as_str(), None),
    };
    let found = head.rfind("found: ").map(|at| head[at + 7..].trim());
    let position = place.and_then(|place| position_of(sql, place)).or_else(|| {
        let last = tokens.last()?;
        position_of(sql, last.span.end)
    });
    match found {
        Some("EOF" | "" | ";") => SqlError::syntax("", position),
        Some(near) => SqlError::syntax(near, position).detail(head[..head.rfind(", found").unwrap_or(0)].to_string()),
        None => SqlError::new(SqlState::SYNTAX, format!("syntax error: {head}")).at(position),
    }
}

/// Reads ` at Line: 1, Column: 8`.
fn parse_place(text: &str) -> Option<Location> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let line = numbers.next()?.parse().ok()?;
    let column = numbers.next()?.parse().ok()?;
    Some(Location { line, column })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<String> {
        parse(sql).unwrap().into_iter().map(|statement| statement.text).collect()
    }

    #[test]
    fn splits_at_tokens_not_at_characters() {
        assert_eq!(texts("select ';' ; -- a;b\n\n select 2;;"), ["select ';'", "select 2"]);
        assert_eq!(texts(" \n;; ; "), Vec::<String>::new());
        assert_eq!(texts("select 'äö' -- ü\n;select $1"), ["select 'äö'", "select $1"]);
        assert_eq!(texts("copy t from stdin with (format csv)"), ["copy t from stdin with (format csv)"]);
    }

    #[test]
    fn syntax_errors_are_postgres_like() {
        let error = parse("select 1;\nselec 2").unwrap_err();
        assert_eq!((error.sqlstate.as_str(), error.position), ("42601", Some(11)), "{error}");
        assert_eq!(error.message, "syntax error at or near \"selec\"");
        let error = parse("select * from").unwrap_err();
        assert_eq!(error.message, "syntax error at end of input");
        let error = parse("select 1 from t group where").unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "42601", "{error}");
        assert_eq!(parse("select 'abc").unwrap_err().sqlstate.as_str(), "42601");
        assert_eq!(parse("select 1 2 3").unwrap_err().position, Some(10));
    }

    #[test]
    fn many_statements_on_one_line_are_cut_in_one_walk() {
        let statements = texts(&"select 'ä' ; ".repeat(20_000));
        assert!(statements.len() == 20_000 && statements.iter().all(|text| text == "select 'ä'"));
    }

    #[test]
    fn nesting_that_is_read_again_and_again_ends() {
        // Nobody would live to see the end of any of these.
        let nests = [
            ("f(", "select "),
            ("f(a, ", "select "),
            ("cast(", "select "),
            ("position(", "select "),
            ("substring(", "select "),
            ("array[", "select "),
            ("row(", "select "),
            ("((select * from ", "select * from "),
            ("(((select * from ", "select * from "),
            ("((values ", ""),
            ("((select ", ""),
            ("((table ", "select * from "),
            ("f(", "select * from "),
            ("in ((select a ", "select a "),
            ("(explain ", "explain "),
        ];
        for (nest, before) in nests {
            for depth in [12, 25, 60] {
                let error = parse(&format!("{before}{}", nest.repeat(depth))).unwrap_err();
                assert!(["54001", "42601"].contains(&error.sqlstate.as_str()), "{depth} x {nest}: {error}");
            }
        }
        // What is complete is read once, however deep.
        for (open, close) in [("f(", ")"), ("coalesce(a, ", ")"), ("cast(", " as int)"), ("((select ", "))")] {
            let depth = if open.starts_with('(') { 10 } else { 18 };
            let sql = format!("select {}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(parse(&sql).unwrap().len(), 1, "{sql}");
        }
        let error = parse("select f(f(f(f(f(f(f(f(1 2))))))))").unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "42601", "a mistake within some levels is told as what it is");
    }

    #[test]
    fn hostile_nesting_is_refused() {
        for (open, close) in [("(", ")"), ("not ", ""), ("- ", ""), ("case when ", " then 1 end"), ("(select ", ")")] {
            let sql = format!("select {}1{}", open.repeat(30_000), close.repeat(30_000));
            let error = parse(&sql).unwrap_err();
            assert!(["54001", "42601"].contains(&error.sqlstate.as_str()), "{open}: {error}");
        }
        for link in ["1+", "1 union select ", "true or ", "true and ", "'a'||"] {
            let error = parse(&format!("select {}1", link.repeat(20_000))).unwrap_err();
            assert_eq!(error.sqlstate.as_str(), "54001", "{link}");
        }
        // A long list is no nesting.
        assert_eq!(parse(&format!("select 1 in ({}1)", "1,".repeat(20_000))).unwrap().len(), 1);
    }
}
