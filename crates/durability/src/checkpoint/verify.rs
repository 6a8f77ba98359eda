//! Looking at all bytes of a checkpoint, needed or not.

use eris_platform::Files;

use super::block::DataReader;
use super::manifest::Manifest;
use crate::directory::Directory;
use crate::error::DurabilityError;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checked {
    pub blocks: u64,
    pub bytes: u64,
}

/// Reads the manifest and all of the data files that it names; tells what is wrong with them.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn check_data(
    files: &dyn Files,
    directory: &Directory,
    tell: &mut dyn FnMut(DurabilityError),
) -> Result<Checked, DurabilityError> {
    let path = directory.checkpoint();
    files.list(&path).map_err(DurabilityError::io("list", &path))?;
    let mut checked = Checked::default();
    let Some(manifest) = Manifest::read(files, &path, directory.id())? else { return Ok(checked) };
    for file in &manifest.files {
        match DataReader::open(files, &path, directory.id(), file.number) {
            Ok(reader) => {
                checked.blocks += reader.check(file.bytes, tell)?;
                checked.bytes += file.bytes;
            }
            Err(error) => tell(error),
        }
    }
    Ok(checked)
}
