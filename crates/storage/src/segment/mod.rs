//! A partition's rows in pieces: the unit of sealing, pruning, adaptation.

mod deletes;
mod new_rows;
mod sealed;
mod slot;
mod words;
mod zones;

pub(crate) use deletes::DeleteMap;
pub(crate) use new_rows::NewRows;
pub use sealed::{BuildForm, BuildOptions, SealedSegment, SegmentIdentity};
pub(crate) use sealed::{SealedBuilder, attribute_check, key_attributes, link_window, path_attributes, rows_check};
pub(crate) use slot::{OpenRows, Segment, State};
pub(crate) use words::OpenWords;
