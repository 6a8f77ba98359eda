"""What long runs of the simulator reached, from their entries in the ledger, oldest first."""


def known(entry):
    """The kinds of events that an entry knows; earlier entries noted their number only."""
    kinds = entry.get("kinds")
    return set(kinds) if isinstance(kinds, list) else set()


def never_reached(entries):
    """Kinds of events that no long run reached, of those that the newest entry knows.

    An entry counts if it knows them all: one from before a kind was added cannot say that it was reached, and its
    silence is no proof. Entries from before kinds were noted by name (a number instead of a list) count for nothing.
    """
    newest = known(entries[-1])
    if not newest:
        return {"all, since the newest entry has no list of kinds"}
    return set.intersection(*(set(entry["never_reached"]) for entry in entries if known(entry) >= newest)) & newest


def executed_last(entries):
    """How many seeds ran on the commit of the newest entry."""
    return sum(entry["executions"] for entry in entries if entry["commit"] == entries[-1]["commit"])
