"""The parts of `scripts/differential`: random databases and statements, asked of ERIS and of DuckDB.

```
  seed ─> schema.py, rows.py     tables, rows                        ┐
          expressions, predicates, aggregates, queries, changes.py   ├─ case.py: settings and statements
                                                                     ┘     │
          tree.py     a statement is a tree, written down twice            │
                                                                           v
          sides.py    ERIS over the wire      DuckDB in the process     compare.py ─> equal, or a difference
                                                                           │
          rules.py    differences that are meant, by name                  v
                                                                     reduce.py: the same difference, in few lines
```
"""
