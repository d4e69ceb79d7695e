"""Functions that read a variable of the training loop instead of their parameter."""

import ast
import builtins
import re

from helpers.review.registry import rule
from helpers.review.syntax import FUNCTIONS, LOOPS, above, place

_READS = (
    *(ast.Call, ast.Tuple, ast.List, ast.BinOp, ast.Subscript, ast.Attribute, ast.comprehension),
    ast.For,
)
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*$")


@rule("names-parameter-ignored", "wrong")
def parameter_ignored(code):
    """`def forward(self, x): return self.fc(images)`, where `images` is a variable of the loop."""
    looped = _of_loops(code)
    for function in code.of(*FUNCTIONS) if looped else ():
        given = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        unused = [
            name
            for name in given
            if name not in ("self", "cls")
            and not name.startswith("_")
            and name not in function.assigned
            and not code.uses(function, name)
        ]
        if not unused or _is_stub(function):
            continue
        called = [c for c in code.callers.get(function, ()) if any(above(c, *LOOPS))]
        found = next(_foreign(code, function, looped), None)
        if called and found is not None:
            yield found


def _of_loops(code):
    """Return the names that the module assigns in loops, and nowhere else."""
    names = set()
    for name, values in code.tree.assigned.items():
        if name.isidentifier() and not _CONSTANT.match(name):
            statements = [one.statement for one in values]
            if all(isinstance(one, ast.For) or any(above(one, *LOOPS)) for one in statements):
                names.add(name)
    return names - code.names.keys() - code.classes.keys()


def _is_stub(function):
    """Return whether the function has no code but a docstring, `pass` or `raise`."""
    body = [one for one in function.body if not isinstance(one, ast.Pass | ast.Raise)]
    return all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in body)


def _foreign(code, function, looped):
    """Yield the names of the loop that a function passes to a call or uses in an operation."""
    local = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    local |= {name for name in function.assigned if name.isidentifier()}
    for node in sorted(
        code.walk(function), key=lambda one: place(one) if hasattr(one, "lineno") else (0, 0)
    ):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node.id not in looped or node.id in local:
            continue
        if node.id == "input" or not hasattr(builtins, node.id):
            if isinstance(node.parent, _READS):
                yield node
