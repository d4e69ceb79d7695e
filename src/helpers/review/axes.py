"""Infer the number of axes of a tensor, and whether a model returns a single column."""

from __future__ import annotations

import ast
import re
from typing import Any

from helpers.review.code import Code, Part, has_parameter
from helpers.review.history import fitted_loader, returned_item
from helpers.review.kinds import kind
from helpers.review.syntax import argument, const, is_inside, is_open, method, name_of, receiver
from helpers.review.tracing import construction, dataset_of, layers

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
    counts = [0 if const(side) is not None else axes(code, side, depth) for side in sides]
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
        batch = code.value(value)
        if isinstance(batch, Part) and batch.index is None:
            return _batch(code, batch.value, index, depth)
        if batch is None and getattr(value.scope, "name", "") == "training_step":
            loader = fitted_loader(code, value)
            return None if loader is None else _batch(code, loader, index, depth)
    name = code.called(value)
    if index is None or not isinstance(value, ast.Call):
        return None
    if name == "sklearn.model_selection.train_test_split":
        arrays = [arg for arg in value.args if not isinstance(arg, ast.Starred)]
        return axes(code, arrays[index // 2], depth) if index // 2 < len(arrays) else None
    if _SKLEARN.match(name):
        return 2 - index if index < 2 else None
    return axes(code, code.element(part), depth)


def _batch(code: Code, loader: ast.AST, index: int, depth: int) -> int | None:
    """Return the number of axes of tensor `index` in a loader's batch."""
    sample = _sample(code, dataset_of(code, loader), index, depth)
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
    item = returned_item(code, value, index)
    return None if item is None else axes(code, item, depth)


def _sliced(code: Code, node: ast.Subscript, depth: int) -> int | None:
    """Return the axes of a subscript: `x[:, 0]` has one less than `x`, `table["price"]` has 1."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    base = node.value
    if isinstance(base, ast.Attribute) and base.attr in ("iloc", "loc"):
        base = base.value
    count = axes(code, base, depth)
    if len(parts) == 1 and isinstance(const(parts[0]), str):
        table = count == 2 or re.fullmatch(r"(\w+_)?df(_\w+)?", name_of(base) or "")
        return 1 if table else None
    if len(parts) == 1 and isinstance(parts[0], ast.List):
        named = all(isinstance(const(element), str) for element in parts[0].elts)
        return 2 if named and parts[0].elts else count
    indices = [part for part in parts if not isinstance(part, ast.Slice)]
    if not all(_is_index(code, index) for index in indices):
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
        function = code.function_of(node)
        if getattr(function, "name", "") == "__getitem__" and has_parameter(function, node.id):
            return True
        value = code.value(node)
        count = isinstance(value, Part) and method(value.value) == "range"
        return count or isinstance(value, ast.AST) and isinstance(const(value), int)
    return isinstance(const(node), int) and not isinstance(const(node), bool)


def _of_call(code: Code, node: ast.Call, depth: int) -> int | None:
    name, method_name = code.called(node), method(node)
    if (value := code.returned(node)) is not None:
        return axes(code, value, depth)
    if column(code, node):
        return 2
    if name in ("torch.linspace", "torch.arange", "numpy.linspace", "numpy.arange"):
        return 1
    if name in _DRAWN:
        size = argument(node, "size", 2)
        return len(size.elts) if isinstance(size, ast.Tuple | ast.List) else None
    if (
        re.fullmatch(r"torch\.\w+|numpy\.(random\.)?\w+", name)
        and method_name in _FILLED
        and node.args
    ):
        first = node.args[0]
        if isinstance(first, ast.Tuple | ast.List):
            return len(first.elts)
        return None if isinstance(first, ast.Starred) else len(node.args)
    if name == "pandas.read_csv":
        return 2
    if _MADE.match(name) and node.args:
        return _of_list(code, node.args[0], depth)
    operand = node.args[0] if name and node.args else receiver(node) if not name else None
    if operand is None or name_of(operand) == "self":
        return None
    if _SAME.match(method_name):
        if method_name in ("fit_transform", "transform"):
            return 2 if method_name == "fit_transform" else None
        return axes(code, operand, depth)
    return None if name else _reshaped(code, node, operand, depth)


def _reshaped(code: Code, node: ast.Call, operand: ast.AST, depth: int) -> int | None:
    method_name, number = method(node), axes(code, operand, depth)
    if method_name in ("view", "reshape"):
        sizes = node.args[0] if len(node.args) == 1 else None
        many = isinstance(sizes, ast.Tuple | ast.List)
        count = len(sizes.elts) if many else len(node.args)
        known = not any(isinstance(arg, ast.Starred) for arg in node.args)
        single = count == 1 and not many and const(node.args[0]) != -1
        return count if known and node.args and not single else None
    if method_name in ("flatten", "ravel") and not node.args and not node.keywords:
        return 1
    if method_name == "to_numpy":
        return number
    if method_name == "unsqueeze" and number is not None:
        return number + 1
    inner = code.resolved(operand) if method_name == "squeeze" and not node.args else None
    while method(inner) in ("sin", "cos", "exp", "tanh", "pow", "float") and inner is not None:
        inner = inner.args[0] if code.called(inner) and inner.args else receiver(inner)
        inner = code.resolved(inner) if inner is not None else None
    if method(inner) == "unsqueeze" and axes(code, inner, depth) == 2:
        return 1
    last = const(argument(node, "dim", 0) or argument(node, "axis")) in (1, -1)
    if method_name == "squeeze" and last and number == 2:
        return 1 if column(code, code.resolved(operand)) else None
    if method_name == "drop" and number == 2:
        return 2
    if method_name in ("mean", "sum", "prod") and number and not is_open(node):
        axis = const(argument(node, "dim", 0) or argument(node, "axis"))
        kept = const(argument(node, "keepdim")) or const(argument(node, "keepdims"))
        return number - 1 if isinstance(axis, int) and not kept else None
    return None


def _of_list(code: Code, node: ast.AST, depth: int) -> int | None:
    """Return the axes of `torch.tensor(rows)`, including a list filled with `append`."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if not isinstance(value, ast.List) or value.elts or not isinstance(node, ast.Name):
        return axes(code, node, depth)
    added = [
        call.args[0]
        for call in code.methods(code.function_of(node), "append")
        if name_of(receiver(call)) == node.id and len(call.args) == 1
    ]
    counts = {axes(code, arg, depth) for arg in added}
    inner = counts.pop() if len(counts) == 1 else None
    return None if inner is None else inner + 1


# ---------------------------------------------------------------- one column


def column(code: Code, node: Any) -> bool:
    """Return True if a node is the (n, 1) output of a local model with one output unit."""
    value = code.resolved(node) if isinstance(node, ast.AST) else None
    if not isinstance(value, ast.Call) or code.called(value):
        return False
    if any(method(arg) == "squeeze" and not arg.args for arg in value.args):
        return False  # without its batch axis for a single sample
    layer = _final_constructor(code, construction(code, value.func))
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
    values = code.return_values(forward)
    value = values[0] if len(values) == 1 else None
    for _ in range(4):
        value = code.resolved(value) if isinstance(value, ast.AST) else None
        if not isinstance(value, ast.Call):
            return None
        if not _ELEMENTWISE.match(method(value)):
            break
        value = value.args[0] if code.called(value) and value.args else receiver(value)
    if not isinstance(value, ast.Call) or code.called(value) or is_inside(forward, value):
        return None
    return _final_constructor(code, construction(code, value.func))


_ACTIVATIONS = re.compile(r"nn\.(Sigmoid|Tanh|ReLU|LeakyReLU|Softplus|ELU|Identity)$")


def _final_constructor(code: Code, constructor: ast.Call | None) -> ast.Call | None:
    """Return the constructor of the last layer, even in nested `nn.Sequential`."""
    for _ in range(4):
        if code.called(constructor) == "nn.Sequential" and constructor.args:
            inner = layers(code, constructor)
            while inner and _ACTIVATIONS.match(code.called(inner[-1])):
                inner.pop()
            constructor = construction(code, inner[-1]) if inner else None
    return constructor
