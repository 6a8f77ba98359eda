"""What stands in FROM: tables, subqueries, lists of values, and joins of them."""
import dataclasses

from differential_fuzz import expressions, numbers, predicates, queries
from differential_fuzz.context import Scope
from differential_fuzz.tree import Items, Node, words

# Rows of all relations multiplied, of which joins keep some.
PRODUCT_MAX = 20_000


@dataclasses.dataclass
class Relation:
    node: Node
    atoms: list
    rows: int
    # Whether it is a list: JOIN binds closer than its commas.
    is_list: bool = False


def of_table(context, table):
    alias = context.alias()
    return Relation(words(f"{table.name} {alias}"), [column.node(alias) for column in table.columns],
                    max(1, table.count))


def renamed(outputs, alias):
    """Columns of a subquery: of its types, with its values."""
    return [dataclasses.replace(output, template=f"{alias}.{name}", children=(), duckdb=None, role="column",
                                raises=False)
            for name, output in outputs]


def of_query(context, depth):
    made = queries.query(context, depth - 1)
    alias = context.alias("q")
    return Relation(Node(f"({{}}) {alias}", (made.node,)), renamed(made.outputs, alias), made.rows)


def of_values(context):
    """A list of values of one or two columns."""
    kinds = [context.pick("number", "text", "date") for _ in range(context.pick(1, 2))]
    alias, rows, atoms = context.alias("v"), context.rng.randint(1, 5), []
    columns = []
    for at, kind in enumerate(kinds):
        first = expressions.constant(context, [], kind)
        column = [first]
        for _ in range(rows - 1):
            item = expressions.constant(context, [], kind)
            column.append(item if item.type == first.type else first)
        columns.append(column)
        # DuckDB names no type for NULLs alone; the first decides.
        atoms.append(Node(f"{alias}.x{at}", type=first.type, bound=max(item.bound for item in column),
                          tiny=min(item.tiny for item in column), role="column"))
    lines = tuple(Node("(" + ", ".join("{}" for _ in kinds) + ")", tuple(line)) for line in zip(*columns))
    names = ", ".join(f"x{at}" for at in range(len(kinds)))
    return Relation(Node(f"(VALUES {{}}) {alias}({names})", (Items(children=lines),)), atoms, rows)


def of_shared(context, name, outputs, rows):
    alias = context.alias()
    return Relation(words(f"{name} {alias}"), renamed(outputs, alias), rows)


def relation(context, depth, shared=()):
    """Any; `shared` are those of WITH."""
    if shared and context.chance(0.6):
        return of_shared(context, *context.rng.choice(shared))
    if context.chance(0.15) and context.may_nest(depth):
        return of_query(context, depth)
    if context.chance(0.04):
        return of_values(context)
    return of_table(context, context.rng.choice(context.tables))


def equality(context, left, right):
    """A column of each side that may be equal, or None."""
    choices = [(one, two) for one in left for two in right if fit(one, two)]
    if not choices:
        return None
    same = [pair for pair in choices if pair[0].type == pair[1].type] or choices
    one, two = context.rng.choice(same if context.chance(0.8) else choices)
    if context.chance(0.5):
        one, two = two, one
    return dataclasses.replace(predicates.of("({} = {})", one, two), role="equality")


def fit(one, two):
    if one.tolerance is not None or two.tolerance is not None:
        return False
    if one.type.is_number and two.type.is_number:
        return numbers.same_type(one, two) is not None and numbers.unified(one.type, two.type).kind != "double"
    return one.type.kind == two.type.kind


def from_clause(context, depth, shared=()):
    """A chain of joins: its node, its columns and at most how many rows."""
    found = relation(context, depth, shared)
    count = context.pick(1, 1, 2, 2, 2, 3, 3, 4)
    for _ in range(count - 1):
        other = relation(context, depth, shared)
        if found.rows * other.rows > PRODUCT_MAX:
            continue
        found = joined(context, found, other, depth)
    return found


def joined(context, left, right, depth):
    rows, atoms = max(1, left.rows) * max(1, right.rows), left.atoms + right.atoms
    on = equality(context, left.atoms, right.atoms)
    kind = context.pick("JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", ",")
    if kind == "," or left.is_list:
        return Relation(Node("{}, {}", (left.node, right.node)), atoms, rows, is_list=True)
    if kind == "CROSS JOIN":
        return Relation(Node("{} CROSS JOIN {}", (left.node, right.node)), atoms, rows)
    if on is None or context.chance(0.05):
        if kind == "FULL JOIN":
            kind = "LEFT JOIN"
        # No subquery here: which of them PostgreSQL takes in outer joins is its own matter.
        on = predicates.predicate(context, Scope(atoms), 0)
    elif kind != "FULL JOIN" and context.chance(0.25):
        on = predicates.of("({} AND {})", on, predicates.predicate(context, Scope(atoms), 0))
    elif context.chance(0.1) and (second := equality(context, left.atoms, right.atoms)):
        on = predicates.of("({} AND {})", on, second)
    # Behind the first join a name may be that of several columns.
    first = left.node.role != "from" and not left.node.children and not right.node.children
    condition = using(on) if first and context.chance(0.3) else None
    condition = condition or Node("ON {}", (on,))
    return Relation(Node(f"{{}} {kind} {{}} {{}}", (left.node, right.node, condition), role="from"), atoms,
                    rows + left.rows + right.rows)


def using(on):
    """USING of an equality of two columns with one name, or None."""
    names = {node.template.rpartition(".")[2] for node in on.children}
    if on.role != "equality" or len(names) != 1 or any(not node.template.startswith("a") for node in on.children):
        return None
    return Node(f"USING ({names.pop()})")
