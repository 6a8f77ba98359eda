"""Where ERIS and DuckDB differ on purpose: each rule by its name, as docs/semantics.md has it."""
import re

from checklist import ROOT

PAGE = ROOT / "docs" / "semantics.md"
HEADING = "## Differences from DuckDB"

# How the generator or the comparison applies each.
RULES = {
    "null-order": "DuckDB is set to sort NULLs as PostgreSQL does",
    "integer-division": "DuckDB is set to divide integers as integers",
    "division-by-zero": "divisors are nullif(x, 0)",
    "width": "DuckDB's result is cast to the integer type that ERIS gives",
    "rows": "rows are compared field by field in DuckDB, to which they are values that are equal or not",
    "quotient": "quotients and averages of numerics are compared as doubles",
    "sum-of-doubles": "sums and averages of doubles are compared within what their order may change",
    "moved-dates": "a date and an interval are cast to date or timestamp",
    "order-of-evaluation": "22003, 22012 and 21000 on one side only, if the statement can raise it",
    "refused": "0A000 of ERIS is no answer; it is counted by its words",
    "cast-twins": "42712 and 42702 of ERIS for keys or aggregates that differ in a cast are no answer",
    "judged": "PostgreSQL, if it is asked (--judge), gives the answer of ERIS",
    "not-generated": "what is no common ground is not asked",
}


def undocumented():
    """Names of rules that the page does not have, and names on the page that are no rules."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    return sorted(set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) ^ set(RULES))
