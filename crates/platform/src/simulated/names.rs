//! Which names files have: for the processes of the machine, on the disk, and on the way there.
//!
//! What happens in a directory reaches the disk in the order in which it happened, because a journal keeps it. So a
//! power loss leaves a beginning of what was not synced, of each directory another. A rename between two directories
//! is one entry of the journal: it survives with both or not at all, and what follows it in either directory falls with
//! it.
//!
//! Directories themselves are durable from the start; see [`Files::create_directory`](crate::Files::create_directory).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::disk_faults::{DiskFaults, Unsynced};
use crate::files::FileIdentity;
use crate::random::SeededRandom;

/// A file, whatever its names. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct InodeNumber(pub(super) u64);

impl InodeNumber {
    /// The machine has one file system.
    pub(super) fn identity(self) -> FileIdentity {
        FileIdentity { device: 0, inode: self.0 }
    }
}

#[derive(Default)]
pub(super) struct Names {
    /// All but the root, which always exists. Their numbers say which directory it is, whatever its name.
    directories: Table,
    live: Table,
    durable: Table,
    unsynced: Vec<NameChange>,
}

type Table = BTreeMap<PathBuf, InodeNumber>;

enum NameChange {
    Link(PathBuf, InodeNumber),
    Unlink(PathBuf),
    Rename { from: PathBuf, to: PathBuf },
}

impl NameChange {
    fn apply(&self, table: &mut Table) {
        match self {
            NameChange::Link(path, inode) => drop(table.insert(path.clone(), *inode)),
            NameChange::Unlink(path) => {
                let removed = table.remove(path);
                assert!(removed.is_some(), "{} lost its name before it was removed", path.display());
            }
            NameChange::Rename { from, to } => {
                let Some(inode) = table.remove(from) else {
                    unreachable!("{} lost its name before it was renamed", from.display())
                };
                table.insert(to.clone(), inode);
            }
        }
    }

    /// The directories that it changes, twice the same if it is one.
    fn directories(&self) -> [&Path; 2] {
        match self {
            NameChange::Link(path, _) | NameChange::Unlink(path) => [directory_of(path); 2],
            NameChange::Rename { from, to } => [directory_of(from), directory_of(to)],
        }
    }

    fn directories_once(&self) -> impl Iterator<Item = &Path> {
        let [first, second] = self.directories();
        [Some(first), (second != first).then_some(second)].into_iter().flatten()
    }
}

/// A path as it is stored: from the root, without `.` and `..`.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

/// The directory of a normal path. The root is in itself.
fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// All paths are [normal](normal).
impl Names {
    pub(super) fn is_directory(&self, path: &Path) -> bool {
        self.directories.contains_key(path) || path.parent().is_none()
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.live.contains_key(path) || self.is_directory(path)
    }

    pub(super) fn get(&self, path: &Path) -> Option<InodeNumber> {
        self.live.get(path).copied()
    }

    /// The number of a directory; none of the root.
    pub(super) fn directory(&self, path: &Path) -> Option<InodeNumber> {
        self.directories.get(path).copied()
    }

    /// The path of a file or directory.
    pub(super) fn path_of(&self, inode: InodeNumber) -> Option<&Path> {
        let mut all = self.live.iter().chain(&self.directories);
        all.find(|(_, number)| **number == inode).map(|(path, _)| &**path)
    }

    /// The file of this name, or the kernel's error.
    pub(super) fn find(&self, path: &Path) -> io::Result<InodeNumber> {
        self.lookup(path)?.ok_or_else(|| error(libc::ENOENT))
    }

    /// The file of this name, `None` if there could be one.
    pub(super) fn lookup(&self, path: &Path) -> io::Result<Option<InodeNumber>> {
        if self.is_directory(path) {
            return Err(error(libc::EISDIR));
        }
        self.expect_parent(path)?;
        Ok(self.get(path))
    }

    /// That there is a directory in which `path` can be.
    fn expect_parent(&self, path: &Path) -> io::Result<()> {
        let directory = directory_of(path);
        if self.is_directory(directory) {
            return Ok(());
        }
        let through_file = directory.ancestors().any(|above| self.live.contains_key(above));
        Err(error(if through_file { libc::ENOTDIR } else { libc::ENOENT }))
    }

