"""Tests of `scripts/differential`: `python3 -m unittest discover scripts`. A wounded DuckDB stands in for ERIS."""
import dataclasses
import datetime
import decimal
import unittest

from differential_fuzz import rules
from differential_fuzz.case import QUERY, Step, case
from differential_fuzz.compare import Difference, Excused, compare
from differential_fuzz.rows import bound_of
from differential_fuzz.runner import Runner, script
from differential_fuzz.sides import Done, DuckDb, Refusal, Rows, copy_field, value_of
from differential_fuzz.tree import DATE, DOUBLE, INT4, TIMESTAMP, Items, Node, Type, words

# Of a few seconds, and enough that a wound shows.
SEEDS = range(1, 21)


class Wounded(DuckDb):
    """DuckDB, but NOT EXISTS is true of nothing."""

    def text(self, step):
        return super().text(step).replace("NOT EXISTS (", "false AND EXISTS (")


class Silent(DuckDb):
    """DuckDB, but an UPDATE forgets every row that it has changed."""

    def text(self, step):
        text = super().text(step)
        return f"DELETE FROM {text.split()[1]} WHERE{text.rpartition(' WHERE')[2]}" if (
            text.startswith("UPDATE ") and " WHERE" in text) else text


def first_finding(runner):
    return next(((made, finding) for made in map(case, SEEDS) if (finding := runner.run(made))), (None, None))


class Planted(unittest.TestCase):
    def test_a_wrong_answer_is_found_and_made_small(self):
        runner = Runner(Wounded(), DuckDb())
        made, finding = first_finding(runner)
        self.assertIsNotNone(finding)
        small, shown = runner.reduced(made, finding, seconds=20)
        self.assertEqual(shown.difference.kind, "rows")
        text = script(small)
        self.assertIn("NOT EXISTS", text)
        self.assertLess(len(small.steps), 8, text)
        self.assertLess(small.steps[-1].node.size(), made.steps[finding.at].node.size())
        self.assertLessEqual(sum(len(step.rows) for step in small.steps), 4, text)
        # Without the wound the script shows nothing.
        self.assertIsNone(Runner(DuckDb(), DuckDb()).run(small))

    def test_a_change_that_is_wrong_is_seen_in_the_table(self):
        _, finding = first_finding(Runner(Silent(), DuckDb()))
        self.assertIsNotNone(finding)

    def test_the_same_on_both_sides_is_no_difference(self):
        runner = Runner(DuckDb(), DuckDb())
        self.assertEqual([seed for seed in SEEDS if runner.run(case(seed))], [])
        self.assertGreater(runner.counts["queries"], 400)


class Cases(unittest.TestCase):
    def test_a_seed_is_a_case(self):
        texts = [script(case(seed)) for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_what_is_asked_for_occurs(self):
        text = "\n".join(script(case(seed)) for seed in range(60))
        for wanted in ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "NOT EXISTS", "NOT IN (SELECT", "WITH w",
                       "UNION ALL", "INTERSECT ALL", "EXCEPT ALL", "FILTER", "HAVING", "LIMIT", "LIKE", "BETWEEN",
                       "CASE", "count(DISTINCT", "INTERVAL", "extract(", "OVER (", "ROLLUP", "INSERT INTO", "UPDATE ",
                       "DELETE FROM", "COPY ", "USING (", " USING t", "ROLLBACK", "COMMIT", "CREATE INDEX",
                       "segment_rows", "DISTINCT FROM", " ANY (", " ALL (SELECT", ") IN (SELECT",
                       "IN ((SELECT"]:
            self.assertIn(wanted, text)

    def test_every_rule_is_documented(self):
        self.assertEqual(rules.undocumented(), [])


def asked(*types, order=()):
    items = Items(children=tuple(words("x", type=of, tolerance=0.5 if of == DOUBLE else None) for of in types),
                  role="outputs")
    return Step(QUERY, Node("SELECT {}", (items,)), order)


class Comparison(unittest.TestCase):
    def kind(self, step, eris, other):
        verdict = compare(step, eris, other)
        return verdict.kind if isinstance(verdict, Difference) else verdict and verdict.rule

    def test_rows_are_multisets(self):
        step = asked(INT4)
        self.assertIsNone(compare(step, Rows([(1,), (2,), (1,)]), Rows([(2,), (1,), (1,)])))
        self.assertEqual(self.kind(step, Rows([(1,), (2,), (2,)]), Rows([(2,), (1,), (1,)])), "rows")
        self.assertEqual(self.kind(step, Rows([(1,)]), Rows([])), "rows")
        self.assertEqual(self.kind(step, Rows([(None,)]), Rows([(0,)])), "rows")

    def test_ordered_columns_are_in_order(self):
        step = asked(INT4, INT4, order=(0,))
        self.assertIsNone(compare(step, Rows([(1, 1), (1, 2)]), Rows([(1, 2), (1, 1)])))
        self.assertEqual(self.kind(step, Rows([(1, 1), (2, 2)]), Rows([(2, 2), (1, 1)])), "order")

    def test_doubles_are_near(self):
        step = asked(INT4, DOUBLE)
        self.assertIsNone(compare(step, Rows([(1, 2.0), (1, 9.0)]), Rows([(1, 9.2), (1, 2.4)])))
        self.assertEqual(self.kind(step, Rows([(1, 2.0), (2, 9.0)]), Rows([(2, 2.0), (1, 9.0)])), "rows")
        self.assertEqual(self.kind(step, Rows([(1, None)]), Rows([(1, 0.0)])), "rows")

    def test_errors(self):
        safe, other = asked(INT4), Rows([(1,)])
        risky = dataclasses.replace(safe, node=dataclasses.replace(safe.node, raises=True))
        overflow = Refusal("22003", "out of range")
        self.assertIsNone(compare(safe, overflow, Refusal("OutOfRangeException", "")))
        self.assertEqual(self.kind(safe, overflow, other), "ERIS only: 22003")
        self.assertEqual(self.kind(risky, overflow, other), "order-of-evaluation")
        self.assertEqual(self.kind(safe, other, Refusal("BinderException", "")), "DuckDB only: BinderException")
        self.assertIsInstance(compare(safe, Refusal("0A000", "not supported"), other), Excused)
        # These are wrong whatever DuckDB says.
        for state in ("XX000", None):
            self.assertEqual(self.kind(safe, Refusal(state, ""), Refusal("BinderException", "")), f"ERIS: {state}")

    def test_counts(self):
        step = Step("change", words("UPDATE"))
        self.assertIsNone(compare(step, Done(3), Done(3)))
        self.assertEqual(self.kind(step, Done(3), Done(2)), "count")


class Values(unittest.TestCase):
    def test_texts_become_values(self):
        self.assertEqual(value_of("2020-01-02 03:04:05.5", TIMESTAMP), datetime.datetime(2020, 1, 2, 3, 4, 5, 500000))
        self.assertEqual(value_of("1.50", Type("numeric", 5, 2)), decimal.Decimal("1.5"))
        with self.assertRaises(ValueError):
            value_of("1.0", INT4)

    def test_copy_escapes(self):
        self.assertEqual([copy_field(value) for value in (None, True, "a\tb\\c\nd", 1.5)],
                         ["\\N", "t", "a\\tb\\\\c\\nd", "1.5"])

    def test_bounds(self):
        self.assertEqual(bound_of(INT4, [None, -5, 3]), (5, 3.0))
        self.assertEqual(bound_of(DATE, [datetime.date(1969, 12, 31)]), (1, 1))


if __name__ == "__main__":
    unittest.main()
