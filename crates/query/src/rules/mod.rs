//! Rules that make a query cheaper and leave its rows as they are. One rule, one file.
//!
//! | rule             | what it does                                                                    |
//! |------------------|---------------------------------------------------------------------------------|
//! | [`push_filters`] | conditions go down to what they are about; equalities between two sides become join keys; outer joins whose NULLs are dropped above become inner ones |
//! | [`common_parts`] | what would be computed several times of a row is computed once                     |
//! | [`top_rows`]     | a sort below a limit keeps no more rows than are needed                          |

mod common_parts;
mod push_filters;
mod top_rows;

pub use common_parts::common_parts;
pub use push_filters::push_filters;
pub use top_rows::top_rows;

use crate::relation::Relation;

/// All rules, each once, in the order of the table. New columns are numbered from `next` on.
pub fn optimized(relation: Relation, next: u32) -> Relation {
    let mut next = next;
    top_rows(common_parts(push_filters(relation), &mut next))
}
