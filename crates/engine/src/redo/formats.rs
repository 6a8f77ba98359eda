//! Formats of rows that are asked for again and again.

use std::sync::Arc;

use eris_storage::{DataType, RowFormat};

/// Formats that are kept.
const FORMATS_MAX: usize = 32;

/// The last formats of rows that somebody worked with, so that not every row makes one.
#[derive(Debug, Default)]
pub struct RedoFormats {
    formats: Vec<Arc<RowFormat>>,
}

impl RedoFormats {
    /// The format of rows of these types.
    pub(super) fn of(&mut self, types: impl Iterator<Item = DataType> + Clone) -> Arc<RowFormat> {
        if let Some(known) = self.formats.iter().find(|known| known.data_types().iter().copied().eq(types.clone())) {
            return Arc::clone(known);
        }
        let format = Arc::new(RowFormat::new(types));
        if self.formats.len() == FORMATS_MAX {
            self.formats.remove(0);
        }
        self.formats.push(Arc::clone(&format));
        format
    }
}
