"""Tests of what is concluded from a report of queries: `python3 -m unittest discover scripts`."""
import unittest

from analytics import after_all_of, native
from checklist import Failed, Outcome


def report(changed=(), right=22, errors=()):
    results = [{"name": f"q{number}", "answer": "ok", "native": True} for number in range(1, 23)]
    for name, changes in changed:
        results[int(name[1:]) - 1].update(changes)
    peer = {"version": "2.0.0", "answers_right": right, "errors": {name: "interrupted" for name in errors}}
    return {"results": results, "peers": {"duckdb": peer}}


class Native(unittest.TestCase):
    def test_all_right_and_native(self):
        outcome = native(report(), "eris bench jcch")
        self.assertTrue(outcome.reached)
        self.assertEqual(outcome.measured, "22 of 22, 22 as duckdb 2.0.0")

    def test_whatever_is_not_right_or_not_native_or_unchecked_is_named(self):
        for changes in ({"native": False}, {"answer": "unchecked"}, {"answer": "differs from duckdb: other rows"}):
            outcome = native(report([("q7", changes)]), "eris bench jcch")
            self.assertFalse(outcome.reached)
            self.assertIn("21 of 22, not q7", outcome.measured)

    def test_a_peer_may_fail_but_not_say_something_else(self):
        self.assertFalse(native(report(right=21), "eris bench jcch").reached)
        self.assertTrue(native(report(right=21, errors=["q2"]), "eris bench jcch").reached)

    def test_missing_queries_fail(self):
        with self.assertRaises(Failed):
            native({"results": report()["results"][1:]}, "eris bench jcch")


class AfterAllOf(unittest.TestCase):
    def test_what_was_never_done_proves_nothing(self):
        found = Outcome("22 of 22", True, "eris bench tpch")
        self.assertTrue(after_all_of({"transactions": 1200}, found).reached)
        self.assertEqual(after_all_of({"transactions": 1200}, found).measured, "22 of 22; 1,200 transactions")
        self.assertFalse(after_all_of({"transactions": 1200, "merges": 0}, found).reached)
        self.assertFalse(after_all_of({"transactions": 1}, Outcome("21 of 22", False, "")).reached)


if __name__ == "__main__":
    unittest.main()
