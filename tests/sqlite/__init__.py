"""A whole sink that no package knows: rows and positions in one SQLite database.

It has the parts that docs/design.md lists for a new sink, one module each.
"""
