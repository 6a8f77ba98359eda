//! PostgreSQL's dialect, with an end to how long one statement is parsed.
//!
//! The parser tries one reading after another: a function's argument is read as `name => value` and, failing that, as a
//! value; `cast(` as a cast, then as a function of that name. Every level of nesting multiplies the attempts, so that
//! thirty levels take years. Two things are done about it:
//!
//! - Names of arguments are identifiers, as in PostgreSQL, and not expressions: an honest statement is read once.
//! - Expressions that are begun are counted. Once there were more than any honest statement needs, every attempt fails
//!   as if nested too deep, which the parser passes on instead of trying something else.
//!
//! And a list of IN that begins with a subquery is told from a query in parentheses, and VALUES is a query.

use std::any::TypeId;
use std::cell::Cell;

use crate::ast::{Dialect, Expr, Keyword, Parser, ParserError, PostgreSqlDialect, Precedence, Statement, Token};

/// Expressions that may be begun for each token; an honest statement begins less than three.
const ATTEMPTS_PER_TOKEN: usize = 16;
/// On top, so that a mistake within some levels of nesting is still told as what it is.
const ATTEMPTS_MIN: usize = 10_000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct BoundedDialect {
    attempts_left: Cell<usize>,
}

impl BoundedDialect {
    /// For a statement of so many tokens.
    pub fn new(tokens: usize) -> Self {
        Self { attempts_left: Cell::new(ATTEMPTS_MIN + tokens * ATTEMPTS_PER_TOKEN) }
    }

    fn attempt(&self) -> Result<(), ParserError> {
        match self.attempts_left.get().checked_sub(1) {
            Some(left) => {
                self.attempts_left.set(left);
                Ok(())
            }
            None => Err(ParserError::RecursionLimitExceeded),
        }
    }
}

/// Whether `[NOT] IN ((...)` begins a list: behind the inner parentheses follows something that no query goes on with.
fn begins_list(parser: &Parser) -> bool {
    let mut tokens = (0..)
        .map(|ahead| parser.peek_nth_token_no_skip(ahead).token)
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .peekable();
    let is_word = |token: &Token, keyword: Keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    tokens.next_if(|token| is_word(token, Keyword::NOT));
    let begins = tokens.next().is_some_and(|token| is_word(&token, Keyword::IN))
        && tokens.next() == Some(Token::LParen)
        && tokens.next() == Some(Token::LParen);
    let mut open = usize::from(begins);
    while open > 0 {
        match tokens.next() {
            Some(Token::LParen) => open += 1,
            Some(Token::RParen) => open -= 1,
            Some(Token::EOF) | None => return false,
            Some(_) => {}
        }
    }
    begins
        && match tokens.next() {
            Some(Token::RParen | Token::EOF) | None => false,
            Some(Token::Word(word)) => !matches!(
                word.keyword,
                Keyword::UNION
                    | Keyword::INTERSECT
                    | Keyword::EXCEPT
                    | Keyword::ORDER
                    | Keyword::LIMIT
                    | Keyword::OFFSET
                    | Keyword::FETCH
                    | Keyword::FOR
            ),
            Some(_) => true,
        }
}

/// What PostgreSQL's dialect says itself instead of leaving it to the trait.
macro_rules! as_postgresql {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            PostgreSqlDialect {}.$name($($argument),*)
        })*
    };
}

