"""Tests of what `scripts/done` concludes from the ledger: `python3 -m unittest discover scripts`."""
import pathlib
import subprocess
import tempfile
import unittest

from coverage import code_paths, executed_last, failed_last, killed, never_reached


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

    def test_failures_of_earlier_code_are_mended(self):
        entries = [{"commit": "a", "failures": 3}, {"commit": "b", "failures": 1}, {"commit": "b", "failures": 0}]
        self.assertEqual(failed_last(entries), 1)
        self.assertEqual(failed_last([*entries, {"commit": "c", "failures": 0}]), 0)

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


class Kills(unittest.TestCase):
    def test_cycles_that_ended_politely_are_no_kills(self):
        self.assertEqual(killed({"executions": 60, "kills": 48}), 48)
        self.assertEqual(killed({"executions": 60, "kills": 0}), 0)

    def test_an_entry_that_does_not_say_counts_four_of_five_rounded_down(self):
        self.assertEqual([killed({"executions": number}) for number in (450, 60, 4, 1)], [360, 48, 3, 0])


class Code(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.git("init", "--quiet")
        for name in ("engine", "durability", "sql"):
            for folder in ("src", "tests"):
                self.write(name, folder, "before")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--message", "all")

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def write(self, name, folder, text):
        path = self.root / "crates" / name / folder / "it.rs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def changed(self, *tested):
        return bool(self.git("diff", "HEAD", "--", *code_paths(["engine", "durability"], tested)))

    def test_a_source_below_counts_and_one_above_does_not(self):
        self.write("sql", "src", "after")
        self.assertFalse(self.changed("durability"))
        self.write("engine", "src", "after")
        self.assertTrue(self.changed("durability"))

    def test_tests_count_only_of_the_crate_that_runs(self):
        self.write("engine", "tests", "after")
        self.assertFalse(self.changed("durability"))
        self.assertFalse(self.changed())
        self.assertTrue(self.changed("engine"))
        self.write("durability", "tests", "after")
        self.assertTrue(self.changed("durability"))
        self.assertFalse(self.changed())


if __name__ == "__main__":
    unittest.main()
