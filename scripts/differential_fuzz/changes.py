"""INSERT, UPDATE and DELETE with random values and conditions. They teach the tables what their columns hold."""
from differential_fuzz import expressions, numbers, predicates
from differential_fuzz.context import Scope
from differential_fuzz.tree import NUMBERS, Items, Node, words


def change(context):
    """One statement."""
    context.begin()
    table = context.rng.choice(context.tables)
    return context.pick(insert, insert, update, update, update, delete, insert_query, joined)(context, table)


def scope_of(table):
    """Columns of a table that is named without an alias."""
    return Scope([column.node(table.name) for column in table.columns])


def insert(context, table):
    rows = [table.row() for _ in range(context.pick(1, 1, 3, 20))]
    if table.key and table.rows and context.chance(0.1):
        rows.append(context.rng.choice(table.rows))
    table.learn(rows)
    lines = Items(children=tuple(table.values(row) for row in rows))
    return Node(f"INSERT INTO {table.name} VALUES {{}}", (lines,))


def assignable(column, value):
    """Whether every value of the expression fits into the column."""
    of = column.type
    if value.tolerance is not None or (of.kind != value.type.kind and not (of.is_number and value.type.is_number)):
        return False
    if value.type.kind == "double" and of.kind != "double":
        return False  # what a double rounds to in a numeric is no common ground
    if of.is_number:
        return value.bound + 1 <= of.largest
    return of.kind != "text" or value.bound <= 200


def value_for(context, scope, column):
    """An expression for a column, or None."""
    kind = "number" if column.type.kind in NUMBERS else column.type.kind
    for _ in range(3):
        value = expressions.expression(context, scope, kind, 1)
        if assignable(column, value):
            return numbers.to_double(value) if column.type.kind == "double" != value.type.kind else value
    return None


def limited(context, table, scope, depth):
    """A condition that, as a rule, some rows meet and others do not."""
    condition = predicates.predicate(context, scope, depth)
    return Node(" WHERE {}", (condition,), droppable=True)


def update(context, table):
    scope = scope_of(table)
    free = [column for column in table.columns if column.name not in table.key]
    chosen = context.rng.sample(free, context.rng.randint(1, min(3, len(free))))
    settings = []
    for column in chosen:
        value = value_for(context, scope, column)
        if value is not None and value.tolerance is None:
            settings.append((column, value))
    if not settings:
        return delete(context, table)
    where = limited(context, table, scope, context.pick(0, 1, 1))
    for column, value in settings:
        table.widen(column, value.bound + 1 if column.type.kind == "numeric" else value.bound, value.tiny)
    items = Items(children=tuple(Node(f"{column.name} = {{}}", (value,)) for column, value in settings))
    return Node(f"UPDATE {table.name} SET {{}}{{}}", (items, where))


def delete(context, table):
    condition = predicates.predicate(context, scope_of(table), context.pick(0, 1, 1))
    rare = predicates.predicate(context, scope_of(table), 0)
    return Node(f"DELETE FROM {table.name} WHERE {{}} AND {{}}", (condition, rare))


def insert_query(context, table):
    """Rows of another table, where no key can be met."""
    if table.key:
        return insert(context, table)
    other = context.rng.choice(context.tables)
    if table.count + other.count > 6000:
        return delete(context, table)
    scope = scope_of(other)
    values = [value_for(context, scope, column) for column in table.columns]
    if any(value is None for value in values):
        return insert(context, table)
    for column, value in zip(table.columns, values):
        table.widen(column, value.bound + 1 if column.type.kind == "numeric" else value.bound, value.tiny)
    table.count += other.count
    where = limited(context, other, scope, 0) if context.chance(0.7) else words("")
    return Node(f"INSERT INTO {table.name} SELECT {{}} FROM {other.name}{{}}", (Items(children=tuple(values)), where))


def joined(context, table):
    """UPDATE ... FROM and DELETE ... USING a table whose key is met once at most."""
    alias = context.alias()
    choices = [(column, other, key) for other in context.tables if len(other.key) == 1 and other is not table
               for key in other.columns if key.name == other.key[0]
               for column in table.columns if column.type == key.type]
    if not choices:
        return update(context, table)
    column, other, key = context.rng.choice(choices)
    own, others = scope_of(table), Scope([column.node(alias) for column in other.columns])
    met = predicates.of("({} = {})", column.node(table.name), key.node(alias))
    condition = Node("{} AND {}", (met, predicates.predicate(context, Scope(own.atoms + others.atoms), 0)))
    targets = [target for target in table.columns if target.name not in table.key]
    target = context.rng.choice(targets)
    value = value_for(context, others, target)
    if value is None or value.tolerance is not None or context.chance(0.2):
        return Node(f"DELETE FROM {table.name} USING {other.name} {alias} WHERE {{}}", (condition,))
    table.widen(target, value.bound + 1 if target.type.kind == "numeric" else value.bound, value.tiny)
    return Node(f"UPDATE {table.name} SET {target.name} = {{}} FROM {other.name} {alias} WHERE {{}}",
                (value, condition))
