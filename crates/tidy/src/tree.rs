//! The files people write in this repository, read once and handed to every rule.
//!
//! The walk takes text written by hand and leaves out what is built, fetched, generated or kept as data, by directory
//! name and by extension, so that it needs neither git nor the network and gives the same list in a release archive.

use std::fs;
use std::io;
use std::path::Path;

use crate::rust_text;

/// Directories that hold no text written by hand.
const SKIPPED_DIRECTORIES: &[&str] = &["target", "corpus", "artifacts", "data", "results", "__pycache__"];
/// Directories whose name starts with a dot are skipped, except these.
const HIDDEN_DIRECTORIES: &[&str] = &[".ci"];
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "py", "sh", "slt", "sql", "txt"];
/// Files without extension that are scripts or documents; everything in these two directories counts as well.
const NAMED_FILES: &[&str] = &["justfile"];
const SCRIPT_DIRECTORIES: &[&str] = &[".ci/", "scripts/"];

#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Relative to the workspace root, with `/` between the parts.
    pub path: String,
    pub text: String,
    code: Option<String>,
}

impl SourceFile {
    pub fn new(path: &str, text: &str) -> Self {
        let code = has_extension(path, "rs").then(|| rust_text::code_of(text));
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// Rust source with the contents of comments and literals blanked out, line for line; `None` for other files.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    pub fn has_extension(&self, extension: &str) -> bool {
        has_extension(&self.path, extension)
    }

    /// `a/b/c.rs` -> `c.rs`
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// `a/b/c.rs` -> `a/b`; empty for a file at the root.
    pub fn directory(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// The lines of the text with their numbers, counted from one.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
    }
}

#[derive(Debug, Default)]
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<SourceFile>,
}

impl Tree {
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut paths = Vec::new();
        walk(root, "", &mut paths)?;
        paths.sort();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match fs::read_to_string(root.join(&path)) {
                Ok(text) => files.push(SourceFile::new(&path, &text)),
                // Gone between listing and reading (an editor's temporary file), or not text.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { files })
    }

    /// A tree of samples, as the tests of the rules use it.
    pub fn of(samples: &[(&str, &str)]) -> Self {
        Self { files: samples.iter().map(|(path, text)| SourceFile::new(path, text)).collect() }
    }

    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub fn rust_files(&self) -> impl Iterator<Item = (&SourceFile, &str)> {
        self.files.iter().filter_map(|file| file.code().map(|code| (file, code)))
    }
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && is_kept_directory(&name) {
            walk(root, &path, paths)?;
        } else if kind.is_file() && is_kept_file(&path, &name) {
            paths.push(path);
        }
    }
    Ok(())
}

fn is_kept_directory(name: &str) -> bool {
    let hidden = name.starts_with('.') && !HIDDEN_DIRECTORIES.contains(&name);
    !hidden && !SKIPPED_DIRECTORIES.contains(&name)
}

fn is_kept_file(path: &str, name: &str) -> bool {
    NAMED_FILES.contains(&name)
        || SCRIPT_DIRECTORIES.iter().any(|directory| path.starts_with(directory))
        || EXTENSIONS.iter().any(|extension| has_extension(path, extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_keeps_what_people_write() {
        for (path, name, kept) in [
            ("justfile", "justfile", true),
            (".ci/run", "run", true),
            ("scripts/figures", "figures", true),
            ("crates/sync/src/lib.rs", "lib.rs", true),
            ("Cargo.lock", "Cargo.lock", false),
            ("LICENSE", "LICENSE", false),
            ("notes.json", "notes.json", false),
        ] {
            assert_eq!(is_kept_file(path, name), kept, "{path}");
        }
        assert!(is_kept_directory(".ci") && is_kept_directory("crates"));
        assert!(!is_kept_directory(".git") && !is_kept_directory("target"));
    }

    #[test]
    fn names_and_directories() {
        let file = SourceFile::new("crates/sync/src/lib.rs", "");
        assert_eq!((file.name(), file.directory()), ("lib.rs", "crates/sync/src"));
        assert_eq!(SourceFile::new("README.md", "").directory(), "");
    }
}
