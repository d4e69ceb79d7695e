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
        for name, values in owner.attributes.items():
            if not _FLAG.match(name) or name == "self.training":
                continue
            if _stays_true(code, values[0], name):
                if (branch := _branch(code, name)) is not None:
                    yield branch


def _stays_true(code, assignment, name):
    """Return whether the flag is True in each instance and no line of the file changes it."""
    stores = [
        node
        for node in code.nodes_of(ast.Attribute)
        if node.attr == name[5:] and not isinstance(node.ctx, ast.Load)
    ]
    if len(stores) != 1 or "setattr(" in code.source:
        return False
    if const(assignment.value) is True:
        return True
    if not isinstance(assignment.value, ast.Name):
        return False
    arguments = code.arguments(assignment.statement.scope, assignment.value.id)
    return bool(arguments) and all(const(argument) is True for argument in arguments)


def _branch(code, name):
    """Return the `if` or the call in which the flag switches a random operation on."""
    for node in sorted(code.nodes_of(ast.Attribute), key=place):
        if name_of(node) != name:
            continue
        parent = node.parent
        while isinstance(parent, ast.Compare | ast.BoolOp):
            node, parent = parent, parent.parent
        if isinstance(parent, ast.If | ast.IfExp):
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
    for node in code.walk(function):
        if isinstance(node, ast.Assign) and name_of(node.value) in layers:
            name = name_of(node.targets[0])
            if _holds_tensor(function, name) and _read_later(code, function, name, node):
                yield node
        elif isinstance(node, ast.Return) and name_of(node.value) in layers:
            if function.name == "forward":
                yield node
        elif isinstance(node, ast.Call) and node.args and name_of(node.args[0]) in layers:
            if re.match(r"F\.[a-z]|torch\.(relu|tanh|sigmoid|cat|flatten)$", code.called(node)):
                yield node


def _holds_tensor(function, name):
    """Return whether the name is a parameter, or the result of a call."""
    values = [assignment.value for assignment in function.assigned.get(name, ())]
    return has_parameter(function, name) or any(isinstance(value, ast.Call) for value in values)


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
    return all(
        _as_tensor(code, read)
        for read in code.walk(function)
        if isinstance(read, ast.Name) and read.id == name and place(read) > place(node)
        if isinstance(read.ctx, ast.Load)
    )


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
