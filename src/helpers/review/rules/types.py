"""Inputs and targets with a dtype that the layer or the loss does not accept."""

import ast
import re

from helpers.review.axes import axes
from helpers.review.code import Part
from helpers.review.history import dtype, history
from helpers.review.kinds import kind
from helpers.review.registry import rule
from helpers.review.rules.outputs import last_linear
from helpers.review.syntax import LOOPS, ancestors, argument, const, method, name_of
from helpers.review.tracing import construction, forward_values, loss_calls

_FLOAT_LAYERS = re.compile(r"nn\.(Linear|Conv\dd|LSTM|GRU|RNN|BatchNorm\dd|Bilinear)$")
_OTHER_DTYPE = re.compile(
    r"\.double\(\)|set_default_|dtype=torch\.(float64|double)|autocast|half\("
)


@rule("types-input-error", "raises")
def input_of_other_dtype(code):
    """`model(torch.from_numpy(x))` of a float64 array: the weights are float32."""
    if _OTHER_DTYPE.search(code.source):
        return
    for call in code.calls:
        if (
            code.called(call)
            or not call.args
            or not (kind(code, call.func) or "").startswith("mod")
        ):
            continue
        input_dtype = dtype(code, call.args[0])
        if (
            input_dtype == "float64"
            and not _converts_input(code, call)
            or input_dtype == "int64"
            and _FLOAT_LAYERS.match(code.called(_first_layer(code, call.func)))
        ):
            yield call


def _converts_input(code, call):
    """Return whether the `forward` of the model converts its input."""
    name = (kind(code, call.func) or "").removeprefix("module:")
    forward = code.functions.get((name, "forward"))
    if name in code.classes and forward is None:
        return True
    return forward is not None and re.search(
        r"\.(float|to|type|long)\(|Tensor\(|dtype", code.source_of(forward)
    )


def _first_layer(code, model):
    """Return the constructor of a layer, or of the first layer of `nn.Sequential`."""
    constructor = construction(code, model)
    while code.called(constructor) == "nn.Sequential" and constructor.args:
        constructor = (
            construction(code, constructor.args[0])
            if not isinstance(constructor.args[0], ast.Call)
            else (constructor.args[0])
        )
    return constructor


_BINARY = (("binary_cross_entropy", "BCELoss"), ("binary_cross_entropy_with_logits",) * 2)
_BINARY = (_BINARY[0], ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"))
_CLASSES = (("cross_entropy", "CrossEntropyLoss"), ("nll_loss", "NLLLoss"))


def _targets(code, pairs):
    """Yield each call of a loss with its input and its target."""
    for function, module in pairs:
        for call, prediction in loss_calls(code, function, module):
            target = argument(call, "target", 1)
            if target is not None:
                yield call, prediction, target


@rule("losses-target-type", "raises")
def target_of_other_dtype(code):
    """`bce_with_logits(out, y)` of integers, or `cross_entropy(out, y)` of floats."""
    for call, _, target in _targets(code, _BINARY):
        if dtype(code, target) in ("int64", "int32"):
            yield call
    for call, _, target in _targets(code, _CLASSES):
        if code.called(code.resolved(target)) == "F.one_hot":
            yield call  # of integers, but probabilities are floating point
        elif dtype(code, target) in ("float32", "float64", "int32") and axes(code, target) == 1:
            yield call


_SEQUENCES = re.compile(r"LSTM|GRU|RNN|Transformer|Attention|Conv1d|permute|transpose|Embedding")


@rule("losses-target-column", "raises", "CrossEntropyLoss|cross_entropy|nll_loss|NLLLoss")
def column_of_classes(code):
    """`cross_entropy(fc(x), y.unsqueeze(1))`: the targets must be one number per sample."""
    for call, prediction, target in _targets(code, _CLASSES):
        layer = last_linear(code, prediction)
        several = layer is not None and code.const(argument(layer, "out_features", 1)) != 1
        if (
            several
            and _is_column(code, target)
            and not _SEQUENCES.search(_model_of(code, prediction))
        ):
            yield call


def _model_of(code, prediction):
    """Return the source of the class whose output the loss receives."""
    value = code.resolved(prediction)
    name = (kind(code, getattr(value, "func", None)) or "").removeprefix("module:")
    return code.source_of(code.classes[name]) if name in code.classes else ast.unparse(prediction)


def _is_column(code, target):
    """Return True if the last change of the shape makes a column."""
    for expression in history(code, target):
        if isinstance(expression, ast.Subscript):
            return bool(re.search(r"None\)?$|newaxis", ast.unparse(expression.slice)))
        method_name = method(expression)
        if method_name in ("squeeze", "flatten", "ravel", "argmax", "unsqueeze", "view", "reshape"):
            sizes = [const(a) for a in expression.args]
            return (
                method_name == "unsqueeze"
                and sizes in ([1], [-1])
                or (method_name in ("view", "reshape") and sizes == [-1, 1])
            )
        if isinstance(expression, ast.BinOp):
            return False
    return False


@rule("losses-class-axis", "raises", "CrossEntropyLoss|cross_entropy|nll_loss|NLLLoss")
def classes_last(code):
    """`cross_entropy(fc(lstm(x)[0]), tags)`: the classes are on the last axis and not on axis 1."""
    for call, prediction, target in _targets(code, _CLASSES):
        if not any(isinstance(loop, ast.For) for loop in ancestors(call, *LOOPS)):
            continue
        if isinstance(target, ast.Name | ast.Subscript) and _sequence_output(code, prediction):
            yield call


def _sequence_output(code, prediction):
    """Return whether a value is the output of a model that returns `fc` of all time steps."""
    value = code.value(prediction) if isinstance(prediction, ast.Name) else prediction
    index = value.index if isinstance(value, Part) else None
    model = value.value if isinstance(value, Part) else value
    if not isinstance(model, ast.Call) or not (kind(code, model.func) or "").startswith("module:"):
        return False
    values = forward_values(code, model.func)
    returned = values[0] if len(values) == 1 else None
    if isinstance(returned, ast.Tuple) and index is not None and index < len(returned.elts):
        returned = returned.elts[index]
    for _ in range(3):
        returned = code.value(returned) if isinstance(returned, ast.Name) else returned
    if not isinstance(returned, ast.Call) or code.called(returned) or not returned.args:
        return False
    linear = code.called(construction(code, returned.func)) == "nn.Linear"
    return linear and _all_steps(code, returned.args[0])


def _all_steps(code, node, depth=0):
    """Return True for the whole output of a recurrent layer with `batch_first=True`."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.Call) and depth < 3 and value.args:
        kept = code.called(construction(code, value.func)) in ("nn.Dropout", "nn.LayerNorm")
        return kept and _all_steps(code, value.args[0], depth + 1)
    call = value.value if isinstance(value, Part) and value.index == 0 else None
    constructor = construction(code, call.func) if isinstance(call, ast.Call) else None
    recurrent = code.called(constructor) in ("nn.LSTM", "nn.GRU", "nn.RNN")
    return recurrent and const(argument(constructor, "batch_first")) is True and name_of(call.func)