impl Dialect for BoundedDialect {
    /// The parser asks here whether it reads PostgreSQL.
    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.dialect()
    }

    /// Also `x = ANY (VALUES (1), (2))`: the parser looks for SELECT only.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Err(error) = self.attempt() {
            return Some(Err(error));
        }
        let is_list = parser.peek_keyword(Keyword::VALUES) && parser.peek_nth_token_ref(1).token == Token::LParen;
        is_list.then(|| parser.parse_query().map(Expr::Subquery))
    }

    fn parse_statement(&self, _parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        self.attempt().err().map(Err)
    }

    /// `x IN ((SELECT ...), ...)`: the parser takes a list that begins with a subquery for that subquery.
    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _precedence: u8) -> Option<Result<Expr, ParserError>> {
        if !begins_list(parser) {
            return None;
        }
        let negated = parser.parse_keyword(Keyword::NOT);
        let mut list = || {
            parser.expect_keyword_is(Keyword::IN)?;
            parser.expect_token(&Token::LParen)?;
            let list = parser.parse_comma_separated(Parser::parse_expr)?;
            parser.expect_token(&Token::RParen)?;
            Ok(Expr::InList { expr: Box::new(expr.clone()), list, negated })
        };
        Some(list())
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `'a'` and `'b'` on the next line are `'ab'`, as the standard says.
    fn supports_string_literal_concatenation_with_newline(&self) -> bool {
        true
    }

    /// Includes NOT and CASE: beyond its recursion limit the parser would retry them as names, and hide that error.
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        matches!(keyword, Keyword::NOT | Keyword::CASE) || PostgreSqlDialect {}.is_reserved_for_identifier(keyword)
    }

    as_postgresql! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(c: char) -> bool;
        is_identifier_start(c: char) -> bool;
        is_identifier_part(c: char) -> bool;
        is_custom_operator_part(c: char) -> bool;
        get_next_precedence(parser: &Parser) -> Option<Result<u8, ParserError>>;
        prec_value(precedence: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_unicode_string_literal() -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! assert_same {
        ($($name:ident)*) => {
            $(assert_eq!(
                BoundedDialect::new(0).$name(),
                PostgreSqlDialect {}.$name(),
                stringify!($name)
            );)*
        };
    }

    #[test]
    fn lists_may_begin_with_a_subquery() {
        for (condition, is_list) in [
            ("a IN ((SELECT 1), 2)", true),
            ("a NOT IN ((SELECT ')'), (SELECT 2))", true),
            ("a IN ((SELECT 1) + 1)", true),
            ("a IN (((SELECT 1)), 2)", true),
            ("a IN ((1), 2)", true),
            ("a IN ((SELECT 1))", false),
            ("a NOT IN ((SELECT 1) UNION (SELECT 2))", false),
            ("a IN ((SELECT 1) ORDER BY 1 LIMIT 1)", false),
            ("a IN (SELECT (1), 2)", false),
        ] {
            let statement = super::super::parse(&format!("SELECT {condition}")).unwrap().remove(0).ast;
            assert_eq!(statement.to_string(), format!("SELECT {condition}"));
            let text = format!("{statement:?}");
            assert_eq!((text.contains("InList"), text.contains("InSubquery")), (is_list, !is_list), "{condition}");
        }
        assert!(super::super::parse("SELECT a IN ((SELECT 1), 2").is_err());
    }

    #[test]
    fn it_is_postgresql() {
        let bounded = BoundedDialect::new(0);
        assert!((&bounded as &dyn Dialect).is::<PostgreSqlDialect>());
        for c in '\0'..='\u{2ff}' {
            assert_eq!(bounded.is_identifier_start(c), PostgreSqlDialect {}.is_identifier_start(c), "{c:?}");
            assert_eq!(bounded.is_identifier_part(c), PostgreSqlDialect {}.is_identifier_part(c), "{c:?}");
        }
        // Everything that the trait asks with yes or no, but for what is answered differently on purpose.
        assert_same! {
            allow_extract_custom allow_extract_single_quotes describe_requires_table_keyword ignores_wildcard_escapes
            convert_type_before_value prec_unknown require_interval_qualifier requires_single_line_comment_whitespace
            supports_alter_column_type_using supports_array_join_syntax supports_array_typedef_with_brackets
            supports_array_typedef_without_element_type supports_asc_desc_in_column_definition
            supports_bang_not_operator supports_binary_kw_as_cast supports_bitwise_shift_operators
            supports_boolean_literals supports_column_definition_trailing_commas
            supports_comma_separated_drop_column_list supports_comma_separated_set_assignments
            supports_comma_separated_trim supports_comment_on supports_comment_optimizer_hint supports_connect_by
            supports_constraint_keyword_without_name supports_create_index_with_clause
            supports_create_table_like_parenthesized supports_create_table_multi_schema_info_sources
            supports_create_table_select supports_create_table_using supports_create_view_comment_syntax
            supports_cross_join_constraint supports_cte_without_as supports_data_type_signed_suffix
            supports_detach supports_dictionary_syntax supports_dollar_as_money_prefix supports_dollar_placeholder
            supports_double_ampersand_operator supports_empty_projections supports_end_transaction_modifier
            supports_eq_alias_assignment supports_execute_immediate supports_explain_with_utility_options
            supports_extract_comma_syntax supports_factorial_operator supports_filter_during_aggregation
            supports_from_first_insert supports_from_first_select supports_from_trailing_commas
            supports_geometric_types supports_group_by_expr supports_group_by_with_modifier supports_in_empty_list
            supports_insert_format supports_insert_set supports_insert_table_alias supports_insert_table_function
            supports_insert_table_query supports_install supports_interpolate supports_interval_options
            supports_key_column_option supports_lambda_functions supports_left_associative_joins_without_parens
            supports_limit_by supports_limit_comma supports_listen_notify supports_load_data supports_load_extension
            supports_long_type_as_bigint supports_map_literal_with_angle_brackets supports_match_against
            supports_match_recognize supports_multiline_comment_hints supports_named_fn_args_with_assignment_operator
            supports_named_fn_args_with_colon_operator supports_named_fn_args_with_eq_operator
            supports_named_fn_args_with_rarrow_operator supports_nested_comments supports_notnull_operator
            supports_numeric_literal_underscores supports_numeric_prefix supports_object_name_double_dot_notation
            supports_optimize_table supports_order_by_all supports_outer_join_operator
            supports_parens_around_table_factor supports_parenthesized_set_variables
            supports_partition_by_after_order_by supports_partiql supports_pipe_operator supports_prewhere
            supports_projection_trailing_commas supports_quote_delimited_string supports_select_exclude
            supports_select_expr_star supports_select_format supports_select_item_multi_column_alias
            supports_select_modifiers supports_select_wildcard_except supports_select_wildcard_exclude
            supports_select_wildcard_ilike supports_select_wildcard_rename supports_select_wildcard_replace
            supports_select_wildcard_with_alias supports_semantic_view_table_factor supports_set_names
            supports_set_stmt_without_operator supports_settings supports_show_like_before_in
            supports_space_separated_column_options supports_start_transaction_modifier
            supports_string_escape_constant supports_string_literal_backslash_escape
            supports_string_literal_concatenation
            supports_struct_literal supports_subquery_as_function_arg supports_table_hints
            supports_table_sample_before_alias supports_table_versioning supports_top_before_distinct
            supports_trailing_commas supports_triple_quoted_string supports_try_convert
            supports_unicode_string_literal supports_update_order_by supports_user_host_grantee
            supports_values_as_table_factor supports_window_clause_named_window_reference
            supports_window_function_null_treatment_arg supports_with_fill supports_within_after_array_aggregation
            supports_xml_expressions
        }
    }
}
