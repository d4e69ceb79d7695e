"""Find the names that Python code reads and never assigns, without running it.

Source: https://docs.python.org/3/library/symtable.html
"""

from __future__ import annotations

import builtins
import re
import symtable


def undefined_names(source: str) -> list[str]:
    """Return the global names that `source` reads and never assigns, sorted, without builtins.

    Functions, classes and comprehensions are searched; their own variables are not listed. A name
    is assigned by an assignment, a definition, an import, a loop or a `with`, in any order. The
    source may be a cell: IPython's lines, which begin with `%` or `!`, are skipped.

    Raises:
        SyntaxError: `source` is not valid Python.
    """
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
