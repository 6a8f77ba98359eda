//! What the fuzz targets run: each is a function of bytes, so that the tests of the workspace run it too, on the inputs
//! in `corpus`.
//!
//! - [`conversation`]: a client of the server whose bytes come from the fuzzer; targets `protocol` and `session`.
//! - [`ast_pass`]: SQL text through the parser and the pass that refuses; [`sql_text`] writes such text out of bytes.
//! - [`files`]: bytes in the files of a database, under checks that are right; target `files`.
//! - [`message`]: bytes in place of the engine's own messages; target `message`.
//! - [`segment`]: bytes that tell what happens to a partition's segments; target `segment`, read by
//!   [`segment_input`].
//! - [`bounded`]: no input may take long.

#[cfg(feature = "front")]
pub mod ast_pass;
pub mod bounded;
#[cfg(feature = "front")]
pub mod conversation;
#[cfg(feature = "durability")]
pub mod files;
#[cfg(feature = "engine")]
pub mod message;
pub mod segment;
pub mod segment_input;
#[cfg(feature = "front")]
pub mod sql_text;
