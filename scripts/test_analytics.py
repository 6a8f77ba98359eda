"""Tests of what is concluded from a report of queries: `python3 -m unittest discover scripts`."""
import unittest

from analytics import after_all_of, freshness, native, point_reads_beside_stream, stream_beside_tatp
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


def mixed(p99_us=(100, 250), reads=1_000_000, share=0.8, done=1_000, stale=0):
    alone, beside = ({"count": reads, "p99_us_of_rounds": [us] * 3} for us in p99_us)
    return {"rounds": 3,
            "point_reads": {"alone": alone, "beside_stream": beside, "machine": alone, "reads_per_s": 1e5,
                            "capacity_per_s": 2e5, "p99_ratio": p99_us[1] / p99_us[0]},
            "stream": {"alone_ms": 800, "beside_tatp_ms_of_rounds": [1000] * 3, "share_beside_reads": share,
                       "share_beside_tatp": share},
            "tatp": {"asked_per_s": 1_000, "done_per_s": done, "capacity_per_s": 2_000},
            "freshness": {"age_p50_us": 90, "age_max_us": 900, "queries": 66, "stale": stale, "interval_p50_us": 110,
                          "interval_max_us": 500}}


class Mixed(unittest.TestCase):
    def test_reads_may_be_three_times_as_slow_or_a_millisecond(self):
        for p99_us, reached in (((100, 300), True), ((100, 999), True), ((400, 1200), True), ((100, 1001), False)):
            self.assertEqual(point_reads_beside_stream(mixed(p99_us), "").reached, reached, p99_us)
        with self.assertRaises(Failed):
            point_reads_beside_stream(mixed(reads=999_999), "")

    def test_the_stream_keeps_its_speed_beside_all_transactions_that_are_due(self):
        self.assertTrue(stream_beside_tatp(mixed(share=0.7), "").reached)
        self.assertFalse(stream_beside_tatp(mixed(share=0.69), "").reached)
        self.assertFalse(stream_beside_tatp(mixed(done=900), "").reached)

    def test_no_query_may_miss_what_was_committed(self):
        self.assertTrue(freshness(mixed(), "").reached)
        self.assertFalse(freshness(mixed(stale=1), "").reached)


class AfterAllOf(unittest.TestCase):
    def test_what_was_never_done_proves_nothing(self):
        found = Outcome("22 of 22", True, "eris bench tpch")
        self.assertTrue(after_all_of({"transactions": 1200}, found).reached)
        self.assertEqual(after_all_of({"transactions": 1200}, found).measured, "22 of 22; 1,200 transactions")
        self.assertFalse(after_all_of({"transactions": 1200, "merges": 0}, found).reached)
        self.assertFalse(after_all_of({"transactions": 1}, Outcome("21 of 22", False, "")).reached)


if __name__ == "__main__":
    unittest.main()
