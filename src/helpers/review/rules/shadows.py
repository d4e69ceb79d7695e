"""Functions that read a variable of the training loop instead of their parameter."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.syntax import FUNCTIONS, LOOPS, ancestors, place

_CONTEXTS = (
    *(ast.Call, ast.Tuple, ast.List, ast.BinOp, ast.Subscript, ast.Attribute, ast.comprehension),
    ast.For,
)
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*$")


@rule("names-parameter-ignored", "wrong")
def parameter_ignored(code):
    """`def forward(self, x): return self.fc(images)`, where `images` is a variable of the loop."""
    loop_names = _loop_names(code)
    for function in code.nodes_of(*FUNCTIONS) if loop_names else ():
        parameters = [
            parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)
        ]
        unread = [
            name
            for name in parameters
            if name not in ("self", "cls")
            and not name.startswith("_")
            and not code.uses(function, name)
        ]
        if not unread:
            continue
        calls = [call for call in code.callers.get(function, ()) if any(ancestors(call, *LOOPS))]
        read = next(_reads_of(code, function, loop_names), None)
        if calls and read is not None:
            yield read


def _loop_names(code):
    """Return the names that the module assigns in loops, and nowhere else."""
    names = set()
    for name, values in code.tree.assigned.items():
        if not _CONSTANT.match(name):
            statements = [assignment.statement for assignment in values]
            if all(
                isinstance(statement, ast.For) or any(ancestors(statement, *LOOPS))
                for statement in statements
            ):
                names.add(name)
    return names - code.names.keys() - code.classes.keys()


def _reads_of(code, function, loop_names):
    """Yield the names of the loop that a function passes to a call or uses in an operation."""
    local = {
        parameter.arg for parameter in ast.walk(function.args) if isinstance(parameter, ast.arg)
    }
    local |= function.assigned.keys()
    nodes = [node for node in code.walk(function) if isinstance(node, ast.Name)]
    for node in sorted(nodes, key=place):
        if node.id in loop_names - local and isinstance(node.parent, _CONTEXTS):
            yield node
