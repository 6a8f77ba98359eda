"""Tests of what `scripts/kill_cycles` concludes from ledgers: `python3 -m unittest discover scripts`."""
import itertools
import random
import types
import unittest

from crash import clients
from crash.cycles import check_retries, kind_of
from crash.emptied import EmptiedLedger, Step
from crash.ledger import ACKNOWLEDGED, OPEN, REFUSED, SENT, Attempt, ClientLedger, Verdict, judge
from crash.server import Violated
from crash.tables import Table, TablesLedger, note
from wire import ServerError

START = 100


def attempt(txn, seq, state=ACKNOWLEDGED, client=0):
    """One whose COMMIT went out at `txn` and was answered half a second later."""
    return Attempt(txn, client, seq, a=0, b=1, amount=txn, state=state, sent_at=float(txn), acknowledged_at=txn + 0.5)


def ledger(*attempts, synchronous=True, client=0):
    made = ClientLedger(client, synchronous)
    made.recent = list(attempts)
    return made


def judged(ledgers, rows, **conditions):
    """The verdict on a journal with these attempts, with the balances that it says."""
    moved = sum(row.amount for row in rows)
    return judge(ledgers, [row.row() for row in rows], {0: START - moved, 1: START + moved}, START, **conditions)


class Transfers(unittest.TestCase):
    def expect(self, verdict, **counts):
        found = {name: getattr(verdict, name) for name in ("lost", "phantom", "half", "lost_asynchronous")}
        self.assertEqual(found, {name: counts.get(name, 0) for name in found}, verdict.words)

    def test_what_was_acknowledged_is_there(self):
        one, two = attempt(1, 0), attempt(2, 1)
        self.expect(judged([ledger(one, two)], [one, two]))
        self.expect(judged([ledger(one, two)], [one]), lost=1)

    def test_what_was_sent_may_be_there(self):
        one, two = attempt(1, 0), attempt(2, 1, SENT)
        self.expect(judged([ledger(one, two)], [one, two]))
        self.expect(judged([ledger(one, two)], [one]))

    def test_what_was_not_committed_is_not_there(self):
        for state in (OPEN, REFUSED):
            one = attempt(1, 0, state)
            self.expect(judged([ledger(one)], [one]), phantom=1)
            self.expect(judged([ledger(one)], []))
        self.expect(judged([ledger()], [attempt(7, 0)]), phantom=1)

    def test_a_row_is_what_was_sent_and_once(self):
        one = attempt(1, 0)
        other = Attempt(1, 0, 0, a=0, b=1, amount=2)
        self.expect(judged([ledger(one)], [other]), phantom=1)
        # Twice the same number in the order of the client, too.
        self.expect(judged([ledger(one)], [one, one]), phantom=1, lost=1)

    def test_asynchronous_commits_are_lost_from_the_end_only(self):
        attempts = [attempt(1, 0), attempt(2, 1), attempt(3, 2)]
        self.expect(judged([ledger(*attempts, synchronous=False)], attempts[:1]), lost_asynchronous=2)
        in_the_middle = judged([ledger(*attempts, synchronous=False)], [attempts[0], attempts[2]])
        # One by the times, one by the gap.
        self.expect(in_the_middle, lost=2)

    def test_the_order_holds_between_clients(self):
        early, late = attempt(1, 0), attempt(2, 0, client=1)
        ledgers = [ledger(early, synchronous=False), ledger(late, client=1)]
        self.expect(judged(ledgers, [late]), lost=1)
        # A commit that was under way beside the other one has no order with it.
        early, late = attempt(1, 0), attempt(2, 0, client=1)
        early.acknowledged_at = 2.5
        self.expect(judged([ledger(early, synchronous=False), ledger(late, client=1)], [late]), lost_asynchronous=1)

    def test_a_clean_stop_and_a_checkpoint_lose_nothing(self):
        for conditions in ({"clean": True}, {"durable_before": 2.0}):
            self.expect(judged([ledger(attempt(1, 0), synchronous=False)], [], **conditions), lost=1)
        one = ledger(attempt(2, 0), synchronous=False)
        self.expect(judged([one], [], durable_before=2.0), lost_asynchronous=1)

    def test_half_a_transaction(self):
        one = attempt(1, 0)
        row = [one.row()]
        self.expect(judge([ledger(one)], row, {0: START - 1, 1: START + 1}, START))
        # The account and the sum.
        self.expect(judge([ledger(one)], row, {0: START - 1, 1: START}, START), half=2)
        self.expect(judge([ledger(one)], row, {0: START, 1: START}, START), half=2)

    def test_the_next_cycle_goes_on_from_what_is_there(self):
        attempts = [attempt(1, 0), attempt(2, 1), attempt(3, 2, SENT)]
        clients = ledger(*attempts, synchronous=False)
        self.expect(judged([clients], attempts[:1]), lost_asynchronous=1)
        self.assertEqual((clients.next_seq(), clients.recent), (1, []))
        # What was lost once does not come back, and what survived once is not lost.
        self.expect(judged([clients], attempts[:2]), phantom=1)
        self.expect(judged([clients], []), lost=1)


