"""Follow a value back to its creation, even through loaders and datasets; infer its dtype."""

from __future__ import annotations

import ast
import re
from typing import Any

from helpers.review.code import Code, Part, has_parameter
from helpers.review.syntax import argument, const, is_open, method, name_of
from helpers.review.tracing import dataset_of

_LONGEST = 24
_ALIKE = re.compile(  # functions whose first argument has the values of the result
    r"torch\.(from_numpy|tensor|as_tensor|autograd\.Variable|Tensor|FloatTensor|LongTensor|"
    r"DoubleTensor|IntTensor|squeeze|unsqueeze|reshape|flatten)$|"
    r"numpy\.(array|asarray|sin|cos|exp|sqrt|tanh|reshape|expand_dims|squeeze|ascontiguousarray)$"
)
_SETS = re.compile(r"data\.(Subset|random_split)$")
_STEPS = ("training_step", "validation_step", "test_step")  # LightningModule


def history(code: Code, node: Any) -> list[ast.AST]:
    """Return the expressions that a value passes through, the last one first."""
    steps: list[ast.AST] = []
    for _ in range(_LONGEST):
        if isinstance(node, Part):
            node = _of_part(code, node)
        elif isinstance(node, ast.Name | ast.Attribute) and (value := code.value(node)) is not None:
            node = value
        elif isinstance(node, ast.Subscript | ast.BinOp):
            steps.append(node)
            node = node.value if isinstance(node, ast.Subscript) else None
        elif isinstance(node, ast.Call):
            steps.append(node)
            node = _converted_value(code, node)
        else:
            break
    return [*steps, *([node] if isinstance(node, ast.AST) else [])]


def _converted_value(code: Code, call: ast.Call) -> ast.AST | None:
    """Return the value that a call converts, moves or reshapes."""
    name = code.called(call)
    if name:
        return call.args[0] if _ALIKE.match(name) and call.args else None
    if isinstance(call.func, ast.Attribute) and name_of(call.func.value) != "self":
        fitted = call.func.attr in ("fit_transform", "transform") and call.args
        return call.args[0] if fitted else call.func.value
    return code.returned(call)


