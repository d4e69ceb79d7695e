"""Infer the number of axes of a tensor, and whether a model returns a single column."""

from __future__ import annotations

import ast
import re
from typing import Any

from helpers.review.code import Code, Part, parameter
from helpers.review.history import fitted_loader
from helpers.review.kinds import kind
from helpers.review.syntax import argument, const, inside, is_open, method, receiver, text
from helpers.review.tracing import construction, layers

_DEEPEST = 12
_FILLED = {"rand", "randn", "zeros", "ones", "empty"}
_DRAWN = {"numpy.random.normal": "size", "numpy.random.uniform": "size", "torch.randint": "size"}
_SAME = re.compile(
    r"(a?sin|a?cos|tanh?|exp|log|sqrt|abs|square|sigmoid|relu|softplus|float|double|half|long|int|"
    r"to|cuda|cpu|type|astype|numpy|clone|copy|detach|contiguous|requires_grad_|clamp|clip|round|"
    r"\w+_like|from_numpy|as_tensor|asarray|Variable|fit_transform|transform)$"
)
_MADE = re.compile(
    r"(torch\.(tensor|FloatTensor|Tensor|LongTensor|DoubleTensor)|numpy\.(array|stack|vstack))$"
)
_SKLEARN = re.compile(r"sklearn\.datasets\.(make|load|fetch)_\w+$")
_ELEMENTWISE = re.compile(r"(sigmoid|relu|tanh|softplus|exp|clamp|leaky_relu|float)$")


def axes(code: Code, node: Any, depth: int = 0) -> int | None:
    """Return the number of axes of a tensor, array or table; None if it cannot be inferred."""
    if depth > _DEEPEST or node is None:
        return None
    if isinstance(node, Part):
        return _of_part(code, node, depth + 1)
    if isinstance(node, ast.Name):
        return axes(code, code.resolved(node), depth + 1)
    if isinstance(node, ast.Attribute):
        return _of_attribute(code, node, depth + 1)
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        return _joined(code, (node.left, node.right), depth + 1)
    if isinstance(node, ast.Compare):
        return _joined(code, (node.left, *node.comparators), depth + 1)
    if isinstance(node, ast.UnaryOp):
        return axes(code, node.operand, depth + 1)
    if isinstance(node, ast.Constant):
        return 0 if isinstance(node.value, int | float) else None
    if isinstance(node, ast.List | ast.Tuple):
        inner = axes(code, node.elts[0], depth + 1) if node.elts else None
        return None if inner is None else inner + 1
    if isinstance(node, ast.ListComp):
        inner = axes(code, node.elt, depth + 1)
        return None if inner is None else inner + 1
    if isinstance(node, ast.Subscript):
        return _sliced(code, node, depth + 1)
    return _of_call(code, node, depth + 1) if isinstance(node, ast.Call) else None


def _joined(code: Code, sides: tuple[ast.AST, ...], depth: int) -> int | None:
    """Return the number of axes after broadcasting."""
    counts = [0 if const(one) is not None else axes(code, one, depth) for one in sides]
    return None if None in counts else max(counts)


def _of_attribute(code: Code, node: ast.Attribute, depth: int) -> int | None:
    value = code.value(node)
    if value is not None:
        return axes(code, value, depth)
    if node.attr in ("target", "data") and isinstance(node.value, ast.Name):
        dataset = code.value(node.value)
        if _SKLEARN.match(code.called(dataset)):
            return 1 if node.attr == "target" else 2
    if node.attr == "T":
        count = axes(code, node.value, depth)
        return count if count and count < 2 else None
    return axes(code, node.value, depth) if node.attr in ("data", "values") else None


