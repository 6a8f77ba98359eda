//! Every promise behind `unsafe` is written down: `# Safety` says what a caller owes, `// SAFETY:` why it is kept.
//!
//! Clippy asks it of blocks (`undocumented_unsafe_blocks`) and of public functions (`missing_safety_doc`); this rule
//! asks it of private functions, traits and implementations too.

use crate::rust_text::word_positions;
use crate::{Finding, SourceFile, Tree};

const RULE: &str = "unsafe reasons";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, code) in tree.rust_files() {
        for at in word_positions(code, "unsafe") {
            let line = code[..at].matches('\n').count() + 1;
            if let Some(kind) = declared_kind(&code[at + "unsafe".len()..])
                && !has_reason(file, line)
            {
                let message = format!("an unsafe {kind} without `# Safety` or `// SAFETY:` above it");
                findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
            }
        }
    }
    findings
}

/// What the `unsafe` before `rest` declares; `None` for blocks and for types of function pointers.
fn declared_kind(rest: &str) -> Option<&'static str> {
    let rest = rest.trim_start();
    if rest.starts_with("impl") {
        return Some("implementation");
    }
    if rest.starts_with("trait ") {
        return Some("trait");
    }
    let rest = match rest.strip_prefix("extern") {
        Some(abi) => abi.trim_start().trim_start_matches(['"', ' ']),
        None => rest,
    };
    let name = rest.strip_prefix("fn ")?.trim_start();
    name.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some("function")
}

/// A reason in the comments and attributes directly above, or at the end of the line itself.
fn has_reason(file: &SourceFile, line: usize) -> bool {
    let lines: Vec<&str> = file.text.split('\n').collect();
    let above = lines[..line - 1].iter().rev().map(|line| line.trim());
    let mut attached = above.take_while(|line| line.starts_with("//") || line.starts_with('#') || line.ends_with(']'));
    lines[line - 1].contains("// SAFETY:") || attached.any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        check(&Tree::of(&[("crates/a/src/lib.rs", text)])).len()
    }

    #[test]
    fn declarations_without_a_reason_are_found() {
        for text in [
            "unsafe fn f() {}\n",
            "/// What it does.\nunsafe fn f() {}\n",
            "pub unsafe extern \"C\" fn f() {}\n",
            "unsafe trait T {}\n",
            "unsafe impl Send for T {}\n",
            "unsafe impl<T> Send for P<T> {}\n",
            "// SAFETY: of another item\nstruct S;\nunsafe impl Send for S {}\n",
        ] {
            assert_eq!(findings(text), 1, "{text}");
        }
    }

    #[test]
    fn reasons_and_other_uses_pass() {
        for text in [
            "/// # Safety\n/// `p` is aligned.\n#[inline]\nunsafe fn f() {}\n",
            "// SAFETY: owns its pointer.\nunsafe impl Send for T {}\n",
            "unsafe impl Send for T {} // SAFETY: owns its pointer.\n",
            "type F = unsafe fn(usize) -> usize;\n",
            "fn f() { unsafe { g() } }\n",
            "// an unsafe fn f is documented\nconst T: &str = \"unsafe impl\";\n",
        ] {
            assert_eq!(findings(text), 0, "{text}");
        }
    }
}
