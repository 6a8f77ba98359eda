//! Updates in place: who sees which version of a row that was overwritten, whichever way it is read, and what becomes
//! of its before-images.

mod bookkeeping;
mod fixture;
mod maintenance;
mod versions;
