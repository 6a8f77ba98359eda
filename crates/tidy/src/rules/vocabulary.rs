//! The glossary binds: its terms to delete on sight occur in no code and no prose.
//!
//! The list is the last table of `GLOSSARY.md`, so that the words are written in one place. A term matches whole words,
//! in any case, and the parts of `snake_case` names count as words.

use crate::{Finding, Tree};

const RULE: &str = "vocabulary";
const GLOSSARY: &str = "GLOSSARY.md";
const HEADING: &str = "## Terms to delete on sight";

struct Term {
    words: Vec<String>,
    instead: String,
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let terms = tree.file(GLOSSARY).map(|glossary| terms_of(&glossary.text)).unwrap_or_default();
    if terms.is_empty() {
        let message = format!("no table below \"{HEADING}\"");
        return vec![Finding { path: GLOSSARY.to_owned(), line: 1, rule: RULE, message }];
    }
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != GLOSSARY) {
        for (line, text) in file.lines() {
            let words = words_of(text);
            for term in &terms {
                if words.windows(term.words.len()).any(|window| window == term.words) {
                    let message = format!("\"{}\": {}", term.words.join(" "), term.instead);
                    findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
                }
            }
        }
    }
    findings
}

/// Rows `| term, other form | say instead |` below the heading, without the table's head.
fn terms_of(glossary: &str) -> Vec<Term> {
    let below = glossary.split_once(HEADING).map_or("", |(_, below)| below);
    let rows = below.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')?.split_once('|'));
    let rows = rows.skip(2).map(|(terms, instead)| (terms, instead.trim()));
    rows.flat_map(|(terms, instead)| {
        let terms = terms.split(',').map(words_of).filter(|words| !words.is_empty());
        terms.map(|words| Term { words, instead: instead.to_owned() })
    })
    .collect()
}

fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# G\n\n| shown | x |\n\n## Terms to delete on sight\n\n\
                          | term | say instead |\n|---|---|\n| frob, frobs | part |\n| magic number | name it |\n";

    #[test]
    fn condemned_terms_are_found_in_any_form() {
        for (text, count) in [
            ("a Frob here", 1),
            ("let frob_id = frobs;", 2),
            ("a magic\tnumber", 1),
            ("frobnicate the magic", 0),
            ("shown in another table", 0),
        ] {
            let findings = check(&Tree::of(&[(GLOSSARY, SAMPLE), ("crates/a/src/lib.rs", text)]));
            assert_eq!(findings.len(), count, "{text}");
        }
    }

    #[test]
    fn a_glossary_without_the_list_is_found() {
        assert_eq!(check(&Tree::of(&[(GLOSSARY, "# Glossary\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