class Busy:
    """A connection to a server that refuses the first transactions, at the statement of this word."""

    def __init__(self, word, *states):
        self.word, self.states, self.asked = word, list(states), []

    def query(self, statement):
        self.asked.append(statement)
        if self.word in statement and self.states:
            raise ServerError(f"{self.states.pop(0)}: try again")


class Retries(unittest.TestCase):
    def transfer(self, made, connection):
        """Runs a client up to its first acknowledged transfer."""
        def count():
            raise StopIteration
        work = clients.Transfers(made, 64, itertools.count(1), random.Random(1))
        with self.assertRaises(StopIteration):
            work(types.SimpleNamespace(count=count), connection)

    def test_a_refused_transfer_is_tried_again_until_it_is_committed(self):
        for word in ("UPDATE", "COMMIT"):
            made = ClientLedger(0, True, serializable=True)
            connection = Busy(word, "40001", "40P01", "40001")
            self.transfer(made, connection)
            self.assertEqual([attempt.state for attempt in made.recent], [REFUSED] * 3 + [ACKNOWLEDGED])
            self.assertEqual([attempt.seq for attempt in made.recent], [0] * 4)
            self.assertEqual(made.retries, {"40001": 2, "40P01": 1})
            self.assertEqual(connection.asked.count("ROLLBACK"), 3)

    def test_other_errors_are_not_retried(self):
        made = ClientLedger(0, True)
        with self.assertRaises(ServerError):
            clients.Transfers(made, 64, itertools.count(1), random.Random(1))(None, Busy("UPDATE", "22003"))
        self.assertEqual(made.retries, {})

    def test_some_clients_are_serializable(self):
        for serializable in (False, True):
            connection = Busy("nothing")
            self.transfer(ClientLedger(0, True, serializable), connection)
            self.assertEqual(any("SERIALIZABLE" in text for text in connection.asked), serializable, connection.asked)

    def test_a_run_without_retries_proves_nothing(self):
        ledgers = [ClientLedger(client, True, client >= 2) for client in range(4)]
        ledgers[0].retries["40001"] += 1
        ledgers[2].retries["40P01"] += 1
        check_retries(ledgers, 499)
        with self.assertRaises(Violated):
            check_retries(ledgers, 500)
        check_retries(ledgers[:3], 500)
        ledgers[3].retries["40001"] += 1
        check_retries(ledgers, 500)


class Kinds(unittest.TestCase):
    def test_every_fifth_cycle_ends_politely(self):
        self.assertEqual([kind_of(seed) for seed in range(1000, 1450)].count("clean"), 90)


