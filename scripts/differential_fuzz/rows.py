"""Values of columns: few and many distinct ones, skewed, constant, ordered, extreme, missing."""
import datetime
import decimal

WORDS = ["", "a", "A", "ab", "abc", "Abc", "b", "ba", "100%", "under_score", "it's", "two words", " lead", "trail ",
         "zebra", "Äpfel", "ärger", "éclair", "日本", "日本語", "λόγος", "😀", "a😀b", "back\\slash", "tab\there",
         "line\nfeed", "\"quoted\"", "x" * 40, "NULL", "null", "0", "10", "9", "-1", "1.5", "2020-01-01"]
PREFIXES = ["customer#", "https://example.org/", "Ünï-", "aaaaaaaaaaaaaaaa"]
EPOCH = datetime.date(1970, 1, 1)
MIDNIGHT = datetime.datetime(1970, 1, 1)


def integers(rng, bound):
    """A source of integers with at most this absolute value."""
    few = [rng.randint(-bound, bound) for _ in range(rng.randint(1, 6))]
    small = min(bound, rng.choice([3, 10, 100, 1000, 30000]))
    start = rng.randint(0, max(0, bound - 10 ** 6))
    step = rng.randint(1, 5) if bound > 10 ** 8 else 1
    shape = rng.choice(["constant", "few", "small", "small", "natural", "skewed", "wide", "extreme", "rising"])
    return {
        "constant": lambda at: few[0],
        "few": lambda at: rng.choice(few),
        "small": lambda at: rng.randint(-small, small),
        "natural": lambda at: rng.randint(0, small),
        "skewed": lambda at: min(bound, int(rng.paretovariate(1)) - 1),
        "wide": lambda at: rng.randint(-bound, bound),
        "extreme": lambda at: rng.choice([bound, -bound, 0, 1, -1, rng.randint(-small, small)]),
        "rising": lambda at: min(bound, start + at * step + rng.randint(0, 1)),
    }[shape]


def doubles(rng):
    """Mostly quarters, which can be added up in any order; never NaN or infinite."""
    few = [rng.randint(-100, 100) / 4 for _ in range(rng.randint(1, 5))]
    return rng.choice([
        lambda at: rng.choice(few),
        lambda at: rng.randint(-4000, 4000) / 4,
        lambda at: rng.uniform(-1000, 1000),
        lambda at: rng.choice([0.0, 1.0, -1.0, 0.1, 1e10, -1e10, 1e-5, 123456.789, 1e15, 3.5, 2.5]),
    ])


def texts(rng):
    few = rng.sample(WORDS, rng.randint(1, 6))
    prefix, alphabet = rng.choice(PREFIXES), rng.choice(["ab", "abcdefghij", "aäb日 _%"])
    return rng.choice([
        lambda at: rng.choice(few),
        lambda at: rng.choice(WORDS),
        lambda at: f"{prefix}{rng.randint(0, 50)}",
        lambda at: f"{prefix}{at:05}",
        lambda at: "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 6))),
        lambda at: "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 60))),
    ])


def days(rng):
    """Days since 1970: of our time, of a few months, or from the year 1 to 9999."""
    first = rng.randint(-20000, 20000)
    few = [rng.randint(-30000, 40000) for _ in range(rng.randint(1, 4))]
    return rng.choice([
        lambda at: rng.choice(few),
        lambda at: first + rng.randint(0, 90),
        lambda at: rng.randint(-25567, 47482),
        lambda at: rng.choice([-719162, 2932896, 0, -1, first]),
        lambda at: first + at // 3,
    ])


def moments(rng):
    day = days(rng)
    seconds = rng.choice([lambda: 0, lambda: rng.randint(0, 23) * 3600, lambda: rng.randint(0, 86399)])
    micros = rng.choice([lambda: 0, lambda: 0, lambda: rng.choice([0, 1, 500000, 999999]),
                         lambda: rng.randint(0, 999999)])
    return lambda at: MIDNIGHT + datetime.timedelta(days=day(at), seconds=seconds(), microseconds=micros())


def source(rng, of):
    """A function from a row's number to a value of this type."""
    if of.kind == "numeric":
        number = integers(rng, 10 ** of.precision - 1)
        return lambda at: decimal.Decimal(number(at)).scaleb(-of.scale)
    if of.is_number and of.kind != "double":
        return integers(rng, int(of.largest))
    if of.kind == "date":
        day = days(rng)
        return lambda at: EPOCH + datetime.timedelta(days=day(at))
    return {"double": doubles, "text": texts, "timestamp": moments,
            "boolean": lambda rng: lambda at, share=rng.random(): rng.random() < share}[of.kind](rng)


def with_nulls(rng, values):
    """The same source with no, some, many or only NULLs."""
    share = rng.choice([0, 0, 0.05, 0.2, 0.6, 1 if rng.random() < 0.2 else 0.1])
    return lambda at: None if rng.random() < share else values(at)


def bound_of(of, values):
    """What `Node` calls bound and tiny, of these values."""
    there = [value for value in values if value is not None]
    if of.kind == "date":
        return max((abs((value - EPOCH).days) for value in there), default=0), 1
    if of.kind == "timestamp":
        return max((abs((value - MIDNIGHT).days) + 1 for value in there), default=0), 1
    if of.kind == "text":
        return max(map(len, there), default=0), 1
    if of.kind == "boolean":
        return 1, 1
    sizes = [abs(value) for value in there]
    return max(sizes, default=0), float(min((size for size in sizes if size), default=1))
