"""Attributes of a module that are used in place of a call or of the module's own mode."""

import ast
import re

from helpers.review.code import parameter
from helpers.review.registry import rule
from helpers.review.rules.modules import makes_module, module_classes
from helpers.review.syntax import FUNCTIONS, const, place, text

_FLAG = re.compile(r"(?i)self\.(is_?|in_?)?(train(_?mode|_?flag|_?phase)?|training_?\w*)$")
_RANDOM = re.compile(r"(?i)drop|rand|bernoulli|noise|batch_?norm")


@rule("modules-own-flag", "wrong", "train")
def own_training_flag(code):
    """`self.is_training = True`, and `if self.is_training:` around dropout, despite `eval()`."""
    if not re.search(r"\.eval\(\)", code.source):
        return
    for owner in module_classes(code):
        methods = {one.name: one for one in owner.body if isinstance(one, FUNCTIONS)}
        if "__init__" not in methods or {"train", "eval"} & methods.keys():
            continue
        for name, values in owner.attributes.items():
            if not _FLAG.match(name) or name in ("self.training", "self.train"):
                continue
            if len(values) == 1 and _stays_true(code, owner, values[0], name):
                if (found := _branch(code, owner, name)) is not None:
                    yield found


def _stays_true(code, owner, given, name):
    """Return whether the flag is True in each instance and no line of the file changes it."""
    stored = [
        one
        for one in code.of(ast.Attribute)
        if one.attr == name[5:] and not isinstance(one.ctx, ast.Load)
    ]
    if len(stored) != 1 or re.search(rf"setattr\(|\b{name[5:]}\s*=\s*False", code.source):
        return False
    if const(given.value) is True:
        return True
    init = given.statement.scope
    if not isinstance(given.value, ast.Name) or not parameter(init, given.value.id):
        return False
    passed = code.arguments(init, given.value.id)
    return bool(passed) and all(const(one) is True for one in passed)


def _branch(code, owner, name):
    """Return the `if` or the call in which the flag switches a random operation on."""
    for node in sorted(code.of(ast.Attribute), key=place):
        if text(node) != name or node.owner is not owner or not isinstance(node.ctx, ast.Load):
            continue
        up = node.parent
        while isinstance(up, ast.Compare | ast.BoolOp):
            node, up = up, up.parent
        if isinstance(up, ast.If | ast.IfExp) and up.test is node:
            branch = "\n".join(
                map(ast.unparse, up.body if isinstance(up.body, list) else [up.body])
            )
            if _RANDOM.search(branch):
                return up
        call = up.parent if isinstance(up, ast.keyword) else up
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
            if values and all(makes_module(code, one.value) for one in values)
        }
        for function in owner.body:
            if isinstance(function, FUNCTIONS) and function.name != "__init__":
                yield from _bound_layers(code, function, layers)


def _bound_layers(code, function, layers):
    """Yield `x = self.fc` that replaces a tensor, `F.relu(self.fc)` and `return self.fc`."""
    called = {text(call.func) for call in code.walk(function) if isinstance(call, ast.Call)}
    for node in code.walk(function):
        if isinstance(node, ast.Assign) and text(node.value) in layers:
            name = text(node.targets[0])
            if name and name.isidentifier() and name not in called:
                if _was_tensor(function, name, node) and _read_later(code, function, name, node):
                    yield node
        elif isinstance(node, ast.Return) and text(node.value) in layers:
            if function.name == "forward":
                yield node
        elif isinstance(node, ast.Call) and node.args and text(node.args[0]) in layers:
            if re.match(r"F\.[a-z]|torch\.(relu|tanh|sigmoid|cat|flatten)$", code.called(node)):
                yield node


def _was_tensor(function, name, node):
    """Return whether the name is a parameter, or the result of a call above the node."""
    before = [one for one in function.assigned.get(name, ()) if one.end < place(node)]
    return parameter(function, name) or any(isinstance(one.value, ast.Call) for one in before)


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
    uses = [one for one in code.uses(function, name) if place(one) > place(node)]
    uses += [one for one in code.walk(function) if _renews(one, name) and place(one) > place(node)]
    return bool(uses) and all(_as_tensor(code, one) for one in uses)


def _renews(node, name):
    """Return True for the name on the right side of `x = f(x)`."""
    read = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    up = node.parent
    while read and isinstance(up, ast.expr | ast.keyword):
        up = up.parent
    return read and isinstance(up, ast.Assign) and text(up.targets[0]) == name


def _as_tensor(code, node):
    """Return whether a name is returned, used in an operation, or given to a layer."""
    up = node.parent
    if isinstance(up, ast.Attribute):
        return up.attr in _TENSOR
    if isinstance(up, ast.Call):
        layer = (text(up.func) or "").startswith("self.")
        return layer or re.match(r"F\.[a-z]|torch\.[a-z]|nn\.[A-Z]", code.called(up)) is not None
    return isinstance(up, ast.Return | ast.BinOp)
