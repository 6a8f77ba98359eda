//! The parser's structures, from the parser crate itself.

pub use sqlparser::ast::*;
pub use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
pub use sqlparser::keywords::Keyword;
pub use sqlparser::parser::{Parser, ParserError};
pub use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};