def _of_part(code: Code, part: Part, depth: int) -> int | None:
    value, index = part.value, part.index
    if index is None and part.element is not None:  # `for x, y in loader`
        return _batch(code, value, part.element, depth)
    if index is not None and isinstance(value, ast.Name):  # `x, y = batch`
        given = code.value(value)
        if isinstance(given, Part) and given.index is None:
            return _batch(code, given.value, index, depth)
        if given is None and getattr(value.scope, "name", "") == "training_step":
            loader = fitted_loader(code, value)
            return None if loader is None else _batch(code, loader, index, depth)
    name = code.called(value)
    if index is None or not isinstance(value, ast.Call):
        return None
    if name == "sklearn.model_selection.train_test_split":
        given = [one for one in value.args if not isinstance(one, ast.Starred)]
        return axes(code, given[index // 2], depth) if index // 2 < len(given) else None
    if _SKLEARN.match(name):
        return 2 - index if index < 2 else None
    return axes(code, code.element(part), depth)


def _batch(code: Code, loader: ast.AST, index: int, depth: int) -> int | None:
    """Return the number of axes of tensor `index` in a loader's batch."""
    constructor = construction(code, loader)
    if (
        code.called(constructor) != "data.DataLoader"
        or is_open(constructor)
        or argument(constructor, "collate_fn")
    ):
        return None
    sample = _sample(code, argument(constructor, "dataset", 0), index, depth)
    return None if sample is None else sample + 1


def _sample(code: Code, dataset: Any, index: int, depth: int) -> int | None:
    value = code.resolved(dataset) if isinstance(dataset, ast.AST) else dataset
    if isinstance(value, Part) and code.called(value.value) == "data.random_split":
        value = code.resolved(value.value.args[0]) if value.value.args else None
    if not isinstance(value, ast.Call) or depth > _DEEPEST:
        return None
    name = code.called(value)
    if name == "data.Subset" and value.args:
        return _sample(code, value.args[0], index, depth + 1)
    if name == "data.TensorDataset":
        count = axes(code, value.args[index], depth) if index < len(value.args) else None
        return None if not count else count - 1
    get = code.functions.get((text(value.func), "__getitem__"))
    given = [one.value for one in code.walk(get) if isinstance(one, ast.Return)] if get else []
    whole = len(given) == 1 and isinstance(given[0], ast.Tuple) and index < len(given[0].elts)
    return axes(code, given[0].elts[index], depth) if whole else None


def _sliced(code: Code, node: ast.Subscript, depth: int) -> int | None:
    """Return the axes of a subscript: `x[:, 0]` has one less than `x`, `table["price"]` has 1."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    base = node.value
    if isinstance(base, ast.Attribute) and base.attr in ("iloc", "loc"):
        base = base.value
    count = axes(code, base, depth)
    if len(parts) == 1 and isinstance(const(parts[0]), str):
        table = count == 2 or re.fullmatch(r"(\w+_)?df(_\w+)?", text(base) or "")
        return 1 if table else None
    if len(parts) == 1 and isinstance(parts[0], ast.List):
        named = all(isinstance(const(one), str) for one in parts[0].elts)
        return 2 if named and parts[0].elts else count
    indices = [one for one in parts if not isinstance(one, ast.Slice)]
    if not all(_is_index(code, one) for one in indices):
        return None
    if count is None and len(parts) == 2 and getattr(node.value, "attr", "") in _TABLE:
        count = 2  # `frame.values[:, 0]`
    if count is None:
        return 0 if len(indices) == len(parts) > 1 else None  # all axes have an index
    return count - len(indices) if count >= len(indices) else None


_TABLE = ("values", "iloc", "loc")


def _is_index(code: Code, node: ast.AST) -> bool:
    """Return True for a scalar index: a number, `__getitem__`'s argument, a loop counter."""
    if isinstance(node, ast.BinOp):
        return _is_index(code, node.left) and _is_index(code, node.right)
    if isinstance(node, ast.Name):
        function = code.function(node)
        if getattr(function, "name", "") == "__getitem__" and parameter(function, node.id):
            return True
        value = code.value(node)
        count = isinstance(value, Part) and method(value.value) == "range"
        return count or isinstance(value, ast.AST) and isinstance(const(value), int)
    return isinstance(const(node), int) and not isinstance(const(node), bool)


def _of_call(code: Code, node: ast.Call, depth: int) -> int | None:
    name, what = code.called(node), method(node)
    if (value := code.returned(node)) is not None:
        return axes(code, value, depth)
    if column(code, node):
        return 2
    if name in ("torch.linspace", "torch.arange", "numpy.linspace", "numpy.arange"):
        return 1
    if name in _DRAWN:
        size = argument(node, "size", 2)
        return len(size.elts) if isinstance(size, ast.Tuple | ast.List) else None
    if re.fullmatch(r"torch\.\w+|numpy\.(random\.)?\w+", name) and what in _FILLED and node.args:
        first = node.args[0]
        if isinstance(first, ast.Tuple | ast.List):
            return len(first.elts)
        return None if isinstance(first, ast.Starred) else len(node.args)
    if name == "pandas.read_csv":
        return 2
    if _MADE.match(name) and node.args:
        return _of_list(code, node.args[0], depth)
    given = node.args[0] if name and node.args else receiver(node) if not name else None
    if given is None or _owner(given):
        return None
    if _SAME.match(what):
        if what in ("fit_transform", "transform"):
            return 2 if what == "fit_transform" else None
        return axes(code, given, depth)
    return None if name else _reshaped(code, node, given, depth)


def _owner(node: ast.AST) -> bool:
    return text(node) == "self"


def _reshaped(code: Code, node: ast.Call, given: ast.AST, depth: int) -> int | None:
    what, number = method(node), axes(code, given, depth)
    if what in ("view", "reshape"):
        sizes = node.args[0] if len(node.args) == 1 else None
        many = isinstance(sizes, ast.Tuple | ast.List)
        count = len(sizes.elts) if many else len(node.args)
        known = not any(isinstance(one, ast.Starred) for one in node.args)
        single = count == 1 and not many and const(node.args[0]) != -1
        return count if known and node.args and not single else None
    if what in ("flatten", "ravel") and not node.args and not node.keywords:
        return 1
    if what == "to_numpy":
        return number
    if what == "unsqueeze" and number is not None:
        return number + 1
    inner = code.resolved(given) if what == "squeeze" and not node.args else None
    while method(inner) in ("sin", "cos", "exp", "tanh", "pow", "float") and inner is not None:
        inner = inner.args[0] if code.called(inner) and inner.args else receiver(inner)
        inner = code.resolved(inner) if inner is not None else None
    if method(inner) == "unsqueeze" and axes(code, inner, depth) == 2:
        return 1
    last = const(argument(node, "dim", 0) or argument(node, "axis")) in (1, -1)
    if what == "squeeze" and last and number == 2:
        return 1 if column(code, code.resolved(given)) else None
    if what == "drop" and number == 2:
        return 2
    if what in ("mean", "sum", "prod") and number and not is_open(node):
        one = const(argument(node, "dim", 0) or argument(node, "axis"))
        kept = const(argument(node, "keepdim")) or const(argument(node, "keepdims"))
        return number - 1 if isinstance(one, int) and not kept else None
    return None


def _of_list(code: Code, node: ast.AST, depth: int) -> int | None:
    """Return the axes of `torch.tensor(rows)`, including a list filled with `append`."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if not isinstance(value, ast.List) or value.elts or not isinstance(node, ast.Name):
        return axes(code, node, depth)
    added = [
        one.args[0]
        for one in code.methods(code.function(node), "append")
        if text(receiver(one)) == node.id and len(one.args) == 1
    ]
    counts = {axes(code, one, depth) for one in added}
    inner = counts.pop() if len(counts) == 1 else None
    return None if inner is None else inner + 1


# ---------------------------------------------------------------- one column


def column(code: Code, node: Any) -> bool:
    """Return True if a node is the (n, 1) output of a local model with one output unit."""
    value = code.resolved(node) if isinstance(node, ast.AST) else None
    if not isinstance(value, ast.Call) or code.called(value):
        return False
    if any(method(one) == "squeeze" and not one.args for one in value.args):
        return False  # without its batch axis for a single sample
    layer = _last_of(code, construction(code, value.func))
    name = (kind(code, value.func) or "").removeprefix("module:")
    if code.called(layer) != "nn.Linear":
        layer = _last_layer(code, name)
    return code.called(layer) == "nn.Linear" and _is_one(code, argument(layer, "out_features", 1))


def _is_one(code: Code, node: ast.AST | None) -> bool:
    value = code.const(node)
    return value == 1 and value is not True


def _last_layer(code: Code, name: str) -> ast.Call | None:
    """Return the constructor of the layer whose output `forward` returns."""
    forward = code.functions.get((name, "forward"))
    statements = [n for n in code.walk(forward) if isinstance(n, ast.Return)] if forward else []
    value = statements[0].value if len(statements) == 1 else None
    for _ in range(4):
        value = code.resolved(value) if isinstance(value, ast.AST) else None
        if not isinstance(value, ast.Call):
            return None
        if not _ELEMENTWISE.match(method(value)):
            break
        value = value.args[0] if code.called(value) and value.args else receiver(value)
    if not isinstance(value, ast.Call) or code.called(value) or inside(forward, value):
        return None
    return _last_of(code, construction(code, value.func))


_ACTIVATIONS = re.compile(r"nn\.(Sigmoid|Tanh|ReLU|LeakyReLU|Softplus|ELU|Identity)$")


def _last_of(code: Code, constructor: ast.Call | None) -> ast.Call | None:
    """Return the constructor of the last layer, even in nested `nn.Sequential`."""
    for _ in range(4):
        if code.called(constructor) == "nn.Sequential" and constructor.args:
            inner = layers(code, constructor)
            while inner and _ACTIVATIONS.match(code.called(inner[-1])):
                inner.pop()
            constructor = construction(code, inner[-1]) if inner else None
    return constructor
