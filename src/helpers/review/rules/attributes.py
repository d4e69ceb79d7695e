"""Attributes of a module that are used in place of a call or of the module's own mode."""

import ast
import re

from helpers.review.code import has_parameter
from helpers.review.registry import rule
from helpers.review.rules.modules import makes_module, module_classes
from helpers.review.syntax import FUNCTIONS, const, name_of, place

_FLAG = re.compile(r"(?i)self\.(is_?|in_?)?(train(_?mode|_?flag|_?phase)?|training_?\w*)$")
_RANDOM = re.compile(r"(?i)drop|rand|bernoulli|noise|batch_?norm")


@rule("modules-own-flag", "wrong", "train")
def own_training_flag(code):
    """`self.is_training = True`, and `if self.is_training:` around dropout, despite `eval()`."""
    if not re.search(r"\.eval\(\)", code.source):
        return
    for owner in module_classes(code):
        methods = {node.name: node for node in owner.body if isinstance(node, FUNCTIONS)}
        if "__init__" not in methods or {"train", "eval"} & methods.keys():
            continue
        for name, values in owner.attributes.items():
            if not _FLAG.match(name) or name in ("self.training", "self.train"):
                continue
            if len(values) == 1 and _stays_true(code, owner, values[0], name):
                if (branch := _branch(code, owner, name)) is not None:
                    yield branch


def _stays_true(code, owner, assignment, name):
    """Return whether the flag is True in each instance and no line of the file changes it."""
    stores = [
        node
        for node in code.nodes_of(ast.Attribute)
        if node.attr == name[5:] and not isinstance(node.ctx, ast.Load)
    ]
    if len(stores) != 1 or re.search(rf"setattr\(|\b{name[5:]}\s*=\s*False", code.source):
        return False
    if const(assignment.value) is True:
        return True
    init = assignment.statement.scope
    if not isinstance(assignment.value, ast.Name) or not has_parameter(init, assignment.value.id):
        return False
    arguments = code.arguments(init, assignment.value.id)
    return bool(arguments) and all(const(argument) is True for argument in arguments)


def _branch(code, owner, name):
    """Return the `if` or the call in which the flag switches a random operation on."""
    for node in sorted(code.nodes_of(ast.Attribute), key=place):
        if name_of(node) != name or node.owner is not owner or not isinstance(node.ctx, ast.Load):
            continue
        parent = node.parent
        while isinstance(parent, ast.Compare | ast.BoolOp):
            node, parent = parent, parent.parent
        if isinstance(parent, ast.If | ast.IfExp) and parent.test is node:
            branch = "\n".join(
                map(ast.unparse, parent.body if isinstance(parent.body, list) else [parent.body])
            )
            if _RANDOM.search(branch):
                return parent
        call = parent.parent if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call) and re.match(
            r"F\.(\w*dropout|batch_norm)", code.called(call)
        ):
            return call
    return None


@rule("modules-layer-uncalled", "raises")
def layer_uncalled(code):
    """`x = self.fc1` for `x = self.fc1(x)`: the variable is the layer itself."""
    for owner in module_classes(code):
        layers = {
            name
            for name, values in owner.attributes.items()
            if values and all(makes_module(code, assignment.value) for assignment in values)
        }
        for function in owner.body:
            if isinstance(function, FUNCTIONS) and function.name != "__init__":
                yield from _bound_layers(code, function, layers)


def _bound_layers(code, function, layers):
    """Yield `x = self.fc` that replaces a tensor, `F.relu(self.fc)` and `return self.fc`."""
    called_names = {
        name_of(call.func) for call in code.walk(function) if isinstance(call, ast.Call)
    }
    for node in code.walk(function):
        if isinstance(node, ast.Assign) and name_of(node.value) in layers:
            name = name_of(node.targets[0])
            if name and name.isidentifier() and name not in called_names:
                if _holds_tensor(function, name, node) and _read_later(code, function, name, node):
                    yield node
        elif isinstance(node, ast.Return) and name_of(node.value) in layers:
            if function.name == "forward":
                yield node
        elif isinstance(node, ast.Call) and node.args and name_of(node.args[0]) in layers:
            if re.match(r"F\.[a-z]|torch\.(relu|tanh|sigmoid|cat|flatten)$", code.called(node)):
                yield node


def _holds_tensor(function, name, node):
    """Return whether the name is a has_parameter, or the result of a call above the node."""
    assignments = [
        assignment for assignment in function.assigned.get(name, ()) if assignment.end < place(node)
    ]
    return has_parameter(function, name) or any(
        isinstance(assignment.value, ast.Call) for assignment in assignments
    )


_TENSOR = {
    *(
        "view",
        "reshape",
        "flatten",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "size",
        "shape",
    ),
    *("mean", "sum", "max", "relu", "sigmoid", "softmax", "contiguous", "dim", "argmax"),
}


def _read_later(code, function, name, node):
    """Return whether the next lines use the variable as a tensor, and never as a module."""
    uses = [other for other in code.uses(function, name) if place(other) > place(node)]
    uses += [
        other
        for other in code.walk(function)
        if _is_renewed(other, name) and place(other) > place(node)
    ]
    return bool(uses) and all(_as_tensor(code, use) for use in uses)


def _is_renewed(node, name):
    """Return True for the name on the right side of `x = f(x)`."""
    read = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    parent = node.parent
    while read and isinstance(parent, ast.expr | ast.keyword):
        parent = parent.parent
    return read and isinstance(parent, ast.Assign) and name_of(parent.targets[0]) == name


def _as_tensor(code, node):
    """Return whether a name is returned, used in an operation, or given to a layer."""
    parent = node.parent
    if isinstance(parent, ast.Attribute):
        return parent.attr in _TENSOR
    if isinstance(parent, ast.Call):
        layer = (name_of(parent.func) or "").startswith("self.")
        return (
            layer or re.match(r"F\.[a-z]|torch\.[a-z]|nn\.[A-Z]", code.called(parent)) is not None
        )
    return isinstance(parent, ast.Return | ast.BinOp)
