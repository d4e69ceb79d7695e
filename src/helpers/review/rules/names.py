"""Names that look right: misspelt methods, classes that are called for functions."""

import ast
import re

from helpers.review.kinds import is_module_class, kind
from helpers.review.registry import rule
from helpers.review.rules.modules import module_classes
from helpers.review.syntax import const, text

_FORWARD = {"foward", "forwad", "foreward", "froward", "farward", "Forward", "__forward__"}
_ACTIVATIONS = re.compile(
    r"nn\.(ReLU|Sigmoid|Tanh|Softmax|LogSoftmax|LeakyReLU|GELU|SiLU|ELU|Flatten)"
)


@rule("modules-forward-name", "raises")
def misspelt_forward(code):
    """`def foward(self, x)`."""
    for node in module_classes(code):
        names = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        if "forward" not in names:
            for name in _FORWARD & names.keys():
                yield names[name]


@rule("modules-activation-class", "raises")
def activation_class(code):
    """`x = nn.ReLU(self.fc(x))` makes a module instead of computing."""
    for call in code.calls:
        if not _ACTIVATIONS.fullmatch(code.called(call)) or len(call.args) != 1:
            continue
        around = code.function(call)
        if getattr(around, "name", "") != "forward" or call.owner is None:
            continue
        given = call.args[0]
        layer = isinstance(given, ast.Call) and (text(given.func) or "").startswith("self.")
        tensor = isinstance(given, ast.Name) and given.id in ("x", "out", "output", "inputs", "h")
        if (layer or tensor) and const(given) is None and is_module_class(code, call.owner.name):
            if not (isinstance(call.parent, ast.Call) and call.parent.func is call):
                yield call


@rule("evaluation-argmax-dim", "wrong")
def argmax_over_batch(code):
    """`pred = model(x).argmax(0)` compared with labels: the largest of the batch."""
    for call in code.calls:
        base, dim = _argmax(code, call)
        if base is None or dim not in (0, "none"):
            continue
        value = code.value(base) if isinstance(base, ast.Name) else base
        if not isinstance(value, ast.Call) or not (kind(code, value.func) or "").startswith(
            "module:"
        ):
            continue
        if _compared(code, call) and not re.search(r"unsqueeze|\[None", ast.unparse(value)):
            yield call


def _argmax(code, call):
    """Return the tensor and the dimension of an argmax, `"none"` without one."""
    name, func = code.called(call), call.func
    if name in ("torch.max", "torch.argmax") and call.args:
        given = call.args[1:] + [k.value for k in call.keywords if k.arg == "dim"]
        base = call.args[0]
    elif not name and isinstance(func, ast.Attribute) and func.attr in ("argmax", "max"):
        given, base = call.args + [k.value for k in call.keywords if k.arg == "dim"], func.value
    else:
        return None, None
    if not given:
        whole = name == "torch.argmax" or isinstance(func, ast.Attribute) and func.attr == "argmax"
        return (base, "none") if whole else (None, None)
    return base, const(given[0])


def _compared(code, call):
    """The result is compared with labels."""
    names = set()
    up = call.parent
    while isinstance(up, ast.Attribute | ast.Subscript | ast.Call):
        up = up.parent
    if isinstance(up, ast.Assign):
        target = up.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names = {text(one) for one in parts}
    for node in code.walk(code.function(call)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            sides = {text(node.left), text(node.comparators[0])}
            if sides & names and any(
                re.search(r"(?i)label|target|^y$|^y_", one or "") for one in sides - names
            ):
                return True
    return False
