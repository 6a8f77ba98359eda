//! The parser's structures, under one name. Fuzzing builds [`crate::front`] with this one module pointing at the parser
//! crate itself, and so without the rest of the SQL stack.

pub use datafusion::sql::sqlparser::ast::*;
pub use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
pub use datafusion::sql::sqlparser::keywords::Keyword;
pub use datafusion::sql::sqlparser::parser::{Parser, ParserError};
pub use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};
