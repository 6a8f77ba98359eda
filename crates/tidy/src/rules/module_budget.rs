//! A storage module touches three files: its own, the registry and the list of files beside it. The conformance suite
//! iterates over the registry, and everybody else asks the registry by name.
//!
//! The types of the modules that are registered may therefore be named nowhere else: who names one would have to be
//! changed for the next.

use crate::rust_text::word_positions;
use crate::{Finding, SourceFile, Tree};

const RULE: &str = "module budget";
const DIRECTORY: &str = "crates/storage/src/modules";
const REGISTRY: &str = "crates/storage/src/modules/registry.rs";
const CRATE: &str = "crates/storage/src/lib.rs";
const FILES_MAX: usize = 3;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let finding = |path: &str, message: String| Finding { path: path.to_owned(), line: 1, rule: RULE, message };
    let modules = tree.file(REGISTRY).and_then(SourceFile::code).map(registered).unwrap_or_default();
    if modules.is_empty() {
        return vec![finding(REGISTRY, "no `Registry::new(&[&OneModule, ...])` is found here".to_owned())];
    }
    let own = |module: &str| tree.rust_files().map(|(file, _)| file).find(|file| declares(file, module));
    let owners: Vec<&str> = modules.iter().filter_map(|module| own(module)).map(|file| file.path.as_str()).collect();
    let mut findings = Vec::new();
    for module in modules {
        let Some(own) = own(module) else {
            findings.push(finding(REGISTRY, format!("`{module}` is declared in no file of {DIRECTORY}")));
            continue;
        };
        let mut touched = vec![own.path.as_str(), REGISTRY];
        for (file, code) in tree.rust_files() {
            let path = file.path.as_str();
            // A module may be made of an earlier one: that is its own file.
            if word_positions(code, module).next().is_some() && !touched.contains(&path) && !owners.contains(&path) {
                findings.push(finding(path, format!("`{module}` is named outside of its file and the registry")));
                touched.push(path);
            }
        }
        let file_module = format!("{};", own.name().trim_end_matches(".rs"));
        let declares_file = |code: &str| {
            word_positions(code, "mod").any(|at| code[at + 3..].trim_start().starts_with(file_module.as_str()))
        };
        let parents = tree.rust_files().filter(|(_, code)| declares_file(code)).map(|(file, _)| file.path.as_str());
        // Another directory may have a module of this name.
        touched.extend(parents.filter(|parent| parent.starts_with(DIRECTORY) || *parent == CRATE));
        if touched.len() > FILES_MAX {
            findings.push(finding(&own.path, format!("adding `{module}` touches {touched:?}")));
        }
    }
    findings
}

/// Whether a file of the storage modules says what this one is.
fn declares(file: &SourceFile, module: &str) -> bool {
    let declaration = format!("struct {module}");
    let code = file.code().unwrap_or_default();
    file.directory() == DIRECTORY && word_positions(code, &declaration).next().is_some()
}

/// The modules in the list that the registry is made of.
fn registered(code: &str) -> Vec<&str> {
    let Some((_, list)) = code.split_once("Registry::new(&[") else { return Vec::new() };
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split(',').filter_map(|entry| entry.trim().strip_prefix('&')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "use super::hash::HashModule;\nstatic S: Registry = Registry::new(&[\n    &HashModule,\n]);\n";
    const OWN: (&str, &str) = ("crates/storage/src/modules/hash.rs", "pub struct HashModule;\nmod tests {}\n");
    const DECLARED: (&str, &str) = ("crates/storage/src/modules/mod.rs", "mod hash;\nmod registry;\n");

    fn found(more: &[(&str, &str)]) -> Vec<String> {
        let samples = [&[(REGISTRY, LIST)][..], more].concat();
        check(&Tree::of(&samples)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn three_files_are_enough() {
        let comment =
            ("crates/storage/src/store.rs", "// HashModule is registered.\nlet hash = module(\"HashModule\");\n");
        assert_eq!(found(&[OWN, DECLARED, comment]), Vec::<String>::new());
    }

    #[test]
    fn a_module_may_be_made_of_another() {
        let list = LIST.replace("&HashModule,", "&HashModule, &SparseModule,");
        let sparse = ("crates/storage/src/modules/sparse.rs", "struct SparseModule;\nfn f() { HashModule.create() }\n");
        let tree = Tree::of(&[(REGISTRY, &list), OWN, DECLARED, sparse]);
        assert_eq!(check(&tree).len(), 0);
    }

    #[test]
    fn a_fourth_file_is_found() {
        let store = ("crates/storage/src/store.rs", "fn f() { g(&HashModule) }\n");
        assert_eq!(found(&[OWN, store, DECLARED]), ["crates/storage/src/store.rs", OWN.0]);
        let twice = ("crates/storage/src/lib.rs", "#[path = \"modules/hash.rs\"]\nmod hash;\n");
        assert_eq!(found(&[OWN, DECLARED, twice]), [OWN.0]);
    }

    #[test]
    fn a_registry_without_modules_is_no_proof() {
        assert_eq!(found(&[]), [REGISTRY]);
        let empty = Tree::of(&[(REGISTRY, "static S: Registry = Registry::new(&[]);\n"), OWN]);
        assert_eq!(check(&empty).len(), 1);
        assert_eq!(check(&Tree::of(&[OWN])).len(), 1);
    }
}
