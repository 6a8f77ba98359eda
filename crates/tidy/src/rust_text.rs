//! Separates Rust code from what merely stands in it: comments and literals.
//!
//! [`code_of`] returns the source with the contents of comments, strings and characters replaced by spaces. Lines and
//! columns stay, so that a finding in the blanked text points at the right place. It is a scanner for six forms (line
//! and nested block comments, strings with escapes, raw strings, characters, lifetimes), not a parser: a rule that
//! searches words in its result cannot be misled by prose, and no rule needs more.

pub fn code_of(source: &str) -> String {
    let mut scanner = Scanner { source: source.chars().collect(), at: 0, code: String::with_capacity(source.len()) };
    while scanner.at < scanner.source.len() {
        scanner.step();
    }
    scanner.code
}

/// Byte positions of `word` as a whole word in `code`.
pub fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_identifier) && !after.is_some_and(is_identifier)
    })
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Scanner {
    source: Vec<char>,
    at: usize,
    code: String,
}

impl Scanner {
    fn step(&mut self) {
        if self.looking_at("//") {
            self.blank_while(|scanner| scanner.source[scanner.at] != '\n');
        } else if self.looking_at("/*") {
            self.block_comment();
        } else if let Some(hashes) = self.raw_string_hashes() {
            self.raw_string(hashes);
        } else {
            match self.source[self.at] {
                '"' => self.quoted('"'),
                '\'' if self.is_character() => self.quoted('\''),
                _ => self.keep(),
            }
        }
    }

    fn looking_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(offset, c)| self.source.get(self.at + offset) == Some(&c))
    }

    fn keep(&mut self) {
        self.code.push(self.source[self.at]);
        self.at += 1;
    }

    fn blank(&mut self) {
        self.code.push(if self.source[self.at] == '\n' { '\n' } else { ' ' });
        self.at += 1;
    }

    fn blank_while(&mut self, more: impl Fn(&Self) -> bool) {
        while self.at < self.source.len() && more(self) {
            self.blank();
        }
    }

    fn blank_count(&mut self, count: usize) {
        let end = (self.at + count).min(self.source.len());
        self.blank_while(|scanner| scanner.at < end);
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.source.len() {
            if self.looking_at("/*") {
                depth += 1;
                self.blank_count(2);
            } else if self.looking_at("*/") {
                depth -= 1;
                self.blank_count(2);
                if depth == 0 {
                    return;
                }
            } else {
                self.blank();
            }
        }
    }

    /// The number of `#` if a raw string starts here: `r"`, `r#"`, `br"`, `cr##"` and so on.
    fn raw_string_hashes(&self) -> Option<usize> {
        if self.at > 0 && is_identifier(self.source[self.at - 1]) {
            return None;
        }
        let mut at = self.at;
        if matches!(self.source[at], 'b' | 'c') {
            at += 1;
        }
        if self.source.get(at) != Some(&'r') {
            return None;
        }
        at += 1;
        let hashes = self.source[at..].iter().take_while(|&&c| c == '#').count();
        (self.source.get(at + hashes) == Some(&'"')).then_some(hashes)
    }

    fn raw_string(&mut self, hashes: usize) {
        while self.source[self.at] != '"' {
            self.keep();
        }
        self.keep();
        let end = format!("\"{}", "#".repeat(hashes));
        self.blank_while(|scanner| !scanner.looking_at(&end));
        for _ in 0..=hashes {
            if self.at < self.source.len() {
                self.keep();
            }
        }
    }

    fn quoted(&mut self, quote: char) {
        self.keep();
        while self.at < self.source.len() && self.source[self.at] != quote {
            self.blank_count(if self.source[self.at] == '\\' { 2 } else { 1 });
        }
        if self.at < self.source.len() {
            self.keep();
        }
    }

    /// `'a'` and `'\n'` are characters, `'a` is a lifetime.
    fn is_character(&self) -> bool {
        self.source.get(self.at + 1) == Some(&'\\') || self.source.get(self.at + 2) == Some(&'\'')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        for (source, code) in [
            ("a // b", "a     "),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("b\"c")"#, r#"f("    ")"#),
            ("r#\"x\"y\"#;z", "r#\"   \"#;z"),
            ("br\"x\" + c", "br\" \" + c"),
            ("'x' + 'a' + '\\'' + b", "' ' + ' ' + '  ' + b"),
            ("&'a str // 'b", "&'a str      "),
            ("\"x\ny\"z", "\" \n \"z"),
            ("var\"x\"", "var\" \""),
        ] {
            assert_eq!(code_of(source), code, "{source}");
        }
    }

    #[test]
    fn unfinished_literals_end_with_the_source() {
        for source in ["\"x", "\"x\\", "r#\"x", "r#\"x\"", "/* x", "'\\", "'"] {
            assert_eq!(code_of(source).chars().count(), source.chars().count(), "{source}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(word_positions("unsafe { f(unsafe) }", "unsafe").collect::<Vec<_>>(), [0, 11]);
        assert_eq!(word_positions("unsafe_op; is_unsafe", "unsafe").count(), 0);
    }
}
