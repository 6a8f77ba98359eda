"""What clients sent and what was answered, and whether a restarted server agrees.

An attempt is one try of a transaction:

    open ── COMMIT goes out ──> sent ── answer ──> acknowledged
      │                          │
      └────────── error ─────────┴──────────────> refused

After a crash an attempt that is `sent` may be there or not, an acknowledged one of a synchronous client must be there,
an open or refused one must not. What an asynchronous client was told may be lost, but the log has an order: whatever
was acknowledged before another COMMIT went out stands in front of that one, and is there if that one is. For the
commits of one client it means that only the last ones are lost.
"""
import collections
import dataclasses

OPEN, SENT, ACKNOWLEDGED, REFUSED = "open", "sent", "acknowledged", "refused"


@dataclasses.dataclass(slots=True)
class Attempt:
    """One try; `txn` is given once, `seq` rises by one with each transaction of the client."""
    txn: int
    client: int
    seq: int
    a: int
    b: int
    amount: int
    state: str = OPEN
    sent_at: float = 0.0
    acknowledged_at: float = 0.0

    def row(self):
        """Its row of the journal."""
        return self.txn, self.client, self.seq, self.a, self.b, self.amount


class ClientLedger:
    """What one client did: in `survived` what was there after the last restart, in `recent` the attempts since.

    `retries` counts by SQLSTATE how often the server had it try again, in all lives.
    """

    def __init__(self, client, synchronous, serializable=False):
        self.client, self.synchronous, self.serializable = client, synchronous, serializable
        self.survived, self.recent = [], []
        self.retries = collections.Counter()

    def next_seq(self):
        return len(self.survived) + sum(attempt.state == ACKNOWLEDGED for attempt in self.recent)


@dataclasses.dataclass
class Verdict:
    """Numbers by kind of violation, and the first few in words."""
    checked: int = 0
    lost: int = 0
    phantom: int = 0
    half: int = 0
    # Not wrong: asynchronous commits that were acknowledged and are gone.
    lost_asynchronous: int = 0
    words: list = dataclasses.field(default_factory=list)

    def report(self, kind, text):
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.words) < 20:
            self.words.append(f"{kind}: {text}")

    def violations(self):
        return self.lost + self.phantom + self.half


def judge(ledgers, journal, balances, start, durable_before=0.0, clean=False):
    """Compares ledgers with the rows of the journal and the balances of accounts, by id, which were `start` each.

    `durable_before`: a checkpoint has what was acknowledged before this moment. `clean`: the server was stopped and not
    killed, so that all that was acknowledged is there. Afterwards the ledgers go on from what survived.
    """
    verdict = Verdict(checked=len(journal))
    _judge_rows(verdict, ledgers, journal)
    present = {row[0] for row in journal}
    newest = max((attempt.sent_at for ledger in ledgers for attempt in ledger.recent if attempt.txn in present),
                 default=0.0)
    for ledger in ledgers:
        for attempt in ledger.survived:
            if attempt.txn not in present:
                verdict.report("lost", f"{attempt} was there after an earlier restart")
        for attempt in ledger.recent:
            if attempt.state != ACKNOWLEDGED or attempt.txn in present:
                continue
            if ledger.synchronous or clean or attempt.acknowledged_at <= durable_before:
                why = "synchronous" if ledger.synchronous else "clean stop" if clean else "before a checkpoint"
                verdict.report("lost", f"{attempt} ({why})")
            elif attempt.acknowledged_at < newest:
                verdict.report("lost", f"{attempt} in the middle: a commit sent after it was acknowledged is there")
            else:
                verdict.lost_asynchronous += 1
        _judge_order(verdict, ledger, journal)
    _judge_balances(verdict, journal, balances, start)
    for ledger in ledgers:
        attempts = [*ledger.survived, *ledger.recent]
        ledger.survived = sorted((one for one in attempts if one.txn in present), key=lambda one: one.seq)
        ledger.recent = []
    return verdict


def _judge_rows(verdict, ledgers, journal):
    """Each row is an attempt whose COMMIT was sent, and only once."""
    possible = {attempt.txn: attempt for ledger in ledgers for attempt in ledger.survived}
    possible |= {attempt.txn: attempt for ledger in ledgers for attempt in ledger.recent}
    seen = set()
    for row in journal:
        attempt = possible.get(row[0])
        if row[0] in seen:
            verdict.report("phantom", f"{row} is there twice")
        elif attempt is None or attempt.state in (OPEN, REFUSED):
            verdict.report("phantom", f"{row} was never committed: {attempt}")
        elif row != attempt.row():
            verdict.report("phantom", f"{row} is not what was sent: {attempt}")
        seen.add(row[0])


def _judge_order(verdict, ledger, journal):
    """The journal has the client's transactions from the first on, without a gap."""
    for expected, seq in enumerate(sorted(row[2] for row in journal if row[1] == ledger.client)):
        if seq != expected:
            verdict.report("lost", f"client {ledger.client}: seq {expected} is missing in front of {seq}")
            break


def _judge_balances(verdict, journal, balances, start):
    """Each account has what the journal says, and nothing came or went."""
    expected = {account: start for account in balances}
    for _, _, _, a, b, amount in journal:
        for account, change in ((a, -amount), (b, amount)):
            expected[account] = expected.get(account, start) + change
    for account in sorted(expected):
        if balances.get(account) != expected[account]:
            verdict.report("half", f"account {account} has {balances.get(account)}, the journal says "
                                   f"{expected[account]}")
    if sum(balances.values()) != start * len(expected):
        verdict.report("half", f"the sum is {sum(balances.values())}, it was {start * len(expected)}")
