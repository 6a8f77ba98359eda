"""A case that fails, in few and small statements that fail in the same way."""
import dataclasses
import time

from differential_fuzz.case import LOAD

ATTEMPTS_MAX = 3000


def reduce(case, fails, seconds):
    """`fails(case)` says whether a case still shows the difference. Takes at most so many seconds."""
    ends = time.monotonic() + seconds
    reducer = Reducer(fails, ends)
    while True:
        before = weight(case)
        case = reducer.nodes(reducer.rows(reducer.steps(case)))
        if weight(case) >= before or reducer.spent():
            return case


def weight(case):
    return sum((step.node.size() if step.node else 0) + len(step.rows) + 1 for step in case.steps)


class Reducer:
    def __init__(self, fails, ends):
        self.fails, self.ends, self.attempts = fails, ends, 0

    def spent(self):
        return self.attempts >= ATTEMPTS_MAX or time.monotonic() > self.ends

    def still(self, steps, case):
        self.attempts += 1
        return not self.spent() and self.fails(dataclasses.replace(case, steps=steps))

    def fewer(self, items, rebuild, case):
        """As few of the items as still fail; `rebuild` makes the steps of them."""
        size = max(1, len(items) // 2)
        while size and not self.spent():
            at = 0
            while at < len(items):
                left = (*items[:at], *items[at + size:])
                if self.still(rebuild(left), case):
                    items = left
                else:
                    at += size
            size //= 2
        return items

    def steps(self, case):
        """The last step is the one that fails."""
        last = case.steps[-1]
        items = self.fewer(case.steps[:-1], lambda left: (*left, last), case)
        return dataclasses.replace(case, steps=(*items, last))

    def rows(self, case):
        for at, step in enumerate(case.steps):
            if step.kind != LOAD:
                continue

            def rebuild(left, at=at, step=step, steps=case.steps):
                return (*steps[:at], dataclasses.replace(step, rows=left), *steps[at + 1:])
            left = self.fewer(step.rows, rebuild, case)
            case = dataclasses.replace(case, steps=rebuild(left))
        return case

    def nodes(self, case):
        """Smaller trees, the failing statement first."""
        for at in reversed(range(len(case.steps))):
            if case.steps[at].node is not None:
                case = self.node(case, at)
        return case

    def node(self, case, at):
        progress = True
        while progress and not self.spent():
            progress = False
            step = case.steps[at]
            for variant in step.node.smaller():
                order = step.order if any(node.role == "order" for node in variant.descendants()) else ()
                smaller = dataclasses.replace(step, node=variant, order=order)
                steps = (*case.steps[:at], smaller, *case.steps[at + 1:])
                if variant.size() < step.node.size() and self.still(steps, case):
                    case, progress = dataclasses.replace(case, steps=steps), True
                    break
                if self.spent():
                    break
        return case
