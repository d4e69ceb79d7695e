"""Find the names that Python code reads but never assigns, without running the code.

Source: https://docs.python.org/3/library/symtable.html
"""

from __future__ import annotations

import builtins
import re
import symtable


def undefined_names(source: str) -> list[str]:
    """Return the global names that `source` reads and never assigns, sorted, without builtins.

    Functions, classes and comprehensions are searched; their local variables are not listed. A name
    counts as assigned by an assignment, definition, import, loop or `with`, in any order. The
    source may be a notebook cell: lines that begin with `%` or `!` are skipped.

    Raises:
        TypeError: `source` is not a text.
        SyntaxError: `source` is not valid Python.
    """
    if not isinstance(source, str | bytes):
        raise TypeError(f"source must be a text, got {type(source).__name__}")
    read, assigned = set(), {*dir(builtins), "__name__", "__file__"}
    try:
        top = symtable.symtable(source, "<code>", "exec")
    except SyntaxError:
        plain = re.sub(r"^(\s*)[%!].*", r"\1pass", source, flags=re.M)
        top = symtable.symtable(plain, "<code>", "exec")
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_global():
                if symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported():
                    assigned.add(symbol.get_name())
    return sorted(read - assigned)
