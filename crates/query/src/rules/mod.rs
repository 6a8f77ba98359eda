//! Rules that make a query cheaper and leave its rows as they are. One rule, one file.
//!
//! | rule             | what it does                                                                |
//! |------------------|-----------------------------------------------------------------------------|
//! | [`unnested`]     | a subquery that refers to rows outside becomes a side of a join with them   |
//! | [`push_filters`] | conditions go down to what they are about, and become keys of joins         |
//! | [`extremes`]     | of the rows of a key the least and the largest are enough for an inequality |
//! | [`common_parts`] | what would be computed several times of a row is computed once              |
//! | [`top_rows`]     | a sort below a limit keeps no more rows than are needed                     |

mod common_parts;
mod extremes;
mod push_filters;
mod top_rows;
mod unnest;

pub use common_parts::common_parts;
pub use extremes::extremes;
pub use push_filters::{equal_keys, push_filters};
pub use top_rows::top_rows;
pub use unnest::{outside_columns, unnested, unnested_groups};

use crate::relation::Relation;

/// All rules but that for subqueries, which binders apply, each once, in the order of the table. New columns are
/// numbered from `next` on.
pub fn optimized(relation: Relation, next: &mut u32) -> Relation {
    let relation = extremes(push_filters(relation), next);
    top_rows(common_parts(relation, next))
}
