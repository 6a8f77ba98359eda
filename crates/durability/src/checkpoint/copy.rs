//! Blocks of a checkpoint, read, checked, and written again for another database.

use std::path::Path;

use eris_platform::{DeterministicMap, Files};
use eris_storage::{Batch, DataType};

use super::block::{BlockKind, BlockPlace, DataReader, DataWriter, damaged, live_count};
use super::manifest::{BlockEntry, FileEntry};
use crate::directory::DatabaseId;
use crate::error::DurabilityError;

/// The number of the data file that is written.
const NUMBER: u64 = 1;

/// What was written.
pub(crate) struct Copied {
    pub blocks: Vec<BlockEntry>,
    pub file: FileEntry,
    /// Rows that are there.
    pub rows: u64,
}

/// A directory with data files, and the database that they are of.
pub(crate) type DataOf<'p> = (&'p Path, DatabaseId);

/// Writes the blocks into one data file, durable but for its name. `types`: of the attributes of containers.
pub(crate) fn copy_blocks(
    files: &dyn Files,
    (from, source): DataOf<'_>,
    blocks: &[BlockEntry],
    types: &DeterministicMap<u32, Vec<DataType>>,
    (to, target): DataOf<'_>,
) -> Result<Copied, DurabilityError> {
    let failed = || DurabilityError::io("write a data file in", to);
    let mut writer = DataWriter::create(files, to, target, NUMBER).map_err(failed())?;
    let mut reader: Option<DataReader> = None;
    let mut read = |place: BlockPlace, kind| {
        if reader.as_ref().is_none_or(|reader| reader.number() != place.file) {
            reader = Some(DataReader::open(files, from, source, place.file)?);
        }
        let Some(reader) = &reader else { unreachable!("it was opened") };
        let broken = |reason: &str| damaged(reader.path(), place.offset, reason);
        Ok::<_, DurabilityError>((reader.read(place, kind)?, broken("the block is not what the manifest says")))
    };
    let (mut copied, mut rows) = (Vec::with_capacity(blocks.len()), 0);
    for block in blocks {
        let (body, broken) = read(block.place, BlockKind::Rows)?;
        let is_known = types.get(&block.container).and_then(|types| Batch::load(types, &body).ok());
        if is_known.is_none_or(|batch| batch.rows != block.rows as usize) {
            return Err(broken);
        }
        let mut append =
            |kind, body: &[u8]| writer.append(files, kind, |out| out.extend_from_slice(body)).map_err(failed());
        let place = append(BlockKind::Rows, &body)?;
        let live = match block.live {
            None => None,
            Some(live) => {
                let (body, broken) = read(live, BlockKind::LiveRows)?;
                if body.len() != (block.rows as usize).div_ceil(8) {
                    return Err(broken);
                }
                rows += live_count(&body);
                Some(append(BlockKind::LiveRows, &body)?)
            }
        };
        rows += if live.is_none() { u64::from(block.rows) } else { 0 };
        copied.push(BlockEntry { place, live, ..block.clone() });
    }
    writer.sync().map_err(failed())?;
    let file = FileEntry { number: NUMBER, bytes: writer.end() };
    Ok(Copied { blocks: copied, file, rows })
}
