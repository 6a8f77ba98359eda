//! LIKE and ILIKE, by the names that PostgreSQL has for them as operators.

use super::{Kernel, Signature};
use crate::types::TypeKind::{self, Boolean, Char, Text};

static TEXTS: [[TypeKind; 2]; 2] = [[Text, Text], [Char, Text]];

const fn pattern(name: &'static str, negated: bool, case_insensitive: bool) -> [Signature; 2] {
    let kernel = Kernel::Like { negated, case_insensitive };
    let signature = Signature { name, arguments: &TEXTS[0], result: Boolean, kernel };
    [signature, Signature { arguments: &TEXTS[1], ..signature }]
}

pub(super) static LIKE: [Signature; 2] = pattern("~~", false, false);
pub(super) static NOT_LIKE: [Signature; 2] = pattern("!~~", true, false);
pub(super) static ILIKE: [Signature; 2] = pattern("~~*", false, true);
pub(super) static NOT_ILIKE: [Signature; 2] = pattern("!~~*", true, true);
