//! The generic parts of DataFusion's SQL front that `eris-sql` needs, each instantiated once.
//!
//! DataFusion's binder is generic over who resolves names, its tree walks over their closures, and every instance is
//! compiled where it is used: most of the build time of `eris-sql` was theirs. Here they take trait objects, so that a
//! change in `eris-sql` finds them compiled. Nothing in here knows ERIS.

mod bind;
mod walk;

pub use bind::bind;
pub use walk::{
    Level, RewriteLevel, RewriteQuery, Text, fill_parameters, node_has, parameter_types, replace_parts,
    rewrite_expression, rewrite_level, rewrite_nodes, rewrite_plan, rewrite_plan_and_nodes, rewrite_query,
    visit_expressions, visit_nodes, visit_scans,
};