class Tables(unittest.TestCase):
    def setUp(self):
        self.ledger = TablesLedger()
        self.ledger.tables["t_1"] = Table((5, 6))

    def expect(self, found, **counts):
        verdict = Verdict()
        self.ledger.judge(verdict, {"journal": Table(), **found})
        self.assertEqual({name: getattr(verdict, name) for name in ("lost", "phantom", "half")},
                         {"lost": 0, "phantom": 0, "half": 0, **counts}, verdict.words)

    def test_tables_are_as_acknowledged(self):
        self.expect({"t_1": Table((5, 6))})
        self.expect({}, lost=1)
        self.expect({"t_1": Table((5,))}, half=1)
        self.expect({"t_1": Table((5, 6), indexed=True)}, half=1)
        self.expect({"t_1": Table((5, 6)), "t_2": Table()}, phantom=1)

    def test_a_change_under_way_is_made_or_not(self):
        for change in (None, Table((5, 6, 7)), Table((5, 6), indexed=True)):
            for here in (Table((5, 6)), change):
                self.setUp()
                self.ledger.pending = "t_1", change
                found = {"t_1": here} if here else {}
                self.expect(found)
                # From now on it is settled.
                self.expect(found)
        self.setUp()
        self.ledger.pending = "t_2", Table((1, 2), indexed=True)
        self.expect({"t_1": Table((5, 6)), "t_2": Table((1,), indexed=True)}, half=1)

    def test_a_refused_change_is_not_made(self):
        self.ledger.pending = "t_1", None
        self.ledger.refuse()
        self.expect({}, lost=1)

    def test_plans_fit_what_there_is(self):
        rng = random.Random(1)
        kinds = set()
        for _ in range(500):
            statements = self.ledger.plan(rng)
            kinds.add(" ".join(statements[0].split()[:2]) if len(statements) == 1 else "whole")
            self.ledger.acknowledge()
            self.assertLessEqual(len(self.ledger.tables), 7)
        self.assertEqual(kinds, {"CREATE TABLE", "DROP TABLE", "CREATE INDEX", "DROP INDEX", "whole", "TRUNCATE TABLE"}
                         | {"INSERT INTO"})
        self.assertNotEqual(note(1), note(2))


class Emptied(unittest.TestCase):
    """Moments count from 1; the change lies between 10 and 20."""

    def expect(self, inserts, change, emptied, kept, **counts):
        ledger, verdict = EmptiedLedger(), Verdict()
        ledger.inserts, ledger.changes = dict(enumerate(inserts)), [change]
        ledger.judge(verdict, emptied, kept)
        self.assertEqual({name: getattr(verdict, name) for name in ("lost", "phantom", "half")},
                         {"lost": 0, "phantom": 0, "half": 0, **counts}, verdict.words)
        return ledger

    def test_numbers_around_a_change_that_was_made(self):
        change = Step(10.0, ACKNOWLEDGED, 20.0)
        before, beside, after = (Step(at, ACKNOWLEDGED, at + 3) for at in (1.0, 12.0, 21.0))
        self.expect([before, beside, after], change, {1, 2}, {0, 1, 2})
        self.expect([before, beside, after], change, {2}, {0, 1, 2})
        self.expect([before, beside, after], change, {0, 2}, {0, 1, 2}, phantom=1)
        self.expect([before, beside, after], change, {1}, {0, 1, 2}, lost=1)
        self.expect([before, beside, after], change, {2}, {1, 2}, lost=1)

    def test_numbers_around_a_change_that_was_not_acknowledged(self):
        before = Step(1.0, ACKNOWLEDGED, 4.0)
        for emptied in ({0}, set()):
            self.expect([before], Step(10.0, SENT), emptied, {0})
        for state in (OPEN, REFUSED):
            self.expect([before], Step(10.0, state), {0}, {0})
            self.expect([Step(11.0, ACKNOWLEDGED, 12.0)], Step(10.0, state), set(), {0}, lost=1)

    def test_numbers_that_were_not_acknowledged(self):
        change = Step(1.0, ACKNOWLEDGED, 2.0)
        self.expect([Step(3.0, SENT)], change, {0}, {0})
        self.expect([Step(3.0, SENT)], change, set(), set())
        self.expect([Step(3.0, SENT)], change, set(), {0}, lost=1)
        self.expect([Step(3.0, SENT)], change, {0}, set(), half=1)
        for state in (OPEN, REFUSED):
            self.expect([Step(3.0, state)], change, {0}, {0}, phantom=1)
        self.expect([], change, {7}, {7}, phantom=1)

    def test_the_next_check_goes_on_from_what_was_found(self):
        ledger = self.expect([Step(3.0, SENT), Step(3.0, SENT)], Step(1.0, SENT), {0}, {0, 1})
        for emptied, kept, lost in (({0}, {0, 1}, 0), (set(), {0, 1}, 1), (set(), {0}, 1), (set(), {0, 1}, 0)):
            verdict = Verdict()
            ledger.judge(verdict, emptied, kept)
            self.assertEqual(verdict.lost, lost, verdict.words)
            ledger.kept = {0, 1}


class Errors(unittest.TestCase):
    def test_an_answer_has_a_state_and_an_end_has_none(self):
        self.assertEqual(ServerError("40001: could not serialize access").sqlstate, "40001")
        self.assertIsNone(ServerError("the server closed the connection").sqlstate)


if __name__ == "__main__":
    unittest.main()
