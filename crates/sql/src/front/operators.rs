//! Operators that stand beside a sign: `a>-1` is `a > -1`.
//!
//! The tokenizer takes as many operator characters as follow each other for one operator. In PostgreSQL an operator
//! ends with `+` or `-` only if it has one of the characters ``~ ! @ # % ^ & | ` ?`` as well.

use crate::ast::{Token, TokenWithSpan};

/// Characters of which one makes a sign at the end a part of the operator.
const SPECIAL: &str = "~!@#%^&|`?";

/// The tokens with such operators taken apart. The parts have the place of the whole.
pub(super) fn split(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| matches!(token.token, Token::CustomBinaryOperator(_))) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + 1);
    for token in tokens {
        match &token.token {
            Token::CustomBinaryOperator(operator) => match parts(operator) {
                Some(parts) => {
                    out.extend(parts.into_iter().map(|part| TokenWithSpan { token: part, span: token.span }));
                }
                None => out.push(token),
            },
            _ => out.push(token),
        }
    }
    out
}

/// The tokens that an operator consists of; `None` if it is one.
fn parts(operator: &str) -> Option<Vec<Token>> {
    if operator.contains(|c| SPECIAL.contains(c)) {
        return None;
    }
    let mut parts = Vec::new();
    let mut rest = operator;
    while !rest.is_empty() {
        let end = rest.trim_end_matches(['+', '-']).len().max(1);
        parts.push(known(&rest[..end])?);
        rest = &rest[end..];
    }
    (parts.len() > 1).then_some(parts)
}

fn known(operator: &str) -> Option<Token> {
    Some(match operator {
        "+" => Token::Plus,
        "-" => Token::Minus,
        "*" => Token::Mul,
        "/" => Token::Div,
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_no_part_of_an_operator() {
        let shown = |operator: &str| parts(operator).map(|parts| parts.iter().map(ToString::to_string).collect());
        let some = |parts: &[&str]| Some(parts.iter().map(|part| (*part).to_string()).collect::<Vec<_>>());
        assert_eq!(shown(">-"), some(&[">", "-"]));
        assert_eq!(shown("<=-+"), some(&["<=", "-", "+"]));
        assert_eq!(shown("+-+"), some(&["+", "-", "+"]));
        assert_eq!(shown("<>-"), some(&["<>", "-"]));
        assert_eq!(shown("%-"), None);
        assert_eq!(shown("<<>>"), None);
        assert_eq!(shown("@-"), None);
    }
}
