"""Tests of what `scripts/figures --only` keeps: `python3 -m unittest discover scripts`."""
import unittest

from checklist import merged


class Merged(unittest.TestCase):
    def test_lines_measured_again_replace_what_was_kept_in_the_order_of_the_list(self):
        kept = [{"line": "scan", "commit": "a"}, {"line": "gone", "commit": "a"}, {"line": "lookup", "commit": "a"}]
        rows = [{"line": "lookup", "commit": "b"}, {"line": "insert", "commit": "b"}]
        found = merged(kept, rows, ["insert", "scan", "lookup", "never measured"])
        self.assertEqual([(row["line"], row["commit"]) for row in found],
                         [("insert", "b"), ("scan", "a"), ("lookup", "b")])


if __name__ == "__main__":
    unittest.main()
