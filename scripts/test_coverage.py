"""Tests of what `scripts/done` concludes from the ledger: `python3 -m unittest discover scripts`."""
import unittest

from coverage import executed_last, never_reached


def entry(commit, executions, kinds, never=()):
    return {"name": "simulation of the engine", "commit": commit, "executions": executions, "kinds": kinds,
            "never_reached": list(never)}


class Coverage(unittest.TestCase):
    def test_a_kind_is_reached_by_one_entry_that_knows_it(self):
        entries = [entry("a", 5000, ["split", "merge"], ["merge"]), entry("a", 5000, ["split", "merge"], ["split"])]
        self.assertEqual(never_reached(entries), set())
        self.assertEqual(never_reached(entries[:1]), {"merge"})

    def test_entries_from_before_a_kind_was_added_do_not_speak_for_it(self):
        before = entry("a", 45000, ["split"])
        after = entry("b", 5000, ["split", "merge"], ["merge"])
        self.assertEqual(never_reached([before, after]), {"merge"})
        after["never_reached"] = []
        self.assertEqual(never_reached([before, after]), set())

    def test_what_one_reached_before_does_not_count_for_the_new_set(self):
        before = entry("a", 45000, ["split", "move"])
        after = entry("b", 5000, ["split", "merge"], ["split"])
        self.assertEqual(never_reached([before, after]), {"split"})

    def test_a_kind_that_is_gone_is_not_missed(self):
        before = entry("a", 45000, ["split", "move"], ["move"])
        after = entry("b", 5000, ["split"])
        self.assertEqual(never_reached([before, after]), set())

    def test_numbers_of_kinds_prove_nothing(self):
        old = entry("a", 45000, 83)
        self.assertTrue(never_reached([old]))
        self.assertTrue(never_reached([entry("a", 1, ["split"]), old]))
        self.assertTrue(never_reached([{"name": "simulation of the engine", "commit": "a", "executions": 1}]))
        self.assertEqual(never_reached([old, entry("b", 5000, ["split"], ["split"])]), {"split"})

    def test_the_last_seeds_are_those_of_the_newest_commit(self):
        entries = [entry("b", 1000, ["split"]), entry("a", 45000, ["split"]), entry("b", 4000, ["split"])]
        self.assertEqual(executed_last(entries), 5000)
        self.assertEqual(executed_last(entries[:2]), 45000)


if __name__ == "__main__":
    unittest.main()
