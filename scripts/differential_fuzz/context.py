"""What the generators of one case share, and what an expression can refer to."""
import dataclasses
import random

from differential_fuzz.tree import Node


@dataclasses.dataclass
class Scope:
    """Expressions that may stand in one place: columns, or keys and aggregates of a grouped query."""

    atoms: list
    # Columns of the query around it, of which a correlated subquery may use some.
    outer: list = dataclasses.field(default_factory=list)

    def of_kind(self, *kinds):
        return [atom for atom in self.atoms if atom.type.kind in kinds and atom.tolerance is None]

    def exact(self):
        return [atom for atom in self.atoms if atom.tolerance is None]


@dataclasses.dataclass
class Context:
    """`risky`: this statement may compute what does not fit into its type."""

    rng: random.Random
    tables: list
    risky: bool = False
    aliases: int = 0
    subqueries: int = 0

    def alias(self, prefix="a"):
        self.aliases += 1
        return f"{prefix}{self.aliases}"

    def chance(self, share):
        return self.rng.random() < share

    def pick(self, *choices):
        return self.rng.choice(choices)

    def begin(self):
        """A new statement."""
        self.aliases, self.subqueries = 0, 0
        self.risky = self.chance(0.05)

    def may_nest(self, depth):
        """Whether there is room for a subquery, of which a statement has a few at most."""
        if depth <= 0 or self.subqueries >= 4:
            return False
        self.subqueries += 1
        return True


def null_of(of):
    return Node(f"CAST(NULL AS {of.sql})", type=of)