    /// Whether a rename changes anything, or the kernel's error, for which it looks first at the directories of both
    /// names, then at the old name. Directories are not renamed here.
    pub(super) fn would_rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.expect_parent(from)?;
        self.expect_parent(to)?;
        let renamed = self.find(from)?;
        if from.starts_with(to) && from != to {
            return Err(error(libc::ENOTEMPTY));
        }
        Ok(self.lookup(to)? != Some(renamed))
    }

    pub(super) fn expect_directory(&self, path: &Path) -> io::Result<()> {
        if self.is_directory(path) {
            return Ok(());
        }
        Err(self.find(path).map_or_else(|error| error, |_| error(libc::ENOTDIR)))
    }

    /// Files in a directory.
    pub(super) fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.expect_directory(directory)?;
        let files = self.live.keys().filter(|path| path.parent() == Some(directory));
        let mut names = Vec::new();
        for name in files.filter_map(|path| path.file_name()) {
            names.push(name.to_str().map(str::to_owned).ok_or_else(|| {
                let message = format!("the file name {} in {} is not UTF-8", name.display(), directory.display());
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Directories in a directory.
    pub(super) fn list_directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.expect_directory(directory)?;
        let within = self.directories.keys().filter(|path| path.parent() == Some(directory));
        // They were created by names that are text.
        Ok(within.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    /// Durable at once, as its creation was: what happened in it before is, too.
    pub(super) fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        self.expect_directory(path)?;
        let within = |other: &Path| other.parent() == Some(path);
        let is_empty =
            !self.live.keys().any(|file| within(file)) && !self.directories.keys().any(|other| within(other));
        if !is_empty || path.parent().is_none() {
            return Err(error(libc::ENOTEMPTY));
        }
        self.sync(path);
        self.directories.remove(path);
        Ok(())
    }

    /// What has to be created for `path` to be a directory, from above to below.
    pub(super) fn missing_directories(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        if self.live.contains_key(path) {
            return Err(error(libc::EEXIST));
        }
        if path.ancestors().any(|above| self.live.contains_key(above)) {
            return Err(error(libc::ENOTDIR));
        }
        let missing = path.ancestors().filter(|above| !self.is_directory(above)).map(Path::to_path_buf);
        let mut missing: Vec<PathBuf> = missing.collect();
        missing.reverse();
        Ok(missing)
    }

    pub(super) fn create_directory(&mut self, path: PathBuf, inode: InodeNumber) {
        assert!(self.is_directory(directory_of(&path)), "{} would hang in the air", path.display());
        self.directories.insert(path, inode);
    }

    /// Gives a directory another name, with all that is in it; durable at once, and so is what happened there before.
    pub(super) fn move_directory(&mut self, from: &Path, to: &Path) {
        assert!(self.is_directory(from) && !self.exists(to), "{} cannot be moved", from.display());
        let within: Vec<PathBuf> = self.directories.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for directory in &within {
            self.sync(directory);
        }
        let moved = |path: PathBuf| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
            Ok(rest) => to.join(rest),
            Err(_) => path,
        };
        for table in [&mut self.directories, &mut self.live, &mut self.durable] {
            *table = std::mem::take(table).into_iter().map(|(path, inode)| (moved(path), inode)).collect();
        }
    }

    pub(super) fn link(&mut self, path: PathBuf, inode: InodeNumber) {
        self.change(NameChange::Link(path, inode));
    }

    pub(super) fn unlink(&mut self, path: PathBuf) {
        self.change(NameChange::Unlink(path));
    }

    pub(super) fn rename(&mut self, from: PathBuf, to: PathBuf) {
        self.change(NameChange::Rename { from, to });
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    /// Makes durable what happened in a directory, with what it follows on in others.
    pub(super) fn sync(&mut self, directory: &Path) {
        let mut synced = vec![false; self.unsynced.len()];
        let mut directories = BTreeSet::from([directory.to_path_buf()]);
        for (change, synced) in self.unsynced.iter().zip(&mut synced).rev() {
            *synced = change.directories().iter().any(|directory| directories.contains(*directory));
            if *synced {
                directories.extend(change.directories().map(Path::to_path_buf));
            }
        }
        let mut synced = synced.into_iter();
        let durable = &mut self.durable;
        self.unsynced.retain(|change| {
            let synced = synced.next().unwrap_or(false);
            if synced {
                change.apply(durable);
            }
            !synced
        });
    }

    pub(super) fn lose_power(&mut self, faults: &DiskFaults, random: &mut SeededRandom) {
        // How many changes of each directory there are, and then how many of them survive.
        let mut surviving = BTreeMap::<&Path, usize>::new();
        for directory in self.unsynced.iter().flat_map(NameChange::directories_once) {
            *surviving.entry(directory).or_default() += 1;
        }
        for count in surviving.values_mut() {
            *count = faults.unsynced.survivor(0, *count, random);
        }
        for change in &self.unsynced {
            let survives = change.directories().iter().all(|directory| surviving.get(directory) > Some(&0));
            for directory in change.directories_once() {
                // One that is lost takes all that follow with it.
                surviving.entry(directory).and_modify(|left| *left = if survives { *left - 1 } else { 0 });
            }
            if survives {
                change.apply(&mut self.durable);
            }
        }
        let lossless = faults.unsynced == Unsynced::Kept || self.unsynced.is_empty();
        assert!(!lossless || self.durable == self.live, "names on the disk differ from what was done to them");
        self.unsynced.clear();
        self.live.clone_from(&self.durable);
    }

    /// The files that have names.
    pub(super) fn named(&self) -> BTreeSet<InodeNumber> {
        self.live.values().copied().collect()
    }

    /// The files that have names, or could have some after a power loss.
    pub(super) fn referenced(&self) -> BTreeSet<InodeNumber> {
        let linked = self.unsynced.iter().filter_map(|change| match change {
            NameChange::Link(_, inode) => Some(*inode),
            NameChange::Unlink(_) | NameChange::Rename { .. } => None,
        });
        let named = self.live.values().chain(self.durable.values()).chain(self.directories.values());
        named.copied().chain(linked).collect()
    }
}
