"""The names that a piece of Python code reads and never makes; the code is read, not run.

Source: https://docs.python.org/3/library/symtable.html
"""

from __future__ import annotations

import builtins
import symtable


def undefined_names(source: str) -> list[str]:
    """The global names that `source` reads and never makes, sorted alphabetically, no builtins.

    Functions, classes and comprehensions are looked into; their own variables do not count. A name
    is made by an assignment, a definition, an import, a loop or a `with`, in any order.

    Raises:
        SyntaxError: `source` is not Python.
    """
    read, made = set(), {*dir(builtins), "__name__", "__file__"}
    top = symtable.symtable(source, "<code>", "exec")
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_global():
                if symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported():
                    made.add(symbol.get_name())
    return sorted(read - made)
