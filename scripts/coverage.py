"""What long runs prove, from their entries in the ledger, oldest first, and of which code."""


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


def failed_last(entries):
    """How many failures there were on the commit of the newest entry: what earlier ones found is mended since."""
    return sum(entry["failures"] for entry in entries if entry["commit"] == entries[-1]["commit"])


def killed(entry):
    """How many of an entry's cycles ended with SIGKILL. Earlier entries did not note it: every fifth ended politely."""
    return entry.get("kills", entry["executions"] * 4 // 5)


def code_paths(crates, tested):
    """What a run of these crates depends on, as git names it: tests only of those whose tests are what ran."""
    folders = [f"crates/{name}" for name in crates]
    without = [f":(exclude){folder}/tests" for name, folder in zip(crates, folders) if name not in tested]
    return [*folders, *without]