def _of_part(code: Code, part: Part) -> Any:
    """Return the expression of one item of a tuple, of a batch, or of a split."""
    value, index = part.value, part.index
    if index is None:
        return _of_batch(code, value, part.element) if part.element is not None else None
    if code.called(value) == "sklearn.model_selection.train_test_split":
        args = [arg for arg in value.args if not isinstance(arg, ast.Starred)]
        return args[index // 2] if index // 2 < len(args) else None
    if isinstance(value, ast.Name):  # `x, y = batch`
        batch = code.value(value)
        if isinstance(batch, Part) and batch.index is None and batch.element is None:
            return _of_batch(code, batch.value, index)
        if batch is None and getattr(value.scope, "name", "") in _STEPS:
            return _of_batch(code, fitted_loader(code, value), index)
    return code.element(part)


def fitted_loader(code: Code, batch: ast.Name) -> ast.AST | None:
    """Return the loader of `trainer.fit(model, loader)` for `batch` in `training_step`."""
    if not has_parameter(batch.scope, batch.id) or batch.scope.name != "training_step":
        return None
    for call in code.calls:
        if method(call) == "fit" and len(call.args) + len(call.keywords) >= 2:
            return argument(call, "train_dataloaders", 1)
    return None


def _of_batch(code: Code, loader: ast.AST | None, index: int) -> Any:
    """Return the expression of item `index` of a sample of a loader's dataset."""
    return _of_sample(code, dataset_of(code, loader), index)


def _of_sample(code: Code, dataset: Any, index: int, depth: int = 0) -> Any:
    value = code.resolved(dataset) if isinstance(dataset, ast.AST) else dataset
    if isinstance(value, Part):
        value = value.value
    if not isinstance(value, ast.Call) or depth > 3:
        return None
    name = code.called(value)
    if _SETS.match(name) and value.args:
        return _of_sample(code, value.args[0], index, depth + 1)
    if name == "data.TensorDataset":
        return value.args[index] if index < len(value.args) and not is_open(value) else None
    return returned_item(code, value, index)


def returned_item(code: Code, dataset: ast.Call, index: int) -> ast.AST | None:
    """Return the expression of item `index` that `__getitem__` of a local dataset returns."""
    get = code.functions.get((name_of(dataset.func), "__getitem__"))
    values = code.return_values(get)
    items = values[0].elts if len(values) == 1 and isinstance(values[0], ast.Tuple) else []
    return items[index] if index < len(items) else None


# ---------------------------------------------------------------- dtypes

_METHODS = {"float": "float32", "double": "float64", "long": "int64", "int": "int32"}
_TENSORS = {"FloatTensor": "float32", "LongTensor": "int64", "DoubleTensor": "float64"}
_TENSORS |= {"Tensor": "float32", "IntTensor": "int32"}
_FLOATS = re.compile(r"torch\.(rand|randn|zeros|ones|empty|linspace|eye|normal|rand_like)$")
_COUNTS = re.compile(r"torch\.(randint|randperm|argmax)$|numpy\.random\.(randint|permutation)$")
_DOUBLES = re.compile(
    r"numpy\.(random\.(rand|randn|random|uniform|normal|random_sample)|linspace|zeros|ones|"
    r"loadtxt|genfromtxt)$|sklearn\.datasets\.make_\w+$"
)


def dtype(code: Code, node: Any, depth: int = 0) -> str | None:
    """Return the dtype of a tensor or array, such as "float64"; None if it cannot be inferred."""
    for expression in history(code, node) if depth < 4 else ():
        if isinstance(expression, ast.BinOp):
            return _of_operation(code, expression, depth)
        if isinstance(expression, ast.List | ast.Constant):
            return _of_literal(expression)
        if isinstance(expression, ast.Call):
            call_dtype = _of_call(code, expression)
            if call_dtype is not None:
                return call_dtype if call_dtype != "unknown" else None
    return None


def _of_call(code: Code, call: ast.Call) -> str | None:
    """Return the dtype of a call's result, None if the dtype of the argument remains."""
    name, method_name = code.called(call), method(call)
    if (dtype_argument := argument(call, "dtype")) is not None:
        return _named_dtype(code, dtype_argument)
    if not name and method_name in _METHODS and not call.args:
        return _METHODS[method_name]
    if not name and method_name in ("to", "type", "astype"):
        return (
            _named_dtype(code, call.args[0])
            if call.args and _is_dtype(code, call.args[0])
            else None
        )
    if method_name in _TENSORS and name:
        return _TENSORS[method_name]
    if method_name == "fit_transform" or _DOUBLES.match(name):
        return "float64"
    if _FLOATS.match(name):
        return "float32"
    if _COUNTS.match(name) or not name and method_name == "argmax":
        return "int64"
    kept = (
        _ALIKE.match(name)
        or not name
        and re.match(
            r"(view|reshape|squeeze|unsqueeze|flatten|ravel|cuda|cpu|numpy|copy|clone|contiguous|"
            r"detach|transpose|permute|t|requires_grad_|transform)$",
            method_name,
        )
    )
    return None if kept or code.returned(call) is not None else "unknown"


def _is_dtype(code: Code, node: ast.AST) -> bool:
    written = ast.unparse(node)
    return bool(re.search(r"float|double|half|int|long|bool|Tensor", written)) and (
        (code.dotted(node) or "").startswith(("torch.", "numpy."))
        or isinstance(node, ast.Constant | ast.Name)
    )


def _named_dtype(code: Code, node: ast.AST) -> str:
    """Return the dtype of `torch.float`, `np.float32`, `"float32"` or `float`."""
    numpy = (code.dotted(node) or "").startswith("numpy") or not isinstance(node, ast.Attribute)
    name = str(const(node) or name_of(node) or "").rpartition(".")[2]
    short = {"float": "float64" if numpy else "float32", "double": "float64", "long": "int64"}
    short |= {"int": "int64" if numpy else "int32", "FloatTensor": "float32"}
    short |= {"LongTensor": "int64"}
    known = re.fullmatch(r"(float|int|uint)\d+|bool|half", name)
    return short.get(name, name if known else "unknown")


def _of_literal(node: ast.AST) -> str | None:
    while isinstance(node, ast.List) and node.elts:
        node = node.elts[0]
    value = const(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return "int64" if isinstance(value, int) else "float32"


def _of_operation(code: Code, node: ast.BinOp, depth: int) -> str | None:
    """Return the dtype of a sum, product and so on, "float64" if one of the arrays has it."""
    if isinstance(node.left, ast.List):  # `[0, 1] * 16`
        return _of_literal(node.left)
    sides = [side for side in (node.left, node.right) if const(side) is None]
    dtypes = [dtype(code, side, depth + 1) for side in sides]
    if "float64" in dtypes and None not in dtypes:
        return "float64"
    return dtypes[0] if dtypes and len(set(dtypes)) == 1 and dtypes[0] != "int64" else None
