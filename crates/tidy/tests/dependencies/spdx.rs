//! Licence expressions as `Cargo.toml` writes them: names joined by `OR`, `AND`, `WITH` and parentheses, `/` for `OR`
//! in old manifests. `AND` binds tighter than `OR`; `name WITH exception` is one name.
//!
//! ```text
//! any  := all ("OR" all)*
//! all  := one ("AND" one)*
//! one  := "(" any ")" | name ["WITH" name]
//! ```

/// May a package under this expression be used if `is_allowed` says which single licences may be?
pub fn is_satisfied(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, is_allowed };
    let satisfied = parser.any()?;
    match parser.words {
        [] => Ok(satisfied),
        [word, ..] => Err(format!("unexpected {word} in {expression}")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    is_allowed: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        match self.words {
            [first, rest @ ..] if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut satisfied = self.all()?;
        while self.take("OR") {
            satisfied |= self.all()?;
        }
        Ok(satisfied)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut satisfied = self.one()?;
        while self.take("AND") {
            satisfied &= self.one()?;
        }
        Ok(satisfied)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let satisfied = self.any()?;
            return if self.take(")") { Ok(satisfied) } else { Err("a parenthesis stays open".to_owned()) };
        }
        match *self.words {
            [name, "WITH", exception, ref rest @ ..] => {
                self.words = rest;
                Ok((self.is_allowed)(&format!("{name} WITH {exception}")))
            }
            [name, ref rest @ ..] if !["OR", "AND", "WITH", ")"].contains(&name) => {
                self.words = rest;
                Ok((self.is_allowed)(name))
            }
            _ => Err("a licence name is missing".to_owned()),
        }
    }
}

#[test]
fn expressions_mean_what_they_say() {
    let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
    for (expression, satisfied) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-3.0-only OR MIT AND GPL-2.0-only", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("MIT WITH LLVM-exception", false),
    ] {
        assert_eq!(is_satisfied(expression, &|name| allowed.contains(&name)), Ok(satisfied), "{expression}");
    }
    for broken in ["", "MIT OR", "(MIT", "MIT MIT", "AND", "MIT)"] {
        assert!(is_satisfied(broken, &|_| true).is_err(), "{broken}");
    }
}
